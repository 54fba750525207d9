/* The source: both files of a SQLite store, each in one read transaction; at the end the mark. */
#include <stdio.h>
#include <string.h>

#include "server/move/move_impl.h"

static const char state_sql[] =
	"SELECT coalesce(sum(incarnation), 0) || '.' || coalesce(sum(beat), 0), (SELECT coalesce(max(seq), 0) FROM task) FROM master";
static const char next_sql[] = "SELECT id FROM task WHERE id >= ?1 ORDER BY id LIMIT 1";

static const char unlabelled_sql[] = "SELECT 1 FROM meta WHERE key = 'unlabelled_below'";

static struct sq_db *db_of(struct move_source *s, const struct move_table *t) { return t->logs ? &s->logs : &s->tasks; }

static int fail(struct move_source *s, const struct sq_db *db, struct move_error *e)
{
	char text[200];
	sq_meaning(db, text, sizeof(text));
	return move_fail(e, MOVE_UNAVAILABLE, "%s", text);
}

int move_source_open(struct move_source *s, const char *path, struct move_error *e)
{
	char text[200];
	*s = (struct move_source){.files = {.lock_fd = -1}};
	enum sq_down down = sq_open_to_read(path, &s->files, &s->tasks, &s->logs, text, sizeof(text));
	if (down != SQ_OK)
		return move_fail(e, down >= SQ_STAYS ? MOVE_REFUSED : MOVE_UNAVAILABLE, "%s", text);
	snprintf(s->name, sizeof(s->name), "sqlite:%.280s", s->files.path);
	sq_run(&s->tasks, sq_begin(&s->tasks, "BEGIN"));
	if (s->logs.h)
		sq_run(&s->logs, sq_begin(&s->logs, "BEGIN"));
	sqlite3_stmt *q = sq_begin(&s->tasks, state_sql);
	if (sq_row(&s->tasks, q)) {
		s->last_seq = sq_int(q, 1);
		snprintf(s->state, sizeof(s->state), "%.50s.%lld", sq_text(q, 0), (long long)s->last_seq);
		sq_end(q);
	}
	sq_moved_get(&s->tasks, s->moved_to);
	q = sq_begin(&s->tasks, unlabelled_sql);
	s->unlabelled = sq_row(&s->tasks, q);
	sq_end(q);
	return s->tasks.rc ? fail(s, &s->tasks, e) : s->logs.rc ? fail(s, &s->logs, e) : 0;
}

void move_source_done(struct move_source *s)
{
	sq_db_done(&s->tasks);
	sq_db_done(&s->logs);
	sq_files_done(&s->files);
}

int move_source_count(struct move_source *s, const struct move_table *t, int64_t *ret, struct move_error *e)
{
	struct sq_db *db = db_of(s, t);
	*ret = 0;
	if (!db->h)
		return 0;
	sqlite3_stmt *q = sq_begin(db, t->count);
	if (sq_row(db, q)) {
		*ret = sq_int(q, 0);
		sq_end(q);
	}
	return db->rc ? fail(s, db, e) : 0;
}

int move_source_begin(struct move_source *s, const struct move_table *t, int64_t skip, struct move_error *e)
{
	struct sq_db *db = db_of(s, t);
	s->table = t;
	s->rows = NULL;
	if (!db->h)
		return 0;
	s->rows = sq_begin(db, t->select);
	sq_bind_int(db, skip);
	return db->rc ? fail(s, db, e) : 0;
}

int move_source_row(struct move_source *s, struct buf *ret, struct move_error *e)
{
	struct sq_db *db = db_of(s, s->table);
	if (!db->h)
		return 0;
	if (!sq_row(db, s->rows))
		return db->rc ? fail(s, db, e) : 0;
	const char *why = move_tuple_make(s->rows, s->table->kinds, ret);
	return why ? move_fail(e, MOVE_UNAVAILABLE, "%s: a row of %s can't be moved: %s", s->name, s->table->name, why) : 1;
}

void move_source_end(struct move_source *s)
{
	sq_end(s->rows);
	s->rows = NULL;
}

int move_source_mark(struct move_source *s, const char *to, struct move_error *e)
{
	struct sq_db db;
	/* What was read has been read: the snapshot would keep the mark in the write-ahead log. */
	sq_db_done(&s->tasks);
	int rc = sq_open_more(&s->files, false, false, &db);
	if (rc == 0)
		sq_moved_set(&db, to);
	rc = db.rc ? fail(s, &db, e) : 0;
	sq_db_done(&db);
	return rc;
}

int move_source_next_id(struct move_source *s, const struct uuid *from, struct uuid *ret, struct move_error *e)
{
	struct sq_db *db = &s->tasks;
	int found = 0;
	sqlite3_stmt *q = sq_begin(db, next_sql);
	sq_bind_uuid(db, from);
	if (sq_row(db, q)) {
		sq_uuid(q, 0, ret);
		sq_end(q);
		found = 1;
	}
	return db->rc ? fail(s, db, e) : found;
}
