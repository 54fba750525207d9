/* One session with a master after another: Hello with the list, Welcome, heartbeats, and the carrying of news between the
 * attempts and the stream.
 *
 * Everything is sent in one flush per turn, in this order: heartbeat, what was accepted, refused and started (one
 * message each), draining, logs, outcomes.  So neither a long log nor a large result stands before a heartbeat
 * for longer than the stream's queue is deep. */
#ifndef REINS_WORKER_SESSION_H
#define REINS_WORKER_SESSION_H

#include "common/base/base.h"
#include "common/grpc/client.h"
#include "worker/attempts.h"
#include "worker/config.h"
#include "worker/resources.h"

struct session;

struct session_config {
	struct loop *loop;
	struct attempts *attempts;
	struct state_dir *state;
	const struct worker_config *worker;
	const struct resources *resources;
	/* The first answer to Hello. */
	void (*on_answer)(void *arg);
	void (*on_welcome)(void *arg, int64_t lease_ns);
	/* The master says, with every answer, that it has not reached its store for long. */
	void (*on_storeless)(void *arg);
	/* A master asks us to leave (or, with `resume`, to go on). */
	void (*on_drain)(void *arg, const Reins__V1__Drain *drain);
	/* The stream ended, or has to be given up: the owner drops the channel. `code` is of enum status_code;
	 * STATUS_DATA_LOSS also when the master is of another store than the attempts held. */
	void (*on_end)(void *arg, enum status_code code, const char *text);
	void *arg;
};

struct session *session_new(const struct session_config *cfg);
void session_free(struct session *s); /* NULL-safe */
/* On a fresh connection. -errno: it could not even begin. */
int session_open(struct session *s, struct grpc_channel *ch) MUST_CHECK;
/* The connection is gone or about to be. */
void session_close(struct session *s);
/* A master has welcomed us, and the connection is there. */
bool session_is_up(const struct session *s);
/* There is something to say. */
void session_news(struct session *s);
/* Says, now and in every later session, how this worker leaves; `resumed`: that it takes tasks again. */
void session_drain(struct session *s, Reins__V1__DrainMode mode, int64_t within_ns, bool resumed);
/* Says what there is to say and ends the stream; on_end follows when the master has ended it too. False: there is no
 * session to end. */
bool session_leave(struct session *s) MUST_CHECK;

#endif
