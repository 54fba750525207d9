/* Operations that read: what scheduling needs next, what clients ask for.  DUE and EXPIRE also move what they find. */
#ifndef REINS_STORE_READS_H
#define REINS_STORE_READS_H

#include "server/store/store_op.h"

struct store_fill {
	struct store_op op;
	const char *queue;
	bool from_start;
	int32_t after_priority;
	int64_t after_seq;
	int32_t limit;
	struct core_task *ret_rows; /* .queue is the input's pointer */
	size_t ret_n;
	bool ret_exhausted;
	void *ret_memory;           /* backs handlers and customs */
};

/* Names of the queues that have ready rows, and those that are paused, in one snapshot. */
struct store_queues {
	struct store_op op;
	char **ret_names;
	size_t ret_n;
	struct core_paused *ret_paused;
	size_t ret_n_paused;
	void *ret_memory; /* backs ret_paused */
};

struct store_due {
	struct store_op op;
	int32_t limit;
	struct core_task *ret_rows;
	size_t ret_n;
	int64_t ret_next_in_ns; /* -1: none waits; about INT64_MAX for what is centuries away */
	void *ret_memory;
};

/* PENDING rows that were never given out and whose expiry has come: FAILED, with outcome EXPIRED and the reason as error.
 * Of a statement that ran twice the answer leaves out what the first run ended. */
struct store_expire {
	struct store_op op;
	int32_t limit;
	struct uuid *ret_ids;
	size_t ret_n;
	int64_t ret_next_in_ns; /* as in store_due */
	void *ret_memory;
};

/* Running rows in the order of their task ids, whoever holds them. Changes nothing. */
struct store_strays {
	struct store_op op;
	const char *master;      /* the asker's id */
	struct uuid after;       /* tasks after this one; all zero: from the start */
	int32_t limit;
	struct core_stray *ret_rows;
	size_t ret_n;
	void *ret_memory;
};

/* Which of these attempts are running with the worker that is named, under whatever session: by the rows' own key, so its
 * cost is that of the list, however much runs.  What was committed before it was submitted is seen. */
struct store_runs {
	struct store_op op;
	const struct core_owner *at;
	size_t n;
	bool *ret_runs; /* n of them, in the order of `at` */
	void *ret_memory;
};

struct store_get {
	struct store_op op;
	struct uuid id;
	bool basic; /* without payload and env, as LIST; and without the result */
	bool ret_found;
	struct store_task ret_task;
	void *ret_memory;
};

/* Tasks, newest first (by id, downwards).  All that is given must match: of `states` and `worker` as the rows stand in one
 * snapshot, of the rest as it was submitted. */
struct label_selector;
struct store_list {
	struct store_op op;
	uint32_t states;         /* bit (1 << state); 0: all */
	const char *queue, *name, *name_prefix, *owner; /* NULL: any */
	const char *worker;      /* of the newest attempt, running or final; NULL: any */
	/* 0: any; else created at or after, and before.  The search goes by the ids' time, and allows for masters whose clocks are
	 * STORE_LIST_SKEW_US off the store's. */
	int64_t created_from_us, created_before_us;
	const struct uuid *ids;  /* NULL: any; each once */
	size_t n_ids;
	const struct label_selector *labels; /* NULL: any */
	bool after;              /* with a cursor: ids below this one */
	struct uuid after_id;
	int32_t limit;
	int32_t scan;            /* look at so many tasks at most, about; 0: at all */
	bool full;               /* payload, env, result and attempts too */
	bool bare;               /* no spec at all */
	int64_t max_bytes;       /* stop after the row that reaches it */
	struct store_task *ret_tasks;
	size_t ret_n;
	bool ret_more;           /* there may be more below ret_last: it ended by limit, scan or max_bytes */
	struct uuid ret_last;
	void *ret_memory;
	bool wide;               /* the store's: too much is ready to begin from there */
};
#define STORE_LIST_SKEW_US INT64_C(3600000000)
/* For stores: the search looks at ids at or above *ret_from, and below *ret_below. */
void store_list_range(const struct store_list *o, struct uuid *ret_from, struct uuid *ret_below);
/* For stores: so many ready rows at most are sorted to find the newest of them; above that the search goes by ids. */
#define STORE_LIST_READY_MAX 10000

#endif
