/* GET: a task with its attempts, from one snapshot: a row per former attempt, the wide columns on the first. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_view.h"

static const char get_sql[] =
	"SELECT i.ord, " PG_VIEW("coalesce(a.n, 1) = 1", "CASE WHEN i.basic THEN coalesce(t.list_spec, t.spec) ELSE t.spec END", "CASE WHEN NOT i.basic THEN e.result END")
	", " PG_FORMER_COLUMNS ", a.attempt = p.attempt AND p.open_worker IS NOT NULL "
	"FROM unnest($1::int4[], $2::uuid[], $3::bool[]) AS i(ord, id, basic) CROSS JOIN LATERAL "
	"(SELECT t.* FROM task t WHERE t.id = i.id OFFSET 0) t " PG_VIEW_JOINS PG_FORMER("t.id") "ORDER BY i.ord, a.attempt";

static struct store_get *get_at(struct pg_batch *b, size_t i) { return container_of(b->ops[i], struct store_get, op); }

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, get_at(b, i)->id.b);
		pg_bool(ps, 2, get_at(b, i)->basic);
	}
	return true;
}

static int read_one(struct store_get *o, const PGresult *r, int first, int n)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	o->ret_found = n > 0;
	if (!n)
		return 0;
	struct store_task *t = &o->ret_task;
	int rc = pg_get_view(r, first, 1, t, mem);
	if (rc < 0)
		return rc;
	pg_get_view_attempt(r, first, 1, t, mem);
	pg_get_attempts(r, first, n, 1 + PG_VIEW_COLUMNS, t, mem);
	return 0;
}

static int read(struct pg_batch *b, const PGresult *r)
{
	int row = 0, n = PQntuples(r);
	for (size_t i = 0; i < b->n; i++) {
		int first = row;
		while (row < n && pg_get_int(r, row, 0) == (int32_t)i)
			row++;
		int rc = read_one(get_at(b, i), r, first, row - first);
		if (rc < 0)
			return rc;
	}
	return row == n ? 0 : -EPROTO;
}

const struct pg_stmt pg_get_stmts[1] = {{get_sql, "4ub", build, read}};
