/* RECORD: the end of an attempt, by its worker's word.  Three ways in one statement: the running row is
 * the attempt's; or the attempt was taken back, is open and ended well; or what is known of it already says
 * DUPLICATE or FENCED.
 *
 * Where the snapshot shows a row that the lock then doesn't find, it has just been moved by another
 * transaction: asked again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

#define COLUMNS "4u4t244yy8ww88ttb48"
#define INPUT                                                                                                   \
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::int2[], "     \
	"$6::int4[], $7::int4[], $8::bytea[], $9::bytea[], $10::int8[], $11::timestamptz[], $12::timestamptz[], "       \
	"$13::int8[], $14::int8[], $15::text[], $16::text[], $17::bool[], $18::int4[], $19::int8[]) AS i(ord, task_id, attempt, "    \
	"worker, outcome, exit_code, signal, error, result, too_large, began, finished, log_end, retry_ns, words, "     \
	"devices, oom, lost_limit, log_dropped)), "
#define SAID                                                                                                    \
	"i.ord, i.worker, i.outcome, i.exit_code, i.signal, i.error, i.result, i.too_large, i.began, "                  \
	"coalesce(i.finished, now()) AS finished, i.log_end, i.retry_ns, i.oom, i.lost_limit, i.log_dropped, "
/* What the policy asks for at least; the power stays far below what a float8 can hold. */
#define ASKED                                                                                                   \
	"floor(least(CASE WHEN backoff_max_ns > 0 THEN backoff_max_ns ELSE 1000000000000000000 END::float8, "           \
	"coalesce(backoff_initial_ns, 0) * power(least(greatest(coalesce(backoff_multiplier, 1), 1), 1000), least(failures, 64))))::int8"

enum { VERDICT_AGAIN = 9 };

