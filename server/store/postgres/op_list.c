/* LIST: newest first, from a cursor.  Which table drives the search depends on the states asked for: few
 * running, pending or failed tasks among millions of others are found through their own tables. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_view.h"

#define INPUT                                                                                              \
	"WITH i AS MATERIALIZED (SELECT ($1::int4[])[1] AS states, ($2::text[])[1] AS queue, ($3::uuid[])[1] AS below, " \
	"($4::int4[])[1] AS n, ($5::bool[])[1] AS whole, ($6::int8[])[1] AS bytes), "
/* From the ids: the rows, until the bytes are reached.  One row more than asked for tells that there are more. */
#define ROWS                                                                                               \
	"v AS MATERIALIZED (SELECT " PG_VIEW("true", "CASE WHEN i.whole THEN t.spec ELSE coalesce(t.list_spec, t.spec) END", \
					     "CASE WHEN i.whole THEN e.result END")                        \
	" FROM c CROSS JOIN i CROSS JOIN LATERAL (SELECT t.* FROM task t WHERE t.id = c.id OFFSET 0) t " PG_VIEW_JOINS ") "
#define SIZES                                                                                              \
	"sum(200 + coalesce(octet_length(v_spec), 0) + coalesce(octet_length(v_result), 0) + coalesce(octet_length(v_error), 0) + " \
	"CASE WHEN i.whole THEN (SELECT coalesce(sum(200 + coalesce(octet_length(a.error), 0)), 0) FROM (SELECT a.error FROM attempt a " \
	"WHERE a.task_id = v.id ORDER BY a.attempt DESC LIMIT " PG_FORMER_MAX ") a) ELSE 0 END)"
#define TAIL                                                                                               \
	"SELECT s.*, (SELECT count(*) FROM c) FROM (SELECT v.*, " SIZES " OVER (ORDER BY id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS " \
	"before FROM v CROSS JOIN i) s CROSS JOIN i WHERE coalesce(s.before, 0) < i.bytes ORDER BY s.id DESC"
#define IN_QUEUE(x) "(i.queue IS NULL OR " x ".queue = i.queue COLLATE \"C\") "

static const char any_sql[] = INPUT
	"c AS MATERIALIZED (SELECT c.id FROM i CROSS JOIN LATERAL (SELECT t.id FROM task t "
	"LEFT JOIN LATERAL (SELECT e.state FROM ended e WHERE e.task_id = t.id OFFSET 0) e ON true "
	"LEFT JOIN LATERAL (SELECT r.task_id FROM running r WHERE r.task_id = t.id AND e.state IS NULL OFFSET 0) r ON true "
	"WHERE t.id < i.below AND " IN_QUEUE("t")
	"AND (i.states = 0 OR i.states & (1 << CASE WHEN e.state IS NOT NULL THEN e.state::int WHEN r.task_id IS NOT NULL THEN 2 "
	"ELSE 1 END) <> 0) ORDER BY t.id DESC LIMIT i.n + 1) c), " ROWS TAIL;

static const char running_sql[] = INPUT
	"c AS MATERIALIZED (SELECT c.id FROM i CROSS JOIN LATERAL (SELECT r.task_id AS id FROM running r WHERE "
	"r.task_id < i.below AND " IN_QUEUE("r") "ORDER BY r.task_id DESC LIMIT i.n + 1) c), " ROWS TAIL;

static const char pending_sql[] = INPUT
	"c AS MATERIALIZED (SELECT c.id FROM i CROSS JOIN LATERAL (SELECT r.id FROM (SELECT task_id AS id, queue FROM ready "
	"UNION ALL SELECT task_id, queue FROM delayed) r WHERE r.id < i.below AND " IN_QUEUE("r")
	"ORDER BY r.id DESC LIMIT i.n + 1) c), " ROWS TAIL;

static const char badly_sql[] = INPUT
	"c AS MATERIALIZED (SELECT c.id FROM i CROSS JOIN LATERAL (SELECT e.task_id AS id FROM ended e "
	"CROSS JOIN LATERAL (SELECT t.queue FROM task t WHERE t.id = e.task_id OFFSET 0) t WHERE e.state <> 3 AND "
	"e.task_id < i.below AND i.states & (1 << e.state::int) <> 0 AND " IN_QUEUE("t")
	"ORDER BY e.task_id DESC LIMIT i.n + 1) c), " ROWS TAIL;

static uint32_t bit(enum store_state s) { return UINT32_C(1) << s; }

/* Which of the statements above. */
static int way(const struct store_list *o)
{
	if (o->states == bit(STORE_RUNNING))
		return 1;
	if (o->states == bit(STORE_PENDING))
		return 2;
	if (o->states && !(o->states & ~(bit(STORE_FAILED) | bit(STORE_CANCELLED))))
		return 3;
	return 0;
}

static bool build(struct pg_batch *b, struct pg_params *ps, int mine)
{
	static const uint8_t last[16] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
	struct store_list *o = container_of(b->ops[0], struct store_list, op);
	if (o->ret_n || way(o) != mine)
		return false;
	pg_int4(ps, 0, (int32_t)(o->states & 0xff));
	pg_text(ps, 1, o->queue);
	pg_uuid(ps, 2, o->after ? o->after_id.b : last);
	pg_int4(ps, 3, o->limit);
	pg_bool(ps, 4, o->full);
	pg_int8(ps, 5, o->max_bytes > 0 ? o->max_bytes : INT64_MAX);
	return true;
}

static bool build_any(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, 0); }
static bool build_running(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, 1); }
static bool build_pending(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, 2); }
static bool build_badly(struct pg_batch *b, struct pg_params *ps) { return build(b, ps, 3); }

/* After the view: the bytes of the rows above this one, and how many rows were found. */
static int read(struct pg_batch *b, const PGresult *r)
{
	struct store_list *o = container_of(b->ops[0], struct store_list, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r);
	o->ret_n = 0;
	int64_t found = n ? pg_get_int8(r, 0, PG_VIEW_COLUMNS + 1) : 0;
	if (n > o->limit)
		n = o->limit;
	o->ret_more = found > n;
	if (n <= 0)
		return 0;
	o->ret_tasks = store_mem_get(mem, (size_t)n * sizeof(*o->ret_tasks));
	for (int row = 0; row < n; row++) {
		int rc = pg_get_view(r, row, 0, &o->ret_tasks[row], mem);
		if (rc < 0)
			return rc;
		o->ret_n++;
		if (o->full)
			pg_get_view_attempt(r, row, 0, &o->ret_tasks[row], mem);
	}
	if (o->full)
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

#define COLUMNS "4tu4b8"
const struct pg_stmt pg_list_stmts[5] = {
	{any_sql, COLUMNS, build_any, read},
	{running_sql, COLUMNS, build_running, read},
	{pending_sql, COLUMNS, build_pending, read},
	{badly_sql, COLUMNS, build_badly, read},
	{attempts_sql, "4u", build_attempts, read_attempts},
};
