/* One worker's stream: session_hello.c learns who the worker is, session_in.c reads what it says then, session_words.c has
 * the words for it, session_log.c and session_metrics.c bring its logs and metrics to the store, session_out.c says what the engine wants said.  Shared by these; rpc.c ends them all. */
#ifndef REINS_RPC_SESSION_H
#define REINS_RPC_SESSION_H

#include "common/base/map.h"
#include "common/loop/loop.h"
#include "reins/v1/worker_service.pb-c.h"
#include "server/rpc/rpc.h"

#define SESSION_STUCK_MAX 100
#define SESSION_TEXT_MAX 255
/* What of one session may wait for the store, in logs, metrics and outcomes: a worker is not to fill our memory.  Then the
 * stream ends. */
#define SESSION_HELD_MAX (64 * 1024 * 1024)
#define SESSION_OFFSET_MAX (INT64_C(1) << 62) /* of a log: ends of pieces are computed from it */
/* See WorkerLimits: far below what is held, however small the pieces. */
#define SESSION_LOG_WINDOW (1024 * 1024)
#define SESSION_LOG_WINDOW_SUM (4 * 1024 * 1024) /* or less, with many sessions: rpc_limits.held_bytes */
#define SESSION_LOG_WINDOW_MIN (64 * 1024)
#define SESSION_SPARE (1024 * 1024) /* beside its window, for outcomes and metrics */

struct session_stuck {
	struct core_attempt at;
	char reason[SESSION_TEXT_MAX + 1];
};

struct session {
	struct engine_peer peer;
	struct rpc *rpc;
	struct grpc_call *call; /* NULL once the stream is over */
	bool closing;           /* finish was called: nothing more is said or heard */
	bool greeted;           /* hello is complete: the engine knows the peer */
	bool left;              /* see session_log_leave */
	bool next_process;      /* it had no session before; until Welcome and what comes with it is said */
	bool paused, draining;  /* as the worker said last, in heartbeats and in draining: either keeps work away */
	int64_t detach_ns;      /* of its Draining; 0: it does not leave its programs running */
	char *paused_reason;    /* NULL: it gave none */
	struct session_stuck *stuck; /* as in its newest heartbeat */
	size_t n_stuck;
	int refs;               /* operations in the store that point here */

	struct list at_rpc;     /* in rpc.sessions while the stream lives */

	bool hello_begun;
	char worker[CORE_NAME_MAX + 1];
	char log_name[CORE_NAME_MAX + 16]; /* "worker=gpu-1", for log lines */
	struct blob *info;
	/* Hello, as its pieces come; nothing from then on */
	struct core_event *hello;
	char **queues, **handlers;
	char *custom;
	struct core_attempt *held;
	size_t n_held, cap_held;
	struct loop_timer hello_timer;

	/* attempts with a start on its way to the store, or an outcome that waits for its log */
	struct map attempts;
	int64_t held_bytes; /* of logs, metrics and outcomes that wait for the store */
	int64_t window;     /* of logs, as Welcome said */
	/* session_log.c */
	struct map logs;          /* of attempts that are not ended */
	struct list logs_due;     /* with something to be submitted at the end of this turn */
	struct list logs_again;   /* what the store could not take */
	struct loop_dirty logs_dirty;
	struct loop_timer logs_timer;
	struct list metrics_again; /* session_metrics.c: likewise */
	struct loop_timer metrics_timer;
	struct list starting;
	struct loop_timer start_timer;

	/* what is to be said at the end of the turn */
	struct loop_dirty out;
	struct buf dispatch; /* encoded DispatchedTask fields of `number` */
	int64_t dispatch_number, last_number;
	struct buf stops[CORE_STOP_REASONS]; /* encoded AttemptRef fields of Stop, by reason */
	struct buf verdicts; /* encoded OutcomeVerdict fields */
	struct buf stored;   /* encoded LogStored fields */
	int64_t acked;       /* number of the newest heartbeat that was acknowledged */
	bool exclusive_not_renewed; /* by that acknowledgement */
	bool ack_due;
	struct list backlog; /* messages that the stream's queue had no room for */
	size_t backlog_bytes;
};

extern const struct engine_peer_ops session_peer_ops;

static inline struct session *session_of_peer(struct engine_peer *p) { return container_of(p, struct session, peer); }

