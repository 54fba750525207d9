/* CLAIM: PENDING to RUNNING for whoever takes the ready row out and still may, or a delayed one whose time has come: a window that
 * remembers the task from before knows nothing of the delay. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char ready_get_sql[] =
	"SELECT " SQ_CORE ", expires_us FROM ready WHERE queue = ? AND neg_priority = ? AND seq = ? AND task_id = ?";
static const char spec_sql[] = "SELECT spec FROM task WHERE seq = ?";

static bool take_ready(struct sq_db *db, const struct core_task *t, int64_t now_us, struct sq_core *ret)
{
	sqlite3_stmt *q = sq_begin(db, ready_get_sql);
	sq_bind_text(db, t->queue);
	sq_bind_int(db, -(int64_t)t->priority);
	sq_bind_int(db, t->seq);
	sq_bind_uuid(db, &t->id);
	if (!sq_row(db, q))
		return false;
	sq_core_read(q, 0, ret);
	ret->expires_us = sq_int(q, SQ_CORE_COLUMNS);
	sq_end(q);
	if (ret->expires_us && ret->expires_us <= now_us)
		return false;
	sq_ready_drop(db, ret);
	return true;
}

void sq_claim_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_claim *o = container_of(op, struct store_claim, op);
	struct sq_db *db = &x->db;
	struct sq_running r = {.session = o->to.session, .lease_ns = o->to.lease_ns, .dispatched_us = x->now_wall_us};
	o->ret_won = false;
	o->ret_stale = sq_is_stale(db, &o->to);
	if (o->ret_stale)
		return;
	int64_t now_us = x->now_wall_us;
	if (!take_ready(db, &o->task, now_us, &r.core) && !sq_delayed_take(db, &o->task.id, now_us, &r.core))
		return;
	r.core.task.attempt++;
	snprintf(r.worker, sizeof(r.worker), "%s", o->to.worker);
	memcpy(r.instance, o->to.instance, sizeof(r.instance));
	sq_running_put(db, &r);
	sq_changed(x, &r.core.task.id, STORE_PENDING, STORE_RUNNING, r.core.task.attempt);
	sqlite3_stmt *q = sq_begin(db, spec_sql);
	sq_bind_int(db, r.core.task.seq);
	if (!sq_row(db, q)) {
		sq_db_refuse(db, "the task's row is missing");
		return;
	}
	o->ret_spec = sq_blob(db, q, 0);
	sq_end(q);
	o->ret_won = true;
	o->ret_task = r.core.task;
	o->ret_task.queue = o->task.queue;
	o->ret_task.handler = o->task.handler;
	o->ret_task.custom = o->task.custom;
}
