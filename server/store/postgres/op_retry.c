/* RETRY: a task that failed or was cancelled goes back to PENDING, its counts at 0.  What `ended` says of its last attempt
 * becomes a row of `attempt`; no ready row names an open worker, so that all attempts so far are closed.
 *
 * An exclusive one waits for the leases of attempts that nobody reported the end of: by `delayed`, as a retry's delay
 * does. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

/* What the statement says beside STORE_PENDING, of a row that it changed. */
enum { AGAIN = 9, IS_PENDING, IS_RUNNING, HAS_ENDED = 20 };

static const char retry_sql[] =
	"WITH i AS MATERIALIZED (SELECT i.ord, i.attempt AS named, t.* FROM unnest($1::int4[], $2::uuid[], $3::int4[]) "
	"AS i(ord, id, attempt) CROSS JOIN LATERAL (SELECT " PG_TASK_CORE_OF("t.") " FROM task t WHERE t.id = i.id OFFSET 0) t), "
	"l AS MATERIALIZED (SELECT i.*, e.attempt, e.state AS was, e.outcome, e.reported, e.dispatched_at, e.started_at, e.finished_at, e.exit_code, "
	"e.signal, e.log_end, e.log_dropped, e.worker, e.error, e.instance, e.session, coalesce(e.lease_ns, 0) AS lease_ns, e.devices, "
	"e.cause, e.oom_killed, 0 AS failures, 0 AS losses FROM i CROSS JOIN LATERAL (SELECT e.* FROM ended e WHERE "
	"e.task_id = i.task_id AND e.attempt = i.named AND e.state IN (4, 5) OFFSET 0 FOR UPDATE) e), "
	"d AS (DELETE FROM ended e USING l WHERE e.task_id = ANY (ARRAY(SELECT task_id FROM l)) AND e.task_id = l.task_id), "
	"h AS (INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_at, started_at, finished_at, "
	"exit_code, signal, log_end, log_dropped, worker, error, instance, session, devices, cause, oom_killed) SELECT task_id, attempt, "
	"outcome, reported, false, lease_ns, coalesce(dispatched_at, finished_at), started_at, finished_at, exit_code, signal, log_end, "
	"log_dropped, worker, error, instance, session, devices, cause, oom_killed FROM l WHERE worker IS NOT NULL), "
	/* lost (6) or given back (7) by a master's word alone */
	"x AS MATERIALIZED (SELECT l.*, CASE WHEN exclusive THEN greatest(CASE WHEN worker IS NOT NULL AND NOT reported AND "
	"outcome IN (6, 7) THEN finished_at + lease_ns / 1000 * interval '1 microsecond' END, (SELECT max(a.finished_at + "
	"a.lease_ns / 1000 * interval '1 microsecond') FROM attempt a WHERE a.task_id = l.task_id AND NOT a.reported AND a.outcome "
	"IN (6, 7))) END AS free_at FROM l), "
	"q AS (INSERT INTO ready (" PG_CORE ") SELECT " PG_CORE " FROM x WHERE coalesce(free_at <= now(), true)), "
	"w AS (INSERT INTO delayed (" PG_CORE ", due_at) SELECT " PG_CORE ", free_at FROM x WHERE free_at > now()) "
	PG_EVENT("SELECT task_id, attempt, was * 8 + 1 FROM x")
	"SELECT ord, 1, attempt, coalesce(greatest((extract(epoch FROM free_at - now()) * 1000000)::int8, 0), 0), " PG_CORE " FROM x "
	"UNION ALL SELECT i.ord, CASE WHEN e.state IN (4, 5) AND e.attempt = i.named THEN 9 WHEN e.state IS NOT NULL THEN 20 + e.state "
	"WHEN r.task_id IS NOT NULL THEN 11 WHEN p.task_id IS NOT NULL THEN 10 ELSE 9 END, coalesce(e.attempt, r.attempt, p.attempt), "
	"coalesce((extract(epoch FROM p.due_at - now()) * 1000000)::int8, 0), "
	"i.task_id, i.seq, i.neg_priority, coalesce(p.attempt, 0), coalesce(p.failures, 0), coalesce(p.losses, 0), "
	PG_ASKS_OF("i.") " FROM i "
	"LEFT JOIN LATERAL (SELECT e.state, e.attempt FROM ended e WHERE e.task_id = i.task_id OFFSET 0) e ON true "
	"LEFT JOIN LATERAL (SELECT r.task_id, r.attempt FROM running r WHERE r.task_id = i.task_id OFFSET 0) r ON true "
	"LEFT JOIN LATERAL (SELECT p.task_id, p.attempt, p.failures, p.losses, NULL::timestamptz AS due_at FROM ready p WHERE "
	"p.queue = i.queue AND p.neg_priority = i.neg_priority AND p.seq = i.seq UNION ALL SELECT d.task_id, d.attempt, d.failures, "
	"d.losses, d.due_at FROM delayed d WHERE d.task_id = i.task_id OFFSET 0) p ON true "
	"WHERE NOT EXISTS (SELECT FROM l WHERE l.ord = i.ord)";

