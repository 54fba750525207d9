/* The two schemas and their migrations; a file's version is its user_version.
 *
 * Tasks: a task is one row of `task`, written once and never changed, and is in exactly one of `ready`, `delayed`
 * (both PENDING), `running` and `ended` (its state is there), as in the schema for Postgres.  The sequence is
 * the rowid of `task`, so that tasks lie on the disk in the order of their submission and wide rows
 * beside each other; ids grow with it, which keeps the index on them dense.  Retention must leave the row
 * with the highest seq alone: the next one is counted from it. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "server/store/sqlite/sq.h"

#define LABEL_FIRST 5000 /* tasks: all of a small store's at once, a large one's later */

#define POLICY                                                                                                \
	"cpu INTEGER NOT NULL, memory INTEGER NOT NULL, gpus INTEGER NOT NULL, exclusive INTEGER NOT NULL, "    \
	"lease_ttl_ns INTEGER, max_attempts INTEGER, backoff_initial_ns INTEGER, backoff_max_ns INTEGER, "       \
	"backoff_multiplier REAL, queue TEXT NOT NULL"
#define NARROW                                                                                                 \
	"seq INTEGER NOT NULL, neg_priority INTEGER NOT NULL, attempt INTEGER NOT NULL, failures INTEGER NOT NULL, " \
	"losses INTEGER NOT NULL, " POLICY

static const char tasks_1[] =
	"CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE task (seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, created_us INTEGER NOT NULL, run_at_us INTEGER, "
	"neg_priority INTEGER NOT NULL, " POLICY ", name TEXT, owner TEXT, idempotency_key TEXT, labels BLOB, list_spec BLOB, "
	"spec BLOB NOT NULL) STRICT;"
	/* open_worker: the worker of attempt `attempt`, which was taken back and is open */
	"CREATE TABLE ready (task_id BLOB NOT NULL, " NARROW ", open_worker TEXT, PRIMARY KEY (queue, neg_priority, seq)) "
	"STRICT, WITHOUT ROWID;"
	"CREATE TABLE delayed (task_id BLOB NOT NULL PRIMARY KEY, " NARROW ", due_us INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE INDEX delayed_due ON delayed (due_us);"
	"CREATE TABLE running (task_id BLOB NOT NULL PRIMARY KEY, " NARROW ", worker TEXT NOT NULL, instance BLOB NOT NULL, "
	"session INTEGER NOT NULL, lease_ns INTEGER NOT NULL, dispatched_us INTEGER NOT NULL, started_us INTEGER, "
	"cancel_us INTEGER) STRICT, WITHOUT ROWID;"
	"CREATE INDEX running_worker ON running (worker);"
	/* worker null: cancelled before any attempt, or between two */
	"CREATE TABLE ended (seq INTEGER PRIMARY KEY, task_id BLOB NOT NULL, state INTEGER NOT NULL, outcome INTEGER NOT NULL, "
	"attempt INTEGER NOT NULL, failures INTEGER NOT NULL, losses INTEGER NOT NULL, reported INTEGER NOT NULL, "
	"dispatched_us INTEGER, started_us INTEGER, finished_us INTEGER NOT NULL, cancel_us INTEGER, exit_code INTEGER, "
	"signal INTEGER, log_end INTEGER NOT NULL, result_too_large INTEGER, worker TEXT, error BLOB, result BLOB) STRICT;"
	"CREATE INDEX ended_badly ON ended (task_id) WHERE state <> 3;"
	/* Attempts that were not the last.  counted: in `losses`, and taken out of it when the attempt is adopted. */
	"CREATE TABLE attempt (task_id BLOB NOT NULL, attempt INTEGER NOT NULL, outcome INTEGER NOT NULL, "
	"reported INTEGER NOT NULL, counted INTEGER NOT NULL, lease_ns INTEGER NOT NULL, dispatched_us INTEGER NOT NULL, "
	"started_us INTEGER, finished_us INTEGER NOT NULL, exit_code INTEGER, signal INTEGER, log_end INTEGER NOT NULL, "
	"worker TEXT NOT NULL, error BLOB, PRIMARY KEY (task_id, attempt)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE idempotency (key TEXT NOT NULL PRIMARY KEY, task_id BLOB NOT NULL, hash BLOB NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE worker (id TEXT NOT NULL PRIMARY KEY, instance BLOB NOT NULL, session INTEGER NOT NULL, "
	"opened_us INTEGER NOT NULL, master TEXT NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE master (id TEXT NOT NULL PRIMARY KEY, incarnation INTEGER NOT NULL, beat INTEGER NOT NULL, "
	"beat_us INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

