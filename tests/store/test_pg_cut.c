/* The connection is cut while an operation of each kind is on its way: once before the server has heard of it, and once after
 * it has committed and before its answer is here.  Either way the operation is answered by itself on the next connection, with
 * the answer that the first time had or would have had, and what it does is done once. */
#include <stdio.h>

#include "common/base/clock.h"
#include "server/store/postgres/pg.h"
#include "server/store/store_logs.h"
#include "server/store/store_metrics.h"
#include "server/store/workers.h"
#include "tests/store/pg_server.h"
#include "tests/store/relay.h"
#include "tests/store/suite.h"

static struct pg_server server;
static struct pg_store_config config;
static struct relay relay;
static enum relay_loses step; /* what is lost in this run of the tests */

static void begin(void)
{
	pg_server_start(&server, false);
	relay_start(&relay, server.port, 0);
}

static void end(void)
{
	relay_stop(&relay);
	pg_server_stop(&server);
}

static struct store *open_store(struct loop *loop)
{
	static char url[128];
	struct store *s;
	snprintf(url, sizeof(url), "postgres://reins@127.0.0.1:%d/postgres", relay.port);
	pg_store_config_default(&config);
	config.url = url;
	config.connections = 1; /* with a second one nobody would notice */
	if (pg_store_new(loop, &config, &s) < 0)
		fail_msg("pg_store_new");
	return s;
}

static const struct factory postgres = {"postgres through a relay", open_store, begin, end};
const struct factory *factory = &postgres;

static int lose_requests(void **state)
{
	step = RELAY_REQUESTS;
	return 0;
}

static int lose_answers(void **state)
{
	step = RELAY_ANSWERS;
	return 0;
}

/* Runs the operation across a cut; the answer must be as if there had been none.  Of a read nobody has to know what became
 * of it: it is refused at once, and asked again. */
static void run_cut(struct store_op *op, enum store_kind kind)
{
	int64_t until = clock_mono_ns() + DEADLINE_NS;
	harness_wait_up(h.store);
	relay_lose(&relay, step);
	harness_submit(h.store, op, kind);
	while (!atomic_load(&relay.lost)) {
		assert_true(clock_mono_ns() < until);
		loop_turn(h.loop, false);
	}
	relay_cut(&relay);
	harness_drain();
	harness_wait_up(h.store);
	if (pg_kinds[kind].reads) {
		assert_int_equal(op->result, STORE_UNAVAILABLE);
		run_any(h.store, op, kind);
	} else {
		assert_int_equal(op->sent, 1); /* else nothing was cut */
	}
	if (op->result != STORE_OK)
		fail_msg("%s: %s", store_kind_name(kind), op->text);
}

static int rows(const char *table, const struct uuid *task)
{
	char sql[200], text[UUID_TEXT_LEN + 1];
	uuid_format(task, text);
	snprintf(sql, sizeof(sql), "SELECT count(*)::text FROM reins.%s WHERE task_id = '%s'", table, text);
	return (int)strtol(pg_server_sql(&server, sql), NULL, 10);
}

/* ---- tasks ---- */

static void inserts(void **state)
{
	struct store_insert o = insert_of("cut");
	run_cut(&o.op, STORE_INSERT);
	assert_int_equal(o.ret_verdict, STORE_INSERT_CREATED);
	assert_true(o.ret_seq > 0);
	assert_int_equal(state_of(o.task.id), STORE_PENDING);
	assert_int_equal(rows("ready", &o.task.id), 1);

	struct store_insert keyed = insert_of("cut");
	char key[32];
	snprintf(key, sizeof(key), "key-%d", (int)step);
	keyed.idempotency_key = key;
	run_cut(&keyed.op, STORE_INSERT);
	assert_int_equal(keyed.ret_verdict, STORE_INSERT_CREATED);
	struct store_insert again = insert_of("cut");
	again.idempotency_key = key;
	run_cut(&again.op, STORE_INSERT);
	assert_int_equal(again.ret_verdict, STORE_INSERT_EXISTS);
	assert_true(uuid_eq(&again.ret_id, &keyed.task.id));

	struct store_insert eager = insert_of("cut");
	eager.eager = to_worker("w-cut", session("w-cut"));
	run_cut(&eager.op, STORE_INSERT);
	assert_int_equal(eager.ret_verdict, STORE_INSERT_CREATED);
	assert_int_equal(state_of(eager.task.id), STORE_RUNNING);
	assert_int_equal(rows("running", &eager.task.id), 1);
	assert_int_equal(rows("ready", &eager.task.id), 0);
}

