/* Inside of the move: one row travels as a tuple in Postgres's binary COPY form (int16 columns, then each as int32
 * length, -1 for null, and big-endian bytes), made by one side, written by the other, and hashed on both.
 *
 *   move.c         the order of things, the words for people
 *   move_tables.c  which columns go where
 *   move_tuple.c   tuples out of SQLite's rows; digests
 *   move_sqlite.c  reading the source
 *   move_pg.c      writing and reading the target */
#ifndef REINS_MOVE_IMPL_H
#define REINS_MOVE_IMPL_H

#include <libpq-fe.h>

#include "common/base/buf.h"
#include "server/store/sqlite/sq.h"

#define MOVE_REFUSED 64
#define MOVE_UNAVAILABLE 69
#define MOVE_TABLES 11
#define MOVE_TUPLE_MAX ((size_t)256 << 20) /* far above the limits at the door */
#define MOVE_NAME_MAX 300

/* ---- what goes where ---- */

struct move_table {
	const char *name;
	const char *columns; /* of Postgres */
	/* A letter for each: b bool, 2 4 8 integers, f float8, t text, y bytea, u uuid, w time, W time that is never null. */
	const char *kinds;
	const char *select;  /* from SQLite: the same columns in the order of the primary key; ?1: rows to leave out */
	const char *count;
	bool logs;           /* in SQLite's second file */
};
extern const struct move_table move_tables[MOVE_TABLES];

/* ---- tuples ---- */

/* The sum of the rows' hashes: the same whatever their order. */
struct move_digest {
	int64_t rows;
	uint64_t sum[2];
};
void move_digest_add(struct move_digest *d, const void *tuple, size_t len);
bool move_digest_same(const struct move_digest *a, const struct move_digest *b);
/* NULL, or why the row has no form in Postgres. */
const char *move_tuple_make(sqlite3_stmt *q, const char *kinds, struct buf *ret);

/* ---- the two sides ---- */

struct move_error {
	int code; /* MOVE_REFUSED, MOVE_UNAVAILABLE */
	bool stays; /* running it again won't help */
	char text[700];
};
/* Returns -1. */
int move_fail(struct move_error *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

struct move_source {
	char name[MOVE_NAME_MAX]; /* sqlite:PATH, whole */
	struct sq_files files;
	struct sq_db tasks, logs;
	char moved_to[SQ_MOVED_MAX]; /* the mark of an earlier move; "" */
	bool unlabelled; /* see label_old_tasks in the schema for Postgres, which goes on with it */
	/* Grows whenever a master has used the store. */
	char state[80];
	int64_t last_seq;
	/* the table being read */
	const struct move_table *table;
	sqlite3_stmt *rows;
};
/* Keeps masters out until move_source_done, which may be called after a failure too. */
int move_source_open(struct move_source *s, const char *path, struct move_error *e) MUST_CHECK;
void move_source_done(struct move_source *s);
int move_source_count(struct move_source *s, const struct move_table *t, int64_t *ret, struct move_error *e) MUST_CHECK;
int move_source_begin(struct move_source *s, const struct move_table *t, int64_t skip, struct move_error *e) MUST_CHECK;
/* 1: a row; 0: the end. */
int move_source_row(struct move_source *s, struct buf *ret, struct move_error *e) MUST_CHECK;
void move_source_end(struct move_source *s);
/* The mark that keeps masters out of it from now on; the only thing that is written to the source. */
int move_source_mark(struct move_source *s, const char *to, struct move_error *e) MUST_CHECK;
/* The smallest id of a task from `from` on; 0: none. */
int move_source_next_id(struct move_source *s, const struct uuid *from, struct uuid *ret, struct move_error *e) MUST_CHECK;

struct move_target {
	char name[MOVE_NAME_MAX]; /* database and host, without secrets */
	PGconn *pq;
	char store_id[UUID_TEXT_LEN + 1];
};
enum move_begun { MOVE_FRESH = 1, MOVE_GOES_ON, MOVE_ANEW /* the source had changed */, MOVE_DONE_BEFORE };

int move_target_open(struct move_target *t, const char *url, struct move_error *e) MUST_CHECK;
void move_target_done(struct move_target *t);
/* Refuses, or marks the target as being moved into. */
int move_target_begin(struct move_target *t, const struct move_source *s, enum move_begun *ret, struct move_error *e) MUST_CHECK;
/* The partitions of the week of this millisecond. */
int move_target_week(struct move_target *t, int64_t ms, struct move_error *e) MUST_CHECK;
int move_target_copied(struct move_target *t, const struct move_table *table, int64_t *ret, struct move_error *e) MUST_CHECK;
/* A transaction that adds rows to one table and notes how many it holds then. */
int move_target_batch(struct move_target *t, const struct move_table *table, struct move_error *e) MUST_CHECK;
int move_target_row(struct move_target *t, const void *tuple, size_t len, struct move_error *e) MUST_CHECK;
int move_target_commit(struct move_target *t, const struct move_table *table, int64_t copied, struct move_error *e) MUST_CHECK;
/* What is there now. */
int move_target_digest(struct move_target *t, const struct move_table *table, struct move_digest *ret,
		       struct move_error *e) MUST_CHECK;
/* The sequence, the source's id, and the mark away: from here on it is a store. */
int move_target_finish(struct move_target *t, const struct move_source *s, struct move_error *e) MUST_CHECK;

#endif
