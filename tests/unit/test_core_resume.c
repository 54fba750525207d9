/* Sessions while the store is away, and those of a large fleet.  H 2 s, L 10 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/core/core_view.h"
#include "tests/unit/core_script.h"

static struct script S;

#define GO(...) SCRIPT_GO(&S, __VA_ARGS__)
/* w1 with three slots and a session; t1 runs there. */
#define WORKER { "hello p1 w1 slots=3", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }
#define RUNNING \
	{ "submit t1", "preempt t1/1 w1#1" }, { "preempted t1/1 ok", "insert t1 @w1#1" }, \
	{ "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }

static int start(void **state)
{
	script_start(&S, NULL);
	return 0;
}

static int done(void **state)
{
	script_done(&S);
	return 0;
}

static size_t workers(void)
{
	struct core_counts n;
	core_counts(S.core, &n);
	return (size_t)n.workers;
}

/* ---- a session goes on ---- */

static void test_goes_on(void **state)
{
	GO(WORKER, RUNNING, { "store down", "" }, { "bye p1", "" },
	   { "hello p2 w1 slots=3 held=t1/1 resumes=1", "welcome p2 w1#1 resumed held=t1/1" },
	   { "hb p2 n=1 held=t1/1", "hback p2 n=1" }, { "outcome p2 t1/1 tok=7 ok", "record t1/1 tok=7" },
	   { "recorded p2 t1/1 tok=7 away", "" }, { "store up", "" }, { "outcome p2 t1/1 tok=8 ok", "record t1/1 tok=8" },
	   { "recorded p2 t1/1 tok=8 recorded", "ack t1/1 p2 recorded" }, { "wait 9", "" });
}

/* The old stream's end is seen later, or never: it is left. */
static void test_before_the_old_end(void **state)
{
	GO(WORKER, RUNNING, { "store down", "" },
	   { "hello p2 w1 slots=3 held=t1/1 resumes=1", "close p1 replaced; welcome p2 w1#1 resumed held=t1/1" }, { "bye p1", "" },
	   { "hb p1 n=5", "" }, { "hb p2 n=1 held=t1/1", "hback p2 n=1" }, { "store up", "" },
	   { "submit t2", "preempt t2/1 w1#1" }, { "preempted t2/1 ok", "insert t2 @w1#1" },
	   /* dispatches are numbered within the session */
	   { "inserted t2 created", "send t2/1 p2 n2" });
}

/* What the old stream swallowed: it is proved not to be there, its slot is free, and the store hears of it when it is back. */
static void test_what_never_arrived(void **state)
{
	GO(WORKER, RUNNING, { "submit t2", "preempt t2/1 w1#1" }, { "preempted t2/1 ok", "insert t2 @w1#1" },
	   { "inserted t2 created", "send t2/1 p1 n2" }, { "store down", "" },
	   { "hello p2 w1 slots=3 held=t1/1 resumes=1", "close p1 replaced; welcome p2 w1#1 resumed held=t1/1; back t2/1 #1 unlisted" },
	   { "taken t2/1 #1 away", "" }, { "hb p2 n=1 held=t1/1", "hback p2 n=1" }, { "wait 3", "" },
	   { "store up", "back t2/1 #1 unlisted" }, { "taken t2/1 #1 pending", "preempt t2/2 w1#1" });
	struct core_worker_view v;
	assert_true(core_worker(S.core, "w1", &v));
	assert_int_equal(v.used, 2);
}

/* On the new stream everything listed has been seen: what a heartbeat then lacks is gone, whatever the number. */
static void test_seen_from_the_start(void **state)
{
	GO(WORKER, RUNNING, { "store down", "" }, { "bye p1", "" },
	   { "hello p2 w1 slots=3 held=t1/1 resumes=1", "welcome p2 w1#1 resumed held=t1/1" },
	   { "hb p2 n=1", "hback p2 n=1; back t1/1 #1 unlisted" });
}

static void test_stops_are_said_again(void **state)
{
	GO(WORKER, RUNNING, { "cancel t1/1", "stop t1/1 p1 cancelled" }, { "submit t2", "preempt t2/1 w1#1" },
	   { "preempted t2/1 ok", "insert t2 @w1#1" }, { "inserted t2 created", "send t2/1 p1 n2" },
	   { "wait 5", "stop t2/1 p1 recalled; back t2/1 #1 recalled" }, { "store down; taken t2/1 #1 away; bye p1", "" },
	   { "hello p2 w1 slots=3 held=t1/1,t2/1,t9/1 resumes=1", "welcome p2 w1#1 resumed held=t1/1,t2/1; "
	     "stop t1/1 p2 cancelled; stop t2/1 p2 recalled; stop t9/1 p2 fenced" });
}

/* An exclusive task that was recalled is one that its worker has after all, or has not. */
static void test_recalled_exclusives(void **state)
{
	GO({ "task t1 excl", "" }, { "task t2 excl", "" }, { "hello p1 w1 slots=2 enforce", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, { "ready t1,t2", "preempt t1/1 w1#1; preempt t2/1 w1#1" },
	   { "preempted t1 ok; preempted t2 ok", "claim t1/1 w1#1; claim t2/1 w1#1" },
	   { "claimed t1/1 won; claimed t2/1 won", "send t1/1 p1 n1; send t2/1 p1 n1" },
	   { "wait 5", "stop t1/1 p1 recalled; stop t2/1 p1 recalled" }, { "store down; bye p1", "" },
	   { "hello p2 w1 slots=2 enforce held=t2/1 resumes=1", "welcome p2 w1#1 resumed held=t2/1; back t1/1 #1 recalled" },
	   { "taken t1/1 #1 away", "" }, { "outcome p2 t2/1 tok=7 ok", "record t2/1 tok=7" });
}

static void test_opening_that_failed(void **state)
{
	GO(WORKER, RUNNING, { "bye p1", "" }, { "hello p2 w1 held=t1/1 resumes=1", "open w1 p2 held=t1/1" },
	   { "store down; opened p2 w1 away", "welcome p2 w1#1 resumed held=t1/1" });
}

/* Lease of an in-process worker's tasks: its process is there. */
static void test_grace_is_over(void **state)
{
	GO({ "hello p1 w1 inproc", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING, { "store down; bye p1", "" },
	   { "hello p2 w1 inproc held=t1/1 resumes=1", "welcome p2 w1#1 resumed held=t1/1" }, { "store up", "" }, { "wait 5", "" });
}

/* Another master may have opened a newer session, and would judge it: of that hello this one must know. */
static void test_hellos_elsewhere(void **state)
{
	GO(WORKER, { "store down; bye p1", "" }, { "hello p2 w1 resumes=1 no=2 other", "welcome p2 w1#1 resumed" }, { "bye p2", "" },
	   /* 3 went elsewhere, and what became of it is not known */
	   { "hello p4 w1 resumes=1 no=4 other", "" }, { "wait 1.5", "close p4 away" },
	   { "hello p5 w1 resumes=1 no=5 other", "" }, { "bye p5", "" }, { "hello p6 w1 resumes=1 no=6 other", "" },
	   { "store up", "open w1 p6" }, { "opened p6 w1 #3", "welcome p6 w1#3" }, { "store down; bye p6", "" },
	   { "hello p7 w1 resumes=3 no=7 other", "welcome p7 w1#3 resumed" }, { "bye p7", "" },
	   /* 8 and 9 went elsewhere too, and opened nothing */
	   { "hello p10 w1 resumes=3 no=10", "welcome p10 w1#3 resumed" }, { "bye p10", "" },
	   { "hello p11 w1 resumes=3 no=0 other", "" });
}

/* Its list ends the worker's last job after the lease: it is not forgotten then, since the next hello waits. */
static void test_opened_after_the_lease(void **state)
{
	GO(WORKER, RUNNING, { "bye p1", "" }, { "hello p2 w1", "open w1 p2" },
	   { "wait 30; hello p3 w1; opened p2 w1 #2 requeue=t1/1", "close p2 replaced; open w1 p3" },
	   { "wait 1", "" }, { "opened p3 w1 #3", "welcome p3 w1#3; preempt t1/2 w1#3" });
}

/* It waited on the way while its process went on with another. */
static void test_late_hello(void **state)
{
	GO(WORKER, { "bye p1", "" }, { "hello p3 w1 resumes=1 no=3", "open w1 p3" }, { "hello p2 w1 resumes=1 no=2", "close p2 away" },
	   { "opened p3 w1 #2", "welcome p3 w1#2" }, { "hello p4 w1 resumes=1 no=3", "close p4 away" }, { "hb p3 n=1", "hback p3 n=1" },
	   /* of a process that has no session yet the store says whether it is late */
	   { "hello p5 w1 no=1", "open w1 p5" });
}

/* Another one's hellos are not this one's, and a clock that was set back makes no hello late. */
static void test_not_late(void **state)
{
	GO({ "hello p1 w1 no=700000000", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, { "bye p1", "" },
	   { "hello p2 w1 resumes=2 no=100000000", "close p2 away" },
	   { "hello p3 w1 resumes=2 no=99999999", "open w1 p3" }, { "opened p3 w1 #3", "welcome p3 w1#3" },
	   { "hello p4 w1 resumes=3 no=2 inst=9", "open w1 p4" });
}

/* Nor is it one of a process that goes on while another one with its id asks in vain. */
static void test_not_late_for_a_stranger(void **state)
{
	GO({ "hello p1 w1 no=5", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, { "store down; bye p1", "" },
	   { "hello p2 w1 no=90 inst=9", "" }, { "hello p3 w1 resumes=1 no=6 other", "close p2 replaced; welcome p3 w1#1 resumed" });
}

/* ---- any other waits ---- */

static void test_others_wait(void **state)
{
	GO(WORKER, RUNNING, { "store down", "" }, { "bye p1", "" },
	   /* another process, another session, another instance */
	   { "hello p2 w1 held=t1/1", "" }, { "hello p3 w1 held=t1/1 resumes=2", "close p2 replaced" },
	   { "hello p4 w1 held=t1/1 resumes=1 inst=9", "close p3 replaced" }, { "wait 1.4", "" },
	   { "store up", "open w1 p4 held=t1/1" });
}

static void test_not_for_ever(void **state)
{
	GO(WORKER, { "store down; bye p1", "" }, { "hello p2 w1", "" }, { "hello p3 w2", "" }, { "wait 1.4", "" }, { "bye p3", "" });
	assert_int_equal(workers(), 1);
	GO({ "hello p4 w2", "" }, { "wait 0.1", "close p2 away" }, { "wait 1.4", "close p4 away" });
	assert_int_equal(workers(), 1);
	GO({ "store up", "" }, { "hello p5 w1", "open w1 p5" });
}

/* The store may have been told that leases of it have ended. */
static void test_lapsed(void **state)
{
	GO(WORKER, RUNNING, { "wait 10", "back t1/1 #1 lost counted; close p1 unavailable" }, { "store down; taken t1/1 #1 away", "" },
	   { "hello p2 w1 held=t1/1 resumes=1", "" }, { "wait 1; store up", "open w1 p2 held=t1/1; back t1/1 #1 lost counted" });
}

/* The opening may have reached the store: whose session it is is not known before the answer. */
static void test_opening_on_its_way(void **state)
{
	GO(WORKER, RUNNING, { "bye p1", "" }, { "hello p2 w1 held=t1/1 resumes=1", "open w1 p2 held=t1/1" }, { "store down", "" },
	   { "hello p3 w1 held=t1/1 resumes=1", "close p2 replaced" }, { "wait 1.5", "close p3 away" },
	   { "hello p4 w1 held=t1/1 resumes=1", "" }, { "store up", "" },
	   { "opened p2 w1 #2 adopt=t1/1", "open w1 p4 held=t1/1" }, { "opened p4 w1 #3 adopt=t1/1", "welcome p4 w1#3" });
}

/* ---- what is settled afterwards ---- */

/* The window has a row whose open attempt the session adopts. The claim was lost to that; settled after a lost connection it
 * finds the worker's own row. */
static void test_claim_that_finds_the_adopted(void **state)
{
	GO({ "ready t1/1", "" }, { "hello p1 w1 slots=2 held=t1/1", "open w1 p1 held=t1/1" },
	   { "opened p1 w1 #1 adopt=t1/1", "welcome p1 w1#1; preempt t1/2 w1#1" }, { "preempted t1 ok", "claim t1/2 w1#1" },
	   { "claimed t1/1 won", "" }, { "hb p1 n=1 held=t1/1", "hback p1 n=1" }, { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" });
}

/* ---- a large fleet ---- */

static void opens(int peer, int worker, const char *welcome)
{
	char line[100];
	snprintf(line, sizeof(line), "hello p%d v%d", peer, worker);
	script_run(&S, line);
	snprintf(line, sizeof(line), "opened p%d v%d #1", peer, worker);
	assert_string_equal(script_run(&S, line), welcome);
}

/* Two heartbeats a second: four sessions of 2 s. */
static int start_few(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.heartbeat_rate = 2;
	script_start(&S, &cfg);
	return 0;
}

static void test_h_and_l_grow_together(void **state)
{
	for (int i = 1; i <= 4; i++) {
		char words[60];
		snprintf(words, sizeof(words), "welcome p%d v%d#1", i, i);
		opens(i, i, words);
	}
	opens(5, 5, "welcome p5 v5#1 H=4 L=20");
	opens(6, 6, "welcome p6 v6#1 H=4 L=20");
	opens(7, 7, "welcome p7 v7#1 H=4 L=20");
	opens(8, 8, "welcome p8 v8#1 H=4 L=20");
	opens(9, 9, "welcome p9 v9#1 H=6 L=30");
	/* They all come again, and the first is one of nine from the start. */
	script_run(&S, "bye p1; bye p2; bye p3; bye p4; bye p5; bye p6; bye p7; bye p8; bye p9");
	opens(11, 1, "welcome p11 v1#1 H=6 L=30");
	/* Ten minutes later the fleet is what is there. */
	script_run(&S, "wait 601");
	opens(12, 2, "welcome p12 v2#1");
}

/* Those on their way count: nobody has a session yet after a restart. */
static void test_openings_count(void **state)
{
	for (int i = 1; i <= 5; i++) {
		char line[60];
		snprintf(line, sizeof(line), "hello p%d v%d", i, i);
		script_run(&S, line);
	}
	GO({ "opened p5 v5 #1", "welcome p5 v5#1 H=4 L=20" }, { "opened p4 v4 #1", "welcome p4 v4#1" });
}

/* Who comes again before its old stream has ended is one of them, not two. */
static void test_counted_once(void **state)
{
	for (int i = 1; i <= 4; i++) {
		char words[60];
		snprintf(words, sizeof(words), "welcome p%d v%d#1", i, i);
		opens(i, i, words);
	}
	for (int i = 1; i <= 4; i++) {
		char words[60];
		snprintf(words, sizeof(words), "close p%d replaced; welcome p%d v%d#1", i, i + 10, i);
		opens(i + 10, i, words);
	}
	opens(15, 5, "welcome p15 v5#1 H=4 L=20");
}

/* Each session is judged by what it was told; its attempts by no less, and a longer one of their own. */
static void test_judged_by_its_own(void **state)
{
	GO({ "hello p1 v1; hello p2 v2; hello p3 v3; hello p4 v4", "open v1 p1; open v2 p2; open v3 p3; open v4 p4" },
	   { "hello p5 w1 slots=2", "open w1 p5" }, { "opened p5 w1 #1", "welcome p5 w1#1 H=4 L=20" },
	   { "opened p1 v1 #1", "welcome p1 v1#1" }, { "task t2 lease=25", "" }, { "draining p1", "" },
	   { "ready t1,t2", "preempt t1/1 w1#1; preempt t2/1 w1#1" },
	   { "preempted t1 ok; preempted t2 ok", "claim t1/1 w1#1; claim t2/1 w1#1" },
	   { "claimed t1/1 won; claimed t2/1 won", "send t1/1 p5 n1; send t2/1 p5 n1" },
	   { "accepted p5 t1/1; accepted p5 t2/1", "" }, { "wait 10", "close p1 unavailable" }, { "wait 9.9", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted; close p5 unavailable" }, { "taken t1/1 #1 ended", "" }, { "wait 4.9", "" },
	   { "wait 0.1", "back t2/1 #1 lost counted" });
}

/* A session that goes on keeps what it was told. */
static void test_resumed_keeps_its_own(void **state)
{
	GO({ "hello p1 v1; hello p2 v2; hello p3 v3; hello p4 v4", "open v1 p1; open v2 p2; open v3 p3; open v4 p4" },
	   { "hello p5 w1", "open w1 p5" }, { "opened p5 w1 #1", "welcome p5 w1#1 H=4 L=20" }, { "store down; bye p5", "" },
	   { "hello p6 w1 resumes=1", "welcome p6 w1#1 H=4 L=20 resumed" });
}

static void test_no_longer_than_a_day(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.heartbeat_rate = 1;
	cfg.heartbeat_ns = NS_PER_S;
	cfg.lease_ttl_ns = 8 * 3600 * NS_PER_S;
	script_start(&S, &cfg);
	opens(1, 1, "welcome p1 v1#1");
	opens(2, 2, "welcome p2 v2#1 H=2 L=57600");
	opens(3, 3, "welcome p3 v3#1 H=3 L=86400");
	opens(4, 4, "welcome p4 v4#1 H=3 L=86400");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, done)
#define FEW(f) cmocka_unit_test_setup_teardown(f, start_few, done)
	const struct CMUnitTest tests[] = {
		TEST(test_goes_on), TEST(test_before_the_old_end), TEST(test_what_never_arrived), TEST(test_seen_from_the_start),
		TEST(test_stops_are_said_again), TEST(test_recalled_exclusives), TEST(test_opening_that_failed),
		TEST(test_grace_is_over), TEST(test_hellos_elsewhere), TEST(test_late_hello), TEST(test_not_late),
		TEST(test_not_late_for_a_stranger), TEST(test_opened_after_the_lease),
		TEST(test_claim_that_finds_the_adopted), TEST(test_others_wait),
		TEST(test_not_for_ever), TEST(test_lapsed),
		TEST(test_opening_on_its_way), FEW(test_h_and_l_grow_together), FEW(test_openings_count), FEW(test_counted_once),
		FEW(test_judged_by_its_own), FEW(test_resumed_keeps_its_own),
		cmocka_unit_test_teardown(test_no_longer_than_a_day, done),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
