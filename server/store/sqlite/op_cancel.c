/* CANCEL: PENDING ends as CANCELLED; RUNNING gets the wish; what has ended stays.  STARTED: when the program began. */
#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char wish_sql[] = "UPDATE running SET cause = CASE WHEN cancel_us IS NULL THEN ?1 ELSE cause END, "
	"cancel_us = coalesce(cancel_us, ?2) WHERE task_id = ?3";
static const char known_sql[] = "SELECT 1 FROM task WHERE id = ?";
static const char started_sql[] = "UPDATE running SET started_us = ?, devices = ? WHERE task_id = ? AND attempt = ? AND worker = ? AND started_us IS NOT ?";

static void end_pending(struct sq_ctx *x, struct store_cancel *o, const struct sq_core *c)
{
	struct sq_end_of e = {.finished_us = x->now_wall_us, .cancel_us = x->now_wall_us, .cause = o->words};
	sq_ended_put(&x->db, c, STORE_CANCELLED, &e);
	sq_changed(x, &c->task.id, STORE_PENDING, STORE_CANCELLED, c->task.attempt);
	o->ret_verdict = STORE_CANCEL_DONE;
}

void sq_cancel_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_cancel *o = container_of(op, struct store_cancel, op);
	struct sq_db *db = &x->db;
	struct sq_running r;
	char open[CORE_NAME_MAX + 1];
	if (sq_running_get(db, &o->id, &r)) {
		sqlite3_stmt *q = sq_begin(db, wish_sql);
		sq_bind_text(db, o->words);
		sq_bind_int(db, x->now_wall_us);
		sq_bind_uuid(db, &o->id);
		sq_run(db, q);
		if (!r.cancel_us)
			sq_changed(x, &o->id, STORE_RUNNING, STORE_RUNNING, r.core.task.attempt);
		o->ret_verdict = STORE_CANCEL_WISH;
		o->ret_at = (struct core_attempt){o->id, r.core.task.attempt};
	} else if (sq_ready_get(db, &o->id, &r.core, open)) {
		sq_ready_drop(db, &r.core);
		end_pending(x, o, &r.core);
	} else if (sq_delayed_take(db, &o->id, INT64_MAX, &r.core)) {
		end_pending(x, o, &r.core);
	} else {
		sqlite3_stmt *q = sq_begin(db, known_sql);
		sq_bind_uuid(db, &o->id);
		o->ret_verdict = sq_row(db, q) ? STORE_CANCEL_TERMINAL : STORE_CANCEL_NOT_FOUND;
		sq_end(q);
	}
}

void sq_started_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_started *o = container_of(op, struct store_started, op);
	sqlite3_stmt *q = sq_begin(&x->db, started_sql);
	sq_bind_int(&x->db, o->started_wall_us);
	sq_bind_text(&x->db, o->devices);
	sq_bind_uuid(&x->db, &o->at.task);
	sq_bind_int(&x->db, o->at.attempt);
	sq_bind_text(&x->db, o->worker);
	sq_bind_int(&x->db, o->started_wall_us);
	if (sq_run(&x->db, q) == 1) {
		struct store_change c = {.task = o->at.task, .attempt = o->at.attempt, .before = STORE_RUNNING, .after = STORE_RUNNING,
					 .what = STORE_WHAT_STARTED};
		sq_event_add(x, &c);
	}
}
