/* LOG_APPEND and LOG_READ: a task's output, in chunks keyed by the offset over both streams.  `db` is asked whose
 * attempt it is, `logs` holds the bytes.  Owns the bookkeeping of what all logs take together. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sq_rows.h"
#include "server/store/store_logs.h"

#define ROW_COST 64      /* of a chunk, beside its bytes */
#define CHUNKS_MAX 4096
#define SEARCH_PAUSE NS_PER_S

static const char runs_sql[] = "SELECT 1 FROM running WHERE task_id = ? AND attempt = ? AND worker = ?";
static const char has_sql[] = "SELECT length(data), dropped FROM log WHERE task_id = ? AND attempt = ? AND off = ?";
static const char put_sql[] =
	"INSERT INTO log (task_id, attempt, off, stream, data, dropped) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (task_id, attempt, off) "
	"DO UPDATE SET stream = excluded.stream, data = excluded.data, dropped = excluded.dropped";
static const char sum_sql[] =
	"INSERT INTO log_task (task_id, bytes) VALUES (?, ?) ON CONFLICT (task_id) DO UPDATE SET bytes = bytes + excluded.bytes";
static const char oldest_sql[] = "SELECT task_id, bytes FROM log_task WHERE task_id > ? ORDER BY task_id LIMIT 1";
static const char live_sql[] = "SELECT 1 FROM task t WHERE t.id = ? AND NOT EXISTS (SELECT 1 FROM ended e WHERE e.seq = t.seq)";
static const char drop_sql[] = "DELETE FROM log WHERE task_id = ?";
static const char drop_metrics_sql[] = "DELETE FROM metric WHERE task_id = ?";
static const char drop_sum_sql[] = "DELETE FROM log_task WHERE task_id = ?";
/* Begins with the first chunk that ends behind the offset: no piece is longer than 64 KiB, so that it is the last one which
 * begins so far before it, or one after that. */
#define END "off + length(data) + coalesce(dropped, 0)"
static const char read_sql[] =
	"SELECT off, stream, data, dropped FROM log WHERE task_id = ?1 AND attempt = ?2 AND off >= coalesce((SELECT max(off) FROM log WHERE "
	"task_id = ?1 AND attempt = ?2 AND off <= ?3 - 65535), 0) AND " END " > ?3 ORDER BY off LIMIT ?4";
static const char end_sql[] = "SELECT " END " FROM log WHERE task_id = ? AND attempt = ? ORDER BY off DESC LIMIT 1";
static const char dropped_sql[] = "SELECT coalesce(sum(dropped), 0) FROM log WHERE task_id = ? AND attempt = ? AND dropped IS NOT NULL";

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

static sqlite3_stmt *about(struct sq_db *logs, const char *sql, const struct core_attempt *at)
{
	sqlite3_stmt *q = sq_begin(logs, sql);
	sq_bind_uuid(logs, &at->task);
	sq_bind_int(logs, at->attempt);
	return q;
}

static int64_t bytes_of(const struct store_log_piece *p)
{
	return p->data ? (int64_t)p->data->len : 0;
}

struct there {
	bool any, is_gap;
	int64_t len; /* of the gap, or of the data */
};

static struct there look(struct sq_ctx *x, const struct store_log_append *o, const struct store_log_piece *p)
{
	struct there t = {0};
	sqlite3_stmt *q = about(&x->logs, has_sql, &o->at);
	sq_bind_int(&x->logs, p->offset);
	if (!sq_row(&x->logs, q))
		return t;
	t = (struct there){.any = true, .is_gap = !sq_is_null(q, 1)};
	t.len = sq_int(q, t.is_gap);
	sq_end(q);
	return t;
}

static bool are_stored(struct sq_ctx *x, const struct store_log_append *o)
{
	for (size_t i = 0; i < o->n; i++)
		if (!look(x, o, &o->pieces[i]).any)
			return false;
	return true;
}

