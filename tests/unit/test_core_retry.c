/* What the core makes of an attempt that ended badly: when it is given out again, and what is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"

#include <stdio.h>
#include <string.h>

static struct script S;

#define GO(...) SCRIPT_GO(&S, __VA_ARGS__)

#define RUN(test) cmocka_unit_test_teardown(test, teardown)
static int teardown(void **state)
{
	script_done(&S);
	return 0;
}

/* w1 with two slots, session 1, stream p1 */
#define WORKER \
	{ "hello p1 w1 slots=2", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }
#define RUNNING(t) \
	{ "submit " t, "preempt " t "/1 w1#1" }, { "preempted " t " ok", "insert " t " @w1#1" }

static const struct core_effect *effect_of(enum core_effect_type type)
{
	for (size_t i = 0; i < S.out.n; i++)
		if (S.out.at[i].type == type)
			return &S.out.at[i];
	fail();
	return NULL;
}

/* The program could not be started for the worker's own reasons: also after it was accepted, and said again when the
 * store was away. */
static void test_refused_after_accepted(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "refused p1 t1/1 text=disk-full", "back t1/1 #1 refused" });
	assert_string_equal(effect_of(CORE_DO_TAKE_BACK)->text, "disk-full");
	GO({ "taken t1/1 #1 away", "" }, { "store down", "" }, { "store up", "back t1/1 #1 refused" });
	assert_string_equal(effect_of(CORE_DO_TAKE_BACK)->text, "disk-full");
	assert_false(effect_of(CORE_DO_TAKE_BACK)->counted);
}

/* Not the program's doing: no delay, whatever the policy says. */
static void test_given_back_at_once(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "task t1 failures=2 backoff=10 by=3 backoff_max=1000", "" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "outcome p1 t1/1 tok=7 back", "record t1/1 tok=7" });
	assert_int_equal(effect_of(CORE_DO_RECORD)->retry_in_ns, 0);
	GO({ "recorded p1 t1/1 tok=7 recorded again", "ack t1/1 p1 recorded; preempt t1/2 w1#1" });
}

/* Of a stream that was given up the row may be its worker's still: the policy holds there too. */
static void test_delay_of_an_outcome_from_a_closed_stream(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "task t1 failures=0 backoff=10 by=3 backoff_max=1000", "" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" });
	assert_true(effect_of(CORE_DO_RECORD)->retry_in_ns >= 10 * NS_PER_S);
}

static void test_retry_after_the_policys_delay(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_FILL;
	GO(WORKER, { "task t1 failures=2 backoff=10 by=3 backoff_max=1000", "" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" });
	int64_t delay = S.out.at[S.out.n - 1].retry_in_ns;
	for (size_t i = 0; i < S.out.n; i++)
		if (S.out.at[i].type == CORE_DO_RECORD)
			delay = S.out.at[i].retry_in_ns;
	assert_true(delay >= 90 * NS_PER_S && delay < 99 * NS_PER_S + NS_PER_S / 10);
	GO({ "recorded p1 t1/1 tok=7 recorded again in=1", "ack t1/1 p1 recorded" }, { "wait 1", "due" },
	   { "due t1/1", "preempt t1/2 w1#1" });
}

static void test_retry_delay_is_capped(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "task t1 failures=60 backoff=10 by=3 backoff_max=30", "" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" });
	for (size_t i = 0; i < S.out.n; i++)
		if (S.out.at[i].type == CORE_DO_RECORD)
			assert_true(S.out.at[i].retry_in_ns >= 30 * NS_PER_S && S.out.at[i].retry_in_ns <= 33 * NS_PER_S);
}

/* By the store's word, which may be longer than what was asked for. */
static void test_due_as_the_store_says(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_FILL;
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" },
	   { "recorded p1 t1/1 tok=7 recorded again in=1", "ack t1/1 p1 recorded" }, { "wait 1", "due" },
	   { "due t1/1", "preempt t1/2 w1#1" });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN(test_refused_after_accepted),
		RUN(test_given_back_at_once),
		RUN(test_delay_of_an_outcome_from_a_closed_stream),
		RUN(test_retry_after_the_policys_delay),
		RUN(test_retry_delay_is_capped),
		RUN(test_due_as_the_store_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
