/* What the files of the core share.  Not for others: they see core.h.
 *
 *   core.c     the step, the table of events, timers
 *   queue.c    queues: names, cursors, reading the backlog, the reconciler
 *   ready.c    the window of ready tasks and the pick
 *   worker.c   workers, what they have free, who fits, leases
 *   session.c  hello, heartbeat, streams that end
 *   job.c      jobs: one task on its way through this master; the only place that changes a job's state
 *   attempt.c  what happens to a job, by state
 *   effects.c  the list of effects and its arena
 *   view.c     looking in, and core_check */
#ifndef REINS_CORE_INTERNAL_H
#define REINS_CORE_INTERNAL_H

#include "common/base/heap.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/rng.h"
#include "server/core/core.h"

#define NEVER INT64_MAX

/* ---- timers ---- */
enum timer_kind { TIMER_WORKER, TIMER_JOB, TIMER_RECONCILE, TIMER_DUE, TIMER_PAUSE };
struct timer {
	struct heap_node node;
	int64_t at;
	enum timer_kind kind;
};
void timer_init(struct timer *t, enum timer_kind kind);
/* NEVER: off. */
void timer_set(struct core *c, struct timer *t, int64_t at);

/* ---- place of a row in its queue ---- */
struct row_key {
	int32_t priority;
	int64_t seq;
};
#define KEY_START ((struct row_key){ INT32_MAX, 0 })
#define KEY_END ((struct row_key){ INT32_MIN, INT64_MAX })
static inline bool key_before(struct row_key a, struct row_key b)
{
	return a.priority != b.priority ? a.priority > b.priority : a.seq < b.seq;
}

struct queue {
	struct map_node node;
	char *name;
	struct heap classes;      /* classes with ready tasks that may fit somebody, best first */
	struct heap worst;        /* every ready task of the window, last in order on top */
	struct list parked;       /* classes that nobody fits until a worker gains something */
	struct list class_list;   /* all classes */
	size_t n_classes;
	struct heap_node order;   /* in core.order while `classes` is not empty */
	struct list link_active;  /* on core.active while n_ready > 0 */
	struct list link_parked;  /* on core.parked while `parked` is not empty */
	struct list link_check;   /* on core.check: may want a fill */
	struct list pools;        /* pool_links of the pools that name this queue */
	size_t n_ready;
	uint64_t turn;            /* lower: waited longer for its turn */
	/* Rows up to here are in the window or on their way; later ones are unread. KEY_END: nothing is unread. */
	struct row_key cursor;
	bool filling, fill_sweeps;
	bool fill_stale;          /* a row was left out while the fill was away: its "exhausted" proves nothing */
	struct row_key fill_from, sweep;
};

/* Tasks of one queue that ask for the same. */
struct class_key {
	struct queue *queue;
	int64_t memory_bytes;
	int32_t cpu_millis, gpus;
	int64_t exclusive;
};
struct class {
	struct map_node node;
	struct class_key key;
	struct queue *queue;
	struct heap jobs;         /* best first */
	struct heap_node order;   /* in queue.classes */
	struct list link_parked;  /* on queue.parked */
	struct list link;         /* on queue.class_list */
};

