/* GET and LIST: tasks as people see them, out of the four tables.  They run on a connection of their own, each in one
 * snapshot, and see whatever was answered before they were submitted. */
#include <string.h>

#include "server/store/sqlite/sq.h"

#define ATTEMPTS_MAX 200 /* the newest */
#define ROW_COST 200

#define VIEW(spec, result)                                                                                          \
	"SELECT t.id, t.seq, t.neg_priority, coalesce(e.attempt, r.attempt, p.attempt, d.attempt, 0), "             \
	"coalesce(e.failures, r.failures, p.failures, d.failures, 0), 0, t.cpu, t.memory, t.gpus, t.exclusive, "     \
	"t.lease_ttl_ns, t.max_attempts, t.backoff_initial_ns, t.backoff_max_ns, t.backoff_multiplier, t.queue, "    \
	"CASE WHEN e.seq IS NOT NULL THEN e.state WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END AS state, "           \
	"coalesce(r.worker, e.worker), t.owner, t.created_us, coalesce(d.due_us, t.run_at_us), "                     \
	"coalesce(r.started_us, e.started_us), e.finished_us, coalesce(r.cancel_us, e.cancel_us), e.outcome, "       \
	"e.exit_code, e.signal, e.result_too_large, coalesce(r.dispatched_us, e.dispatched_us), e.log_end, e.error, " \
	result ", " spec " FROM "
#define JOINS                                                                                                      \
	" LEFT JOIN ended e ON e.seq = t.seq LEFT JOIN running r ON r.task_id = t.id "                             \
	"LEFT JOIN ready p ON p.queue = t.queue AND p.neg_priority = t.neg_priority AND p.seq = t.seq "            \
	"LEFT JOIN delayed d ON d.task_id = t.id "

enum {
	STATE = SQ_CORE_COLUMNS, WORKER, OWNER, CREATED, RUN_AT, STARTED, FINISHED, WISH, OUTCOME, EXIT_CODE, SIGNAL, TOO_LARGE,
	DISPATCHED, LOG_END, ERROR, RESULT, SPEC
};

static const char get_sql[] = VIEW("t.spec", "e.result") "task t" JOINS "WHERE t.id = ?";
static const char attempts_sql[] =
	"SELECT * FROM (SELECT attempt, worker, outcome, dispatched_us, started_us, finished_us, exit_code, signal, log_end, error "
	"FROM attempt WHERE task_id = ? ORDER BY attempt DESC LIMIT ?) ORDER BY attempt";

/* ?1 below this id, ?2 queue or null, ?3 states or 0, ?4 whole rows, ?5 as many and one more */
#define LIST_VIEW VIEW("CASE WHEN ?4 THEN t.spec ELSE coalesce(t.list_spec, t.spec) END", "CASE WHEN ?4 THEN e.result END")
#define IN_QUEUE(x) "(?2 IS NULL OR " x ".queue = ?2) "
static const char any_sql[] = LIST_VIEW "task t" JOINS "WHERE t.id < ?1 AND " IN_QUEUE("t")
	"AND (?3 = 0 OR ?3 & (1 << CASE WHEN e.seq IS NOT NULL THEN e.state WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END)) "
	"ORDER BY t.id DESC LIMIT ?5";
static const char running_sql[] = LIST_VIEW "(SELECT seq FROM running WHERE task_id < ?1 AND (?2 IS NULL OR queue = ?2) "
	"ORDER BY task_id DESC LIMIT ?5) c CROSS JOIN task t ON t.seq = c.seq" JOINS "WHERE ?3 IS NOT NULL ORDER BY t.id DESC";
static const char pending_sql[] = LIST_VIEW
	"(SELECT seq FROM (SELECT task_id, seq, queue FROM ready UNION ALL SELECT task_id, seq, queue FROM delayed) "
	"WHERE task_id < ?1 AND (?2 IS NULL OR queue = ?2) ORDER BY task_id DESC LIMIT ?5) c CROSS JOIN task t ON t.seq = c.seq"
	JOINS "WHERE ?3 IS NOT NULL ORDER BY t.id DESC";
static const char badly_sql[] = LIST_VIEW
	"(SELECT b.seq FROM ended b CROSS JOIN task n ON n.seq = b.seq WHERE b.state <> 3 AND b.task_id < ?1 AND "
	"?3 & (1 << b.state) AND " IN_QUEUE("n") "ORDER BY b.task_id DESC LIMIT ?5) c CROSS JOIN task t ON t.seq = c.seq"
	JOINS "ORDER BY t.id DESC";

