/* Drains, by the worker's word and by an operator's, and who is gone: as test_core.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"
#include "server/core/core_view.h"

#include <stdio.h>
#include <string.h>

static struct script S;

#define GO(...) SCRIPT_GO(&S, __VA_ARGS__)

static int teardown(void **state)
{
	script_done(&S);
	return 0;
}

#define WORKER \
	{ "hello p1 w1 slots=3 enforce", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }
#define RUNNING(t, n)                                                                           \
	{ "submit " t, "preempt " t "/1 w1#1" }, { "preempted " t " ok", "insert " t " @w1#1" }, \
		{ "inserted " t " created", "send " t "/1 p1 n" n }, { "accepted p1 " t "/1", "" }

static void wish_keeps_new_work_away(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1", "1"), { "wish w1", "" }, { "submit t2", "insert t2" }, { "inserted t2 created", "" },
	   { "outcome p1 t1/1 tok=1 ok", "record t1/1 tok=1" }, { "wish w1", "" },
	   { "wish w1 off", "preempt t2/1 w1#1" });
}

/* What was on its way to it goes back, as of one that says so itself. */
static void wish_meets_a_claim(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1,t2", "preempt t1/1 w1#1; preempt t2/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "wish w1", "" }, { "claimed t1/1 won", "back t1/1 #1 unsent" }, { "preempted t2 ok", "" });
}

static void wish_comes_with_the_session(void **state)
{
	script_start(&S, NULL);
	GO({ "ready t1", "" }, { "hello p1 w1 slots=3", "open w1 p1" }, { "opened p1 w1 #1 drained", "welcome p1 w1#1" },
	   { "hb p1 n=1", "hback p1 n=1" }, { "bye p1", "" }, { "hello p2 w1 slots=3", "open w1 p2" },
	   { "opened p2 w1 #2", "welcome p2 w1#2; preempt t1/1 w1#2" });
}

/* The two are told apart: neither ends the other. */
static void wish_and_own_word(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "draining p1", "" }, { "wish w1", "" }, { "ready t1", "" }, { "draining p1 off", "" },
	   { "draining p1", "" }, { "wish w1 off", "" }, { "draining p1 off", "preempt t1/1 w1#1" });
}

static void wish_for_nobody(void **state)
{
	script_start(&S, NULL);
	GO({ "wish w9", "" }, WORKER, { "submit t1", "preempt t1/1 w1#1" });
}

static void detach_lengthens_leases(void **state)
{
	script_start(&S, NULL);
	GO({ "task t2 excl", "" }, { "task t3 lease=30", "" }, WORKER, RUNNING("t1", "1"), RUNNING("t2", "2"), RUNNING("t3", "3"),
	   { "wait 3; hb p1 n=1 seen=3 held=t1/1,t2/1,t3/1", "hback p1 n=1" }, { "wait 1; draining p1 detach=20", "" }, { "bye p1", "" },
	   /* 10 s from the heartbeat for the exclusive one, 30 s for that with a longer lease of its own */
	   { "wait 8.9", "" }, { "wait 0.1", "back t2/1 #1 lost counted" }, { "taken t2/1 #1 fenced", "" }, { "wait 10.9", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted" }, { "taken t1/1 #1 fenced", "" }, { "wait 8.9", "" },
	   { "wait 0.1", "back t3/1 #1 lost counted" });
}

static void detach_ends_with_the_next_session(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1", "1"), { "draining p1 detach=600", "" }, { "bye p1", "" }, { "wait 100", "" },
	   { "hello p2 w1 slots=3 held=t1/1", "open w1 p2 held=t1/1" }, { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" },
	   { "bye p2", "" }, { "wait 9.9", "" }, { "wait 0.1", "back t1/1 #2 lost counted" });
}

static void detach_is_taken_back(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1", "1"), { "draining p1 detach=600", "" }, { "draining p1 off", "" }, { "bye p1", "" },
	   { "wait 9.9", "" }, { "wait 0.1", "back t1/1 #1 lost counted" });
}

/* Its tasks end with its process. */
static void detach_of_an_in_process_worker_is_nothing(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=3 inproc", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1", "1"),
	   { "draining p1 detach=600", "" }, { "bye p1", "" }, { "wait 1", "back t1/1 #1 lost counted" });
}

