/* Rows that several kinds of operations move between the narrow tables. */
#ifndef REINS_SQ_ROWS_H
#define REINS_SQ_ROWS_H

#include "server/store/sqlite/sq.h"

struct sq_running {
	struct sq_core core;
	char worker[CORE_NAME_MAX + 1];
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session, lease_ns, dispatched_us, started_us, cancel_us; /* 0: null */
	const char *devices, *cause; /* NULL: null; in the connection's scratch memory */
};
#define SQ_RUNNING SQ_CORE ", worker, instance, session, lease_ns, dispatched_us, started_us, cancel_us, devices, cause"
void sq_running_read(struct sq_db *db, sqlite3_stmt *q, struct sq_running *ret);
bool sq_running_get(struct sq_db *db, const struct uuid *id, struct sq_running *ret);
void sq_running_put(struct sq_db *db, const struct sq_running *r);
void sq_running_drop(struct sq_db *db, const struct uuid *id);

void sq_ready_put(struct sq_db *db, const struct sq_core *c, const char *open_worker); /* NULL: none */
void sq_ready_drop(struct sq_db *db, const struct sq_core *c);
void sq_delayed_put(struct sq_db *db, const struct sq_core *c, int64_t due_us);
/* Only if it is due by then and has not expired; INT64_MAX: in any case. */
bool sq_delayed_take(struct sq_db *db, const struct uuid *id, int64_t by_us, struct sq_core *ret);
/* The ready row of a task; *ret_open is the worker of its open attempt, "" for none. */
bool sq_ready_get(struct sq_db *db, const struct uuid *id, struct sq_core *ret, char ret_open[static CORE_NAME_MAX + 1]);

/* Given out by one who may not any more: see store_assignment. */
bool sq_is_stale(struct sq_db *db, const struct store_assignment *to);

/* How an attempt ended. */
struct sq_end_of {
	int outcome;
	bool reported, counted, has_exit_code, has_signal, oom_killed;
	int32_t exit_code, signal;
	int64_t lease_ns, dispatched_us, started_us, finished_us, cancel_us; /* 0: null, where null is allowed */
	int64_t log_end, log_dropped, too_large;
	const char *worker, *devices, *cause; /* NULL: null */
	const uint8_t *instance;              /* CORE_INSTANCE_LEN; NULL: null */
	int64_t session;
	struct store_bytes error;
	const struct blob *result;
};
void sq_ended_put(struct sq_db *db, const struct sq_core *c, enum store_state state, const struct sq_end_of *e);
void sq_attempt_put(struct sq_db *db, const struct sq_core *c, const struct sq_end_of *e);

/* The open attempt, if it is this worker's, taken out of `ready` and `attempt`: counted losses are undone in
 * ret->core, and the times are the attempt's. */
bool sq_open_take(struct sq_db *db, const struct core_attempt *at, const char *worker, struct sq_running *ret);

/* RUNNING to PENDING, or to its end by a wish or the lost-limit; the row must have been read. `words`: for the cause, unless
 * a wish has its own; NULL: none. Returns the new state, and r->core as it is there. */
enum store_state sq_give_back(struct sq_ctx *x, struct sq_running *r, enum store_outcome outcome, bool counted, bool opens,
			      int32_t lost_limit, const char *words);

#endif
