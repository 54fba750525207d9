/* The store: where tasks live.  The only truth.
 *
 * Asynchronous, by operations that the caller owns: fill the inputs, store_submit(), and op.done is
 * called from the loop, never inside the call; the operation may be used again then.  A store gathers the
 * operations of one kind that came in one loop turn into one statement (LOOP_STORE phase), and
 * while enough batches of that kind are on the way lets more gather.  A batch is ordered by task id and
 * holds each key once; one that fails for its content is halved until the guilty item stands alone.
 *
 * An answer other than STORE_UNAVAILABLE is final.  A statement whose outcome is unknown (the connection was lost after
 * it was sent) is settled by the store itself before it answers: it runs once more on the next connection, where a
 * second run changes nothing and finds what the first did.  STORE_UNAVAILABLE means that nothing was changed, or
 * (op.maybe_done) that the store was stopped before it could be settled.
 *
 * Bytes are opaque: spec, result and error text are stored exactly.
 *
 * Operations that read are in store_reads.h, those about workers in workers.h, about logs and metrics in store_logs.h and
 * store_metrics.h. */
#ifndef REINS_STORE_H
#define REINS_STORE_H

#include "common/base/clock.h"
#include "common/base/histogram.h"
#include "server/store/store_op.h"
#include "server/store/store_reads.h"

struct store;
struct loop; /* what a store of some kind is made with */

/* To whom a task is given, and by whom.  The store gives it only while session and incarnation are the newest: a master
 * that was stopped and goes on gives out nothing for sessions that have moved on, or once others judge its sessions. */
struct store_assignment {
	const char *worker; /* NULL: none */
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session;
	int64_t lease_ns;
	const char *master; /* NULL: whoever; else that of this incarnation */
	int64_t incarnation;
};

/* ---- operations: `in` fields first, then `ret_` fields ---- */

struct store_insert {
	struct store_op op;
	struct core_task task;           /* id, queue, priority, need, handler, custom, exclusive, lease_ttl, retry policy */
	const char *name;                /* "" when none */
	const char *owner;               /* principal; "" */
	struct blob *spec;               /* encoded TaskSpec */
	struct blob *env_free_spec;      /* NULL: none. The spec without payload and env, for lists */
	struct store_bytes labels;       /* as in labels.h; empty: none */
	const char *idempotency_key;     /* NULL: none */
	uint8_t idempotency_hash[32];    /* SHA-256 of the spec */
	int64_t delay_ns;                /* > 0: not before now + delay by the database's clock */
	int64_t run_at_wall_us;          /* > 0: not before this time (delay_ns is 0 then) */
	int64_t expiry_ns;               /* > 0: EXPIRE ends it if it was not given out so long after now */
	struct store_assignment eager;   /* worker set: insert as RUNNING, attempt 1; as PENDING where that is not given any more */
	/* All-or-none groups: the first operation's `group_n` is the size and `group_next` chains the others; only the
	 * first is submitted, all get their verdicts before the first's done is called.  The first's op.result is
	 * the whole group's.  A key conflict in one creates none of the group: the others' verdict is 0 then. */
	struct store_insert *group_next;
	int32_t group_n;
	enum { STORE_INSERT_CREATED = 1, STORE_INSERT_EXISTS, STORE_INSERT_KEY_CONFLICT } ret_verdict;
	struct uuid ret_id;              /* EXISTS, KEY_CONFLICT: the task that the key made */
	int64_t ret_seq;
	bool ret_given;                  /* CREATED: as RUNNING */
};

struct store_claim {
	struct store_op op;
	struct core_task task; /* id, queue, priority, seq: the ready row's key */
	struct store_assignment to;
	bool ret_won;
	bool ret_stale; /* not won for the giver: the worker has a newer session, or this master another incarnation */
	/* The row now: attempt, failures, retry policy; queue, handler and custom are the input's pointers. A row whose expiry
	 * has come is not won. */
	struct core_task ret_task;
	struct blob *ret_spec;     /* when won; freed by store_op_done_fields unless the caller takes it (sets NULL) */
};

