/* LOG_APPEND and LOG_READ: a task's output, in chunks keyed by the offset over both streams.  `db` is asked whose
 * attempt it is, `logs` holds the bytes.  Owns the bookkeeping of what all logs take together. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sq_rows.h"

#define ROW_COST 64      /* of a chunk, beside its bytes */
#define CHUNKS_MAX 4096
#define SEARCH_PAUSE NS_PER_S

static const char runs_sql[] = "SELECT 1 FROM running WHERE task_id = ? AND attempt = ? AND worker = ?";
static const char has_sql[] = "SELECT 1 FROM log WHERE task_id = ? AND attempt = ? AND off = ?";
static const char put_sql[] =
	"INSERT INTO log (task_id, attempt, off, stream, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT (task_id, attempt, off) DO NOTHING";
static const char sum_sql[] =
	"INSERT INTO log_task (task_id, bytes) VALUES (?, ?) ON CONFLICT (task_id) DO UPDATE SET bytes = bytes + excluded.bytes";
static const char oldest_sql[] = "SELECT task_id, bytes FROM log_task WHERE task_id > ? ORDER BY task_id LIMIT 1";
static const char live_sql[] = "SELECT 1 FROM task t WHERE t.id = ? AND NOT EXISTS (SELECT 1 FROM ended e WHERE e.seq = t.seq)";
static const char drop_sql[] = "DELETE FROM log WHERE task_id = ?";
static const char drop_metrics_sql[] = "DELETE FROM metric WHERE task_id = ?";
static const char drop_sum_sql[] = "DELETE FROM log_task WHERE task_id = ?";
static const char read_sql[] =
	"SELECT off, stream, data FROM log WHERE task_id = ?1 AND attempt = ?2 AND off >= coalesce((SELECT max(off) FROM log WHERE "
	"task_id = ?1 AND attempt = ?2 AND off <= ?3), 0) ORDER BY off LIMIT ?4";

static bool any(struct sq_db *db, sqlite3_stmt *q)
{
	bool found = sq_row(db, q);
	sq_end(q);
	return found;
}

/* ---- room ---- */

static void drop(struct sq_db *logs, const struct uuid *id)
{
	sqlite3_stmt *q = sq_begin(logs, drop_sql);
	sq_bind_uuid(logs, id);
	sq_run(logs, q);
	q = sq_begin(logs, drop_metrics_sql);
	sq_bind_uuid(logs, id);
	sq_run(logs, q);
	q = sq_begin(logs, drop_sum_sql);
	sq_bind_uuid(logs, id);
	sq_run(logs, q);
}

/* Drops the logs of the oldest task that has ended. False: none. */
static bool drop_one(struct sq_ctx *x)
{
	struct sq_log_room *room = &x->room;
	if (clock_mono_ns() < room->search_mono_ns)
		return false;
	for (;;) {
		struct uuid id;
		sqlite3_stmt *q = sq_begin(&x->logs, oldest_sql);
		sq_bind_uuid(&x->logs, &room->cursor);
		if (!sq_row(&x->logs, q)) {
			memset(&room->cursor, 0, sizeof(room->cursor));
			room->search_mono_ns = clock_mono_ns() + SEARCH_PAUSE;
			return false;
		}
		sq_uuid(q, 0, &id);
		int64_t bytes = sq_int(q, 1);
		sq_end(q);
		room->cursor = id;
		q = sq_begin(&x->db, live_sql);
		sq_bind_uuid(&x->db, &id);
		if (any(&x->db, q))
			continue;
		drop(&x->logs, &id);
		room->bytes -= bytes;
		return true;
	}
}

bool sq_log_make_room(struct sq_ctx *x, int64_t need)
{
	while (x->room.bytes + need > x->room.max && !x->logs.rc && !x->db.rc)
		if (!drop_one(x))
			return false;
	return true;
}

void sq_log_account(struct sq_ctx *x, const struct uuid *task, int64_t bytes)
{
	sqlite3_stmt *q = sq_begin(&x->logs, sum_sql);
	sq_bind_uuid(&x->logs, task);
	sq_bind_int(&x->logs, bytes);
	sq_run(&x->logs, q);
	x->room.bytes += bytes;
}

