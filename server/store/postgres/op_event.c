/* EVENTS: what was changed behind a position, and where events end now: each in one snapshot.  NEWS: points are told of, if
 * `watched_until` of `meta` (microseconds since 1970) is still to come.  TRIM: the store's own; labels of older tasks go with
 * it. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"
#include "server/store/store_events.h"

#define NOW_US "(extract(epoch FROM now()) * 1000000)::int8"
#define WATCHED_AT(then)                                                                                        \
	"EXISTS (SELECT FROM meta m WHERE m.key = 'watched_until' AND CASE WHEN m.key = 'watched_until' THEN m.value::int8 END > " then ")"
/* Committed with the answer: what is stored after it is told of. */
#define WATCHED_ON(wanted)                                                                                      \
	"w AS (INSERT INTO meta (key, value) SELECT 'watched_until', (" NOW_US " + 60000000)::text WHERE (" wanted "::bool[])[1] AND NOT " \
	WATCHED_AT("(" NOW_US " + 30000000)") " ON CONFLICT (key) DO UPDATE SET value = excluded.value) "
_Static_assert(STORE_NEWS_US == 60000000, "WATCHED_ON");

/* Streams first, in their order, then rows; one row more than asked for tells that there are more. */
static const char read_sql[] =
	"WITH i AS MATERIALIZED (SELECT ($3::int8[])[1] AS known, ($4::int4[])[1] AS n, ($5::int8[])[1] AS bytes), "
	"p AS MATERIALIZED (SELECT * FROM unnest($1::int8[], $2::int8[]) AS p(stream, number)), "
	"s AS MATERIALIZED (SELECT s.* FROM (SELECT s.id, s.gone, s.ended_at IS NOT NULL AS over, CASE WHEN p.stream IS NOT NULL THEN p.number "
	"WHEN s.id > i.known THEN 0 END AS number FROM event_stream s CROSS JOIN i LEFT JOIN p ON p.stream = s.id) s WHERE "
	"NOT s.over OR s.number IS NOT NULL), "
	"c AS MATERIALIZED (SELECT e.* FROM s CROSS JOIN i CROSS JOIN LATERAL (SELECT e.* FROM event e WHERE e.stream = s.id AND "
	"e.number > s.number ORDER BY e.number LIMIT i.n + 1) e WHERE s.number IS NOT NULL ORDER BY e.number LIMIT (SELECT n FROM i) + 1), "
	"v AS MATERIALIZED (SELECT c.*, row_number() OVER (ORDER BY c.number) AS place, coalesce(sum(octet_length(c.changes)) OVER "
	"(ORDER BY c.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM c), "
	WATCHED_ON("$6")
	"SELECT true, s.id, s.gone, s.over, NULL::timestamptz, NULL::bytea, (SELECT count(*) FROM c) FROM (SELECT * FROM s ORDER BY id) s "
	"UNION ALL SELECT false, v.stream, v.number, false, v.at, v.changes, (SELECT count(*) FROM c) FROM (SELECT v.* FROM v CROSS JOIN i "
	"WHERE v.place <= i.n AND v.before < i.bytes ORDER BY v.place) v";

static const char now_sql[] =
	"WITH " WATCHED_ON("$1")
	"SELECT true, s.id, coalesce(e.number, s.gone), s.ended_at IS NOT NULL, NULL::timestamptz, NULL::bytea, 0::int8 FROM event_stream s "
	"LEFT JOIN LATERAL (SELECT e.number FROM event e WHERE e.stream = s.id ORDER BY e.number DESC LIMIT 1) e ON true "
	"WHERE s.ended_at IS NULL OR s.id = (SELECT max(id) FROM event_stream) ORDER BY s.id";

enum { IS_STREAM, STREAM, NUMBER, OVER, AT, CHANGES, FOUND };

static struct store_events *op_of(struct pg_batch *b) { return container_of(b->ops[0], struct store_events, op); }

