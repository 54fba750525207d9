/* INSERT: new tasks.  A batch without idempotency keys that was never sent before is one statement; any other
 * is three in one transaction: the keys (which waits for others that hold the same), the tasks whose
 * key is theirs, and what stands there now, read with a new snapshot. */
#include <errno.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

#define COLUMNS "44ut484" "4b848" "8fttyyy" "tyw8tu88" "tt8t8"
#define INPUT                                                                                                  \
	"WITH " PG_STALE("$24", "$26", "$31", "$32")                                                                   \
	"i AS (SELECT * FROM unnest($1::int4[], $2::int4[], $3::uuid[], $4::text[], $5::int4[], "    \
	"$6::int8[], $7::int4[], $8::int4[], $9::bool[], $10::int8[], $11::int4[], $12::int8[], $13::int8[], "         \
	"$14::float8[], $15::text[], $16::text[], $17::bytea[], $18::bytea[], $19::bytea[], $20::text[], $21::bytea[], " \
	"$22::timestamptz[], $23::int8[], $24::text[], $25::uuid[], $26::int8[], $27::int8[], $28::text[], $29::text[], " \
	"$30::int8[], $31::text[], $32::int8[]) "                                                                      \
	"AS i(ord, unit, id, queue, cpu, memory, gpus, neg_priority, exclusive, lease_ttl_ns, max_attempts, "          \
	"backoff_initial_ns, backoff_max_ns, backoff_multiplier, name, owner, labels, list_spec, spec, key, hash, "    \
	"run_at, delay_ns, worker, instance, session, lease_ns, handler, custom, expiry_ns, master, incarnation)), "
/* What a row becomes; `due` is null for one that is ready now, `expires` for one that never expires, `given` for one that
 * begins as PENDING. */
#define FRESH                                                                                              \
	"i.*, nextval('reins.task_seq') AS seq, coalesce(i.run_at, CASE WHEN i.delay_ns > 0 THEN now() + "       \
	"i.delay_ns / 1000 * interval '1 microsecond' END) AS due, CASE WHEN i.expiry_ns > 0 THEN now() + "      \
	"i.expiry_ns / 1000 * interval '1 microsecond' END AS expires, "                                         \
	"CASE WHEN i.worker IS NOT NULL AND NOT " PG_IS_STALE " THEN i.worker END AS given "
#define TASKS                                                                                              \
	"t AS (INSERT INTO task (id, seq, created_at, run_at, neg_priority, " PG_ASKS ", expires_at, name, owner, " \
	"idempotency_key, labels, list_spec, spec) SELECT id, seq, now(), due, neg_priority, " PG_ASKS ", expires, name, " \
	"owner, key, labels, list_spec, spec FROM n"
#define NARROW                                                                                             \
	"id, seq, neg_priority, CASE WHEN given IS NULL THEN 0 ELSE 1 END, 0, 0, " PG_ASKS
#define PLACES(from)                                                                                       \
	"r AS (INSERT INTO ready (" PG_CORE ", expires_at) SELECT " NARROW ", expires FROM " from                \
	" WHERE given IS NULL AND (due IS NULL OR due <= now())), "                                            \
	"d AS (INSERT INTO delayed (" PG_CORE ", due_at, expires_at) SELECT " NARROW ", due, expires FROM " from \
	" WHERE given IS NULL AND due > now()), "                                                              \
	"g AS (INSERT INTO running (" PG_CORE ", worker, instance, session, lease_ns, dispatched_at) SELECT " NARROW \
	", given, instance, session, lease_ns, now() FROM " from " WHERE given IS NOT NULL) "                       \
	PG_EVENT("SELECT id, (given IS NOT NULL)::int, 1 + (given IS NOT NULL)::int FROM " from)

static const char plain_sql[] = INPUT "n AS MATERIALIZED (SELECT " FRESH "FROM i), " TASKS "), " PLACES("n")
	"SELECT ord, seq, given IS NOT NULL FROM n";

static const char keys_sql[] =
	"INSERT INTO idempotency (key, hash, task_id) SELECT key, hash, id FROM "
	"unnest($1::text[], $2::bytea[], $3::uuid[]) AS i(key, hash, id) ORDER BY key COLLATE \"C\", id "
	"ON CONFLICT (key) DO NOTHING";

