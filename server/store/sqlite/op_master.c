/* MASTER_OPEN: the next incarnation of a master id.  BEAT: it lives, if it is still the one that the row names.
 * TAKE_OVER: it does not, says another.  A file has one master at a time; the rules are those of any store all the same. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq.h"

#define LABEL_SOME 2000 /* tasks with each beat */
#define LABEL_TIME (20 * NS_PER_MS)

static const char open_sql[] =
	"INSERT INTO master (id, incarnation, beat, beat_us, process) VALUES (?1, 1, 0, ?2, ?3) ON CONFLICT (id) DO UPDATE SET "
	"incarnation = incarnation + 1, beat = beat + 1, beat_us = excluded.beat_us, process = excluded.process "
	"WHERE NOT ?4 OR process = excluded.process";
static const char get_sql[] =
	"SELECT m.incarnation, (SELECT value FROM meta WHERE key = 'store_id') FROM master m WHERE m.id = ?";
static const char beat_sql[] = "UPDATE master SET beat = beat + 1, beat_us = ? WHERE id = ? AND incarnation = ?";
static const char row_sql[] = "SELECT incarnation, beat, process FROM master WHERE id = ?";
static const char take_over_sql[] = "UPDATE master SET incarnation = incarnation + 1 WHERE id = ? AND incarnation = ? AND beat = ?";

void sq_master_open_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_master_open *o = container_of(op, struct store_master_open, op);
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, open_sql);
	sq_bind_text(db, o->master);
	sq_bind_int(db, x->now_wall_us);
	sq_bind_uuid(db, &o->process);
	sq_bind_int(db, o->again);
	o->ret_replaced = sq_run(db, q) == 0;
	if (o->ret_replaced)
		return;
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
	bool beaten = sq_run(&x->db, q) > 0;
	o->ret_replaced = o->ret_taken_over = false;
	if (beaten) {
		sq_label_some(&x->db, LABEL_SOME, LABEL_TIME);
		return;
	}
	q = sq_begin(&x->db, row_sql);
	sq_bind_text(&x->db, o->master);
	o->ret_taken_over = true;
	if (sq_row(&x->db, q)) {
		const void *process = sqlite3_column_blob(q, 2);
		o->ret_replaced = !process || sqlite3_column_bytes(q, 2) != (int)sizeof(o->process.b) ||
				  memcmp(process, o->process.b, sizeof(o->process.b)) != 0;
		o->ret_taken_over = !o->ret_replaced;
		sq_end(q);
	}
}

void sq_take_over_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_take_over *o = container_of(op, struct store_take_over, op);
	sqlite3_stmt *q = sq_begin(&x->db, take_over_sql);
	sq_bind_text(&x->db, o->master);
	sq_bind_int(&x->db, o->incarnation);
	sq_bind_int(&x->db, o->beat);
	sq_run(&x->db, q);
	o->ret_taken = false;
	o->ret_incarnation = 0;
	q = sq_begin(&x->db, row_sql);
	sq_bind_text(&x->db, o->master);
	if (sq_row(&x->db, q)) {
		o->ret_incarnation = sq_int(q, 0);
		o->ret_taken = sq_int(q, 1) == o->beat && o->ret_incarnation > o->incarnation;
		sq_end(q);
	}
}
