#include <stdio.h>

#include "common/base/clock.h"
#include "tests/store/harness.h"

struct harness h;

static size_t pending;
static bool drained;

static int begin_open(void)
{
	if (loop_new(&h.loop) < 0)
		return -1;
	h.store = factory->open(h.loop);
	h.spec = blob_new("spec", 4);
	harness_wait_up(h.store);
	return 0;
}

int harness_begin(void **state)
{
	factory->begin();
	return begin_open();
}

int harness_begin_old(void **state)
{
	factory->begin();
	factory->make_old();
	return begin_open();
}

int harness_begin_labelled(void **state)
{
	factory->begin();
	factory->make_labelled();
	return begin_open();
}

int harness_end(void **state)
{
	store_free(h.store);
	blob_unref(h.spec);
	for (int i = 0; i < 3; i++)
		loop_turn(h.loop, false);
	loop_free(h.loop);
	factory->end();
	return 0;
}

struct store *harness_another(void)
{
	if (factory->alone)
		return h.store;
	struct store *s = factory->open(h.loop);
	harness_wait_up(s);
	return s;
}

void harness_another_done(struct store *other)
{
	if (other != h.store)
		store_free(other);
}

static void on_wake(struct loop_timer *t) {}

void harness_until(const bool *flag)
{
	int64_t end = clock_mono_ns() + DEADLINE_NS;
	struct loop_timer t;
	loop_timer_init(&t, h.loop, on_wake);
	while (!*flag) {
		if (clock_mono_ns() > end)
			fail_msg("nothing came within the deadline; store: up %d, %s", h.store->up, h.store->down_text);
		loop_timer_set(&t, clock_mono_ns() + 200 * MS);
		loop_turn(h.loop, true);
	}
	loop_timer_stop(&t);
}

void harness_wait_up(struct store *s) { harness_until(&s->up); }

static void on_done(struct store_op *op)
{
	if (--pending == 0)
		drained = true;
}

void harness_submit(struct store *s, struct store_op *op, enum store_kind kind)
{
	op->kind = kind;
	op->done = on_done;
	pending++;
	store_submit(s, op);
}

void harness_drain(void)
{
	drained = pending == 0;
	harness_until(&drained);
}

enum store_result run_any(struct store *s, struct store_op *op, enum store_kind kind)
{
	harness_submit(s, op, kind);
	harness_drain();
	return op->result;
}

void run(struct store_op *op, enum store_kind kind)
{
	if (run_any(h.store, op, kind) != STORE_OK)
		fail_msg("operation of kind %d: result %d, %s", kind, op->result, op->text);
}

void run_many(void *first, size_t n, size_t size, enum store_kind kind)
{
	for (size_t i = 0; i < n; i++)
		harness_submit(h.store, (struct store_op *)(void *)((char *)first + i * size), kind);
	harness_drain();
}

struct uuid new_id(void) { return uuid7_make(&h.ids, clock_wall_us()); }

const char *new_queue(void)
{
	static char names[1000][16];
	static int n;
	assert_true(n < 1000);
	snprintf(names[n], sizeof(names[n]), "queue-%d", n);
	return names[n++];
}

struct store_insert insert_of(const char *queue)
{
	return (struct store_insert){
		.task = {.id = new_id(), .queue = queue, .max_attempts = 1},
		.name = "",
		.owner = "",
		.spec = h.spec,
	};
}

struct core_task insert(const char *queue)
{
	struct store_insert o = insert_of(queue);
	run(&o.op, STORE_INSERT);
	assert_int_equal(o.ret_verdict, STORE_INSERT_CREATED);
	o.task.seq = o.ret_seq;
	return o.task;
}

struct store_assignment to_worker(const char *worker, int64_t session_number)
{
	return (struct store_assignment){.worker = worker, .instance = {1}, .session = session_number, .lease_ns = 10000 * MS};
}

bool try_claim(const struct core_task *t, const char *worker, int64_t session_number)
{
	struct store_claim o = {.task = *t, .to = to_worker(worker, session_number)};
	run(&o.op, STORE_CLAIM);
	bool won = o.ret_won;
	if (won)
		assert_memory_equal(o.ret_spec->data, "spec", 4);
	store_op_done_fields(&o.op);
	return won;
}

int32_t claim(const struct core_task *t, const char *worker, int64_t session_number)
{
	struct store_claim o = {.task = *t, .to = to_worker(worker, session_number)};
	run(&o.op, STORE_CLAIM);
	assert_true(o.ret_won);
	store_op_done_fields(&o.op);
	return o.ret_task.attempt;
}

struct store_session_open session_open(const char *worker, uint8_t inst, const struct core_attempt *held, size_t n)
{
	struct store_session_open o = {.worker = worker, .instance = {inst}, .master = "m1", .held = held, .n_held = n};
	run(&o.op, STORE_SESSION_OPEN);
	return o;
}

int64_t session(const char *worker)
{
	struct store_session_open o = session_open(worker, 1, NULL, 0);
	store_op_done_fields(&o.op);
	return o.ret_session;
}

enum core_record_verdict record(struct core_attempt at, const char *worker, enum store_outcome outcome)
{
	struct store_record o = {.at = at, .worker = worker, .outcome = outcome, .has_exit_code = true};
	run(&o.op, STORE_RECORD);
	store_op_done_fields(&o.op);
	return o.ret_verdict;
}

struct store_take_back take_back(struct core_attempt at, int64_t session_number, enum core_take_back_cause cause, bool counted)
{
	struct store_take_back o = {.at = at, .session = session_number, .cause = cause, .counted = counted, .lost_limit = 3};
	run(&o.op, STORE_TAKE_BACK);
	return o;
}

struct store_get get(struct uuid id)
{
	struct store_get o = {.id = id};
	run(&o.op, STORE_GET);
	return o;
}

enum store_state state_of(struct uuid id)
{
	struct store_get o = get(id);
	assert_true(o.ret_found);
	enum store_state st = o.ret_task.state;
	store_op_done_fields(&o.op);
	return st;
}

struct core_attempt running(struct core_task *t, const char *worker, int64_t s)
{
	*t = insert(new_queue());
	return (struct core_attempt){t->id, claim(t, worker, s)};
}
