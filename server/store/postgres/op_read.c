/* GET: a task with its attempts, from one snapshot: a row per former attempt, the wide columns on the first. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_view.h"

#define ATTEMPTS_MAX "200" /* the newest */

static const char get_sql[] =
	"SELECT i.ord, " PG_VIEW("coalesce(a.n, 1) = 1", "t.spec", "e.result")
	", a.attempt, a.worker, a.outcome, a.dispatched_at, a.started_at, a.finished_at, a.exit_code, a.signal, a.log_end, a.error, "
	"a.attempt = p.attempt AND p.open_worker IS NOT NULL "
	"FROM unnest($1::int4[], $2::uuid[]) AS i(ord, id) CROSS JOIN LATERAL "
	"(SELECT t.* FROM task t WHERE t.id = i.id OFFSET 0) t " PG_VIEW_JOINS
	"LEFT JOIN LATERAL (SELECT a.*, row_number() OVER (ORDER BY a.attempt) AS n FROM (SELECT a.* FROM attempt a WHERE "
	"a.task_id = t.id ORDER BY a.attempt DESC LIMIT " ATTEMPTS_MAX ") a) a ON true ORDER BY i.ord, a.attempt";

enum { ATTEMPT = 1 + PG_VIEW_COLUMNS, WORKER, OUTCOME, DISPATCHED, STARTED, FINISHED, EXIT_CODE, SIGNAL, LOG_END, ERROR, OPEN };

static struct store_get *get_at(struct pg_batch *b, size_t i) { return container_of(b->ops[i], struct store_get, op); }

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, get_at(b, i)->id.b);
	}
	return true;
}

static struct store_attempt_row former(const PGresult *r, int row, struct store_mem **mem)
{
	struct store_bytes worker = pg_get_bytes(r, row, WORKER, mem);
	return (struct store_attempt_row){
		.attempt = pg_get_int(r, row, ATTEMPT),
		.worker = (char *)(uintptr_t)worker.data,
		.outcome = (enum store_outcome)pg_get_int(r, row, OUTCOME),
		.dispatched_wall_us = pg_get_wall_us(r, row, DISPATCHED),
		.started_wall_us = pg_get_wall_us(r, row, STARTED),
		.finished_wall_us = pg_get_wall_us(r, row, FINISHED),
		.has_exit_code = !pg_is_null(r, row, EXIT_CODE),
		.has_signal = !pg_is_null(r, row, SIGNAL),
		.exit_code = pg_get_int(r, row, EXIT_CODE),
		.signal = pg_get_int(r, row, SIGNAL),
		.error = pg_get_bytes(r, row, ERROR, mem),
		.log_end = pg_get_int8(r, row, LOG_END),
		.open = !pg_is_null(r, row, OPEN) && pg_get_bool(r, row, OPEN),
	};
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
	t->attempts = store_mem_get(mem, ((size_t)n + 1) * sizeof(*t->attempts));
	for (int row = first; row < first + n; row++)
		if (!pg_is_null(r, row, ATTEMPT))
			t->attempts[t->n_attempts++] = former(r, row, mem);
	if (pg_get_view_attempt(r, first, 1, t, &t->attempts[t->n_attempts]))
		t->n_attempts++;
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

const struct pg_stmt pg_get_stmts[1] = {{get_sql, "4u", build, read}};
