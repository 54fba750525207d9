/* gRPC over HTTP/2: words shared by the server and the client side.
 *
 * Messages are bytes here; packing is common/pb's business.  No handler is ever called from
 * inside a call into this module: what the peer sent is queued while the HTTP/2 session reads
 * it and delivered afterwards in the same turn.  Sending marks the connection dirty; bytes leave in
 * the LOOP_WRITE phase, one write per socket and turn. */
#ifndef REINS_GRPC_H
#define REINS_GRPC_H

#include "common/base/base.h"
#include "common/base/refusal.h"

#define GRPC_NO_DEADLINE INT64_MAX

/* What max_message may be raised to: unpacked it must fit pb_limits_default, and conn_recv must hold it.  Clients take
 * as much, whatever their server's limit is. */
#define GRPC_MESSAGE_MAX (16 * 1024 * 1024)

/* Limits of one connection, and one of all; the defaults are grpc_limits_default's.  Each names the attack or mistake it is for. */
struct grpc_limits {
	size_t max_message;         /* 4 MiB: a message is refused by its declared length, before it is buffered */
	size_t max_header_list;     /* 16 KiB, advertised and enforced: HPACK bombs */
	uint32_t max_header_fields; /* 100 */
	uint32_t max_streams;       /* 1000 concurrent per connection, handlers of reset streams included */
	uint32_t stream_window;     /* 256 KiB: what a peer may have on the way per stream */
	uint32_t conn_window;       /* 1 MiB */
	size_t stream_queue;        /* 256 KiB encoded bytes queued to one stream before grpc_*_send says -EAGAIN
	                               (one message of any allowed size always fits into an empty queue) */
	size_t conn_queue;          /* 8 MiB over all streams of a connection: then no new request is handed to its handler
	                               and streams are told -EAGAIN. Reading goes on: the peer's window updates
	                               are what the queue waits for */
	size_t conn_recv;           /* 32 MiB of incomplete messages over all streams: then the call that adds is refused */
	size_t all_recv;            /* 256 MiB of them over all connections (server): then the call goes whose rest was waited for
	                               the longest; as much again for methods with `apart`. 0: no limit */
	int64_t keepalive_ns;       /* PING after this time without a frame from the peer; 0: none */
	int64_t keepalive_timeout_ns;
	int64_t ping_min_ns;        /* 10 s: how often a peer may send a PING (server); 0: as often as it likes */
	int64_t max_age_ns;         /* a connection older than this is drained (server), a tenth sooner or later; 0: none */
	int64_t max_age_grace_ns;   /* 30 s more for its calls, then they end with UNAVAILABLE */
	int64_t blocked_output_ns;  /* 60 s: a peer that takes nothing while we hold output is cut */
	int64_t first_headers_ns;   /* 10 s from accept to the client's SETTINGS: slowloris */
	int64_t body_ns;            /* 30 s without a byte of an incomplete request of one message (server): slowloris; 0: none */
	int64_t idle_ns;            /* 10 min without a stream (server); 0: none */
	int64_t unproven_idle_ns;   /* 30 s, the same while no call of the connection was answered with a message: who is
	                               refused, or asks nothing, is not kept */
};
void grpc_limits_default(struct grpc_limits *l);
/* keepalive_ns, and as long again for the answer, but no longer than by default. So a peer that is gone without a word is
 * noticed within twice the time. */
void grpc_limits_set_keepalive(struct grpc_limits *l, int64_t ns);

/* The end of a call. */
struct grpc_status {
	enum status_code code;
	char message[512];
	/* The server's google.rpc.Status as it came, when there was one; valid in the callback only. */
	const uint8_t *details;
	size_t details_len;
	int64_t retry_after_ms; /* from RetryInfo; 0 when none */
	/* Client side: nothing of the call can have reached a handler (refused stream, GOAWAY below its id, no
	 * connection): a repeat is safe whatever the method. */
	bool unprocessed;
};

#endif