static const char logs_1[] =
	"CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE TABLE log (task_id BLOB NOT NULL, attempt INTEGER NOT NULL, off INTEGER NOT NULL, stream INTEGER NOT NULL, "
	"data BLOB NOT NULL, UNIQUE (task_id, attempt, off)) STRICT;"
	"CREATE TABLE log_task (task_id BLOB NOT NULL PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"INSERT INTO meta VALUES ('bytes', 0);";

/* Columns as in the schema for Postgres, version 2. */
static const char tasks_2[] =
	"ALTER TABLE task ADD COLUMN handler TEXT; ALTER TABLE task ADD COLUMN custom TEXT; ALTER TABLE task ADD COLUMN expires_us INTEGER;"
	"ALTER TABLE ready ADD COLUMN handler TEXT; ALTER TABLE ready ADD COLUMN custom TEXT; ALTER TABLE ready ADD COLUMN expires_us INTEGER;"
	"ALTER TABLE delayed ADD COLUMN handler TEXT; ALTER TABLE delayed ADD COLUMN custom TEXT; ALTER TABLE delayed ADD COLUMN expires_us INTEGER;"
	"ALTER TABLE running ADD COLUMN handler TEXT; ALTER TABLE running ADD COLUMN custom TEXT;"
	"CREATE INDEX ready_expires ON ready (expires_us) WHERE expires_us IS NOT NULL;"
	"CREATE INDEX delayed_expires ON delayed (expires_us) WHERE expires_us IS NOT NULL;"
	"ALTER TABLE running ADD COLUMN devices TEXT; ALTER TABLE running ADD COLUMN cause TEXT;"
	"ALTER TABLE attempt ADD COLUMN instance BLOB; ALTER TABLE attempt ADD COLUMN session INTEGER;"
	"ALTER TABLE attempt ADD COLUMN devices TEXT; ALTER TABLE attempt ADD COLUMN log_dropped INTEGER;"
	"ALTER TABLE attempt ADD COLUMN cause TEXT; ALTER TABLE attempt ADD COLUMN oom_killed INTEGER;"
	"ALTER TABLE ended ADD COLUMN instance BLOB; ALTER TABLE ended ADD COLUMN session INTEGER;"
	"ALTER TABLE ended ADD COLUMN lease_ns INTEGER; ALTER TABLE ended ADD COLUMN devices TEXT;"
	"ALTER TABLE ended ADD COLUMN log_dropped INTEGER; ALTER TABLE ended ADD COLUMN cause TEXT;"
	"ALTER TABLE ended ADD COLUMN oom_killed INTEGER;"
	"ALTER TABLE worker ADD COLUMN info BLOB; ALTER TABLE worker ADD COLUMN drain_mode INTEGER;"
	"ALTER TABLE worker ADD COLUMN drain_within_ns INTEGER; ALTER TABLE worker ADD COLUMN drain_reason TEXT;"
	"ALTER TABLE worker ADD COLUMN heard_us INTEGER; ALTER TABLE worker ADD COLUMN detached_us INTEGER;";

/* A row of `log` with `dropped` is a gap of so many bytes.  Metrics lie beside the logs: much, and not needed to schedule. */
static const char logs_2[] =
	"ALTER TABLE log ADD COLUMN dropped INTEGER;"
	"CREATE INDEX log_gap ON log (task_id, attempt) WHERE dropped IS NOT NULL;"
	"CREATE TABLE metric (task_id BLOB NOT NULL, attempt INTEGER NOT NULL, number INTEGER NOT NULL, point BLOB NOT NULL, "
	"PRIMARY KEY (task_id, attempt, number)) STRICT, WITHOUT ROWID;";

/* As in the schema for Postgres, version 3. */
static const char tasks_3[] =
	"ALTER TABLE master ADD COLUMN process BLOB;"
	"ALTER TABLE worker ADD COLUMN hello INTEGER NOT NULL DEFAULT 0;";

/* As in the schema for Postgres, version 4; a row for each transaction, of one stream. */
static const char tasks_4[] =
	"CREATE TABLE event (number INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, changes BLOB NOT NULL) STRICT;";

/* As in the schema for Postgres, version 5. */
static const char tasks_5[] =
	"CREATE INDEX task_queue ON task (queue, id);"
	"CREATE INDEX task_name ON task (name, id) WHERE name IS NOT NULL;"
	"CREATE INDEX delayed_queue ON delayed (queue);"
	"CREATE TABLE queue (name TEXT NOT NULL PRIMARY KEY, paused_us INTEGER, reason TEXT) STRICT, WITHOUT ROWID;"
	"CREATE INDEX queue_paused ON queue (name) WHERE paused_us IS NOT NULL;";

/* As in the schema for Postgres, version 6: sq_label.c. */
static const char tasks_6[] = "INSERT INTO meta SELECT 'unlabelled_below', seq + 1 FROM task ORDER BY seq DESC LIMIT 1;";