static struct store_retry *op_at(struct pg_batch *b, size_t i) { return container_of(b->ops[i], struct store_retry, op); }

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, op_at(b, i)->id.b);
		pg_int4(ps, 2, op_at(b, i)->attempt);
	}
	return true;
}

static void pending(struct store_retry *o, const PGresult *r, int row)
{
	int64_t us = pg_get_int8(r, row, 3);
	o->ret_verdict = STORE_RETRY_DONE;
	o->ret_state = STORE_PENDING;
	o->ret_due_in_ns = us > 0 ? min_i64(us, INT64_MAX / NS_PER_US) * NS_PER_US : 0;
	pg_get_core(r, row, 4, &o->ret_task);
	free(o->ret_texts);
	o->ret_texts = store_texts(&o->ret_task);
}

static int read_verdict(struct store_retry *o, const PGresult *r, int row)
{
	/* Sent before and lost: a task that goes on from this attempt was put back by this very request, or is the same as if. */
	int code = pg_get_int(r, row, 1);
	o->ret_attempt = pg_get_int(r, row, 2);
	bool from_it = o->op.sent && (o->ret_attempt == o->attempt || (code == IS_RUNNING && o->ret_attempt == o->attempt + 1));
	switch (code) {
	case STORE_PENDING:
		pending(o, r, row);
		return 0;
	case AGAIN:
		pg_op_again(&o->op);
		return 0;
	case IS_PENDING:
		o->ret_verdict = STORE_RETRY_NOT_ENDED;
		o->ret_state = STORE_PENDING;
		if (from_it)
			pending(o, r, row);
		return 0;
	case IS_RUNNING:
		o->ret_verdict = from_it ? STORE_RETRY_DONE : STORE_RETRY_NOT_ENDED;
		o->ret_state = STORE_RUNNING;
		return 0;
	case HAS_ENDED + STORE_COMPLETED:
	case HAS_ENDED + STORE_FAILED:
	case HAS_ENDED + STORE_CANCELLED:
		o->ret_state = (enum store_state)(code - HAS_ENDED);
		o->ret_verdict = o->ret_state == STORE_COMPLETED ? STORE_RETRY_COMPLETED : STORE_RETRY_ANOTHER;
		return 0;
	default:
		return -EPROTO;
	}
}

static int read(struct pg_batch *b, const PGresult *r)
{
	for (size_t i = 0; i < b->n; i++)
		op_at(b, i)->ret_verdict = STORE_RETRY_NOT_FOUND;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		int rc = read_verdict(op_at(b, (size_t)ord), r, row);
		if (rc < 0)
			return rc;
	}
	return 0;
}

const struct pg_stmt pg_retry_stmts[1] = {{retry_sql, "4u4", build, read}};
