/* Owns the statements on ready, delayed, running, ended and attempt that more than one kind needs. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char running_get_sql[] = "SELECT " SQ_RUNNING " FROM running WHERE task_id = ?";
static const char running_put_sql[] =
	"INSERT INTO running (" SQ_RUNNING ") VALUES (" SQ_CORE_MARKS ", ?,?,?,?,?,?,?,?,?)";
static const char running_drop_sql[] = "DELETE FROM running WHERE task_id = ?";
static const char ready_put_sql[] = "INSERT INTO ready (" SQ_CORE ", open_worker, expires_us) VALUES (" SQ_CORE_MARKS ", ?, ?)";
static const char ready_drop_sql[] = "DELETE FROM ready WHERE queue = ? AND neg_priority = ? AND seq = ?";
static const char ready_get_sql[] =
	"SELECT " SQ_CORE_OF("r.") ", r.open_worker FROM task t CROSS JOIN ready r ON r.queue = t.queue AND "
	"r.neg_priority = t.neg_priority AND r.seq = t.seq WHERE t.id = ?";
static const char delayed_put_sql[] = "INSERT INTO delayed (" SQ_CORE ", due_us, expires_us) VALUES (" SQ_CORE_MARKS ", ?, ?)";
static const char delayed_get_sql[] = "SELECT " SQ_CORE ", expires_us FROM delayed WHERE task_id = ? AND due_us <= ?";
static const char delayed_drop_sql[] = "DELETE FROM delayed WHERE task_id = ?";
static const char ended_sql[] =
	"INSERT INTO ended (seq, task_id, state, outcome, attempt, failures, losses, reported, dispatched_us, started_us, "
	"finished_us, cancel_us, exit_code, signal, log_end, result_too_large, worker, error, result, "
	"lease_ns, instance, session, devices, cause, oom_killed, log_dropped) "
	"VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
static const char attempt_put_sql[] =
	"INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_us, started_us, finished_us, "
	"exit_code, signal, log_end, worker, error, instance, session, devices, cause, oom_killed, log_dropped) "
	"VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
static const char attempt_get_sql[] =
	"SELECT counted, lease_ns, dispatched_us, started_us, instance, session, devices FROM attempt WHERE task_id = ? AND attempt = ?";
static const char attempt_drop_sql[] = "DELETE FROM attempt WHERE task_id = ? AND attempt = ?";

static const char newer_session_sql[] = "SELECT 1 FROM worker WHERE id = ? AND session > ?";
static const char newer_incarnation_sql[] = "SELECT 1 FROM master WHERE id = ? AND incarnation > ?";

static bool has_newer(struct sq_db *db, const char *sql, const char *id, int64_t number)
{
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_text(db, id);
	sq_bind_int(db, number);
	bool newer = sq_row(db, q);
	if (newer)
		sq_end(q);
	return newer;
}

bool sq_is_stale(struct sq_db *db, const struct store_assignment *to)
{
	return has_newer(db, newer_session_sql, to->worker, to->session) ||
	       (to->master && has_newer(db, newer_incarnation_sql, to->master, to->incarnation));
}

/* ---- running ---- */

static void read_instance(sqlite3_stmt *q, int col, uint8_t ret[static CORE_INSTANCE_LEN])
{
	const void *instance = sqlite3_column_blob(q, col);
	memset(ret, 0, CORE_INSTANCE_LEN);
	if (instance && sqlite3_column_bytes(q, col) == CORE_INSTANCE_LEN)
		memcpy(ret, instance, CORE_INSTANCE_LEN);
}

void sq_running_read(struct sq_db *db, sqlite3_stmt *q, struct sq_running *ret)
{
	enum { WORKER = SQ_CORE_COLUMNS, INSTANCE, SESSION, LEASE, DISPATCHED, STARTED, CANCEL, DEVICES, CAUSE };
	sq_core_read(q, 0, &ret->core);
	snprintf(ret->worker, sizeof(ret->worker), "%s", sq_text(q, WORKER));
	read_instance(q, INSTANCE, ret->instance);
	ret->session = sq_int(q, SESSION);
	ret->lease_ns = sq_int(q, LEASE);
	ret->dispatched_us = sq_int(q, DISPATCHED);
	ret->started_us = sq_int(q, STARTED);
	ret->cancel_us = sq_int(q, CANCEL);
	ret->devices = sq_text_scratch(db, q, DEVICES);
	ret->cause = sq_text_scratch(db, q, CAUSE);
}

