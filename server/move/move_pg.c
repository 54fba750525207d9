/* The target: one blocking connection.  The mark and how far it got are rows of reins.meta, changed in the
 * transactions that they are about:
 *
 *   move_from       whence, for people; while it is there no master opens the store
 *   move_id         the source's store id
 *   move_state      how the source was: when that has changed, what was copied is worth nothing
 *   move_at_TABLE   rows copied, in the order of the source's primary key
 *   moved_state     stays: this store is a copy of the source as it was then */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/num.h"
#include "server/engine/crash.h"
#include "server/move/move_impl.h"
#include "server/store/postgres/pg.h"

#define QUIET (8 * NS_PER_S) /* a master just stopped, or a move just killed, may be seen so long */
#define COPY_HEAD "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0"
#define COPY_HEAD_LEN 19
#define COPY_END "\377\377"

static const char loosen_sql[] =
	"SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; RESET enable_seqscan; RESET enable_bitmapscan; "
	"RESET enable_mergejoin; RESET enable_sort";
static const char quiet_sql[] =
	"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'reinsd') AND "
	"NOT EXISTS (SELECT FROM reins.master WHERE beat_at > now() - interval '5 s')";
static const char marks_sql[] =
	"SELECT max(value) FILTER (WHERE key = 'move_from'), max(value) FILTER (WHERE key = 'move_id'), "
	"max(value) FILTER (WHERE key = 'move_state'), max(value) FILTER (WHERE key = 'moved_state') FROM reins.meta";
static const char tasks_sql[] =
	"SELECT (SELECT count(*) FROM reins.task), EXISTS (SELECT FROM reins.ready) OR EXISTS (SELECT FROM reins.delayed) OR "
	"EXISTS (SELECT FROM reins.running) OR EXISTS (SELECT FROM reins.ended) OR EXISTS (SELECT FROM reins.attempt) OR "
	"EXISTS (SELECT FROM reins.log) OR EXISTS (SELECT FROM reins.metric) OR EXISTS (SELECT FROM reins.idempotency)";
static const char wipe_sql[] =
	"TRUNCATE reins.task, reins.ready, reins.delayed, reins.running, reins.ended, reins.attempt, reins.log, reins.metric, "
	"reins.idempotency, reins.worker";
static const char unmark_sql[] = "DELETE FROM reins.meta WHERE starts_with(key, 'move_') OR key = 'moved_state'";
static const char set_sql[] =
	"INSERT INTO reins.meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/* What reins.make_partitions does for weeks to come; the format has the week's Monday. */
static const char week_sql[] =
	"DO $$ DECLARE monday timestamp := date_trunc('week', to_timestamp(%lld) AT TIME ZONE 'UTC'); parent text; part text; "
	"BEGIN PERFORM pg_advisory_xact_lock(7239204117); FOREACH parent IN ARRAY ARRAY['task', 'ended', 'attempt', 'log', 'metric'] LOOP "
	"part := parent || to_char(monday, '_YYYYMMDD'); CONTINUE WHEN to_regclass('reins.' || part) IS NOT NULL; "
	"EXECUTE format('CREATE TABLE reins.%%I (LIKE reins.%%I INCLUDING ALL)', part, parent); "
	"IF parent = 'task' THEN EXECUTE format('ALTER TABLE reins.%%I SET (toast_tuple_target = 4080)', part); END IF; "
	"EXECUTE format('ALTER TABLE reins.%%I ATTACH PARTITION reins.%%I FOR VALUES FROM (%%L) TO (%%L)', parent, part, "
	"reins.first_id(monday AT TIME ZONE 'UTC'), reins.first_id((monday + interval '7 days') AT TIME ZONE 'UTC')); "
	"END LOOP; END $$";

/* ---- asking ---- */

static int lost(struct move_target *t, struct move_error *e)
{
	char text[400];
	snprintf(text, sizeof(text), "%s", PQerrorMessage(t->pq));
	text[strcspn(text, "\n")] = '\0';
	return move_fail(e, MOVE_UNAVAILABLE, "%s: %s", t->name, text);
}

