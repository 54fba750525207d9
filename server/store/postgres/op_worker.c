/* WORKERS: what the store knows of workers.  WORKER_GONE: the lease of one is over.
 * DETACHED: one leaves its programs running.  DRAIN: an operator's wish. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"
#include "server/store/workers.h"

#define COLUMNS "w.id, w.instance, w.session, w.opened_at, w.heard_at, w.master, " \
	"(extract(epoch FROM clock_timestamp() - m.beat_at) * 1000000)::bigint, w.drain_mode, w.drain_within_ns, w.drain_reason, " \
	"(extract(epoch FROM w.detached_until - clock_timestamp()) * 1000000)::bigint"

/* One row more than asked for tells that there are more; the last column is how many were found. */
static const char all_sql[] =
	"WITH i AS MATERIALIZED (SELECT ($1::text[])[1] AS id, ($2::text[])[1] AS above, ($3::int4[])[1] AS n, "
	"($4::int8[])[1] AS bytes), "
	"c AS MATERIALIZED (SELECT w.*, sum(coalesce(octet_length(w.info), 0)) OVER (ORDER BY w.id ROWS BETWEEN UNBOUNDED "
	"PRECEDING AND 1 PRECEDING) AS before FROM (SELECT w.* FROM worker w CROSS JOIN i WHERE "
	"w.id > i.above COLLATE \"C\" AND (i.id IS NULL OR w.id = i.id COLLATE \"C\") ORDER BY w.id LIMIT (SELECT n FROM i) + 1) w) "
	"SELECT " COLUMNS ", w.info, (SELECT count(*) FROM c) FROM c w CROSS JOIN i LEFT JOIN master m ON m.id = w.master "
	"WHERE coalesce(w.before, 0) < i.bytes ORDER BY w.id";

static const char drained_sql[] =
	"WITH c AS MATERIALIZED (SELECT w.* FROM worker w WHERE w.drain_mode IS NOT NULL AND w.id > ($1::text[])[1] COLLATE \"C\" "
	"ORDER BY w.id LIMIT ($2::int4[])[1] + 1) "
	"SELECT " COLUMNS ", NULL::bytea, (SELECT count(*) FROM c) FROM c w LEFT JOIN master m ON m.id = w.master ORDER BY w.id";

enum { ID, INSTANCE, SESSION, OPENED, HEARD, MASTER, AGE, DRAIN, DETACHED = DRAIN + 3, INFO, FOUND };

static struct store_workers *workers_of(struct pg_batch *b) { return container_of(b->ops[0], struct store_workers, op); }

static bool build_all(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_workers *o = workers_of(b);
	if (o->drained)
		return false;
	pg_text(ps, 0, o->only);
	pg_text(ps, 1, o->after ? o->after : "");
	pg_int4(ps, 2, o->limit);
	pg_int8(ps, 3, o->max_bytes > 0 ? o->max_bytes : INT64_MAX);
	return true;
}

static bool build_drained(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_workers *o = workers_of(b);
	if (!o->drained)
		return false;
	pg_text(ps, 0, o->after ? o->after : "");
	pg_int4(ps, 1, o->limit);
	return true;
}

static const char *text_of(const PGresult *r, int row, int col, struct store_mem **mem)
{
	const char *text = pg_get_text(r, row, col);
	return store_mem_copy(mem, text, strlen(text));
}

