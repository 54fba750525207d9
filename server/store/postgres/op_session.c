/* SESSION_OPEN: the next session number of a worker, and its rows against its list, in one transaction:
 * the number; running rows that it lists get the number, and no shorter lease than the session has; open ones that it lists
 * run again; what is left with an older number goes back, except exclusive tasks of another instance, whose lease runs on.
 * A hello that is older than the session gets no number, nor the first sending of one whose second was carried out (a
 * lost connection may still deliver it), and the other statements leave its worker alone: they take only rows of `worker`
 * that this transaction wrote.
 * Several workers share a batch: after a master's restart they all come at once. */
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
#define HELD_UP TEXT_OF(CORE_HELD_UP_US)

static const char number_sql[] =
	"INSERT INTO worker AS w (id, instance, session, instance_session, opened_at, master, info, hello, hello_sent) "
	"SELECT id, instance, 1, 1, now(), master, info, hello, sent FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], "
	"$5::int8[], $6::int4[]) AS i(id, instance, master, info, hello, sent) "
	"ON CONFLICT (id) DO UPDATE SET session = w.session + 1, instance = excluded.instance, instance_session = "
	"CASE WHEN w.instance = excluded.instance THEN w.instance_session ELSE w.session + 1 END, opened_at = now(), "
	"master = excluded.master, info = excluded.info, hello = excluded.hello, hello_sent = excluded.hello_sent, "
	"heard_at = NULL, detached_until = NULL "
	"WHERE excluded.hello = 0 OR excluded.hello NOT BETWEEN w.hello - " HELD_UP " AND w.hello "
	"OR (excluded.hello = w.hello AND excluded.hello_sent > w.hello_sent) "
	"RETURNING id, session, instance_session, drain_mode, drain_within_ns, drain_reason";

#define OPENED "w.id = i.worker COLLATE \"C\" AND w.xmin = pg_current_xact_id()::xid"

#define HELD                                                                                                     \
	"WITH h AS MATERIALIZED (SELECT i.ord, i.task_id, i.attempt, i.worker, i.lease_ns AS least, w.session, w.instance FROM " \
	"unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::int8[]) AS i(ord, task_id, attempt, worker, lease_ns) CROSS JOIN LATERAL " \
	"(SELECT w.session, w.instance FROM worker w WHERE " OPENED " OFFSET 0) w) "

/* Where an attempt's log ends, octet_length doesn't read the bytes; and what is not kept of it. */
#define LOG_END(of)                                                                                              \
	"coalesce((SELECT g.off + octet_length(g.data) + coalesce(g.dropped, 0) FROM log g WHERE g.task_id = " of ".task_id AND g.attempt = " of \
	".attempt ORDER BY g.off DESC LIMIT 1), 0), coalesce((SELECT sum(g.dropped)::int8 FROM log g WHERE g.task_id = " of \
	".task_id AND g.attempt = " of ".attempt AND g.dropped IS NOT NULL), 0)"

#define METRICS_END(of) \
	"coalesce((SELECT max(n.number) FROM metric n WHERE n.task_id = " of ".task_id AND n.attempt = " of ".attempt), 0)"

static const char adopt_sql[] = HELD
	"UPDATE running r SET session = h.session, instance = h.instance, lease_ns = greatest(r.lease_ns, h.least) FROM h WHERE "
	"r.task_id = ANY ($2::uuid[]) AND "
	"r.task_id = h.task_id AND r.attempt = h.attempt AND (r.worker = h.worker COLLATE \"C\") IS TRUE AND r.session < h.session "
	"RETURNING h.ord, " PG_CORE_OF("r.") ", r.lease_ns, r.cancel_requested_at IS NOT NULL, " LOG_END("r") ", " METRICS_END("r");

