/* A store as simple as can be, in arrays, and a random walk that asks both the same.  The seed is printed;
 * REINS_TEST_SEED chooses one, REINS_TEST_STEPS how far to walk. */
#include <stdio.h>

#include "common/base/num.h"
#include "common/base/rng.h"
#include "server/store/workers.h"
#include "tests/store/suite.h"

#define TASKS 3000
#define WORKERS 4
#define NOBODY (-1)
#define LOST_LIMIT 3
#define BATCH 16
#define ATTEMPTS 40

struct past {
	int attempt, worker;
	enum store_outcome outcome;
	bool reported, counted;
};

struct mtask {
	struct core_task core;
	enum store_state state;
	bool wish, began, last_reported;
	bool waits;    /* PENDING, and not due for as long as this test runs */
	bool expires; /* its expiry has come, and it was never given out */
	int losses;
	int worker, instance, open;
	int64_t session;
	enum store_outcome outcome;
	struct past past[ATTEMPTS];
	int n_past;
};

struct mworker {
	char name[16];
	int instance;
	int64_t session;
	int32_t drain; /* mode of the wish; 0: none */
	bool gone;
};

static struct mtask tasks[TASKS];
static int n_tasks;
static struct mworker workers[WORKERS];
static struct rng rng;
static const char *queues[3];
static int random_number;

static int pick(int n) { return (int)rng_below(&rng, (uint64_t)n); }

static void push_past(struct mtask *t, enum store_outcome outcome, bool reported, bool counted)
{
	t->past[t->n_past++] = (struct past){t->core.attempt, t->worker, outcome, reported, counted};
}

static void finish(struct mtask *t, enum store_state st, enum store_outcome outcome, bool reported)
{
	t->state = st;
	t->outcome = outcome;
	t->last_reported = reported;
	t->open = NOBODY;
}

/* ---- what each operation should do ---- */

static enum core_record_verdict model_record(struct mtask *t, int attempt, int worker, enum store_outcome outcome, bool delayed)
{
	bool failed = outcome == STORE_PROGRAM_FAILED || outcome == STORE_LAUNCH_FAILED || outcome == STORE_TIMED_OUT;
	if (t->state == STORE_RUNNING && attempt == t->core.attempt && worker == t->worker) {
		enum store_state st;
		if (outcome == STORE_SUCCEEDED)
			st = STORE_COMPLETED;
		else if (!failed)
			st = t->wish ? STORE_CANCELLED : STORE_PENDING;
		else
			st = !t->wish && t->core.failures + 1 < t->core.max_attempts ? STORE_PENDING : STORE_FAILED;
		t->losses += outcome == STORE_WORKER_LOST;
		if (outcome == STORE_WORKER_LOST && !t->wish && t->losses >= LOST_LIMIT)
			st = STORE_FAILED;
		t->core.failures += failed;
		t->waits = failed && delayed;
		if (st == STORE_PENDING) {
			push_past(t, outcome, true, false);
			t->state = st;
		} else {
			finish(t, st, outcome, true);
		}
		return CORE_RECORD_RECORDED;
	}
	if (t->state == STORE_PENDING && t->open == worker && attempt == t->core.attempt && outcome == STORE_SUCCEEDED) {
		t->losses -= t->past[--t->n_past].counted;
		t->worker = worker;
		finish(t, STORE_COMPLETED, outcome, true);
		return CORE_RECORD_RECORDED;
	}
	if (t->state > STORE_RUNNING && t->last_reported && attempt == t->core.attempt && worker == t->worker)
		return CORE_RECORD_DUPLICATE;
	for (int i = 0; i < t->n_past; i++)
		if (t->past[i].attempt == attempt && t->past[i].worker == worker && t->past[i].reported)
			return CORE_RECORD_DUPLICATE;
	return CORE_RECORD_FENCED;
}

static void model_lose(struct mtask *t, enum store_outcome outcome, bool counted, bool opens)
{
	t->losses += counted;
	if (t->wish || (counted && t->losses >= LOST_LIMIT)) {
		finish(t, t->wish ? STORE_CANCELLED : STORE_FAILED, outcome, false);
		return;
	}
	push_past(t, outcome, false, counted);
	t->state = STORE_PENDING;
	t->open = opens ? t->worker : NOBODY;
}

