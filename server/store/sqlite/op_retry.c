/* RETRY: a task that failed or was cancelled goes back to PENDING, its counts at 0.  What `ended` says of its last attempt
 * becomes a row of `attempt`; no ready row names an open worker, so that all attempts so far are closed.
 *
 * An exclusive one waits for the leases of attempts that nobody reported the end of: by `delayed`, as a retry's delay
 * does. */
#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

/* The task as its ready row will be, then what `ended` says of it. */
static const char get_sql[] =
	"SELECT " SQ_TASK_CORE_OF("t.", "coalesce(e.attempt, r.attempt, p.attempt, d.attempt, 0)", "0", "0")
	", coalesce(e.state, CASE WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END) FROM task t LEFT JOIN ended e ON e.seq = t.seq "
	"LEFT JOIN running r ON r.task_id = t.id LEFT JOIN ready p ON p.queue = t.queue AND p.neg_priority = t.neg_priority AND "
	"p.seq = t.seq LEFT JOIN delayed d ON d.task_id = t.id WHERE t.id = ?";
static const char keep_sql[] =
	"INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_us, started_us, finished_us, "
	"exit_code, signal, log_end, log_dropped, worker, error, instance, session, devices, cause, oom_killed) SELECT task_id, attempt, "
	"outcome, reported, 0, coalesce(lease_ns, 0), coalesce(dispatched_us, finished_us), started_us, finished_us, exit_code, signal, "
	"log_end, log_dropped, worker, error, instance, session, devices, cause, oom_killed FROM ended WHERE seq = ? AND worker IS NOT NULL";
static const char drop_sql[] = "DELETE FROM ended WHERE seq = ?";
/* Lost (6) or given back (7) by a master's word alone. */
static const char free_sql[] =
	"SELECT max(finished_us + lease_ns / 1000) FROM attempt WHERE task_id = ? AND NOT reported AND outcome IN (6, 7)";

static int64_t free_at_us(struct sq_db *db, const struct sq_core *c)
{
	int64_t us = 0;
	if (!c->task.exclusive)
		return 0;
	sqlite3_stmt *q = sq_begin(db, free_sql);
	sq_bind_uuid(db, &c->task.id);
	if (sq_row(db, q)) {
		us = sq_int(q, 0);
		sq_end(q);
	}
	return us;
}

static void by_seq(struct sq_db *db, const char *sql, int64_t seq)
{
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_int(db, seq);
	sq_run(db, q);
}

static void put_back(struct sq_ctx *x, struct store_retry *o, struct sq_core *c)
{
	struct sq_db *db = &x->db;
	by_seq(db, keep_sql, c->task.seq);
	by_seq(db, drop_sql, c->task.seq);
	int64_t due_us = free_at_us(db, c);
	if (due_us > x->now_wall_us)
		sq_delayed_put(db, c, due_us);
	else
		sq_ready_put(db, c, NULL);
	sq_changed(x, &c->task.id, o->ret_state, STORE_PENDING, c->task.attempt);
	o->ret_verdict = STORE_RETRY_DONE;
	o->ret_state = STORE_PENDING;
	o->ret_due_in_ns = due_us > x->now_wall_us ? us_to_ns(due_us - x->now_wall_us) : 0;
	o->ret_task = c->task;
	free(o->ret_texts);
	o->ret_texts = store_texts(&o->ret_task);
}

void sq_retry_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_retry *o = container_of(op, struct store_retry, op);
	struct sq_core c;
	o->ret_verdict = STORE_RETRY_NOT_FOUND;
	sqlite3_stmt *q = sq_begin(&x->db, get_sql);
	sq_bind_uuid(&x->db, &o->id);
	if (!sq_row(&x->db, q))
		return;
	sq_core_read(q, 0, &c);
	o->ret_state = (enum store_state)sq_int(q, SQ_CORE_COLUMNS);
	o->ret_attempt = c.task.attempt;
	sq_end(q);
	if (!store_state_is_final(o->ret_state))
		o->ret_verdict = STORE_RETRY_NOT_ENDED;
	else if (o->ret_state == STORE_COMPLETED)
		o->ret_verdict = STORE_RETRY_COMPLETED;
	else if (o->ret_attempt != o->attempt)
		o->ret_verdict = STORE_RETRY_ANOTHER;
	else
		put_back(x, o, &c);
}