static const char reopen_sql[] = HELD
	", o AS MATERIALIZED (SELECT h.ord, h.worker, h.session, h.instance, " PG_CORE_OF("r.")
	", r.at, a.counted, a.dispatched_at, a.started_at, greatest(a.lease_ns, h.least) AS lease_ns, a.devices FROM h "
	"CROSS JOIN LATERAL (SELECT t.queue, t.neg_priority, t.seq FROM task t WHERE t.id = h.task_id OFFSET 0) t "
	"CROSS JOIN LATERAL (SELECT r.*, r.ctid AS at FROM ready r WHERE r.queue = t.queue AND r.neg_priority = "
	"t.neg_priority AND r.seq = t.seq AND r.attempt = h.attempt AND r.open_worker = h.worker COLLATE \"C\" OFFSET 0 "
	"FOR UPDATE) r "
	"CROSS JOIN LATERAL (SELECT a.counted, a.dispatched_at, a.started_at, a.lease_ns, a.devices FROM attempt a WHERE a.task_id = "
	"h.task_id AND a.attempt = h.attempt OFFSET 0) a), "
	"od AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM o))), "
	"oa AS (DELETE FROM attempt a USING o WHERE a.task_id = ANY (ARRAY(SELECT task_id FROM o)) AND a.task_id = o.task_id "
	"AND a.attempt = o.attempt), "
	"g AS (INSERT INTO running (" PG_CORE ", worker, instance, session, lease_ns, dispatched_at, started_at, devices) SELECT "
	PG_CORE_WITH("", "failures", "losses - counted::int") ", worker, instance, session, lease_ns, dispatched_at, started_at, "
	"devices FROM o) "
	PG_EVENT("SELECT task_id, attempt, 10 FROM o")
	"SELECT ord, " PG_CORE ", lease_ns, false, " LOG_END("o") ", " METRICS_END("o") " FROM o";

/* Counted: what was seen to start, or whose worker process has been replaced. */
static const char requeue_sql[] =
	"WITH w AS MATERIALIZED (SELECT i.ord, i.worker, i.lost_limit, w.session, w.instance FROM "
	"unnest($1::int4[], $2::text[], $3::int4[]) AS i(ord, worker, lost_limit) CROSS JOIN LATERAL "
	"(SELECT w.session, w.instance FROM worker w WHERE " OPENED " OFFSET 0) w), "
	"l AS MATERIALIZED (SELECT w.ord, w.lost_limit, r.* FROM w CROSS JOIN LATERAL (SELECT " PG_CORE_OF("r.")
	", r.worker, r.lease_ns, r.dispatched_at, r.started_at, r.cancel_requested_at, r.instance, r.session, r.devices, r.cause, "
	"r.started_at IS NOT NULL OR r.instance <> w.instance AS counted FROM running r WHERE r.worker = w.worker COLLATE \"C\" "
	"AND r.session < w.session AND NOT (r.exclusive AND r.instance <> w.instance) ORDER BY r.task_id OFFSET 0 FOR UPDATE) r), "
	"d AS (DELETE FROM running WHERE task_id = ANY (ARRAY(SELECT task_id FROM l))), "
	"x AS MATERIALIZED (SELECT l.*, losses + counted::int AS lost, CASE WHEN cancel_requested_at IS NOT NULL THEN 5 "
	"WHEN counted AND lost_limit > 0 AND losses + 1 >= lost_limit THEN 4 ELSE 1 END AS state, "
	"CASE WHEN counted THEN 6 ELSE 7 END AS outcome, coalesce(CASE WHEN cancel_requested_at IS NOT NULL THEN cause END, "
	"CASE WHEN NOT counted THEN '" STORE_WORDS_NOT_LISTED "' END) AS words FROM l), "
	"e AS (INSERT INTO ended (task_id, state, outcome, attempt, failures, losses, reported, dispatched_at, started_at, "
	"finished_at, cancel_requested_at, log_end, worker, instance, session, lease_ns, devices, cause) SELECT task_id, state, outcome, "
	"attempt, failures, lost, false, dispatched_at, started_at, now(), cancel_requested_at, 0, worker, instance, session, lease_ns, "
	"devices, words FROM x WHERE state <> 1), "
	"h AS (INSERT INTO attempt (task_id, attempt, outcome, reported, counted, lease_ns, dispatched_at, started_at, "
	"finished_at, log_end, worker, instance, session, devices, cause) SELECT task_id, attempt, outcome, false, counted, lease_ns, "
	"dispatched_at, started_at, now(), 0, worker, instance, session, devices, words FROM x WHERE state = 1), "
	"q AS (INSERT INTO ready (" PG_CORE ") SELECT " PG_CORE_WITH("", "failures", "lost") " FROM x WHERE state = 1) "
	PG_EVENT("SELECT task_id, attempt, 16 + state FROM x")
	"SELECT ord, " PG_CORE_WITH("", "failures", "lost") " FROM x WHERE state = 1";

