/* STRAYS: running rows with the master of each worker's newest session. */
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
