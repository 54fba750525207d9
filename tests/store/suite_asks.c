/* What store.h promises, third part: what tasks ask by name goes along wherever they go; and expiry. */
#include <stdio.h>

#include "common/base/clock.h"
#include "tests/store/suite_parts.h"

static struct store_insert asking(const char *queue)
{
	struct store_insert o = insert_of(queue);
	o.task.handler = "resize";
	o.task.custom = "fpga=4611686018427387904 licenses=2";
	o.task.max_attempts = 3;
	return o;
}

static void check_asks(const struct core_task *t, const char *queue)
{
	assert_string_equal(t->queue, queue);
	assert_string_equal(t->handler, "resize");
	assert_string_equal(t->custom, "fpga=4611686018427387904 licenses=2");
}

static void check_fill(const char *queue)
{
	struct store_fill f = {.queue = queue, .from_start = true, .limit = 10};
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 1);
	check_asks(&f.ret_rows[0], queue);
	store_op_done_fields(&f.op);
}

void asks_are_kept(void **state)
{
	struct store_insert o = asking(new_queue());
	const char *q = o.task.queue;
	o.delay_ns = 1000;
	run(&o.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	struct store_get g = get(o.task.id);
	check_asks(&g.ret_task.core, q);
	store_op_done_fields(&g.op);
	struct store_due d = {.limit = 1000};
	run(&d.op, STORE_DUE);
	for (size_t i = 0; i < d.ret_n; i++)
		if (uuid_eq(&d.ret_rows[i].id, &o.task.id))
			check_asks(&d.ret_rows[i], q);
	store_op_done_fields(&d.op);
	check_fill(q);
	int64_t s = session("w-asks");
	struct core_attempt at = {o.task.id, claim(&o.task, "w-asks", s)};
	struct store_take_back b = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	check_asks(&b.ret_task, q);
	store_op_done_fields(&b.op);
	check_fill(q);
	/* Open, adopted, and given up by the next session. */
	struct store_session_open open = session_open("w-asks", 1, &at, 1);
	assert_int_equal(open.ret_n_adopted, 1);
	check_asks(&open.ret_adopted[0].task, q);
	store_op_done_fields(&open.op);
	open = session_open("w-asks", 1, NULL, 0);
	assert_int_equal(open.ret_n_requeued, 1);
	check_asks(&open.ret_requeued[0], q);
	s = open.ret_session;
	store_op_done_fields(&open.op);
	at.attempt = claim(&o.task, "w-asks", s);
	struct store_record r = {.at = at, .worker = "w-asks", .outcome = STORE_PROGRAM_FAILED};
	run(&r.op, STORE_RECORD);
	assert_int_equal(r.ret_state, STORE_PENDING);
	check_asks(&r.ret_task, q);
	store_op_done_fields(&r.op);
	check_fill(q);
	struct store_list l = {.queue = q, .states = 1u << STORE_PENDING, .limit = 10, .max_bytes = 1 << 20};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 1);
	check_asks(&l.ret_tasks[0].core, q);
	store_op_done_fields(&l.op);
}