/* What is left with an older number now: exclusive tasks of another instance. They get the number, so that this session
 * may take them back, and keep their instance, so that the next one finds them again. */
static const char waiting_sql[] =
	"WITH w AS MATERIALIZED (SELECT i.ord, i.worker, w.session FROM unnest($1::int4[], $2::text[]) AS i(ord, worker) "
	"CROSS JOIN LATERAL (SELECT w.session FROM worker w WHERE " OPENED " OFFSET 0) w) "
	"UPDATE running r SET session = w.session FROM w WHERE r.worker = w.worker COLLATE \"C\" AND r.session < w.session "
	"RETURNING w.ord, " PG_CORE_OF("r.") ", r.lease_ns, r.cancel_requested_at IS NOT NULL";

static struct store_session_open *op_at(struct pg_batch *b, int32_t ord)
{
	if (ord < 0 || (size_t)ord >= b->n)
		return NULL;
	return container_of(b->ops[ord], struct store_session_open, op);
}

static bool build_number(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_session_open *o = op_at(b, (int32_t)i);
		pg_text(ps, 0, o->worker);
		pg_uuid(ps, 1, o->instance);
		pg_text(ps, 2, o->master);
		pg_blob(ps, 3, o->hello);
		pg_int8(ps, 4, o->hello_number);
		pg_int4(ps, 5, o->op.sent);
	}
	return true;
}

static struct store_mem **mem_of(struct store_session_open *o) { return (struct store_mem **)&o->ret_memory; }

static int read_number(struct pg_batch *b, const PGresult *r)
{
	int row = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct store_session_open *o = op_at(b, (int32_t)i);
		o->ret_n_adopted = o->ret_n_requeued = o->ret_n_waiting = o->ret_n_fenced = 0;
		/* In the order of the parameters, without those that are stale. */
		o->ret_stale = row == PQntuples(r) || strcmp(pg_get_text(r, row, 0), o->worker) != 0;
		if (o->ret_stale)
			continue;
		o->ret_session = pg_get_int8(r, row, 1);
		/* The sendings whose fate is unknown may have made the instance known already. */
		o->ret_new_instance = pg_get_int8(r, row, 2) >= o->ret_session - o->op.sent;
		pg_get_drain(r, row, 3, mem_of(o), &o->ret_drain);
		row++;
	}
	return row == PQntuples(r) ? 0 : -EPROTO;
}

struct held {
	struct core_attempt at;
	int32_t ord;
};

static int by_task(const void *a, const void *b)
{
	return uuid_cmp(&((const struct held *)a)->at.task, &((const struct held *)b)->at.task);
}

/* Rows are locked in the order of their ids, over all workers of the batch. */
static bool build_held(struct pg_batch *b, struct pg_params *ps)
{
	size_t n = 0;
	for (size_t i = 0; i < b->n; i++)
		n += op_at(b, (int32_t)i)->n_held;
	if (!n)
		return false;
	_cleanup_free_ struct held *all = xcalloc(n, sizeof(*all));
	n = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct store_session_open *o = op_at(b, (int32_t)i);
		for (size_t j = 0; j < o->n_held; j++)
			all[n++] = (struct held){o->held[j], (int32_t)i};
	}
	qsort(all, n, sizeof(*all), by_task);
	for (size_t i = 0; i < n; i++) {
		pg_int4(ps, 0, all[i].ord);
		pg_uuid(ps, 1, all[i].at.task.b);
		pg_int4(ps, 2, all[i].at.attempt);
		pg_text(ps, 3, op_at(b, all[i].ord)->worker);
		pg_int8(ps, 4, op_at(b, all[i].ord)->lease_ns);
	}
	return true;
}

static void read_core(struct store_session_open *o, const PGresult *r, int row, struct core_task *ret)
{
	pg_get_core(r, row, 1, ret);
	store_mem_texts(mem_of(o), ret);
}

