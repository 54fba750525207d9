/* store_bench: the statements of our own schema, driven through the store's interface without anything above it: how
 * many rows a second this machine's Postgres or SQLite takes in, gives out and ends, by rows in a statement.
 *
 *   store_bench URL|sqlite:PATH [--batch N] [--statements N] [--tasks N] [-o json]
 *
 * Inserts so many tasks, claims them, records them, each phase with `statements` full batches on the way; then inserts
 * as many again as RUNNING (eager match) and records those.  SQLite takes what waits when it is free as one transaction:
 * with --statements 1 that is a batch, and with --batch 1 beside it the time of one operation alone. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/loop/loop.h"
#include "common/settings/settings.h"
#include "server/store/postgres/pg_store.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/bench/hist.h"
#include "tests/bench/report.h"

#define STALL_NS (30 * NS_PER_S)
#define WORKER "store-bench"

struct conf {
	char *output, *pid;
	int64_t batch, statements, tasks, connections;
};

static const struct setting table[] = {
	{ "batch", SETTING_INT, offsetof(struct conf, batch), NULL, "500", 1, 10000, .help = "Rows in a statement." },
	{ "statements", SETTING_INT, offsetof(struct conf, statements), NULL, "4", 1, 64, .help = "Statements on the way." },
	{ "connections", SETTING_INT, offsetof(struct conf, connections), NULL, "3", 1, 16, .help = "Connections to Postgres." },
	{ "tasks", SETTING_INT, offsetof(struct conf, tasks), NULL, "100000", 1, 10000000, .help = "Rows in each phase." },
	{ "pid", SETTING_STRING, offsetof(struct conf, pid), "NAME=PID[+]", NULL,
	  .help = "Process whose CPU time is reported for each phase; with + its children too." },
	{ "output", SETTING_STRING, offsetof(struct conf, output), "FORMAT", "table", .help = "table or json (also -o)." },
};

static const struct settings_program program = {
	.name = "store_bench",
	.summary = "store_bench measures the statements of the store on an empty database.",
	.usage = "store_bench URL [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

struct bench;

union any_op {
	struct store_op op;
	struct store_insert insert;
	struct store_claim claim;
	struct store_record record;
};

struct slot {
	union any_op u;
	struct bench *bench;
	size_t task;
	int64_t sent_mono_ns;
};

struct bench {
	struct conf conf;
	struct loop *loop;
	struct store *store;
	struct blob *spec;
	struct core_task *tasks;
	struct slot *slots;
	size_t n_slots, next, done;
	enum store_kind kind;
	bool eager;
	struct uuid7_maker ids;
	struct hist times;
	struct procs procs;
	char failure[300];
};

static void fail(struct bench *b, const char *what, const struct store_op *op)
{
	if (!b->failure[0])
		snprintf(b->failure, sizeof(b->failure), "%s: %s", what, op ? op->text : "");
}

static const struct store_assignment assignment = {
	.worker = WORKER, .instance = "0123456789abcde", .session = 1, .lease_ns = 10 * NS_PER_S, .master = WORKER, .incarnation = 1,
};

static void on_done(struct store_op *op);

static void send(struct bench *b, struct slot *s)
{
	size_t i = b->next++;
	s->bench = b;
	s->task = i;
	s->sent_mono_ns = clock_mono_ns();
	memset(&s->u, 0, sizeof(s->u));
	s->u.op.kind = b->kind;
	s->u.op.done = on_done;
	if (b->kind == STORE_INSERT) {
		b->tasks[i] = (struct core_task){ .id = uuid7_make(&b->ids, clock_wall_us()), .queue = "bench", .max_attempts = 1 };
		s->u.insert.task = b->tasks[i];
		s->u.insert.name = "";
		s->u.insert.owner = "";
		s->u.insert.spec = b->spec;
		if (b->eager) {
			s->u.insert.task.attempt = 1;
			s->u.insert.eager = assignment;
		}
	} else if (b->kind == STORE_CLAIM) {
		s->u.claim.task = b->tasks[i];
		s->u.claim.to = assignment;
	} else {
		s->u.record.at = (struct core_attempt){ b->tasks[i].id, 1 };
		s->u.record.worker = WORKER;
		s->u.record.outcome = STORE_SUCCEEDED;
		s->u.record.started_wall_us = s->u.record.finished_wall_us = clock_wall_us();
	}
	store_submit(b->store, &s->u.op);
}

static void check(struct bench *b, struct slot *s)
{
	if (s->u.op.result != STORE_OK)
		fail(b, "an operation was not done", &s->u.op);
	else if (b->kind == STORE_INSERT && s->u.insert.ret_verdict != STORE_INSERT_CREATED)
		fail(b, "an insert made no task", NULL);
	else if (b->kind == STORE_CLAIM && !s->u.claim.ret_won)
		fail(b, "a claim was lost", NULL);
	else if (b->kind == STORE_RECORD && s->u.record.ret_verdict != CORE_RECORD_RECORDED)
		fail(b, "an outcome was not recorded", NULL);
	if (b->kind == STORE_INSERT)
		b->tasks[s->task].seq = s->u.insert.ret_seq;
}

static void on_done(struct store_op *op)
{
	struct slot *s = container_of(op, struct slot, u.op);
	struct bench *b = s->bench;
	hist_add(&b->times, clock_mono_ns() - s->sent_mono_ns);
	check(b, s);
	store_op_done_fields(op);
	b->done++;
	if (!b->failure[0] && b->next < (size_t)b->conf.tasks)
		send(b, s);
}

static void on_wake(struct loop_timer *t)
{
	(void)t;
}

/* Until `done` is true, as long as something moves. */
static void turn_until(struct bench *b, bool (*ready)(const struct bench *b))
{
	struct loop_timer wake;
	size_t seen = 0;
	int64_t until = clock_mono_ns() + STALL_NS;
	loop_timer_init(&wake, b->loop, on_wake);
	while (!b->failure[0] && !ready(b)) {
		if (b->done != seen) {
			seen = b->done;
			until = clock_mono_ns() + STALL_NS;
		}
		if (clock_mono_ns() > until)
			fail(b, "nothing moved for 30 s", NULL);
		loop_timer_set(&wake, until);
		loop_turn(b->loop, true);
	}
	loop_timer_stop(&wake);
}