static void put(struct sq_ctx *x, const struct store_log_append *o, const struct store_log_piece *p)
{
	struct sq_db *logs = &x->logs;
	struct there t = look(x, o, p);
	if (t.any && (t.is_gap != !p->data || t.len >= bytes_of(p) + p->dropped))
		return;
	int64_t cost = t.any ? bytes_of(p) - (t.is_gap ? 0 : t.len) : bytes_of(p) + ROW_COST;
	sqlite3_stmt *q = about(logs, put_sql, &o->at);
	sq_bind_int(logs, p->offset);
	sq_bind_int(logs, p->stream);
	sq_bind_bytes(logs, p->data ? p->data->data : (const uint8_t *)"", (size_t)bytes_of(p));
	sq_bind_int_or_null(logs, p->dropped);
	if (sq_run(logs, q) != 1)
		return;
	sq_log_account(x, &o->at.task, cost);
}

void sq_log_append_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_log_append *o = container_of(op, struct store_log_append, op);
	int64_t cost = 0, data = 0;
	for (size_t i = 0; i < o->n; i++) {
		data += bytes_of(&o->pieces[i]);
		cost += bytes_of(&o->pieces[i]) + ROW_COST;
	}
	bool ours = sq_log_is_ours(x, &o->at, o->worker);
	o->ret_fenced = !ours && !are_stored(x, o);
	if (!ours)
		return;
	/* That something is not kept can always be said. */
	if (data && !sq_log_make_room(x, cost)) {
		if (are_stored(x, o))
			return;
		op->result = STORE_REFUSED;
		snprintf(op->text, sizeof(op->text), "the logs take all of the %lld bytes that they may, and no ended task's can go",
			 (long long)x->room.max);
		return;
	}
	for (size_t i = 0; i < o->n && !x->logs.rc; i++)
		put(x, o, &o->pieces[i]);
}

/* ---- read ---- */

/* NULL: no memory, which sticks. */
static struct store_log_chunk *next_chunk(struct sq_db *logs, struct store_log_read *o, size_t *cap)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	if (o->ret_n == *cap) {
		size_t more = *cap ? *cap * 2 : 16;
		struct store_log_chunk *at = sq_mem(logs, mem, more * sizeof(*at));
		if (!at)
			return NULL;
		if (o->ret_n)
			memcpy(at, o->ret_chunks, o->ret_n * sizeof(*at));
		o->ret_chunks = at;
		*cap = more;
	}
	return &o->ret_chunks[o->ret_n++];
}

int64_t sq_log_end(struct sq_db *logs, const struct core_attempt *at, int64_t *ret_dropped)
{
	int64_t end = 0;
	sqlite3_stmt *q = about(logs, end_sql, at);
	if (sq_row(logs, q)) {
		end = sq_int(q, 0);
		sq_end(q);
	}
	if (ret_dropped) {
		*ret_dropped = 0;
		q = about(logs, dropped_sql, at);
		if (sq_row(logs, q)) {
			*ret_dropped = sq_int(q, 0);
			sq_end(q);
		}
	}
	return end;
}

void sq_log_read_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_log_read *o = container_of(op, struct store_log_read, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *logs = &x->logs;
	int64_t left = max_i64(o->max_bytes, 1);
	size_t cap = 0;
	o->ret_n = 0;
	o->ret_chunks = NULL;
	o->ret_offset = o->tail > 0 ? max_i64(0, sq_log_end(logs, &o->at, NULL) - o->tail) : o->offset;
	int64_t at = o->ret_offset;
	sqlite3_stmt *q = about(logs, read_sql, &o->at);
	sq_bind_int(logs, at);
	sq_bind_int(logs, CHUNKS_MAX);
	while (sq_row(logs, q)) {
		const void *data = sqlite3_column_blob(q, 2);
		struct store_log_chunk c = {.offset = sq_int(q, 0), .stream = (enum store_log_stream)sq_int(q, 1),
			.data = {data, (size_t)sqlite3_column_bytes(q, 2)}, .dropped = sq_int(q, 3)};
		if (!store_log_trim(&c, at))
			continue;
		if (left <= 0) {
			sq_end(q);
			break;
		}
		uint8_t *copy = sq_mem(logs, mem, c.data.len + 1);
		struct store_log_chunk *chunk = copy ? next_chunk(logs, o, &cap) : NULL;
		if (!chunk) {
			sq_end(q);
			return;
		}
		if (c.data.len)
			memcpy(copy, c.data.data, c.data.len);
		c.data.data = copy;
		*chunk = c;
		left -= (int64_t)c.data.len;
		at = c.offset + c.dropped + (int64_t)c.data.len;
	}
}
