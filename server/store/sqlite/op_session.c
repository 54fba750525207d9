/* SESSION_OPEN: the next session number of a worker, and its rows against its list: running rows that it lists get
 * the number, and no shorter lease than the session has; open ones that it lists run again; what is left with an older
 * number goes back, except exclusive tasks of another instance, whose lease runs on: they get the number, and keep the
 * instance that holds them. */
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char worker_get_sql[] =
	"SELECT session, instance, drain_mode, drain_within_ns, drain_reason, hello FROM worker WHERE id = ?";
static const char worker_put_sql[] =
	"INSERT INTO worker (id, instance, session, opened_us, master, info, hello) VALUES (?, ?, ?, ?, ?, ?, ?) "
	"ON CONFLICT (id) DO UPDATE SET instance = excluded.instance, session = excluded.session, opened_us = excluded.opened_us, master = excluded.master, "
	"info = excluded.info, hello = excluded.hello, heard_us = NULL, detached_us = NULL";
static const char adopt_sql[] = "UPDATE running SET session = ?, instance = ?, lease_ns = ? WHERE task_id = ?";
static const char wait_sql[] = "UPDATE running SET session = ? WHERE task_id = ?";
static const char older_sql[] = "SELECT " SQ_RUNNING " FROM running WHERE worker = ? AND session < ? ORDER BY task_id";

static struct store_mem **mem_of(struct store_session_open *o) { return (struct store_mem **)&o->ret_memory; }

static void keep_task(struct store_session_open *o, const struct sq_core *c, struct core_task *ret)
{
	*ret = c->task;
	store_mem_texts(mem_of(o), ret);
}

static void keep_adopted(struct store_session_open *o, const struct sq_running *r, struct core_adopted *ret)
{
	keep_task(o, &r->core, &ret->task);
	ret->lease_ns = r->lease_ns;
	ret->cancel_wish = r->cancel_us != 0;
	ret->log_stored = ret->log_dropped = ret->metrics_stored = 0;
}

/* False: the hello is stale. */
static bool number(struct sq_ctx *x, struct store_session_open *o)
{
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, worker_get_sql);
	sq_bind_text(db, o->worker);
	o->ret_session = 1;
	o->ret_new_instance = true;
	o->ret_drain = (struct store_drain_wish){ .within_ns = -1, .reason = "" };
	if (sq_row(db, q)) {
		const void *instance = sqlite3_column_blob(q, 1);
		o->ret_session = sq_int(q, 0) + 1;
		o->ret_new_instance = !instance || sqlite3_column_bytes(q, 1) != CORE_INSTANCE_LEN ||
				      memcmp(instance, o->instance, CORE_INSTANCE_LEN) != 0;
		o->ret_drain.mode = (int32_t)sq_int(q, 2);
		o->ret_drain.within_ns = sq_is_null(q, 3) ? -1 : sq_int(q, 3);
		o->ret_drain.reason = store_mem_copy(mem_of(o), sq_text(q, 4), strlen(sq_text(q, 4)));
		int64_t newest = sq_int(q, 5);
		o->ret_stale = o->hello_number && o->hello_number <= newest && o->hello_number >= newest - CORE_HELD_UP_US;
		sq_end(q);
	}
	if (o->ret_stale)
		return false;
	q = sq_begin(db, worker_put_sql);
	sq_bind_text(db, o->worker);
	sq_bind_bytes(db, o->instance, CORE_INSTANCE_LEN);
	sq_bind_int(db, o->ret_session);
	sq_bind_int(db, x->now_wall_us);
	sq_bind_text(db, o->master);
	sq_bind_blob(db, o->hello);
	sq_bind_int(db, o->hello_number);
	sq_run(db, q);
	return true;
}

/* Runs or is open: gets the new session. */
static bool adopt(struct sq_ctx *x, struct store_session_open *o, const struct core_attempt *at, struct sq_running *r)
{
	struct sq_db *db = &x->db;
	if (sq_running_get(db, &at->task, r)) {
		if (r->core.task.attempt != at->attempt || strcmp(r->worker, o->worker) != 0 || r->session >= o->ret_session)
			return false;
		r->lease_ns = max_i64(r->lease_ns, o->lease_ns);
		sqlite3_stmt *q = sq_begin(db, adopt_sql);
		sq_bind_int(db, o->ret_session);
		sq_bind_bytes(db, o->instance, CORE_INSTANCE_LEN);
		sq_bind_int(db, r->lease_ns);
		sq_bind_uuid(db, &at->task);
		sq_run(db, q);
		return true;
	}
	if (!sq_open_take(db, at, o->worker, r))
		return false;
	r->session = o->ret_session;
	r->lease_ns = max_i64(r->lease_ns, o->lease_ns);
	memcpy(r->instance, o->instance, sizeof(r->instance));
	sq_running_put(db, r);
	sq_changed(x, &at->task, STORE_PENDING, STORE_RUNNING, at->attempt);
	return true;
}