bool sq_running_get(struct sq_db *db, const struct uuid *id, struct sq_running *ret)
{
	sqlite3_stmt *q = sq_begin(db, running_get_sql);
	sq_bind_uuid(db, id);
	if (!sq_row(db, q))
		return false;
	sq_running_read(db, q, ret);
	sq_end(q);
	return true;
}

void sq_running_put(struct sq_db *db, const struct sq_running *r)
{
	sqlite3_stmt *q = sq_begin(db, running_put_sql);
	sq_core_bind(db, &r->core);
	sq_bind_text(db, r->worker);
	sq_bind_bytes(db, r->instance, sizeof(r->instance));
	sq_bind_int(db, r->session);
	sq_bind_int(db, r->lease_ns);
	sq_bind_int(db, r->dispatched_us);
	sq_bind_int_or_null(db, r->started_us);
	sq_bind_int_or_null(db, r->cancel_us);
	sq_bind_text(db, r->devices);
	sq_bind_text(db, r->cause);
	sq_run(db, q);
}

void sq_running_drop(struct sq_db *db, const struct uuid *id)
{
	sqlite3_stmt *q = sq_begin(db, running_drop_sql);
	sq_bind_uuid(db, id);
	sq_run(db, q);
}

/* ---- pending ---- */

void sq_ready_put(struct sq_db *db, const struct sq_core *c, const char *open_worker)
{
	sqlite3_stmt *q = sq_begin(db, ready_put_sql);
	sq_core_bind(db, c);
	sq_bind_text(db, open_worker);
	sq_bind_int_or_null(db, c->expires_us);
	sq_run(db, q);
}

void sq_ready_drop(struct sq_db *db, const struct sq_core *c)
{
	sqlite3_stmt *q = sq_begin(db, ready_drop_sql);
	sq_bind_text(db, c->task.queue);
	sq_bind_int(db, -(int64_t)c->task.priority);
	sq_bind_int(db, c->task.seq);
	sq_run(db, q);
}

bool sq_ready_get(struct sq_db *db, const struct uuid *id, struct sq_core *ret, char ret_open[static CORE_NAME_MAX + 1])
{
	sqlite3_stmt *q = sq_begin(db, ready_get_sql);
	sq_bind_uuid(db, id);
	if (!sq_row(db, q))
		return false;
	sq_core_read(q, 0, ret);
	snprintf(ret_open, CORE_NAME_MAX + 1, "%s", sq_text(q, SQ_CORE_COLUMNS));
	sq_end(q);
	return true;
}

void sq_delayed_put(struct sq_db *db, const struct sq_core *c, int64_t due_us)
{
	sqlite3_stmt *q = sq_begin(db, delayed_put_sql);
	sq_core_bind(db, c);
	sq_bind_int(db, due_us);
	sq_bind_int_or_null(db, c->expires_us);
	sq_run(db, q);
}

bool sq_delayed_take(struct sq_db *db, const struct uuid *id, int64_t by_us, struct sq_core *ret)
{
	sqlite3_stmt *q = sq_begin(db, delayed_get_sql);
	sq_bind_uuid(db, id);
	sq_bind_int(db, by_us);
	if (!sq_row(db, q))
		return false;
	sq_core_read(q, 0, ret);
	ret->expires_us = sq_int(q, SQ_CORE_COLUMNS);
	sq_end(q);
	if (by_us != INT64_MAX && ret->expires_us && ret->expires_us <= by_us)
		return false;
	q = sq_begin(db, delayed_drop_sql);
	sq_bind_uuid(db, id);
	sq_run(db, q);
	return true;
}

/* ---- ends ---- */

static void bind_place(struct sq_db *db, const struct sq_end_of *e)
{
	sq_bind_bytes(db, e->instance, CORE_INSTANCE_LEN);
	sq_bind_int_or_null(db, e->session);
	sq_bind_text(db, e->devices);
	sq_bind_text(db, e->cause);
	sq_bind_int(db, e->oom_killed);
	sq_bind_int(db, e->log_dropped);
}

