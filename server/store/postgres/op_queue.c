/* FILL, QUEUES, DUE, EXPIRE: what scheduling reads, delayed rows whose time has come, and rows that nobody took in time.
 * PARTITIONS: the store's own. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char fill_sql[] =
	"SELECT i.ord, r.* FROM unnest($1::int4[], $2::text[], $3::int4[], $4::int8[], $5::int4[]) "
	"AS i(ord, queue, neg_priority, seq, n) CROSS JOIN LATERAL (SELECT " PG_CORE_OF("r.") " FROM ready r WHERE "
	"r.queue = i.queue COLLATE \"C\" AND (r.neg_priority, r.seq) > (i.neg_priority, i.seq) "
	"ORDER BY r.queue, r.neg_priority, r.seq LIMIT i.n) r";

static struct store_fill *fill_at(struct pg_batch *b, size_t i) { return container_of(b->ops[i], struct store_fill, op); }

static bool build_fill(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_fill *o = fill_at(b, i);
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, o->queue);
		pg_int4(ps, 2, o->from_start ? INT32_MIN : -o->after_priority);
		pg_int8(ps, 3, o->from_start ? INT64_MIN : o->after_seq);
		pg_int4(ps, 4, o->limit);
	}
	return true;
}

static int read_fill(struct pg_batch *b, const PGresult *r)
{
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < b->n; i++) {
		struct store_fill *o = fill_at(b, i);
		int first = row;
		while (row < n && pg_get_int(r, row, 0) == (int32_t)i)
			row++;
		free(o->ret_rows);
		o->ret_n = (size_t)(row - first);
		struct store_mem **mem = (struct store_mem **)&o->ret_memory;
		o->ret_rows = o->ret_n ? xcalloc(o->ret_n, sizeof(*o->ret_rows)) : NULL;
		o->ret_exhausted = row - first < o->limit;
		for (size_t j = 0; j < o->ret_n; j++) {
			struct core_task *t = &o->ret_rows[j];
			pg_get_core(r, first + (int)j, 1, t);
			if (t->handler || t->custom)
				store_mem_texts(mem, t);
			t->queue = o->queue;
		}
	}
	return row == n ? 0 : -EPROTO;
}

const struct pg_stmt pg_fill_stmts[1] = {{fill_sql, "4t484", build_fill, read_fill}};

/* From one queue's name to the next one's in the index: reads as many rows as there are queues. */
static const char queues_sql[] =
	"WITH RECURSIVE q AS ((SELECT queue FROM ready ORDER BY queue LIMIT 1) UNION ALL "
	"SELECT (SELECT r.queue FROM ready r WHERE r.queue > q.queue ORDER BY r.queue LIMIT 1) FROM q WHERE q.queue IS NOT NULL) "
	"SELECT queue, NULL FROM (SELECT queue FROM q WHERE queue IS NOT NULL LIMIT 100000) q UNION ALL "
	"SELECT name, coalesce(reason, '') FROM queue WHERE paused_at IS NOT NULL";

static bool build_nothing(struct pg_batch *b, struct pg_params *ps) { return true; }