static void read_view(struct sq_db *db, sqlite3_stmt *q, struct store_task *t, struct store_mem **mem)
{
	*t = (struct store_task){
		.state = (enum store_state)sq_int(q, STATE),
		.worker = sq_text_copy(q, WORKER, mem),
		.owner = sq_text_copy(q, OWNER, mem),
		.created_wall_us = sq_int(q, CREATED),
		.run_at_wall_us = sq_int(q, RUN_AT),
		.started_wall_us = sq_int(q, STARTED),
		.finished_wall_us = sq_int(q, FINISHED),
		.cancel_requested_wall_us = sq_int(q, WISH),
		.outcome = (enum store_outcome)sq_int(q, OUTCOME),
		.has_exit_code = !sq_is_null(q, EXIT_CODE),
		.has_signal = !sq_is_null(q, SIGNAL),
		.exit_code = (int32_t)sq_int(q, EXIT_CODE),
		.signal = (int32_t)sq_int(q, SIGNAL),
		.error = sq_bytes_copy(q, ERROR, mem),
		.result = sq_bytes_copy(q, RESULT, mem),
		.result_too_large = sq_int(q, TOO_LARGE),
	};
	sq_core_read_task(q, 0, &t->core);
	t->core.queue = sq_text_copy(q, SQ_CORE_COLUMNS - 1, mem);
	t->spec = sq_blob(db, q, SPEC);
}

/* The attempt that the view itself shows, running or final. */
static void add_newest(struct store_task *t, int64_t dispatched_us, int64_t log_end)
{
	if (!t->worker)
		return;
	t->attempts[t->n_attempts++] = (struct store_attempt_row){
		.attempt = t->core.attempt,
		.worker = t->worker,
		.outcome = t->outcome,
		.dispatched_wall_us = dispatched_us,
		.started_wall_us = t->started_wall_us,
		.finished_wall_us = t->finished_wall_us,
		.has_exit_code = t->has_exit_code,
		.has_signal = t->has_signal,
		.exit_code = t->exit_code,
		.signal = t->signal,
		.error = t->error,
		.log_end = log_end,
	};
}

/* No more than `max`: attempts are numbered from 1. */
static void add_former(struct sq_db *db, struct store_task *t, int32_t max, struct store_mem **mem)
{
	sqlite3_stmt *q = sq_begin(db, attempts_sql);
	sq_bind_uuid(db, &t->core.id);
	sq_bind_int(db, max);
	while (sq_row(db, q)) {
		struct store_attempt_row *a = &t->attempts[t->n_attempts++];
		*a = (struct store_attempt_row){
			.attempt = (int32_t)sq_int(q, 0),
			.worker = sq_text_copy(q, 1, mem),
			.outcome = (enum store_outcome)sq_int(q, 2),
			.dispatched_wall_us = sq_int(q, 3),
			.started_wall_us = sq_int(q, 4),
			.finished_wall_us = sq_int(q, 5),
			.has_exit_code = !sq_is_null(q, 6),
			.has_signal = !sq_is_null(q, 7),
			.exit_code = (int32_t)sq_int(q, 6),
			.signal = (int32_t)sq_int(q, 7),
			.log_end = sq_int(q, 8),
			.error = sq_bytes_copy(q, 9, mem),
		};
	}
}

void sq_get_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_get *o = container_of(op, struct store_get, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, get_sql);
	sq_bind_uuid(db, &o->id);
	o->ret_found = sq_row(db, q);
	if (!o->ret_found)
		return;
	struct store_task *t = &o->ret_task;
	read_view(db, q, t, mem);
	int64_t dispatched_us = sq_int(q, DISPATCHED), log_end = sq_int(q, LOG_END);
	sq_end(q);
	int32_t former = t->core.attempt < 0 ? 0 : t->core.attempt < ATTEMPTS_MAX ? t->core.attempt : ATTEMPTS_MAX;
	t->attempts = store_mem_get(mem, ((size_t)former + 1) * sizeof(*t->attempts));
	add_former(db, t, former, mem);
	add_newest(t, dispatched_us, log_end);
}

static uint32_t bit(enum store_state s) { return UINT32_C(1) << s; }

/* Which table drives the search: few running, pending or failed tasks among millions of others are found through
 * their own. */
static const char *way(const struct store_list *o)
{
	if (o->states == bit(STORE_RUNNING))
		return running_sql;
	if (o->states == bit(STORE_PENDING))
		return pending_sql;
	if (o->states && !(o->states & ~(bit(STORE_FAILED) | bit(STORE_CANCELLED))))
		return badly_sql;
	return any_sql;
}

static size_t size_of(const struct store_task *t)
{
	return ROW_COST + (t->spec ? t->spec->len : 0) + t->result.len + t->error.len;
}

void sq_list_run(struct sq_ctx *x, struct store_op *op)
{
	static const struct uuid last = {{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}};
	struct store_list *o = container_of(op, struct store_list, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *db = &x->db;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 0;
	int64_t left = o->max_bytes > 0 ? o->max_bytes : INT64_MAX;
	o->ret_n = 0;
	o->ret_more = false;
	o->ret_tasks = limit ? store_mem_get(mem, limit * sizeof(*o->ret_tasks)) : NULL;
	sqlite3_stmt *q = sq_begin(db, way(o));
	sq_bind_uuid(db, o->after ? &o->after_id : &last);
	sq_bind_text(db, o->queue);
	sq_bind_int(db, o->states & 0xff);
	sq_bind_int(db, o->full);
	sq_bind_int(db, (int64_t)limit + 1);
	while (sq_row(db, q)) {
		if (o->ret_n == limit || left <= 0) {
			o->ret_more = true;
			sq_end(q);
			break;
		}
		struct store_task *t = &o->ret_tasks[o->ret_n++];
		read_view(db, q, t, mem);
		left -= (int64_t)size_of(t);
	}
}
