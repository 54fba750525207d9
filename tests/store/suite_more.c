/* What store.h promises, second part: take-back, cancel, sessions, and what is read. */
#include <stdio.h>

#include "tests/store/suite_parts.h"

/* ---- take-back ---- */

void take_back_and_again(void **state)
{
	struct core_task t;
	int64_t s = session("w-tb");
	struct core_attempt at = running(&t, "w-tb", s);
	struct store_take_back o = take_back(at, s + 1, CORE_CAUSE_WORKER_LOST, true);
	assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_FENCED);
	store_op_done_fields(&o.op);
	o = take_back(at, s, CORE_CAUSE_REFUSED, false);
	assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_PENDING);
	assert_true(o.ret_task.seq == t.seq);
	assert_int_equal(o.ret_task.attempt, 1);
	store_op_done_fields(&o.op);
	o = take_back(at, s, CORE_CAUSE_REFUSED, false);
	assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_FENCED);
	store_op_done_fields(&o.op);
	/* Refused: not open. */
	assert_int_equal(record(at, "w-tb", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(claim(&t, "w-tb", s), 2);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.n_attempts, 2);
	assert_int_equal(g.ret_task.attempts[0].outcome, STORE_NOT_TAKEN);
	assert_false(g.ret_task.attempts[0].open);
	assert_int_equal(g.ret_task.attempts[1].outcome, 0);
	store_op_done_fields(&g.op);
}

void lost_limit(void **state)
{
	struct core_task t = insert(new_queue());
	int64_t s = session("w-lost");
	for (int n = 1; n <= 3; n++) {
		struct core_attempt at = {t.id, claim(&t, "w-lost", s)};
		struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
		assert_int_equal(o.ret_verdict, n < 3 ? CORE_TAKE_BACK_PENDING : CORE_TAKE_BACK_ENDED);
		store_op_done_fields(&o.op);
	}
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.state, STORE_FAILED);
	assert_int_equal(g.ret_task.outcome, STORE_WORKER_LOST);
	assert_int_equal(g.ret_task.n_attempts, 3);
	store_op_done_fields(&g.op);
	assert_int_equal(record((struct core_attempt){t.id, 3}, "w-lost", STORE_SUCCEEDED), CORE_RECORD_FENCED);
}