static int model_cancel(struct mtask *t)
{
	switch (t->state) {
	case STORE_PENDING:
		t->worker = NOBODY;
		t->wish = true;
		finish(t, STORE_CANCELLED, 0, false);
		return STORE_CANCEL_DONE;
	case STORE_RUNNING:
		t->wish = true;
		return STORE_CANCEL_WISH;
	default:
		return STORE_CANCEL_TERMINAL;
	}
}

/* ---- steps: the same to both ---- */

static void step_insert(void)
{
	static struct store_insert ops[BATCH];
	int n = 1 + pick(BATCH);
	for (int i = 0; i < n; i++) {
		struct store_insert *o = &ops[i];
		*o = insert_of(queues[pick(3)]);
		o->task.priority = pick(5) - 2;
		o->task.max_attempts = 1 + pick(3);
		o->task.exclusive = pick(4) == 0;
		if (pick(8) == 0)
			o->delay_ns = 3600 * 1000 * MS;
		o->task.handler = pick(4) ? NULL : "h";
		o->task.custom = pick(4) ? NULL : "a=1 b=2";
		/* So short that it is over when the insert has been answered, or so long that it never is. */
		o->expiry_ns = pick(4) ? 0 : pick(3) ? 3600 * 1000 * MS : 1000;
		int w = pick(WORKERS);
		if (pick(4) == 0 && workers[w].session) {
			o->eager = to_worker(workers[w].name, workers[w].session);
			o->eager.instance[0] = (uint8_t)workers[w].instance;
		}
	}
	run_many(ops, (size_t)n, sizeof(*ops), STORE_INSERT);
	for (int i = 0; i < n && n_tasks < TASKS; i++) {
		struct store_insert *o = &ops[i];
		assert_int_equal(o->ret_verdict, STORE_INSERT_CREATED);
		struct mtask *t = &tasks[n_tasks++];
		*t = (struct mtask){.core = o->task, .state = STORE_PENDING, .worker = NOBODY, .open = NOBODY};
		t->core.seq = o->ret_seq;
		t->waits = o->delay_ns && !o->eager.worker;
		t->expires = o->expiry_ns == 1000 && !o->eager.worker;
		if (!o->eager.worker)
			continue;
		t->state = STORE_RUNNING;
		t->core.attempt = 1;
		for (int w = 0; w < WORKERS; w++)
			if (o->eager.worker == workers[w].name) {
				t->worker = w;
				t->session = workers[w].session;
				t->instance = workers[w].instance;
			}
	}
}

/* Distinct tasks, most of them recent. */
static int choose(struct mtask **ret)
{
	int n = 0;
	for (int tries = 1 + pick(BATCH); tries && n_tasks; tries--) {
		int recent = n_tasks < 40 ? n_tasks : 40;
		struct mtask *t = &tasks[n_tasks - 1 - pick(pick(5) ? recent : n_tasks)];
		bool seen = t->n_past > ATTEMPTS - 3;
		for (int i = 0; i < n; i++)
			seen |= ret[i] == t;
		if (!seen)
			ret[n++] = t;
	}
	return n;
}

static void step_claim(void)
{
	static struct store_claim ops[BATCH];
	struct mtask *at[BATCH];
	int to[BATCH], n = choose(at);
	bool old[BATCH];
	for (int i = 0; i < n; i++) {
		to[i] = pick(WORKERS);
		old[i] = pick(8) == 0; /* for a session that is over */
		ops[i] = (struct store_claim){.task = at[i]->core, .to = to_worker(workers[to[i]].name, workers[to[i]].session - old[i])};
		ops[i].to.instance[0] = (uint8_t)workers[to[i]].instance;
	}
	run_many(ops, (size_t)n, sizeof(*ops), STORE_CLAIM);
	for (int i = 0; i < n; i++) {
		struct mtask *t = at[i];
		assert_int_equal(ops[i].ret_won, t->state == STORE_PENDING && !t->waits && !t->expires && !old[i]);
		assert_int_equal(ops[i].ret_stale, old[i]);
		if (ops[i].ret_won) {
			t->state = STORE_RUNNING;
			t->core.attempt++;
			t->worker = to[i];
			t->session = workers[to[i]].session;
			t->instance = workers[to[i]].instance;
			t->open = NOBODY;
			t->began = false;
			assert_int_equal(ops[i].ret_task.attempt, t->core.attempt);
			assert_int_equal(ops[i].ret_task.failures, t->core.failures);
			assert_int_equal(ops[i].ret_task.max_attempts, t->core.max_attempts);
		}
		store_op_done_fields(&ops[i].op);
	}
}

