/* MASTER_OPEN: the next incarnation of a master id.  BEAT: it lives, if it is still the one that the row names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

static const char open_sql[] =
	"INSERT INTO master AS m (id, incarnation, beat, beat_at) VALUES (($1::text[])[1], 1, 0, now()) ON CONFLICT (id) "
	"DO UPDATE SET incarnation = m.incarnation + 1, beat = m.beat + 1, beat_at = now() "
	"RETURNING incarnation, (SELECT value FROM meta WHERE key = 'store_id')";

static bool build_open(struct pg_batch *b, struct pg_params *ps)
{
	pg_text(ps, 0, container_of(b->ops[0], struct store_master_open, op)->master);
	return true;
}

static int read_open(struct pg_batch *b, const PGresult *r)
{
	struct store_master_open *o = container_of(b->ops[0], struct store_master_open, op);
	if (PQntuples(r) != 1 || strlen(pg_get_text(r, 0, 1)) != UUID_TEXT_LEN)
		return -EPROTO;
	o->ret_incarnation = pg_get_int8(r, 0, 0);
	snprintf(o->ret_store_id, sizeof(o->ret_store_id), "%s", pg_get_text(r, 0, 1));
	return 0;
}

const struct pg_stmt pg_master_open_stmts[1] = {{open_sql, "t", build_open, read_open}};

static const char beat_sql[] =
	"UPDATE master m SET beat = m.beat + 1, beat_at = now() FROM unnest($1::int4[], $2::text[], $3::int8[]) "
	"AS i(ord, id, incarnation) WHERE m.id = i.id COLLATE \"C\" AND m.incarnation = i.incarnation RETURNING i.ord";

static bool build_beat(struct pg_batch *b, struct pg_params *ps)
{
	for (size_t i = 0; i < b->n; i++) {
		struct store_beat *o = container_of(b->ops[i], struct store_beat, op);
		pg_int4(ps, 0, (int32_t)i);
		pg_text(ps, 1, o->master);
		pg_int8(ps, 2, o->incarnation);
	}
	return true;
}

static int read_beat(struct pg_batch *b, const PGresult *r)
{
	for (size_t i = 0; i < b->n; i++)
		container_of(b->ops[i], struct store_beat, op)->ret_replaced = true;
	for (int row = 0; row < PQntuples(r); row++) {
		int32_t ord = pg_get_int(r, row, 0);
		if (ord < 0 || (size_t)ord >= b->n)
			return -EPROTO;
		container_of(b->ops[ord], struct store_beat, op)->ret_replaced = false;
	}
	return 0;
}

const struct pg_stmt pg_beat_stmts[1] = {{beat_sql, "4t8", build_beat, read_beat}};