static const char record_sql[] = INPUT
	"l AS (DELETE FROM running r USING i WHERE r.task_id = ANY ($2::uuid[]) AND r.task_id = i.task_id AND "
	"r.attempt = i.attempt AND (r.worker = i.worker COLLATE \"C\") IS TRUE RETURNING " SAID PG_CORE_OF("r.")
	", r.lease_ns, r.dispatched_at, r.started_at, r.cancel_requested_at, r.instance, r.session, "
	"coalesce(i.devices, r.devices) AS devices, "
	"CASE WHEN i.outcome IN (4, 6) AND r.cancel_requested_at IS NOT NULL THEN coalesce(r.cause, i.words) ELSE i.words END AS cause), "
	"w AS MATERIALIZED (SELECT l.*, (outcome IN (2, 3, 5))::int AS failed, (outcome = 6)::int AS lost FROM l), "
	"x AS MATERIALIZED (SELECT w.*, CASE WHEN outcome = 1 THEN 3 "
	"WHEN cancel_requested_at IS NOT NULL THEN CASE WHEN failed = 1 THEN 4 ELSE 5 END "
	"WHEN failed = 1 THEN CASE WHEN failures + 1 < coalesce(max_attempts, 1) THEN 1 ELSE 4 END "
	"WHEN lost = 1 AND lost_limit > 0 AND losses + 1 >= lost_limit THEN 4 ELSE 1 END AS state, "
	"CASE WHEN failed = 1 THEN greatest(retry_ns, " ASKED ") ELSE 0 END AS due_ns FROM w), "
	/* the open ones */
	"rest AS MATERIALIZED (SELECT * FROM i WHERE NOT EXISTS (SELECT FROM l WHERE l.ord = i.ord)), "
	"o AS MATERIALIZED (SELECT " SAID PG_CORE_OF("r.")
	", r.at, a.counted, a.dispatched_at, a.started_at, a.instance, a.session, a.lease_ns, "
	"coalesce(i.devices, a.devices) AS devices FROM rest i "
	"CROSS JOIN LATERAL (SELECT t.queue, t.neg_priority, t.seq FROM task t WHERE t.id = i.task_id AND i.outcome = 1 "
	"OFFSET 0) t "
	"CROSS JOIN LATERAL (SELECT r.*, r.ctid AS at FROM ready r WHERE r.queue = t.queue AND r.neg_priority = "
	"t.neg_priority AND r.seq = t.seq AND r.attempt = i.attempt AND r.open_worker = i.worker COLLATE \"C\" OFFSET 0 "
	"FOR UPDATE) r "
	"CROSS JOIN LATERAL (SELECT a.* FROM attempt a WHERE a.task_id = i.task_id AND a.attempt = i.attempt OFFSET 0) a), "
	"od AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM o))), "
	"oa AS (DELETE FROM attempt a USING o WHERE a.task_id = ANY (ARRAY(SELECT task_id FROM o)) AND a.task_id = o.task_id "
	"AND a.attempt = o.attempt), "
	/* where it goes */
	"e AS (INSERT INTO ended (task_id, state, outcome, attempt, failures, losses, reported, dispatched_at, started_at, "
	"finished_at, cancel_requested_at, exit_code, signal, log_end, result_too_large, worker, error, result, instance, session, "
	"lease_ns, devices, cause, oom_killed, log_dropped) "
	"SELECT task_id, state, outcome, attempt, failures + failed, losses + lost, true, dispatched_at, coalesce(began, started_at), "
	"finished, cancel_requested_at, exit_code, signal, log_end, too_large, worker, error, result, instance, session, lease_ns, "
	"devices, cause, oom, log_dropped FROM x WHERE state <> 1 "
	"UNION ALL SELECT task_id, 3, outcome, attempt, failures, losses - counted::int, true, dispatched_at, "
	"coalesce(began, started_at), finished, NULL, exit_code, signal, log_end, too_large, worker, error, result, instance, session, "
	"lease_ns, devices, NULL, oom, log_dropped FROM o), "
	"h AS (INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_at, started_at, "
	"finished_at, exit_code, signal, log_end, worker, error, instance, session, devices, cause, oom_killed, log_dropped) "
	"SELECT task_id, attempt, outcome, true, lost = 1, lease_ns, dispatched_at, coalesce(began, started_at), finished, exit_code, "
	"signal, log_end, worker, error, instance, session, devices, cause, oom, log_dropped FROM x WHERE state = 1), "
	"q AS (INSERT INTO ready (" PG_CORE ") SELECT " PG_CORE_WITH("", "failures + failed", "losses + lost")
	" FROM x WHERE state = 1 AND due_ns <= 0), "
	"d AS (INSERT INTO delayed (" PG_CORE ", due_at) SELECT " PG_CORE_WITH("", "failures + failed", "losses + lost")
	", now() + due_ns / 1000 * interval '1 microsecond' FROM x WHERE state = 1 AND due_ns > 0) "
	PG_EVENT("SELECT task_id, attempt, 16 + state FROM x UNION ALL SELECT task_id, attempt, 11 FROM o")
	/* what is said */
	"SELECT ord, 0, state, due_ns, " PG_CORE_WITH("", "failures + failed", "losses + lost") " FROM x "
	"UNION ALL SELECT ord, 0, 3, 0, " PG_CORE " FROM o "
	"UNION ALL SELECT i.ord, CASE "
	"WHEN EXISTS (SELECT FROM running r WHERE r.task_id = i.task_id AND r.attempt = i.attempt AND "
	"(r.worker = i.worker COLLATE \"C\") IS TRUE OFFSET 0) THEN 9 "
	"WHEN e.known THEN 1 WHEN a.known THEN 1 "
	"WHEN p.known THEN 9 ELSE 2 END, coalesce(e.state, 2), 0, "
	PG_CORE_NONE " FROM rest i "
	"LEFT JOIN LATERAL (SELECT true AS known, e.state FROM ended e WHERE e.task_id = i.task_id AND e.attempt = i.attempt "
	"AND e.worker = i.worker COLLATE \"C\" AND e.reported OFFSET 0) e ON true "
	"LEFT JOIN LATERAL (SELECT true AS known FROM attempt a WHERE a.task_id = i.task_id AND a.attempt = i.attempt "
	"AND a.worker = i.worker COLLATE \"C\" AND a.reported OFFSET 0) a ON true "
	"LEFT JOIN LATERAL (SELECT true AS known FROM task t, ready r WHERE t.id = i.task_id AND i.outcome = 1 AND "
	"r.queue = t.queue AND r.neg_priority = t.neg_priority AND r.seq = t.seq AND r.attempt = i.attempt AND "
	"r.open_worker = i.worker COLLATE \"C\" OFFSET 0) p ON true "
	"WHERE NOT EXISTS (SELECT FROM o WHERE o.ord = i.ord)";

