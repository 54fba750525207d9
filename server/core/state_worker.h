/* The core's memory of workers; see state.h. */
#ifndef REINS_CORE_STATE_WORKER_H
#define REINS_CORE_STATE_WORKER_H

#include "common/base/heap.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "server/core/asks.h"
#include "server/core/core.h"
#include "server/core/timer.h"

/* Workers that serve the same queues and run the same. */
struct pool_link {
	struct list at_queue;
	struct pool *pool;
};
struct pool {
	struct map_node node;
	/* [0]: enforces and runs_commands (as pointer-sized flags), then the queues, sorted, then the handlers, sorted */
	void **key;
	size_t n_queues;          /* 0: all */
	size_t n_handlers;
	bool enforces, runs_commands;
	struct heap free;         /* workers that take something now: least used first */
	struct core_need max;     /* the most that any of them ever had; not counted: the largest number */
	struct count *max_custom; /* offered names */
	size_t n_custom;
	bool more_custom;         /* there were too many to keep: any may be one */
	size_t n_workers;
	struct pool_link *links;
	struct list link_all;     /* core.pools_all when n_queues is 0 */
};

struct hello {
	uint64_t peer;
	uint8_t instance[CORE_INSTANCE_LEN];
	struct core_capacity capacity;
	struct pool *pool;        /* holds a count in pool.n_workers */
	struct stock *stock;
	size_t n_stock;
	struct core_attempt *held;
	size_t n_held;
	bool in_process, draining;
	bool dead;                /* the stream ended, or was replaced */
	int64_t heard;
	int64_t resumes, number;  /* see CORE_EV_HELLO */
	bool no_other, alone;     /* alone: nobody else can have opened a newer session for its process */
	int64_t heartbeat_ns, lease_ns; /* of the session that is opened for it */
	bool counted;             /* in core.n_opening */
	int64_t wait_until;       /* while the store is away */
};

/* What a worker's attempts take together: sums of what clients may ask for, over as many as a worker may hold. */
struct usage {
	int64_t memory_bytes, cpu_millis, gpus;
};

struct worker {
	struct map_node node;
	char *id;
	uint64_t serial;
	uint64_t peer;
	int64_t session;
	int64_t heartbeat_ns, lease_ns; /* H and L of the session: it is judged by what it was told */
	bool lapsed;              /* leases of this session have ended: it can't go on */
	int64_t hello_number;     /* the newest seen here of this instance */
	bool hellos_missed;       /* of some since the session began nobody here knows what became */
	uint8_t instance[CORE_INSTANCE_LEN];
	struct core_capacity capacity;
	int32_t used;
	struct usage used_need;
	struct stock *stock;      /* counted resources, offered names */
	size_t n_stock;
	struct pool *pool;
	bool in_process, draining, drain_wish; /* by its own word; by an operator's */
	struct hello *opening, *next;
	struct list jobs;         /* all that know this worker, READY ones excepted */
	struct list sent, done;   /* oldest first */
	size_t n_jobs, n_done;
	size_t n_given;           /* jobs from PREEMPTING to SENT: not accepted yet */
	size_t sent_bytes;        /* of the dispatches among them */
	int32_t unanswered;
	struct heap_node free;    /* in pool.free */
	uint64_t given;           /* for spread: lower was given something longer ago */
	struct list link_fresh;   /* core.fresh: gained something in this step */
	struct list link_waiting; /* core.waiting: its `next` may wait for the store */
	struct list link_dead;
	struct timer timer;
	int64_t heard;            /* leases count from here */
	int64_t lease_at;         /* next lease of this worker or of an attempt that ends; NEVER: none */
	int64_t grace_end;        /* in-process worker whose stream ended; NEVER: none */
	int64_t gone_at, detached_until; /* leases of attempts that are not exclusive end no sooner than the latter */
	int64_t hold_until;       /* the lease table refused: nothing before then, or its next heartbeat */
	int64_t number;           /* of the newest dispatch */
	uint64_t number_step;     /* step in which it was counted */
	uint64_t mark;
};

#endif
