/* INSERT: new tasks, alone or in a group that is created whole or not at all.  Keys first: they decide. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

static const char key_get_sql[] = "SELECT task_id, hash FROM idempotency WHERE key = ?";
static const char key_put_sql[] = "INSERT INTO idempotency (key, task_id, hash) VALUES (?, ?, ?)";
static const char key_drop_sql[] = "DELETE FROM idempotency WHERE key = ? AND task_id = ?";
static const char task_sql[] =
	"INSERT INTO task (id, seq, neg_priority, cpu, memory, gpus, exclusive, lease_ttl_ns, max_attempts, backoff_initial_ns, "
	"backoff_max_ns, backoff_multiplier, queue, handler, custom, expires_us, created_us, run_at_us, name, owner, idempotency_key, "
	"labels, list_spec, spec) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

static int32_t size_of(const struct store_insert *o) { return o->group_n > 1 ? o->group_n : 1; }

/* What the key says: made by whom. 0: it is free. */
static int verdict_of(struct sq_ctx *x, struct store_insert *o)
{
	int verdict = 0;
	sqlite3_stmt *q = sq_begin(&x->db, key_get_sql);
	sq_bind_text(&x->db, o->idempotency_key);
	if (sq_row(&x->db, q)) {
		const void *hash = sqlite3_column_blob(q, 1);
		bool same = hash && sqlite3_column_bytes(q, 1) == (int)sizeof(o->idempotency_hash) &&
			    memcmp(hash, o->idempotency_hash, sizeof(o->idempotency_hash)) == 0;
		sq_uuid(q, 0, &o->ret_id);
		verdict = same ? STORE_INSERT_EXISTS : STORE_INSERT_KEY_CONFLICT;
		sq_end(q);
	}
	return verdict;
}

static void take_key(struct sq_ctx *x, const struct store_insert *o)
{
	sqlite3_stmt *q = sq_begin(&x->db, key_put_sql);
	sq_bind_text(&x->db, o->idempotency_key);
	sq_bind_uuid(&x->db, &o->task.id);
	sq_bind_bytes(&x->db, o->idempotency_hash, sizeof(o->idempotency_hash));
	sq_run(&x->db, q);
}

/* Answers of a group of which nothing is made: what was taken is given back. */
static void undo_keys(struct sq_ctx *x, struct store_insert *first)
{
	int32_t left = size_of(first);
	for (struct store_insert *o = first; left; left--, o = o->group_next) {
		if (!o->idempotency_key || o->ret_verdict != STORE_INSERT_CREATED)
			continue;
		sqlite3_stmt *q = sq_begin(&x->db, key_drop_sql);
		sq_bind_text(&x->db, o->idempotency_key);
		sq_bind_uuid(&x->db, &o->task.id);
		sq_run(&x->db, q);
	}
	left = size_of(first);
	for (struct store_insert *o = first; left; left--, o = o->group_next) {
		if (o->ret_verdict == STORE_INSERT_CREATED)
			o->ret_verdict = 0;
		/* Existed only through another of this group. */
		if (o->ret_verdict == STORE_INSERT_EXISTS && !verdict_of(x, o))
			o->ret_verdict = 0;
		if (!o->ret_verdict)
			o->ret_id = o->task.id;
	}
}

static const char *null_if_empty(const char *text) { return text && *text ? text : NULL; }

