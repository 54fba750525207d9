/* What store.h promises, operation by operation, on whichever store the factory makes. */
#include <stdio.h>

#include "tests/store/suite_parts.h"

/* ---- insert ---- */

static void insert_then_get(void **state)
{
	struct store_insert o = insert_of(new_queue());
	o.task.priority = 7;
	o.task.need = (struct core_need){.cpu_millis = 500, .memory_bytes = INT64_C(1) << 40, .gpus = 2};
	o.task.exclusive = true;
	o.task.lease_ttl_ns = 60000 * MS;
	o.task.max_attempts = 5;
	o.task.backoff_initial_ns = 100 * MS;
	o.task.backoff_max_ns = 9000 * MS;
	o.task.backoff_multiplier = 1.5;
	o.owner = "ada";
	run(&o.op, STORE_INSERT);
	assert_int_equal(o.ret_verdict, STORE_INSERT_CREATED);
	assert_true(o.ret_seq > 0);
	struct store_get g = get(o.task.id);
	assert_true(g.ret_found);
	const struct store_task *t = &g.ret_task;
	assert_int_equal(t->state, STORE_PENDING);
	assert_string_equal(t->core.queue, o.task.queue);
	assert_string_equal(t->owner, "ada");
	assert_null(t->worker);
	assert_int_equal(t->core.priority, 7);
	assert_int_equal(t->core.seq, o.ret_seq);
	assert_int_equal(t->core.need.cpu_millis, 500);
	assert_true(t->core.need.memory_bytes == INT64_C(1) << 40);
	assert_int_equal(t->core.need.gpus, 2);
	assert_true(t->core.exclusive);
	assert_true(t->core.lease_ttl_ns == 60000 * MS);
	assert_int_equal(t->core.max_attempts, 5);
	assert_true(t->core.backoff_multiplier == 1.5);
	assert_true(t->created_wall_us > 0);
	assert_int_equal(t->n_attempts, 0);
	assert_int_equal(t->spec->len, 4);
	store_op_done_fields(&g.op);
	g = get(new_id());
	assert_false(g.ret_found);
	store_op_done_fields(&g.op);
}

static void insert_eager(void **state)
{
	struct store_insert o = insert_of(new_queue());
	int64_t s = session("eager");
	o.eager = to_worker("eager", s);
	run(&o.op, STORE_INSERT);
	struct store_get g = get(o.task.id);
	assert_int_equal(g.ret_task.state, STORE_RUNNING);
	assert_string_equal(g.ret_task.worker, "eager");
	assert_int_equal(g.ret_task.core.attempt, 1);
	assert_int_equal(g.ret_task.n_attempts, 1);
	store_op_done_fields(&g.op);
	assert_int_equal(record((struct core_attempt){o.task.id, 1}, "eager", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	assert_int_equal(state_of(o.task.id), STORE_COMPLETED);
}

static void insert_any_bytes(void **state)
{
	uint8_t all[256];
	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	struct store_insert o = insert_of(new_queue());
	o.spec = blob_new(all, sizeof(all));
	run(&o.op, STORE_INSERT);
	struct store_get g = get(o.task.id);
	assert_int_equal(g.ret_task.spec->len, sizeof(all));
	assert_memory_equal(g.ret_task.spec->data, all, sizeof(all));
	store_op_done_fields(&g.op);
	blob_unref(o.spec);
}

static void insert_key(void **state)
{
	struct store_insert a = insert_of(new_queue()), b = insert_of(a.task.queue), c = insert_of(a.task.queue);
	a.idempotency_key = b.idempotency_key = c.idempotency_key = "key-1";
	memset(c.idempotency_hash, 9, 32);
	run(&a.op, STORE_INSERT);
	run(&b.op, STORE_INSERT);
	run(&c.op, STORE_INSERT);
	assert_int_equal(a.ret_verdict, STORE_INSERT_CREATED);
	assert_int_equal(b.ret_verdict, STORE_INSERT_EXISTS);
	assert_true(uuid_eq(&b.ret_id, &a.task.id));
	assert_int_equal(c.ret_verdict, STORE_INSERT_KEY_CONFLICT);
	struct store_get g = get(b.task.id);
	assert_false(g.ret_found);
}

static void insert_key_race(void **state)
{
	struct store *other = harness_another();
	struct store_insert many[40];
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		many[i] = insert_of("race");
		many[i].idempotency_key = "raced";
	}
	run_many(many, ARRAY_LEN(many), sizeof(many[0]), STORE_INSERT);
	int created = 0;
	struct uuid id = {0};
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		if (many[i].ret_verdict == STORE_INSERT_CREATED) {
			created++;
			id = many[i].task.id;
		}
	assert_int_equal(created, 1);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		assert_true(uuid_eq(&many[i].ret_id, &id));
	struct store_insert late = insert_of("race");
	late.idempotency_key = "raced";
	assert_int_equal(run_any(other, &late.op, STORE_INSERT), STORE_OK);
	assert_int_equal(late.ret_verdict, STORE_INSERT_EXISTS);
	harness_another_done(other);
}

static void group_of(struct store_insert *at, int32_t n, const char *queue)
{
	for (int32_t i = 0; i < n; i++) {
		at[i] = insert_of(queue);
		at[i].group_next = i + 1 < n ? &at[i + 1] : NULL;
	}
	at[0].group_n = n;
}

static void insert_group(void **state)
{
	struct store_insert a[3], b[3];
	const char *q = new_queue();
	group_of(a, 3, q);
	a[1].idempotency_key = "group-1";
	run(&a[0].op, STORE_INSERT);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(a[i].ret_verdict, STORE_INSERT_CREATED);
		assert_int_equal(state_of(a[i].task.id), STORE_PENDING);
		assert_true(i == 0 || a[i].ret_seq > a[i - 1].ret_seq);
	}
	group_of(b, 3, q);
	b[0].idempotency_key = "group-2";
	b[2].idempotency_key = "group-1";
	b[2].idempotency_hash[0] = 1;
	run(&b[0].op, STORE_INSERT);
	assert_int_equal(b[2].ret_verdict, STORE_INSERT_KEY_CONFLICT);
	assert_int_equal(b[0].ret_verdict, 0);
	for (int i = 0; i < 3; i++) {
		struct store_get g = get(b[i].task.id);
		assert_false(g.ret_found);
	}
	/* The key of the group that came to nothing is free. */
	b[0].group_n = 0;
	b[0].group_next = NULL;
	run(&b[0].op, STORE_INSERT);
	assert_int_equal(b[0].ret_verdict, STORE_INSERT_CREATED);
}

