/* MASTER_OPEN: the next incarnation of a master id.  BEAT: it lives, if it is still the one that the row names. */
#include <stdio.h>

#include "server/store/sqlite/sq.h"

static const char open_sql[] =
	"INSERT INTO master (id, incarnation, beat, beat_us) VALUES (?, 1, 0, ?) ON CONFLICT (id) DO UPDATE SET "
	"incarnation = incarnation + 1, beat = beat + 1, beat_us = excluded.beat_us";
static const char get_sql[] =
	"SELECT m.incarnation, (SELECT value FROM meta WHERE key = 'store_id') FROM master m WHERE m.id = ?";
static const char beat_sql[] = "UPDATE master SET beat = beat + 1, beat_us = ? WHERE id = ? AND incarnation = ?";

void sq_master_open_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_master_open *o = container_of(op, struct store_master_open, op);
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, open_sql);
	sq_bind_text(db, o->master);
	sq_bind_int(db, x->now_wall_us);
	sq_run(db, q);
	q = sq_begin(db, get_sql);
	sq_bind_text(db, o->master);
	if (sq_row(db, q)) {
		o->ret_incarnation = sq_int(q, 0);
		snprintf(o->ret_store_id, sizeof(o->ret_store_id), "%s", sq_text(q, 1));
		sq_end(q);
	}
}

void sq_beat_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_beat *o = container_of(op, struct store_beat, op);
	sqlite3_stmt *q = sq_begin(&x->db, beat_sql);
	sq_bind_int(&x->db, x->now_wall_us);
	sq_bind_text(&x->db, o->master);
	sq_bind_int(&x->db, o->incarnation);
	o->ret_replaced = sq_run(&x->db, q) == 0;
}
