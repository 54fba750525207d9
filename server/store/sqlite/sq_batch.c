/* One transaction for many operations.
 *
 * Savepoints cost copies of pages, so the first run has none: what can go wrong with one operation's content is
 * rare, and then all is rolled back and run again, each in a savepoint.
 *
 * A commit that fails while it syncs has its frames in the write-ahead log, complete but unseen: a crash now would
 * bring them back, the next commit writes over them.  So such a batch is answered only after the next commit. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq.h"

#define CHECKPOINT_PAGES 4000    /* 16 MiB */
#define CHECKPOINT_HARD_PAGES 32000 /* then readers are waited for, so that the log begins anew */

static const char begin_sql[] = "BEGIN IMMEDIATE", commit_sql[] = "COMMIT", rollback_sql[] = "ROLLBACK";
static const char read_sql[] = "BEGIN", read_end_sql[] = "COMMIT";
static const char savepoint_sql[] = "SAVEPOINT one", release_sql[] = "RELEASE one", undo_sql[] = "ROLLBACK TO one";

static void step(struct sq_db *db, const char *sql) { sq_run(db, sq_begin(db, sql)); }

static struct store_op *op_of(struct list *n) { return container_of(n, struct store_op, node); }

void sq_op_fail(struct store_op *op, enum store_result result, const char *text)
{
	op->result = result;
	op->maybe_done = op->no_memory = false;
	snprintf(op->text, sizeof(op->text), "%s", text);
}

void sq_ops_fail(struct list *ops, enum store_result result, const char *text)
{
	list_each(it, ops)
		sq_op_fail(op_of(it), result, text);
}

/* ---- what an error means ---- */

static bool is_content(int rc)
{
	return (rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_TOOBIG || (rc & 0xff) == SQLITE_MISMATCH;
}

/* Not the file's or the machine's: one operation's, or a bug in its statements. */
static bool is_ones_own(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_ERROR:
	case SQLITE_MISUSE:
	case SQLITE_RANGE:
	case SQLITE_INTERNAL:
	case SQLITE_NOMEM: /* of the others some may fit */
		return true;
	default:
		return is_content(rc);
	}
}

static struct sq_db *failed(struct sq_batch *b)
{
	return b->writes->rc ? b->writes : b->x->db.rc ? &b->x->db : NULL;
}

static void clear(struct sq_batch *b)
{
	sq_db_clear(b->writes);
	sq_db_clear(&b->x->db);
}

static bool reads_beside(const struct sq_batch *b) { return b->writes != &b->x->db; }

/* What was read for answers that are void now goes too. */
static void roll_back(struct sq_batch *b, struct list *ops)
{
	clear(b);
	/* SQLite has rolled back by itself after some errors. */
	if (!sqlite3_get_autocommit(b->writes->h))
		step(b->writes, rollback_sql);
	if (reads_beside(b) && !sqlite3_get_autocommit(b->x->db.h))
		step(&b->x->db, rollback_sql);
	clear(b);
	list_each(it, ops)
		store_op_done_fields(op_of(it));
	b->x->room.bytes = b->x->room.committed;
	buf_clear(&b->x->changes);
	memset(&b->x->room.cursor, 0, sizeof(b->x->room.cursor));
}

static enum sq_fate away(struct sq_batch *b, struct list *ops, enum sq_fate fate)
{
	struct sq_db *db = failed(b);
	if (db)
		b->down = sq_meaning(db, b->text, sizeof(b->text));
	roll_back(b, ops);
	return fate;
}

/* ---- one operation ---- */

static void run_one(struct sq_batch *b, struct store_op *op)
{
	op->result = STORE_OK;
	op->maybe_done = op->no_memory = false;
	op->text[0] = '\0';
	sq_kinds[op->kind].run(b->x, op);
	sq_scratch_free(&b->x->db);
}