static void insert_large_group(void **state)
{
	enum { N = 5000 };
	struct store_insert *at = test_calloc(N, sizeof(*at));
	group_of(at, N, new_queue());
	run(&at[0].op, STORE_INSERT);
	for (int i = 0; i < N; i++)
		assert_int_equal(at[i].ret_verdict, STORE_INSERT_CREATED);
	test_free(at);
}

/* ---- claim ---- */

static void claim_once(void **state)
{
	struct store *other = harness_another();
	struct core_task t = insert(new_queue());
	int64_t s = session("w-claim");
	assert_int_equal(claim(&t, "w-claim", s), 1);
	assert_false(try_claim(&t, "w-claim", s));
	struct store_claim again = {.task = t, .to = to_worker("another", 1)};
	assert_int_equal(run_any(other, &again.op, STORE_CLAIM), STORE_OK);
	assert_false(again.ret_won);
	assert_int_equal(state_of(t.id), STORE_RUNNING);
	harness_another_done(other);
}

static void claim_race(void **state)
{
	enum { N = 200 };
	struct store *other = harness_another(), *stores[] = {h.store, other};
	const char *q = new_queue();
	struct store_insert *in = test_calloc(N, sizeof(*in));
	struct store_claim *races = test_calloc(2 * N, sizeof(*races));
	for (int i = 0; i < N; i++)
		in[i] = insert_of(q);
	run_many(in, N, sizeof(*in), STORE_INSERT);
	for (int i = 0; i < 2 * N; i++) {
		races[i] = (struct store_claim){.task = in[i / 2].task, .to = to_worker(i % 2 ? "b" : "a", 1)};
		races[i].task.seq = in[i / 2].ret_seq;
		harness_submit(stores[i % 2], &races[i].op, STORE_CLAIM);
	}
	harness_drain();
	for (int i = 0; i < N; i++) {
		assert_int_equal(races[2 * i].ret_won + races[2 * i + 1].ret_won, 1);
		store_op_done_fields(&races[2 * i].op);
		store_op_done_fields(&races[2 * i + 1].op);
	}
	test_free(in);
	test_free(races);
	harness_another_done(other);
}

/* ---- record ---- */

static void record_success(void **state)
{
	struct core_task t;
	int64_t s = session("w-rec");
	struct core_attempt at = running(&t, "w-rec", s);
	struct store_record o = {.at = at, .worker = "w-rec", .outcome = STORE_SUCCEEDED, .has_exit_code = true, .log_end = 77,
				 .started_wall_us = 1700000000000000, .finished_wall_us = 1700000001000000};
	o.result = blob_new("\0res", 4);
	o.error = (struct store_bytes){(const uint8_t *)"\xff\0", 2};
	run(&o.op, STORE_RECORD);
	assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
	assert_int_equal(o.ret_state, STORE_COMPLETED);
	store_op_done_fields(&o.op);
	blob_unref(o.result);
	struct store_get g = get(t.id);
	const struct store_task *k = &g.ret_task;
	assert_int_equal(k->state, STORE_COMPLETED);
	assert_int_equal(k->outcome, STORE_SUCCEEDED);
	assert_string_equal(k->worker, "w-rec");
	assert_int_equal(k->result.len, 4);
	assert_int_equal(k->result_len, 4);
	assert_memory_equal(k->result.data, "\0res", 4);
	assert_int_equal(k->error.len, 2);
	assert_true(k->has_exit_code && !k->has_signal);
	assert_true(k->started_wall_us == 1700000000000000 && k->finished_wall_us == 1700000001000000);
	assert_int_equal(k->n_attempts, 1);
	assert_int_equal(k->attempts[0].log_end, 77);
	assert_int_equal(k->attempts[0].outcome, STORE_SUCCEEDED);
	store_op_done_fields(&g.op);
}

