/* What the core keeps in memory: queues, classes, jobs, pools, workers.  Not for others: they see core.h. */
#ifndef REINS_CORE_STATE_H
#define REINS_CORE_STATE_H

#include "common/base/heap.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/rng.h"
#include "server/core/asks.h"
#include "server/core/core.h"
#include "server/core/core_view.h"
#include "server/core/keys.h"
#include "server/core/recovery.h"
#include "server/core/state_worker.h"
#include "server/core/timer.h"

/* ---- place of a row in its queue ---- */
struct row_key {
	int32_t priority;
	int64_t seq;
};

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
	uint64_t pass;            /* of the sweep over all its rows up to the cursor */
	bool paused;              /* then it is not in core.order */
	char *paused_reason;      /* NULL: none */
	uint64_t pause_told;      /* core.asked when this master was told itself */
	uint64_t pause_named;     /* core.asked of the answer that named it */
	struct list link_paused;  /* on core.paused while it is */
	struct list link_pausing; /* on core.pausing until CORE_DO_PAUSED is said */
	size_t n_in_flight;       /* jobs in PREEMPTING, INSERTING and CLAIMING */
	uint64_t named;           /* core.questions when the store last said that it has ready rows */
};

/* All that a task asks of its worker. */
struct want {
	struct core_need need;
	int64_t exclusive;        /* as wide as its place in a key that is hashed */
	struct asks *asks;        /* NULL: a command that asks for nothing by name */
};

/* Tasks of one queue that ask for the same. */
struct class_key {
	struct queue *queue;
	struct want want;
};
struct class {
	struct map_node node;
	struct class_key key;     /* holds a reference to its asks */
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

/* A worker that refused the task a moment ago does not get it straight back; what several refused in turn nobody gets
 * before `until`. */
struct avoid {
	uint64_t worker; /* serial; 0: none */
	int64_t until;
	int32_t refused; /* so often in turn */
};

struct job_key {
	struct uuid task;
	int32_t attempt;
};

struct job {
	enum job_state state;
	struct map_node node;   /* core.by_task up to CLAIMING, core.by_attempt from then on */
	struct job_key key;     /* attempt: 0 while in by_task */
	struct core_task t;     /* .queue, .handler, .custom: interned; .attempt: the newest so far */
	struct asks *asks;      /* a reference; NULL: a command that asks for nothing by name */
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
	uint64_t pass;          /* READY: queue.pass in which the store had it */
	uint64_t token, peer;   /* of the submit, or of the outcome */
	struct blob *spec;
	size_t sent_bytes;      /* SENT: counted in worker.sent_bytes */
	int64_t ready_at, chosen_at; /* for timings */
	bool holds;             /* counted in worker.used */
	bool unanswered;        /* recalled, and its worker has not answered: counted in worker.unanswered */
	bool cancel, gone, counted;
	bool lost;              /* its lease ended while the store was busy with it */
	bool ours;              /* RECORDING: the row was this attempt's when last heard */
	bool readopted;         /* RECORDING: a newer session got it meanwhile, perhaps after the store had judged the outcome */
	enum job_take_back tb;
	struct list link_retry; /* core.retry while TB_RETRY */
	enum core_take_back_cause cause;
	char *refusal;          /* the worker's words; NULL: none */
	/* a ready row of the same task that came in while this one was on its way */
	bool again;
	struct core_task again_row;
	struct avoid avoid;
};

struct peer {
	struct map_node node;
	uint64_t id;
	struct worker *worker;
};

/* The store is asked for rows whose time has come: when the earliest known is due, and by the reconciler. */
struct reminder {
	struct timer timer;
	bool asking;
	int64_t hint;             /* the earliest heard of while an answer was away */
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
	int64_t beat_at;          /* when the newest beat was sent that the store has committed */
	bool again;               /* the pick stopped at its budget */
	size_t spec_guess;        /* what a spec that the store is about to hand over may hold: the largest of late */
	struct heap timers;
	struct timer reconcile, pause;
	struct map queues, classes, names, asks;
	size_t n_offered;         /* names that workers have */
	struct list idle_asks;
	struct heap order;        /* queues, by priority of the head, then turn */
	struct list active, parked, check;
	size_t n_active, n_ready, n_resting;
	uint64_t turn;
	bool queues_known, asking_queues;
	uint64_t asked, questions; /* QUEUES so far; answers to it */
	struct list paused, pausing; /* queues */
	size_t sweep_offset;
	int64_t eager_budget;     /* workers that the submits of this step may still look at */
	int64_t unpark_budget;    /* parked classes that may still be looked at in this step */
	struct recovery recovery;
	struct keys keys;
	struct reminder due, expire;

	struct map by_task, by_attempt;
	size_t n_state[JOB_STATES];
	struct list retry;

	struct map workers, peers, pools;
	struct list pools_all, fresh, waiting, dead;
	size_t n_free;            /* workers in pool.free heaps */
	size_t n_connected, n_opening; /* sessions; workers without one on their way to it */
	struct { size_t size; int64_t at; } fleet; /* the most of late, and when it was so */
	uint64_t serial;
	uint64_t pick;
	struct { int64_t second; size_t gone, of; } ended[GONE_BUCKETS]; /* streams that ended, by second */
	struct core_timings timings;
};

#endif