/* False: what failed is not the operation's own. */
static bool run_in_savepoint(struct sq_batch *b, struct store_op *op)
{
	size_t changes = buf_len(&b->x->changes);
	step(b->writes, savepoint_sql);
	if (failed(b))
		return false;
	run_one(b, op);
	struct sq_db *db = failed(b);
	if (!db) {
		step(b->writes, release_sql);
		return !failed(b);
	}
	if (!is_ones_own(db->rc) || sqlite3_get_autocommit(b->writes->h))
		return false;
	char text[sizeof(db->text)];
	enum store_result result = is_content(db->rc) ? STORE_REFUSED : STORE_UNAVAILABLE;
	bool no_memory = (db->rc & 0xff) == SQLITE_NOMEM;
	memcpy(text, db->text, sizeof(text));
	clear(b);
	step(b->writes, undo_sql);
	step(b->writes, release_sql);
	store_op_done_fields(op);
	b->x->changes.len = changes;
	sq_op_fail(op, result, text);
	op->no_memory = no_memory;
	return !failed(b);
}

/* An outcome that can't be stored whole is recorded without result and text, and says so. */
static bool run_stripped(struct sq_batch *b, struct store_op *op)
{
	char note[sizeof(op->text) + 80];
	snprintf(note, sizeof(note), "recorded without result and text, which the store refused: %s", op->text);
	b->x->note = note;
	bool ok = run_in_savepoint(b, op);
	b->x->note = NULL;
	return ok;
}

static bool run_alone(struct sq_batch *b, struct store_op *op)
{
	int64_t bytes = b->x->room.bytes;
	if (!run_in_savepoint(b, op))
		return false;
	if (op->result == STORE_REFUSED && op->kind == STORE_RECORD)
		return run_stripped(b, op);
	if (op->result != STORE_OK)
		b->x->room.bytes = bytes;
	return true;
}

/* ---- the batch ---- */

static void begin(struct sq_batch *b)
{
	step(b->writes, begin_sql);
	if (reads_beside(b))
		step(&b->x->db, read_sql);
}

static bool run_all(struct sq_batch *b, struct list *ops, bool alone)
{
	list_each(it, ops) {
		if (!alone)
			run_one(b, op_of(it));
		else if (!run_alone(b, op_of(it)))
			return false;
		if (failed(b))
			return false;
	}
	return true;
}

enum sq_fate sq_batch_run(struct sq_batch *b, struct list *ops)
{
	b->down = SQ_AGAIN;
	clear(b);
	begin(b);
	if (!failed(b) && !run_all(b, ops, false) && is_ones_own(failed(b)->rc)) {
		roll_back(b, ops);
		begin(b);
		if (!failed(b))
			run_all(b, ops, true);
	}
	if (failed(b))
		return away(b, ops, SQ_AWAY);
	if (b->before_commit && !b->before_commit(b->arg, b->x))
		return away(b, ops, SQ_AWAY);
	if (reads_beside(b))
		step(&b->x->db, read_end_sql);
	step(b->writes, commit_sql);
	if (failed(b))
		return away(b, ops, (b->writes->rc & 0xff) == SQLITE_FULL ? SQ_AWAY : SQ_UNSETTLED);
	b->x->room.committed = b->x->room.bytes;
	return SQ_DONE;
}

/* ---- the write-ahead log ---- */

static int on_wal(void *arg, sqlite3 *h, const char *db, int pages)
{
	((struct sq_wal *)arg)->pages = pages;
	return SQLITE_OK;
}

void sq_wal_watch(struct sq_wal *w, struct sq_db *db)
{
	*w = (struct sq_wal){.hard_at = CHECKPOINT_HARD_PAGES};
	sqlite3_wal_hook(db->h, on_wal, w);
}

void sq_wal_checkpoint(struct sq_wal *w, struct sq_db *db)
{
	if (w->pages < CHECKPOINT_PAGES)
		return;
	int log = 0, copied = 0;
	bool hard = w->pages >= w->hard_at;
	int rc = sqlite3_wal_checkpoint_v2(db->h, "main", hard ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, &log, &copied);
	/* One that fails is tried again after the next commit; what it would have copied is safe where it is. */
	bool whole = rc == SQLITE_OK && log == copied;
	if (hard)
		w->hard_at = whole ? CHECKPOINT_HARD_PAGES : w->pages + CHECKPOINT_HARD_PAGES / 4;
	if (whole)
		w->pages = 0;
}