static bool build_read(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_events *o = op_of(b);
	if (o->now)
		return false;
	for (size_t i = 0; i < o->n_at; i++) {
		pg_int8(ps, 0, o->at[i].stream);
		pg_int8(ps, 1, o->at[i].number);
	}
	pg_int8(ps, 2, o->known);
	pg_int4(ps, 3, o->limit > 0 ? o->limit : 1);
	pg_int8(ps, 4, o->max_bytes > 0 ? o->max_bytes : INT64_MAX);
	pg_bool(ps, 5, o->metrics);
	return true;
}

static bool build_now(struct pg_batch *b, struct pg_params *ps)
{
	pg_bool(ps, 0, op_of(b)->metrics);
	return op_of(b)->now;
}

static int read_rows(struct pg_batch *b, const PGresult *r)
{
	struct store_events *o = op_of(b);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r), streams = 0;
	while (streams < n && pg_get_bool(r, streams, IS_STREAM))
		streams++;
	struct store_stream *all = pg_mem(mem, ((size_t)streams + 1) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (int row = 0; row < streams; row++)
		all[row] = (struct store_stream){pg_get_int(r, row, STREAM), pg_get_int8(r, row, NUMBER), pg_get_bool(r, row, OVER)};
	o->ret_n = 0;
	o->ret_rows = pg_mem(mem, ((size_t)(n - streams) + 1) * sizeof(*o->ret_rows));
	if (!o->ret_rows)
		return -ENOMEM;
	for (int row = streams; row < n; row++) {
		struct store_event *e = &o->ret_rows[o->ret_n];
		*e = (struct store_event){.stream = pg_get_int(r, row, STREAM), .number = pg_get_int8(r, row, NUMBER),
					  .at_wall_us = pg_get_wall_us(r, row, AT), .changes = pg_get_bytes(r, row, CHANGES, mem)};
		if (o->ret_n && e->number <= e[-1].number)
			return -EPROTO;
		o->ret_n++;
	}
	o->ret_more = n > 0 && pg_get_int8(r, 0, FOUND) > (int64_t)o->ret_n;
	store_events_settle(o, all, (size_t)streams);
	return 0;
}

const struct pg_stmt pg_events_stmts[2] = {
	{read_sql, "88848b", build_read, read_rows},
	{now_sql, "b", build_now, read_rows},
};

static const char news_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::int4[]) AS i(task_id, attempt) WHERE " WATCHED_AT(NOW_US) ") "
	PG_EVENT("SELECT task_id, attempt, 146 FROM i") "SELECT";

static bool build_news(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_news *o = container_of(b->ops[0], struct store_news, op);
	for (size_t i = 0; i < o->n; i++) {
		pg_uuid(ps, 0, o->at[i].task.b);
		pg_int4(ps, 1, o->at[i].attempt);
	}
	return true;
}

static const char trim_sql[] = "SELECT trim_events((($1::int8[])[1] / 1000) * interval '1 microsecond')";

static bool build_trim(struct pg_batch *b, struct pg_params *ps)
{
	pg_int8(ps, 0, b->store->cfg.event_retention_ns);
	return true;
}

static int read_nothing(struct pg_batch *b, const PGresult *r) { return 0; }

const struct pg_stmt pg_news_stmts[1] = {{news_sql, "u4", build_news, read_nothing}};

/* First: what the other has locked is let go at the end. */
static const char label_sql[] = "SELECT label_old_tasks(2000, '100 ms')";

static bool build_label(struct pg_batch *b, struct pg_params *ps) { return b->store->unlabelled; }

static int read_label(struct pg_batch *b, const PGresult *r)
{
	b->store->unlabelled = PQntuples(r) == 1 && pg_get_bool(r, 0, 0);
	return 0;
}

const struct pg_stmt pg_trim_stmts[2] = {
	{label_sql, "", build_label, read_label},
	{trim_sql, "8", build_trim, read_nothing},
};