static void put_task(struct sq_ctx *x, const struct store_insert *o, const struct core_task *t, int64_t due_us, int64_t expires_us)
{
	struct sq_db *db = &x->db;
	bool policy = t->max_attempts > 1;
	sqlite3_stmt *q = sq_begin(db, task_sql);
	sq_bind_uuid(db, &t->id);
	sq_bind_int(db, t->seq);
	sq_bind_int(db, -(int64_t)t->priority);
	sq_bind_int(db, t->need.cpu_millis);
	sq_bind_int(db, t->need.memory_bytes);
	sq_bind_int(db, t->need.gpus);
	sq_bind_int(db, t->exclusive);
	sq_bind_int_or_null(db, t->lease_ttl_ns);
	sq_bind_optional(db, policy, t->max_attempts);
	sq_bind_optional(db, policy, t->backoff_initial_ns);
	sq_bind_optional(db, policy, t->backoff_max_ns);
	if (policy)
		sq_bind_double(db, t->backoff_multiplier);
	else
		sq_bind_null(db);
	sq_bind_text(db, t->queue);
	sq_bind_text(db, null_if_empty(t->handler));
	sq_bind_text(db, null_if_empty(t->custom));
	sq_bind_int_or_null(db, expires_us);
	sq_bind_int(db, x->now_wall_us);
	sq_bind_int_or_null(db, due_us);
	sq_bind_text(db, null_if_empty(o->name));
	sq_bind_text(db, null_if_empty(o->owner));
	sq_bind_text(db, o->idempotency_key);
	sq_bind_bytes(db, o->labels.len ? o->labels.data : NULL, o->labels.len);
	sq_bind_blob(db, o->env_free_spec);
	sq_bind_blob(db, o->spec);
	sq_run(db, q);
}

static void put_place(struct sq_ctx *x, const struct store_insert *o, struct sq_running *r, int64_t due_us)
{
	const struct store_assignment *to = &o->eager;
	if (!o->ret_given && due_us > x->now_wall_us) {
		sq_delayed_put(&x->db, &r->core, due_us);
	} else if (!o->ret_given) {
		sq_ready_put(&x->db, &r->core, NULL);
	} else {
		snprintf(r->worker, sizeof(r->worker), "%s", to->worker);
		memcpy(r->instance, to->instance, sizeof(r->instance));
		r->session = to->session;
		r->lease_ns = to->lease_ns;
		r->dispatched_us = x->now_wall_us;
		sq_running_put(&x->db, r);
	}
}

static void create(struct sq_ctx *x, struct store_insert *o)
{
	struct sq_running r = {.core.task = o->task};
	struct core_task *t = &r.core.task;
	t->seq = x->next_seq++;
	o->ret_given = o->eager.worker && !sq_is_stale(&x->db, &o->eager);
	t->attempt = o->ret_given ? 1 : 0;
	t->failures = 0;
	if (strlen(o->task.queue) > CORE_NAME_MAX)
		sq_db_refuse(&x->db, "the name of the queue is too long");
	int64_t due_us = o->run_at_wall_us ? o->run_at_wall_us : o->delay_ns > 0 ? x->now_wall_us + o->delay_ns / NS_PER_US : 0;
	r.core.expires_us = o->expiry_ns > 0 ? x->now_wall_us + o->expiry_ns / NS_PER_US : 0;
	put_task(x, o, t, due_us, r.core.expires_us);
	put_place(x, o, &r, due_us);
	sq_changed(x, &t->id, 0, o->ret_given ? STORE_RUNNING : STORE_PENDING, t->attempt);
	o->ret_seq = t->seq;
}

void sq_insert_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_insert *first = container_of(op, struct store_insert, op);
	int32_t left = size_of(first);
	bool conflict = false;
	for (struct store_insert *o = first; left && !x->db.rc; left--, o = o->group_next) {
		int verdict = o->idempotency_key ? verdict_of(x, o) : 0;
		if (!verdict) {
			o->ret_id = o->task.id;
			if (o->idempotency_key)
				take_key(x, o);
		}
		o->ret_seq = 0;
		o->ret_verdict = verdict ? verdict : STORE_INSERT_CREATED;
		conflict |= verdict == STORE_INSERT_KEY_CONFLICT;
	}
	if (conflict) {
		undo_keys(x, first);
		return;
	}
	left = size_of(first);
	for (struct store_insert *o = first; left && !x->db.rc; left--, o = o->group_next)
		if (o->ret_verdict == STORE_INSERT_CREATED)
			create(x, o);
}