/* ---- jobs ---- */
enum job_state {
	JOB_READY,       /* in the window */
	JOB_PREEMPTING,  /* slot taken here, asked of the lease table */
	JOB_INSERTING,   /* eager: the insert as RUNNING is on its way */
	JOB_CLAIMING,
	JOB_SENT,        /* dispatched, not accepted yet */
	JOB_RUNNING,
	JOB_RECALLING,   /* exclusive, not accepted in time: waits for the worker's word */
	JOB_ENDED,       /* the tree is gone; the outcome could not be recorded and will be sent again */
	JOB_RECORDING,
	JOB_TAKING_BACK,
	JOB_LEFT,        /* not ours any more; the worker has not said yet that it is gone */
	JOB_WAITING,     /* exclusive, of an older instance: waits for that one's lease */
	JOB_DONE,        /* recorded and acknowledged; the worker may list it once more */
	JOB_STATES
};
enum job_input {
	IN_PREEMPTED, IN_INSERTED, IN_CLAIMED, IN_ACCEPTED, IN_REFUSED, IN_OUTCOME, IN_RECORDED, IN_TAKEN_BACK,
	IN_CANCEL, IN_GONE,
	IN_LISTED,   /* a heartbeat lists it */
	IN_UNLISTED, /* a heartbeat that has seen its dispatch does not */
	IN_LATE,     /* accept-timeout */
	IN_LOST,     /* its lease ended, or the grace of an in-process worker */
	IN_ADOPTED,  /* a new session has it */
	IN_WAITING,  /* a new instance lacks it, and it is exclusive */
	IN_FENCED,   /* a new session lists it but may not have it */
	IN_LEFT_OUT, /* a new session is without it */
	JOB_INPUTS
};
enum job_take_back { TB_NONE, TB_IN_FLIGHT, TB_RETRY };

/* A worker that refused the task a moment ago does not get it straight back. */
struct avoid {
	uint64_t worker; /* serial; 0: none */
	int64_t until;
};

struct job_key {
	struct uuid task;
	int32_t attempt;
};

struct job {
	enum job_state state;
	struct map_node node;   /* core.by_task up to CLAIMING, core.by_attempt from then on */
	struct job_key key;     /* attempt: 0 while in by_task */
	struct core_task t;     /* .queue: interned; .attempt: the newest so far */
	struct queue *queue;
	struct class *class;    /* READY and not resting */
	struct heap_node best, worst;
	struct timer timer;     /* READY: rests until then; WAITING: lease of the old instance */

	struct worker *worker;
	struct list at_worker;  /* worker.jobs */
	struct list sent;       /* worker.sent while SENT, worker.done while DONE */
	int64_t session, lease_ns, number, accept_by;
	int64_t heard;          /* WAITING: last word of the old instance */
	uint64_t mark;          /* worker.mark of the list that named it last */
	uint64_t token, peer;   /* of the submit, or of the outcome */
	struct blob *spec;
	bool holds;             /* counted in worker.used */
	bool unanswered;        /* recalled, and its worker has not answered: counted in worker.unanswered */
	bool cancel, gone;
	bool lost;              /* its lease ended while the store was busy with it */
	bool ours;              /* RECORDING: the row was this attempt's when last heard */
	enum job_take_back tb;
	struct list link_retry; /* core.retry while TB_RETRY */
	enum core_take_back_cause cause;
	bool counted;
	/* a ready row of the same task that came in while this one was on its way */
	bool again;
	struct core_task again_row;
	struct avoid avoid;
};

/* ---- workers ---- */

/* Workers that serve the same queues. */
struct pool_link {
	struct list at_queue;
	struct pool *pool;
};
struct pool {
	struct map_node node;
	struct queue **key;       /* [0]: enforces (as a pointer-sized flag), then the queues, sorted */
	size_t n_queues;          /* 0: all */
	bool enforces;
	struct heap free;         /* workers that take something now: least used first */
	struct core_need max;     /* the most that any of them ever had; not counted: the largest number */
	size_t n_workers;
	struct pool_link *links;
	struct list link_all;     /* core.pools_all when n_queues is 0 */
};

struct hello {
	uint64_t peer;
	uint8_t instance[CORE_INSTANCE_LEN];
	struct core_capacity capacity;
	struct pool *pool;        /* holds a count in pool.n_workers */
	struct core_attempt *held;
	size_t n_held;
	bool in_process, draining;
	bool dead;                /* the stream ended, or was replaced */
	int64_t heard;
};