void open_attempt_may_succeed(void **state)
{
	struct core_task t;
	int64_t s = session("w-open");
	struct core_attempt at = running(&t, "w-open", s);
	struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&o.op);
	struct store_get taken = get(t.id);
	assert_int_equal(taken.ret_task.n_attempts, 1);
	assert_true(taken.ret_task.attempts[0].open);
	store_op_done_fields(&taken.op);
	assert_int_equal(record(at, "w-open", STORE_PROGRAM_FAILED), CORE_RECORD_FENCED);
	assert_int_equal(record(at, "other", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(record(at, "w-open", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	assert_false(try_claim(&t, "w-open", s));
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.state, STORE_COMPLETED);
	assert_int_equal(g.ret_task.n_attempts, 1);
	assert_int_equal(g.ret_task.attempts[0].outcome, STORE_SUCCEEDED);
	store_op_done_fields(&g.op);
}

void given_out_closes(void **state)
{
	struct core_task t;
	int64_t s = session("w-close");
	struct core_attempt at = running(&t, "w-close", s);
	struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&o.op);
	claim(&t, "second", 1);
	assert_int_equal(record(at, "w-close", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(state_of(t.id), STORE_RUNNING);
}

/* ---- cancel ---- */

static struct store_cancel cancel(struct uuid id)
{
	struct store_cancel o = {.id = id};
	run(&o.op, STORE_CANCEL);
	return o;
}

void cancel_everywhere(void **state)
{
	assert_int_equal(cancel(new_id()).ret_verdict, STORE_CANCEL_NOT_FOUND);
	struct core_task t = insert(new_queue());
	assert_int_equal(cancel(t.id).ret_verdict, STORE_CANCEL_DONE);
	assert_int_equal(cancel(t.id).ret_verdict, STORE_CANCEL_TERMINAL);
	assert_false(try_claim(&t, "w", 1));
	assert_int_equal(state_of(t.id), STORE_CANCELLED);

	struct store_insert later = insert_of(new_queue());
	later.delay_ns = 3600 * 1000 * MS;
	run(&later.op, STORE_INSERT);
	assert_int_equal(cancel(later.task.id).ret_verdict, STORE_CANCEL_DONE);

	int64_t s = session("w-can");
	struct core_attempt at = running(&t, "w-can", s);
	struct store_cancel wish = cancel(t.id);
	assert_int_equal(wish.ret_verdict, STORE_CANCEL_WISH);
	assert_int_equal(wish.ret_at.attempt, at.attempt);
	assert_int_equal(state_of(t.id), STORE_RUNNING);
	assert_int_equal(record(at, "w-can", STORE_STOPPED), CORE_RECORD_RECORDED);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.state, STORE_CANCELLED);
	assert_true(g.ret_task.cancel_requested_wall_us > 0);
	store_op_done_fields(&g.op);
}

/* Whoever ran a lost attempt of it may neither go on nor have been right. */
void cancelled_closes(void **state)
{
	struct core_task t;
	int64_t s = session("w-shut");
	struct core_attempt at = running(&t, "w-shut", s);
	struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&o.op);
	assert_int_equal(cancel(t.id).ret_verdict, STORE_CANCEL_DONE);
	struct store_session_open again = session_open("w-shut", 1, &at, 1);
	assert_int_equal(again.ret_n_adopted, 0);
	assert_int_equal(again.ret_n_fenced, 1);
	store_op_done_fields(&again.op);
	assert_int_equal(record(at, "w-shut", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(state_of(t.id), STORE_CANCELLED);
}

void wish_beats(void **state)
{
	/* … a loss, a retry, a give-back; not a success. */
	static const enum store_outcome ends[] = {STORE_SUCCEEDED, STORE_PROGRAM_FAILED, STORE_GIVEN_BACK};
	static const enum store_state states[] = {STORE_COMPLETED, STORE_FAILED, STORE_CANCELLED};
	int64_t s = session("w-wish");
	for (int i = 0; i < 3; i++) {
		struct store_insert in = insert_of(new_queue());
		in.task.max_attempts = 9;
		run(&in.op, STORE_INSERT);
		in.task.seq = in.ret_seq;
		struct core_attempt at = {in.task.id, claim(&in.task, "w-wish", s)};
		cancel(in.task.id);
		record(at, "w-wish", ends[i]);
		assert_int_equal(state_of(in.task.id), states[i]);
	}
	struct core_task t;
	struct core_attempt at = running(&t, "w-wish", s);
	cancel(t.id);
	struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_ENDED);
	store_op_done_fields(&o.op);
	assert_int_equal(state_of(t.id), STORE_CANCELLED);
}

/* ---- sessions ---- */

void sessions_grow(void **state)
{
	struct store_session_open a = session_open("w-grow", 1, NULL, 0), b = session_open("w-grow", 1, NULL, 0),
				  c = session_open("w-grow", 2, NULL, 0);
	assert_true(a.ret_session < b.ret_session && b.ret_session < c.ret_session);
	assert_true(a.ret_new_instance && !b.ret_new_instance && c.ret_new_instance);
	store_op_done_fields(&a.op);
	store_op_done_fields(&b.op);
	store_op_done_fields(&c.op);
}

/* A hello that was held up, at a master that the worker has left: its list says nothing of what came since. */
void session_stale(void **state)
{
	enum { T = 1 << 30 };
	static const struct {
		uint8_t instance;
		int64_t number;
		bool stale;
	} hellos[] = {
		{1, T + 8, false}, {1, T + 8, true}, /* a store that sends it again itself knows that */
		{1, T + 7, true}, {1, T + 9, false}, {1, T + 8, true}, {2, T + 8, true}, {2, T + 10, false}, {1, T + 9, true},
		{1, T + 10 - CORE_HELD_UP_US, true}, {1, T + 9 - CORE_HELD_UP_US, false}, /* a clock was set back */
		{1, 0, false}, {1, T, false}, /* not counted */
	};
	int64_t last = 0;
	for (size_t i = 0; i < ARRAY_LEN(hellos); i++) {
		struct core_task t;
		struct core_attempt runs = {new_id(), 1};
		if (last)
			runs = running(&t, "w-stale", last);
		/* Others in its batch are not stale. */
		struct store_session_open many[] = {
			{.worker = "w-stale-a", .instance = {1}, .master = "m1"},
			{.worker = "w-stale", .instance = {hellos[i].instance}, .master = "m1", .hello_number = hellos[i].number,
			 .held = &runs, .n_held = !hellos[i].stale},
			{.worker = "w-stale-z", .instance = {1}, .master = "m1"},
		};
		run_many(many, ARRAY_LEN(many), sizeof(many[0]), STORE_SESSION_OPEN);
		assert_int_equal(many[1].ret_stale, hellos[i].stale);
		assert_false(many[0].ret_stale || many[2].ret_stale);
		if (hellos[i].stale) {
			assert_int_equal(many[1].ret_n_requeued + many[1].ret_n_waiting + many[1].ret_n_fenced, 0);
			assert_int_equal(state_of(runs.task), STORE_RUNNING);
		} else {
			assert_true(many[1].ret_session > last);
			assert_int_equal(many[1].ret_n_adopted, last > 0);
			last = many[1].ret_session;
		}
		for (size_t j = 0; j < ARRAY_LEN(many); j++)
			store_op_done_fields(&many[j].op);
	}
}

static bool has_attempt(const struct core_attempt *at, size_t n, struct core_attempt x)
{
	for (size_t i = 0; i < n; i++)
		if (uuid_eq(&at[i].task, &x.task) && at[i].attempt == x.attempt)
			return true;
	return false;
}

void session_list(void **state)
{
	struct core_task kept, lost, ended, opened, wished;
	int64_t s = session("w-list");
	struct core_attempt held[] = {running(&kept, "w-list", s), running(&ended, "w-list", s), running(&opened, "w-list", s),
				      running(&wished, "w-list", s), {new_id(), 1}};
	struct core_attempt missing = running(&lost, "w-list", s);
	record(held[1], "w-list", STORE_SUCCEEDED);
	struct store_take_back tb = take_back(held[2], s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	cancel(wished.id);
	struct store_session_open o = session_open("w-list", 1, held, ARRAY_LEN(held));
	assert_int_equal(o.ret_session, s + 1);
	assert_int_equal(o.ret_n_adopted, 3);
	for (size_t i = 0; i < 3; i++) {
		const struct core_adopted *a = &o.ret_adopted[i];
		assert_int_equal(a->lease_ns, 10000 * MS);
		assert_int_equal(a->cancel_wish, uuid_eq(&a->task.id, &wished.id));
		assert_int_equal(a->task.attempt, 1);
	}
	assert_int_equal(o.ret_n_requeued, 1);
	assert_true(uuid_eq(&o.ret_requeued[0].id, &lost.id));
	assert_true(o.ret_requeued[0].seq == lost.seq);
	assert_string_equal(o.ret_requeued[0].queue, lost.queue);
	assert_int_equal(o.ret_n_fenced, 2);
	assert_true(has_attempt(o.ret_fenced, 2, held[1]) && has_attempt(o.ret_fenced, 2, held[4]));
	store_op_done_fields(&o.op);
	/* The rows have the new number. */
	tb = take_back(held[0], s, CORE_CAUSE_WORKER_LOST, true);
	assert_int_equal(tb.ret_verdict, CORE_TAKE_BACK_FENCED);
	store_op_done_fields(&tb.op);
	assert_int_equal(record(held[2], "w-list", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	assert_int_equal(record(missing, "w-list", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	assert_int_equal(state_of(lost.id), STORE_PENDING);
}

void adopted_is_not_lost(void **state)
{
	struct core_task t;
	int64_t s = session("w-adopt");
	struct core_attempt at = running(&t, "w-adopt", s);
	for (int i = 0; i < 5; i++) {
		struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
		assert_int_equal(tb.ret_verdict, CORE_TAKE_BACK_PENDING);
		store_op_done_fields(&tb.op);
		struct store_session_open o = session_open("w-adopt", 1, &at, 1);
		assert_int_equal(o.ret_n_adopted, 1);
		s = o.ret_session;
		store_op_done_fields(&o.op);
	}
	assert_int_equal(record(at, "w-adopt", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
}

/* It is judged, here or by another master, by no less than its worker was told to beat for. */
void adopted_lease_is_not_shorter(void **state)
{
	static const struct { int64_t session_ms, row_ms; } steps[] = {{5000, 10000}, {50000, 50000}, {5000, 50000}, {60000, 60000}};
	struct core_task t;
	int64_t s = session("w-long");
	struct core_attempt at = running(&t, "w-long", s);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		if (i % 2) { /* running, or open */
			struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, false);
			assert_int_equal(tb.ret_verdict, CORE_TAKE_BACK_PENDING);
			store_op_done_fields(&tb.op);
		}
		struct store_session_open o = {.worker = "w-long", .instance = {1}, .master = "m1", .held = &at, .n_held = 1,
					       .lease_ns = steps[i].session_ms * MS};
		run(&o.op, STORE_SESSION_OPEN);
		assert_int_equal(o.ret_n_adopted, 1);
		assert_int_equal(o.ret_adopted[0].lease_ns, steps[i].row_ms * MS);
		s = o.ret_session;
		store_op_done_fields(&o.op);
	}
	struct store_session_open again = session_open("w-long", 1, &at, 1); /* it is in the row */
	assert_int_equal(again.ret_adopted[0].lease_ns, 60000 * MS);
	store_op_done_fields(&again.op);
	assert_int_equal(record(at, "w-long", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
}

void new_instance(void **state)
{
	struct store_insert x = insert_of(new_queue());
	x.task.exclusive = true;
	int64_t s = session("w-inst");
	x.eager = to_worker("w-inst", s);
	run(&x.op, STORE_INSERT);
	struct core_task t;
	running(&t, "w-inst", s);
	for (int i = 0; i < 2; i++) { /* the second time as well: the row's instance counts, not the worker's */
		struct store_session_open o = session_open("w-inst", 2, NULL, 0);
		assert_int_equal(o.ret_n_requeued, i == 0);
		assert_int_equal(o.ret_n_waiting, 1);
		assert_true(uuid_eq(&o.ret_waiting[0].task.id, &x.task.id) && o.ret_waiting[0].task.attempt == 1);
		assert_int_equal(o.ret_waiting[0].lease_ns, 10000 * MS);
		s = o.ret_session; /* it has this session's number now, so that this session may take it back */
		store_op_done_fields(&o.op);
		assert_int_equal(state_of(x.task.id), STORE_RUNNING);
		assert_int_equal(state_of(t.id), STORE_PENDING);
	}
	struct store_take_back tb = take_back((struct core_attempt){x.task.id, 1}, s, CORE_CAUSE_WORKER_LOST, true);
	assert_int_equal(tb.ret_verdict, CORE_TAKE_BACK_PENDING);
	store_op_done_fields(&tb.op);
}

void many_sessions_at_once(void **state)
{
	enum { N = 300 };
	static char names[N][16];
	struct store_session_open *o = test_calloc(N, sizeof(*o));
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "many-%d", i * 7 % N);
		o[i] = (struct store_session_open){.worker = names[i], .instance = {1}, .master = "m"};
	}
	run_many(o, N, sizeof(*o), STORE_SESSION_OPEN);
	for (int i = 0; i < N; i++) {
		assert_int_equal(o[i].op.result, STORE_OK);
		assert_int_equal(o[i].ret_session, 1);
		store_op_done_fields(&o[i].op);
	}
	test_free(o);
}

/* ---- fill, queues, due ---- */

void fill_in_order(void **state)
{
	const char *q = new_queue();
	static const int32_t priorities[] = {0, 5, -3, 5, 0};
	struct uuid ids[5];
	for (int i = 0; i < 5; i++) {
		struct store_insert o = insert_of(q);
		o.task.priority = priorities[i];
		o.task.max_attempts = 4;
		o.task.need.gpus = i;
		run(&o.op, STORE_INSERT);
		ids[i] = o.task.id;
	}
	static const int order[] = {1, 3, 0, 4, 2};
	struct store_fill f = {.queue = q, .from_start = true, .limit = 2};
	for (int at = 0; at < 5; at += 2) {
		run(&f.op, STORE_FILL);
		assert_int_equal(f.ret_n, at < 4 ? 2 : 1);
		assert_int_equal(f.ret_exhausted, at == 4);
		for (size_t i = 0; i < f.ret_n; i++) {
			assert_true(uuid_eq(&f.ret_rows[i].id, &ids[order[at + (int)i]]));
			assert_int_equal(f.ret_rows[i].need.gpus, order[at + (int)i]);
			assert_int_equal(f.ret_rows[i].max_attempts, 4);
			assert_ptr_equal(f.ret_rows[i].queue, q);
		}
		f.from_start = false;
		f.after_priority = f.ret_rows[f.ret_n - 1].priority;
		f.after_seq = f.ret_rows[f.ret_n - 1].seq;
	}
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 0);
	assert_true(f.ret_exhausted);
	store_op_done_fields(&f.op);
}

void queues_with_rows(void **state)
{
	const char *full = new_queue(), *empty = new_queue();
	insert(full);
	insert(full);
	struct core_task t = insert(empty);
	claim(&t, "w", 1);
	struct store_queues o = {.ret_n = 0};
	run(&o.op, STORE_QUEUES);
	int found = 0;
	for (size_t i = 0; i < o.ret_n; i++) {
		assert_string_not_equal(o.ret_names[i], empty);
		found += strcmp(o.ret_names[i], full) == 0;
	}
	assert_int_equal(found, 1);
	store_op_done_fields(&o.op);
}

void due_rows(void **state)
{
	struct store_insert soon = insert_of(new_queue()), late = insert_of(soon.task.queue), past = insert_of(soon.task.queue);
	soon.delay_ns = 20 * MS;
	late.delay_ns = 3600 * 1000 * MS;
	past.run_at_wall_us = 1700000000000000;
	run(&soon.op, STORE_INSERT);
	run(&late.op, STORE_INSERT);
	run(&past.op, STORE_INSERT);
	assert_int_equal(state_of(late.task.id), STORE_PENDING);
	struct store_fill f = {.queue = soon.task.queue, .from_start = true, .limit = 10};
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 1);
	assert_true(uuid_eq(&f.ret_rows[0].id, &past.task.id));
	bool found = false;
	while (!found) { /* the harness's deadline ends the test otherwise */
		struct store_due d = {.limit = 100};
		run(&d.op, STORE_DUE);
		for (size_t i = 0; i < d.ret_n; i++) {
			found |= uuid_eq(&d.ret_rows[i].id, &soon.task.id);
			assert_false(uuid_eq(&d.ret_rows[i].id, &late.task.id));
		}
		assert_true(d.ret_next_in_ns >= 0 && d.ret_next_in_ns <= 3600 * 1000 * MS);
		store_op_done_fields(&d.op);
	}
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, 2);
	store_op_done_fields(&f.op);
}

/* ---- started ---- */

void started(void **state)
{
	struct core_task t;
	int64_t s = session("w-start");
	struct core_attempt at = running(&t, "w-start", s);
	struct store_started o = {.at = at, .worker = "w-start", .started_wall_us = 1700000000000000};
	run(&o.op, STORE_STARTED);
	struct store_get g = get(t.id);
	assert_true(g.ret_task.started_wall_us == 1700000000000000);
	assert_true(g.ret_task.attempts[0].started_wall_us == 1700000000000000);
	store_op_done_fields(&g.op);
}

/* ---- list ---- */

void list_pages(void **state)
{
	enum { N = 23 };
	const char *q = new_queue();
	struct core_task t[N];
	int64_t s = session("w-page");
	for (int i = 0; i < N; i++)
		t[i] = insert(q);
	for (int i = 0; i < N; i += 2)
		claim(&t[i], "w-page", s);
	for (int i = 0; i < N; i += 4)
		record((struct core_attempt){t[i].id, 1}, "w-page", i % 8 ? STORE_SUCCEEDED : STORE_PROGRAM_FAILED);
	static const struct {
		uint32_t states;
		int first, step, n;
	} cases[] = {
		{0, 22, 1, 23}, {1u << STORE_PENDING, 21, 2, 11}, {1u << STORE_RUNNING, 22, 4, 6},
		{1u << STORE_COMPLETED, 20, 8, 3}, {1u << STORE_FAILED, 16, 8, 3},
		{1u << STORE_FAILED | 1u << STORE_CANCELLED, 16, 8, 3},
	};
	for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
		struct store_list o = {.states = cases[c].states, .queue = q, .limit = 2, .max_bytes = 1 << 20};
		int got = 0;
		do {
			run(&o.op, STORE_LIST);
			for (size_t i = 0; i < o.ret_n; i++, got++)
				assert_true(uuid_eq(&o.ret_tasks[i].core.id, &t[cases[c].first - got * cases[c].step].id));
			if (o.ret_n) {
				o.after = true;
				o.after_id = o.ret_tasks[o.ret_n - 1].core.id;
			}
			store_op_done_fields(&o.op);
		} while (o.ret_more);
		assert_int_equal(got, cases[c].n);
	}
}

void list_leaves_out(void **state)
{
	struct store_insert o = insert_of(new_queue());
	o.env_free_spec = blob_new("short", 5);
	run(&o.op, STORE_INSERT);
	insert(o.task.queue);
	insert(o.task.queue);
	struct store_list l = {.queue = o.task.queue, .limit = 10, .max_bytes = 1 << 20};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 3);
	assert_false(l.ret_more);
	assert_int_equal(l.ret_tasks[2].spec->len, 5);
	store_op_done_fields(&l.op);
	l.full = true;
	l.max_bytes = 1;
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 1);
	assert_true(l.ret_more);
	assert_int_equal(l.ret_tasks[0].spec->len, 4);
	store_op_done_fields(&l.op);
	blob_unref(o.env_free_spec);
}

/* ---- strays ---- */

void strays_pages(void **state)
{
	enum { N = 7 };
	struct store_master_open m = {.master = "m1"};
	run(&m.op, STORE_MASTER_OPEN);
	struct store_insert x = insert_of(new_queue());
	int64_t s = session("w-stray");
	x.task.exclusive = true;
	x.eager = to_worker("w-stray", s);
	x.eager.lease_ns = 70000 * MS;
	run(&x.op, STORE_INSERT);
	struct core_task t[N];
	struct core_attempt at[N];
	for (int i = 0; i < N; i++)
		at[i] = running(&t[i], i == 3 ? "w-nobody" : "w-stray", s);
	record(at[1], "w-stray", STORE_SUCCEEDED);
	struct store_take_back tb = take_back(at[2], s, CORE_CAUSE_REFUSED, false);
	store_op_done_fields(&tb.op);
	int found[N] = {0}, exclusive = 0;
	struct store_strays o = {.master = "m1", .limit = 2};
	do {
		struct uuid last = o.after;
		run(&o.op, STORE_STRAYS);
		assert_true(o.ret_n <= 2);
		for (size_t i = 0; i < o.ret_n; i++) {
			const struct core_stray *r = &o.ret_rows[i];
			assert_true(uuid_cmp(&last, &r->at.task) < 0);
			last = r->at.task;
			for (int k = 0; k < N; k++)
				found[k] += uuid_eq(&r->at.task, &at[k].task);
			if (uuid_eq(&r->at.task, &at[3].task)) {
				assert_string_equal(r->worker, "w-nobody");
				assert_string_equal(r->master, "");
				assert_true(!r->own && r->beat == 0 && r->incarnation == 0);
			} else if (uuid_eq(&r->at.task, &x.task.id)) {
				exclusive++;
				assert_true(r->exclusive && r->lease_ns == 70000 * MS);
			} else if (strcmp(r->worker, "w-stray") == 0) {
				assert_string_equal(r->master, "m1");
				assert_true(r->own && !r->exclusive && r->incarnation == m.ret_incarnation);
				assert_true(r->session == s && r->at.attempt == 1 && r->lease_ns == 10000 * MS);
			}
		}
		o.after = last;
		if (o.ret_n < 2)
			break;
		store_op_done_fields(&o.op);
	} while (true);
	store_op_done_fields(&o.op);
	assert_int_equal(exclusive, 1);
	for (int i = 0; i < N; i++)
		assert_int_equal(found[i], i != 1 && i != 2);
}

void strays_show_the_beat(void **state)
{
	struct core_task t;
	struct store_master_open m = {.master = "m1"};
	run(&m.op, STORE_MASTER_OPEN);
	struct core_attempt at = running(&t, "w-beaten", session("w-beaten"));
	int64_t beats[2];
	for (int i = 0; i < 2; i++) {
		struct store_strays o = {.master = "other", .after = at.task, .limit = 10};
		for (int k = 15; o.after.b[k]-- == 0; k--)
			; /* the id before it */
		run(&o.op, STORE_STRAYS);
		assert_true(o.ret_n >= 1 && uuid_eq(&o.ret_rows[0].at.task, &at.task) && !o.ret_rows[0].own);
		beats[i] = o.ret_rows[0].beat;
		store_op_done_fields(&o.op);
		struct store_beat beat = {.master = "m1", .incarnation = m.ret_incarnation};
		run(&beat.op, STORE_BEAT);
		assert_false(beat.ret_replaced);
	}
	assert_true(beats[1] == beats[0] + 1);
}

/* ---- which of some attempts run ---- */

void runs_by_attempt_and_worker(void **state)
{
	enum { N = 5, MANY = 3000 };
	struct core_task t[N];
	struct core_attempt at[N];
	int64_t s = session("w-runs");
	for (int i = 0; i < N; i++)
		at[i] = running(&t[i], "w-runs", s);
	record(at[1], "w-runs", STORE_SUCCEEDED);
	struct store_take_back tb = take_back(at[2], s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	tb = take_back(at[3], s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	assert_int_equal(claim(&t[3], "w-runs-2", s), 2);
	/* Once adopted it runs under another number of the session: what counts is whose it is. */
	struct store_session_open open = session_open("w-runs", 1, &at[4], 1);
	assert_int_equal(open.ret_n_adopted, 1);
	store_op_done_fields(&open.op);
	struct uuid unknown = t[0].id;
	unknown.b[15] ^= 1;
	const struct core_owner asked[] = {
		{ { t[0].id, 1 }, "w-runs", s }, /* not on that list: it went back */
		{ at[1], "w-runs", s }, /* ended */
		{ at[2], "w-runs", s }, /* PENDING */
		{ at[3], "w-runs", s }, /* given out again, */
		{ { t[3].id, 2 }, "w-runs-2", s }, /* here */
		{ { t[3].id, 2 }, "w-runs", s },
		{ { t[3].id, 3 }, "w-runs-2", s },
		{ at[4], "w-runs", s },
		{ at[4], "w-runs", s }, /* twice in one question */
		{ at[4], "W-RUNS", s },
		{ at[4], "", s },
		{ { unknown, 1 }, "w-runs", s },
	};
	static const bool expected[ARRAY_LEN(asked)] = { [4] = true, [7] = true, [8] = true };
	struct store_runs o = {.at = asked, .n = ARRAY_LEN(asked)};
	run(&o.op, STORE_RUNS);
	for (size_t i = 0; i < ARRAY_LEN(asked); i++)
		if (o.ret_runs[i] != expected[i])
			fail_msg("case %zu", i);
	store_op_done_fields(&o.op);
	assert_null(o.ret_runs);

	static struct core_owner many[MANY];
	for (size_t i = 0; i < MANY; i++)
		many[i] = asked[i % ARRAY_LEN(asked)];
	o = (struct store_runs){.at = many, .n = MANY};
	run(&o.op, STORE_RUNS);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(o.ret_runs[i], expected[i % ARRAY_LEN(asked)]);
	store_op_done_fields(&o.op);
}
