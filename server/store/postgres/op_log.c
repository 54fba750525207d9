/* LOG_APPEND and LOG_READ: a task's output, in chunks keyed by the offset over both streams; a gap is a row without
 * data.
 *
 * Chunks may overlap: a worker that lost its connection sends again from where the log ended then, in other pieces than
 * before, while the ones before may still be on their way from another master. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"
#include "server/store/store_logs.h"

/* A row for each piece; an operation's pieces have its number. */
static const char append_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::int2[], $6::int8[], "
	"$7::bytea[], $8::int8[]) AS i(ord, task_id, attempt, worker, stream, off, data, dropped)), "
	"m AS MATERIALIZED (SELECT i.ord, " PG_IS_OURS " AS ours FROM (SELECT DISTINCT ON (ord) * FROM i) i), "
	"n AS (INSERT INTO log AS g (task_id, attempt, off, stream, data, dropped) SELECT i.task_id, i.attempt, i.off, i.stream, i.data, "
	"i.dropped FROM i JOIN m ON m.ord = i.ord WHERE m.ours ON CONFLICT (task_id, attempt, off) DO UPDATE SET data = excluded.data, "
	"dropped = excluded.dropped WHERE (g.dropped IS NULL) = (excluded.dropped IS NULL) AND octet_length(g.data) + "
	"coalesce(g.dropped, 0) < octet_length(excluded.data) + coalesce(excluded.dropped, 0)) "
	"SELECT m.ord, m.ours OR (SELECT bool_and(EXISTS (SELECT FROM log g WHERE g.task_id = i.task_id AND g.attempt = i.attempt AND "
	"g.off = i.off OFFSET 0)) FROM i WHERE i.ord = m.ord) FROM m";

static bool build_append(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_log_append *o = container_of(b->ops[i], struct store_log_append, op);
		for (size_t k = 0; k < o->n; k++) {
			const struct store_log_piece *p = &o->pieces[k];
			pg_attempt(ps, i, &o->at);
			pg_text(ps, 3, o->worker);
			pg_int2(ps, 4, (int16_t)p->stream);
			pg_int8(ps, 5, p->offset);
			pg_bytea(ps, 6, p->data ? p->data->data : (const uint8_t *)"", p->data ? p->data->len : 0);
			p->data ? pg_null(ps, 7) : pg_int8(ps, 7, p->dropped);
		}
	}
	return true;
}

static int read_append(struct pg_batch *b, const PGresult *r)
{
	if ((size_t)PQntuples(r) != b->n)
		return -EPROTO;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		container_of(b->ops[ord], struct store_log_append, op)->ret_fenced = !pg_get_bool(r, row, 1);
	}
	return 0;
}

const struct pg_stmt pg_log_append_stmts[1] = {{append_sql, "4u4t28y8", build_append, read_append}};

#define END "g.off + octet_length(g.data) + coalesce(g.dropped, 0)"

/* Begins with the first chunk that ends behind the offset: no piece is longer than 64 KiB, so that it is the last one which
 * begins so far before it, or one after that.  The running sum doesn't read the data. */
static const char read_sql[] =
	"SELECT x.ord, x.off, g.off, g.stream, g.data, g.dropped FROM (SELECT i.ord, i.task_id, i.attempt, i.n, CASE WHEN i.tail > 0 "
	"THEN greatest(0, coalesce((SELECT " END " FROM log g WHERE g.task_id = i.task_id AND g.attempt = i.attempt ORDER BY g.off DESC "
	"LIMIT 1), 0) - i.tail) ELSE i.off END AS off FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::int8[], $5::int8[], $6::int8[]) "
	"AS i(ord, task_id, attempt, off, tail, n)) x "
	"LEFT JOIN LATERAL (SELECT s.off, s.stream, s.data, s.dropped FROM (SELECT g.off, g.stream, g.data, g.dropped, "
	"sum(g.len) OVER (ORDER BY g.off) - g.len AS before FROM (SELECT g.off, g.stream, g.data, g.dropped, "
	"CASE WHEN g.dropped IS NULL THEN g.off + octet_length(g.data) - greatest(g.off, x.off) ELSE 0 END AS len FROM log g WHERE "
	"g.task_id = x.task_id AND g.attempt = x.attempt AND g.off >= coalesce((SELECT max(f.off) FROM log f WHERE "
	"f.task_id = x.task_id AND f.attempt = x.attempt AND f.off <= x.off - 65535), 0) AND " END " > x.off "
	"ORDER BY g.off LIMIT 4096) g) s WHERE s.before < x.n ORDER BY s.off) g ON true ORDER BY x.ord, g.off";

enum { R_ORD, R_FROM, R_OFFSET, R_STREAM, R_DATA, R_DROPPED };

static bool build_read(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_log_read *o = container_of(b->ops[i], struct store_log_read, op);
		pg_attempt(ps, i, &o->at);
		pg_int8(ps, 3, o->offset);
		pg_int8(ps, 4, o->tail);
		pg_int8(ps, 5, max_i64(o->max_bytes, 1));
	}
	return true;
}

static int read_chunks(struct store_log_read *o, const PGresult *r, int first, int n)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	if (!n)
		return -EPROTO;
	int64_t at = o->ret_offset = pg_get_int8(r, first, R_FROM);
	o->ret_n = 0;
	o->ret_chunks = NULL;
	if (pg_is_null(r, first, R_OFFSET))
		return 0;
	o->ret_chunks = pg_mem(mem, (size_t)n * sizeof(*o->ret_chunks));
	if (n && !o->ret_chunks)
		return -ENOMEM;
	for (int row = first; row < first + n; row++) {
		struct store_log_chunk c = {.offset = pg_get_int8(r, row, R_OFFSET), .dropped = pg_get_int8(r, row, R_DROPPED)};
		c.stream = (enum store_log_stream)pg_get_int(r, row, R_STREAM);
		c.data = pg_get_bytes(r, row, R_DATA, mem);
		if (store_log_trim(&c, at)) {
			at = c.offset + c.dropped + (int64_t)c.data.len;
			o->ret_chunks[o->ret_n++] = c;
		}
	}
	return 0;
}

static int read_read(struct pg_batch *b, const PGresult *r)
{
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < b->n; i++) {
		int first = row;
		while (row < n && pg_get_int(r, row, R_ORD) == (int32_t)i)
			row++;
		int rc = read_chunks(container_of(b->ops[i], struct store_log_read, op), r, first, row - first);
		if (rc < 0)
			return rc;
	}
	return row == n ? 0 : -EPROTO;
}

const struct pg_stmt pg_log_read_stmts[1] = {{read_sql, "4u4888", build_read, read_read}};
