/* One SQLite connection, used by one thread.  An error sticks: after one everything here is a no-op that reads as
 * "no row" until sq_db_clear, so that an operation's code reads straight on and its caller looks once.
 *
 * A statement is named by its text, a constant; it is prepared at its first use and kept.  It is bound from the first
 * parameter on, in order, then stepped:
 *
 *	sqlite3_stmt *q = sq_begin(db, text_sql);
 *	sq_bind_uuid(db, &id);
 *	while (sq_row(db, q)) ...
 */
#ifndef REINS_SQ_DB_H
#define REINS_SQ_DB_H

#include <sqlite3.h>

#include "server/store/mem.h"
#include "server/store/store.h"

#define SQ_STMTS 128 /* a power of two, well above the number of statements */

struct sq_db {
	sqlite3 *h;     /* NULL: closed */
	int rc;         /* the error that stuck, extended; 0: none */
	char text[120]; /* its words */
	int param;      /* of the statement being bound */
	sqlite3_stmt *cur;
	struct store_mem *scratch; /* texts that the running operation has read; freed when it has run */
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} stmts[SQ_STMTS];
};

/* Takes the handle, also that of a failed sqlite3_open_v2. */
void sq_db_init(struct sq_db *db, sqlite3 *h);
/* Closes; may be called twice. */
void sq_db_done(struct sq_db *db);
void sq_db_clear(struct sq_db *db);
/* For what SQLite doesn't know to be an error: the content can't be stored. */
void sq_db_refuse(struct sq_db *db, const char *text);
void sq_db_no_memory(struct sq_db *db);
/* One or more statements without parameters or rows, not kept. */
void sq_exec(struct sq_db *db, const char *sql);

/* `sql` must be a constant: it is known again by its address. NULL after an error. */
sqlite3_stmt *sq_begin(struct sq_db *db, const char *sql);
void sq_bind_int(struct sq_db *db, int64_t v);
void sq_bind_int_or_null(struct sq_db *db, int64_t v); /* 0: null */
void sq_bind_optional(struct sq_db *db, bool has, int64_t v);
void sq_bind_double(struct sq_db *db, double v);
void sq_bind_null(struct sq_db *db);
/* Bytes and texts must live until the statement was stepped to its end. NULL: null. */
void sq_bind_text(struct sq_db *db, const char *s);
void sq_bind_bytes(struct sq_db *db, const void *data, size_t len);
void sq_bind_blob(struct sq_db *db, const struct blob *b);
void sq_bind_uuid(struct sq_db *db, const struct uuid *id);
/* A row? After the last one, and after an error, the statement is reset. */
bool sq_row(struct sq_db *db, sqlite3_stmt *q);
/* Leaves the other rows out. NULL-safe. */
void sq_end(sqlite3_stmt *q);
/* Steps a statement that returns no rows; the number of rows that it changed. */
int64_t sq_run(struct sq_db *db, sqlite3_stmt *q);

static inline int64_t sq_int(sqlite3_stmt *q, int col) { return sqlite3_column_int64(q, col); }
static inline bool sq_is_null(sqlite3_stmt *q, int col) { return sqlite3_column_type(q, col) == SQLITE_NULL; }
void sq_uuid(sqlite3_stmt *q, int col, struct uuid *ret);
/* "" for null; until the statement goes on. */
const char *sq_text(sqlite3_stmt *q, int col);
/* Copies of short ones; NULL for null. */
char *sq_text_copy(sqlite3_stmt *q, int col, struct store_mem **mem);
/* Bytes and arrays may be large: none without memory, which sticks. */
struct store_bytes sq_bytes_copy(struct sq_db *db, sqlite3_stmt *q, int col, struct store_mem **mem);
void *sq_mem(struct sq_db *db, struct store_mem **mem, size_t size);
/* A copy in the scratch memory; NULL for null. */
char *sq_text_scratch(struct sq_db *db, sqlite3_stmt *q, int col);
void sq_scratch_free(struct sq_db *db);
/* NULL for null, and without memory, which sticks. */
struct blob *sq_blob(struct sq_db *db, sqlite3_stmt *q, int col);

/* In a transaction: labels of at most so many older tasks, for about so long, until none is left (sq_label.c). */
void sq_label_some(struct sq_db *db, int64_t most, int64_t within_ns);

/* ---- the columns that the narrow tables share, in this order ---- */

#define SQ_CORE_COLUMNS 18
#define SQ_CORE_LOSSES 5 /* that one's place */
#define SQ_CORE_OF(x)                                                                                                  \
	x "task_id, " x "seq, " x "neg_priority, " x "attempt, " x "failures, " x "losses, " x "cpu, " x "memory, " x       \
	  "gpus, " x "exclusive, " x "lease_ttl_ns, " x "max_attempts, " x "backoff_initial_ns, " x "backoff_max_ns, " x \
	  "backoff_multiplier, " x "queue, " x "handler, " x "custom"
#define SQ_CORE SQ_CORE_OF("")
/* Out of a row of `task`, with the counts given. */
#define SQ_TASK_CORE_OF(x, attempt, failures, losses)                                                                    \
	x "id, " x "seq, " x "neg_priority, " attempt ", " failures ", " losses ", " x "cpu, " x "memory, " x "gpus, " x        \
	  "exclusive, " x "lease_ttl_ns, " x "max_attempts, " x "backoff_initial_ns, " x "backoff_max_ns, " x              \
	  "backoff_multiplier, " x "queue, " x "handler, " x "custom"
#define SQ_CORE_MARKS "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?"

struct sq_core {
	struct core_task task; /* its texts are the arrays below */
	int32_t losses;
	int64_t expires_us;    /* of ready and delayed rows, whose own columns it is read from; 0: null */
	char queue[CORE_NAME_MAX + 1], handler[CORE_NAME_MAX + 1], custom[CORE_CUSTOM_MAX + 1];
};
void sq_core_read(sqlite3_stmt *q, int col, struct sq_core *ret);
/* After it was moved in memory. */
void sq_core_moved(struct sq_core *c);
/* The same without losses; the texts are those of the statement, until it goes on. */
void sq_core_read_task(sqlite3_stmt *q, int col, struct core_task *ret);
void sq_core_bind(struct sq_db *db, const struct sq_core *c);

#endif