static bool is_up(const struct bench *b)
{
	return b->store->up;
}

static bool all_done(const struct bench *b)
{
	return b->done == (size_t)b->conf.tasks;
}

static void phase(struct bench *b, struct report *r, const char *name, enum store_kind kind, bool eager)
{
	char key[64];
	b->kind = kind;
	b->eager = eager;
	b->next = b->done = 0;
	hist_init(&b->times);
	struct procs_reading before = { 0 }, after = { 0 };
	if (b->procs.n)
		procs_read(&b->procs.at[0], &before);
	int64_t batches = b->store->batches_done[kind], begin = clock_mono_ns();
	for (size_t i = 0; i < b->n_slots && b->next < (size_t)b->conf.tasks && !b->failure[0]; i++)
		send(b, &b->slots[i]);
	turn_until(b, all_done);
	double seconds = (double)(clock_mono_ns() - begin) / 1e9;
	batches = b->store->batches_done[kind] - batches;
	snprintf(key, sizeof(key), "%s_per_s", name);
	report_number(r, key, (double)b->done / seconds, "rows/s");
	snprintf(key, sizeof(key), "%s_rows_per_statement", name);
	report_number(r, key, batches ? (double)b->done / (double)batches : 0, "rows");
	snprintf(key, sizeof(key), "%s_p50_us", name);
	report_number(r, key, (double)hist_quantile(&b->times, 0.5) / 1e3, "us");
	snprintf(key, sizeof(key), "%s_p99_us", name);
	report_number(r, key, (double)hist_quantile(&b->times, 0.99) / 1e3, "us");
	if (b->procs.n) {
		procs_read(&b->procs.at[0], &after);
		snprintf(key, sizeof(key), "%s_cpu_s_per_100k", name);
		report_number(r, key, (after.cpu_s - before.cpu_s) * 1e5 / (double)max_i64((int64_t)b->done, 1), "s");
	}
}

static int open_sqlite(struct bench *b, const char *path)
{
	struct sqlite_store_config cfg;
	char err[200];
	sqlite_store_config_default(&cfg);
	cfg.path = path;
	return sqlite_store_new(b->loop, &cfg, err, sizeof(err), &b->store);
}

static int open_postgres(struct bench *b, const char *url)
{
	struct pg_store_config cfg;
	pg_store_config_default(&cfg);
	cfg.url = url;
	cfg.connections = (int32_t)b->conf.connections;
	cfg.max_batch = (int32_t)b->conf.batch;
	cfg.max_in_flight = (int32_t)b->conf.statements;
	return pg_store_new(b->loop, &cfg, &b->store);
}

static int run(struct bench *b, const char *url)
{
	struct report r;
	static const uint8_t bytes[120] = { 0 };
	if (b->conf.pid && procs_add(&b->procs, b->conf.pid)) {
		fprintf(stderr, "store_bench: pid: NAME=PID or NAME=PID+ is wanted\n");
		return 64;
	}
	bool sqlite = strncmp(url, "sqlite:", 7) == 0;
	if (loop_new(&b->loop) || (sqlite ? open_sqlite(b, url + 7) : open_postgres(b, url))) {
		fprintf(stderr, "store_bench: %s can't be opened\n", url);
		return 64;
	}
	report_init(&r, "store", strcmp(b->conf.output, "json") == 0);
	report_number(&r, "batch", (double)b->conf.batch, "rows at most in a statement");
	b->n_slots = (size_t)(b->conf.batch * b->conf.statements);
	b->slots = xcalloc(b->n_slots, sizeof(*b->slots));
	b->tasks = xcalloc((size_t)b->conf.tasks, sizeof(*b->tasks));
	b->spec = blob_new(bytes, sizeof(bytes));
	turn_until(b, is_up);
	phase(b, &r, "insert", STORE_INSERT, false);
	phase(b, &r, "claim", STORE_CLAIM, false);
	phase(b, &r, "record", STORE_RECORD, false);
	phase(b, &r, "insert_running", STORE_INSERT, true);
	phase(b, &r, "record_again", STORE_RECORD, false);
	report_check(&r, !b->failure[0], "%s", b->failure);
	store_free(b->store);
	loop_turn(b->loop, false);
	loop_free(b->loop);
	blob_unref(b->spec);
	free(b->slots);
	free(b->tasks);
	bool failed = r.failed;
	report_end(&r);
	return failed;
}

int main(int argc, char **argv)
{
	struct bench b = { .loop = NULL };
	char **rest = NULL;
	int n_rest = 0;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "-o") == 0)
			argv[i] = (char *)(uintptr_t) "--output";
	switch (settings_load(&program, argc, argv, &b.conf, &rest, &n_rest)) {
	case SETTINGS_RUN:
		break;
	case SETTINGS_EXIT_0:
		return 0;
	default:
		return 64;
	}
	int rc = 64;
	if (n_rest == 1)
		rc = run(&b, rest[0]);
	else
		fprintf(stderr, "store_bench: one URL is wanted; store_bench --help says more\n");
	free(rest);
	settings_done(&program, &b.conf);
	return rc;
}
