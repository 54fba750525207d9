/* One connection of either role: a stream of bytes, an HTTP/2 session, their timers.
 * Embedded in the server's connection and in the client's channel. */
#ifndef REINS_GRPC_CONN_H
#define REINS_GRPC_CONN_H

#include "common/base/buf.h"
#include "common/grpc/grpc.h"
#include "common/h2/h2.h"
#include "common/loop/loop.h"
#include "common/stream/stream.h"

struct conn;

/* All called from the loop, never from inside conn_*. */
struct conn_ops {
	/* News of one stream, see h2_next. */
	void (*on_stream)(struct conn *c, struct h2_stream *s, unsigned news);
	void (*on_ready)(struct conn *c);  /* the peer's SETTINGS; may be NULL */
	void (*on_goaway)(struct conn *c); /* may be NULL */
	/* Server: the first bytes are no HTTP/2, and nothing was said yet. The callee takes the stream, which the connection
	 * has let go of; on_closed follows. NULL: such a client is told in HTTP/1.1 that it is wrong here. */
	void (*on_other)(struct conn *c, struct stream *s, const uint8_t *data, size_t len);
	void (*on_flushed)(struct conn *c); /* after a write, when queues may have become shorter; may be NULL */
	void (*on_aged)(struct conn *c); /* server: max_age_ns and its grace are over; a second later what is left is cut */
	/* The end; every stream had H2_NEWS_CLOSED before. text: NULL for an orderly end. The owner buries itself. */
	void (*on_closed)(struct conn *c, const char *text);
};

enum conn_state {
	CONN_OPENING, /* connecting */
	CONN_OPEN,
	CONN_ENDING, /* what is in `out` and in the session leaves, then the write side is shut */
	CONN_LINGER, /* reading on, to nowhere, so that the peer gets our last words */
	CONN_CLOSED,
};

struct conn {
	struct loop *loop;
	struct stream *stream;
	struct h2 *h2;
	const struct conn_ops *ops;
	const struct grpc_limits *limits; /* the owner's */
	enum h2_role role;
	enum conn_state state;
	struct loop_dirty dirty;
	struct loop_timer timer;
	struct buf out;
	size_t preface; /* bytes of the client's preface seen (server) */
	bool ready_told, goaway_told, out_pending, idle;
	bool proven; /* server: the owner answered a call with a message; see unproven_idle_ns */
	int64_t age_mono_ns; /* server: when the next step of growing old is due; 0: it does not */
	enum { AGE_YOUNG, AGE_DRAINS, AGE_ENDED } age;
	int64_t opened_mono_ns, received_mono_ns, progress_mono_ns, idle_mono_ns, ping_mono_ns, drain_mono_ns, linger_mono_ns, flushed_mono_ns;
	int64_t bytes_in, bytes_out;
	char text[256];
	char peer[64];
};

/* -ENOMEM. On success the connection owns `s`, on failure the caller still does. */
int conn_init(struct conn *c, struct loop *loop, enum h2_role role, const struct grpc_limits *limits,
	      const struct conn_ops *ops) MUST_CHECK;
/* `open`: the stream is usable already. Takes over the stream's events. */
void conn_attach(struct conn *c, struct stream *s, bool open);
extern const struct stream_events conn_stream_events;
/* Something is to be sent. Idempotent. */
void conn_mark(struct conn *c);
/* Two-step GOAWAY; ends by itself after the last stream. `why`: static text for the peer, or NULL. */
void conn_drain(struct conn *c, const char *why);
/* Ends after what is queued: GOAWAY with code and text; open streams get H2_NEWS_CLOSED. */
void conn_terminate(struct conn *c, uint32_t code, const char *text);
/* From a callback of the loop: everything closed, the streams' and the owner's callbacks are called. */
void conn_fail(struct conn *c, const char *text);
/* At once and without any callback; h2 objects stay readable until conn_done. Idempotent. */
void conn_shut(struct conn *c);
void conn_done(struct conn *c);

#endif
