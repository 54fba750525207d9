/* What a Postgres can do to us: be killed, end connections, turn read-only, fall silent, refuse one item of a
 * batch; and what the store makes of it: no acknowledged change is lost, and every answer is true. */
#include <signal.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_schema_sql.h"
#include "server/store/store_logs.h"
#include "tests/store/pg_server.h"
#include "tests/store/relay.h"
#include "tests/store/suite.h"

static struct pg_server server;
static struct pg_store_config config;

/* Without fsync: what a killed server has written is in the kernel either way. */
static void begin(void) { pg_server_start(&server, false); }
static void end(void) { pg_server_stop(&server); }

static struct store *open_store(struct loop *loop)
{
	struct store *s;
	if (pg_store_new(loop, &config, &s) < 0)
		fail_msg("pg_store_new");
	return s;
}

static const struct factory postgres = {"postgres", open_store, begin, end};
const struct factory *factory = &postgres;

static int group_begin(void **state)
{
	pg_store_config_default(&config);
	config.url = server.url;
	config.max_batch = 100;
	return harness_begin(state);
}

static void unpark(void);
static void turn_for(int64_t ns);

/* The server is gone; how soon its processes and our end notice is the machine's business. */
static void wait_down(void)
{
	int64_t end_ns = clock_mono_ns() + DEADLINE_NS;
	while (h.store->up) {
		assert_true(clock_mono_ns() < end_ns);
		turn_for(MS);
	}
}

static void turn_for(int64_t ns)
{
	int64_t until = clock_mono_ns() + ns;
	while (clock_mono_ns() < until) {
		unpark();
		loop_turn(h.loop, false);
	}
}

/* ---- chains: insert, claim, record, one after the other, many at once ---- */

struct chain {
	struct store_insert insert;
	struct store_claim claim;
	struct store_record record;
	bool inserted, gone; /* the last answer to the insert; settled as not there */
	bool done;
};

#define CHAINS 20000
static struct chain *chains;
static struct store_op *parked[CHAINS]; /* to be asked again */
static size_t n_parked;
static size_t n_chains, n_live, n_unavailable;
static bool stop_chains, chains_done;
static int64_t chain_session;

static void chain_start(struct chain *c);

static void chain_end(struct chain *c)
{
	c->done = true;
	n_live--;
	if (!stop_chains && n_chains < CHAINS) {
		n_live++;
		chain_start(&chains[n_chains++]);
	} else if (!n_live) {
		chains_done = true;
	}
}

static void on_recorded(struct store_op *op)
{
	struct chain *c = container_of(op, struct chain, record.op);
	assert_int_equal(op->result, STORE_OK); /* kept while away */
	assert_int_equal(c->record.ret_verdict, CORE_RECORD_RECORDED);
	assert_int_equal(c->record.ret_state, STORE_COMPLETED);
	store_op_done_fields(op);
	chain_end(c);
}

static void on_claimed(struct store_op *op)
{
	struct chain *c = container_of(op, struct chain, claim.op);
	if (op->result == STORE_UNAVAILABLE) { /* nothing changed: asked again */
		n_unavailable++;
		parked[n_parked++] = op;
		return;
	}
	assert_int_equal(op->result, STORE_OK);
	assert_true(c->claim.ret_won);
	assert_int_equal(c->claim.ret_task.attempt, 1);
	store_op_done_fields(op);
	c->record = (struct store_record){.op = {.kind = STORE_RECORD, .done = on_recorded}, .at = {c->insert.task.id, 1},
					  .worker = "chain", .outcome = STORE_SUCCEEDED};
	store_submit(h.store, &c->record.op);
}

static void on_inserted(struct store_op *op)
{
	struct chain *c = container_of(op, struct chain, insert.op);
	if (op->result == STORE_UNAVAILABLE) {
		assert_false(op->maybe_done);
		n_unavailable++;
		if ((c - chains) % 8) {
			parked[n_parked++] = op;
			return;
		}
		c->gone = true; /* and must not be there */
		chain_end(c);
		return;
	}
	assert_int_equal(op->result, STORE_OK);
	assert_int_equal(c->insert.ret_verdict, STORE_INSERT_CREATED);
	c->inserted = true;
	c->claim = (struct store_claim){.op = {.kind = STORE_CLAIM, .done = on_claimed}, .task = c->insert.task,
					.to = to_worker("chain", chain_session)};
	c->claim.task.seq = c->insert.ret_seq;
	store_submit(h.store, &c->claim.op);
}

