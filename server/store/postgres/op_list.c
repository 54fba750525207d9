/* LIST: newest first, from a cursor.  Some tasks are looked at (k), those that match are kept (c), and of these the rows
 * are read until the bytes are reached.  Where to look first depends on what is asked for: few running, pending or failed
 * tasks among millions of others are found through their own tables, those of a queue or a name through its index. */
#include <errno.h>
#include <string.h>

#include "server/store/labels.h"
#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_view.h"


#define INPUT                                                                                              \
	"WITH i AS MATERIALIZED (SELECT ($1::int4[])[1] AS states, ($2::text[])[1] AS queue, ($3::uuid[])[1] AS below, " \
	"($4::uuid[])[1] AS floor, ($5::int4[])[1] AS n, ($6::int4[])[1] AS scan, ($7::bool[])[1] AS whole, "  \
	"($8::bool[])[1] AS bare, ($9::int8[])[1] AS bytes, ($10::text[])[1] AS name, ($11::text[])[1] AS prefix, " \
	"($12::text[])[1] AS worker, ($13::text[])[1] AS owner, ($14::timestamptz[])[1] AS since, "            \
	"($15::timestamptz[])[1] AS until, cardinality($16::uuid[]) AS ids, cardinality($17::bool[]) > 0 AS selects, "                          \
	"($1::int4[])[1] <> 0 OR ($12::text[])[1] IS NOT NULL AS places), "
#define COLUMNS "4tuu44bb8ttttwwuby4"
/* What is looked at of a task, as it was submitted. */
#define LOOK "t.id, t.queue, t.name, t.owner, t.created_at, CASE WHEN i.selects THEN t.labels END AS labels"
#define IN_RANGE(id) id " < i.below AND " id " >= i.floor "
#define NEWEST(id) "ORDER BY " id " DESC LIMIT i.scan"
/* A condition on labels holds if one of its needles is found, or (none) not one is. */
#define LABELS                                                                                             \
	"(NOT i.selects OR NOT EXISTS (SELECT FROM unnest($17::bool[]) WITH ORDINALITY AS w(none, n) WHERE w.none = EXISTS " \
	"(SELECT FROM unnest($18::bytea[], $19::int4[]) AS x(needle, n) WHERE x.n = w.n AND "                    \
	"position(x.needle IN coalesce(k.labels, ''::bytea)) > 0))) "
#define MATCHES                                                                                            \
	"c AS MATERIALIZED (SELECT k.id FROM k CROSS JOIN i "                                                  \
	"LEFT JOIN LATERAL (SELECT e.state, e.worker FROM ended e WHERE i.places AND e.task_id = k.id OFFSET 0) e ON true " \
	"LEFT JOIN LATERAL (SELECT r.task_id, r.worker FROM running r WHERE i.places AND r.task_id = k.id OFFSET 0) r ON true " \
	"WHERE (i.queue IS NULL OR k.queue = i.queue COLLATE \"C\") AND (i.name IS NULL OR k.name = i.name COLLATE \"C\") AND " \
	"(i.prefix IS NULL OR starts_with(k.name, i.prefix)) AND (i.owner IS NULL OR k.owner = i.owner COLLATE \"C\") AND " \
	"(i.since IS NULL OR k.created_at >= i.since) AND (i.until IS NULL OR k.created_at < i.until) AND "     \
	"(i.worker IS NULL OR coalesce(r.worker, e.worker) = i.worker COLLATE \"C\") AND " LABELS              \
	"AND (i.states = 0 OR i.states & (1 << CASE WHEN e.state IS NOT NULL THEN e.state::int WHEN r.task_id IS NOT NULL THEN 2 " \
	"ELSE 1 END) <> 0) ORDER BY k.id DESC LIMIT (SELECT n FROM i) + 1), "
