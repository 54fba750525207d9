/* GET: a task as people see it, out of the four tables; op_list.c reads its rows here too.  Both run on a connection of their own,
 * each in one snapshot, and see whatever was answered before they were submitted. */
#include <string.h>

#include "server/store/sqlite/sq.h"

#define ATTEMPTS_MAX 200 /* the newest */

#define VIEW(spec, result)                                                                                          \
	"SELECT t.id, t.seq, t.neg_priority, coalesce(e.attempt, r.attempt, p.attempt, d.attempt, 0), "             \
	"coalesce(e.failures, r.failures, p.failures, d.failures, 0), coalesce(e.losses, r.losses, p.losses, d.losses, 0), t.cpu, t.memory, t.gpus, t.exclusive, "     \
	"t.lease_ttl_ns, t.max_attempts, t.backoff_initial_ns, t.backoff_max_ns, t.backoff_multiplier, t.queue, t.handler, t.custom, "    \
	"CASE WHEN e.seq IS NOT NULL THEN e.state WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END AS state, "           \
	"coalesce(r.worker, e.worker), t.owner, t.created_us, coalesce(d.due_us, t.run_at_us), "                     \
	"coalesce(r.started_us, e.started_us), e.finished_us, coalesce(r.cancel_us, e.cancel_us), e.outcome, "       \
	"e.exit_code, e.signal, e.result_too_large, coalesce(r.dispatched_us, e.dispatched_us), e.log_end, e.log_dropped, " \
	"length(e.result), coalesce(r.instance, e.instance), coalesce(r.session, e.session), coalesce(r.lease_ns, e.lease_ns), " \
	"coalesce(r.devices, e.devices), coalesce(r.cause, e.cause), e.oom_killed, p.open_worker IS NOT NULL, e.error, " \
	result ", " spec " FROM "
#define JOINS                                                                                                      \
	" LEFT JOIN ended e ON e.seq = t.seq LEFT JOIN running r ON r.task_id = t.id "                             \
	"LEFT JOIN ready p ON p.queue = t.queue AND p.neg_priority = t.neg_priority AND p.seq = t.seq "            \
	"LEFT JOIN delayed d ON d.task_id = t.id "

enum {
	STATE = SQ_CORE_COLUMNS, WORKER, OWNER, CREATED, RUN_AT, STARTED, FINISHED, WISH, OUTCOME, EXIT_CODE, SIGNAL, TOO_LARGE,
	DISPATCHED, LOG_END, LOG_DROPPED, RESULT_LEN, INSTANCE, SESSION, LEASE, DEVICES, CAUSE, OOM, OPEN, ERROR, RESULT, SPEC
};

static const char get_sql[] = VIEW("t.spec", "e.result") "task t" JOINS "WHERE t.id = ?";
static const char basic_sql[] = VIEW("coalesce(t.list_spec, t.spec)", "NULL") "task t" JOINS "WHERE t.id = ?";
static const char attempts_sql[] =
	"SELECT * FROM (SELECT attempt, worker, outcome, dispatched_us, started_us, finished_us, exit_code, signal, log_end, error, "
	"instance, session, lease_ns, devices, cause, oom_killed, log_dropped FROM attempt WHERE task_id = ? ORDER BY attempt DESC LIMIT ?) ORDER BY attempt";

static const char row_sql[] = VIEW("CASE WHEN ?2 THEN x'' WHEN ?1 THEN t.spec ELSE coalesce(t.list_spec, t.spec) END",
				   "CASE WHEN ?1 THEN e.result END") "task t" JOINS "WHERE t.seq = ?3";

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
		.error = sq_bytes_copy(db, q, ERROR, mem),
		.result = sq_bytes_copy(db, q, RESULT, mem),
		.result_len = sq_int(q, RESULT_LEN),
		.result_too_large = sq_int(q, TOO_LARGE),
		.losses = (int32_t)sq_int(q, SQ_CORE_LOSSES),
		.cause = sq_text_copy(q, CAUSE, mem),
	};
	sq_core_read_task(q, 0, &t->core);
	store_mem_texts(mem, &t->core);
	t->spec = sq_blob(db, q, SPEC);
}

