/* The client side: one connection to one of several addresses, calls on it.
 *
 * A channel holds at most one connection.  It does not reconnect by itself: its owner decides when
 * (the worker's backoff, the command's one try). */
#ifndef REINS_GRPC_CLIENT_H
#define REINS_GRPC_CLIENT_H

#include "common/grpc/grpc.h"
#include "common/loop/loop.h"
#include "common/stream/stream.h"

struct grpc_channel;
struct grpc_client_call;

struct grpc_channel_config {
	struct grpc_limits limits;
	const char *authority;       /* ":authority" */
	const char *user_agent;
	const char *bearer_token;    /* NULL: none. Sent as `authorization: Bearer …`, never indexed */
	/* The connection is usable (SETTINGS of the peer arrived). */
	void (*on_ready)(void *arg);
	/* The connection ended or never came to be; open calls got their on_status before.  Once.  The owner frees the
	 * channel, in here or later. */
	void (*on_closed)(void *arg, const char *text);
	/* The peer sent GOAWAY: open calls go on, new ones are refused with UNAVAILABLE. May be NULL. */
	void (*on_goaway)(void *arg);
	void *arg;
};

/* Resolves nothing: a connected or connecting address.  `tls` NULL: h2c with prior knowledge. */
int grpc_channel_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
			 const char *server_name, int64_t connect_deadline_mono_ns,
			 const struct grpc_channel_config *cfg, struct grpc_channel **ret) MUST_CHECK;
/* Over an open stream (tests). */
int grpc_channel_adopt(struct loop *loop, struct stream *s, const struct grpc_channel_config *cfg,
		       struct grpc_channel **ret) MUST_CHECK;
/* GOAWAY, then closes when the last call ended; on_closed follows. */
void grpc_channel_shutdown(struct grpc_channel *ch);
/* At once; open calls get on_status(UNAVAILABLE) inside this call, on_closed is not called. NULL-safe. May be called
 * from any callback or outside; the memory goes at the end of the turn. */
void grpc_channel_free(struct grpc_channel *ch);
/* For logs; address "gone" after the end. */
const struct stream_peer *grpc_channel_peer(const struct grpc_channel *ch);

enum grpc_call_kind { GRPC_CALL_UNARY, GRPC_CALL_STREAM };

struct grpc_call_events {
	void (*on_message)(void *arg, const uint8_t *data, size_t len); /* data valid in the call only */
	void (*on_writable)(void *arg);                                 /* after a send that said -EAGAIN; may be NULL */
	/* Last; the call may not be used afterwards. Unary calls that end OK had exactly one on_message. */
	void (*on_status)(void *arg, const struct grpc_status *status);
};

/* Also before on_ready: it leaves once the connection is there. Errors, on_status is not called then: -ENOTCONN (closed
 * or going away), -EAGAIN (limits.max_streams calls are open), -ENOMEM. */
int grpc_call_start(struct grpc_channel *ch, const char *path, enum grpc_call_kind kind,
		    int64_t deadline_mono_ns, const struct grpc_call_events *ev, void *arg,
		    struct grpc_client_call **ret) MUST_CHECK;
/* As grpc_call_send of the server side. A UNARY call is half-closed by its one message. */
int grpc_client_send(struct grpc_client_call *c, const void *data, size_t len) MUST_CHECK;
int grpc_client_send_packed(struct grpc_client_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out),
			    const void *msg) MUST_CHECK;
size_t grpc_client_queued(const struct grpc_client_call *c);
/* No more messages from us. */
void grpc_client_half_close(struct grpc_client_call *c);
/* RST_STREAM(CANCEL); on_status(CANCELLED) follows in a later step. */
void grpc_client_cancel(struct grpc_client_call *c);
/* Stops on_message of a STREAM call, and with it the crediting of its window; on_status waits for what is held back,
 * unless the connection is lost. */
void grpc_client_pause(struct grpc_client_call *c, bool paused);

#endif
