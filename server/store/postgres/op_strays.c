/* STRAYS: running rows with the master of each worker's newest session.  RUNS: which of some attempts have one. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char strays_sql[] =
	"SELECT r.task_id, r.attempt, r.session, r.lease_ns, r.exclusive, m.incarnation, m.beat, r.worker, w.master, "
	"(extract(epoch FROM w.detached_until - now()) * 1000000)::bigint, r.wish FROM "
	"(SELECT task_id, attempt, session, lease_ns, exclusive, worker, cancel_requested_at IS NOT NULL AS wish FROM running WHERE task_id > ($1::uuid[])[1] "
	"ORDER BY task_id LIMIT ($2::int4[])[1]) r LEFT JOIN worker w ON w.id = r.worker "
	"LEFT JOIN master m ON m.id = w.master ORDER BY r.task_id";

enum { TASK, ATTEMPT, SESSION, LEASE, EXCLUSIVE, INCARNATION, BEAT, WORKER, MASTER, DETACHED, WISH };

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_strays *o = container_of(b->ops[0], struct store_strays, op);
	pg_uuid(ps, 0, o->after.b);
	pg_int4(ps, 1, o->limit > 0 ? o->limit : 0);
	return true;
}

static const char *text_of(const PGresult *r, int row, int col, struct store_mem **mem)
{
	const char *text = pg_get_text(r, row, col);
	return store_mem_copy(mem, text, strlen(text));
}

static int read(struct pg_batch *b, const PGresult *r)
{
	struct store_strays *o = container_of(b->ops[0], struct store_strays, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int n = PQntuples(r);
	o->ret_n = (size_t)n;
	o->ret_rows = store_mem_get(mem, (o->ret_n + 1) * sizeof(*o->ret_rows));
	for (int row = 0; row < n; row++) {
		struct core_stray *s = &o->ret_rows[row];
		*s = (struct core_stray){
			.at.attempt = pg_get_int(r, row, ATTEMPT),
			.worker = text_of(r, row, WORKER, mem),
			.session = pg_get_int8(r, row, SESSION),
			.lease_ns = pg_get_int8(r, row, LEASE),
			.exclusive = pg_get_bool(r, row, EXCLUSIVE),
			.master = text_of(r, row, MASTER, mem),
			.incarnation = pg_get_int8(r, row, INCARNATION),
			.beat = pg_get_int8(r, row, BEAT),
			.cancel_wish = pg_get_bool(r, row, WISH),
			.detached_ns = max_i64(0, pg_get_int8(r, row, DETACHED)) * NS_PER_US,
		};
		pg_get_uuid(r, row, TASK, &s->at.task);
		s->own = strcmp(s->master, o->master) == 0;
	}
	return 0;
}

const struct pg_stmt pg_strays_stmts[1] = {{strays_sql, "u4", build, read}};

/* ---- RUNS ---- */

static const char runs_sql[] =
	"SELECT i.ord FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[]) AS i(ord, task_id, attempt, worker) WHERE "
	"EXISTS (SELECT FROM running r WHERE r.task_id = i.task_id AND r.attempt = i.attempt AND "
	"(r.worker = i.worker COLLATE \"C\") IS TRUE OFFSET 0)";

static bool build_runs(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_runs *o = container_of(b->ops[0], struct store_runs, op);
	for (size_t i = 0; i < o->n; i++) {
		pg_attempt(ps, i, &o->at[i].at);
		pg_text(ps, 3, o->at[i].worker);
	}
	return true;
}

static int read_runs(struct pg_batch *b, const PGresult *r)
{
	struct store_runs *o = container_of(b->ops[0], struct store_runs, op);
	o->ret_runs = store_mem_get((struct store_mem **)&o->ret_memory, o->n ? o->n : 1);
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t at = pg_get_int(r, row, 0);
		if (at < 0 || (size_t)at >= o->n)
			return -EPROTO;
		o->ret_runs[at] = true;
	}
	return 0;
}

const struct pg_stmt pg_runs_stmts[1] = {{runs_sql, "4u4t", build_runs, read_runs}};
