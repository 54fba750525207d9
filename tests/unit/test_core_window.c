/* The window of ready tasks and the reading of the backlog: as test_core.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"
#include "server/core/core_view.h"

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

static void test_backlog_is_read_on(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.fill = 4;
	script_start(&S, &cfg);
	S.show = SHOW_FILL;
	GO({ "wait 2", "queues; due" }, { "due", "" }, { "queues a", "fill a start 4" },
	   { "filled a t1,t2,t3,t4", "" }, { "hello p1 w1 slots=2", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t1/1 w1#1; preempt t2/1 w1#1; fill a after 0/4 4" },
	   { "filled a t5,t6 end", "" }, { "ready t7", "" }, { "preempted t1 ok", "claim t1/1 w1#1" });
	struct core_counts n;
	core_counts(S.core, &n);
	assert_int_equal(n.ready, 5);
}

static void test_rows_beyond_the_cursor_are_left_for_later(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.fill = 2;
	script_start(&S, &cfg);
	S.show = SHOW_FILL;
	GO({ "wait 2", "queues; due" }, { "due", "" }, { "queues a", "fill a start 2" }, { "filled a t1,t2", "" },
	   { "task t9 prio=5", "" }, { "ready t5,t9", "" });
	struct core_counts n;
	core_counts(S.core, &n);
	assert_int_equal(n.ready, 3); /* t9 sorts before the cursor, t5 does not */
	GO({ "hello p1 w1 slots=2", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t9/1 w1#1; preempt t1/1 w1#1; fill a after 0/2 2" },
	   /* t6 came while the answer was on its way: the end is not believed */
	   { "ready t6", "" }, { "filled a t5 end", "" },
	   { "preempted t9 ok; preempted t1 ok", "claim t9/1 w1#1; claim t1/1 w1#1" },
	   { "claimed t9/1 lost", "preempt t2/1 w1#1; fill a after 0/5 2" });
}

static void test_a_fill_that_no_longer_joins_is_dropped(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.window = 6; /* a queue alone may hold three */
	script_start(&S, &cfg);
	S.show = SHOW_FILL;
	GO({ "ready t10,t11,t12,t13", "" }, { "hello p1 w1 slots=2", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t10/1 w1#1; preempt t11/1 w1#1; fill a after 0/12 2" },
	   { "ready t1,t2,t3", "" }, /* t12 goes out of the window: the answer begins behind it */
	   { "filled a t13 end", "" }, { "preempted t10 ok; preempted t11 ok", "claim t10/1 w1#1; claim t11/1 w1#1" },
	   { "claimed t10/1 lost; claimed t11/1 lost",
	     "preempt t1/1 w1#1; preempt t2/1 w1#1; fill a after 0/11 2" });
}

static void test_a_flooding_queue_leaves_room(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.window = 8;
	script_start(&S, &cfg);
	GO({ "task t9 q=b", "" }, { "ready t1,t2,t3,t4,t5,t6,t7,t8", "" }, { "ready t9", "" },
	   { "hello p1 w1 slots=3", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t1/1 w1#1; preempt t9/1 w1#1; preempt t2/1 w1#1" });
}

static void test_eviction_sets_the_cursor_back(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.window = 6; /* a queue alone may hold three */
	script_start(&S, &cfg);
	S.show = SHOW_FILL;
	GO({ "ready t2,t3,t4,t1", "" }, { "hello p1 w1 slots=2", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t1/1 w1#1; preempt t2/1 w1#1; fill a after 0/3 2" },
	   { "filled a t4 end", "" }, { "outcome p1 t1/1 tok=1 ok", "record t1/1 tok=1" });
}

static void test_reconciler_finds_what_nobody_told(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_FILL;
	GO(WORKER, { "ready t5", "preempt t5/1 w1#1" }, { "wait 2", "queues; due" }, { "due", "" },
	   { "queues a", "fill a start 500" }, { "filled a t3,t5 end", "preempt t3/1 w1#1" });
}

/* Another master has ended t1 and t2, which nobody here can run: they must not keep t3 out for ever. */
static void test_rows_that_the_store_lacks_leave_the_window(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.window = 4; /* a queue alone may hold two */
	script_start(&S, &cfg);
	S.show = SHOW_FILL;
	GO({ "task t1 gpus=1", "" }, { "task t2 gpus=1", "" }, { "ready t1,t2,t3", "" }, WORKER, { "wait 2", "queues; due" },
	   { "due", "" }, { "queues a", "fill a start 500" }, { "filled a t3 end", "fill a after 0/2 4" },
	   { "filled a t3 end", "preempt t3/1 w1#1" });
}

/* And where the store has none of the queue at all. */
static void test_rows_of_a_queue_that_the_store_lacks(void **state)
{
	struct core_counts n;
	script_start(&S, NULL);
	S.show = SHOW_FILL;
	GO({ "ready t1", "" }, { "wait 2", "queues; due" }, { "due", "" }, { "queues", "fill a start 500" }, { "ready t2", "" });
	core_counts(S.core, &n);
	assert_int_equal(n.ready, 2);
	GO({ "filled a end", "" });
	core_counts(S.core, &n);
	assert_int_equal(n.ready, 1); /* t2 came while the answer was away */
}

static void test_late_fill_answer_of_claimed_rows(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 won", "send t1/1 p1 n1" },
	   { "ready t1", "" } /* read before our claim */, { "ready t1/1", "preempt t1/2 w1#1" } /* after it ended */);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN(test_backlog_is_read_on),
		RUN(test_rows_beyond_the_cursor_are_left_for_later),
		RUN(test_a_fill_that_no_longer_joins_is_dropped),
		RUN(test_a_flooding_queue_leaves_room),
		RUN(test_eviction_sets_the_cursor_back),
		RUN(test_reconciler_finds_what_nobody_told),
		RUN(test_rows_that_the_store_lacks_leave_the_window),
		RUN(test_rows_of_a_queue_that_the_store_lacks),
		RUN(test_late_fill_answer_of_claimed_rows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