/* What waits for the store, counted for the session and for all. */
static inline void session_hold_bytes(struct session *s, size_t n)
{
	s->held_bytes += (int64_t)n;
	s->rpc->held_bytes += (int64_t)n;
}
static inline void session_let_bytes(struct session *s, size_t n)
{
	s->held_bytes -= (int64_t)n;
	s->rpc->held_bytes -= (int64_t)n;
}
/* For so much more: a session has a maximum, and while all together are over theirs no more than it was told. */
static inline bool session_has_room(const struct session *s, size_t n)
{
	int64_t then = s->held_bytes + (int64_t)n, limit = s->rpc->limits.held_bytes;
	return then <= SESSION_HELD_MAX && (!limit || s->rpc->held_bytes + (int64_t)n <= limit || then <= s->window + SESSION_SPARE);
}

/* session_out.c */
void session_out_init(struct session *s);
void session_out_done(struct session *s);
/* LogStored for the next heartbeat_ack, which goes out at the end of this turn. */
void session_log_stored(struct session *s, const struct core_attempt *at, int64_t offset);
void session_out_writable(struct session *s);
/* Asks for what lies behind the head of the attempt's log, or for no more of it. */
void session_follow_log(struct session *s, const struct core_attempt *at, bool on);

/* session_log.c */
void session_log_init(struct session *s);
/* The stream is over: what was not submitted is dropped. */
void session_log_stop(struct session *s);
void session_log_done(struct session *s);
void session_log_piece(struct session *s, const Reins__V1__Log *m);
/* In Welcome. */
void session_log_adopted(struct session *s, const struct core_adopted *a);
/* Points up to this number are stored. */
void session_log_metrics(struct session *s, const struct core_attempt *ref, int64_t number);
/* The stream ends: how far all is stored is kept, should the session go on. Once. */
void session_log_leave(struct session *s);
/* Bytes before log_end that are not kept. */
int64_t session_log_dropped(struct session *s, const struct core_attempt *ref, int64_t log_end);
/* The attempt is over. */
void session_log_forget(struct session *s, const struct core_attempt *ref);

/* session_hello.c */
/* Starts the time within which Hello must have come. */
void session_hello_begin(struct session *s);
/* A piece; the last one makes the session known to the engine. */
void session_hello_piece(struct session *s, const Reins__V1__Hello *m);
/* The stream is over: no timer fires any more. */
void session_hello_stop(struct session *s);
void session_hello_done(struct session *s);

/* session_in.c */
/* INVALID_ARGUMENT; -1, to be returned. */
int session_bad_message(struct session *s, const char *what);
/* An attempt that a message names; on failure the stream has been ended and -1 is returned. */
int session_parse_ref(struct session *s, const char *task_id, int32_t attempt, struct core_attempt *ret) MUST_CHECK;
/* Ends the stream with a status; the session is freed when its call has ended and its operations are back. */
void session_end(struct session *s, enum status_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void session_no_memory(struct session *s);
/* UNAVAILABLE with RetryInfo: no session was opened, for the store is away or has that of a newer hello. */
void session_end_away(struct session *s);

/* The outcome of an attempt waits until this is let go again, and the session lives as long.  NULL: the stream has been
 * ended. */
struct attempt *session_hold_outcome(struct session *s, const struct core_attempt *ref) MUST_CHECK;
void session_let_outcome(struct attempt *a);

void session_unref(struct session *s);

/* session_metrics.c */
void session_metrics_init(struct session *s);
/* The stream is over: what waits to be tried again is dropped. */
void session_metrics_stop(struct session *s);
void session_metrics(struct session *s, Reins__V1__Metrics *m);

/* Ends the stream of every worker: the master goes. */
void session_end_all(struct rpc *rpc);

/* ---- session_words.c: what a worker said, as it is stored ---- */

/* 0: no such kind. */
enum store_outcome session_outcome(Reins__V1__Outcome__Kind kind);
/* Why it was stopped, where a wish does not say it; NULL: nothing to say. A constant. */
const char *session_stop_words(const Reins__V1__Outcome *m);
#define SESSION_REFUSAL_MAX 255
/* Cause and text of a refusal. */
void session_refusal_words(const Reins__V1__RefusedAttempt *m, char ret[static SESSION_REFUSAL_MAX + 1]);
/* The names with spaces between, as many as there is room for; names that are none are left out.  NULL: none. To be freed. */
char *session_devices(char *const *names, size_t n);

#endif