static int read_workers(struct pg_batch *b, const PGresult *r)
{
	struct store_workers *o = workers_of(b);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r);
	int64_t found = n ? pg_get_int8(r, 0, FOUND) : 0;
	if (n > o->limit)
		n = o->limit;
	o->ret_more = found > n;
	o->ret_n = (size_t)n;
	o->ret_rows = pg_mem(mem, (o->ret_n + 1) * sizeof(*o->ret_rows));
	if (!o->ret_rows)
		return -ENOMEM;
	for (int row = 0; row < n; row++) {
		struct store_worker *w = &o->ret_rows[row];
		struct uuid instance;
		pg_get_uuid(r, row, INSTANCE, &instance);
		memcpy(w->instance, instance.b, sizeof(w->instance));
		w->id = text_of(r, row, ID, mem);
		w->session = pg_get_int8(r, row, SESSION);
		w->opened_wall_us = pg_get_wall_us(r, row, OPENED);
		w->heard_wall_us = pg_get_wall_us(r, row, HEARD);
		w->master = text_of(r, row, MASTER, mem);
		w->beat_age_us = pg_is_null(r, row, AGE) ? INT64_MAX : max_i64(0, pg_get_int8(r, row, AGE));
		w->detached_us = pg_is_null(r, row, DETACHED) ? 0 : max_i64(0, pg_get_int8(r, row, DETACHED));
		w->info = pg_get_bytes(r, row, INFO, mem);
		pg_get_drain(r, row, DRAIN, mem, &w->drain);
	}
	return 0;
}

const struct pg_stmt pg_workers_stmts[2] = {
	{all_sql, "tt48", build_all, read_workers},
	{drained_sql, "t4", build_drained, read_workers},
};

static const char gone_sql[] =
	"UPDATE worker w SET heard_at = now() - i.ago_us * interval '1 microsecond' FROM "
	"unnest($1::text[], $2::int8[], $3::int8[]) AS i(id, session, ago_us) WHERE w.id = i.id COLLATE \"C\" AND "
	"w.session = i.session";

static bool build_gone(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct store_worker_gone *o = container_of(b->ops[i], struct store_worker_gone, op);
		pg_text(ps, 0, o->worker);
		pg_int8(ps, 1, o->session);
		pg_int8(ps, 2, o->heard_ago_ns / NS_PER_US);
	}
	return true;
}

static int read_nothing(struct pg_batch *b, const PGresult *r) { return 0; }

const struct pg_stmt pg_worker_gone_stmts[1] = {{gone_sql, "t88", build_gone, read_nothing}};

static const char detached_sql[] =
	"UPDATE worker w SET detached_until = CASE WHEN i.us > 0 THEN now() + i.us * interval '1 microsecond' END FROM "
	"unnest($1::text[], $2::int8[], $3::int8[]) AS i(id, session, us) WHERE w.id = i.id COLLATE \"C\" AND w.session = i.session";

static bool build_detached(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct store_detached *o = container_of(b->ops[i], struct store_detached, op);
		pg_text(ps, 0, o->worker);
		pg_int8(ps, 1, o->session);
		pg_int8(ps, 2, o->within_ns / NS_PER_US);
	}
	return true;
}

const struct pg_stmt pg_detached_stmts[1] = {{detached_sql, "t88", build_detached, read_nothing}};

static const char drain_sql[] =
	"UPDATE worker w SET drain_mode = i.mode, drain_within_ns = i.within_ns, drain_reason = i.reason FROM "
	"unnest($1::int4[], $2::text[], $3::int2[], $4::int8[], $5::text[]) AS i(ord, id, mode, within_ns, reason) "
	"WHERE w.id = i.id COLLATE \"C\" RETURNING i.ord";

static bool build_drain(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct store_drain *o = container_of(b->ops[i], struct store_drain, op);
		bool on = o->wish.mode != 0;
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, o->worker);
		if (on)
			pg_int2(ps, 2, (int16_t)o->wish.mode);
		else
			pg_null(ps, 2);
		if (on && o->wish.within_ns >= 0)
			pg_int8(ps, 3, o->wish.within_ns);
		else
			pg_null(ps, 3);
		pg_text(ps, 4, on ? o->wish.reason : NULL);
	}
	return true;
}

static int read_drain(struct pg_batch *b, const PGresult *r)
{
	for (size_t i = 0; i < b->n; i++)
		container_of(b->ops[i], struct store_drain, op)->ret_found = false;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		container_of(b->ops[ord], struct store_drain, op)->ret_found = true;
	}
	return 0;
}

const struct pg_stmt pg_drain_stmts[1] = {{drain_sql, "4t28t", build_drain, read_drain}};