static void step_record(void)
{
	static struct store_record ops[BATCH];
	static const enum store_outcome outcomes[] = {STORE_SUCCEEDED, STORE_SUCCEEDED, STORE_PROGRAM_FAILED, STORE_LAUNCH_FAILED,
						      STORE_STOPPED, STORE_TIMED_OUT, STORE_GIVEN_BACK, STORE_WORKER_LOST};
	struct mtask *at[BATCH];
	int by[BATCH], n = choose(at);
	for (int i = 0; i < n; i++) {
		by[i] = pick(4) && at[i]->worker >= 0 ? at[i]->worker : pick(WORKERS);
		int attempt = at[i]->core.attempt - (pick(6) == 0) + (pick(12) == 0);
		ops[i] = (struct store_record){.at = {at[i]->core.id, attempt}, .worker = workers[by[i]].name,
					       .outcome = outcomes[pick(ARRAY_LEN(outcomes))],
					       .lost_limit = LOST_LIMIT, .retry_in_ns = pick(4) ? 0 : 3600 * 1000 * MS};
	}
	run_many(ops, (size_t)n, sizeof(*ops), STORE_RECORD);
	for (int i = 0; i < n; i++) {
		struct mtask *t = at[i];
		assert_int_equal(ops[i].ret_verdict, model_record(t, ops[i].at.attempt, by[i], ops[i].outcome, ops[i].retry_in_ns > 0));
		if (ops[i].ret_verdict == CORE_RECORD_RECORDED) {
			assert_int_equal(ops[i].ret_state, t->state);
			if (t->state == STORE_PENDING)
				assert_int_equal(ops[i].ret_task.failures, t->core.failures);
		}
		store_op_done_fields(&ops[i].op);
	}
}

static void step_take_back(void)
{
	static struct store_take_back ops[BATCH];
	struct mtask *at[BATCH];
	int n = choose(at);
	for (int i = 0; i < n; i++)
		ops[i] = (struct store_take_back){
			.at = {at[i]->core.id, at[i]->core.attempt - (pick(8) == 0)},
			.session = at[i]->session - (pick(8) == 0),
			.cause = (enum core_take_back_cause)pick(5), .lost_limit = LOST_LIMIT};
	for (int i = 0; i < n; i++)
		ops[i].counted = ops[i].cause <= CORE_CAUSE_NOT_LISTED && pick(3) == 0;
	run_many(ops, (size_t)n, sizeof(*ops), STORE_TAKE_BACK);
	for (int i = 0; i < n; i++) {
		struct mtask *t = at[i];
		const struct store_take_back *o = &ops[i];
		if (t->state != STORE_RUNNING || o->at.attempt != t->core.attempt || o->session != t->session) {
			assert_int_equal(o->ret_verdict, CORE_TAKE_BACK_FENCED);
		} else {
			bool lost = o->cause == CORE_CAUSE_WORKER_LOST || (o->cause == CORE_CAUSE_NOT_LISTED && o->counted);
			model_lose(t, lost ? STORE_WORKER_LOST : o->cause == CORE_CAUSE_REFUSED ? STORE_NOT_TAKEN : STORE_GIVEN_BACK, o->counted,
				   o->cause == CORE_CAUSE_WORKER_LOST || o->cause == CORE_CAUSE_RECALLED);
			assert_int_equal(o->ret_verdict,
					 t->state == STORE_PENDING ? CORE_TAKE_BACK_PENDING : CORE_TAKE_BACK_ENDED);
		}
		store_op_done_fields(&ops[i].op);
	}
}

