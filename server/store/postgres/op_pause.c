/* QUEUE_LIST: queues as people see them.  PAUSE: one that is not to be given out, stored.
 *
 * Names are found by going from one to the next in an index, and counting stops at a limit: a page costs what its queues
 * do, however many tasks wait in them. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"
#include "server/store/queues.h"

#define INPUT "i AS MATERIALIZED (SELECT ($1::text[])[1] AS name, ($2::int4[])[1] AS n), "
#define RUNNING                                                                                              \
	"x AS MATERIALIZED (SELECT r.queue FROM running r LIMIT " NUMBER_TEXT(STORE_QUEUE_RUNNING_MAX) " + 1), "     \
	"g AS MATERIALIZED (SELECT x.queue AS name, count(*) AS n FROM x GROUP BY x.queue) "
/* From one name to the next one above it. */
#define NAMES(name, table)                                                                                      \
	name " AS ((SELECT t.queue FROM " table " t WHERE t.queue > (SELECT i.name FROM i) ORDER BY t.queue LIMIT 1) UNION ALL " \
	"SELECT (SELECT t.queue FROM " table " t WHERE t.queue > " name ".queue ORDER BY t.queue LIMIT 1) FROM " name     \
	" WHERE " name ".queue IS NOT NULL), "
#define COUNTED(table) "(SELECT count(*) FROM (SELECT FROM " table " t WHERE t.queue = c.name LIMIT " NUMBER_TEXT(STORE_QUEUE_COUNT_MAX) " + 1) t)"
/* Of each priority the first is the oldest. */
#define OLDEST                                                                                               \
	"(WITH RECURSIVE p AS ((SELECT t.neg_priority, t.seq, t.task_id FROM ready t WHERE t.queue = c.name ORDER BY t.queue, " \
	"t.neg_priority, t.seq LIMIT 1) UNION ALL SELECT t.* FROM p CROSS JOIN LATERAL (SELECT t.neg_priority, t.seq, t.task_id FROM " \
	"ready t WHERE t.queue = c.name AND t.neg_priority > p.neg_priority ORDER BY t.queue, t.neg_priority, t.seq LIMIT 1) t) " \
	"SELECT t.created_at FROM (SELECT p.task_id FROM p ORDER BY p.seq LIMIT 1) p CROSS JOIN LATERAL (SELECT t.created_at FROM " \
	"task t WHERE t.id = p.task_id OFFSET 0) t)"
#define ROWS                                                                                                 \
	"SELECT c.name, q.paused_at, q.reason, " COUNTED("ready") ", " COUNTED("delayed") ", coalesce(g.n, 0), " OLDEST     \
	", (SELECT count(*) FROM x) FROM c LEFT JOIN queue q ON q.name = c.name LEFT JOIN g ON g.name = c.name ORDER BY c.name"

static const char all_sql[] =
	"WITH RECURSIVE " INPUT NAMES("a", "ready") NAMES("d", "delayed") RUNNING
	", c AS MATERIALIZED (SELECT DISTINCT n.name FROM i CROSS JOIN LATERAL ("
	"(SELECT a.queue AS name FROM a WHERE a.queue IS NOT NULL LIMIT i.n) UNION ALL "
	"(SELECT d.queue FROM d WHERE d.queue IS NOT NULL LIMIT i.n) UNION ALL "
	"SELECT g.name FROM g WHERE g.name > i.name UNION ALL "
	"(SELECT q.name FROM queue q WHERE q.paused_at IS NOT NULL AND q.name > i.name ORDER BY q.name LIMIT i.n)) n ORDER BY n.name LIMIT (SELECT n FROM i)) " ROWS;

static const char one_sql[] =
	"WITH RECURSIVE " INPUT RUNNING
	", c AS MATERIALIZED (SELECT i.name COLLATE \"C\" AS name FROM i WHERE EXISTS (SELECT FROM queue q WHERE q.name = i.name COLLATE \"C\" "
	"AND q.paused_at IS NOT NULL) OR EXISTS (SELECT FROM ready t WHERE t.queue = i.name COLLATE \"C\") OR EXISTS (SELECT FROM delayed t WHERE t.queue = i.name COLLATE \"C\") OR "
	"EXISTS (SELECT FROM g WHERE g.name = i.name COLLATE \"C\")) " ROWS;

enum { NAME, PAUSED, REASON, READY, DELAYED, RUN, OLD, ALL };

static struct store_queue_list *list_of(struct pg_batch *b) { return container_of(b->ops[0], struct store_queue_list, op); }

