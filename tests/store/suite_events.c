/* Events: every change that was committed, once, in an order in which each task's changes follow on each other. */
#include "tests/store/follow.h"
#include "tests/store/suite_parts.h"

/* After all other tests: what they have done to tasks, from the first on, adds up to what stands there now. */
void events_tell_all(void **state)
{
	struct reader r = {.n_at = 0};
	struct map tasks;
	size_t n = 0, tasks_of_others = 0;
	map_init(&tasks);
	for (bool more = true; more;) {
		struct store_events o = reader_page(&r, 50, 100000);
		assert_false(o.ret_gone);
		n += follow_changes(&tasks, &o);
		more = o.ret_more;
		store_op_done_fields(&o.op);
	}
	assert_true(n > 1000);
	follow_check_rows(&tasks);
	/* Each task has some. */
	struct store_list l = {.limit = 1000, .max_bytes = INT64_MAX};
	do {
		store_op_done_fields(&l.op);
		run(&l.op, STORE_LIST);
		for (size_t i = 0; i < l.ret_n; i++)
			tasks_of_others += !map_get(&tasks, l.ret_tasks[i].core.id.b, 16);
		l.after = l.ret_n > 0;
		if (l.ret_n)
			l.after_id = l.ret_tasks[l.ret_n - 1].core.id;
	} while (l.ret_more);
	store_op_done_fields(&l.op);
	assert_int_equal(tasks_of_others, 0);
	follow_done(&tasks);
}

static struct store_change only_one(struct reader *r)
{
	struct store_events o = reader_page(r, 10, 0);
	assert_int_equal(o.ret_n, 1);
	assert_int_equal(store_event_changes(&o.ret_rows[0]), 1);
	struct store_change c = store_event_change(&o.ret_rows[0], 0);
	assert_false(o.ret_more);
	store_op_done_fields(&o.op);
	return c;
}

static void check_only(struct reader *r, struct uuid id, enum store_state before, enum store_state after, int32_t attempt)
{
	struct store_change c = only_one(r);
	assert_true(uuid_eq(&c.task, &id));
	assert_int_equal(c.before, before);
	assert_int_equal(c.after, after);
	assert_int_equal(c.attempt, attempt);
}

static void check_none(struct reader *r)
{
	struct store_events o = reader_page(r, 10, 0);
	assert_int_equal(o.ret_n, 0);
	assert_false(o.ret_more || o.ret_gone);
	store_op_done_fields(&o.op);
}

void events_one_by_one(void **state)
{
	int64_t s = session("ev-w");
	struct reader r = reader_from_now();
	check_none(&r);
	struct core_task t = insert(new_queue());
	check_only(&r, t.id, 0, STORE_PENDING, 0);
	struct reader again = r;
	assert_int_equal(claim(&t, "ev-w", s), 1);
	check_only(&r, t.id, STORE_PENDING, STORE_RUNNING, 1);
	check_only(&again, t.id, STORE_PENDING, STORE_RUNNING, 1);
	assert_false(try_claim(&t, "ev-w", s));
	check_none(&r);
	/* A wish is told once. */
	struct store_cancel c = {.id = t.id};
	run(&c.op, STORE_CANCEL);
	check_only(&r, t.id, STORE_RUNNING, STORE_RUNNING, 1);
	run(&c.op, STORE_CANCEL);
	check_none(&r);
	assert_int_equal(record((struct core_attempt){t.id, 1}, "ev-w", STORE_STOPPED), CORE_RECORD_RECORDED);
	check_only(&r, t.id, STORE_RUNNING, STORE_CANCELLED, 1);
	assert_int_equal(record((struct core_attempt){t.id, 1}, "ev-w", STORE_STOPPED), CORE_RECORD_DUPLICATE);
	check_none(&r);
	struct store_retry again_op = {.id = t.id, .attempt = 1};
	run(&again_op.op, STORE_RETRY);
	store_op_done_fields(&again_op.op);
	check_only(&r, t.id, STORE_CANCELLED, STORE_PENDING, 1);
}

void events_in_pages(void **state)
{
	struct reader r = reader_from_now(), whole = r;
	struct core_task t[5];
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		t[i] = insert(new_queue());
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		/* The bytes are reached by the first row. */
		struct store_events o = i % 2 ? reader_page(&r, 1, 0) : reader_page(&r, 10, 1);
		assert_int_equal(o.ret_n, 1);
		assert_true(o.ret_more == (i + 1 < ARRAY_LEN(t)));
		struct store_change c = store_event_change(&o.ret_rows[0], 0);
		assert_true(uuid_eq(&c.task, &t[i].id));
		store_op_done_fields(&o.op);
	}
	check_none(&r);
	struct store_events o = reader_page(&whole, 10, 0);
	assert_int_equal(o.ret_n, ARRAY_LEN(t));
	store_op_done_fields(&o.op);
}