static const char keyed_sql[] = INPUT
	"k AS MATERIALIZED (SELECT i.ord, i.unit, i.key, x.task_id = i.id AS mine, x.hash = i.hash AS same FROM i "
	"CROSS JOIN LATERAL (SELECT x.task_id, x.hash FROM idempotency x WHERE x.key = i.key COLLATE \"C\" OFFSET 0) x "
	"WHERE i.key IS NOT NULL), "
	"bad AS MATERIALIZED (SELECT DISTINCT unit FROM k WHERE NOT mine AND NOT same), "
	"undone AS (DELETE FROM idempotency WHERE key = ANY (ARRAY(SELECT k.key FROM k WHERE k.mine AND k.unit IN "
	"(SELECT unit FROM bad)))), "
	"n AS MATERIALIZED (SELECT " FRESH "FROM (SELECT i.* FROM i LEFT JOIN k ON k.ord = i.ord WHERE (k.ord IS NULL OR "
	"k.mine) AND i.unit NOT IN (SELECT unit FROM bad) ORDER BY i.ord OFFSET 0) i), "
	TASKS " ON CONFLICT (id) DO NOTHING RETURNING id), "
	"m AS MATERIALIZED (SELECT n.* FROM n JOIN t USING (id)), " PLACES("m")
	"SELECT count(*) FROM m";

static const char found_sql[] =
	"SELECT i.ord, t.seq, x.task_id, x.hash = i.hash AS same, CASE WHEN i.worker IS NOT NULL THEN EXISTS (SELECT FROM running r "
	"WHERE r.task_id = i.id AND r.attempt = 1 AND (r.worker = i.worker COLLATE \"C\") IS TRUE AND r.session = i.session OFFSET 0) "
	"ELSE false END FROM unnest($1::int4[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::int8[]) "
	"AS i(ord, id, key, hash, worker, session) LEFT JOIN LATERAL (SELECT t.seq FROM task t WHERE t.id = i.id OFFSET 0) t ON true "
	"LEFT JOIN LATERAL (SELECT x.task_id, x.hash FROM idempotency x WHERE x.key = i.key COLLATE \"C\" OFFSET 0) x ON true";

static int32_t size_of(const struct store_insert *o) { return o->group_n > 1 ? o->group_n : 1; }

/* The batch's items in order; `unit` tells which operation one belongs to. */
struct walk {
	struct pg_batch *b;
	size_t unit;
	int32_t left;
	struct store_insert *at;
};

static struct store_insert *walk_next(struct walk *w)
{
	if (w->left > 1) {
		w->left--;
		w->at = w->at->group_next;
		return w->at;
	}
	if (w->at)
		w->unit++;
	if (w->unit == w->b->n)
		return NULL;
	w->at = container_of(w->b->ops[w->unit], struct store_insert, op);
	w->left = size_of(w->at);
	return w->at;
}

static bool keyed(struct pg_batch *b)
{
	struct walk w = {.b = b};
	for (struct store_insert *o; (o = walk_next(&w));)
		if (o->idempotency_key)
			return true;
	return b->resent;
}

static void policy(struct pg_params *ps, const struct core_task *t)
{
	if (t->max_attempts > 1) {
		pg_int4(ps, 10, t->max_attempts);
		pg_int8(ps, 11, t->backoff_initial_ns);
		pg_int8(ps, 12, t->backoff_max_ns);
		pg_float8(ps, 13, t->backoff_multiplier);
	} else {
		for (int c = 10; c <= 13; c++)
			pg_null(ps, c);
	}
}

static void item(struct pg_params *ps, int32_t ord, int32_t unit, const struct store_insert *o)
{
	const struct core_task *t = &o->task;
	pg_int4(ps, 0, ord);
	pg_int4(ps, 1, unit);
	pg_uuid(ps, 2, t->id.b);
	pg_text(ps, 3, t->queue);
	pg_int4(ps, 4, t->need.cpu_millis);
	pg_int8(ps, 5, t->need.memory_bytes);
	pg_int4(ps, 6, t->need.gpus);
	pg_int4(ps, 7, -t->priority);
	pg_bool(ps, 8, t->exclusive);
	t->lease_ttl_ns ? pg_int8(ps, 9, t->lease_ttl_ns) : pg_null(ps, 9);
	policy(ps, t);
	pg_text(ps, 14, o->name && o->name[0] ? o->name : NULL);
	pg_text(ps, 15, o->owner && o->owner[0] ? o->owner : NULL);
	pg_bytea(ps, 16, o->labels.len ? o->labels.data : NULL, o->labels.len);
	pg_blob(ps, 17, o->env_free_spec);
	pg_blob(ps, 18, o->spec);
	pg_text(ps, 19, o->idempotency_key);
	pg_bytea(ps, 20, o->idempotency_key ? o->idempotency_hash : NULL, sizeof(o->idempotency_hash));
	pg_time(ps, 21, o->run_at_wall_us);
	pg_int8(ps, 22, o->delay_ns);
	pg_text(ps, 23, o->eager.worker);
	if (o->eager.worker)
		pg_uuid(ps, 24, o->eager.instance);
	else
		pg_null(ps, 24);
	pg_int8(ps, 25, o->eager.session);
	pg_int8(ps, 26, o->eager.lease_ns);
	pg_text(ps, 27, t->handler && t->handler[0] ? t->handler : NULL);
	pg_text(ps, 28, t->custom && t->custom[0] ? t->custom : NULL);
	pg_int8(ps, 29, o->expiry_ns);
	pg_text(ps, 30, o->eager.master);
	pg_int8(ps, 31, o->eager.incarnation);
}