/* NULL after an error; only for statements whose parameters are texts. */
static PGresult *ask(struct move_target *t, struct move_error *e, const char *sql, int n, const char *const *values)
{
	PGresult *r = n ? PQexecParams(t->pq, sql, n, NULL, values, NULL, NULL, 0) : PQexec(t->pq, sql);
	ExecStatusType status = PQresultStatus(r);
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_COPY_IN || status == PGRES_COPY_OUT)
		return r;
	lost(t, e);
	PQclear(r);
	return NULL;
}

static int tell(struct move_target *t, struct move_error *e, const char *sql)
{
	PGresult *r = ask(t, e, sql, 0, NULL);
	PQclear(r);
	return r ? 0 : -1;
}

static int set(struct move_target *t, struct move_error *e, const char *key, const char *value)
{
	PGresult *r = ask(t, e, set_sql, 2, (const char *const[]){key, value});
	PQclear(r);
	return r ? 0 : -1;
}

/* ---- opening ---- */

static void on_notice(void *arg, const char *text) {}

static int set_up(struct move_target *t, struct move_error *e)
{
	struct pg_setup setup = {.moves = true};
	char text[200] = "";
	const char *sql;
	PGresult *last = NULL;
	int rc;
	while ((rc = pg_setup_next(&setup, last, &sql, text, sizeof(text))) > 0) {
		PQclear(last);
		last = ask(t, e, sql, 0, NULL);
		if (!last)
			break;
	}
	PQclear(last);
	if (rc == 0)
		memcpy(t->store_id, setup.store_id, sizeof(t->store_id));
	if (rc == 0 && setup.warning[0])
		fprintf(stderr, "reinsd: move: %s: %s\n", t->name, setup.warning);
	pg_setup_done(&setup);
	if (rc < 0)
		return move_fail(e, MOVE_UNAVAILABLE, "%s: %s", t->name, text);
	return rc ? -1 : tell(t, e, loosen_sql);
}

int move_target_open(struct move_target *t, const char *url, struct move_error *e)
{
	char *err = NULL;
	PQconninfoOption *parsed = PQconninfoParse(url, &err);
	*t = (struct move_target){.name = "the target"};
	PQfreemem(err);
	if (!parsed)
		return move_fail(e, MOVE_REFUSED, "store: the URL can't be read; postgres://USER@HOST:PORT/DATABASE is wanted");
	PQconninfoFree(parsed);
	/* What stands after dbname is stronger than the URL. */
	static const char *const names[] = {"connect_timeout", "dbname", "application_name", "client_encoding", NULL};
	const char *values[] = {"10", url, "reinsd --move-from", "UTF8", NULL};
	t->pq = PQconnectdbParams(names, values, 1);
	if (!t->pq)
		return move_fail(e, MOVE_UNAVAILABLE, "no memory is left");
	PQsetNoticeProcessor(t->pq, on_notice, NULL);
	if (PQstatus(t->pq) != CONNECTION_OK)
		return lost(t, e);
	snprintf(t->name, sizeof(t->name), "database %.100s on %.150s:%.10s", PQdb(t->pq), PQhost(t->pq), PQport(t->pq));
	return set_up(t, e);
}

void move_target_done(struct move_target *t)
{
	PQfinish(t->pq);
	t->pq = NULL;
}

/* ---- may it be moved into? ---- */

static int wait_true(struct move_target *t, struct move_error *e, int64_t until_mono_ns, const char *sql, const char *why)
{
	for (;;) {
		PGresult *r = ask(t, e, sql, 0, NULL);
		bool yes = r && PQgetvalue(r, 0, 0)[0] == 't';
		PQclear(r);
		if (!r)
			return -1;
		if (yes)
			return 0;
		if (clock_mono_ns() > until_mono_ns)
			return move_fail(e, MOVE_REFUSED, "%s: %s", t->name, why);
		nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
	}
}

static int check_alone(struct move_target *t, struct move_error *e)
{
	int64_t until = clock_mono_ns() + QUIET;
	if (wait_true(t, e, until, "SELECT pg_try_advisory_lock(7239204118)", "another reinsd --move-from is at work there") < 0)
		return -1;
	return wait_true(t, e, until, quiet_sql, "a master uses it: stop that reinsd first");
}