static void chain_start(struct chain *c)
{
	c->insert = insert_of("chains");
	c->insert.op.kind = STORE_INSERT;
	c->insert.op.done = on_inserted;
	store_submit(h.store, &c->insert.op);
}

static void unpark(void)
{
	while (h.store->up && n_parked)
		store_submit(h.store, parked[--n_parked]);
}

static void chains_begin(size_t n)
{
	chains = test_calloc(CHAINS, sizeof(*chains));
	chain_session = 1;
	n_unavailable = 0;
	stop_chains = chains_done = false;
	n_live = n_chains = n;
	for (size_t i = 0; i < n; i++)
		chain_start(&chains[i]);
}

/* What was said and what is there are the same. */
static void chains_check(void)
{
	stop_chains = true;
	int64_t end_ns = clock_mono_ns() + DEADLINE_NS;
	while (!chains_done) {
		assert_true(clock_mono_ns() < end_ns);
		turn_for(MS);
	}
	struct store_get *gets = test_calloc(n_chains, sizeof(*gets));
	size_t completed = 0;
	for (size_t i = 0; i < n_chains; i++)
		gets[i] = (struct store_get){.id = chains[i].insert.task.id};
	run_many(gets, n_chains, sizeof(*gets), STORE_GET);
	for (size_t i = 0; i < n_chains; i++) {
		assert_int_equal(gets[i].op.result, STORE_OK);
		assert_int_equal(gets[i].ret_found, !chains[i].gone);
		if (gets[i].ret_found) {
			assert_int_equal(gets[i].ret_task.state, STORE_COMPLETED);
			assert_int_equal(gets[i].ret_task.n_attempts, 1);
			completed++;
		}
		store_op_done_fields(&gets[i].op);
	}
	print_message("# %zu completed, %zu times unavailable\n", completed, n_unavailable);
	assert_true(completed > 0);
	test_free(gets);
	test_free(chains);
}

static void killed_under_load(void **state)
{
	chains_begin(2000);
	for (int i = 0; i < 4; i++) {
		turn_for(150 * MS);
		pg_server_kill(&server);
		wait_down();
		turn_for(100 * MS);
		pg_server_begin(&server);
		harness_wait_up(h.store);
	}
	turn_for(100 * MS);
	chains_check();
}