static void items(struct pg_batch *b, struct pg_params *ps)
{
	struct walk w = {.b = b};
	int32_t ord = 0;
	for (struct store_insert *o; (o = walk_next(&w));)
		item(ps, ord++, (int32_t)w.unit, o);
}

static bool build_plain(struct pg_batch *b, struct pg_params *ps)
{
	if (keyed(b))
		return false;
	items(b, ps);
	return true;
}

static bool build_keyed(struct pg_batch *b, struct pg_params *ps)
{
	if (!keyed(b))
		return false;
	items(b, ps);
	return true;
}

static bool build_keys(struct pg_batch *b, struct pg_params *ps)
{
	if (!keyed(b))
		return false;
	struct walk w = {.b = b};
	for (struct store_insert *o; (o = walk_next(&w));) {
		if (!o->idempotency_key)
			continue;
		pg_text(ps, 0, o->idempotency_key);
		pg_bytea(ps, 1, o->idempotency_hash, sizeof(o->idempotency_hash));
		pg_uuid(ps, 2, o->task.id.b);
	}
	return true;
}

static bool build_found(struct pg_batch *b, struct pg_params *ps)
{
	if (!keyed(b))
		return false;
	struct walk w = {.b = b};
	int32_t ord = 0;
	for (struct store_insert *o; (o = walk_next(&w));) {
		pg_int4(ps, 0, ord++);
		pg_uuid(ps, 1, o->task.id.b);
		pg_text(ps, 2, o->idempotency_key);
		pg_bytea(ps, 3, o->idempotency_key ? o->idempotency_hash : NULL, sizeof(o->idempotency_hash));
		pg_text(ps, 4, o->eager.worker);
		pg_int8(ps, 5, o->eager.session);
	}
	return true;
}

static int read_nothing(struct pg_batch *b, const PGresult *r) { return 0; }

static int read_plain(struct pg_batch *b, const PGresult *r)
{
	struct walk w = {.b = b};
	int row = 0;
	for (struct store_insert *o; (o = walk_next(&w)); row++) {
		if (row >= PQntuples(r) || pg_get_int(r, row, 0) != row)
			return -EPROTO;
		o->ret_verdict = STORE_INSERT_CREATED;
		o->ret_id = o->task.id;
		o->ret_seq = pg_get_int8(r, row, 1);
		o->ret_given = pg_get_bool(r, row, 2);
	}
	return row == PQntuples(r) ? 0 : -EPROTO;
}

/* The key was held by another group of this batch, which came to nothing: asked again, now that it is free. */
static void again_if_undecided(struct store_insert *first)
{
	bool undecided = false;
	int32_t left = size_of(first);
	for (struct store_insert *o = first; left > 0; o = o->group_next, left--) {
		if (o->ret_verdict == STORE_INSERT_KEY_CONFLICT)
			return;
		undecided |= !o->ret_verdict;
	}
	if (undecided)
		pg_op_again(&first->op);
}

static int read_found(struct pg_batch *b, const PGresult *r)
{
	struct walk w = {.b = b};
	int row = 0;
	for (struct store_insert *o; (o = walk_next(&w)); row++) {
		if (row >= PQntuples(r) || pg_get_int(r, row, 0) != row)
			return -EPROTO;
		o->ret_seq = pg_get_int8(r, row, 1);
		o->ret_id = o->task.id;
		o->ret_given = pg_get_bool(r, row, 4);
		if (!pg_is_null(r, row, 1)) {
			o->ret_verdict = STORE_INSERT_CREATED;
		} else if (pg_is_null(r, row, 2)) {
			o->ret_verdict = 0; /* another of its group had a conflict */
		} else {
			pg_get_uuid(r, row, 2, &o->ret_id);
			o->ret_verdict = pg_get_bool(r, row, 3) ? STORE_INSERT_EXISTS : STORE_INSERT_KEY_CONFLICT;
		}
	}
	for (size_t i = 0; i < b->n; i++)
		again_if_undecided(container_of(b->ops[i], struct store_insert, op));
	return row == PQntuples(r) ? 0 : -EPROTO;
}

const struct pg_stmt pg_insert_stmts[4] = {
	{plain_sql, COLUMNS, build_plain, read_plain},
	{keys_sql, "tyu", build_keys, read_nothing},
	{keyed_sql, COLUMNS, build_keyed, read_nothing},
	{found_sql, "4utyt8", build_found, read_found},
};
