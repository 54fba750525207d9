/* Who is given what: handlers, commands, counted resources, memory; parking and waking by them; expiry; and the words for
 * why a task waits. */
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

static int done(void **state)
{
	script_done(&S);
	return 0;
}

static void start(void)
{
	script_start(&S, NULL);
	script_run(&S, "expired");
}

#define GO(...) SCRIPT_GO(&S, __VA_ARGS__)

static void test_handler_waits_for_its_worker(void **state)
{
	start();
	GO({ "task t1 handler=x", "" }, { "hello p1 w1 slots=2", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "submit t1", "insert t1" }, { "inserted t1 created", "" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "hello p2 w2 handlers=y,x,y nocmd", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/1 w2#1" });
}

static void test_handler_eager(void **state)
{
	start();
	GO({ "task t1 handler=x", "" }, { "hello p1 w1 slots=1 handlers=x nocmd", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, { "submit t1", "preempt t1/1 w1#1" });
}

static void test_commands_only_where_they_run(void **state)
{
	start();
	GO({ "hello p1 w1 slots=1 handlers=x nocmd", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1", "" }, { "hello p2 w2", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/1 w2#1" });
}

/* A worker that comes again with other handlers is in another pool; what it runs keeps its slot. */
static void test_handlers_change(void **state)
{
	start();
	GO({ "task t1 handler=x", "" }, { "task t2 handler=x", "" }, { "task t3 handler=y", "" },
	   { "hello p1 w1 slots=2 handlers=x", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1/1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 won", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "ready t3", "" },
	   { "hello p2 w1 slots=2 handlers=y held=t1/1", "open w1 p2 held=t1/1" },
	   { "opened p2 w1 #2 adopt=t1/1", "close p1 replaced; welcome p2 w1#2; preempt t3/1 w1#2" }, { "ready t2", "" });
}

static void test_custom_is_counted(void **state)
{
	start();
	GO({ "task t1 custom=fpga:1,lic:2", "" }, { "task t2 custom=lic:2", "" }, { "task t3 custom=lic:1", "" },
	   { "task t4 custom=gone:1", "" }, { "hello p1 w1 slots=9 custom=lic:3,fpga:1", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, { "ready t1", "preempt t1/1 w1#1" }, { "ready t2", "" },
	   { "ready t3,t4", "preempt t3/1 w1#1" }, { "preempted t1/1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 lost", "preempt t2/1 w1#1" });
}

/* What is adopted is counted in what the new session has, and its end gives it back. */
static void test_custom_of_adopted(void **state)
{
	start();
	GO({ "task t1 custom=lic:2", "" }, { "task t2 custom=lic:2", "" },
	   { "hello p1 w1 slots=9 custom=lic:3 held=t1/1", "open w1 p1 held=t1/1" },
	   { "opened p1 w1 #1 adopt=t1/1", "welcome p1 w1#1" }, { "ready t2", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7; preempt t2/1 w1#1" });
}

/* Sums of the largest counts must not come round. */
static void test_largest_counts(void **state)
{
	start();
	char line[200] = "hello p1 w1 slots=9 custom=lic:4611686018427387904 held=t1/1,t2/1,t3/1";
	for (int i = 1; i <= 4; i++) {
		char task[80];
		snprintf(task, sizeof(task), "task t%d custom=lic:4611686018427387904", i);
		script_run(&S, task);
	}
	script_run(&S, line);
	GO({ "opened p1 w1 #1 adopt=t1/1,t2/1,t3/1", "welcome p1 w1#1" }, { "ready t4", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" }, { "outcome p1 t2/1 tok=8 ok", "record t2/1 tok=8" },
	   { "outcome p1 t3/1 tok=9 ok", "record t3/1 tok=9; preempt t4/1 w1#1" });
}

/* A worker that says nothing of memory holds nobody to a limit. */
static void test_memory_only_where_it_is_enforced(void **state)
{
	start();
	GO({ "task t1 mem=1000", "" }, { "task t2 cpu=1000", "" }, { "hello p1 w1 slots=9", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, { "submit t1", "insert t1" }, { "inserted t1 created", "" },
	   { "ready t2", "preempt t2/1 w1#1" }, { "hello p2 w2 mem=999", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1" },
	   { "hello p3 w3 mem=1000", "open w3 p3" }, { "opened p3 w3 #1", "welcome p3 w3#1; preempt t1/1 w3#1" });
}

/* Tasks that nobody fits hold up no others, of their queue or another, however many kinds of them there are. */
static void test_many_kinds(void **state)
{
	char line[80];
	start();
	for (int i = 1; i <= 2000; i++) {
		snprintf(line, sizeof(line), "task t%d q=%s handler=h%d custom=c%d:%d", i, i % 2 ? "a" : "b", i % 700, i, i);
		script_run(&S, line);
		snprintf(line, sizeof(line), "ready t%d", i);
		assert_string_equal(script_run(&S, line), "");
	}
	GO({ "task t3001 q=a", "" }, { "task t3002 q=b prio=-5", "" }, { "hello p1 w1 slots=3 handlers=h5 custom=c5:5", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t5/1 w1#1" },
	   { "ready t3001,t3002", "preempt t3001/1 w1#1; preempt t3002/1 w1#1" });
	for (int i = 1; i <= 2000; i++) {
		snprintf(line, sizeof(line), "gone t%d", i);
		script_run(&S, line);
	}
	script_run(&S, "wait 0");
}

static void test_too_many_names(void **state)
{
	struct core_event ev = { .type = CORE_EV_HELLO, .peer = 1 };
	start();
	ev.hello.worker = "w1";
	ev.hello.capacity.slots = 1;
	ev.hello.capacity.custom = "a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1";
	core_step(S.core, S.now, &ev, 1, &S.out);
	assert_int_equal(S.out.n, 1);
	assert_int_equal(S.out.at[0].type, CORE_DO_CLOSE_PEER);
	assert_int_equal(S.out.at[0].close, CORE_CLOSE_LIMIT);
	core_check(S.core);
}

/* ---- expiry ---- */

static void test_expire_is_asked_in_time(void **state)
{
	start();
	S.show = SHOW_EXPIRE;
	GO({ "submit t1", "insert t1" }, { "inserted t1 created exp=1.5", "" }, { "ready t2,t3 exp=0.5", "" }, { "wait 0.4", "" },
	   { "wait 0.1", "expire" }, { "expired t2 next=0.2", "" }, { "wait 0.1", "" }, { "wait 0.1", "expire" },
	   { "inserted t4 created exp=0.3", "" }, { "expired next=5", "" }, { "wait 0.2", "" }, { "wait 0.1", "expire" },
	   { "expired away", "" }, { "wait 0.5", "" }, { "wait 0.6", "expire" });
}

static void test_expired_is_not_given_out(void **state)
{
	start();
	GO({ "ready t1,t2,t3", "" }, { "expired t1,t3,t9", "" }, { "hello p1 w1 slots=9", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t2/1 w1#1" }, { "expired t2", "" }, { "preempted t2/1 ok", "" });
}

/* ---- words ---- */

static void why(const char *task, const char *want)
{
	char text[512];
	uint64_t peer;
	struct core_task *t;
	script_run(&S, task);
	t = script_task(&S, (int)strtol(strchr(task, 't') + 1 + (strncmp(task, "task", 4) == 0 ? 5 : 0), NULL, 10));
	core_why_pending(S.core, t, true, &peer, text, sizeof(text));
	assert_string_equal(text, want);
	assert_int_equal(peer != 0, strstr(want, "draining") != NULL);
}

static void test_why(void **state)
{
	start();
	why("task t1", "no worker is connected");
	script_run(&S, "hello p1 w1 q=a slots=2 gpus=1 cpu=4000 handlers=x nocmd custom=lic:1");
	script_run(&S, "opened p1 w1 #1");
	why("task t2 q=b", "no connected worker takes queue \"b\"");
	why("task t3", "no connected worker runs commands");
	why("task t4 handler=y", "no connected worker has handler \"y\"");
	why("task t5 handler=x", "");
	why("task t6 handler=x excl", "exclusive: no connected worker that could run it enforces leases");
	why("task t7 handler=x gpus=2", "needs gpus=2; the largest connected worker has 1");
	why("task t8 handler=x cpu=4001", "needs cpus=4.001; the largest connected worker has 4");
	why("task t9 handler=x mem=5", "needs memory=5B; no connected worker enforces memory limits");
	why("task t10 handler=x custom=fpga:1,lic:3", "needs fpga=1; the largest connected worker has 0");
	why("task t11 handler=x custom=lic:3", "needs lic=3; the largest connected worker has 1");
	script_run(&S, "hello p2 w2 q=b mem=4 custom=fpga:1");
	script_run(&S, "opened p2 w2 #1");
	why("task t12 q=b handler=x", "no connected worker that takes queue \"b\" has handler \"x\"");
	why("task t3", "no connected worker that takes queue \"a\" runs commands");
	why("task t13 q=b mem=5", "needs memory=5B; the largest connected worker has 4B");
	script_run(&S, "hello p3 w3 q=b custom=lic:1");
	script_run(&S, "opened p3 w3 #1");
	why("task t14 q=b custom=fpga:1,lic:1", "no single connected worker has all that it needs");
}

static void test_why_busy(void **state)
{
	start();
	script_run(&S, "hello p1 w1 q=a slots=2 gpus=1");
	script_run(&S, "opened p1 w1 #1");
	script_run(&S, "task t1 gpus=1");
	script_run(&S, "ready t1");
	script_run(&S, "task t2 gpus=1");
	script_run(&S, "ready t2");
	why("task t2", "all fitting workers are busy (1 connected, 1 free slots)");
	script_run(&S, "ready t3");
	script_run(&S, "ready t4");
	why("task t4", "all fitting workers are busy (1 connected, 0 free slots); 1 tasks of its queue are ahead");
	script_run(&S, "draining p1");
	why("task t4", "every worker that fits is draining or has paused (1 connected)");
	script_run(&S, "store down");
	why("task t4", "the store is away");
}

static void check_timings(int64_t n, int64_t ready_ns, int64_t chosen_ns)
{
	const struct core_timings *t = core_timings(S.core);
	assert_int_equal(t->ready.total, n);
	assert_int_equal(t->ready.sum_ns, ready_ns);
	assert_int_equal(t->chosen.total, n);
	assert_int_equal(t->chosen.sum_ns, chosen_ns);
}

/* How long a dispatch took, with the wait for a worker and without it. */
static void test_timings(void **state)
{
	start();
	GO({ "hello p1 w1 slots=1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, { "ready t1", "preempt t1/1 w1#1" },
	   { "wait 1; preempted t1/1 ok", "claim t1/1 w1#1" });
	check_timings(0, 0, 0);
	GO({ "wait 2; claimed t1/1 won", "send t1/1 p1 n1" });
	check_timings(1, 3 * NS_PER_S, 3 * NS_PER_S);
	GO({ "accepted p1 t1/1", "" }, { "ready t2", "" },
	   { "wait 4; outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7; preempt t2/1 w1#1" }, { "preempted t2/1 ok", "claim t2/1 w1#1" },
	   { "claimed t2/1 won", "send t2/1 p1 n2" });
	check_timings(2, 7 * NS_PER_S, 3 * NS_PER_S);
}

/* Of what is inserted as running the wait begins with the commit. */
static void test_timings_of_eager(void **state)
{
	start();
	GO({ "hello p1 w1 slots=1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, { "submit t1", "preempt t1/1 w1#1" },
	   { "wait 1; preempted t1/1 ok", "insert t1 @w1#1" }, { "wait 2; inserted t1 created", "send t1/1 p1 n1" });
	check_timings(1, 0, 3 * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_handler_waits_for_its_worker, done),
		cmocka_unit_test_teardown(test_handler_eager, done),
		cmocka_unit_test_teardown(test_commands_only_where_they_run, done),
		cmocka_unit_test_teardown(test_handlers_change, done),
		cmocka_unit_test_teardown(test_custom_is_counted, done),
		cmocka_unit_test_teardown(test_custom_of_adopted, done),
		cmocka_unit_test_teardown(test_largest_counts, done),
		cmocka_unit_test_teardown(test_memory_only_where_it_is_enforced, done),
		cmocka_unit_test_teardown(test_many_kinds, done),
		cmocka_unit_test_teardown(test_too_many_names, done),
		cmocka_unit_test_teardown(test_expire_is_asked_in_time, done),
		cmocka_unit_test_teardown(test_expired_is_not_given_out, done),
		cmocka_unit_test_teardown(test_why, done),
		cmocka_unit_test_teardown(test_why_busy, done),
		cmocka_unit_test_teardown(test_timings, done),
		cmocka_unit_test_teardown(test_timings_of_eager, done),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