static bool read_instance(sqlite3_stmt *q, int col, uint8_t ret[static CORE_INSTANCE_LEN])
{
	const void *instance = sqlite3_column_blob(q, col);
	if (!instance || sqlite3_column_bytes(q, col) != CORE_INSTANCE_LEN)
		return false;
	memcpy(ret, instance, CORE_INSTANCE_LEN);
	return true;
}

/* The attempt that the view itself shows, running or final. */
static struct store_attempt_row newest(const struct store_task *t, sqlite3_stmt *q, struct store_mem **mem)
{
	struct store_attempt_row a = {
		.attempt = t->core.attempt,
		.worker = t->worker,
		.outcome = t->outcome,
		.dispatched_wall_us = sq_int(q, DISPATCHED),
		.started_wall_us = t->started_wall_us,
		.finished_wall_us = t->finished_wall_us,
		.has_exit_code = t->has_exit_code,
		.has_signal = t->has_signal,
		.exit_code = t->exit_code,
		.signal = t->signal,
		.error = t->error,
		.log_end = sq_int(q, LOG_END),
		.log_dropped = sq_int(q, LOG_DROPPED),
		.session = sq_int(q, SESSION),
		.lease_ns = sq_int(q, LEASE),
		.devices = sq_text_copy(q, DEVICES, mem),
		.cause = t->cause,
		.oom_killed = sq_int(q, OOM) != 0,
	};
	a.has_instance = read_instance(q, INSTANCE, a.instance);
	return a;
}

/* No more than `max`: attempts are numbered from 1.  `open`: the newest is. */
static void add_former(struct sq_db *db, struct store_task *t, int32_t max, bool open, struct store_mem **mem)
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
			.error = sq_bytes_copy(db, q, 9, mem),
			.session = sq_int(q, 11),
			.lease_ns = sq_int(q, 12),
			.devices = sq_text_copy(q, 13, mem),
			.cause = sq_text_copy(q, 14, mem),
			.oom_killed = sq_int(q, 15) != 0,
			.log_dropped = sq_int(q, 16),
		};
		a->has_instance = read_instance(q, 10, a->instance);
		a->open = open && a->attempt == t->core.attempt;
	}
}

/* Of the row that q stands on; steps off it. */
static void read_attempts(struct sq_db *db, sqlite3_stmt *q, struct store_task *t, struct store_mem **mem)
{
	struct store_attempt_row own = newest(t, q, mem);
	bool open = sq_int(q, OPEN) != 0;
	sq_end(q);
	int32_t former = t->core.attempt < 0 ? 0 : t->core.attempt < ATTEMPTS_MAX ? t->core.attempt : ATTEMPTS_MAX;
	t->attempts = sq_mem(db, mem, ((size_t)former + 1) * sizeof(*t->attempts));
	if (!t->attempts)
		return;
	add_former(db, t, former, open, mem);
	if (t->worker)
		t->attempts[t->n_attempts++] = own;
}

void sq_get_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_get *o = container_of(op, struct store_get, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, o->basic ? basic_sql : get_sql);
	sq_bind_uuid(db, &o->id);
	o->ret_found = sq_row(db, q);
	if (!o->ret_found)
		return;
	read_view(db, q, &o->ret_task, mem);
	read_attempts(db, q, &o->ret_task, mem);
}

bool sq_view_read(struct sq_db *db, int64_t seq, bool full, bool bare, struct store_task *t, struct store_mem **mem)
{
	sqlite3_stmt *q = sq_begin(db, row_sql);
	sq_bind_int(db, full);
	sq_bind_int(db, bare);
	sq_bind_int(db, seq);
	if (!sq_row(db, q))
		return false;
	read_view(db, q, t, mem);
	if (full)
		read_attempts(db, q, t, mem);
	else
		sq_end(q);
	return true;
}
