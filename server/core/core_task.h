/* What core, store and engine say of tasks, attempts and workers to each other. */
#ifndef REINS_CORE_TASK_H
#define REINS_CORE_TASK_H

#include "common/base/base.h"
#include "common/base/id.h"

#define CORE_NAME_MAX 255 /* bytes of a queue name or worker id, NUL excluded */
#define CORE_INSTANCE_LEN 16

#define CORE_CUSTOM_ENTRIES 16 /* counted resources that a task may ask for, or a worker have */
#define CORE_CUSTOM_MAX (CORE_CUSTOM_ENTRIES * (CORE_NAME_MAX + 1 + 19 + 1)) /* bytes of their text, NUL excluded */

/* What a task asks of a worker beside its slot. 0: nothing asked. */
struct core_need {
	int64_t memory_bytes;
	int32_t cpu_millis;
	int32_t gpus;
};

/* The narrow part of a task: all that scheduling needs. */
struct core_task {
	struct uuid id;
	const char *queue;      /* valid during the step; the core interns it */
	int32_t priority;       /* -1000 … 1000, higher first */
	int64_t seq;            /* the store's sequence; 0 before the insert */
	struct core_need need;
	/* Both as valid as `queue`, and never changed.  handler: only for workers that have it; NULL or "": a command.  custom:
	 * "name=count" in the order of the names, divided by one space; NULL or "": none. */
	const char *handler, *custom;
	bool exclusive;         /* only for workers that enforce the lease */
	int64_t lease_ttl_ns;   /* of the spec; 0: the default. The attempt's L is the larger of the two */
	int32_t attempt;        /* number of the newest attempt so far; 0: none */
	/* retry policy, for the delay after a failure */
	int32_t failures;       /* ends that the program caused, so far */
	int32_t max_attempts;
	int64_t backoff_initial_ns, backoff_max_ns;
	double backoff_multiplier;
};

struct core_attempt {
	struct uuid task;
	int32_t attempt;
};

struct core_capacity {
	int32_t slots;
	/* 0 in a field: none of it, but for cpu_millis: not counted, any request fits.  memory_bytes: what the worker can hold
	 * its tasks to; one that enforces no limit has none, and gets no task that asks for a limit. */
	struct core_need have;
	const char *custom; /* as in core_task */
};

/* A queue of which nothing is to be given out. */
struct core_paused {
	const char *queue;
	const char *reason; /* for people; "": none */
};

/* What an owner key says. */
struct core_owner {
	struct core_attempt at;
	const char *worker;
	int64_t session;
};

#endif