struct worker {
	struct map_node node;
	char *id;
	uint64_t serial;
	uint64_t peer;
	int64_t session;
	uint8_t instance[CORE_INSTANCE_LEN];
	struct core_capacity capacity;
	int32_t used;
	struct usage { int64_t memory_bytes, cpu_millis, gpus; } used_need; /* sums of what clients ask for */
	struct pool *pool;
	bool in_process, draining;
	struct hello *opening, *next;
	struct list jobs;         /* all that know this worker, READY ones excepted */
	struct list sent, done;   /* oldest first */
	size_t n_jobs, n_done;
	int32_t unanswered;
	struct heap_node free;    /* in pool.free */
	uint64_t given;           /* for spread: lower was given something longer ago */
	struct list link_fresh;   /* core.fresh: gained something in this step */
	struct list link_dead;
	struct timer timer;
	int64_t heard;            /* leases count from here */
	int64_t lease_at;         /* next lease of this worker or of an attempt that ends; NEVER: none */
	int64_t grace_end;        /* in-process worker whose stream ended; NEVER: none */
	int64_t gone_at;
	int64_t hold_until;       /* the lease table refused: nothing before then, or its next heartbeat */
	int64_t number;           /* of the newest dispatch */
	uint64_t number_step;     /* step in which it was counted */
	uint64_t mark;
};

struct peer {
	struct map_node node;
	uint64_t id;
	struct worker *worker;
};

#define GONE_BUCKETS 8

struct core {
	struct core_config cfg;
	int64_t now;
	uint64_t step;
	struct core_effects *out;
	struct rng rng;
	bool store_up, lease_up;
	int64_t store_down_at;
	bool again;               /* the pick stopped at its budget */

	struct heap timers;
	struct timer reconcile, due_timer, pause;

	struct map queues, classes;
	struct heap order;        /* queues, by priority of the head, then turn */
	struct list active, parked, check;
	size_t n_active, n_ready, n_resting;
	uint64_t turn;
	bool queues_known, asking_queues;
	size_t sweep_offset;
	bool asking_due;
	int64_t due_hint;         /* earliest retry heard of while DUE was away */

	struct map by_task, by_attempt;
	size_t n_state[JOB_STATES];
	struct list retry;

	struct map workers, peers, pools;
	struct list pools_all, fresh, dead;
	size_t n_free;            /* workers in pool.free heaps */
	size_t n_connected;
	uint64_t serial;
	uint64_t pick;
	struct { int64_t second; size_t gone, of; } ended[GONE_BUCKETS]; /* streams that ended, by second */
};

/* ---- effects.c ---- */
struct core_effect *emit(struct core *c, enum core_effect_type type);
struct core_effect *emit_worker(struct core *c, enum core_effect_type type, const struct worker *w);
void *emit_alloc(struct core *c, size_t n);
void emit_close(struct core *c, uint64_t peer, enum core_close_code code);
void emit_stop(struct core *c, const struct worker *w, struct core_attempt at, enum core_stop_reason why);
void emit_lease_beat(struct core *c, struct worker *w);

/* ---- queue.c ---- */
struct queue *queue_get(struct core *c, const char *name); /* NULL: too many */
void queue_check(struct core *c, struct queue *q);
void queue_free(struct queue *q);
size_t queue_share(const struct core *c);
void queue_fill_checked(struct core *c);
void queue_reconcile(struct core *c);
void queue_on_queues(struct core *c, const struct core_event *ev);
void queue_on_filled(struct core *c, const struct core_event *ev);
void queue_on_due(struct core *c, const struct core_event *ev);
void queue_due_in(struct core *c, int64_t in_ns);
void queue_ask_due(struct core *c);

/* ---- ready.c ---- */
/* A row that is PENDING in the store. True: in the window now or before. `avoid`: NULL: nobody. */
bool window_offer(struct core *c, const struct core_task *t, const struct avoid *avoid);
void window_remove(struct core *c, struct job *j); /* out of all indexes of the window */
void window_wake(struct core *c, struct job *j);   /* a resting job's time has come */
void window_submit(struct core *c, const struct core_event *ev);
void window_pick(struct core *c);
bool order_less(const struct heap_node *a, const struct heap_node *b);
bool class_less(const struct heap_node *a, const struct heap_node *b);
bool worst_less(const struct heap_node *a, const struct heap_node *b);