struct store_record {
	struct store_op op;
	struct core_attempt at;
	const char *worker;
	enum store_outcome outcome;
	bool has_exit_code, has_signal;
	int32_t exit_code, signal;
	struct store_bytes error;  /* <= 16 KiB */
	struct blob *result;       /* NULL: none */
	int64_t result_too_large;  /* > 0: the size of a result that was dropped */
	int64_t started_wall_us, finished_wall_us; /* by the worker's clock; 0 unknown */
	int64_t log_end, log_dropped; /* bytes of it that are not kept */
	bool oom_killed;
	const char *devices;       /* separated by spaces; NULL: as STARTED said */
	const char *words;         /* why it ended, where outcome does not say it all; NULL: none. A wish's own go first */
	int32_t lost_limit;        /* WORKER_LOST: the loss with this number ends the task as FAILED; 0: none does */
	/* Delay if attempts remain; never shorter than the row's policy asks for.  Only of ends that the program caused. */
	int64_t retry_in_ns;
	enum core_record_verdict ret_verdict;
	enum store_state ret_state;  /* the row's, when RECORDED */
	int64_t ret_due_in_ns;       /* PENDING: 0: at once */
	/* Its ready row when ret_state is PENDING.  ret_state is RUNNING when the outcome was
	 * recorded, but that became known only after a lost connection and the task has gone on since. */
	struct core_task ret_task;
	char *ret_texts;             /* backs those of ret_task; freed by store_op_done_fields */
};

struct store_take_back {
	struct store_op op;
	struct core_attempt at;
	int64_t session;     /* of the row */
	enum core_take_back_cause cause;
	const char *words;   /* as in store_record */
	bool counted;
	int32_t lost_limit;
	enum core_take_back_verdict ret_verdict;
	struct core_task ret_task;
	char *ret_texts;
};

struct store_cancel {
	struct store_op op;
	struct uuid id;
	const char *words;   /* by whom or why, kept for the attempt's cause; of several wishes the first one's; NULL: none */
	enum { STORE_CANCEL_DONE = 1, STORE_CANCEL_WISH, STORE_CANCEL_TERMINAL, STORE_CANCEL_NOT_FOUND } ret_verdict;
	struct core_attempt ret_at; /* WISH: the running attempt */
};

/* A FAILED or CANCELLED task back to PENDING: its counts at 0, its wish forgotten, its attempts kept and all closed.  An
 * exclusive one is not ready before the leases have ended of attempts that no worker reported the end of. */
struct store_retry {
	struct store_op op;
	struct uuid id;
	int32_t attempt;     /* must be the row's newest; 0: none yet */
	/* NOT_ENDED, COMPLETED, ANOTHER (it ended, but with another attempt): nothing was changed. */
	enum { STORE_RETRY_DONE = 1, STORE_RETRY_NOT_ENDED, STORE_RETRY_COMPLETED, STORE_RETRY_ANOTHER,
	       STORE_RETRY_NOT_FOUND } ret_verdict;
	enum store_state ret_state; /* the row's now. DONE and RUNNING: known after a lost connection, and given out since */
	int32_t ret_attempt;        /* the row's newest */
	int64_t ret_due_in_ns;      /* PENDING: 0: at once */
	struct core_task ret_task;  /* DONE and PENDING: its ready row */
	char *ret_texts;            /* backs ret_task's */
};

