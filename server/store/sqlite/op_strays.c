/* STRAYS: running rows with the master of each worker's newest session.  RUNS: which of some attempts have one. */
#include <string.h>

#include "server/store/sqlite/sq.h"

static const char strays_sql[] =
	"SELECT r.task_id, r.attempt, r.session, r.lease_ns, r.exclusive, m.incarnation, m.beat, r.worker, w.master, w.detached_us, "
	"r.cancel_us IS NOT NULL FROM running r "
	"LEFT JOIN worker w ON w.id = r.worker LEFT JOIN master m ON m.id = w.master WHERE r.task_id > ? ORDER BY r.task_id LIMIT ?";

enum { TASK, ATTEMPT, SESSION, LEASE, EXCLUSIVE, INCARNATION, BEAT, WORKER, MASTER, DETACHED, WISH };

static const char *text_of(sqlite3_stmt *q, int col, struct store_mem **mem)
{
	const char *text = sq_text(q, col);
	return store_mem_copy(mem, text, strlen(text));
}

void sq_strays_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_strays *o = container_of(op, struct store_strays, op);
	struct sq_db *db = &x->db;
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 0;
	o->ret_n = 0;
	o->ret_rows = store_mem_get(mem, (limit ? limit : 1) * sizeof(*o->ret_rows));
	sqlite3_stmt *q = sq_begin(db, strays_sql);
	sq_bind_uuid(db, &o->after);
	sq_bind_int(db, (int64_t)limit);
	while (sq_row(db, q)) {
		if (o->ret_n == limit) {
			sq_end(q);
			break;
		}
		struct core_stray *r = &o->ret_rows[o->ret_n++];
		*r = (struct core_stray){
			.at.attempt = (int32_t)sq_int(q, ATTEMPT),
			.worker = text_of(q, WORKER, mem),
			.session = sq_int(q, SESSION),
			.lease_ns = sq_int(q, LEASE),
			.exclusive = sq_int(q, EXCLUSIVE) != 0,
			.master = text_of(q, MASTER, mem),
			.incarnation = sq_int(q, INCARNATION),
			.beat = sq_int(q, BEAT),
			.cancel_wish = sq_int(q, WISH) != 0,
			.detached_ns = sq_is_null(q, DETACHED) ? 0 : max_i64(0, sq_int(q, DETACHED) - x->now_wall_us) * NS_PER_US,
		};
		sq_uuid(q, TASK, &r->at.task);
		r->own = strcmp(r->master, o->master) == 0;
	}
}

static const char runs_sql[] = "SELECT 1 FROM running WHERE task_id = ? AND attempt = ? AND worker = ?";

void sq_runs_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_runs *o = container_of(op, struct store_runs, op);
	struct sq_db *db = &x->db;
	o->ret_runs = store_mem_get((struct store_mem **)&o->ret_memory, o->n ? o->n : 1);
	for (size_t i = 0; i < o->n && !db->rc; i++) {
		sqlite3_stmt *q = sq_begin(db, runs_sql);
		sq_bind_uuid(db, &o->at[i].at.task);
		sq_bind_int(db, o->at[i].at.attempt);
		sq_bind_text(db, o->at[i].worker);
		o->ret_runs[i] = sq_row(db, q);
		if (o->ret_runs[i])
			sq_end(q);
	}
}