/* ---- worker.c ---- */
struct worker *worker_find(const struct core *c, const char *id);
struct worker *worker_new(struct core *c, const char *id);
void worker_maybe_forget(struct core *c, struct worker *w);
void worker_free(struct worker *w);
/* After anything changed that says whether and what it may be given. `gained`: look at parked tasks again. */
void worker_refresh(struct core *c, struct worker *w, bool gained);
bool worker_can_send(const struct worker *w, int64_t session);
bool worker_fits(const struct worker *w, const struct core_need *need);
void worker_take_slot(struct core *c, struct worker *w, struct job *j);
void worker_free_slot(struct core *c, struct worker *w, struct job *j);
struct worker *worker_match(struct core *c, const struct queue *q, const struct core_need *need, bool exclusive,
			    uint64_t avoid, int64_t *budget);
/* NULL: a queue name too many, or no memory. The caller owns one count of n_workers. */
struct pool *pool_get(struct core *c, bool enforces, const char *const *queues, size_t n);
void pool_put(struct core *c, struct pool *p);
void pool_widen(struct pool *p, const struct core_need *have);
/* A word of it came at `at`: leases count anew. */
void worker_heard(struct core *c, struct worker *w, int64_t at);
void worker_timer(struct core *c, struct worker *w);
void worker_on_timer(struct core *c, struct worker *w);
void worker_store_back(struct core *c, int64_t away_ns);
void worker_stalled(struct core *c, int64_t ns);
void worker_drop_peer(struct core *c, struct worker *w, bool close, enum core_close_code code);

/* ---- session.c ---- */
struct peer *peer_find(const struct core *c, uint64_t id);
void peer_remove(struct core *c, uint64_t id);
struct worker *peer_worker(const struct core *c, uint64_t id); /* whose current stream this is; NULL: none */
void session_on_hello(struct core *c, const struct core_event *ev);
void session_on_opened(struct core *c, const struct core_event *ev);
void session_on_heartbeat(struct core *c, const struct core_event *ev);
void session_on_draining(struct core *c, const struct core_event *ev);
void session_on_peer_gone(struct core *c, const struct core_event *ev);
bool session_mass_end(const struct core *c, int64_t at);
void hello_free(struct core *c, struct hello *h);

/* ---- job.c ---- */
struct job *job_by_task(const struct core *c, const struct uuid *task);
struct job *job_by_attempt(const struct core *c, struct core_attempt at);
/* A new job, READY (in no heap yet). */
struct job *job_new(struct core *c, const struct core_task *t, struct queue *q);
struct job *job_new_at(struct core *c, const struct core_task *t, struct worker *w, enum job_state state);
void job_free(struct core *c, struct job *j);
void job_attach(struct job *j, struct worker *w);
void job_set_state(struct core *c, struct job *j, enum job_state to);
void job_answered(struct core *c, struct job *j); /* its worker spoke after a recall */
struct core_attempt job_at(const struct job *j); /* before the claim: the number that it would get */

/* ---- attempt.c ---- */
void job_input(struct core *c, struct job *j, enum job_input in, const struct core_event *ev);
/* READY or new submit → PREEMPTING at `w`. */
void job_reserve(struct core *c, struct job *j, struct worker *w);
void job_retry_take_backs(struct core *c);
void job_on_inserted(struct core *c, const struct core_event *ev);
void job_on_outcome(struct core *c, const struct core_event *ev);
void job_on_recorded(struct core *c, const struct core_event *ev);
void job_on_taken_back(struct core *c, const struct core_event *ev);
void job_on_at(struct core *c, const struct core_event *ev); /* events that name an attempt of one known peer, or a task */

#endif
