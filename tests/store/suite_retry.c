/* What store.h promises, third part: what each end does to a task, RETRY, and what is kept of an attempt. */
#include <stdio.h>

#include "tests/store/suite_parts.h"

#define HOUR (3600 * 1000 * MS)
#define LIMIT 3

static struct store_cancel cancel(struct uuid id, const char *words)
{
	struct store_cancel o = {.id = id, .words = words};
	run(&o.op, STORE_CANCEL);
	return o;
}

/* ---- ends ---- */

/* RUNNING, after so many ends that the program caused and so many losses. */
static struct core_attempt prepared(struct store_insert *in, int max_attempts, int failures, int losses, const char *w, int64_t s)
{
	*in = insert_of(new_queue());
	in->task.max_attempts = max_attempts;
	in->task.handler = "h";
	in->task.custom = "a=1";
	run(&in->op, STORE_INSERT);
	in->task.seq = in->ret_seq;
	for (int i = 0; i < failures + losses; i++) {
		struct core_attempt at = {in->task.id, claim(&in->task, w, s)};
		if (i < failures) {
			assert_int_equal(record(at, w, STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
			continue;
		}
		struct store_take_back o = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
		assert_int_equal(o.ret_verdict, CORE_TAKE_BACK_PENDING);
		store_op_done_fields(&o.op);
	}
	return (struct core_attempt){in->task.id, claim(&in->task, w, s)};
}

/* Each kind of end, with and without a wish, with and without attempts and losses left. */
void ends_table(void **state)
{
	enum { P = STORE_PENDING, C = STORE_COMPLETED, F = STORE_FAILED, X = STORE_CANCELLED };
	static const struct {
		enum store_outcome outcome;
		/* state: [wish][no attempts left][no losses left] */
		int is[2][2][2];
		int failures, losses;
	} rows[] = {
		{STORE_SUCCEEDED, {{{C, C}, {C, C}}, {{C, C}, {C, C}}}, 0, 0},
		{STORE_PROGRAM_FAILED, {{{P, P}, {F, F}}, {{F, F}, {F, F}}}, 1, 0},
		{STORE_LAUNCH_FAILED, {{{P, P}, {F, F}}, {{F, F}, {F, F}}}, 1, 0},
		{STORE_TIMED_OUT, {{{P, P}, {F, F}}, {{F, F}, {F, F}}}, 1, 0},
		{STORE_STOPPED, {{{P, P}, {P, P}}, {{X, X}, {X, X}}}, 0, 0},
		{STORE_GIVEN_BACK, {{{P, P}, {P, P}}, {{X, X}, {X, X}}}, 0, 0},
		{STORE_WORKER_LOST, {{{P, F}, {P, F}}, {{X, X}, {X, X}}}, 0, 1},
	};
	int64_t s = session("w-ends");
	for (size_t i = 0; i < ARRAY_LEN(rows) * 8; i++) {
		size_t row = i / 8;
		bool wish = i & 4, spent = i & 2, lost = i & 1;
		int failures = spent ? 1 : 0, losses = lost ? LIMIT - 1 : 0;
		struct store_insert in;
		struct core_attempt at = prepared(&in, 2, failures, losses, "w-ends", s);
		if (wish)
			cancel(at.task, NULL);
		struct store_record o = {.at = at, .worker = "w-ends", .outcome = rows[row].outcome, .lost_limit = LIMIT,
					 .retry_in_ns = HOUR};
		run(&o.op, STORE_RECORD);
		assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
		int want = rows[row].is[wish][spent][lost];
		if ((int)o.ret_state != want)
			fail_msg("outcome %d, wish %d, attempts spent %d, losses spent %d: state %d, not %d", rows[row].outcome, wish,
				 spent, lost, o.ret_state, want);
		/* Only what the program caused waits. */
		assert_int_equal(o.ret_due_in_ns, want == STORE_PENDING && rows[row].failures ? HOUR : 0);
		struct store_get g = get(at.task);
		assert_int_equal(g.ret_task.state, want);
		assert_int_equal(g.ret_task.core.failures, failures + rows[row].failures);
		assert_int_equal(g.ret_task.losses, losses + rows[row].losses);
		store_op_done_fields(&g.op);
		assert_int_equal(record(at, "w-ends", rows[row].outcome), CORE_RECORD_DUPLICATE);
		store_op_done_fields(&o.op);
	}
}

/* Who doesn't know the policy asks for no delay: the row's own is kept. */
void delay_of_the_row(void **state)
{
	static const int64_t want[] = {100, 300, 900, 1000}; /* seconds */
	struct store_insert in = insert_of(new_queue());
	in.task.max_attempts = 9;
	in.task.backoff_initial_ns = 100000 * MS;
	in.task.backoff_max_ns = 1000000 * MS;
	in.task.backoff_multiplier = 3;
	int64_t s = session("w-delay");
	for (int n = 0; n < 4; n++) {
		run(&in.op, STORE_INSERT);
		in.task.seq = in.ret_seq;
		struct core_attempt at = {in.task.id, claim(&in.task, "w-delay", s)};
		struct store_record o;
		for (int i = 0; i <= n; i++) {
			o = (struct store_record){.at = at, .worker = "w-delay", .outcome = i < n ? STORE_GIVEN_BACK : STORE_TIMED_OUT};
			run(&o.op, STORE_RECORD);
			assert_int_equal(o.ret_state, STORE_PENDING);
			assert_int_equal(o.ret_due_in_ns, i < n ? 0 : want[0] * 1000 * MS);
			store_op_done_fields(&o.op);
			if (i < n)
				at.attempt = claim(&in.task, "w-delay", s);
		}
		/* A window that knows the task from before must not break the delay. */
		assert_false(try_claim(&in.task, "w-delay", s));
		in.task.id = new_id();
	}
	/* Grows with the failures, to the longest. */
	in.task.backoff_initial_ns = 1;
	in.task.backoff_multiplier = 100;
	in.task.max_attempts = 1000;
	in.task.backoff_max_ns = 50000;
	run(&in.op, STORE_INSERT);
	in.task.seq = in.ret_seq;
	static const int64_t grown[] = {1, 100, 10000, 50000, 50000};
	for (int n = 0; n < 5; n++) {
		struct store_record o = {.at = {in.task.id, 0}, .worker = "w-delay", .outcome = STORE_PROGRAM_FAILED};
		struct store_due due = {.limit = 100};
		run(&due.op, STORE_DUE);
		store_op_done_fields(&due.op);
		o.at.attempt = claim(&in.task, "w-delay", s);
		run(&o.op, STORE_RECORD);
		assert_int_equal(o.ret_due_in_ns, grown[n]);
		store_op_done_fields(&o.op);
	}
}

/* ---- retry ---- */

static struct store_retry retry(struct uuid id, int32_t attempt)
{
	struct store_retry o = {.id = id, .attempt = attempt};
	run(&o.op, STORE_RETRY);
	return o;
}

static void refused_retry(struct uuid id, int32_t attempt, int verdict)
{
	struct store_retry o = retry(id, attempt);
	assert_int_equal(o.ret_verdict, verdict);
	store_op_done_fields(&o.op);
}

void retry_puts_back(void **state)
{
	struct store_insert in;
	int64_t s = session("w-again");
	struct core_attempt at = prepared(&in, 2, 1, 2, "w-again", s);
	struct store_record end = {.at = at, .worker = "w-again", .outcome = STORE_PROGRAM_FAILED, .has_exit_code = true, .exit_code = 7,
				   .error = {(const uint8_t *)"boom", 4}, .log_end = 12, .words = "words", .devices = "0 1"};
	run(&end.op, STORE_RECORD);
	assert_int_equal(end.ret_state, STORE_FAILED);
	store_op_done_fields(&end.op);
	struct store_retry o = retry(at.task, at.attempt);
	assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
	assert_int_equal(o.ret_state, STORE_PENDING);
	assert_int_equal(o.ret_attempt, 4);
	assert_int_equal(o.ret_due_in_ns, 0);
	assert_int_equal(o.ret_task.attempt, 4);
	assert_int_equal(o.ret_task.failures, 0);
	assert_int_equal(o.ret_task.max_attempts, 2);
	assert_true(o.ret_task.seq == in.ret_seq);
	assert_string_equal(o.ret_task.queue, in.task.queue);
	assert_string_equal(o.ret_task.handler, "h");
	assert_string_equal(o.ret_task.custom, "a=1");
	struct store_get g = get(at.task);
	assert_int_equal(g.ret_task.state, STORE_PENDING);
	assert_int_equal(g.ret_task.losses, 0);
	assert_int_equal(g.ret_task.n_attempts, 4);
	const struct store_attempt_row *a = &g.ret_task.attempts[3];
	assert_int_equal(a->attempt, 4);
	assert_int_equal(a->outcome, STORE_PROGRAM_FAILED);
	assert_int_equal(a->exit_code, 7);
	assert_memory_equal(a->error.data, "boom", 4);
	assert_int_equal(a->log_end, 12);
	assert_string_equal(a->cause, "words");
	assert_string_equal(a->devices, "0 1");
	assert_int_equal(a->session, s);
	for (int i = 0; i < 4; i++)
		assert_false(g.ret_task.attempts[i].open);
	store_op_done_fields(&g.op);
	/* What was reported stays known; a second retry of the same attempt comes too late. */
	assert_int_equal(record(at, "w-again", STORE_PROGRAM_FAILED), CORE_RECORD_DUPLICATE);
	refused_retry(at.task, at.attempt, STORE_RETRY_NOT_ENDED);
	/* Counts anew: one failure more is allowed than before. */
	in.task = o.ret_task;
	assert_int_equal(claim(&in.task, "w-again", s), 5);
	refused_retry(at.task, 4, STORE_RETRY_NOT_ENDED);
	assert_int_equal(record((struct core_attempt){at.task, 5}, "w-again", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	assert_int_equal(state_of(at.task), STORE_PENDING);
	assert_int_equal(claim(&in.task, "w-again", s), 6);
	assert_int_equal(record((struct core_attempt){at.task, 6}, "w-again", STORE_SUCCEEDED), CORE_RECORD_RECORDED);
	refused_retry(at.task, 6, STORE_RETRY_COMPLETED);
	store_op_done_fields(&o.op);
}

void retry_names_the_attempt(void **state)
{
	struct core_task t;
	int64_t s = session("w-name");
	refused_retry(new_id(), 0, STORE_RETRY_NOT_FOUND);
	struct core_attempt at = running(&t, "w-name", s);
	refused_retry(t.id, 1, STORE_RETRY_NOT_ENDED);
	assert_int_equal(record(at, "w-name", STORE_PROGRAM_FAILED), CORE_RECORD_RECORDED);
	refused_retry(t.id, 0, STORE_RETRY_ANOTHER);
	refused_retry(t.id, 2, STORE_RETRY_ANOTHER);
	/* Of two at once one wins. */
	struct store_retry two[2] = {{.id = t.id, .attempt = 1}, {.id = t.id, .attempt = 1}};
	run_many(two, 2, sizeof(two[0]), STORE_RETRY);
	int done = 0;
	for (int i = 0; i < 2; i++) {
		done += two[i].ret_verdict == STORE_RETRY_DONE;
		store_op_done_fields(&two[i].op);
	}
	assert_int_equal(done, 1);
	/* Cancelled before its first attempt: 0. */
	t = insert(new_queue());
	refused_retry(t.id, 0, STORE_RETRY_NOT_ENDED);
	cancel(t.id, "cancelled: by mistake");
	refused_retry(t.id, 1, STORE_RETRY_ANOTHER);
	struct store_retry o = retry(t.id, 0);
	assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
	store_op_done_fields(&o.op);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.n_attempts, 0);
	assert_int_equal(g.ret_task.cancel_requested_wall_us, 0);
	assert_null(g.ret_task.cause);
	store_op_done_fields(&g.op);
	assert_int_equal(claim(&t, "w-name", s), 1);
}

/* A late word about an attempt that was open when the task was cancelled, or lost when it failed, changes nothing. */
void retry_closes(void **state)
{
	struct core_task t;
	int64_t s = session("w-late");
	struct core_attempt at = running(&t, "w-late", s);
	struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	cancel(t.id, NULL);
	struct store_retry o = retry(t.id, 1);
	assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
	store_op_done_fields(&o.op);
	assert_int_equal(record(at, "w-late", STORE_SUCCEEDED), CORE_RECORD_FENCED);
	struct store_session_open so = session_open("w-late", 1, &at, 1);
	assert_int_equal(so.ret_n_fenced, 1);
	store_op_done_fields(&so.op);
	assert_int_equal(state_of(t.id), STORE_PENDING);
	s = so.ret_session;
	struct store_insert in;
	at = prepared(&in, 1, 0, LIMIT - 1, "w-late", s);
	tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	assert_int_equal(tb.ret_verdict, CORE_TAKE_BACK_ENDED);
	store_op_done_fields(&tb.op);
	o = retry(at.task, at.attempt);
	assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
	assert_int_equal(o.ret_due_in_ns, 0);
	store_op_done_fields(&o.op);
	assert_int_equal(record(at, "w-late", STORE_SUCCEEDED), CORE_RECORD_FENCED);
}

/* The lease of a lost attempt runs as long as the store can know. */
void retry_exclusive_waits(void **state)
{
	int64_t s = session("w-excl");
	for (int reported = 0; reported < 2; reported++) {
		struct store_insert in = insert_of(new_queue());
		in.task.exclusive = true;
		run(&in.op, STORE_INSERT);
		in.task.seq = in.ret_seq;
		struct core_attempt at = {in.task.id, claim(&in.task, "w-excl", s)};
		if (reported) {
			record(at, "w-excl", STORE_PROGRAM_FAILED);
		} else {
			struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
			store_op_done_fields(&tb.op);
			cancel(at.task, NULL);
		}
		struct store_retry o = retry(at.task, 1);
		assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
		assert_int_equal(o.ret_due_in_ns > 0, !reported);
		assert_true(o.ret_due_in_ns <= 10000 * MS);
		store_op_done_fields(&o.op);
		assert_int_equal(try_claim(&in.task, "w-excl", s), reported);
	}
}

/* ---- what is kept of an attempt ---- */

static void start(struct core_attempt at, const char *worker, const char *devices)
{
	struct store_started o = {.at = at, .worker = worker, .started_wall_us = INT64_C(1700000000000000), .devices = devices};
	run(&o.op, STORE_STARTED);
}

static void check_place(const struct store_attempt_row *a, int64_t s, const char *devices, const char *cause)
{
	assert_true(a->has_instance);
	assert_int_equal(a->instance[0], 1);
	assert_int_equal(a->session, s);
	assert_true(a->lease_ns == 10000 * MS);
	if (devices)
		assert_string_equal(a->devices, devices);
	else
		assert_null(a->devices);
	if (cause)
		assert_string_equal(a->cause, cause);
	else
		assert_null(a->cause);
}

void attempt_fields(void **state)
{
	struct core_task t;
	int64_t s = session("w-field");
	struct core_attempt at = running(&t, "w-field", s);
	start(at, "w-field", "GPU-1 GPU-2");
	struct store_get g = get(t.id);
	check_place(&g.ret_task.attempts[0], s, "GPU-1 GPU-2", NULL);
	store_op_done_fields(&g.op);
	struct store_take_back tb = {.at = at, .session = s, .cause = CORE_CAUSE_REFUSED, .words = "refused by the worker: full"};
	run(&tb.op, STORE_TAKE_BACK);
	store_op_done_fields(&tb.op);
	/* What an outcome says of the devices goes first. */
	at.attempt = claim(&t, "w-field", s);
	struct store_record back = {.at = at, .worker = "w-field", .outcome = STORE_STOPPED, .words = "drained by worker", .devices = "7"};
	run(&back.op, STORE_RECORD);
	store_op_done_fields(&back.op);
	/* Taken back, and ended well after all. */
	at.attempt = claim(&t, "w-field", s);
	start(at, "w-field", "3");
	tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	g = get(t.id);
	assert_int_equal(g.ret_task.n_attempts, 3);
	assert_true(g.ret_task.attempts[2].open);
	check_place(&g.ret_task.attempts[0], s, "GPU-1 GPU-2", "refused by the worker: full");
	check_place(&g.ret_task.attempts[1], s, "7", "drained by worker");
	check_place(&g.ret_task.attempts[2], s, "3", NULL);
	store_op_done_fields(&g.op);
	struct store_record end = {.at = at, .worker = "w-field", .outcome = STORE_SUCCEEDED, .oom_killed = true};
	run(&end.op, STORE_RECORD);
	store_op_done_fields(&end.op);
	g = get(t.id);
	check_place(&g.ret_task.attempts[2], s, "3", NULL);
	assert_false(g.ret_task.attempts[1].oom_killed);
	assert_true(g.ret_task.attempts[2].oom_killed);
	store_op_done_fields(&g.op);
}

void fields_after_adoption(void **state)
{
	struct core_task t, left;
	int64_t s = session("w-adopt2");
	struct core_attempt at = running(&t, "w-adopt2", s);
	running(&left, "w-adopt2", s);
	start(at, "w-adopt2", "5");
	struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
	store_op_done_fields(&tb.op);
	struct store_session_open so = session_open("w-adopt2", 1, &at, 1);
	assert_int_equal(so.ret_n_adopted, 1);
	store_op_done_fields(&so.op);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.losses, 0);
	check_place(&g.ret_task.attempts[0], so.ret_session, "5", NULL);
	store_op_done_fields(&g.op);
	g = get(left.id);
	check_place(&g.ret_task.attempts[0], s, NULL, STORE_WORDS_NOT_LISTED);
	store_op_done_fields(&g.op);
}

/* The first wish's words are kept, and go before what the worker says. */
void cancel_keeps_the_reason(void **state)
{
	int64_t s = session("w-why");
	for (int way = 0; way < 3; way++) {
		struct core_task t;
		struct core_attempt at = running(&t, "w-why", s);
		cancel(t.id, "cancelled: too slow");
		cancel(t.id, "cancelled: again");
		if (way == 0) {
			struct store_record o = {.at = at, .worker = "w-why", .outcome = STORE_STOPPED, .words = "cancelled"};
			run(&o.op, STORE_RECORD);
			store_op_done_fields(&o.op);
		} else if (way == 1) {
			struct store_take_back tb = take_back(at, s, CORE_CAUSE_WORKER_LOST, true);
			store_op_done_fields(&tb.op);
		} else {
			struct store_session_open so = session_open("w-why", 2, NULL, 0);
			store_op_done_fields(&so.op);
		}
		struct store_get g = get(t.id);
		assert_int_equal(g.ret_task.state, STORE_CANCELLED);
		assert_string_equal(g.ret_task.cause, "cancelled: too slow");
		check_place(&g.ret_task.attempts[0], s, NULL, "cancelled: too slow");
		store_op_done_fields(&g.op);
	}
	struct core_task t = insert(new_queue());
	cancel(t.id, "cancelled: not needed");
	struct store_get g = get(t.id);
	assert_string_equal(g.ret_task.cause, "cancelled: not needed");
	assert_int_equal(g.ret_task.n_attempts, 0);
	store_op_done_fields(&g.op);
}

void list_with_attempts(void **state)
{
	const char *queue = new_queue();
	int64_t s = session("w-full");
	static char big[16 * 1024];
	memset(big, 'x', sizeof(big));
	struct uuid ids[3];
	for (int i = 0; i < 3; i++) {
		struct store_insert in = insert_of(queue);
		in.task.max_attempts = 3;
		run(&in.op, STORE_INSERT);
		in.task.seq = in.ret_seq;
		ids[i] = in.task.id;
		for (int n = 0; n < i + 1; n++) {
			struct store_record o = {.at = {in.task.id, claim(&in.task, "w-full", s)}, .worker = "w-full",
						 .outcome = STORE_PROGRAM_FAILED, .error = {(const uint8_t *)big, sizeof(big)}};
			run(&o.op, STORE_RECORD);
			store_op_done_fields(&o.op);
		}
	}
	struct store_list l = {.queue = queue, .limit = 10, .full = true, .max_bytes = 1 << 20};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 3);
	for (size_t i = 0; i < 3; i++) {
		const struct store_task *t = &l.ret_tasks[i];
		assert_true(uuid_eq(&t->core.id, &ids[2 - i]));
		assert_int_equal(t->n_attempts, 3 - i);
		for (size_t n = 0; n < t->n_attempts; n++) {
			assert_int_equal(t->attempts[n].attempt, n + 1);
			assert_int_equal(t->attempts[n].error.len, sizeof(big));
			check_place(&t->attempts[n], s, NULL, NULL);
		}
	}
	store_op_done_fields(&l.op);
	/* Their bytes count. */
	l = (struct store_list){.queue = queue, .limit = 10, .full = true, .max_bytes = 40 * 1024};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 1);
	assert_true(l.ret_more);
	store_op_done_fields(&l.op);
	l = (struct store_list){.queue = queue, .limit = 10, .max_bytes = 40 * 1024};
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 3);
	assert_int_equal(l.ret_tasks[0].n_attempts, 0);
	store_op_done_fields(&l.op);
}