static void detach_counts_no_time_of_a_stall_or_an_outage(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1", "1"), { "draining p1 detach=30", "" }, { "bye p1", "" }, { "wait 57; stalled 40", "" },
	   { "wait 2; store down", "" }, { "wait 30", "" }, { "store up", "" }, { "wait 10.9", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted" });
}

/* By the master that holds it, for one that comes after it; and by that one. */
static void detach_is_stored(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_GONE;
	GO(WORKER, RUNNING("t1", "1"), { "draining p1", "" }, { "draining p1 detach=600", "detached w1#1 600" },
	   { "draining p1 off", "detached w1#1 0" }, { "draining p1 off", "" });
}

static void detach_is_stored_when_the_store_is_back(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_GONE;
	GO(WORKER, RUNNING("t1", "1"), { "store down", "" }, { "draining p1 detach=600", "detached w1#1 600" }, { "bye p1", "" },
	   { "wait 5; store up", "detached w1#1 600" });
}

static void detached_strays_are_left_alone(void **state)
{
	script_start(&S, NULL);
	GO({ "task t2 excl", "" }, { "strays w1#3:t1/1 w1#3:t2/1 detached=60", "" }, { "wait 5", "" },
	   { "strays w1#3:t1/1 w1#3:t2/1 detached=55", "" }, { "wait 5", "" },
	   { "strays w1#3:t1/1 w1#3:t2/1 detached=50", "hb? w1#3" }, { "hb-of w1#3 silent", "" },
	   { "strays w1#3:t1/1 w1#3:t2/1 detached=50", "back t2/1 #3 lost counted" }, { "wait 5", "" },
	   { "strays w1#3:t1/1", "back t1/1 #3 lost counted" });
}

/* Not the program's fault: no delay. */
static void given_back_waits_for_nothing(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 backoff=50", "" }, { "task t2 backoff=50", "" }, WORKER, RUNNING("t1", "1"), RUNNING("t2", "2"));
	script_run(&S, "outcome p1 t1/1 tok=1 back; outcome p1 t2/1 tok=2");
	assert_int_equal(S.out.n, 4);
	for (size_t i = 0; i < S.out.n; i++)
		if (S.out.at[i].type == CORE_DO_RECORD)
			assert_true((S.out.at[i].retry_in_ns == 0) == (S.out.at[i].token == 1));
}

static void gone_is_told_once(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_GONE;
	GO(WORKER, RUNNING("t1", "1"), { "bye p1", "" }, { "wait 10", "back t1/1 #1 lost counted" },
	   { "taken t1/1 #1 pending", "gone w1#1 10" }, { "wait 60", "" },
	   { "hello p2 w1 slots=3", "open w1 p2" }, { "opened p2 w1 away", "close p2 away" }, { "wait 60", "" });
}

static void view_of_a_worker(void **state)
{
	struct core_worker_view v;
	struct core_attempt held[2];
	script_start(&S, NULL);
	GO({ "task t1 gpus=2 mem=5", "" }, { "hello p1 w1 slots=3 gpus=2 mem=9", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1", "1"), RUNNING("t2", "2"), { "wish w1", "" }, { "wait 4", "" });
	assert_false(core_worker(S.core, "w2", &v));
	assert_true(core_worker(S.core, "w1", &v));
	assert_true(v.peer == 1 && v.session == 1 && v.capacity.slots == 3 && v.used == 2 && v.n_held == 2);
	assert_true(v.used_need.gpus == 2 && v.used_need.memory_bytes == 5 && v.drain_wish && !v.draining && !v.unanswered);
	assert_true(v.heard_mono_ns == S.now - 4 * NS_PER_S && v.lease_end_mono_ns == S.now + 6 * NS_PER_S);
	assert_int_equal(core_worker_held(S.core, "w1", held, 1), 1);
	assert_int_equal(core_worker_held(S.core, "w1", held, 2), 2);
	assert_int_equal(core_worker_held(S.core, "w2", held, 2), 0);
}

#define RUN(test) cmocka_unit_test_teardown(test, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN(wish_keeps_new_work_away),
		RUN(wish_meets_a_claim),
		RUN(wish_comes_with_the_session),
		RUN(wish_and_own_word),
		RUN(wish_for_nobody),
		RUN(detach_lengthens_leases),
		RUN(detach_ends_with_the_next_session),
		RUN(detach_is_taken_back),
		RUN(detach_of_an_in_process_worker_is_nothing),
		RUN(detach_counts_no_time_of_a_stall_or_an_outage),
		RUN(detach_is_stored),
		RUN(detach_is_stored_when_the_store_is_back),
		RUN(detached_strays_are_left_alone),
		RUN(given_back_waits_for_nothing),
		RUN(gone_is_told_once),
		RUN(view_of_a_worker),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