static void step_cancel(void)
{
	static struct store_cancel ops[BATCH];
	struct mtask *at[BATCH];
	int n = choose(at) / 4;
	for (int i = 0; i < n; i++)
		ops[i] = (struct store_cancel){.id = at[i]->core.id};
	run_many(ops, (size_t)n, sizeof(*ops), STORE_CANCEL);
	for (int i = 0; i < n; i++)
		assert_int_equal(ops[i].ret_verdict, model_cancel(at[i]));
}

/* Never the leases of this test's time: an exclusive task with an attempt that nobody reported waits to its end. */
static bool lease_runs(const struct mtask *t)
{
	bool runs = false;
	for (int i = 0; t->core.exclusive && i < t->n_past; i++)
		runs |= !t->past[i].reported && (t->past[i].outcome == STORE_WORKER_LOST || t->past[i].outcome == STORE_GIVEN_BACK);
	return runs;
}

static int model_retry(struct mtask *t, int attempt)
{
	if (t->state == STORE_COMPLETED)
		return STORE_RETRY_COMPLETED;
	if (t->state < STORE_COMPLETED)
		return STORE_RETRY_NOT_ENDED;
	if (attempt != t->core.attempt)
		return STORE_RETRY_ANOTHER;
	if (t->worker != NOBODY)
		push_past(t, t->outcome, t->last_reported, false);
	t->state = STORE_PENDING;
	t->open = NOBODY;
	t->wish = false;
	t->core.failures = t->losses = 0;
	t->waits = lease_runs(t);
	t->expires = false; /* it is to run after all */
	return STORE_RETRY_DONE;
}

static void step_retry(void)
{
	static struct store_retry ops[BATCH];
	struct mtask *at[BATCH];
	int n = choose(at);
	for (int i = 0; i < n; i++)
		ops[i] = (struct store_retry){.id = at[i]->core.id, .attempt = at[i]->core.attempt - (pick(6) == 0)};
	run_many(ops, (size_t)n, sizeof(*ops), STORE_RETRY);
	for (int i = 0; i < n; i++) {
		assert_int_equal(ops[i].ret_verdict, model_retry(at[i], ops[i].attempt));
		assert_int_equal(ops[i].ret_state, at[i]->state);
		assert_int_equal(ops[i].ret_attempt, at[i]->core.attempt);
		if (ops[i].ret_verdict == STORE_RETRY_DONE)
			assert_int_equal(ops[i].ret_due_in_ns > 0, at[i]->waits);
		store_op_done_fields(&ops[i].op);
	}
}

static struct mtask *find(const struct core_attempt *at)
{
	for (int i = 0; i < n_tasks; i++)
		if (uuid_eq(&tasks[i].core.id, &at->task))
			return &tasks[i];
	return NULL;
}

static void step_expire(void)
{
	struct store_expire o = {.limit = 1 + pick(2 * TASKS)};
	size_t n = 0;
	run(&o.op, STORE_EXPIRE);
	for (size_t i = 0; i < o.ret_n; i++) {
		struct mtask *t = find(&(struct core_attempt){o.ret_ids[i], 0});
		if (!t)
			continue; /* of an earlier walk */
		assert_true(t->state == STORE_PENDING && t->expires);
		t->worker = NOBODY;
		finish(t, STORE_FAILED, STORE_EXPIRED, false);
	}
	for (int i = 0; i < n_tasks; i++)
		n += tasks[i].state == STORE_PENDING && tasks[i].expires;
	assert_true(n == 0 || o.ret_n >= (size_t)o.limit);
	store_op_done_fields(&o.op);
}

