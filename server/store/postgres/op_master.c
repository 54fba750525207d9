/* MASTER_OPEN: the next incarnation of a master id.  BEAT: it lives, if it is still the one that the row names.
 * TAKE_OVER: it does not, says another, and raises its incarnation so that it hears of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char open_sql[] =
	"INSERT INTO master AS m (id, incarnation, beat, beat_at, process) SELECT id, 1, 0, now(), process FROM "
	"unnest($1::text[], $2::uuid[], $3::bool[]) AS i(id, process, again) ON CONFLICT (id) DO UPDATE SET "
	"incarnation = m.incarnation + 1, beat = m.beat + 1, beat_at = now(), process = excluded.process "
	"WHERE NOT ($3::bool[])[1] OR m.process = excluded.process "
	"RETURNING incarnation, (SELECT value FROM meta WHERE key = 'store_id')";

static bool build_open(struct pg_batch *b, struct pg_params *ps)
{
	const struct store_master_open *o = container_of(b->ops[0], struct store_master_open, op);
	pg_text(ps, 0, o->master);
	pg_uuid(ps, 1, o->process.b);
	pg_bool(ps, 2, o->again);
	return true;
}

static int read_open(struct pg_batch *b, const PGresult *r)
{
	struct store_master_open *o = container_of(b->ops[0], struct store_master_open, op);
	o->ret_replaced = PQntuples(r) == 0;
	if (o->ret_replaced)
		return o->again ? 0 : -EPROTO;
	if (PQntuples(r) != 1 || strlen(pg_get_text(r, 0, 1)) != UUID_TEXT_LEN)
		return -EPROTO;
	o->ret_incarnation = pg_get_int8(r, 0, 0);
	snprintf(o->ret_store_id, sizeof(o->ret_store_id), "%s", pg_get_text(r, 0, 1));
	return 0;
}

const struct pg_stmt pg_master_open_stmts[1] = {{open_sql, "tub", build_open, read_open}};

/* What the two others say of each of their rows; AGAIN: somebody changed it between snapshot and lock. */
enum said { DONE, OTHER_INCARNATION, OTHER_PROCESS, AGAIN };
#define ROW_OF_I "LEFT JOIN LATERAL (SELECT m.* FROM master m WHERE m.id = i.id COLLATE \"C\" OFFSET 0) m ON true"

static const char beat_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::uuid[]) AS i(ord, id, incarnation, process)), "
	"u AS (UPDATE master m SET beat = m.beat + 1, beat_at = now() FROM i WHERE m.id = i.id COLLATE \"C\" AND "
	"m.incarnation = i.incarnation RETURNING i.ord) "
	"SELECT i.ord, CASE WHEN u.ord IS NOT NULL THEN 0 WHEN m.incarnation = i.incarnation THEN 3 "
	"WHEN m.id IS NULL OR m.process = i.process THEN 1 ELSE 2 END FROM i LEFT JOIN u ON u.ord = i.ord " ROW_OF_I;

static bool build_beat(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_beat *o = container_of(b->ops[i], struct store_beat, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, o->master);
		pg_int8(ps, 2, o->incarnation);
		pg_uuid(ps, 3, o->process.b);
	}
	return true;
}

static int read_beat(struct pg_batch *b, const PGresult *r)
{
	if ((size_t)PQntuples(r) != b->n)
		return -EPROTO;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0), said = pg_get_int(r, row, 1);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		struct store_beat *o = container_of(b->ops[ord], struct store_beat, op);
		o->ret_replaced = said == OTHER_PROCESS;
		o->ret_taken_over = said == OTHER_INCARNATION;
		if (said == AGAIN)
			pg_op_again(&o->op);
	}
	return 0;
}

const struct pg_stmt pg_beat_stmts[1] = {{beat_sql, "4t8u", build_beat, read_beat}};

/* Its own second run, and another master that was faster, find what was to be done: the beat as it was seen, and a later
 * incarnation. */
static const char take_over_sql[] =
	"WITH i AS MATERIALIZED (SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[]) AS i(ord, id, incarnation, beat)), "
	"u AS (UPDATE master m SET incarnation = m.incarnation + 1 FROM i WHERE m.id = i.id COLLATE \"C\" AND "
	"m.incarnation = i.incarnation AND m.beat = i.beat RETURNING i.ord, m.incarnation) "
	"SELECT i.ord, CASE WHEN u.ord IS NOT NULL OR (m.beat = i.beat AND m.incarnation > i.incarnation) THEN 0 "
	"WHEN m.beat = i.beat AND m.incarnation = i.incarnation THEN 3 ELSE 1 END, coalesce(u.incarnation, m.incarnation) "
	"FROM i LEFT JOIN u ON u.ord = i.ord " ROW_OF_I;

static bool build_take_over(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_take_over *o = container_of(b->ops[i], struct store_take_over, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, o->master);
		pg_int8(ps, 2, o->incarnation);
		pg_int8(ps, 3, o->beat);
	}
	return true;
}

static int read_take_over(struct pg_batch *b, const PGresult *r)
{
	if ((size_t)PQntuples(r) != b->n)
		return -EPROTO;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0), said = pg_get_int(r, row, 1);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		struct store_take_over *o = container_of(b->ops[ord], struct store_take_over, op);
		o->ret_taken = said == DONE;
		o->ret_incarnation = pg_get_int8(r, row, 2);
		if (said == AGAIN)
			pg_op_again(&o->op);
	}
	return 0;
}

const struct pg_stmt pg_take_over_stmts[1] = {{take_over_sql, "4t88", build_take_over, read_take_over}};
