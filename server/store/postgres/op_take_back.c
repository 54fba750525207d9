/* TAKE_BACK: RUNNING to PENDING, or to its end, where attempt and session still hold.  A lost or recalled
 * attempt stays open: its worker's name goes into the ready row. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char take_back_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::int8[], $5::int2[], $6::bool[], "
	"$7::int4[], $8::bool[], $9::text[]) AS i(ord, task_id, attempt, session, outcome, counted, lost_limit, opens, words)), "
	"l AS MATERIALIZED (SELECT i.ord, i.outcome, i.opens, i.counted, i.lost_limit, " PG_CORE_OF("r.")
	", r.worker, r.lease_ns, r.dispatched_at, r.started_at, r.cancel_requested_at, r.instance, r.devices, r.session, "
	"CASE WHEN r.cancel_requested_at IS NOT NULL THEN coalesce(r.cause, i.words) ELSE i.words END AS cause FROM i CROSS JOIN LATERAL (SELECT r.* "
	"FROM running r WHERE r.task_id = i.task_id AND r.attempt = i.attempt AND r.session = i.session OFFSET 0 FOR UPDATE) r), "
	"d AS (DELETE FROM running WHERE task_id = ANY (ARRAY(SELECT task_id FROM l))), "
	"x AS MATERIALIZED (SELECT l.*, losses + counted::int AS lost, CASE WHEN cancel_requested_at IS NOT NULL THEN 5 "
	"WHEN counted AND lost_limit > 0 AND losses + 1 >= lost_limit THEN 4 ELSE 1 END AS state FROM l), "
	"e AS (INSERT INTO ended (task_id, state, outcome, attempt, failures, losses, reported, dispatched_at, started_at, "
	"finished_at, cancel_requested_at, log_end, worker, instance, session, lease_ns, devices, cause) SELECT task_id, state, outcome, "
	"attempt, failures, lost, false, dispatched_at, started_at, now(), cancel_requested_at, 0, worker, instance, session, lease_ns, "
	"devices, cause FROM x WHERE state <> 1), "
	"h AS (INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_at, started_at, "
	"finished_at, log_end, worker, instance, session, devices, cause) SELECT task_id, attempt, outcome, false, counted, lease_ns, "
	"dispatched_at, started_at, now(), 0, worker, instance, session, devices, cause FROM x WHERE state = 1), "
	"q AS (INSERT INTO ready (" PG_CORE ", open_worker) SELECT " PG_CORE_WITH("", "failures", "lost") ", "
	"CASE WHEN opens THEN worker END FROM x WHERE state = 1) "
	PG_EVENT("SELECT task_id, attempt, 16 + state FROM x")
	"SELECT ord, state, " PG_CORE " FROM x "
	"UNION ALL SELECT i.ord, CASE WHEN EXISTS (SELECT FROM running r WHERE r.task_id = i.task_id AND "
	"r.attempt = i.attempt AND r.session = i.session OFFSET 0) THEN 9 WHEN p.task_id IS NOT NULL THEN 10 "
	"WHEN e.known THEN 11 ELSE 12 END, p.* FROM i "
	"LEFT JOIN LATERAL (SELECT true AS known FROM ended e WHERE e.task_id = i.task_id AND e.attempt = i.attempt AND "
	"NOT e.reported OFFSET 0) e ON true "
	"LEFT JOIN LATERAL (SELECT " PG_CORE_OF("r.") " FROM task t, ready r WHERE t.id = i.task_id AND r.queue = t.queue AND "
	"r.neg_priority = t.neg_priority AND r.seq = t.seq AND r.attempt = i.attempt OFFSET 0) p ON true "
	"WHERE NOT EXISTS (SELECT FROM l WHERE l.ord = i.ord)";

/* What the statement says beside the new state of a row that it changed. */
enum { AGAIN = 9, IS_PENDING, HAS_ENDED, NOT_OURS };

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_take_back *o = container_of(b->ops[i], struct store_take_back, op);
		bool lost = o->cause == CORE_CAUSE_WORKER_LOST || (o->cause == CORE_CAUSE_NOT_LISTED && o->counted);
		pg_attempt(ps, i, &o->at);
		pg_int8(ps, 3, o->session);
		pg_int2(ps, 4, lost ? STORE_WORKER_LOST : o->cause == CORE_CAUSE_REFUSED ? STORE_NOT_TAKEN : STORE_GIVEN_BACK);
		pg_bool(ps, 5, o->counted);
		pg_int4(ps, 6, o->lost_limit);
		pg_bool(ps, 7, o->cause == CORE_CAUSE_WORKER_LOST || o->cause == CORE_CAUSE_RECALLED);
		pg_text(ps, 8, o->words);
	}
	return true;
}

static void pending(struct store_take_back *o, const PGresult *r, int row)
{
	o->ret_verdict = CORE_TAKE_BACK_PENDING;
	pg_get_core(r, row, 2, &o->ret_task);
	free(o->ret_texts);
	o->ret_texts = store_texts(&o->ret_task);
}

static int read_verdict(struct store_take_back *o, const PGresult *r, int row)
{
	/* Sent before and lost: what is found was done by this very request, or is the same as if. */
	bool ours = o->op.sent > 0;
	o->ret_verdict = CORE_TAKE_BACK_FENCED;
	switch (pg_get_int(r, row, 1)) {
	case STORE_PENDING:
		pending(o, r, row);
		return 0;
	case STORE_FAILED:
	case STORE_CANCELLED:
		o->ret_verdict = CORE_TAKE_BACK_ENDED;
		return 0;
	case AGAIN:
		pg_op_again(&o->op);
		return 0;
	case IS_PENDING:
		if (ours)
			pending(o, r, row);
		return 0;
	case HAS_ENDED:
		if (ours)
			o->ret_verdict = CORE_TAKE_BACK_ENDED;
		return 0;
	case NOT_OURS:
		return 0;
	default:
		return -EPROTO;
	}
}

static int read(struct pg_batch *b, const PGresult *r)
{
	if ((size_t)PQntuples(r) != b->n)
		return -EPROTO;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		int rc = read_verdict(container_of(b->ops[ord], struct store_take_back, op), r, row);
		if (rc < 0)
			return rc;
	}
	return 0;
}

const struct pg_stmt pg_take_back_stmts[1] = {{take_back_sql, "4u482b4bt", build, read}};
