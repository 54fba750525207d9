/* What a fresh connection is asked before it is used, one statement at a time: its settings, whether the
 * server takes writes, the schema's version; the missing migrations under an advisory lock; partitions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_schema_sql.h"

enum step { START, SETTINGS, VERSION, LOCK, LOCKED_VERSION, MIGRATE, IDENTITY };

/* By a query, whose snapshot is newer than the lock: to_regclass would answer from a cache that waiting for an
 * advisory lock doesn't refresh, and two that start on an empty database would both make the schema. */
#define HAS_SCHEMA                                                                               \
	"EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace " \
	"WHERE n.nspname = 'reins' AND c.relname = 'meta')::text"

/* Plans are made once per connection and must stay right while a table grows from nothing to millions
 * of rows: so the planner is not asked whether a scan of the whole table would do. */
static const char settings[] =
	"SET search_path = reins; SET client_min_messages = warning; SET timezone = 'UTC';"
	"SET default_transaction_isolation = 'read committed'; SET bytea_output = 'hex';"
	"SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_mergejoin = off; SET enable_sort = off;"
	"SET jit = off; SET work_mem = '32MB'; SET plan_cache_mode = force_generic_plan; SET max_parallel_workers_per_gather = 0;"
	"SET idle_in_transaction_session_timeout = '30s'; SET lock_timeout = 0;"
	"SELECT set_config('synchronous_commit', 'on', false) "
	"WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');"
	"SELECT set_config('statement_timeout', '%" PRId64 "', false);"
	"SELECT current_setting('fsync'), current_setting('transaction_read_only'), pg_is_in_recovery()::text, "
	"current_setting('server_version_num'), current_setting('server_encoding'), "
	HAS_SCHEMA;

/* Making the schema may take longer than a statement of ours may. */
static const char locking[] = "BEGIN; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(7239204117); SELECT " HAS_SCHEMA;
static const char versions[] = "SELECT value FROM reins.meta WHERE key = 'schema'";
static const char identity[] = "SELECT reins.make_partitions(2); SELECT reins.open_stream(); "
	"SELECT (SELECT value FROM reins.meta WHERE key = 'store_id'), (SELECT value FROM reins.meta WHERE key = 'move_from'), "
	"(SELECT value FROM reins.meta WHERE key = 'unlabelled_below')";

static int fail(char *text, size_t cap, const char *why)
{
	snprintf(text, cap, "%s", why);
	return -1;
}

static int32_t number(const char *text)
{
	int64_t v;
	return num_parse_i64(text, &v) == 0 && v >= 0 && v <= INT32_MAX ? (int32_t)v : -1;
}

static int checked(struct pg_setup *s, const PGresult *r, char *text, size_t cap)
{
	if (PQntuples(r) != 1 || PQnfields(r) != 6)
		return fail(text, cap, "unexpected answer to the settings");
	if (strcmp(PQgetvalue(r, 0, 1), "on") == 0 || strcmp(PQgetvalue(r, 0, 2), "true") == 0)
		return fail(text, cap, "the server takes no writes (read-only, or a standby)");
	if (number(PQgetvalue(r, 0, 3)) < 140000)
		return fail(text, cap, "Postgres 14 or newer is needed");
	if (strcmp(PQgetvalue(r, 0, 4), "UTF8") != 0)
		return fail(text, cap, "the database's encoding must be UTF8");
	if (strcmp(PQgetvalue(r, 0, 0), "on") != 0)
		snprintf(s->warning, sizeof(s->warning), "fsync is off in this server: a crash of its machine loses accepted tasks");
	return 0;
}

static int apply(struct pg_setup *s, const char **ret_sql)
{
	size_t len = 256;
	for (int32_t v = s->version; v < PG_SCHEMA_VERSION; v++)
		len += strlen(pg_schema_migrations[v]);
	free(s->script);
	s->script = xcalloc(1, len);
	size_t n = (size_t)snprintf(s->script, len, "CREATE SCHEMA IF NOT EXISTS reins;");
	for (int32_t v = s->version; v < PG_SCHEMA_VERSION; v++)
		n += (size_t)snprintf(s->script + n, len - n, "%s", pg_schema_migrations[v]);
	snprintf(s->script + n, len - n,
		 ";INSERT INTO reins.meta VALUES ('schema', '%d') ON CONFLICT (key) DO UPDATE SET value = excluded.value;"
		 "SELECT reins.make_partitions(2); COMMIT",
		 PG_SCHEMA_VERSION);
	*ret_sql = s->script;
	s->step = MIGRATE;
	return 1;
}

/* After a version was read: what is left to do. */
static int judge(struct pg_setup *s, const PGresult *r, bool locked, const char **ret_sql, char *text, size_t cap)
{
	s->version = PQntuples(r) == 1 ? number(PQgetvalue(r, 0, 0)) : -1;
	if (s->version < 0)
		return fail(text, cap, "reins.meta names no schema version");
	if (s->version > PG_SCHEMA_VERSION) {
		s->newer = true;
		snprintf(text, cap, "the store's schema %d is newer than this program's %d, a later reinsd has upgraded it: start that one",
			 s->version, PG_SCHEMA_VERSION);
		return -1;
	}
	if (s->version < PG_SCHEMA_VERSION && !locked) {
		s->step = LOCK;
		*ret_sql = locking;
		return 1;
	}
	if (s->version < PG_SCHEMA_VERSION)
		return apply(s, ret_sql);
	s->step = locked ? MIGRATE : IDENTITY;
	*ret_sql = locked ? "COMMIT" : identity;
	return 1;
}

int pg_setup_next(struct pg_setup *s, const PGresult *last, const char **ret_sql, char *text, size_t cap)
{
	switch ((enum step)s->step) {
	case START:
		s->script = xcalloc(1, sizeof(settings) + 32);
		snprintf(s->script, sizeof(settings) + 32, settings, s->statement_timeout_ns / NS_PER_MS);
		*ret_sql = s->script;
		s->step = SETTINGS;
		return 1;
	case SETTINGS:
		if (checked(s, last, text, cap) < 0)
			return -1;
		s->step = strcmp(PQgetvalue(last, 0, 5), "true") == 0 ? VERSION : LOCK;
		*ret_sql = s->step == VERSION ? versions : locking;
		return 1;
	case VERSION:
		return judge(s, last, false, ret_sql, text, cap);
	case LOCK:
		if (PQntuples(last) == 1 && strcmp(PQgetvalue(last, 0, 0), "true") == 0) {
			s->step = LOCKED_VERSION;
			*ret_sql = versions;
			return 1;
		}
		s->version = 0;
		return apply(s, ret_sql);
	case LOCKED_VERSION:
		return judge(s, last, true, ret_sql, text, cap);
	case MIGRATE:
		s->step = IDENTITY;
		*ret_sql = identity;
		return 1;
	case IDENTITY:
		if (PQntuples(last) != 1 || strlen(PQgetvalue(last, 0, 0)) != UUID_TEXT_LEN)
			return fail(text, cap, "reins.meta names no store id");
		if (!PQgetisnull(last, 0, 1) && !s->moves) {
			snprintf(text, cap, "a move from %.80s into this store is not finished: run that reinsd --move-from again",
				 PQgetvalue(last, 0, 1));
			return -1;
		}
		s->unlabelled = !PQgetisnull(last, 0, 2);
		snprintf(s->store_id, sizeof(s->store_id), "%s", PQgetvalue(last, 0, 0));
		return 0;
	}
	return -1;
}

void pg_setup_done(struct pg_setup *s)
{
	free(s->script);
	s->script = NULL;
}
