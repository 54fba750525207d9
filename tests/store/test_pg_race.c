/* Two masters' stores fight over a few tasks with everything that changes a task, hundreds of operations on the
 * way at once.  Afterwards: as many attempts as claims won, at most one record of each attempt, and each task in
 * exactly one place.  Who reads events all the while sees each task's changes follow on each other. */
#include <stdio.h>

#include "common/base/num.h"
#include "common/base/rng.h"
#include "server/store/postgres/pg_store.h"
#include "server/store/store_logs.h"
#include "tests/store/follow.h"
#include "tests/store/pg_server.h"
#include "tests/store/suite.h"

#define TASKS 40
#define SLOTS 300
#define ATTEMPTS 4000
#define WORKERS 5

static struct pg_server server;

static void begin(void) { pg_server_start(&server, false); }
static void end(void) { pg_server_stop(&server); }

static struct store *open_store(struct loop *loop)
{
	struct pg_store_config cfg;
	struct store *s;
	pg_store_config_default(&cfg);
	cfg.url = server.url;
	cfg.max_batch = 50;
	if (pg_store_new(loop, &cfg, &s) < 0)
		fail_msg("pg_store_new");
	return s;
}

static const struct factory postgres = {"postgres", open_store, begin, end};
const struct factory *factory = &postgres;

struct slot {
	union {
		struct store_op op;
		struct store_claim claim;
		struct store_record record;
		struct store_take_back take_back;
		struct store_cancel cancel;
		struct store_retry retry;
		struct store_list list;
		struct store_session_open session;
		struct store_started started;
		struct store_log_append log;
		struct store_get get;
	};
	int task;
	struct core_attempt held[TASKS];
};

struct seen {
	struct core_task core;
	int32_t attempt; /* newest known */
	int32_t won;
	int worker; /* of the newest claim known */
	bool recorded[ATTEMPTS];
	int n_ended, n_retried;
};

static struct slot slots[SLOTS];
static struct seen seen[TASKS];
static struct store *stores[2];
static struct rng rng;
static int64_t sessions[WORKERS];
static const char *const names[WORKERS] = {"race-0", "race-1", "race-2", "race-3", "race-4"};
static size_t left, live, again;
static bool all_done, all_read;
static struct store_events events = {.op = {.kind = STORE_EVENTS}};
static struct reader reader;
static struct map followed;
static size_t n_changes, n_pages;

static int pick(int n) { return (int)rng_below(&rng, (uint64_t)n); }

static void on_done(struct store_op *op);

static void fill_slot(struct slot *s)
{
	int t = s->task = pick(TASKS), w = pick(4) ? seen[t].worker : pick(WORKERS);
	struct core_attempt at = {seen[t].core.id, seen[t].attempt - (pick(6) == 0)};
	enum store_kind kind;
	switch (pick(50) ? pick(11) : 11) {
	case 0: case 1: case 2: case 3:
		kind = STORE_CLAIM;
		w = pick(WORKERS);
		s->claim = (struct store_claim){.task = seen[t].core, .to = to_worker(names[w], sessions[w])};
		break;
	case 4: case 5: case 6:
		kind = STORE_RECORD;
		s->record = (struct store_record){.at = at, .worker = names[w], .outcome = pick(40) ? STORE_PROGRAM_FAILED : STORE_SUCCEEDED};
		break;
	case 7: case 8:
		kind = STORE_TAKE_BACK;
		s->take_back = (struct store_take_back){.at = at, .session = sessions[w], .cause = (enum core_take_back_cause)pick(5),
							.counted = pick(2)};
		break;
	case 11:
		kind = STORE_SESSION_OPEN;
		s->session = (struct store_session_open){.worker = names[w], .instance = {1}, .master = "m", .held = s->held};
		for (int i = 0; i < TASKS; i++)
			if (pick(2))
				s->held[s->session.n_held++] = (struct core_attempt){seen[i].core.id, seen[i].attempt};
		break;
	case 10:
		kind = STORE_STARTED;
		s->started = (struct store_started){.at = at, .worker = names[w], .started_wall_us = 1700000000000000};
		break;
	default:
		kind = pick(15) ? STORE_GET : STORE_CANCEL;
		if (kind == STORE_GET && pick(3) == 0)
			kind = pick(3) ? STORE_RETRY : STORE_LIST;
		if (kind == STORE_RETRY)
			s->retry = (struct store_retry){.id = at.task, .attempt = at.attempt};
		else if (kind == STORE_LIST)
			s->list = (struct store_list){.queue = "race", .limit = 50, .full = true, .max_bytes = 1 << 20};
		else if (kind == STORE_CANCEL)
			s->cancel = (struct store_cancel){.id = at.task};
		else
			s->get = (struct store_get){.id = at.task};
	}
	s->op.kind = kind;
	s->op.done = on_done;
	store_submit(stores[pick(2)], &s->op);
}

static void read_on(void)
{
	events.at = reader.at;
	events.n_at = reader.n_at;
	events.known = reader.known;
	events.limit = 1 + pick(20);
	store_submit(stores[1], &events.op);
}

static void on_events(struct store_op *op)
{
	if (op->result != STORE_OK || events.ret_gone)
		fail_msg("events: %s", op->text);
	n_changes += follow_changes(&followed, &events);
	n_pages++;
	reader_move(&reader, &events);
	bool rest = events.ret_more || events.ret_n;
	store_op_done_fields(op);
	if (rest || !all_done)
		read_on();
	else
		all_read = true;
}