static bool build_all(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_queue_list *o = list_of(b);
	if (o->only)
		return false;
	pg_text(ps, 0, o->after ? o->after : "");
	pg_int4(ps, 1, o->limit + 1);
	return true;
}

static bool build_one(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_queue_list *o = list_of(b);
	if (!o->only)
		return false;
	pg_text(ps, 0, o->only);
	pg_int4(ps, 1, 1);
	return true;
}

static int64_t counted(const PGresult *r, int row, int col, bool *ret_more)
{
	int64_t n = pg_get_int8(r, row, col);
	*ret_more = n > STORE_QUEUE_COUNT_MAX;
	return min_i64(n, STORE_QUEUE_COUNT_MAX);
}

static const char *text_of(const PGresult *r, int row, int col, struct store_mem **mem)
{
	const char *text = pg_get_text(r, row, col);
	return store_mem_copy(mem, text, strlen(text));
}

static int read_list(struct pg_batch *b, const PGresult *r)
{
	struct store_queue_list *o = list_of(b);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r), limit = o->only ? 1 : o->limit;
	o->ret_more = n > limit;
	n = n > limit ? limit : n;
	o->ret_n = (size_t)n;
	o->ret_rows = pg_mem(mem, (o->ret_n + 1) * sizeof(*o->ret_rows));
	if (!o->ret_rows)
		return -ENOMEM;
	for (int row = 0; row < n; row++) {
		struct store_queue *q = &o->ret_rows[row];
		q->name = text_of(r, row, NAME, mem);
		q->paused = !pg_is_null(r, row, PAUSED);
		q->paused_wall_us = pg_get_wall_us(r, row, PAUSED);
		q->reason = text_of(r, row, REASON, mem);
		q->ready = counted(r, row, READY, &q->ready_more);
		q->delayed = counted(r, row, DELAYED, &q->delayed_more);
		q->running = pg_get_int8(r, row, RUN);
		q->running_more = pg_get_int8(r, row, ALL) > STORE_QUEUE_RUNNING_MAX;
		q->oldest_wall_us = pg_get_wall_us(r, row, OLD);
	}
	return 0;
}

const struct pg_stmt pg_queue_list_stmts[2] = {
	{all_sql, "t4", build_all, read_list},
	{one_sql, "t4", build_one, read_list},
};

/* What was resumed before goes with the next pause or resumption; what another one holds goes with the one after. */
#define GONE                                                                                                 \
	"gone AS (DELETE FROM queue d WHERE d.name IN (SELECT q.name FROM queue q CROSS JOIN i WHERE q.paused_at IS NULL AND q.name <> i.name " \
	"FOR UPDATE OF q SKIP LOCKED)) "
/* A second run finds what the first did, and the row is there: it answers the same. */
static const char on_sql[] =
	"WITH i AS MATERIALIZED (SELECT i.name COLLATE \"C\" AS name, i.reason, i.most FROM unnest($1::text[], $2::text[], $3::int4[]) "
	"AS i(name, reason, most)), " GONE
	"INSERT INTO queue (name, paused_at, reason) SELECT i.name, now(), i.reason FROM i WHERE EXISTS (SELECT FROM queue q WHERE "
	"q.name = i.name AND q.paused_at IS NOT NULL) OR (SELECT count(*) FROM queue q WHERE q.paused_at IS NOT NULL) < i.most "
	"ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(queue.paused_at, excluded.paused_at), reason = excluded.reason RETURNING 1";
static const char off_sql[] =
	"WITH i AS MATERIALIZED (SELECT i.name COLLATE \"C\" AS name FROM unnest($1::text[]) AS i(name)), " GONE
	"UPDATE queue q SET paused_at = NULL, reason = NULL FROM i WHERE q.name = i.name RETURNING 1";

static struct store_pause *pause_of(struct pg_batch *b) { return container_of(b->ops[0], struct store_pause, op); }

static bool build_on(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_pause *o = pause_of(b);
	if (!o->on)
		return false;
	pg_text(ps, 0, o->queue);
	pg_text(ps, 1, o->reason);
	pg_int4(ps, 2, o->max);
	return true;
}

static bool build_off(struct pg_batch *b, struct pg_params *ps)
{
	if (pause_of(b)->on)
		return false;
	pg_text(ps, 0, pause_of(b)->queue);
	return true;
}

static int read_pause(struct pg_batch *b, const PGresult *r)
{
	pause_of(b)->ret_done = PQntuples(r) > 0;
	return 0;
}

const struct pg_stmt pg_pause_stmts[2] = {
	{on_sql, "tt4", build_on, read_pause},
	{off_sql, "t", build_off, read_pause},
};
