/* Paused queues: as test_core.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/core/core_view.h"
#include "tests/unit/core_script.h"

#include <stdio.h>
#include <string.h>

static struct script S;

#define GO(...) SCRIPT_GO(&S, __VA_ARGS__)

static int teardown(void **state)
{
	script_done(&S);
	return 0;
}

#define WORKER { "hello p1 w1 slots=3", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }
#define TO_B { "task t1 q=b", "" }, { "task t2 q=b", "" }

static void nothing_of_it_is_given_out(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "pause b", "paused b" }, { "submit t1", "insert t1" }, { "inserted t1 created", "" }, { "ready t2", "" },
	   { "ready t3", "preempt t3/1 w1#1" }, { "pause b off", "preempt t1/1 w1#1; preempt t2/1 w1#1; paused b" });
}

/* What is being claimed is sent first. */
static void answers_when_nothing_is_on_its_way(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "ready t1,t2", "preempt t1/1 w1#1; preempt t2/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "pause b", "" }, { "claimed t1/1 won", "send t1/1 p1 n1" }, { "preempted t2 ok", "claim t2/1 w1#1" },
	   { "claimed t2/1 lost", "paused b" });
}

static void an_eager_insert_is_waited_for(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "submit t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "insert t1 @w1#1" }, { "pause b", "" },
	   { "inserted t1 created", "send t1/1 p1 n1; paused b" });
}

static void what_runs_goes_on(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "submit t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "insert t1 @w1#1" },
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "pause b", "paused b" }, { "accepted p1 t1/1", "" },
	   { "outcome p1 t1/1 tok=1 fail", "record t1/1 tok=1" },
	   { "recorded p1 t1/1 tok=1 recorded again", "ack t1/1 p1 recorded" }, { "pause b off", "preempt t1/2 w1#1; paused b" });
}

static void other_masters_pauses(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "wait 2", "" }, { "queues b paused=b,c", "" }, { "ready t1", "" }, { "wait 2", "" },
	   { "queues b paused=c", "preempt t1/1 w1#1" });
}

/* A question that was asked before says nothing of what this master was told since. */
static void an_old_answer_changes_nothing(void **state)
{
	script_start(&S, NULL);
	GO(TO_B, WORKER, { "wait 2", "" }, { "pause b", "paused b" }, { "queues b", "" }, { "ready t1", "" },
	   { "wait 2", "" }, { "pause b off", "preempt t1/1 w1#1; paused b" }, { "preempted t1 full", "" }, { "queues b paused=b", "" },
	   { "wait 2", "preempt t1/1 w1#1" });
}

/* A new process knows of no pause before the first answer. */
static void nothing_before_the_first_answer(void **state)
{
	script_init(&S, NULL);
	S.show = SHOW_FILL;
	GO({ "task t1 q=b", "queues; due" }, { "hello p1 w1 slots=3", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "submit t1", "insert t1" }, { "inserted t1 created", "fill b start 500" }, { "filled b t1 end", "" },
	   { "queues b paused=b", "fill b start 500" }, { "pause b off", "preempt t1/1 w1#1; paused b" });
}

static void says_why(void **state)
{
	char text[100];
	uint64_t peer;
	script_start(&S, NULL);
	GO(TO_B, { "ready t1", "" }, { "pause b why=disks", "paused b" });
	core_why_pending(S.core, script_task(&S, 1), true, &peer, text, sizeof(text));
	assert_string_equal(text, "queue paused: disks");
	GO({ "pause b", "paused b" });
	core_why_pending(S.core, script_task(&S, 1), true, &peer, text, sizeof(text));
	assert_string_equal(text, "queue paused");
	GO({ "store down", "" });
	core_why_pending(S.core, script_task(&S, 1), true, &peer, text, sizeof(text));
	assert_string_equal(text, "the store is away");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nothing_of_it_is_given_out), TEST(answers_when_nothing_is_on_its_way), TEST(an_eager_insert_is_waited_for),
		TEST(what_runs_goes_on), TEST(other_masters_pauses), TEST(an_old_answer_changes_nothing),
		TEST(nothing_before_the_first_answer), TEST(says_why),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