static void adopt_all(struct sq_ctx *x, struct store_session_open *o)
{
	if (!o->n_held)
		return;
	o->ret_adopted = store_mem_get(mem_of(o), o->n_held * sizeof(*o->ret_adopted));
	o->ret_fenced = store_mem_get(mem_of(o), o->n_held * sizeof(*o->ret_fenced));
	for (size_t i = 0; i < o->n_held && !x->db.rc; i++) {
		struct sq_running r;
		if (!adopt(x, o, &o->held[i], &r)) {
			o->ret_fenced[o->ret_n_fenced++] = o->held[i];
			continue;
		}
		struct core_adopted *a = &o->ret_adopted[o->ret_n_adopted++];
		keep_adopted(o, &r, a);
		/* Without the logs it is all sent again. */
		if (!x->logs.h)
			continue;
		a->log_stored = sq_log_end(&x->logs, &o->held[i], &a->log_dropped);
		a->metrics_stored = sq_metrics_last(&x->logs, &o->held[i]);
	}
}

/* Collected first: the statement must not read what it causes to be changed. */
static struct sq_running *collect(struct sq_ctx *x, const struct store_session_open *o, size_t *ret_n)
{
	struct sq_running *rows = NULL;
	size_t n = 0, cap = 0;
	sqlite3_stmt *q = sq_begin(&x->db, older_sql);
	sq_bind_text(&x->db, o->worker);
	sq_bind_int(&x->db, o->ret_session);
	while (sq_row(&x->db, q)) {
		if (n == cap) {
			cap = cap ? cap * 2 : 16;
			struct sq_running *more = realloc(rows, cap * sizeof(*rows));
			if (!more) {
				sq_end(q);
				sq_db_no_memory(&x->db);
				break;
			}
			rows = more;
		}
		sq_running_read(&x->db, q, &rows[n++]);
	}
	*ret_n = n;
	return rows;
}

static void wait_for_lease(struct sq_ctx *x, struct store_session_open *o, struct sq_running *r)
{
	sqlite3_stmt *q = sq_begin(&x->db, wait_sql);
	sq_bind_int(&x->db, o->ret_session);
	sq_bind_uuid(&x->db, &r->core.task.id);
	sq_run(&x->db, q);
	keep_adopted(o, r, &o->ret_waiting[o->ret_n_waiting++]);
}

static void go_back(struct sq_ctx *x, struct store_session_open *o)
{
	size_t n;
	_cleanup_free_ struct sq_running *rows = collect(x, o, &n);
	if (!n)
		return;
	o->ret_requeued = store_mem_get(mem_of(o), n * sizeof(*o->ret_requeued));
	o->ret_waiting = store_mem_get(mem_of(o), n * sizeof(*o->ret_waiting));
	for (size_t i = 0; i < n && !x->db.rc; i++) {
		struct sq_running *r = &rows[i];
		sq_core_moved(&r->core); /* with the array */
		bool replaced = memcmp(r->instance, o->instance, sizeof(r->instance)) != 0;
		if (r->core.task.exclusive && replaced) {
			wait_for_lease(x, o, r);
			continue;
		}
		/* Counted: what was seen to start, or whose worker process has been replaced. */
		bool counted = r->started_us || replaced;
		enum store_state state =
			sq_give_back(x, r, counted ? STORE_WORKER_LOST : STORE_GIVEN_BACK, counted, false, x->lost_limit,
				     counted ? NULL : STORE_WORDS_NOT_LISTED);
		if (state == STORE_PENDING)
			keep_task(o, &r->core, &o->ret_requeued[o->ret_n_requeued++]);
	}
}

void sq_session_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_session_open *o = container_of(op, struct store_session_open, op);
	o->ret_n_adopted = o->ret_n_requeued = o->ret_n_waiting = o->ret_n_fenced = 0;
	o->ret_stale = false;
	if (!number(x, o))
		return;
	adopt_all(x, o);
	go_back(x, o);
}