static int check_empty(struct move_target *t, struct move_error *e)
{
	PGresult *r = ask(t, e, tasks_sql, 0, NULL);
	if (!r)
		return -1;
	int rc = 0;
	if (strcmp(PQgetvalue(r, 0, 0), "0") != 0 || PQgetvalue(r, 0, 1)[0] == 't')
		rc = move_fail(e, MOVE_REFUSED,
			       "%s: it holds %s other tasks; stores are not merged: give a database that has none (CREATE DATABASE)",
			       t->name, PQgetvalue(r, 0, 0));
	PQclear(r);
	return rc;
}

static int judge(struct move_target *t, const struct move_source *s, const PGresult *marks, enum move_begun *ret,
		 struct move_error *e)
{
	const char *from = PQgetvalue(marks, 0, 0), *id = PQgetvalue(marks, 0, 1);
	if (from[0] && strcmp(id, s->files.store_id) != 0)
		return move_fail(e, MOVE_REFUSED,
				 "%s: a move from %.200s into it is not finished: finish that one, or drop the schema reins there", t->name,
				 from);
	bool done = !from[0] && strcmp(t->store_id, s->files.store_id) == 0;
	if (s->moved_to[0] && !done && strcmp(s->moved_to, t->name) != 0)
		return move_fail(e, MOVE_REFUSED,
				 "%s was moved to %s before; two stores with its tasks would run them twice. To give that one up: start reinsd "
				 "on the file once with --ignore-moved, stop it, and move again", s->name, s->moved_to);
	if (from[0]) {
		*ret = strcmp(PQgetvalue(marks, 0, 2), s->state) == 0 ? MOVE_GOES_ON : MOVE_ANEW;
		return 0;
	}
	if (!done) {
		*ret = MOVE_FRESH;
		return check_empty(t, e);
	}
	*ret = MOVE_DONE_BEFORE;
	if (strcmp(PQgetvalue(marks, 0, 3), s->state) == 0)
		return 0;
	return move_fail(e, MOVE_REFUSED,
			 "%s: %s was moved there before, and a master has used the source since: what is new in it can't be added", t->name,
			 s->name);
}

static int mark(struct move_target *t, const struct move_source *s, bool wipe, struct move_error *e)
{
	if (tell(t, e, "BEGIN") < 0 || tell(t, e, wipe ? wipe_sql : "DELETE FROM reins.worker") < 0 || tell(t, e, unmark_sql) < 0 ||
	    set(t, e, "move_from", s->name) < 0 || set(t, e, "move_id", s->files.store_id) < 0 ||
	    set(t, e, "move_state", s->state) < 0 ||
	    (s->unlabelled && set(t, e, "unlabelled_below", "ffffffff-ffff-ffff-ffff-ffffffffffff") < 0))
		return -1;
	return tell(t, e, "COMMIT");
}

int move_target_begin(struct move_target *t, const struct move_source *s, enum move_begun *ret, struct move_error *e)
{
	if (check_alone(t, e) < 0)
		return -1;
	PGresult *marks = ask(t, e, marks_sql, 0, NULL);
	if (!marks)
		return -1;
	int rc = judge(t, s, marks, ret, e);
	PQclear(marks);
	if (rc == 0 && (*ret == MOVE_FRESH || *ret == MOVE_ANEW))
		rc = mark(t, s, *ret == MOVE_ANEW, e);
	if (rc == 0)
		CRASH_POINT("move-marked");
	return rc;
}

int move_target_week(struct move_target *t, int64_t ms, struct move_error *e)
{
	char sql[sizeof(week_sql) + 24];
	snprintf(sql, sizeof(sql), week_sql, (long long)(ms / 1000));
	return tell(t, e, sql);
}

/* ---- copying ---- */

static void at_key(const struct move_table *table, char *ret, size_t cap) { snprintf(ret, cap, "move_at_%s", table->name); }

int move_target_copied(struct move_target *t, const struct move_table *table, int64_t *ret, struct move_error *e)
{
	char key[40];
	at_key(table, key, sizeof(key));
	PGresult *r = ask(t, e, "SELECT value FROM reins.meta WHERE key = $1", 1, (const char *const[]){key});
	if (!r)
		return -1;
	*ret = 0;
	int rc = PQntuples(r) ? num_parse_i64(PQgetvalue(r, 0, 0), ret) : 0;
	PQclear(r);
	return rc < 0 ? move_fail(e, MOVE_UNAVAILABLE, "%s: reins.meta names no number for %s", t->name, key) : 0;
}