static void record_once(void **state)
{
	struct core_task t;
	int64_t s = session("w-once");
	struct core_attempt at = running(&t, "w-once", s), wrong = {at.task, 2};
	assert_int_equal(record(at, "other", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(record(wrong, "w-once", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(state_of(t.id), STORE_RUNNING);
	assert_int_equal(record(at, "w-once", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	assert_int_equal(record(at, "w-once", STORE_PROGRAM_FAILED), CORE_RECORD_DUPLICATE);
	assert_int_equal(record(at, "w-once", STORE_SUCCEEDED), CORE_RECORD_DUPLICATE);
	assert_int_equal(record(at, "other", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(state_of(t.id), STORE_FAILED);
	struct core_attempt nobody = {new_id(), 1};
	assert_int_equal(record(nobody, "w-once", STORE_SUCCEEDED), CORE_RECORD_FENCED);
}

static void record_twice_at_once(void **state)
{
	struct core_task t;
	int64_t s = session("w-two");
	struct core_attempt at = running(&t, "w-two", s);
	struct store *other = harness_another();
	struct store_record o[6];
	for (int i = 0; i < 6; i++) {
		o[i] = (struct store_record){.at = at, .worker = "w-two", .outcome = STORE_SUCCEEDED};
		harness_submit(i % 2 ? other : h.store, &o[i].op, STORE_RECORD);
	}
	harness_drain();
	int recorded = 0;
	for (int i = 0; i < 6; i++) {
		recorded += o[i].ret_verdict == CORE_RECORD_RECORDED;
		assert_true(o[i].ret_verdict == CORE_RECORD_RECORDED || o[i].ret_verdict == CORE_RECORD_DUPLICATE);
		store_op_done_fields(&o[i].op);
	}
	assert_int_equal(recorded, 1);
	harness_another_done(other);
}

static void record_retries(void **state)
{
	struct store_insert in = insert_of(new_queue());
	in.task.max_attempts = 3;
	run(&in.op, STORE_INSERT);
	in.task.seq = in.ret_seq;
	int64_t s = session("w-retry");
	struct store_record o;
	for (int n = 1; n <= 3; n++) {
		struct core_attempt at = {in.task.id, claim(&in.task, "w-retry", s)};
		assert_int_equal(at.attempt, n);
		o = (struct store_record){.at = at, .worker = "w-retry", .outcome = STORE_PROGRAM_FAILED, .has_exit_code = true,
					  .exit_code = n};
		run(&o.op, STORE_RECORD);
		assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
		if (n < 3) {
			assert_int_equal(o.ret_state, STORE_PENDING);
			assert_int_equal(o.ret_task.failures, n);
			assert_int_equal(o.ret_task.attempt, n);
			assert_true(o.ret_task.seq == in.ret_seq);
			assert_string_equal(o.ret_task.queue, in.task.queue);
			assert_int_equal(record(at, "w-retry", STORE_PROGRAM_FAILED), CORE_RECORD_DUPLICATE);
		}
		store_op_done_fields(&o.op);
	}
	assert_int_equal(o.ret_state, STORE_FAILED);
	struct store_get g = get(in.task.id);
	assert_int_equal(g.ret_task.state, STORE_FAILED);
	assert_int_equal(g.ret_task.n_attempts, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(g.ret_task.attempts[i].attempt, i + 1);
		assert_int_equal(g.ret_task.attempts[i].exit_code, i + 1);
		assert_string_equal(g.ret_task.attempts[i].worker, "w-retry");
	}
	store_op_done_fields(&g.op);
}

static void record_not_counted(void **state)
{
	struct core_task t = insert(new_queue());
	int64_t s = session("w-back");
	for (int n = 1; n <= 2; n++) {
		struct store_record o = {.at = {t.id, claim(&t, "w-back", s)}, .worker = "w-back",
					 .outcome = n == 1 ? STORE_GIVEN_BACK : STORE_STOPPED};
		run(&o.op, STORE_RECORD);
		assert_int_equal(o.ret_state, STORE_PENDING);
		assert_int_equal(o.ret_task.failures, 0);
		store_op_done_fields(&o.op);
	}
	assert_int_equal(state_of(t.id), STORE_PENDING);
}

/* A worker's clock may say anything: it must not block the outcome. */
static void record_wild_times(void **state)
{
	struct core_task t;
	int64_t s = session("w-wild");
	struct store_record o = {.at = running(&t, "w-wild", s), .worker = "w-wild", .outcome = STORE_SUCCEEDED,
				 .started_wall_us = INT64_MAX, .finished_wall_us = INT64_MIN};
	run(&o.op, STORE_RECORD);
	assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
	store_op_done_fields(&o.op);
}

const struct CMUnitTest suite_tests[] = {
	cmocka_unit_test(insert_then_get), cmocka_unit_test(insert_eager), cmocka_unit_test(insert_any_bytes),
	cmocka_unit_test(insert_key), cmocka_unit_test(insert_key_race), cmocka_unit_test(insert_group),
	cmocka_unit_test(insert_large_group), cmocka_unit_test(claim_once), cmocka_unit_test(claim_race),
	cmocka_unit_test(record_success), cmocka_unit_test(record_once), cmocka_unit_test(record_twice_at_once),
	cmocka_unit_test(record_retries), cmocka_unit_test(record_not_counted), cmocka_unit_test(record_wild_times),
	cmocka_unit_test(take_back_and_again), cmocka_unit_test(lost_limit), cmocka_unit_test(open_attempt_may_succeed),
	cmocka_unit_test(given_out_closes), cmocka_unit_test(cancel_everywhere), cmocka_unit_test(wish_beats),
	cmocka_unit_test(cancelled_closes),
	cmocka_unit_test(sessions_grow), cmocka_unit_test(session_stale), cmocka_unit_test(session_list),
	cmocka_unit_test(adopted_is_not_lost), cmocka_unit_test(adopted_lease_is_not_shorter),
	cmocka_unit_test(new_instance), cmocka_unit_test(many_sessions_at_once), cmocka_unit_test(fill_in_order),
	cmocka_unit_test(queues_with_rows), cmocka_unit_test(due_rows), cmocka_unit_test(logs),
	cmocka_unit_test(logs_gaps_and_tails), cmocka_unit_test(logs_dropped_of_former_attempts), cmocka_unit_test(logs_that_overlap),
	cmocka_unit_test(logs_at_random),
	cmocka_unit_test(metrics), cmocka_unit_test(metrics_pages), cmocka_unit_test(metrics_at_once),
	cmocka_unit_test(metrics_of_adopted), cmocka_unit_test(started),
	cmocka_unit_test(list_pages), cmocka_unit_test(list_leaves_out), cmocka_unit_test(incarnations),
	cmocka_unit_test(reopens_its_own), cmocka_unit_test(take_over), cmocka_unit_test(stale_session),
	cmocka_unit_test(stale_incarnation), cmocka_unit_test(stale_insert), cmocka_unit_test(strays_show_the_wish),
	cmocka_unit_test(strays_pages), cmocka_unit_test(strays_show_the_beat),
	cmocka_unit_test(runs_by_attempt_and_worker),
	cmocka_unit_test(worker_row), cmocka_unit_test(workers_pages), cmocka_unit_test(drain_holds),
	cmocka_unit_test(gone_until_it_comes), cmocka_unit_test(detached_until_it_comes),
	cmocka_unit_test(ends_table), cmocka_unit_test(delay_of_the_row), cmocka_unit_test(retry_puts_back),
	cmocka_unit_test(retry_names_the_attempt), cmocka_unit_test(retry_closes), cmocka_unit_test(retry_exclusive_waits),
	cmocka_unit_test(attempt_fields), cmocka_unit_test(fields_after_adoption), cmocka_unit_test(cancel_keeps_the_reason),
	cmocka_unit_test(list_with_attempts), cmocka_unit_test(labels_as_bytes), cmocka_unit_test(list_against_model),
	cmocka_unit_test(queue_pauses), cmocka_unit_test(queue_counts),
	cmocka_unit_test(asks_are_kept), cmocka_unit_test(asks_of_retried), cmocka_unit_test(retried_never_expires),
	cmocka_unit_test(expiry_of_ready), cmocka_unit_test(expiry_of_delayed),
	cmocka_unit_test(expiry_in_pages), cmocka_unit_test(given_out_never_expires),
	cmocka_unit_test(events_one_by_one), cmocka_unit_test(events_in_pages), cmocka_unit_test(events_of_starts), cmocka_unit_test(events_of_points),
	cmocka_unit_test(random_against_model), cmocka_unit_test(random_against_model),
	cmocka_unit_test(events_tell_all), cmocka_unit_test(list_of_many_ready),
};
const size_t suite_n = ARRAY_LEN(suite_tests);
