/* LOG_APPEND and LOG_READ: a task's output, in chunks keyed by the offset over both streams. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char append_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::int2[], $6::int8[], "
	"$7::bytea[]) AS i(ord, task_id, attempt, worker, stream, off, data)), "
	"m AS MATERIALIZED (SELECT i.ord, i.task_id, i.attempt, EXISTS (SELECT FROM running r WHERE r.task_id = i.task_id AND "
	"r.attempt = i.attempt AND (r.worker = i.worker COLLATE \"C\") IS TRUE OFFSET 0) OR EXISTS (SELECT FROM task t, ready r WHERE "
	"t.id = i.task_id AND r.queue = t.queue AND r.neg_priority = t.neg_priority AND r.seq = t.seq AND "
	"r.attempt = i.attempt AND r.open_worker = i.worker COLLATE \"C\" OFFSET 0) AS ours FROM i), "
	"n AS (INSERT INTO log (task_id, attempt, off, stream, data) SELECT i.task_id, i.attempt, i.off, i.stream, i.data "
	"FROM i JOIN m ON m.ord = i.ord WHERE m.ours ON CONFLICT DO NOTHING) "
	"SELECT i.ord, m.ours OR EXISTS (SELECT FROM log g WHERE g.task_id = i.task_id AND g.attempt = i.attempt AND "
	"g.off = i.off OFFSET 0) FROM i JOIN m ON m.ord = i.ord";

static bool build_append(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_log_append *o = container_of(b->ops[i], struct store_log_append, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, o->at.task.b);
		pg_int4(ps, 2, o->at.attempt);
		pg_text(ps, 3, o->worker);
		pg_int2(ps, 4, (int16_t)o->stream);
		pg_int8(ps, 5, o->offset);
		pg_blob(ps, 6, o->data);
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

const struct pg_stmt pg_log_append_stmts[1] = {{append_sql, "4u4t28y", build_append, read_append}};

/* Begins with the chunk in which the offset lies; the running sum doesn't read the data. */
static const char read_sql[] =
	"SELECT i.ord, g.off, g.stream, g.data FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::int8[], $5::int8[]) "
	"AS i(ord, task_id, attempt, off, n) CROSS JOIN LATERAL (SELECT s.off, s.stream, s.data FROM (SELECT g.off, g.stream, "
	"g.data, sum(g.len) OVER (ORDER BY g.off) - g.len AS before FROM (SELECT g.off, g.stream, g.data, "
	"greatest(0, g.off + octet_length(g.data) - greatest(g.off, i.off)) AS len FROM log g WHERE g.task_id = i.task_id AND g.attempt = i.attempt AND g.off >= coalesce((SELECT max(f.off) FROM "
	"log f WHERE f.task_id = i.task_id AND f.attempt = i.attempt AND f.off <= i.off), 0) ORDER BY g.off LIMIT 4096) g) s "
	"WHERE s.before < i.n ORDER BY s.off) g ORDER BY i.ord, g.off";

static bool build_read(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_log_read *o = container_of(b->ops[i], struct store_log_read, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, o->at.task.b);
		pg_int4(ps, 2, o->at.attempt);
		pg_int8(ps, 3, o->offset);
		pg_int8(ps, 4, max_i64(o->max_bytes, 1));
	}
	return true;
}

static int read_chunks(struct store_log_read *o, const PGresult *r, int first, int n)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	o->ret_n = 0;
	o->ret_chunks = n ? store_mem_get(mem, (size_t)n * sizeof(*o->ret_chunks)) : NULL;
	for (int row = first; row < first + n; row++) {
		struct store_log_chunk c = {.offset = pg_get_int8(r, row, 1)};
		c.stream = (enum store_log_stream)pg_get_int(r, row, 2);
		c.data = pg_get_bytes(r, row, 3, mem);
		if (c.offset < o->offset) {
			int64_t before = o->offset - c.offset;
			if (before >= (int64_t)c.data.len)
				continue;
			c.data.data += before;
			c.data.len -= (size_t)before;
			c.offset = o->offset;
		}
		o->ret_chunks[o->ret_n++] = c;
	}
	return 0;
}

static int read_read(struct pg_batch *b, const PGresult *r)
{
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < b->n; i++) {
		int first = row;
		while (row < n && pg_get_int(r, row, 0) == (int32_t)i)
			row++;
		int rc = read_chunks(container_of(b->ops[i], struct store_log_read, op), r, first, row - first);
		if (rc < 0)
			return rc;
	}
	return row == n ? 0 : -EPROTO;
}

const struct pg_stmt pg_log_read_stmts[1] = {{read_sql, "4u488", build_read, read_read}};