static void step_started(void)
{
	static struct store_started ops[BATCH];
	struct mtask *at[BATCH];
	int n = choose(at);
	for (int i = 0; i < n; i++)
		ops[i] = (struct store_started){.at = {at[i]->core.id, at[i]->core.attempt},
						.worker = workers[at[i]->worker < 0 ? 0 : at[i]->worker].name,
						.started_wall_us = 1700000000000000};
	run_many(ops, (size_t)n, sizeof(*ops), STORE_STARTED);
	for (int i = 0; i < n; i++)
		at[i]->began |= at[i]->state == STORE_RUNNING;
}

static bool among(const struct core_task *at, size_t n, const struct mtask *t)
{
	for (size_t i = 0; i < n; i++)
		if (uuid_eq(&at[i].id, &t->core.id))
			return true;
	return false;
}

static void step_session(void)
{
	static struct core_attempt held[TASKS];
	int w = pick(WORKERS);
	struct mworker *k = &workers[w];
	if (pick(3) == 0)
		k->instance++;
	size_t n = 0;
	for (int i = 0; i < n_tasks; i++) {
		struct mtask *t = &tasks[i];
		bool mine = t->state == STORE_RUNNING ? t->worker == w : t->state == STORE_PENDING && t->open == w;
		if (mine ? pick(3) : pick(200) == 0)
			held[n++] = (struct core_attempt){t->core.id, t->core.attempt ? t->core.attempt : 1};
	}
	struct store_session_open o = session_open(k->name, (uint8_t)k->instance, held, n);
	assert_int_equal(o.ret_session, k->session + 1);
	assert_int_equal(o.ret_drain.mode, k->drain);
	k->session = o.ret_session;
	k->gone = false;
	size_t adopted = 0, requeued = 0, waiting = 0;
	for (size_t i = 0; i < n; i++) {
		struct mtask *t = find(&held[i]);
		assert_non_null(t);
		if (held[i].attempt != t->core.attempt)
			continue;
		if (t->state == STORE_PENDING && t->open == w) {
			t->losses -= t->past[--t->n_past].counted;
			t->state = STORE_RUNNING;
			t->worker = w;
			t->open = NOBODY;
		} else if (t->state != STORE_RUNNING || t->worker != w) {
			continue;
		}
		t->session = k->session;
		t->instance = k->instance;
		adopted++;
	}
	for (int i = 0; i < n_tasks; i++) {
		struct mtask *t = &tasks[i];
		bool other = t->instance != k->instance;
		if (t->state != STORE_RUNNING || t->worker != w || t->session == k->session)
			continue;
		if (t->core.exclusive && other) {
			t->session = k->session;
			waiting++;
			continue;
		}
		bool counted = other || t->began;
		model_lose(t, counted ? STORE_WORKER_LOST : STORE_GIVEN_BACK, counted, false);
		requeued += t->state == STORE_PENDING;
		assert_int_equal(among(o.ret_requeued, o.ret_n_requeued, t), t->state == STORE_PENDING);
	}
	assert_int_equal(o.ret_n_adopted, adopted);
	assert_int_equal(o.ret_n_fenced, n - adopted);
	assert_int_equal(o.ret_n_requeued, requeued);
	assert_int_equal(o.ret_n_waiting, waiting);
	store_op_done_fields(&o.op);
}

static void step_worker(void)
{
	struct mworker *k = &workers[pick(WORKERS)];
	if (pick(2)) {
		struct store_drain o = {.worker = k->name, .wish = {pick(4), pick(3) - 1, pick(2) ? NULL : "why"}};
		run(&o.op, STORE_DRAIN);
		assert_true(o.ret_found);
		k->drain = o.wish.mode;
	} else {
		struct store_worker_gone o = {.worker = k->name, .session = k->session - pick(2)};
		run(&o.op, STORE_WORKER_GONE);
		k->gone |= o.session == k->session;
	}
}

/* ---- at the end everything that can be read ---- */

static void check_workers(void)
{
	for (int w = 0; w < WORKERS; w++) {
		struct store_workers o = {.only = workers[w].name, .limit = 1};
		run(&o.op, STORE_WORKERS);
		assert_int_equal(o.ret_n, 1);
		assert_int_equal(o.ret_rows[0].session, workers[w].session);
		assert_int_equal(o.ret_rows[0].drain.mode, workers[w].drain);
		assert_int_equal(o.ret_rows[0].heard_wall_us != 0, workers[w].gone);
		store_op_done_fields(&o.op);
	}
}