struct schema {
	int64_t application_id;
	int n;
	const char *migrations[6];
};
static const struct schema schemas[2] = {{SQ_TASKS_ID, 6, {tasks_1, tasks_2, tasks_3, tasks_4, tasks_5, tasks_6}}, {SQ_LOGS_ID, 2, {logs_1, logs_2}}};

const char *sq_schema_script(bool logs, int from) { return schemas[logs].migrations[from]; }

static int64_t ask(struct sq_db *db, const char *sql)
{
	int64_t v = 0;
	sqlite3_stmt *q = sq_begin(db, sql);
	if (sq_row(db, q)) {
		v = sq_int(q, 0);
		sq_end(q);
	}
	return v;
}

static void make_id(char ret[static UUID_TEXT_LEN + 1])
{
	struct uuid id;
	if (getrandom(id.b, sizeof(id.b), 0) != (ssize_t)sizeof(id.b))
		abort();
	id.b[6] = (uint8_t)((id.b[6] & 0x0f) | 0x40);
	id.b[8] = (uint8_t)((id.b[8] & 0x3f) | 0x80);
	uuid_format(&id, ret);
}

static void set_id(struct sq_db *db, const char *store_id)
{
	static const char sql[] = "INSERT INTO meta VALUES ('store_id', ?)";
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_text(db, store_id);
	sq_run(db, q);
}

static void migrate(struct sq_db *db, const struct schema *s, int64_t from, const char *store_id)
{
	char text[80], made[UUID_TEXT_LEN + 1];
	sq_exec(db, "BEGIN IMMEDIATE");
	for (int64_t v = from; v < s->n; v++)
		sq_exec(db, s->migrations[v]);
	if (s == &schemas[0])
		sq_label_some(db, LABEL_FIRST, NS_PER_S);
	if (from == 0) {
		make_id(made);
		set_id(db, store_id ? store_id : made);
	}
	snprintf(text, sizeof(text), "PRAGMA application_id = %lld; PRAGMA user_version = %d", (long long)s->application_id, s->n);
	sq_exec(db, text);
	sq_exec(db, "COMMIT");
	if (db->rc && !sqlite3_get_autocommit(db->h))
		sqlite3_exec(db->h, "ROLLBACK", NULL, NULL, NULL);
}

static enum sq_down words(char *text, size_t cap, const char *path, const char *what)
{
	snprintf(text, cap, "%.110s %s", path, what);
	return SQ_STAYS;
}

static enum sq_down newer(char *text, size_t cap, const char *path, int64_t version, const struct schema *s)
{
	snprintf(text, cap, "%.100s: its schema %lld is newer than this program's %d, a later reinsd has upgraded it: start that one", path,
		 (long long)version, s->n);
	return SQ_NEWER;
}

enum sq_down sq_schema_check(struct sq_db *db, bool logs, const char *path, char *text, size_t cap)
{
	const struct schema *s = &schemas[logs];
	int64_t id = ask(db, "PRAGMA application_id"), version = ask(db, "PRAGMA user_version");
	if (db->rc)
		return sq_meaning(db, text, cap);
	if (id != s->application_id || version < 1)
		return words(text, cap, path, "is not a store of Reins");
	if (version > s->n)
		return newer(text, cap, path, version, s);
	if (version < s->n)
		return words(text, cap, path, "was made by an older version of Reins: start this reinsd on it once");
	return SQ_OK;
}

enum sq_down sq_schema_update(struct sq_db *db, bool logs, const char *path, const char *store_id, char *text, size_t cap)
{
	const struct schema *s = &schemas[logs];
	int64_t id = ask(db, "PRAGMA application_id"), version = ask(db, "PRAGMA user_version");
	int64_t tables = ask(db, "SELECT count(*) FROM sqlite_schema");
	if (db->rc)
		return sq_meaning(db, text, cap);
	if (tables && id != s->application_id)
		return words(text, cap, path, "holds something else than a store of Reins; it was left as it is");
	if (version > s->n)
		return newer(text, cap, path, version, s);
	if (tables && version < 1)
		return words(text, cap, path, "has no schema version: it is damaged, or not a store of Reins");
	/* Only now: a file that isn't ours stays as it was. */
	sqlite3_stmt *q = sq_begin(db, "PRAGMA journal_mode = WAL");
	bool wal = sq_row(db, q) && strcmp(sq_text(q, 0), "wal") == 0;
	sq_end(q);
	if (!db->rc && !wal)
		return words(text, cap, path, "is on a file system that has no shared memory for SQLite's write-ahead log");
	if (!db->rc && version < s->n)
		migrate(db, s, version, store_id);
	return db->rc ? sq_meaning(db, text, cap) : SQ_OK;
}
