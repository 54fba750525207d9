/* WORKERS: what the store knows of workers.  WORKER_GONE: the lease of one is over.
 * DETACHED: one leaves its programs running.  DRAIN: an operator's wish. */
#include <string.h>

#include "server/store/sqlite/sq.h"
#include "server/store/workers.h"

#define COLUMNS "w.id, w.instance, w.session, w.opened_us, w.heard_us, w.master, m.beat_us, w.drain_mode, w.drain_within_ns, " \
	"w.drain_reason, w.detached_us, "
#define FROM " FROM worker w LEFT JOIN master m ON m.id = w.master WHERE w.id > ? "

/* One row more than asked for tells that there are more. */
static const char all_sql[] = "SELECT " COLUMNS "w.info" FROM "ORDER BY w.id LIMIT ?";
static const char one_sql[] = "SELECT " COLUMNS "w.info" FROM "AND w.id = ? LIMIT ?";
static const char drained_sql[] = "SELECT " COLUMNS "NULL" FROM "AND w.drain_mode IS NOT NULL ORDER BY w.id LIMIT ?";
static const char gone_sql[] = "UPDATE worker SET heard_us = ? WHERE id = ? AND session = ?";
static const char detached_sql[] = "UPDATE worker SET detached_us = ? WHERE id = ? AND session = ?";
static const char drain_sql[] = "UPDATE worker SET drain_mode = ?, drain_within_ns = ?, drain_reason = ? WHERE id = ?";

enum { ID, INSTANCE, SESSION, OPENED, HEARD, MASTER, BEAT, DRAIN_MODE, DRAIN_WITHIN, DRAIN_REASON, DETACHED, INFO };

static const char *text_of(sqlite3_stmt *q, int col, struct store_mem **mem)
{
	const char *text = sq_text(q, col);
	return store_mem_copy(mem, text, strlen(text));
}

static void read_worker(struct sq_db *db, sqlite3_stmt *q, int64_t now_wall_us, struct store_mem **mem, struct store_worker *w)
{
	struct uuid instance;
	sq_uuid(q, INSTANCE, &instance);
	*w = (struct store_worker){
		.id = text_of(q, ID, mem),
		.session = sq_int(q, SESSION),
		.opened_wall_us = sq_int(q, OPENED),
		.heard_wall_us = sq_int(q, HEARD),
		.master = text_of(q, MASTER, mem),
		.beat_age_us = sq_is_null(q, BEAT) ? INT64_MAX : max_i64(0, now_wall_us - sq_int(q, BEAT)),
		.detached_us = max_i64(0, sq_int(q, DETACHED) - now_wall_us),
		.info = sq_bytes_copy(db, q, INFO, mem),
		.drain = {
			.mode = (int32_t)sq_int(q, DRAIN_MODE),
			.within_ns = sq_is_null(q, DRAIN_WITHIN) ? -1 : sq_int(q, DRAIN_WITHIN),
			.reason = text_of(q, DRAIN_REASON, mem),
		},
	};
	memcpy(w->instance, instance.b, sizeof(w->instance));
}

void sq_workers_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_workers *o = container_of(op, struct store_workers, op);
	struct sq_db *db = &x->db;
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 0;
	int64_t bytes = 0;
	o->ret_n = 0;
	o->ret_more = false;
	o->ret_rows = sq_mem(db, mem, (limit ? limit : 1) * sizeof(*o->ret_rows));
	sqlite3_stmt *q = sq_begin(db, o->drained ? drained_sql : o->only ? one_sql : all_sql);
	sq_bind_text(db, o->after ? o->after : "");
	if (o->only && !o->drained)
		sq_bind_text(db, o->only);
	sq_bind_int(db, (int64_t)limit + 1);
	while (sq_row(db, q)) {
		if (o->ret_n == limit || (o->max_bytes > 0 && bytes >= o->max_bytes)) {
			o->ret_more = true;
			sq_end(q);
			break;
		}
		struct store_worker *w = &o->ret_rows[o->ret_n++];
		read_worker(db, q, x->now_wall_us, mem, w);
		bytes += (int64_t)w->info.len;
	}
}

void sq_worker_gone_run(struct sq_ctx *x, struct store_op *op)
{
	const struct store_worker_gone *o = container_of(op, struct store_worker_gone, op);
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, gone_sql);
	sq_bind_int(db, x->now_wall_us - o->heard_ago_ns / NS_PER_US);
	sq_bind_text(db, o->worker);
	sq_bind_int(db, o->session);
	sq_run(db, q);
}

void sq_detached_run(struct sq_ctx *x, struct store_op *op)
{
	const struct store_detached *o = container_of(op, struct store_detached, op);
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, detached_sql);
	sq_bind_optional(db, o->within_ns > 0, x->now_wall_us + o->within_ns / NS_PER_US);
	sq_bind_text(db, o->worker);
	sq_bind_int(db, o->session);
	sq_run(db, q);
}

void sq_drain_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_drain *o = container_of(op, struct store_drain, op);
	struct sq_db *db = &x->db;
	bool on = o->wish.mode != 0;
	sqlite3_stmt *q = sq_begin(db, drain_sql);
	sq_bind_optional(db, on, o->wish.mode);
	sq_bind_optional(db, on && o->wish.within_ns >= 0, o->wish.within_ns);
	sq_bind_text(db, on ? o->wish.reason : NULL);
	sq_bind_text(db, o->worker);
	o->ret_found = sq_run(db, q) > 0;
}