static void on_record(struct slot *s, struct seen *t)
{
	if (s->record.ret_verdict != CORE_RECORD_RECORDED)
		return;
	assert_false(t->recorded[s->record.at.attempt]);
	t->recorded[s->record.at.attempt] = true;
	t->n_ended += s->record.ret_state != STORE_PENDING;
}

static void in_order(const struct store_task *k)
{
	for (size_t i = 0; i < k->n_attempts; i++) {
		assert_true(k->attempts[i].attempt <= k->core.attempt);
		assert_true(i == 0 || k->attempts[i].attempt > k->attempts[i - 1].attempt);
	}
}

static void on_done(struct store_op *op)
{
	struct slot *s = container_of(op, struct slot, op);
	struct seen *t = &seen[s->task];
	if (op->result != STORE_OK)
		fail_msg("%d: %s", op->kind, op->text);
	if (op->kind == STORE_CLAIM && s->claim.ret_won) {
		t->won++;
		if (s->claim.ret_task.attempt > t->attempt)
			for (int w = 0; w < WORKERS; w++)
				if (s->claim.to.worker == names[w])
					t->worker = w;
		t->attempt = s->claim.ret_task.attempt > t->attempt ? s->claim.ret_task.attempt : t->attempt;
		assert_true(t->attempt < ATTEMPTS - 1);
	} else if (op->kind == STORE_RECORD) {
		on_record(s, t);
	} else if (op->kind == STORE_SESSION_OPEN) {
		for (int w = 0; w < WORKERS; w++)
			if (s->session.worker == names[w] && s->session.ret_session > sessions[w])
				sessions[w] = s->session.ret_session;
		assert_int_equal(s->session.ret_n_adopted + s->session.ret_n_fenced, s->session.n_held);
	} else if (op->kind == STORE_GET) {
		assert_true(s->get.ret_found);
		/* One snapshot: the attempts are complete. */
		const struct store_task *k = &s->get.ret_task;
		in_order(k);
		if (k->n_attempts)
			assert_int_equal(k->attempts[k->n_attempts - 1].attempt, k->core.attempt);
	} else if (op->kind == STORE_LIST) {
		for (size_t i = 0; i < s->list.ret_n; i++)
			in_order(&s->list.ret_tasks[i]);
	} else if (op->kind == STORE_RETRY) {
		t->n_retried += s->retry.ret_verdict == STORE_RETRY_DONE;
	}
	store_op_done_fields(op);
	again++;
	if (left) {
		left--;
		fill_slot(s);
	} else if (--live == 0) {
		all_done = true;
	}
}

static void fight(void **state)
{
	int64_t seed = (int64_t)(rng_process_next() % 1000000), n = 15000;
	const char *e = getenv("REINS_TEST_SEED");
	if (e && num_parse_i64(e, &seed) < 0)
		fail_msg("REINS_TEST_SEED");
	e = getenv("REINS_TEST_STEPS");
	if (e && num_parse_i64(e, &n) < 0)
		fail_msg("REINS_TEST_STEPS");
	print_message("# seed %lld\n", (long long)seed);
	rng_seed(&rng, (uint64_t)seed);
	stores[0] = h.store;
	stores[1] = harness_another();
	for (int w = 0; w < WORKERS; w++)
		sessions[w] = session(names[w]);
	reader = reader_from_now();
	map_init(&followed);
	for (int i = 0; i < TASKS; i++) {
		struct store_insert o = insert_of("race");
		o.task.max_attempts = 1000000;
		run(&o.op, STORE_INSERT);
		seen[i] = (struct seen){.core = o.task};
		seen[i].core.seq = o.ret_seq;
	}
	left = (size_t)n;
	live = SLOTS;
	for (int i = 0; i < SLOTS; i++)
		fill_slot(&slots[i]);
	events.op.done = on_events;
	read_on();
	harness_until(&all_done);
	harness_until(&all_read);
	follow_check_rows(&followed);
	assert_int_equal(followed.len, TASKS);
	follow_done(&followed);
	int won = 0, recorded = 0, retried = 0;
	for (int i = 0; i < TASKS; i++) {
		struct store_get g = get(seen[i].core.id);
		assert_int_equal(g.ret_task.core.attempt, seen[i].won);
		won += seen[i].won;
		retried += seen[i].n_retried;
		assert_true(seen[i].n_ended <= seen[i].n_retried + 1);
		for (int a = 0; a < ATTEMPTS; a++)
			recorded += seen[i].recorded[a];
		store_op_done_fields(&g.op);
	}
	print_message("# %d claims won, %d outcomes recorded, %d retries, %zu changes in %zu pages\n", won, recorded, retried, n_changes, n_pages);
	assert_true(won > TASKS && recorded > TASKS && retried > 0);
	assert_string_equal(pg_server_sql(&server,
		"SELECT count(*) FROM reins.task t WHERE (SELECT count(*) FROM reins.ready r WHERE r.task_id = t.id) + "
		"(SELECT count(*) FROM reins.delayed r WHERE r.task_id = t.id) + (SELECT count(*) FROM reins.running r WHERE "
		"r.task_id = t.id) + (SELECT count(*) FROM reins.ended r WHERE r.task_id = t.id) <> 1"), "0");
	store_free(stores[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(fight)};
	return cmocka_run_group_tests_name("store/postgres race", tests, harness_begin, harness_end);
}