/* One row more than asked for tells that there are more. */
#define ROWS                                                                                               \
	"v AS MATERIALIZED (SELECT " PG_VIEW("true", "CASE WHEN i.bare THEN ''::bytea WHEN i.whole THEN t.spec ELSE "  \
					     "coalesce(t.list_spec, t.spec) END", "CASE WHEN i.whole THEN e.result END") \
	" FROM c CROSS JOIN i CROSS JOIN LATERAL (SELECT t.* FROM task t WHERE t.id = c.id OFFSET 0) t " PG_VIEW_JOINS ") "
#define SIZES                                                                                              \
	"sum(200 + coalesce(octet_length(v_spec), 0) + coalesce(octet_length(v_result), 0) + coalesce(octet_length(v_error), 0) + " \
	"CASE WHEN i.whole THEN (SELECT coalesce(sum(200 + coalesce(octet_length(a.error), 0)), 0) FROM (SELECT a.error FROM attempt a " \
	"WHERE a.task_id = v.id ORDER BY a.attempt DESC LIMIT " PG_FORMER_MAX ") a) ELSE 0 END)"
/* One row at least: what was looked at is told of no rows too. */
#define TAIL(wide)                                                                                              \
	"SELECT s.*, x.* FROM (SELECT (SELECT count(*) FROM c), (SELECT count(*) FROM k), (SELECT k.id FROM k ORDER BY k.id LIMIT 1), " \
	wide ") x LEFT JOIN (SELECT v.*, " SIZES " OVER (ORDER BY id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS " \
	"before FROM v CROSS JOIN i) s ON coalesce(s.before, 0) < (SELECT bytes FROM i) ORDER BY s.id DESC"
#define THROUGH(k) INPUT "k AS MATERIALIZED (" k "), " MATCHES ROWS TAIL("false")

static const char any_sql[] = THROUGH("SELECT k.* FROM i CROSS JOIN LATERAL (SELECT " LOOK " FROM task t WHERE "
	IN_RANGE("t.id") NEWEST("t.id") ") k");

/* By an index of both: with the column alone, the planner may take a common value for granted and go through all ids. */
#define BOTH(column)                                                                                       \
	"(t." column ", t.id) < (i." column " COLLATE \"C\", i.below) AND (t." column ", t.id) >= (i." column " COLLATE \"C\", i.floor) AND t." \
	column " IS NOT NULL ORDER BY t." column " DESC, t.id DESC LIMIT i.scan"
static const char queue_sql[] = THROUGH("SELECT k.* FROM i CROSS JOIN LATERAL (SELECT " LOOK " FROM task t WHERE " BOTH("queue") ") k");
static const char name_sql[] = THROUGH("SELECT k.* FROM i CROSS JOIN LATERAL (SELECT " LOOK " FROM task t WHERE " BOTH("name") ") k");

static const char ids_sql[] = THROUGH("SELECT k.* FROM i CROSS JOIN LATERAL (SELECT " LOOK " FROM unnest($16::uuid[]) AS x(id) "
	"CROSS JOIN LATERAL (SELECT t.* FROM task t WHERE t.id = x.id OFFSET 0) t WHERE " IN_RANGE("t.id") NEWEST("t.id") ") k");

/* All but the completed ones.  `ready` has no index by id: few are sorted, of many it is said that they are.  They are read through
 * the index that it has: its pages may be those of a backlog that is gone. */
#define READY(columns, limit)                                                                                   \
	"SELECT p.* FROM i CROSS JOIN LATERAL (SELECT " columns " FROM ready p WHERE i.queue IS NULL AND p.queue >= ''" limit ") p UNION ALL "      \
	"SELECT p.* FROM i CROSS JOIN LATERAL (SELECT " columns " FROM ready p WHERE p.queue = i.queue COLLATE \"C\"" limit ") p"
