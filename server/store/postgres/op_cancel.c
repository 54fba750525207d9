/* CANCEL: PENDING ends as CANCELLED; RUNNING gets the wish; what has ended stays.  STARTED: when the program began. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char cancel_sql[] =
	"WITH i AS MATERIALIZED (SELECT i.ord, i.task_id, i.words, t.queue, t.neg_priority, t.seq FROM unnest($1::int4[], $2::uuid[], $3::text[]) "
	"AS i(ord, task_id, words) CROSS JOIN LATERAL (SELECT t.queue, t.neg_priority, t.seq FROM task t WHERE t.id = i.task_id "
	"OFFSET 0) t), "
	"p AS MATERIALIZED (SELECT i.ord, i.words, r.* FROM i CROSS JOIN LATERAL (SELECT r.task_id, r.attempt, r.failures, r.losses, "
	"r.ctid AS at FROM ready r WHERE r.queue = i.queue AND r.neg_priority = i.neg_priority AND r.seq = i.seq OFFSET 0 "
	"FOR UPDATE) r), "
	"pd AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM p))), "
	"w AS MATERIALIZED (SELECT i.ord, i.words, r.* FROM i CROSS JOIN LATERAL (SELECT r.task_id, r.attempt, r.failures, r.losses, "
	"r.ctid AS at FROM delayed r WHERE r.task_id = i.task_id OFFSET 0 FOR UPDATE) r), "
	"wd AS (DELETE FROM delayed WHERE ctid = ANY (ARRAY(SELECT at FROM w))), "
	"e AS (INSERT INTO ended (task_id, state, outcome, attempt, failures, losses, reported, finished_at, "
	"cancel_requested_at, log_end, cause) SELECT task_id, 5, 0, attempt, failures, losses, false, now(), now(), 0, words FROM "
	"(SELECT * FROM p UNION ALL SELECT * FROM w) x), "
	"g AS (UPDATE running r SET cancel_requested_at = coalesce(r.cancel_requested_at, now()), "
	"cause = CASE WHEN r.cancel_requested_at IS NULL THEN i.words ELSE r.cause END FROM i WHERE r.task_id = ANY "
	"($2::uuid[]) AND r.task_id = i.task_id RETURNING r.task_id, r.attempt, r.cancel_requested_at = now() AS fresh) "
	PG_EVENT("SELECT task_id, attempt, 13 FROM p UNION ALL SELECT task_id, attempt, 13 FROM w UNION ALL "
		 "SELECT task_id, attempt, 18 FROM g WHERE fresh")
	"SELECT i.ord, CASE WHEN p.ord IS NOT NULL OR w.ord IS NOT NULL THEN 1 WHEN g.task_id IS NOT NULL THEN 2 "
	"WHEN z.state IS NOT NULL THEN 3 ELSE 9 END, coalesce(g.attempt, 0), coalesce(z.state, 0) "
	"FROM i LEFT JOIN p ON p.ord = i.ord LEFT JOIN w ON w.ord = i.ord LEFT JOIN g ON g.task_id = i.task_id "
	"LEFT JOIN LATERAL (SELECT z.state FROM ended z WHERE z.task_id = i.task_id OFFSET 0) z ON true";

static bool build_cancel(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, container_of(b->ops[i], struct store_cancel, op)->id.b);
		pg_text(ps, 2, container_of(b->ops[i], struct store_cancel, op)->words);
	}
	return true;
}

static int read_cancel(struct pg_batch *b, const PGresult *r)
{
	for (size_t i = 0; i < b->n; i++)
		container_of(b->ops[i], struct store_cancel, op)->ret_verdict = STORE_CANCEL_NOT_FOUND;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		struct store_cancel *o = container_of(b->ops[ord], struct store_cancel, op);
		switch (pg_get_int(r, row, 1)) {
		case 1:
			o->ret_verdict = STORE_CANCEL_DONE;
			break;
		case 2:
			o->ret_verdict = STORE_CANCEL_WISH;
			o->ret_at = (struct core_attempt){o->id, pg_get_int(r, row, 2)};
			break;
		case 3:
			/* Sent before and lost: then it was this very request that ended it. */
			o->ret_verdict = o->op.sent && pg_get_int(r, row, 3) == STORE_CANCELLED ? STORE_CANCEL_DONE
											      : STORE_CANCEL_TERMINAL;
			break;
		default:
			pg_op_again(&o->op);
		}
	}
	return 0;
}

const struct pg_stmt pg_cancel_stmts[1] = {{cancel_sql, "4ut", build_cancel, read_cancel}};

static const char started_sql[] =
	"WITH u AS (UPDATE running r SET started_at = i.began, devices = i.devices FROM "
	"unnest($1::uuid[], $2::int4[], $3::text[], $4::timestamptz[], $5::text[]) AS i(task_id, attempt, worker, began, devices) WHERE r.task_id = ANY ($1::uuid[]) AND r.task_id = i.task_id AND "
	"r.attempt = i.attempt AND (r.worker = i.worker COLLATE \"C\") IS TRUE AND r.started_at IS DISTINCT FROM i.began "
	"RETURNING r.task_id, r.attempt) " PG_EVENT("SELECT task_id, attempt, 82 FROM u") "SELECT";

static bool build_started(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_started *o = container_of(b->ops[i], struct store_started, op);
		pg_uuid(ps, 0, o->at.task.b);
		pg_int4(ps, 1, o->at.attempt);
		pg_text(ps, 2, o->worker);
		pg_time(ps, 3, o->started_wall_us);
		pg_text(ps, 4, o->devices);
	}
	return true;
}

static int read_started(struct pg_batch *b, const PGresult *r) { return 0; }

const struct pg_stmt pg_started_stmts[1] = {{started_sql, "u4twt", build_started, read_started}};