static void groups(void **state)
{
	enum { N = 50 };
	struct store_insert o[N];
	for (int i = 0; i < N; i++) {
		o[i] = insert_of("cut");
		if (i)
			o[i - 1].group_next = &o[i];
	}
	o[0].group_n = N;
	run_cut(&o[0].op, STORE_INSERT);
	for (int i = 0; i < N; i++) {
		assert_int_equal(o[i].ret_verdict, STORE_INSERT_CREATED);
		assert_int_equal(state_of(o[i].task.id), STORE_PENDING);
		assert_int_equal(rows("ready", &o[i].task.id), 1);
	}
}

static void claims(void **state)
{
	int64_t s = session("w-cut");
	struct core_task t = insert(new_queue());
	struct store_claim c = {.task = t, .to = to_worker("w-cut", s)};
	run_cut(&c.op, STORE_CLAIM);
	assert_true(c.ret_won);
	assert_int_equal(c.ret_task.attempt, 1);
	store_op_done_fields(&c.op);
	assert_int_equal(state_of(t.id), STORE_RUNNING);
	/* Somebody else's stays theirs. */
	struct store_claim late = {.task = t, .to = to_worker("w-other", session("w-other"))};
	run_cut(&late.op, STORE_CLAIM);
	assert_false(late.ret_won);
	store_op_done_fields(&late.op);
}

static void started(void **state)
{
	struct core_attempt at = running(&(struct core_task){.priority = 0}, "w-cut", session("w-cut"));
	struct store_started o = {.at = at, .worker = "w-cut", .started_wall_us = 1700000000000000, .devices = "0 1"};
	run_cut(&o.op, STORE_STARTED);
	struct store_get g = get(at.task);
	assert_int_equal(g.ret_task.attempts[0].started_wall_us, 1700000000000000);
	store_op_done_fields(&g.op);
}

static void logs(void **state)
{
	struct core_attempt at = running(&(struct core_task){.priority = 0}, "w-cut", session("w-cut"));
	struct store_log_piece pieces[] = {{.offset = 0, .stream = STORE_STDOUT, .data = h.spec},
					   {.offset = 4, .stream = STORE_STDERR, .data = h.spec}};
	struct store_log_append o = {.at = at, .worker = "w-cut", .pieces = pieces, .n = 2};
	run_cut(&o.op, STORE_LOG_APPEND);
	assert_false(o.ret_fenced);
	struct store_log_read r = {.at = at, .max_bytes = 100};
	run_cut(&r.op, STORE_LOG_READ);
	assert_int_equal(r.ret_n, 2);
	assert_int_equal(r.ret_chunks[1].offset, 4);
	store_op_done_fields(&r.op);
	assert_int_equal(rows("log", &at.task), 2);
}

static void metrics(void **state)
{
	struct core_attempt at = running(&(struct core_task){.priority = 0}, "w-cut", session("w-cut"));
	struct store_metric items[] = {{1, {(const uint8_t *)"a", 1}}, {2, {(const uint8_t *)"b", 1}}};
	struct store_metrics o = {.at = at, .worker = "w-cut", .items = items, .n = 2};
	run_cut(&o.op, STORE_METRICS);
	assert_false(o.ret_fenced);
	assert_int_equal(rows("metric", &at.task), 2);
	struct store_metrics_read r = {.at = at, .limit = 10};
	run_cut(&r.op, STORE_METRICS_READ);
	assert_int_equal(r.ret_n, 2);
	store_op_done_fields(&r.op);
}

static void records(void **state)
{
	struct core_task t;
	struct core_attempt at = running(&t, "w-cut", session("w-cut"));
	struct store_record o = {.at = at, .worker = "w-cut", .outcome = STORE_SUCCEEDED, .has_exit_code = true, .result = h.spec};
	run_cut(&o.op, STORE_RECORD);
	assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
	assert_int_equal(o.ret_state, STORE_COMPLETED);
	store_op_done_fields(&o.op);
	/* Another word about it changes nothing. (That it is not this report which was recorded is not known after a cut.) */
	struct store_record again = {.at = at, .worker = "w-cut", .outcome = STORE_PROGRAM_FAILED};
	run_cut(&again.op, STORE_RECORD);
	assert_true(again.ret_verdict == CORE_RECORD_DUPLICATE || again.ret_verdict == CORE_RECORD_RECORDED);
	assert_int_equal(again.ret_state, STORE_COMPLETED);
	store_op_done_fields(&again.op);
	struct store_get g = get(at.task);
	assert_int_equal(g.ret_task.state, STORE_COMPLETED);
	assert_int_equal(g.ret_task.n_attempts, 1);
	store_op_done_fields(&g.op);
	assert_int_equal(rows("ended", &at.task), 1);
}