static const char parts_sql[] = INPUT
	"many AS MATERIALIZED (SELECT count(*) > " NUMBER_TEXT(STORE_LIST_READY_MAX) " AS ready FROM (SELECT p.* FROM i CROSS JOIN LATERAL ("
	READY("1", " LIMIT " NUMBER_TEXT(STORE_LIST_READY_MAX) " + 1") ") p WHERE i.states & 2 <> 0) p), "
	"u AS MATERIALIZED ("
	"(SELECT r.id FROM i CROSS JOIN LATERAL (SELECT r.task_id AS id FROM running r WHERE i.states & 4 <> 0 AND "
	IN_RANGE("r.task_id") "AND (i.worker IS NULL OR r.worker = i.worker COLLATE \"C\") " NEWEST("r.task_id") ") r) UNION ALL "
	"(SELECT e.id FROM i CROSS JOIN LATERAL (SELECT e.task_id AS id FROM ended e WHERE e.state <> 3 AND i.states & 48 <> 0 AND "
	IN_RANGE("e.task_id") NEWEST("e.task_id") ") e) UNION ALL "
	"(SELECT d.id FROM i CROSS JOIN LATERAL (SELECT d.task_id AS id FROM delayed d WHERE i.states & 2 <> 0 AND "
	IN_RANGE("d.task_id") NEWEST("d.task_id") ") d) UNION ALL "
	"(SELECT p.id FROM i CROSS JOIN many CROSS JOIN LATERAL (SELECT p.id FROM (" READY("p.task_id AS id", "") ") p WHERE "
	"NOT many.ready AND i.states & 2 <> 0 AND " IN_RANGE("p.id") NEWEST("p.id") ") p)), "
	"k AS MATERIALIZED (SELECT " LOOK " FROM i CROSS JOIN LATERAL (SELECT u.id FROM u " NEWEST("u.id") ") u "
	"CROSS JOIN LATERAL (SELECT t.* FROM task t WHERE t.id = u.id OFFSET 0) t), "
	MATCHES ROWS TAIL("(SELECT ready FROM many)");

enum way { ANY, QUEUE, NAME, IDS, PARTS };

static uint32_t bit(enum store_state s) { return UINT32_C(1) << s; }

static enum way way_of(const struct store_list *o)
{
	uint32_t ends = bit(STORE_COMPLETED) | bit(STORE_FAILED) | bit(STORE_CANCELLED);
	if (o->ids)
		return IDS;
	if (!o->wide && o->states && !(o->states & ends))
		return PARTS;
	if (o->name)
		return NAME;
	if (!o->wide && o->states && !(o->states & bit(STORE_COMPLETED)))
		return PARTS;
	return o->queue ? QUEUE : ANY;
}

static void build_labels(struct pg_params *ps, const struct label_selector *s)
{
	for (size_t i = 0; s && i < s->n_wants; i++) {
		const struct label_want *w = &s->wants[i];
		pg_bool(ps, 16, w->none);
		for (size_t k = w->first; k < (size_t)w->first + w->n; k++) {
			pg_bytea(ps, 17, s->needles[k].data, s->needles[k].len);
			pg_int4(ps, 18, (int32_t)i + 1);
		}
	}
}

static bool build(struct pg_batch *b, struct pg_params *ps, enum way mine)
{
	struct store_list *o = container_of(b->ops[0], struct store_list, op);
	struct uuid from, below;
	if (o->ret_n || way_of(o) != mine)
		return false;
	store_list_range(o, &from, &below);
	pg_int4(ps, 0, (int32_t)(o->states & 0xff));
	pg_text(ps, 1, o->queue);
	pg_uuid(ps, 2, below.b);
	pg_uuid(ps, 3, from.b);
	pg_int4(ps, 4, o->limit);
	pg_int4(ps, 5, o->scan > 0 ? o->scan : INT32_MAX);
	pg_bool(ps, 6, o->full);
	pg_bool(ps, 7, o->bare);
	pg_int8(ps, 8, o->max_bytes > 0 ? o->max_bytes : INT64_MAX);
	pg_text(ps, 9, o->name);
	pg_text(ps, 10, o->name_prefix);
	pg_text(ps, 11, o->worker);
	pg_text(ps, 12, o->owner);
	pg_time(ps, 13, o->created_from_us);
	pg_time(ps, 14, o->created_before_us);
	for (size_t i = 0; o->ids && i < o->n_ids; i++)
		pg_uuid(ps, 15, o->ids[i].b);
	build_labels(ps, o->labels);
	return true;
}

