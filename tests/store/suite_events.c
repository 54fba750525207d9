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

static void check_what(struct reader *r, struct uuid id, enum store_what what)
{
	struct store_change c = only_one(r);
	assert_true(uuid_eq(&c.task, &id));
	assert_int_equal(c.what, what);
	assert_int_equal(c.before, STORE_RUNNING);
	assert_int_equal(c.after, STORE_RUNNING);
	assert_int_equal(c.attempt, 1);
}

static void check_only(struct reader *r, struct uuid id, enum store_state before, enum store_state after, int32_t attempt)
{
	struct store_change c = only_one(r);
	assert_true(uuid_eq(&c.task, &id));
	assert_int_equal(c.before, before);
	assert_int_equal(c.after, after);
	assert_int_equal(c.attempt, attempt);
	assert_int_equal(c.what, STORE_WHAT_STATE);
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

void events_of_starts(void **state)
{
	struct core_task t;
	int64_t s = session("ev-w");
	struct core_attempt at = running(&t, "ev-w", s);
	struct reader r = reader_from_now();
	struct store_started o = {.at = at, .worker = "ev-w", .started_wall_us = 1700000000000000};
	run(&o.op, STORE_STARTED);
	check_what(&r, t.id, STORE_WHAT_STARTED);
	/* Said again, as in each session; and by somebody whose attempt it is not. */
	run(&o.op, STORE_STARTED);
	struct store_started other = {.at = at, .worker = "ev-v", .started_wall_us = 1700000000000001};
	run(&other.op, STORE_STARTED);
	struct store_started later = {.at = {at.task, 2}, .worker = "ev-w", .started_wall_us = 1700000000000001};
	run(&later.op, STORE_STARTED);
	check_none(&r);
	record(at, "ev-w", STORE_SUCCEEDED);
	check_only(&r, t.id, STORE_RUNNING, STORE_COMPLETED, 1);
	run(&later.op, STORE_STARTED);
	check_none(&r);
}

void events_of_points(void **state)
{
	struct core_task t, u;
	int64_t s = session("ev-w");
	struct core_attempt at[] = {running(&t, "ev-w", s), running(&u, "ev-w", s)};
	struct store_events wants = {.now = true, .metrics = true};
	run(&wants.op, STORE_EVENTS);
	store_op_done_fields(&wants.op);
	struct reader r = reader_from_now();
	struct store_news one = {.at = at, .n = 1}, both = {.at = at, .n = 2}, none = {.at = at};
	run(&one.op, STORE_NEWS);
	check_what(&r, t.id, STORE_WHAT_METRICS);
	run(&none.op, STORE_NEWS);
	check_none(&r);
	run(&both.op, STORE_NEWS);
	struct store_events o = reader_page(&r, 10, 0);
	assert_int_equal(o.ret_n, 1);
	assert_int_equal(store_event_changes(&o.ret_rows[0]), 2);
	store_op_done_fields(&o.op);
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
