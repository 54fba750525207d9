/* A store of schema version 1 with rows in every table, opened by this version: what the factory's make_old has made.
 *
 *   1  ready, priority 0, made with the key "old-key"      2  ready, attempt 1 lost at old-w and open
 *   3  delayed, priority 5, attempt 1 failed, due           4  running at old-w in its session 1, log "ab"
 *   5  COMPLETED at old-w, result "res", log "abc"          6  CANCELLED before any attempt
 *
 * All in queue "old", with seq = number, cpu 500 and the spec "spec".  The tests follow on each other. */
#include "server/store/store_logs.h"
#include "tests/store/suite.h"

static struct uuid id_of(int n)
{
	struct uuid id;
	char text[UUID_TEXT_LEN + 1] = "0190b6a0-0000-7000-8000-000000000000";
	text[UUID_TEXT_LEN - 1] = (char)('0' + n);
	assert_int_equal(uuid_parse(text, UUID_TEXT_LEN, &id), 0);
	return id;
}

static void rows_are_read(void **state)
{
	static const enum store_state want[] = {0, STORE_PENDING, STORE_PENDING, STORE_PENDING, STORE_RUNNING, STORE_COMPLETED,
						STORE_CANCELLED};
	static const size_t attempts[] = {0, 0, 1, 1, 1, 1, 0};
	for (int n = 1; n <= 6; n++) {
		struct store_get g = get(id_of(n));
		assert_true(g.ret_found);
		const struct store_task *t = &g.ret_task;
		assert_int_equal(t->state, want[n]);
		assert_int_equal(t->n_attempts, attempts[n]);
		assert_int_equal(t->core.seq, n);
		assert_int_equal(t->core.need.cpu_millis, 500);
		assert_true(!t->core.handler && !t->core.custom);
		assert_string_equal(t->core.queue, "old");
		assert_memory_equal(t->spec->data, "spec", 4);
		if (n == 5)
			assert_memory_equal(t->result.data, "res", 3);
		store_op_done_fields(&g.op);
	}
	struct store_list l = {.queue = "old", .limit = 10, .max_bytes = 1 << 20};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 6);
	store_op_done_fields(&l.op);
	struct store_log_read r = {.at = {id_of(5), 1}, .max_bytes = 100};
	run(&r.op, STORE_LOG_READ);
	assert_int_equal(r.ret_n, 1);
	assert_memory_equal(r.ret_chunks[0].data.data, "abc", 3);
	store_op_done_fields(&r.op);
}

static void old_rows_never_expire(void **state)
{
	struct store_expire e = {.limit = 10};
	run(&e.op, STORE_EXPIRE);
	assert_int_equal(e.ret_n, 0);
	assert_int_equal(e.ret_next_in_ns, -1);
	store_op_done_fields(&e.op);
}

static void ready_rows_are_given_out(void **state)
{
	struct store_due d = {.limit = 10};
	run(&d.op, STORE_DUE);
	assert_int_equal(d.ret_n, 1);
	struct uuid third = id_of(3);
	assert_true(uuid_eq(&d.ret_rows[0].id, &third));
	store_op_done_fields(&d.op);
	struct store_fill f = {.queue = "old", .from_start = true, .limit = 10};
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 3);
	static const int order[] = {3, 1, 2};
	for (int i = 0; i < 3; i++) {
		struct uuid id = id_of(order[i]);
		assert_true(uuid_eq(&f.ret_rows[i].id, &id));
		assert_true(!f.ret_rows[i].handler && !f.ret_rows[i].custom);
	}
	assert_int_equal(f.ret_rows[0].failures, 1);
	assert_int_equal(f.ret_rows[0].max_attempts, 2);
	/* An open attempt ends well; the two others are claimed. */
	assert_int_equal(record((struct core_attempt){id_of(2), 1}, "old-w", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	assert_int_equal(claim(&f.ret_rows[0], "old-w2", 1), 2);
	assert_int_equal(claim(&f.ret_rows[1], "old-w2", 1), 1);
	assert_int_equal(record((struct core_attempt){id_of(3), 2}, "old-w2", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	assert_int_equal(record((struct core_attempt){id_of(1), 1}, "old-w2", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	assert_int_equal(state_of(id_of(3)), STORE_FAILED);
	assert_int_equal(state_of(id_of(1)), STORE_COMPLETED);
	assert_int_equal(state_of(id_of(2)), STORE_COMPLETED);
	store_op_done_fields(&f.op);
}

static void running_rows_are_adopted(void **state)
{
	struct core_attempt held = {id_of(4), 1};
	struct store_session_open o = session_open("old-w", 1, &held, 1);
	assert_int_equal(o.ret_session, 2);
	assert_int_equal(o.ret_n_adopted, 1);
	assert_false(o.ret_new_instance);
	store_op_done_fields(&o.op);
	assert_int_equal(record(held, "old-w", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
}

static void keys_and_masters_are_known(void **state)
{
	struct store_insert again = insert_of("old");
	struct uuid first = id_of(1);
	again.idempotency_key = "old-key";
	run(&again.op, STORE_INSERT);
	assert_int_equal(again.ret_verdict, STORE_INSERT_EXISTS);
	assert_true(uuid_eq(&again.ret_id, &first));
	struct store_master_open m = {.master = "m1"};
	run(&m.op, STORE_MASTER_OPEN);
	assert_int_equal(m.ret_incarnation, 4);
}

static void new_rows_beside_the_old(void **state)
{
	struct store_insert o = insert_of("old");
	o.task.handler = "x";
	o.expiry_ns = 1000;
	run(&o.op, STORE_INSERT);
	assert_true(o.ret_seq > 6);
	struct store_expire e = {.limit = 10};
	run(&e.op, STORE_EXPIRE);
	assert_int_equal(e.ret_n, 1);
	store_op_done_fields(&e.op);
	assert_int_equal(state_of(o.task.id), STORE_FAILED);
}

const struct CMUnitTest old_tests[] = {
	cmocka_unit_test(rows_are_read), cmocka_unit_test(old_rows_never_expire), cmocka_unit_test(ready_rows_are_given_out),
	cmocka_unit_test(running_rows_are_adopted), cmocka_unit_test(keys_and_masters_are_known),
	cmocka_unit_test(new_rows_beside_the_old),
};
const size_t old_n = ARRAY_LEN(old_tests);