int move_target_batch(struct move_target *t, const struct move_table *table, struct move_error *e)
{
	char sql[1000];
	snprintf(sql, sizeof(sql), "BEGIN; COPY reins.%s (%s) FROM STDIN (FORMAT binary)", table->name, table->columns);
	if (tell(t, e, sql) < 0)
		return -1;
	return PQputCopyData(t->pq, COPY_HEAD, COPY_HEAD_LEN) == 1 ? 0 : lost(t, e);
}

int move_target_row(struct move_target *t, const void *tuple, size_t len, struct move_error *e)
{
	return PQputCopyData(t->pq, tuple, (int)len) == 1 ? 0 : lost(t, e);
}

/* Of the rows, not of the connection: classes 22 (data) and 23 (constraints). */
static int rows_refused(struct move_target *t, const PGresult *r, struct move_error *e)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE), *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	const char *where = PQresultErrorField(r, PG_DIAG_CONTEXT);
	if (!state || (strncmp(state, "22", 2) != 0 && strncmp(state, "23", 2) != 0))
		return lost(t, e);
	e->stays = true;
	return move_fail(e, MOVE_UNAVAILABLE, "%s: it refuses a row: %.200s (%.200s)", t->name, text ? text : "", where ? where : "");
}

static int end_copy(struct move_target *t, struct move_error *e)
{
	if (PQputCopyData(t->pq, COPY_END, 2) != 1 || PQputCopyEnd(t->pq, NULL) != 1)
		return lost(t, e);
	int rc = 0;
	for (PGresult *r; (r = PQgetResult(t->pq)); PQclear(r))
		if (PQresultStatus(r) != PGRES_COMMAND_OK && rc == 0)
			rc = rows_refused(t, r, e);
	return rc;
}

int move_target_commit(struct move_target *t, const struct move_table *table, int64_t copied, struct move_error *e)
{
	char key[40], value[24];
	at_key(table, key, sizeof(key));
	snprintf(value, sizeof(value), "%lld", (long long)copied);
	if (end_copy(t, e) < 0 || set(t, e, key, value) < 0)
		return -1;
	CRASH_POINT("move-batch");
	if (tell(t, e, "COMMIT") < 0)
		return -1;
	CRASH_POINT("move-committed");
	return 0;
}

/* ---- looking at what is there ---- */

/* The server sends each row as one message, the first behind the head. */
static void add_message(struct move_digest *d, const char *data, size_t len, bool first)
{
	size_t head = first ? min_sz(len, COPY_HEAD_LEN) : 0;
	if (len - head > 2)
		move_digest_add(d, data + head, len - head);
}

int move_target_digest(struct move_target *t, const struct move_table *table, struct move_digest *ret, struct move_error *e)
{
	char sql[1000], *data;
	snprintf(sql, sizeof(sql), "COPY (SELECT %s FROM reins.%s) TO STDOUT (FORMAT binary)", table->columns, table->name);
	if (tell(t, e, sql) < 0)
		return -1;
	*ret = (struct move_digest){0};
	int n;
	bool first = true;
	while ((n = PQgetCopyData(t->pq, &data, 0)) > 0) {
		add_message(ret, data, (size_t)n, first);
		first = false;
		PQfreemem(data);
	}
	int rc = n == -1 ? 0 : lost(t, e);
	for (PGresult *r; (r = PQgetResult(t->pq)); PQclear(r))
		if (PQresultStatus(r) != PGRES_COMMAND_OK && rc == 0)
			rc = lost(t, e);
	return rc;
}

int move_target_finish(struct move_target *t, const struct move_source *s, struct move_error *e)
{
	char sql[160];
	snprintf(sql, sizeof(sql), "BEGIN; SELECT setval('reins.task_seq', %lld, %s)", (long long)max_i64(s->last_seq, 1),
		 s->last_seq > 0 ? "true" : "false");
	if (tell(t, e, sql) < 0 || tell(t, e, unmark_sql) < 0 || set(t, e, "store_id", s->files.store_id) < 0 ||
	    set(t, e, "moved_state", s->state) < 0)
		return -1;
	CRASH_POINT("move-finish");
	if (tell(t, e, "COMMIT") < 0)
		return -1;
	CRASH_POINT("move-finished");
	return 0;
}