/* One that is stripped says how large its result was. */
static int64_t dropped_size(const struct pg_batch *b, const struct store_record *o)
{
	return b->note && o->result && !o->result_too_large ? (int64_t)o->result->len : o->result_too_large;
}

static bool build(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_record *o = container_of(b->ops[i], struct store_record, op);
		pg_attempt(ps, i, &o->at);
		pg_text(ps, 3, o->worker);
		pg_int2(ps, 4, (int16_t)o->outcome);
		o->has_exit_code ? pg_int4(ps, 5, o->exit_code) : pg_null(ps, 5);
		o->has_signal ? pg_int4(ps, 6, o->signal) : pg_null(ps, 6);
		if (b->note)
			pg_bytea(ps, 7, b->note, strlen(b->note));
		else
			pg_bytea(ps, 7, o->error.len ? o->error.data : NULL, o->error.len);
		pg_blob(ps, 8, b->note ? NULL : o->result);
		dropped_size(b, o) > 0 ? pg_int8(ps, 9, dropped_size(b, o)) : pg_null(ps, 9);
		pg_time(ps, 10, o->started_wall_us);
		pg_time(ps, 11, o->finished_wall_us);
		pg_int8(ps, 12, o->log_end);
		pg_int8(ps, 13, o->retry_in_ns);
		pg_text(ps, 14, b->note ? NULL : o->words);
		pg_text(ps, 15, b->note ? NULL : o->devices);
		pg_bool(ps, 16, o->oom_killed);
		pg_int4(ps, 17, o->lost_limit);
		pg_int8(ps, 18, o->log_dropped);
	}
	return true;
}

static int read_verdict(struct store_record *o, const PGresult *r, int row)
{
	switch (pg_get_int(r, row, 1)) {
	case 0:
		o->ret_verdict = CORE_RECORD_RECORDED;
		o->ret_state = (enum store_state)pg_get_int(r, row, 2);
		o->ret_due_in_ns = o->ret_state == STORE_PENDING ? pg_get_int8(r, row, 3) : 0;
		pg_get_core(r, row, 4, &o->ret_task);
		free(o->ret_texts);
		o->ret_texts = store_texts(&o->ret_task);
		return 0;
	case 1:
		/* Sent before and lost: then it was this very report that was recorded. */
		o->ret_verdict = o->op.sent ? CORE_RECORD_RECORDED : CORE_RECORD_DUPLICATE;
		o->ret_state = (enum store_state)pg_get_int(r, row, 2);
		return 0;
	case 2:
		o->ret_verdict = CORE_RECORD_FENCED;
		return 0;
	case VERDICT_AGAIN:
		pg_op_again(&o->op);
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
		int rc = read_verdict(container_of(b->ops[ord], struct store_record, op), r, row);
		if (rc < 0)
			return rc;
	}
	return 0;
}

bool pg_record_strip(struct pg_batch *b, const char *why)
{
	size_t len = strlen(why) + 80;
	b->note = xcalloc(1, len);
	snprintf(b->note, len, "recorded without result and text, which the store refused: %s", why);
	return true;
}

const struct pg_stmt pg_record_stmts[1] = {{record_sql, COLUMNS, build, read}};
