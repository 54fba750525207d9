/* METRICS and METRICS_READ: points of attempts. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"
#include "server/store/store_metrics.h"

/* Of several counts in a batch the last one stands. */
static const char put_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[]) AS i(ord, task_id, attempt, "
	"worker)), "
	"m AS MATERIALIZED (SELECT i.ord, i.task_id, i.attempt, " PG_IS_OURS " AS ours FROM i), "
	"p AS MATERIALIZED (SELECT * FROM unnest($5::int4[], $6::int8[], $7::bytea[]) AS p(ord, number, point)), "
	"n AS (INSERT INTO metric (task_id, attempt, number, point) SELECT m.task_id, m.attempt, p.number, p.point FROM p JOIN m "
	"ON m.ord = p.ord WHERE m.ours AND p.number > 0 ON CONFLICT DO NOTHING), "
	"c AS (INSERT INTO metric (task_id, attempt, number, point) SELECT DISTINCT ON (m.task_id, m.attempt) m.task_id, m.attempt, "
	"0, p.point FROM p JOIN m ON m.ord = p.ord WHERE m.ours AND p.number = 0 ORDER BY m.task_id, m.attempt, p.ord DESC "
	"ON CONFLICT (task_id, attempt, number) DO UPDATE SET point = excluded.point) "
	"SELECT ord, ours FROM m";

static bool build_put(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_metrics *o = container_of(b->ops[i], struct store_metrics, op);
		pg_attempt(ps, i, &o->at);
		pg_text(ps, 3, o->worker);
		for (size_t k = 0; k < o->n; k++) {
			const struct store_metric *m = &o->items[k];
			pg_int4(ps, 4, (int32_t)i);
			pg_int8(ps, 5, m->number);
			pg_bytea(ps, 6, m->point.data ? m->point.data : (const uint8_t *)"", m->point.len);
		}
	}
	return true;
}

static int read_put(struct pg_batch *b, const PGresult *r)
{
	if ((size_t)PQntuples(r) != b->n)
		return -EPROTO;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		container_of(b->ops[ord], struct store_metrics, op)->ret_fenced = !pg_get_bool(r, row, 1);
	}
	return 0;
}

const struct pg_stmt pg_metrics_stmts[1] = {{put_sql, "4u4t48y", build_put, read_put}};

/* A row for each operation with the counts, and one for each point; ordered as the operation asks. */
static const char read_sql[] =
	"SELECT i.ord, g.number, g.point FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::int8[], $5::bool[], $6::int4[], $7::int8[]) "
	"AS i(ord, task_id, attempt, after, newest, n, bytes) CROSS JOIN LATERAL ("
	"(SELECT s.number, s.point, s.number AS place FROM (SELECT g.number, g.point, sum(octet_length(g.point)) OVER (ORDER BY g.number) - "
	"octet_length(g.point) AS before FROM (SELECT g.number, g.point FROM metric g WHERE NOT i.newest AND g.task_id = i.task_id AND "
	"g.attempt = i.attempt AND g.number > greatest(i.after, 0) ORDER BY g.number LIMIT i.n) g) s WHERE s.before < i.bytes) "
	"UNION ALL (SELECT s.number, s.point, - s.number FROM (SELECT g.number, g.point, sum(octet_length(g.point)) OVER (ORDER BY g.number "
	"DESC) - octet_length(g.point) AS before FROM (SELECT g.number, g.point FROM metric g WHERE i.newest AND g.task_id = i.task_id AND "
	"g.attempt = i.attempt AND g.number > greatest(i.after, 0) ORDER BY g.number DESC LIMIT i.n) g) s WHERE s.before < i.bytes) "
	"UNION ALL (SELECT g.number, g.point, 0 FROM metric g WHERE g.task_id = i.task_id AND g.attempt = i.attempt AND g.number = 0)"
	") g ORDER BY i.ord, g.place";

static bool build_read(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_metrics_read *o = container_of(b->ops[i], struct store_metrics_read, op);
		pg_attempt(ps, i, &o->at);
		pg_int8(ps, 3, o->after);
		pg_bool(ps, 4, o->newest);
		pg_int4(ps, 5, o->limit > 0 ? o->limit : 0);
		pg_int8(ps, 6, o->max_bytes > 0 ? o->max_bytes : INT64_MAX);
	}
	return true;
}

static void read_points(struct store_metrics_read *o, const PGresult *r, int first, int n)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	o->ret_n = 0;
	o->ret_counts = (struct store_bytes){0};
	o->ret_items = n ? pg_mem(mem, (size_t)n * sizeof(*o->ret_items)) : NULL;
	if (n && !o->ret_items)
		return; /* which pg_rows_short says */
	for (int row = first; row < first + n; row++) {
		struct store_metric m = {.number = pg_get_int8(r, row, 1), .point = pg_get_bytes(r, row, 2, mem)};
		if (m.number)
			o->ret_items[o->ret_n++] = m;
		else
			o->ret_counts = m.point;
	}
}

static int read_read(struct pg_batch *b, const PGresult *r)
{
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < b->n; i++) {
		int first = row;
		while (row < n && pg_get_int(r, row, 0) == (int32_t)i)
			row++;
		read_points(container_of(b->ops[i], struct store_metrics_read, op), r, first, row - first);
	}
	return row == n ? 0 : -EPROTO;
}

const struct pg_stmt pg_metrics_read_stmts[1] = {{read_sql, "4u48b48", build_read, read_read}};
