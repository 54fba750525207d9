/* Operations about queues: the list of them for people, and pausing one.  As in store.h. */
#ifndef REINS_STORE_QUEUES_H
#define REINS_STORE_QUEUES_H

#include "server/store/store.h"

/* So many rows are counted at most: waiting ones of each queue, running ones of all queues together. */
#define STORE_QUEUE_COUNT_MAX 10000
#define STORE_QUEUE_RUNNING_MAX 200000

struct store_queue {
	const char *name;
	bool paused;
	const char *reason;      /* of the pause; "" for none */
	int64_t paused_wall_us;  /* 0: not paused */
	int64_t ready, delayed, running;
	bool ready_more, delayed_more, running_more; /* there are more than that */
	int64_t oldest_wall_us;  /* created_at of the ready task with the lowest seq; 0: none */
};

/* Queues that have a task which waits or runs, and those that are paused, by name.  Changes nothing. */
struct store_queue_list {
	struct store_op op;
	const char *only;   /* NULL: all; else just this one */
	const char *after;  /* names above this one; "": from the start */
	int32_t limit;
	struct store_queue *ret_rows;
	size_t ret_n;
	bool ret_more;
	void *ret_memory;
};

/* Pauses a queue, or (on false) no longer.  Committed in the order of submission.  A second pause keeps the time of the first
 * and has its own reason.  What is not paused has no row but for the last one or few that were resumed, which a repeated
 * resumption finds. */
struct store_pause {
	struct store_op op;
	const char *queue;
	bool on;
	const char *reason; /* NULL: none */
	int32_t max;        /* so many queues at most may be paused */
	bool ret_done;      /* on: false when there are `max` others; off: false when nothing is known of a pause */
};

#endif
