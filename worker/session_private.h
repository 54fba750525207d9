/* Between session.c (the stream, what comes in) and session_send.c (what goes out). */
#ifndef REINS_WORKER_SESSION_PRIVATE_H
#define REINS_WORKER_SESSION_PRIVATE_H

#include "worker/session.h"

#define HEARTBEATS_MAX 32 /* sent and not answered; the ack timeout is far shorter */

enum session_state {
	SESSION_NONE,
	SESSION_HELLO, /* Hello is on its way, Welcome is awaited */
	SESSION_UP,
};

struct heartbeat {
	int64_t number, boot_ns, mono_ns;
};

/* The argument of the call's callbacks: outlives the session's interest in that call. */
struct session_stream {
	struct session *session; /* NULL: left behind */
};

struct session {
	struct session_config cfg;
	enum session_state state;
	struct grpc_client_call *call;
	struct session_stream *stream;
	struct loop_dirty dirty;
	struct list hello;          /* struct piece: packed, not sent yet */
	bool blocked;               /* -EAGAIN; on_writable comes */

	int64_t number, last_number; /* of this session and of the one before, as masters count */
	bool refused;               /* the newest Hello, and it opened no session */
	bool unsettled, was_unsettled; /* a Hello since last_number may have opened a session; that, before the newest */
	bool welcome_begun;
	int64_t interval_ns, lease_ns;
	int64_t last_dispatch;

	struct heartbeat sent[HEARTBEATS_MAX]; /* by number */
	int64_t heartbeat_number, acked_number;
	bool heartbeat_due;
	struct loop_timer heartbeat_timer, ack_timer;
	struct rng rng;             /* of the second heartbeat's time */

	struct buf scratch;         /* outcomes of one message */
	bool leaving, half_closed;
	bool draining, say_draining;
	Reins__V1__DrainMode drain_mode;
	int64_t drain_within_ns;
};

/* Packs Hello with the list into s->hello. */
void session_make_hello(struct session *s);
void session_drop_hello(struct session *s);
void session_flush(struct session *s);
/* Sets the timer for the oldest heartbeat without an answer. */
void session_arm_ack(struct session *s);

#endif