static void check_task(const struct mtask *t, const struct store_task *got)
{
	assert_int_equal(got->state, t->state);
	assert_int_equal(got->core.attempt, t->core.attempt);
	assert_int_equal(got->core.failures, t->core.failures);
	assert_int_equal(got->losses, t->losses);
	assert_int_equal(got->core.seq, t->core.seq);
	assert_int_equal(!got->core.handler, !t->core.handler);
	assert_int_equal(!got->core.custom, !t->core.custom);
	bool last = t->state != STORE_PENDING && t->worker != NOBODY;
	assert_int_equal(got->n_attempts, t->n_past + last);
	if (last)
		assert_string_equal(got->worker, workers[t->worker].name);
	for (int i = 0; i < t->n_past; i++) {
		assert_int_equal(got->attempts[i].attempt, t->past[i].attempt);
		assert_int_equal(got->attempts[i].outcome, t->past[i].outcome);
		assert_string_equal(got->attempts[i].worker, workers[t->past[i].worker].name);
	}
	if (t->state > STORE_RUNNING)
		assert_int_equal(got->outcome, t->outcome);
	if (t->state == STORE_RUNNING)
		assert_int_equal(got->cancel_requested_wall_us > 0, t->wish);
}

static void check_all(void)
{
	static struct store_get ops[TASKS];
	size_t counts[6] = {0}, listed[6] = {0};
	for (int i = 0; i < n_tasks; i++) {
		ops[i] = (struct store_get){.id = tasks[i].core.id};
		counts[tasks[i].state]++;
	}
	run_many(ops, (size_t)n_tasks, sizeof(*ops), STORE_GET);
	for (int i = 0; i < n_tasks; i++) {
		assert_true(ops[i].ret_found);
		check_task(&tasks[i], &ops[i].ret_task);
		store_op_done_fields(&ops[i].op);
	}
	for (int q = 0; q < 3; q++)
		for (uint32_t st = STORE_PENDING; st <= STORE_CANCELLED; st++) {
			struct store_list l = {.queue = queues[q], .states = 1u << st, .limit = 97, .max_bytes = 1 << 20};
			do {
				run(&l.op, STORE_LIST);
				listed[st] += l.ret_n;
				l.after = l.ret_n > 0;
				if (l.after)
					l.after_id = l.ret_tasks[l.ret_n - 1].core.id;
				store_op_done_fields(&l.op);
			} while (l.ret_more);
		}
	for (int st = STORE_PENDING; st <= STORE_CANCELLED; st++)
		assert_int_equal(counts[st], listed[st]);
}

void random_against_model(void **state)
{
	static void (*const steps[])(void) = {step_insert, step_insert, step_claim, step_claim, step_claim, step_record,
					      step_record, step_take_back, step_take_back, step_cancel, step_retry, step_started,
					      step_session, step_worker, step_expire};
	int64_t seed = (int64_t)(rng_process_next() % 1000000), n = 600;
	const char *s = getenv("REINS_TEST_SEED");
	if (s && num_parse_i64(s, &seed) < 0)
		fail_msg("REINS_TEST_SEED");
	s = getenv("REINS_TEST_STEPS");
	if (s && num_parse_i64(s, &n) < 0)
		fail_msg("REINS_TEST_STEPS");
	print_message("# seed %lld\n", (long long)seed);
	rng_seed(&rng, (uint64_t)seed);
	n_tasks = 0;
	random_number++;
	for (int i = 0; i < 3; i++)
		queues[i] = new_queue();
	for (int w = 0; w < WORKERS; w++) {
		workers[w] = (struct mworker){.instance = 1};
		snprintf(workers[w].name, sizeof(workers[w].name), "random-%d-%d", random_number, w);
		workers[w].session = session(workers[w].name);
	}
	for (int64_t i = 0; i < n && n_tasks < TASKS; i++)
		steps[pick(ARRAY_LEN(steps))]();
	check_all();
	check_workers();
}
