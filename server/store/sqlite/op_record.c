/* RECORD: the end of an attempt, by its worker's word.  The running row is the attempt's; or the attempt was taken
 * back, is open and ended well; or what is known of it already says DUPLICATE or FENCED. */
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char ended_get_sql[] =
	"SELECT e.state FROM task t CROSS JOIN ended e ON e.seq = t.seq WHERE t.id = ? AND e.attempt = ? AND e.worker = ? AND e.reported";
static const char attempt_known_sql[] =
	"SELECT 1 FROM attempt WHERE task_id = ? AND attempt = ? AND worker = ? AND reported";

static bool program_failed(enum store_outcome outcome)
{
	return outcome == STORE_PROGRAM_FAILED || outcome == STORE_LAUNCH_FAILED || outcome == STORE_TIMED_OUT;
}

static enum store_state state_after(const struct store_record *o, const struct sq_running *r)
{
	const struct core_task *t = &r->core.task;
	if (o->outcome == STORE_SUCCEEDED)
		return STORE_COMPLETED;
	bool failed = program_failed(o->outcome);
	if (r->cancel_us)
		return failed ? STORE_FAILED : STORE_CANCELLED;
	if (failed)
		return t->failures + 1 < (t->max_attempts > 1 ? t->max_attempts : 1) ? STORE_PENDING : STORE_FAILED;
	bool too_often = o->outcome == STORE_WORKER_LOST && o->lost_limit > 0 && r->core.losses + 1 >= o->lost_limit;
	return too_often ? STORE_FAILED : STORE_PENDING;
}

/* Not before the row's own policy allows; the power stays far below what a double can hold. */
static int64_t due_in_ns(const struct store_record *o, const struct core_task *before)
{
	double ns = (double)before->backoff_initial_ns, max = before->backoff_max_ns > 0 ? (double)before->backoff_max_ns : 1e18;
	double by = before->backoff_multiplier > 1 ? before->backoff_multiplier : 1;
	if (!program_failed(o->outcome))
		return 0;
	for (int32_t i = 0; i < before->failures && by > 1 && ns < max; i++)
		ns *= by;
	return max_i64(o->retry_in_ns, ns > 0 ? (int64_t)(ns < max ? ns : max) : 0);
}

/* The row was taken out of where it was: puts it where it belongs now, and answers. */
static void put_end(struct sq_ctx *x, struct store_record *o, struct sq_running *r, enum store_state before, enum store_state state)
{
	struct sq_db *db = &x->db;
	bool asked = o->outcome == STORE_STOPPED || o->outcome == STORE_WORKER_LOST;
	int64_t due_ns = due_in_ns(o, &r->core.task);
	struct sq_end_of e = {
		.outcome = (int)o->outcome,
		.reported = true,
		.counted = o->outcome == STORE_WORKER_LOST,
		.has_exit_code = o->has_exit_code,
		.has_signal = o->has_signal,
		.exit_code = o->exit_code,
		.signal = o->signal,
		.lease_ns = r->lease_ns,
		.dispatched_us = r->dispatched_us,
		.started_us = o->started_wall_us ? o->started_wall_us : r->started_us,
		.finished_us = o->finished_wall_us ? o->finished_wall_us : x->now_wall_us,
		.cancel_us = r->cancel_us,
		.log_end = o->log_end,
		.log_dropped = o->log_dropped,
		.too_large = o->result_too_large,
		.worker = r->worker,
		.error = o->error,
		.result = o->result,
		.oom_killed = o->oom_killed,
		.instance = r->instance,
		.session = r->session,
		.devices = o->devices ? o->devices : r->devices,
		.cause = asked && r->cancel_us && r->cause ? r->cause : o->words,
	};
	if (x->note) {
		e.error = (struct store_bytes){(const uint8_t *)x->note, strlen(x->note)};
		if (o->result && !e.too_large)
			e.too_large = (int64_t)o->result->len;
		e.result = NULL;
		e.devices = r->devices;
		e.cause = NULL;
	}
	r->core.task.failures += program_failed(o->outcome);
	r->core.losses += e.counted;
	if (state != STORE_PENDING) {
		sq_ended_put(db, &r->core, state, &e);
	} else {
		sq_attempt_put(db, &r->core, &e);
		if (due_ns > 0)
			sq_delayed_put(db, &r->core, x->now_wall_us + due_ns / NS_PER_US);
		else
			sq_ready_put(db, &r->core, NULL);
	}
	sq_changed(x, &r->core.task.id, before, state, r->core.task.attempt);
	o->ret_verdict = CORE_RECORD_RECORDED;
	o->ret_state = state;
	o->ret_due_in_ns = state == STORE_PENDING ? due_ns : 0;
	o->ret_task = r->core.task;
	free(o->ret_texts);
	o->ret_texts = store_texts(&o->ret_task);
}

static sqlite3_stmt *about(struct sq_db *db, const char *sql, const struct store_record *o)
{
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_uuid(db, &o->at.task);
	sq_bind_int(db, o->at.attempt);
	sq_bind_text(db, o->worker);
	return q;
}

static void look_back(struct sq_db *db, struct store_record *o)
{
	sqlite3_stmt *q = about(db, ended_get_sql, o);
	o->ret_verdict = CORE_RECORD_FENCED;
	if (sq_row(db, q)) {
		o->ret_verdict = CORE_RECORD_DUPLICATE;
		o->ret_state = (enum store_state)sq_int(q, 0);
		sq_end(q);
		return;
	}
	q = about(db, attempt_known_sql, o);
	if (sq_row(db, q)) {
		o->ret_verdict = CORE_RECORD_DUPLICATE;
		o->ret_state = STORE_RUNNING;
		sq_end(q);
	}
}

void sq_record_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_record *o = container_of(op, struct store_record, op);
	struct sq_running r;
	if (sq_running_get(&x->db, &o->at.task, &r) && r.core.task.attempt == o->at.attempt && strcmp(r.worker, o->worker) == 0) {
		enum store_state state = state_after(o, &r);
		sq_running_drop(&x->db, &o->at.task);
		put_end(x, o, &r, STORE_RUNNING, state);
	} else if (o->outcome == STORE_SUCCEEDED && sq_open_take(&x->db, &o->at, o->worker, &r)) {
		put_end(x, o, &r, STORE_PENDING, STORE_COMPLETED);
	} else {
		look_back(&x->db, o);
	}
}
