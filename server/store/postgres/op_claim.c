/* CLAIM: PENDING to RUNNING for whoever takes the ready row out, and still may.  A row that another transaction holds is
 * lost at once.  A batch that was sent before waits for the lock instead, which the first sending may still
 * hold, and then reads with a new snapshot which rows are its own. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

#define COLUMNS "4ut48tu88t8"
#define INPUT                                                                                             \
	"WITH " PG_STALE("$6", "$8", "$10", "$11")                                                               \
	"i AS MATERIALIZED (SELECT i.*, " PG_IS_STALE " AS stale FROM unnest($1::int4[], $2::uuid[], $3::text[], $4::int4[], " \
	"$5::int8[], $6::text[], $7::uuid[], $8::int8[], $9::int8[], $10::text[], $11::int8[]) AS i(ord, task_id, queue, " \
	"neg_priority, seq, worker, instance, session, lease_ns, master, incarnation)), "
/* Nobody begins what has expired; a row that was given out before has no expiry any more. */
#define LASTS "(r.expires_at IS NULL OR r.expires_at > now())"
/* Of a delayed row only one whose time has come: a window that remembers the task from before knows nothing of the delay. */
#define TAKE(skip)                                                                                         \
	"l AS MATERIALIZED (SELECT i.ord, i.worker, i.instance, i.session, i.lease_ns, r.* FROM (SELECT * FROM i WHERE " \
	"NOT stale OFFSET 0) i CROSS JOIN LATERAL "                                                            \
	"(SELECT " PG_CORE_OF("r.") ", r.ctid AS at FROM ready r WHERE r.queue = i.queue COLLATE \"C\" AND "     \
	"r.neg_priority = i.neg_priority AND r.seq = i.seq AND r.task_id = i.task_id AND " LASTS " OFFSET 0 FOR UPDATE" skip \
	") r), "                                                                                             \
	"ld AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM l))), "                               \
	"w AS MATERIALIZED (SELECT i.ord, i.worker, i.instance, i.session, i.lease_ns, r.* FROM (SELECT * FROM i WHERE " \
	"NOT stale AND NOT EXISTS (SELECT FROM l WHERE l.ord = i.ord) OFFSET 0) i CROSS JOIN LATERAL "                       \
	"(SELECT " PG_CORE_OF("r.") ", r.ctid AS at FROM delayed r WHERE r.task_id = i.task_id AND r.due_at <= now() AND " LASTS " OFFSET 0 FOR UPDATE" skip \
	") r), "                                                                                             \
	"wd AS (DELETE FROM delayed WHERE ctid = ANY (ARRAY(SELECT at FROM w))), "                             \
	"won AS MATERIALIZED (SELECT * FROM l UNION ALL SELECT * FROM w), "                                    \
	"g AS (INSERT INTO running (" PG_CORE ", worker, instance, session, lease_ns, dispatched_at) SELECT task_id, seq, " \
	"neg_priority, attempt + 1, failures, losses, " PG_ASKS ", worker, instance, session, lease_ns, now() FROM won) " \
	PG_EVENT("SELECT task_id, attempt + 1, 10 FROM won")
#define SPEC(row) "CROSS JOIN LATERAL (SELECT t.spec FROM task t WHERE t.id = " row ".task_id OFFSET 0) t"

static const char take_sql[] = INPUT TAKE(" SKIP LOCKED")
	"SELECT won.ord, won.task_id, seq, neg_priority, attempt + 1, failures, losses, " PG_ASKS ", t.spec FROM won "
	SPEC("won") " UNION ALL SELECT i.ord, " PG_CORE_NONE ", NULL FROM i WHERE stale";
static const char retake_sql[] = INPUT TAKE("") "SELECT count(*) FROM won";
static const char mine_sql[] = INPUT
	"m AS MATERIALIZED (SELECT i.ord, r.* FROM i CROSS JOIN LATERAL (SELECT " PG_CORE_OF("r.") " FROM running r WHERE "
	"r.task_id = i.task_id AND (r.worker = i.worker COLLATE \"C\") IS TRUE AND r.instance = i.instance AND r.session = i.session "
	"OFFSET 0) r) SELECT m.ord, " PG_CORE_OF("m.") ", t.spec FROM m " SPEC("m");

static void items(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_claim *o = container_of(b->ops[i], struct store_claim, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_uuid(ps, 1, o->task.id.b);
		pg_text(ps, 2, o->task.queue);
		pg_int4(ps, 3, -o->task.priority);
		pg_int8(ps, 4, o->task.seq);
		pg_text(ps, 5, o->to.worker);
		pg_uuid(ps, 6, o->to.instance);
		pg_int8(ps, 7, o->to.session);
		pg_int8(ps, 8, o->to.lease_ns);
		pg_text(ps, 9, o->to.master);
		pg_int8(ps, 10, o->to.incarnation);
	}
}

static bool build_take(struct pg_batch *b, struct pg_params *ps)
{
	if (b->resent)
		return false;
	items(b, ps);
	return true;
}

static bool build_resent(struct pg_batch *b, struct pg_params *ps)
{
	if (!b->resent)
		return false;
	items(b, ps);
	return true;
}

static int read_nothing(struct pg_batch *b, const PGresult *r) { return 0; }

static int read_won(struct pg_batch *b, const PGresult *r)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_claim *o = container_of(b->ops[i], struct store_claim, op);
		o->ret_won = o->ret_stale = false;
	}
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		struct store_claim *o = container_of(b->ops[ord], struct store_claim, op);
		o->ret_stale = pg_is_null(r, row, 1);
		if (o->ret_stale)
			continue;
		pg_get_core(r, row, 1, &o->ret_task);
		o->ret_task.queue = o->task.queue;
		o->ret_task.handler = o->task.handler;
		o->ret_task.custom = o->task.custom;
		int rc = pg_get_blob(r, row, 1 + PG_CORE_COLUMNS, &o->ret_spec);
		if (rc < 0)
			return rc;
		o->ret_won = true;
	}
	return 0;
}

const struct pg_stmt pg_claim_stmts[3] = {
	{take_sql, COLUMNS, build_take, read_won},
	{retake_sql, COLUMNS, build_resent, read_nothing},
	{mine_sql, COLUMNS, build_resent, read_won},
};