struct store_session_open {
	struct store_op op;
	const char *worker;
	struct blob *hello; /* an encoded reins.v1.WorkerInfo: what is to be shown of the worker; NULL: nothing */
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t hello_number; /* 0: not counted */
	const char *master;
	const struct core_attempt *held;
	size_t n_held;
	int64_t lease_ns; /* of the session: what it adopts gets no shorter one */
	bool in_process;
	/* The newest session is of this very hello or a later one, by CORE_HELD_UP_US at most: this one was held up on its
	 * way to the store, and its list is old. Nothing was changed, and nothing else is returned. */
	bool ret_stale;
	int64_t ret_session;
	struct store_drain_wish ret_drain;
	bool ret_new_instance; /* the worker's row named another instance before, or there was none */
	struct core_adopted *ret_adopted;
	size_t ret_n_adopted;
	struct core_task *ret_requeued;
	size_t ret_n_requeued;
	/* Exclusive rows of an older instance that the list lacks: re-stamped with this session, still RUNNING. */
	struct core_adopted *ret_waiting;
	size_t ret_n_waiting;
	struct core_attempt *ret_fenced;
	size_t ret_n_fenced;
	void *ret_memory; /* backs all of these; freed by store_op_done_fields */
};

struct store_started {
	struct store_op op;
	struct core_attempt at;
	const char *worker;
	int64_t started_wall_us;
	const char *devices; /* given to it, separated by spaces; NULL: none */
};

/* A new process under a master id is its next incarnation at once; so is one that was taken over, and goes on. */
struct store_master_open {
	struct store_op op;
	const char *master;
	struct uuid process; /* random, one for the life of the process */
	bool again;          /* only if the row is still this process's */
	bool ret_replaced;   /* it was not: nothing was changed */
	int64_t ret_incarnation;
	char ret_store_id[UUID_TEXT_LEN + 1];
};

/* Beat + 1, if the row names this incarnation.  At most one of the two is set. */
struct store_beat {
	struct store_op op;
	const char *master;
	int64_t incarnation;
	struct uuid process;
	bool ret_replaced;   /* another process has opened the row since */
	bool ret_taken_over; /* another master judges the sessions of this one (or the row is gone) */
};

/* Incarnation + 1 of a master that shows no life: if incarnation and beat are still as they were seen.  Its process can
 * neither beat nor give out tasks from then on, until it has found out and opened its row again. */
struct store_take_over {
	struct store_op op;
	const char *master;
	int64_t incarnation, beat;
	bool ret_taken; /* the beat is as it was seen, and the incarnation is a later one, by whomever */
	int64_t ret_incarnation;
};

struct store_ops {
	void (*submit)(struct store *s, struct store_op *op);
	/* Ends connections; operations still open get UNAVAILABLE with maybe_done before it returns. */
	void (*free)(struct store *s);
};

struct store {
	const struct store_ops *ops;
	/* Up: connected, schema current, writable. Changes are told once each by on_state. */
	bool up, newer_schema; /* the latter: down for good, a later version of the program has upgraded what is stored */
	bool alone; /* whoever has it open keeps all other processes out */
	char down_text[200];
	void (*on_state)(void *arg, bool up, const char *text);
	void *on_state_arg;
	void (*on_change)(void *arg); /* tasks may have changed; only takes a note. NULL: nobody wants to know */
	void *on_change_arg;
	/* Accepted and not answered, members of groups counted one by one, and what they hold; their limits. */
	int64_t queued, queued_bytes, max_queued, max_queued_bytes;
	/* for metrics */
	int64_t refused_full; /* over the limits */
	int64_t results[STORE_KINDS][STORE_RESULTS], batches_done[STORE_KINDS];
	struct histogram took[STORE_KINDS]; /* from submit to done */
};

static inline void store_submit(struct store *s, struct store_op *op)
{
	op->submitted_mono_ns = clock_mono_ns();
	s->ops->submit(s, op);
}

/* For stores: counts the answer, and calls done. */
void store_tell(struct store *s, struct store_op *op);
/* For stores: counts in what is submitted.  False: over a limit; the operation has its result and text, and is to be told. */
bool store_take(struct store *s, struct store_op *op, int64_t items, int64_t bytes) MUST_CHECK;
const char *store_kind_name(enum store_kind kind); /* "insert" */
static inline void store_free(struct store *s) { if (s) s->ops->free(s); }
/* Frees the ret_ memory of an operation, whichever its kind; NULL-safe for what was not set. */
void store_op_done_fields(struct store_op *op);

#endif