static int read_queues(struct pg_batch *b, const PGresult *r)
{
	struct store_queues *o = container_of(b->ops[0], struct store_queues, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	size_t all = (size_t)PQntuples(r), n = 0, text = 0;
	while (n < all && pg_is_null(r, (int)n, 1))
		n++;
	o->ret_n_paused = all - n;
	o->ret_paused = store_mem_get(mem, (all - n + 1) * sizeof(*o->ret_paused));
	for (size_t i = n; i < all; i++)
		o->ret_paused[i - n] = (struct core_paused){
			store_mem_copy(mem, PQgetvalue(r, (int)i, 0), (size_t)PQgetlength(r, (int)i, 0)),
			store_mem_copy(mem, PQgetvalue(r, (int)i, 1), (size_t)PQgetlength(r, (int)i, 1)),
		};
	for (size_t i = 0; i < n; i++)
		text += (size_t)PQgetlength(r, (int)i, 0) + 1;
	free(o->ret_names);
	o->ret_names = xcalloc(1, n * sizeof(char *) + text + 1);
	o->ret_n = n;
	char *at = (char *)(o->ret_names + n);
	for (size_t i = 0; i < n; i++) {
		size_t len = (size_t)PQgetlength(r, (int)i, 0);
		memcpy(at, pg_get_text(r, (int)i, 0), len);
		o->ret_names[i] = at;
		at += len + 1;
	}
	return 0;
}

const struct pg_stmt pg_queues_stmts[1] = {{queues_sql, "", build_nothing, read_queues}};

/* The first row tells when the next one is due; the others are those that are ready now. */
static const char due_sql[] =
	"WITH l AS MATERIALIZED (SELECT " PG_CORE ", expires_at, ctid AS at FROM delayed WHERE due_at <= now() ORDER BY due_at "
	"LIMIT ($1::int4[])[1] FOR UPDATE SKIP LOCKED), "
	"d AS (DELETE FROM delayed WHERE ctid = ANY (ARRAY(SELECT at FROM l))), "
	"q AS (INSERT INTO ready (" PG_CORE ", expires_at) SELECT " PG_CORE ", expires_at FROM l), "
	"n AS (SELECT CASE WHEN (SELECT count(*) FROM l) >= ($1::int4[])[1] THEN 0 ELSE coalesce((SELECT "
	"(extract(epoch FROM due_at - now()) * 1000000)::bigint FROM delayed WHERE due_at > now() ORDER BY due_at LIMIT 1), -1) "
	"END AS us) "
	"SELECT us, " PG_CORE_NONE " FROM n "
	"UNION ALL SELECT 0, " PG_CORE " FROM l";

static bool build_due(struct pg_batch *b, struct pg_params *ps)
{
	pg_int4(ps, 0, container_of(b->ops[0], struct store_due, op)->limit);
	return true;
}

static int read_next(const PGresult *r, int64_t *ret_ns)
{
	if (PQntuples(r) < 1 || !pg_is_null(r, 0, 1))
		return -EPROTO;
	int64_t us = pg_get_int8(r, 0, 0);
	*ret_ns = us < 0 ? -1 : min_i64(us, INT64_MAX / NS_PER_US) * NS_PER_US;
	return 0;
}

static int read_due(struct pg_batch *b, const PGresult *r)
{
	struct store_due *o = container_of(b->ops[0], struct store_due, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r);
	if (read_next(r, &o->ret_next_in_ns))
		return -EPROTO;
	o->ret_n = (size_t)n - 1;
	o->ret_rows = o->ret_n ? store_mem_get(mem, o->ret_n * sizeof(*o->ret_rows)) : NULL;
	for (int row = 1; row < n; row++) {
		struct core_task *t = &o->ret_rows[row - 1];
		pg_get_core(r, row, 1, t);
		store_mem_texts(mem, t);
	}
	return 0;
}

const struct pg_stmt pg_due_stmts[1] = {{due_sql, "4", build_due, read_due}};

/* As DUE: the first row tells when the next one expires. */
#define EXPIRED(table)                                                                                          \
	"(SELECT task_id, attempt, failures, losses, ctid AS at FROM " table " WHERE expires_at <= now() ORDER BY expires_at " \
	"LIMIT ($1::int4[])[1] FOR UPDATE SKIP LOCKED)"
#define NEXT(table) "(SELECT expires_at FROM " table " WHERE expires_at > now() ORDER BY expires_at LIMIT 1)"

static const char expire_sql[] =
	"WITH r AS MATERIALIZED " EXPIRED("ready") ", d AS MATERIALIZED " EXPIRED("delayed") ", "
	"rd AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM r))), "
	"dd AS (DELETE FROM delayed WHERE ctid = ANY (ARRAY(SELECT at FROM d))), "
	"x AS MATERIALIZED (SELECT * FROM r UNION ALL SELECT * FROM d), "
	"e AS (INSERT INTO ended (task_id, state, outcome, attempt, failures, losses, reported, finished_at, log_end, error) "
	"SELECT x.task_id, 4, 9, x.attempt, x.failures, x.losses, false, now(), 0, convert_to('" STORE_EXPIRED_TEXT "' || "
	"trim_scale(round(extract(epoch FROM t.expires_at - t.created_at)::numeric, 3))::text || ' s', 'UTF8') FROM x "
	"CROSS JOIN LATERAL (SELECT t.created_at, t.expires_at FROM task t WHERE t.id = x.task_id OFFSET 0) t)"
	PG_EVENT("SELECT task_id, attempt, 12 FROM x")
	", n AS (SELECT CASE WHEN (SELECT count(*) FROM x) >= ($1::int4[])[1] THEN 0 ELSE coalesce((SELECT "
	"(extract(epoch FROM least(" NEXT("ready") ", " NEXT("delayed") ") - now()) * 1000000)::bigint), -1) END AS us) "
	"SELECT us, NULL::uuid FROM n UNION ALL SELECT 0, task_id FROM x";

static bool build_expire(struct pg_batch *b, struct pg_params *ps)
{
	pg_int4(ps, 0, container_of(b->ops[0], struct store_expire, op)->limit);
	return true;
}

static int read_expire(struct pg_batch *b, const PGresult *r)
{
	struct store_expire *o = container_of(b->ops[0], struct store_expire, op);
	int n = PQntuples(r);
	if (read_next(r, &o->ret_next_in_ns))
		return -EPROTO;
	o->ret_n = (size_t)n - 1;
	o->ret_ids = o->ret_n ? store_mem_get((struct store_mem **)&o->ret_memory, o->ret_n * sizeof(*o->ret_ids)) : NULL;
	for (int row = 1; row < n; row++)
		pg_get_uuid(r, row, 1, &o->ret_ids[row - 1]);
	return 0;
}

const struct pg_stmt pg_expire_stmts[1] = {{expire_sql, "4", build_expire, read_expire}};

static const char partitions_sql[] = "SELECT make_partitions(2)";

static int read_nothing(struct pg_batch *b, const PGresult *r) { return 0; }

static const char drop_logs_sql[] = "SELECT drop_logs((($1::int8[])[1] / 1000) * interval '1 microsecond')";

static bool build_drop_logs(struct pg_batch *b, struct pg_params *ps)
{
	if (b->store->cfg.log_retention_ns <= 0)
		return false;
	pg_int8(ps, 0, b->store->cfg.log_retention_ns);
	return true;
}

const struct pg_stmt pg_partitions_stmts[2] = {
	{partitions_sql, "", build_nothing, read_nothing},
	{drop_logs_sql, "8", build_drop_logs, read_nothing},
};