void asks_of_retried(void **state)
{
	struct store_insert o = asking(new_queue());
	o.task.max_attempts = 1;
	run(&o.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	int64_t s = session("w-asks-retry");
	struct core_attempt at = {o.task.id, claim(&o.task, "w-asks-retry", s)};
	assert_int_equal(record(at, "w-asks-retry", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	struct store_retry r = {.id = o.task.id, .attempt = 1};
	run(&r.op, STORE_RETRY);
	assert_int_equal(r.ret_verdict, STORE_RETRY_DONE);
	check_asks(&r.ret_task, o.task.queue);
	store_op_done_fields(&r.op);
	check_fill(o.task.queue);
}

/* ---- expiry ---- */

/* Whichever EXPIRE it was that ended it. */
static void wait_expired(const struct uuid *id)
{
	int64_t end = clock_mono_ns() + DEADLINE_NS;
	while (state_of(*id) == STORE_PENDING) {
		struct store_expire e = {.limit = 1000};
		run(&e.op, STORE_EXPIRE);
		store_op_done_fields(&e.op);
		assert_true(clock_mono_ns() < end);
	}
}

static void check_expired(const struct uuid *id, const char *words)
{
	struct store_get g = get(*id);
	const struct store_task *t = &g.ret_task;
	assert_int_equal(t->state, STORE_FAILED);
	assert_int_equal(t->outcome, STORE_EXPIRED);
	assert_int_equal(t->core.attempt, 0);
	assert_int_equal(t->n_attempts, 0);
	assert_true(t->finished_wall_us > t->created_wall_us);
	assert_int_equal(t->error.len, strlen(words));
	assert_memory_equal(t->error.data, words, strlen(words));
	store_op_done_fields(&g.op);
}

void expiry_of_ready(void **state)
{
	struct store_insert soon = insert_of(new_queue()), late = insert_of(soon.task.queue);
	soon.expiry_ns = 2 * MS;
	late.expiry_ns = 5400 * 1000 * MS;
	run(&soon.op, STORE_INSERT);
	run(&late.op, STORE_INSERT);
	soon.task.seq = soon.ret_seq;
	late.task.seq = late.ret_seq;
	/* Claimed by nobody even before EXPIRE has come. */
	struct store_insert over = insert_of(soon.task.queue);
	over.expiry_ns = 1000;
	run(&over.op, STORE_INSERT);
	over.task.seq = over.ret_seq;
	assert_false(try_claim(&over.task, "w-expiry", 1));
	assert_int_equal(state_of(over.task.id), STORE_PENDING);
	wait_expired(&soon.task.id);
	wait_expired(&over.task.id);
	check_expired(&soon.task.id, "not started within its expiry of 0.002 s");
	assert_false(try_claim(&soon.task, "w-expiry", 1));
	struct store_cancel c = {.id = soon.task.id};
	run(&c.op, STORE_CANCEL);
	assert_int_equal(c.ret_verdict, STORE_CANCEL_TERMINAL);
	struct store_expire e = {.limit = 10};
	run(&e.op, STORE_EXPIRE);
	assert_int_equal(e.ret_n, 0);
	assert_true(e.ret_next_in_ns > 5000 * 1000 * MS && e.ret_next_in_ns <= late.expiry_ns);
	store_op_done_fields(&e.op);
	assert_true(try_claim(&late.task, "w-expiry", 1));
}

/* Also while its delay runs. */
void expiry_of_delayed(void **state)
{
	struct store_insert o = insert_of(new_queue()), due = insert_of(o.task.queue);
	o.delay_ns = 3600 * 1000 * MS;
	o.expiry_ns = 1000;
	due.delay_ns = 1000;
	due.expiry_ns = 3 * MS;
	run(&o.op, STORE_INSERT);
	run(&due.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	due.task.seq = due.ret_seq;
	assert_false(try_claim(&o.task, "w-expiry", 1));
	assert_int_equal(state_of(o.task.id), STORE_PENDING);
	wait_expired(&o.task.id);
	check_expired(&o.task.id, "not started within its expiry of 0 s");
	/* What became due keeps its expiry. */
	struct store_due d = {.limit = 1000};
	run(&d.op, STORE_DUE);
	store_op_done_fields(&d.op);
	wait_expired(&due.task.id);
	check_expired(&due.task.id, "not started within its expiry of 0.003 s");
}

/* Retried by hand: it has no expiry any more. */
void retried_never_expires(void **state)
{
	struct store_insert o = insert_of(new_queue());
	o.expiry_ns = 1000;
	run(&o.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	wait_expired(&o.task.id);
	struct store_retry r = {.id = o.task.id};
	run(&r.op, STORE_RETRY);
	assert_int_equal(r.ret_verdict, STORE_RETRY_DONE);
	store_op_done_fields(&r.op);
	struct store_expire e = {.limit = 1000};
	run(&e.op, STORE_EXPIRE);
	store_op_done_fields(&e.op);
	assert_int_equal(state_of(o.task.id), STORE_PENDING);
	assert_int_equal(claim(&o.task, "w-expiry", 1), 1);
}

void expiry_in_pages(void **state)
{
	enum { N = 25 };
	struct store_insert at[N];
	size_t n = 0;
	for (int i = 0; i < N; i++) {
		at[i] = insert_of("expiry-pages");
		at[i].expiry_ns = 1000;
		at[i].delay_ns = i % 2 ? 3600 * 1000 * MS : 0;
	}
	run_many(at, N, sizeof(at[0]), STORE_INSERT);
	size_t got;
	do {
		struct store_expire e = {.limit = 4};
		run(&e.op, STORE_EXPIRE);
		for (size_t i = 0; i < e.ret_n; i++)
			assert_int_equal(state_of(e.ret_ids[i]), STORE_FAILED);
		n += got = e.ret_n;
		assert_true(got <= 8);
		if (got >= 4)
			assert_int_equal(e.ret_next_in_ns, 0);
		store_op_done_fields(&e.op);
	} while (got);
	assert_int_equal(n, N);
}

void given_out_never_expires(void **state)
{
	struct store_insert o = insert_of(new_queue()), eager = insert_of(o.task.queue);
	int64_t s = session("w-given");
	o.task.max_attempts = 3;
	o.expiry_ns = 200 * MS;
	eager.expiry_ns = 1000;
	eager.eager = to_worker("w-given", s);
	run(&o.op, STORE_INSERT);
	run(&eager.op, STORE_INSERT);
	o.task.seq = o.ret_seq;
	if (!try_claim(&o.task, "w-given", s))
		return; /* so slow a machine that it had expired */
	for (int i = 0; i < 2; i++) {
		struct core_attempt at = i ? (struct core_attempt){eager.task.id, 1} : (struct core_attempt){o.task.id, 1};
		struct store_take_back b = take_back(at, s, CORE_CAUSE_RECALLED, false);
		assert_int_equal(b.ret_verdict, CORE_TAKE_BACK_PENDING);
		store_op_done_fields(&b.op);
	}
	struct store_expire e = {.limit = 1000};
	run(&e.op, STORE_EXPIRE);
	assert_int_equal(e.ret_n, 0);
	assert_int_equal(e.ret_next_in_ns, -1);
	store_op_done_fields(&e.op);
	assert_int_equal(claim(&o.task, "w-given", s), 2);
	eager.task.seq = eager.ret_seq;
	assert_int_equal(claim(&eager.task, "w-given", s), 2);
}