static void connections_ended(void **state)
{
	chains_begin(2000);
	for (int i = 0; i < 25; i++) {
		turn_for(20 * MS);
		pg_server_sql(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reinsd' "
				       "ORDER BY random() LIMIT 1");
	}
	pg_server_sql(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reinsd'");
	turn_for(50 * MS);
	chains_check();
}

/* Cut anywhere: within a statement's parameters, after its sync, within its answer. */
static void cut_anywhere(void **state)
{
	struct relay r;
	char url[128];
	struct store *direct = h.store;
	struct pg_store_config c = config;
	relay_start(&r, server.port, 600000);
	snprintf(url, sizeof(url), "postgres://reins@127.0.0.1:%d/postgres", r.port);
	c.url = url;
	assert_int_equal(pg_store_new(h.loop, &c, &h.store), 0);
	harness_wait_up(h.store);
	chains_begin(2000);
	int64_t until = clock_mono_ns() + DEADLINE_NS;
	while (atomic_load(&r.cuts) < 40) {
		assert_true(clock_mono_ns() < until);
		turn_for(5 * MS);
	}
	atomic_store(&r.max_bytes, 0);
	chains_check();
	store_free(h.store);
	h.store = direct;
	relay_stop(&r);
}

/* Each is done once or not at all, and what was said is what is there. */
static void retries_cut(void **state)
{
	enum { N = 1500, AT_ONCE = 10 };
	struct relay r;
	char url[128];
	struct store *direct = h.store;
	struct pg_store_config c = config;
	struct store_insert *in = test_calloc(N, sizeof(*in));
	struct store_record *rec = test_calloc(N, sizeof(*rec));
	struct store_retry *re = test_calloc(N, sizeof(*re));
	int64_t s = session("w-cut");
	int done = 0, settled = 0;
	for (int i = 0; i < N; i++) {
		in[i] = insert_of("cut");
		in[i].eager = to_worker("w-cut", s);
	}
	run_many(in, N, sizeof(*in), STORE_INSERT);
	for (int i = 0; i < N; i++)
		rec[i] = (struct store_record){.at = {in[i].task.id, 1}, .worker = "w-cut", .outcome = STORE_PROGRAM_FAILED};
	run_many(rec, N, sizeof(*rec), STORE_RECORD);
	relay_start(&r, server.port, 300000);
	snprintf(url, sizeof(url), "postgres://reins@127.0.0.1:%d/postgres", r.port);
	c.url = url;
	assert_int_equal(pg_store_new(h.loop, &c, &h.store), 0);
	for (int i = 0; i < N; i++) {
		store_op_done_fields(&rec[i].op);
		re[i] = (struct store_retry){.id = in[i].task.id, .attempt = 1};
		harness_submit(h.store, &re[i].op, STORE_RETRY);
		if (i % AT_ONCE == AT_ONCE - 1) {
			harness_drain();
			harness_wait_up(h.store);
		}
	}
	atomic_store(&r.max_bytes, 0);
	store_free(h.store);
	h.store = direct;
	relay_stop(&r);
	for (int i = 0; i < N; i++) {
		bool ok = re[i].op.result == STORE_OK;
		if (ok)
			assert_int_equal(re[i].ret_verdict, STORE_RETRY_DONE);
		else
			assert_false(re[i].op.maybe_done);
		done += ok;
		settled += ok && re[i].op.sent;
		store_op_done_fields(&re[i].op);
		assert_int_equal(state_of(in[i].task.id), ok ? STORE_PENDING : STORE_FAILED);
	}
	print_message("# %d of %d done, %d of them settled after a cut\n", done, N, settled);
	assert_true(done > 0);
	test_free(in);
	test_free(rec);
	test_free(re);
}

static void over_tls(void **state)
{
	char cmd[512];
	snprintf(cmd, sizeof(cmd), "cd %s/data && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout server.key "
		 "-out server.crt 2>/dev/null && chmod 600 server.key && chown --reference=postgresql.conf server.key server.crt",
		 server.dir);
	assert_int_equal(system(cmd), 0);
	pg_server_sql(&server, "ALTER SYSTEM SET ssl = on");
	pg_server_sql(&server, "SELECT pg_reload_conf()");
	struct pg_store_config c = config;
	struct store *direct = h.store;
	char url[160];
	snprintf(url, sizeof(url), "postgres://reins@localhost:%d/postgres?sslmode=require", server.port);
	c.url = url;
	assert_int_equal(pg_store_new(h.loop, &c, &h.store), 0);
	harness_wait_up(h.store);
	struct blob *large = blob_new(NULL, 1 << 20);
	memset(large->data, 3, large->len);
	struct store_insert in[20];
	struct store_get out[20];
	for (int i = 0; i < 20; i++) {
		in[i] = insert_of("tls");
		in[i].spec = large;
	}
	run_many(in, 20, sizeof(in[0]), STORE_INSERT);
	for (int i = 0; i < 20; i++)
		out[i] = (struct store_get){.id = in[i].task.id};
	run_many(out, 20, sizeof(out[0]), STORE_GET);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(out[i].ret_task.spec->len, large->len);
		store_op_done_fields(&out[i].op);
	}
	blob_unref(large);
	store_free(h.store);
	h.store = direct;
}

static void read_only(void **state)
{
	struct core_task t = insert(new_queue());
	int64_t s = session("w-ro");
	claim(&t, "w-ro", s);
	pg_server_sql(&server, "ALTER SYSTEM SET default_transaction_read_only = on");
	pg_server_sql(&server, "SELECT pg_reload_conf()");
	struct store_record r = {.at = {t.id, 1}, .worker = "w-ro", .outcome = STORE_SUCCEEDED};
	harness_submit(h.store, &r.op, STORE_RECORD);
	struct store_insert *o = test_calloc(2000, sizeof(*o));
	int n = 0;
	while (h.store->up) { /* the reload takes a moment to reach the sessions */
		assert_true(n < 2000);
		o[n] = insert_of("ro");
		harness_submit(h.store, &o[n++].op, STORE_INSERT);
		turn_for(5 * MS);
	}
	assert_non_null(strstr(h.store->down_text, "read-only"));
	pg_server_sql(&server, "ALTER SYSTEM RESET default_transaction_read_only");
	pg_server_sql(&server, "SELECT pg_reload_conf()");
	harness_wait_up(h.store);
	harness_drain();
	assert_int_equal(r.op.result, STORE_OK);
	assert_int_equal(r.ret_verdict, CORE_RECORD_RECORDED);
	store_op_done_fields(&r.op);
	for (int i = 0; i < n; i++) {
		struct store_get g = get(o[i].task.id);
		assert_int_equal(g.ret_found, o[i].op.result == STORE_OK);
		store_op_done_fields(&g.op);
	}
	test_free(o);
}