static int read_adopted(struct pg_batch *b, const PGresult *r)
{
	for (int row = 0; row < PQntuples(r); row++) {
		struct store_session_open *o = op_at(b, pg_get_int(r, row, 0));
		if (!o || o->ret_n_adopted == o->n_held)
			return -EPROTO;
		if (!o->ret_adopted)
			o->ret_adopted = store_mem_get(mem_of(o), o->n_held * sizeof(*o->ret_adopted));
		struct core_adopted *a = &o->ret_adopted[o->ret_n_adopted++];
		read_core(o, r, row, &a->task);
		a->lease_ns = pg_get_int8(r, row, 1 + PG_CORE_COLUMNS);
		a->cancel_wish = pg_get_bool(r, row, 2 + PG_CORE_COLUMNS);
		a->log_stored = pg_get_int8(r, row, 3 + PG_CORE_COLUMNS);
		a->log_dropped = pg_get_int8(r, row, 4 + PG_CORE_COLUMNS);
		a->metrics_stored = pg_get_int8(r, row, 5 + PG_CORE_COLUMNS);
	}
	return 0;
}

static bool build_waiting(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, op_at(b, (int32_t)i)->worker);
	}
	return true;
}

static int read_waiting(struct pg_batch *b, const PGresult *r)
{
	int rows = PQntuples(r);
	for (int row = 0; row < rows; row++) {
		struct store_session_open *o = op_at(b, pg_get_int(r, row, 0));
		if (!o)
			return -EPROTO;
		if (!o->ret_waiting)
			o->ret_waiting = store_mem_get(mem_of(o), (size_t)rows * sizeof(*o->ret_waiting));
		struct core_adopted *a = &o->ret_waiting[o->ret_n_waiting++];
		read_core(o, r, row, &a->task);
		a->lease_ns = pg_get_int8(r, row, 1 + PG_CORE_COLUMNS);
		a->cancel_wish = pg_get_bool(r, row, 2 + PG_CORE_COLUMNS);
	}
	return 0;
}

static bool build_requeue(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, op_at(b, (int32_t)i)->worker);
		pg_int4(ps, 2, b->store->cfg.lost_limit);
	}
	return true;
}

static int compare_attempts(const void *a, const void *b)
{
	const struct core_attempt *x = a, *y = b;
	int c = uuid_cmp(&x->task, &y->task);
	return c ? c : (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

/* Listed and not adopted. */
static void find_fenced(struct store_session_open *o)
{
	_cleanup_free_ struct core_attempt *got = xcalloc(o->ret_n_adopted + 1, sizeof(*got));
	for (size_t i = 0; i < o->ret_n_adopted; i++)
		got[i] = (struct core_attempt){o->ret_adopted[i].task.id, o->ret_adopted[i].task.attempt};
	qsort(got, o->ret_n_adopted, sizeof(*got), compare_attempts);
	if (o->n_held)
		o->ret_fenced = store_mem_get(mem_of(o), o->n_held * sizeof(*o->ret_fenced));
	o->ret_n_fenced = 0;
	for (size_t i = 0; i < o->n_held; i++)
		if (!bsearch(&o->held[i], got, o->ret_n_adopted, sizeof(*got), compare_attempts))
			o->ret_fenced[o->ret_n_fenced++] = o->held[i];
}

static int read_requeued(struct pg_batch *b, const PGresult *r)
{
	_cleanup_free_ size_t *counts = xcalloc(b->n, sizeof(*counts));
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (!op_at(b, ord))
			return -EPROTO;
		counts[ord]++;
	}
	for (size_t i = 0; i < b->n; i++) {
		struct store_session_open *o = op_at(b, (int32_t)i);
		if (counts[i])
			o->ret_requeued = store_mem_get(mem_of(o), counts[i] * sizeof(*o->ret_requeued));
		if (!o->ret_stale)
			find_fenced(o);
	}
	for (int row = 0; row < PQntuples(r); row++) {
		struct store_session_open *o = op_at(b, pg_get_int(r, row, 0));
		read_core(o, r, row, &o->ret_requeued[o->ret_n_requeued++]);
	}
	return 0;
}

const struct pg_stmt pg_session_stmts[5] = {
	{number_sql, "tuty84", build_number, read_number},
	{adopt_sql, "4u4t8", build_held, read_adopted},
	{reopen_sql, "4u4t8", build_held, read_adopted},
	{requeue_sql, "4t4", build_requeue, read_requeued},
	{waiting_sql, "4t", build_waiting, read_waiting},
};
