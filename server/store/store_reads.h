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

struct store_queues {
	struct store_op op;
	char **ret_names;
	size_t ret_n;
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

struct store_list {
	struct store_op op;
	uint32_t states;         /* bit (1 << state); 0: all */
	const char *queue;       /* NULL: all */
	bool after;              /* with a cursor: ids below this one (newest first) */
	struct uuid after_id;
	int32_t limit;
	bool full;               /* payload, env, result and attempts too */
	int64_t max_bytes;       /* stop after the row that reaches it */
	struct store_task *ret_tasks;
	size_t ret_n;
	bool ret_more;
	void *ret_memory;
};

#endif