/* ---- content ---- */

static void poisoned_insert(void **state)
{
	enum { N = 500 };
	struct store_insert *o = test_calloc(N, sizeof(*o));
	for (int i = 0; i < N; i++)
		o[i] = insert_of("poison");
	o[321].owner = "\xff";
	run_many(o, N, sizeof(*o), STORE_INSERT);
	for (int i = 0; i < N; i++)
		assert_int_equal(o[i].op.result, i == 321 ? STORE_REFUSED : STORE_OK);
	assert_non_null(strstr(o[321].op.text, "22021"));
	struct store_get g = get(o[321].task.id);
	assert_false(g.ret_found);
	test_free(o);
}

static void poisoned_outcome(void **state)
{
	enum { N = 100 };
	struct store_insert *o = test_calloc(N, sizeof(*o));
	struct store_record *r = test_calloc(N, sizeof(*r));
	int64_t s = session("w-poison");
	pg_server_sql(&server, "ALTER TABLE reins.ended ADD CONSTRAINT small CHECK (octet_length(result) < 100)");
	for (int i = 0; i < N; i++) {
		o[i] = insert_of("poison");
		o[i].eager = to_worker("w-poison", s);
	}
	run_many(o, N, sizeof(*o), STORE_INSERT);
	struct blob *large = blob_new(NULL, 100);
	memset(large->data, 1, 100);
	for (int i = 0; i < N; i++)
		r[i] = (struct store_record){.at = {o[i].task.id, 1}, .worker = "w-poison", .outcome = STORE_SUCCEEDED,
					     .result = i == 77 ? large : h.spec};
	run_many(r, N, sizeof(*r), STORE_RECORD);
	for (int i = 0; i < N; i++) {
		assert_int_equal(r[i].op.result, STORE_OK);
		assert_int_equal(r[i].ret_verdict, CORE_RECORD_RECORDED);
		store_op_done_fields(&r[i].op);
		struct store_get g = get(o[i].task.id);
		assert_int_equal(g.ret_task.state, STORE_COMPLETED);
		assert_int_equal(g.ret_task.result.len, i == 77 ? 0 : 4);
		if (i == 77)
			assert_non_null(strstr((const char *)g.ret_task.error.data, "without result and text"));
		store_op_done_fields(&g.op);
	}
	pg_server_sql(&server, "ALTER TABLE reins.ended DROP CONSTRAINT small");
	blob_unref(large);
	test_free(o);
	test_free(r);
}

/* Both sides' buffers are full at once: nobody may wait for the other with unread input. */
static void large_both_ways(void **state)
{
	enum { N = 8 };
	struct store_insert in[N], more[N];
	struct store_get out[N];
	struct blob *large = blob_new(NULL, 8 << 20);
	memset(large->data, 7, large->len);
	for (int i = 0; i < N; i++) {
		in[i] = insert_of("large");
		more[i] = insert_of("large");
		in[i].spec = more[i].spec = large;
	}
	run_many(in, N, sizeof(*in), STORE_INSERT);
	for (int i = 0; i < N; i++) {
		out[i] = (struct store_get){.id = in[i].task.id};
		harness_submit(h.store, &more[i].op, STORE_INSERT);
		harness_submit(h.store, &out[i].op, STORE_GET);
	}
	harness_drain();
	for (int i = 0; i < N; i++) {
		assert_int_equal(in[i].op.result, STORE_OK);
		assert_int_equal(more[i].op.result, STORE_OK);
		assert_int_equal(out[i].op.result, STORE_OK);
		assert_int_equal(out[i].ret_task.spec->len, large->len);
		assert_memory_equal(out[i].ret_task.spec->data, large->data, large->len);
		store_op_done_fields(&out[i].op);
	}
	blob_unref(large);
}