/* A failure that is tried again: one more attempt, not two. */
static void record_and_retry(void **state)
{
	struct store_insert i = insert_of("cut");
	i.task.max_attempts = 3;
	i.eager = to_worker("w-cut", session("w-cut"));
	run(&i.op, STORE_INSERT);
	struct store_record o = {.at = {i.task.id, 1}, .worker = "w-cut", .outcome = STORE_PROGRAM_FAILED};
	run_cut(&o.op, STORE_RECORD);
	assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
	/* Known late: its ready row is left to whoever has looked at it since. */
	assert_int_equal(o.ret_state, step == RELAY_REQUESTS ? STORE_PENDING : STORE_RUNNING);
	store_op_done_fields(&o.op);
	struct store_get g = get(i.task.id);
	assert_int_equal(g.ret_task.state, STORE_PENDING);
	assert_int_equal(g.ret_task.core.failures, 1);
	store_op_done_fields(&g.op);
}

static void retries(void **state)
{
	struct core_attempt at = running(&(struct core_task){.priority = 0}, "w-cut", session("w-cut"));
	assert_int_equal(record(at, "w-cut", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	struct store_retry o = {.id = at.task, .attempt = 1};
	run_cut(&o.op, STORE_RETRY);
	assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
	store_op_done_fields(&o.op);
	assert_int_equal(state_of(at.task), STORE_PENDING);
	assert_int_equal(rows("ready", &at.task), 1);
}

static void cancels(void **state)
{
	struct core_task t = insert(new_queue());
	struct store_cancel o = {.id = t.id, .words = "cancelled"};
	run_cut(&o.op, STORE_CANCEL);
	assert_int_equal(o.ret_verdict, STORE_CANCEL_DONE);
	assert_int_equal(state_of(t.id), STORE_CANCELLED);
	struct core_attempt at = running(&t, "w-cut", session("w-cut"));
	struct store_cancel wish = {.id = at.task, .words = "cancelled"};
	run_cut(&wish.op, STORE_CANCEL);
	assert_int_equal(wish.ret_verdict, STORE_CANCEL_WISH);
	assert_int_equal(wish.ret_at.attempt, 1);
	assert_int_equal(state_of(at.task), STORE_RUNNING);
}

static void take_backs(void **state)
{
	struct core_task t;
	int64_t s = session("w-cut");
	struct core_attempt at = running(&t, "w-cut", s);
	struct store_take_back o = {.at = at, .session = s, .cause = CORE_CAUSE_WORKER_LOST, .counted = true, .lost_limit = 3};
	run_cut(&o.op, STORE_TAKE_BACK);
	assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_PENDING);
	store_op_done_fields(&o.op);
	assert_int_equal(state_of(at.task), STORE_PENDING);
	assert_int_equal(rows("ready", &at.task), 1);
}

static void reads(void **state)
{
	struct core_task t = insert(new_queue());
	struct store_get g = {.id = t.id};
	run_cut(&g.op, STORE_GET);
	assert_true(g.ret_found);
	store_op_done_fields(&g.op);
	struct store_list l = {.limit = 1000, .queue = t.queue, .max_bytes = 1 << 20};
	run_cut(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 1);
	store_op_done_fields(&l.op);
	struct store_fill f = {.queue = t.queue, .from_start = true, .limit = 10};
	run_cut(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 1);
	store_op_done_fields(&f.op);
	struct store_queues q = {.op = {.kind = STORE_QUEUES}};
	run_cut(&q.op, STORE_QUEUES);
	assert_true(q.ret_n >= 1);
	store_op_done_fields(&q.op);
	struct store_strays s = {.master = "m1", .limit = 10};
	run_cut(&s.op, STORE_STRAYS);
	store_op_done_fields(&s.op);
}

/* What was due is given out by the answer of the first run or of the second; the task is ready either way. */
static void due_and_expired(void **state)
{
	struct store_insert delayed = insert_of(new_queue()), old = insert_of(delayed.task.queue);
	delayed.delay_ns = MS;
	old.expiry_ns = MS;
	run(&delayed.op, STORE_INSERT);
	run(&old.op, STORE_INSERT);
	int64_t until = clock_mono_ns() + 20 * MS;
	while (clock_mono_ns() < until)
		loop_turn(h.loop, false);
	struct store_due d = {.limit = 100};
	run_cut(&d.op, STORE_DUE);
	store_op_done_fields(&d.op);
	assert_int_equal(rows("ready", &delayed.task.id), 1);
	struct store_expire e = {.limit = 100};
	run_cut(&e.op, STORE_EXPIRE);
	store_op_done_fields(&e.op);
	assert_int_equal(state_of(old.task.id), STORE_FAILED);
	assert_int_equal(rows("ended", &old.task.id), 1);
}

/* ---- sessions, workers, masters ---- */

static void sessions(void **state)
{
	int64_t first = session("w-open");
	struct core_task t;
	struct core_attempt at = running(&t, "w-open", first), dropped = running(&t, "w-open", first);
	struct core_attempt strange = {new_id(), 1}, held[] = {at, strange};
	struct store_session_open o = {.worker = "w-open", .instance = {1}, .master = "m1", .held = held, .n_held = 2};
	run_cut(&o.op, STORE_SESSION_OPEN);
	assert_true(o.ret_session > first);
	assert_int_equal(o.ret_n_adopted, 1);
	assert_true(uuid_eq(&o.ret_adopted[0].task.id, &at.task));
	assert_int_equal(o.ret_n_fenced, 1);
	assert_true(uuid_eq(&o.ret_fenced[0].task, &strange.task));
	int64_t newest = o.ret_session;
	store_op_done_fields(&o.op);
	assert_int_equal(state_of(at.task), STORE_RUNNING);
	assert_int_equal(state_of(dropped.task), STORE_PENDING);
	assert_int_equal(rows("ready", &dropped.task), 1);
	/* The session that was answered is the one that holds the attempt. */
	struct store_take_back b = take_back(at, newest, CORE_CAUSE_WORKER_LOST, false);
	assert_int_equal(b.ret_verdict, CORE_TAKE_BACK_PENDING);
	store_op_done_fields(&b.op);
}

static void workers(void **state)
{
	int64_t s = session("w-drain");
	struct store_drain d = {.worker = "w-drain", .wish = {.mode = 1, .within_ns = -1, .reason = "tests"}};
	run_cut(&d.op, STORE_DRAIN);
	assert_true(d.ret_found);
	struct store_detached a = {.worker = "w-drain", .session = s, .within_ns = NS_PER_S};
	run_cut(&a.op, STORE_DETACHED);
	struct store_worker_gone g = {.worker = "w-drain", .session = s};
	run_cut(&g.op, STORE_WORKER_GONE);
	struct store_workers w = {.only = "w-drain", .after = "", .limit = 1};
	run_cut(&w.op, STORE_WORKERS);
	assert_int_equal(w.ret_n, 1);
	assert_int_equal(w.ret_rows[0].drain.mode, 1);
	assert_true(w.ret_rows[0].heard_wall_us > 0);
	store_op_done_fields(&w.op);
}

static void masters(void **state)
{
	char name[32];
	snprintf(name, sizeof(name), "m-cut-%d", (int)step);
	struct uuid process = new_id();
	struct store_master_open o = {.master = name, .process = process};
	run_cut(&o.op, STORE_MASTER_OPEN);
	assert_true(o.ret_incarnation >= 1 && !o.ret_replaced);
	/* The incarnation that was answered is the row's. */
	struct store_beat b = {.master = name, .incarnation = o.ret_incarnation, .process = process};
	run_cut(&b.op, STORE_BEAT);
	assert_false(b.ret_replaced || b.ret_taken_over);
	struct store_beat stranger = {.master = name, .incarnation = o.ret_incarnation - 1, .process = new_id()};
	run_cut(&stranger.op, STORE_BEAT);
	assert_true(stranger.ret_replaced && !stranger.ret_taken_over);
}

/* Taken over once: the incarnation that was answered is the one after the dead one's. */
static void take_overs(void **state)
{
	char name[32];
	snprintf(name, sizeof(name), "m-dead-%d", (int)step);
	struct store_master_open o = {.master = name, .process = new_id()};
	run(&o.op, STORE_MASTER_OPEN);
	char sql[100];
	snprintf(sql, sizeof(sql), "SELECT beat::text FROM reins.master WHERE id = '%s'", name);
	int64_t beat = strtoll(pg_server_sql(&server, sql), NULL, 10);
	struct store_take_over t = {.master = name, .incarnation = o.ret_incarnation, .beat = beat};
	run_cut(&t.op, STORE_TAKE_OVER);
	assert_true(t.ret_taken);
	assert_int_equal(t.ret_incarnation, o.ret_incarnation + 1);
	struct store_beat b = {.master = name, .incarnation = o.ret_incarnation, .process = o.process};
	run_cut(&b.op, STORE_BEAT);
	assert_true(b.ret_taken_over && !b.ret_replaced);
}

#define BOTH(test) { #test " before the commit", test, lose_requests, NULL, NULL }, { #test " after the commit", test, lose_answers, NULL, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(inserts), BOTH(groups),	       BOTH(claims),  BOTH(started), BOTH(logs),  BOTH(metrics),
		BOTH(records), BOTH(record_and_retry), BOTH(retries), BOTH(cancels), BOTH(take_backs), BOTH(reads),
		BOTH(due_and_expired), BOTH(sessions), BOTH(workers), BOTH(masters), BOTH(take_overs),
	};
	return cmocka_run_group_tests_name("store/postgres cut", tests, harness_begin, harness_end);
}