/* ---- append ---- */

bool sq_log_is_ours(struct sq_ctx *x, const struct core_attempt *at, const char *worker)
{
	sqlite3_stmt *q = sq_begin(&x->db, runs_sql);
	sq_bind_uuid(&x->db, &at->task);
	sq_bind_int(&x->db, at->attempt);
	sq_bind_text(&x->db, worker);
	if (any(&x->db, q))
		return true;
	struct sq_core c;
	char open[CORE_NAME_MAX + 1];
	return sq_ready_get(&x->db, &at->task, &c, open) && c.task.attempt == at->attempt && open[0] && strcmp(open, worker) == 0;
}

static bool is_stored(struct sq_ctx *x, const struct store_log_append *o)
{
	sqlite3_stmt *q = sq_begin(&x->logs, has_sql);
	sq_bind_uuid(&x->logs, &o->at.task);
	sq_bind_int(&x->logs, o->at.attempt);
	sq_bind_int(&x->logs, o->offset);
	return any(&x->logs, q);
}

void sq_log_append_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_log_append *o = container_of(op, struct store_log_append, op);
	int64_t cost = (int64_t)o->data->len + ROW_COST;
	o->ret_fenced = false;
	if (is_stored(x, o))
		return;
	o->ret_fenced = !sq_log_is_ours(x, &o->at, o->worker);
	if (o->ret_fenced)
		return;
	if (!sq_log_make_room(x, cost)) {
		op->result = STORE_REFUSED;
		snprintf(op->text, sizeof(op->text), "the logs take all of the %lld bytes that they may, and no ended task's can go",
			 (long long)x->room.max);
		return;
	}
	sqlite3_stmt *q = sq_begin(&x->logs, put_sql);
	sq_bind_uuid(&x->logs, &o->at.task);
	sq_bind_int(&x->logs, o->at.attempt);
	sq_bind_int(&x->logs, o->offset);
	sq_bind_int(&x->logs, o->stream);
	sq_bind_blob(&x->logs, o->data);
	if (sq_run(&x->logs, q) != 1)
		return;
	sq_log_account(x, &o->at.task, cost);
}

/* ---- read ---- */

static struct store_log_chunk *next_chunk(struct store_log_read *o, size_t *cap)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	if (o->ret_n == *cap) {
		struct store_log_chunk *old = o->ret_chunks;
		*cap = *cap ? *cap * 2 : 16;
		o->ret_chunks = store_mem_get(mem, *cap * sizeof(*old));
		if (o->ret_n)
			memcpy(o->ret_chunks, old, o->ret_n * sizeof(*old));
	}
	return &o->ret_chunks[o->ret_n++];
}

void sq_log_read_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_log_read *o = container_of(op, struct store_log_read, op);
	struct sq_db *logs = &x->logs;
	int64_t left = max_i64(o->max_bytes, 1);
	size_t cap = 0;
	o->ret_n = 0;
	o->ret_chunks = NULL;
	sqlite3_stmt *q = sq_begin(logs, read_sql);
	sq_bind_uuid(logs, &o->at.task);
	sq_bind_int(logs, o->at.attempt);
	sq_bind_int(logs, o->offset);
	sq_bind_int(logs, CHUNKS_MAX);
	while (sq_row(logs, q)) {
		int64_t off = sq_int(q, 0), before = max_i64(0, o->offset - off);
		int64_t len = sqlite3_column_bytes(q, 2);
		if (before > 0 && before >= len)
			continue;
		if (left <= 0) {
			sq_end(q);
			break;
		}
		left -= len - before;
		struct store_log_chunk *c = next_chunk(o, &cap);
		const char *data = sqlite3_column_blob(q, 2);
		*c = (struct store_log_chunk){.offset = off + before, .stream = (enum store_log_stream)sq_int(q, 1)};
		c->data.len = (size_t)(len - before);
		c->data.data = (const uint8_t *)store_mem_copy((struct store_mem **)&o->ret_memory, data ? data + before : NULL,
							       c->data.len);
	}
}