static void locked_table(void **state)
{
	struct pg_store_config c = config;
	struct store *s;
	c.statement_timeout_ns = 100 * MS;
	/* The first host refuses, which must not matter. */
	char url[160];
	snprintf(url, sizeof(url), "postgres://reins@127.0.0.1:1,localhost:%d/postgres", server.port);
	c.url = url;
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_wait_up(s);
	struct store_insert o = insert_of("locked");
	assert_int_equal(run_any(s, &o.op, STORE_INSERT), STORE_OK);
	PGconn *pq = PQconnectdb(server.url);
	PQclear(PQexec(pq, "BEGIN; LOCK TABLE reins.task IN ACCESS EXCLUSIVE MODE"));
	struct store_get g = {.id = o.task.id};
	struct store_insert p = insert_of("locked");
	assert_int_equal(run_any(s, &g.op, STORE_GET), STORE_UNAVAILABLE);
	assert_int_equal(run_any(s, &p.op, STORE_INSERT), STORE_UNAVAILABLE);
	assert_non_null(strstr(p.op.text, "timeout"));
	PQclear(PQexec(pq, "COMMIT"));
	PQfinish(pq);
	assert_int_equal(run_any(s, &g.op, STORE_GET), STORE_OK);
	assert_true(g.ret_found);
	store_op_done_fields(&g.op);
	assert_int_equal(run_any(s, &p.op, STORE_INSERT), STORE_OK);
	store_free(s);
}

static void strange_ids(void **state)
{
	/* From 1970 and from far ahead: no partition was made for these. */
	for (int i = 0; i < 2; i++) {
		struct store_insert o = insert_of("strange");
		memset(o.task.id.b, i ? 0xee : 0, 6);
		run(&o.op, STORE_INSERT);
		assert_int_equal(state_of(o.task.id), STORE_PENDING);
	}
}

/* ---- old logs ---- */

/* A week's partition, as it was made so many weeks ago, with a row of a task of that week. Returns the task. */
static struct uuid week_of_logs(int weeks_ago)
{
	static const char *const parents[] = {"log", "metric"};
	char sql[900], monday[120], text[64];
	struct uuid id;
	snprintf(monday, sizeof(monday), "(date_trunc('week', now() AT TIME ZONE 'UTC') - interval '%d weeks')", weeks_ago);
	for (size_t i = 0; i < ARRAY_LEN(parents); i++) {
		snprintf(sql, sizeof(sql),
			 "DO $$ BEGIN EXECUTE format('CREATE TABLE reins.%%I PARTITION OF reins.%s FOR VALUES FROM (%%L) TO (%%L)', "
			 "'%s_' || to_char(%s, 'YYYYMMDD'), reins.first_id(%s AT TIME ZONE 'UTC'), "
			 "reins.first_id((%s + interval '7 days') AT TIME ZONE 'UTC')); END $$", parents[i], parents[i], monday, monday,
			 monday);
		pg_server_sql(&server, sql);
	}
	snprintf(sql, sizeof(sql), "SELECT reins.first_id((%s + interval '3 days') AT TIME ZONE 'UTC')::text", monday);
	snprintf(text, sizeof(text), "%s", pg_server_sql(&server, sql));
	assert_int_equal(uuid_parse(text, strlen(text), &id), 0);
	snprintf(sql, sizeof(sql), "INSERT INTO reins.log (task_id, off, attempt, stream, data) VALUES ('%s', 0, 1, 1, 'x')", text);
	pg_server_sql(&server, sql);
	snprintf(sql, sizeof(sql), "INSERT INTO reins.metric (task_id, attempt, number, point) VALUES ('%s', 1, 1, 'x')", text);
	pg_server_sql(&server, sql);
	return id;
}

/* Of log and metrics. */
static int rows_of(const struct uuid *id)
{
	char sql[300], text[UUID_TEXT_LEN + 1];
	uuid_format(id, text);
	snprintf(sql, sizeof(sql), "SELECT ((SELECT count(*) FROM reins.log WHERE task_id = '%s') + "
		 "(SELECT count(*) FROM reins.metric WHERE task_id = '%s'))::text", text, text);
	return (int)strtol(pg_server_sql(&server, sql), NULL, 10);
}