void sq_ended_put(struct sq_db *db, const struct sq_core *c, enum store_state state, const struct sq_end_of *e)
{
	sqlite3_stmt *q = sq_begin(db, ended_sql);
	sq_bind_int(db, c->task.seq);
	sq_bind_uuid(db, &c->task.id);
	sq_bind_int(db, state);
	sq_bind_int(db, e->outcome);
	sq_bind_int(db, c->task.attempt);
	sq_bind_int(db, c->task.failures);
	sq_bind_int(db, c->losses);
	sq_bind_int(db, e->reported);
	sq_bind_int_or_null(db, e->dispatched_us);
	sq_bind_int_or_null(db, e->started_us);
	sq_bind_int(db, e->finished_us);
	sq_bind_int_or_null(db, e->cancel_us);
	sq_bind_optional(db, e->has_exit_code, e->exit_code);
	sq_bind_optional(db, e->has_signal, e->signal);
	sq_bind_int(db, e->log_end);
	sq_bind_int_or_null(db, e->too_large);
	sq_bind_text(db, e->worker);
	sq_bind_bytes(db, e->error.len ? e->error.data : NULL, e->error.len);
	sq_bind_blob(db, e->result);
	sq_bind_int_or_null(db, e->lease_ns);
	bind_place(db, e);
	sq_run(db, q);
}

void sq_attempt_put(struct sq_db *db, const struct sq_core *c, const struct sq_end_of *e)
{
	sqlite3_stmt *q = sq_begin(db, attempt_put_sql);
	sq_bind_uuid(db, &c->task.id);
	sq_bind_int(db, c->task.attempt);
	sq_bind_int(db, e->outcome);
	sq_bind_int(db, e->reported);
	sq_bind_int(db, e->counted);
	sq_bind_int(db, e->lease_ns);
	sq_bind_int(db, e->dispatched_us);
	sq_bind_int_or_null(db, e->started_us);
	sq_bind_int(db, e->finished_us);
	sq_bind_optional(db, e->has_exit_code, e->exit_code);
	sq_bind_optional(db, e->has_signal, e->signal);
	sq_bind_int(db, e->log_end);
	sq_bind_text(db, e->worker);
	sq_bind_bytes(db, e->error.len ? e->error.data : NULL, e->error.len);
	bind_place(db, e);
	sq_run(db, q);
}

bool sq_open_take(struct sq_db *db, const struct core_attempt *at, const char *worker, struct sq_running *ret)
{
	char open[CORE_NAME_MAX + 1];
	if (!sq_ready_get(db, &at->task, &ret->core, open))
		return false;
	if (ret->core.task.attempt != at->attempt || !open[0] || strcmp(open, worker) != 0)
		return false;
	sqlite3_stmt *q = sq_begin(db, attempt_get_sql);
	sq_bind_uuid(db, &at->task);
	sq_bind_int(db, at->attempt);
	if (!sq_row(db, q))
		return false;
	ret->core.losses -= sq_int(q, 0) != 0;
	ret->lease_ns = sq_int(q, 1);
	ret->dispatched_us = sq_int(q, 2);
	ret->started_us = sq_int(q, 3);
	read_instance(q, 4, ret->instance);
	ret->session = sq_int(q, 5);
	ret->devices = sq_text_scratch(db, q, 6);
	ret->cause = NULL;
	ret->cancel_us = 0;
	snprintf(ret->worker, sizeof(ret->worker), "%s", worker);
	sq_end(q);
	q = sq_begin(db, attempt_drop_sql);
	sq_bind_uuid(db, &at->task);
	sq_bind_int(db, at->attempt);
	sq_run(db, q);
	sq_ready_drop(db, &ret->core);
	return !db->rc;
}

enum store_state sq_give_back(struct sq_ctx *x, struct sq_running *r, enum store_outcome outcome, bool counted, bool opens,
			      int32_t lost_limit, const char *words)
{
	struct sq_db *db = &x->db;
	struct sq_end_of e = {
		.outcome = (int)outcome,
		.counted = counted,
		.lease_ns = r->lease_ns,
		.dispatched_us = r->dispatched_us,
		.started_us = r->started_us,
		.finished_us = x->now_wall_us,
		.cancel_us = r->cancel_us,
		.worker = r->worker,
		.instance = r->instance,
		.session = r->session,
		.devices = r->devices,
		.cause = r->cancel_us && r->cause ? r->cause : words,
	};
	r->core.losses += counted;
	sq_running_drop(db, &r->core.task.id);
	enum store_state state = r->cancel_us                                                          ? STORE_CANCELLED
				 : counted && lost_limit > 0 && r->core.losses >= lost_limit ? STORE_FAILED
											       : STORE_PENDING;
	sq_changed(x, &r->core.task.id, STORE_RUNNING, state, r->core.task.attempt);
	if (state != STORE_PENDING) {
		sq_ended_put(db, &r->core, state, &e);
		return state;
	}
	sq_attempt_put(db, &r->core, &e);
	sq_ready_put(db, &r->core, opens ? r->worker : NULL);
	return state;
}