static bool build_any(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, ANY); }
static bool build_queue(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, QUEUE); }
static bool build_name(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, NAME); }
static bool build_ids(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, IDS); }
static bool build_parts(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, PARTS); }

/* After the view: the bytes of the rows above this one, how many matched, how many were looked at and the last of them,
 * and whether that was given up. */
enum { BEFORE = PG_VIEW_COLUMNS, FOUND, SEEN, LAST, WIDE };

static int read(struct pg_batch *b, const PGresult *r)
{
	struct store_list *o = container_of(b->ops[0], struct store_list, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r);
	o->ret_n = 0;
	if (n < 1)
		return -EPROTO;
	if (pg_get_bool(r, 0, WIDE)) {
		o->wide = true;
		pg_op_again(&o->op);
		return 0;
	}
	int64_t found = pg_get_int8(r, 0, FOUND);
	bool all_seen = pg_get_int8(r, 0, SEEN) < (o->scan > 0 ? o->scan : INT32_MAX);
	if (pg_is_null(r, 0, 0))
		n = 0;
	n = n > o->limit ? o->limit : n;
	o->ret_more = found > n || !all_seen;
	o->ret_tasks = n ? pg_mem(mem, (size_t)n * sizeof(*o->ret_tasks)) : NULL;
	if (n && !o->ret_tasks)
		return -ENOMEM;
	for (int row = 0; row < n; row++) {
		int rc = pg_get_view(r, row, 0, &o->ret_tasks[row], mem);
		if (rc < 0)
			return rc;
		o->ret_n++;
		if (o->full)
			pg_get_view_attempt(r, row, 0, &o->ret_tasks[row], mem);
	}
	if (found > n)
		o->ret_last = o->ret_tasks[n - 1].core.id;
	else if (o->ret_more)
		pg_get_uuid(r, 0, LAST, &o->ret_last);
	if (o->full && n)
		pg_op_again(&o->op); /* for their attempts */
	return 0;
}

/* Asked again, with the tasks found. */
static bool build_attempts(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_list *o = container_of(b->ops[0], struct store_list, op);
	for (size_t i = 0; i < o->ret_n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, o->ret_tasks[i].core.id.b);
	}
	return o->ret_n > 0;
}

static int read_attempts(struct pg_batch *b, const PGresult *r)
{
	struct store_list *o = container_of(b->ops[0], struct store_list, op);
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < o->ret_n; i++) {
		int first = row;
		while (row < n && pg_get_int(r, row, 0) == (int32_t)i)
			row++;
		pg_get_attempts(r, first, row - first, 1, &o->ret_tasks[i], (struct store_mem **)&o->ret_memory);
	}
	return row == n ? 0 : -EPROTO;
}

static const char attempts_sql[] =
	"SELECT i.ord, " PG_FORMER_COLUMNS ", a.attempt = p.attempt AND p.open_worker IS NOT NULL "
	"FROM unnest($1::int4[], $2::uuid[]) AS i(ord, id) " PG_FORMER("i.id")
	"LEFT JOIN LATERAL (SELECT p.attempt, p.open_worker FROM task t, ready p WHERE t.id = i.id AND p.queue = t.queue AND "
	"p.neg_priority = t.neg_priority AND p.seq = t.seq OFFSET 0) p ON true ORDER BY i.ord, a.attempt";

const struct pg_stmt pg_list_stmts[6] = {
	{any_sql, COLUMNS, build_any, read},
	{queue_sql, COLUMNS, build_queue, read},
	{name_sql, COLUMNS, build_name, read},
	{ids_sql, COLUMNS, build_ids, read},
	{parts_sql, COLUMNS, build_parts, read},
	{attempts_sql, "4u", build_attempts, read_attempts},
};