static void old_logs_go(void **state)
{
	struct uuid old = week_of_logs(30), running_one = week_of_logs(20), middle = week_of_logs(10), fresh = week_of_logs(3);
	struct store_insert o = insert_of("old-logs");
	o.task.id = running_one;
	run(&o.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	int32_t attempt = claim(&o.task, "w", session("w"));
	assert_string_equal(pg_server_sql(&server, "SELECT reins.drop_logs('30 days')::text"), "4");
	assert_int_equal(rows_of(&old), 0);
	assert_int_equal(rows_of(&running_one), 2); /* its program may still print */
	assert_int_equal(rows_of(&middle), 0);
	assert_int_equal(rows_of(&fresh), 2);
	record((struct core_attempt){running_one, attempt}, "w", STORE_SUCCEEDED);
	/* Somebody reads: it is not waited for long, and the next time will do. */
	PGconn *pq = PQconnectdb(server.url);
	PQclear(PQexec(pq, "BEGIN; SELECT count(*) FROM reins.log; SELECT count(*) FROM reins.metric"));
	assert_string_equal(pg_server_sql(&server, "SELECT reins.drop_logs('30 days')::text"), "0");
	PQclear(PQexec(pq, "COMMIT"));
	PQfinish(pq);
	/* The store does it by itself. */
	struct pg_store_config c = config;
	struct store *s;
	c.log_retention_ns = 30 * 86400 * NS_PER_S;
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_wait_up(s);
	struct store_op op = {.kind = PG_KIND_PARTITIONS};
	assert_int_equal(run_any(s, &op, PG_KIND_PARTITIONS), STORE_OK);
	store_free(s);
	assert_int_equal(rows_of(&running_one), 0);
	assert_int_equal(rows_of(&fresh), 2);
	/* What went is read as a log that is not there. */
	struct store_log_read r = {.at = {running_one, attempt}, .max_bytes = 100};
	run(&r.op, STORE_LOG_READ);
	assert_int_equal(r.ret_n, 0);
	store_op_done_fields(&r.op);
}

/* ---- up and down ---- */

static void queue_full(void **state)
{
	struct pg_store_config small = config;
	struct store *s;
	small.max_queued = 3;
	assert_int_equal(pg_store_new(h.loop, &small, &s), 0);
	harness_wait_up(s);
	struct store_insert o[6];
	for (int i = 0; i < 6; i++) {
		o[i] = insert_of("full");
		harness_submit(s, &o[i].op, STORE_INSERT);
	}
	harness_drain();
	for (int i = 0; i < 6; i++)
		assert_int_equal(o[i].op.result, i < 3 ? STORE_OK : STORE_UNAVAILABLE);
	assert_non_null(strstr(o[3].op.text, "full"));
	store_free(s);
}

static bool state_told, state_up;
static char state_text[200];

static void on_state(void *arg, bool up, const char *text)
{
	state_told = true;
	state_up = up;
	snprintf(state_text, sizeof(state_text), "%s", text);
}

static void newer_schema(void **state)
{
	struct pg_store_config c = config;
	struct store *s;
	char newer[80];
	snprintf(newer, sizeof(newer), "schema %d is newer than this program's %d", 97 + PG_SCHEMA_VERSION, PG_SCHEMA_VERSION);
	c.on_state = on_state;
	state_told = false;
	pg_server_sql(&server, "UPDATE reins.meta SET value = 97 + value::int WHERE key = 'schema'");
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_until(&state_told);
	assert_false(state_up);
	assert_non_null(strstr(state_text, newer));
	struct store_insert o = insert_of("newer");
	assert_int_equal(run_any(s, &o.op, STORE_INSERT), STORE_UNAVAILABLE);
	assert_non_null(strstr(o.op.text, newer));
	assert_true(s->newer_schema);
	store_free(s);
	pg_server_sql(&server, "UPDATE reins.meta SET value = value::int - 97 WHERE key = 'schema'");
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_wait_up(s);
	assert_false(s->newer_schema);
	assert_non_null(strstr(state_text, "fsync is off"));
	store_free(s);
}

static void away_and_back(void **state)
{
	struct core_task t = insert(new_queue());
	int64_t s = session("w-away");
	claim(&t, "w-away", s);
	pg_server_kill(&server);
	wait_down(); /* what is sent before has an unknown outcome, and is settled when it is back */
	struct store_insert o = insert_of("away");
	assert_int_equal(run_any(h.store, &o.op, STORE_INSERT), STORE_UNAVAILABLE);
	struct store_record r = {.at = {t.id, 1}, .worker = "w-away", .outcome = STORE_SUCCEEDED};
	harness_submit(h.store, &r.op, STORE_RECORD);
	turn_for(50 * MS);
	pg_server_begin(&server);
	harness_drain();
	assert_int_equal(r.ret_verdict, CORE_RECORD_RECORDED);
	store_op_done_fields(&r.op);
}

static void freed_with_work(void **state)
{
	struct store *s = harness_another();
	struct store_insert o[10];
	for (int i = 0; i < 10; i++) {
		o[i] = insert_of("freed");
		harness_submit(s, &o[i].op, STORE_INSERT);
	}
	loop_turn(h.loop, false);
	store_free(s);
	for (int i = 0; i < 10; i++)
		assert_int_equal(o[i].op.result, STORE_UNAVAILABLE);
	harness_drain();
}

/* Frozen, not closed: only the watchdog tells. */
static void silent(void **state)
{
	enum { MOST = 600 };
	struct pg_store_config c = config;
	struct store_insert *o = test_calloc(MOST, sizeof(*o));
	struct store *s;
	int n = 0;
	c.statement_timeout_ns = 200 * MS;
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_wait_up(s);
	pg_server_signal(&server, SIGSTOP);
	while (s->up) { /* on a busy machine the first may be answered before all of the server stands still */
		assert_true(n < MOST);
		o[n] = insert_of("silent");
		harness_submit(s, &o[n++].op, STORE_INSERT);
		turn_for(50 * MS);
	}
	pg_server_signal(&server, SIGCONT);
	harness_drain();
	assert_int_equal(o[0].op.result, STORE_OK);
	assert_int_equal(o[0].ret_verdict, STORE_INSERT_CREATED);
	assert_int_equal(state_of(o[0].task.id), STORE_PENDING);
	store_free(s);
	test_free(o);
}

/* The silence of one connection is that of all: what was on its way is not sent down the next one, to wait once more. */
static void silence_is_found_out_once(void **state)
{
	enum { MOST = 10 };
	struct pg_store_config c = config;
	struct store_insert o[MOST];
	struct store *s;
	int n = 0;
	c.statement_timeout_ns = 200 * MS;
	assert_int_equal(pg_store_new(h.loop, &c, &s), 0);
	harness_wait_up(s);
	struct pg_store *pg = container_of(s, struct pg_store, base);
	for (int i = 0; i < c.connections; i++)
		while (!pg_conn_ready(pg->conns[i]))
			turn_for(MS);
	pg_server_signal(&server, SIGSTOP);
	int64_t until = clock_mono_ns() + DEADLINE_NS;
	while (s->up && clock_mono_ns() < until) {
		if (n < MOST && !pg->queues[STORE_INSERT].n_ops) { /* the one before was answered before all of the server stood still */
			o[n] = insert_of("silence");
			harness_submit(s, &o[n++].op, STORE_INSERT);
		}
		turn_for(5 * MS);
	}
	int sent = o[n - 1].op.sent;
	pg_server_signal(&server, SIGCONT);
	harness_drain();
	assert_int_equal(sent, 1);
	assert_int_equal(o[n - 1].op.result, STORE_OK);
	assert_int_equal(state_of(o[n - 1].task.id), STORE_PENDING);
	store_free(s);
}

/* ---- sendings that cross ---- */

/* As a connection that was given up may deliver it: how many sessions it opens. */
static int sending_arrives(PGconn *pq, const char *worker, int64_t order, int sent)
{
	char names[40], orders[40], sendings[40];
	snprintf(names, sizeof(names), "{%s}", worker);
	snprintf(orders, sizeof(orders), "{%lld}", (long long)order);
	snprintf(sendings, sizeof(sendings), "{%d}", sent);
	const char *const values[] = {names, "{01010101-0101-0101-0101-010101010101}", "{m1}", "{NULL}", orders, sendings};
	PGresult *r = PQexecParams(pq, pg_kinds[STORE_SESSION_OPEN].stmts[0].sql, ARRAY_LEN(values), NULL, values, NULL, NULL, 0);
	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s", PQerrorMessage(pq));
	int n = PQntuples(r);
	PQclear(r);
	return n;
}

/* A hello's first sending that comes after its second opens no session: its list is that of before. */
static void hello_sent_again(void **state)
{
	PGconn *pq = PQconnectdb(server.url);
	struct pg_setup setup = {.statement_timeout_ns = 10000 * MS};
	const char *sql;
	char text[200];
	assert_int_equal(pg_setup_next(&setup, NULL, &sql, text, sizeof(text)), 1);
	PQclear(PQexec(pq, sql));
	pg_setup_done(&setup);
	enum { T = 1 << 30 };
	assert_int_equal(sending_arrives(pq, "w-late", T, 0), 1); /* and its answer is lost */
	assert_int_equal(sending_arrives(pq, "w-late", T, 1), 1);
	assert_int_equal(sending_arrives(pq, "w-late", T, 0), 0);
	assert_int_equal(sending_arrives(pq, "w-late", T, 1), 0);
	assert_int_equal(sending_arrives(pq, "w-late", T + 1, 0), 1);
	assert_int_equal(sending_arrives(pq, "w-late", T, 2), 0);
	PQfinish(pq);
}

/* ---- plans ---- */

/* A plan is made once per connection: none may begin with a scan of a whole table, however small it is now. */
static void no_plan_scans(void **state)
{
	PGconn *pq = PQconnectdb(server.url);
	struct pg_setup setup = {.statement_timeout_ns = 10000 * MS};
	const char *sql;
	char text[200];
	assert_int_equal(pg_setup_next(&setup, NULL, &sql, text, sizeof(text)), 1);
	PQclear(PQexec(pq, sql));
	pg_setup_done(&setup);
	for (int k = 0; k < PG_KINDS; k++)
		for (int i = 0; i < pg_kinds[k].n_stmts; i++) {
			const struct pg_stmt *st = &pg_kinds[k].stmts[i];
			char explain[512];
			int n = snprintf(explain, sizeof(explain), "EXPLAIN (COSTS off) EXECUTE s");
			for (const char *c = st->columns; *c; c++)
				n += snprintf(explain + n, sizeof(explain) - (size_t)n, c == st->columns ? "(NULL" : ",NULL");
			snprintf(explain + n, sizeof(explain) - (size_t)n, *st->columns ? ")" : "");
			PGresult *p = PQprepare(pq, "s", st->sql, 0, NULL), *r = PQexec(pq, explain);
			if (PQresultStatus(r) != PGRES_TUPLES_OK)
				fail_msg("%s%d: %s", pg_kinds[k].name, i, PQerrorMessage(pq));
			bool counts_running = k == STORE_QUEUE_LIST; /* up to a limit; there are as many as slots */
			bool by_worker = k == STORE_SESSION_OPEN && i >= 3; /* a worker may have very many rows */
			for (int row = 0; row < PQntuples(r); row++)
				if ((strstr(PQgetvalue(r, row, 0), "Seq Scan") && !(counts_running && strstr(PQgetvalue(r, row, 0), "running r"))) ||
				    (strstr(PQgetvalue(r, row, 0), "running_worker") && !by_worker))
					fail_msg("%s%d: %s", pg_kinds[k].name, i, PQgetvalue(r, row, 0));
			PQclear(p);
			PQclear(r);
			PQclear(PQexec(pq, "DEALLOCATE s"));
		}
	PQfinish(pq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_plan_scans),     cmocka_unit_test(hello_sent_again), cmocka_unit_test(poisoned_insert), cmocka_unit_test(poisoned_outcome),
		cmocka_unit_test(large_both_ways),   cmocka_unit_test(strange_ids), cmocka_unit_test(old_logs_go),    cmocka_unit_test(locked_table), cmocka_unit_test(queue_full),
		cmocka_unit_test(newer_schema),      cmocka_unit_test(freed_with_work), cmocka_unit_test(away_and_back),
		cmocka_unit_test(connections_ended), cmocka_unit_test(read_only),       cmocka_unit_test(killed_under_load),
		cmocka_unit_test(cut_anywhere), cmocka_unit_test(retries_cut),      cmocka_unit_test(silent), cmocka_unit_test(silence_is_found_out_once),          cmocka_unit_test(over_tls),
	};
	return cmocka_run_group_tests_name("store/postgres faults", tests, group_begin, harness_end);
}
