/* RunningTaskRecovery: running rows of sessions that nobody holds.  Lease 10 s, sweeps every 5 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"

static struct script S;

#define SAYS(line, words) assert_string_equal(script_run(&S, line), words)

/* Before each test: the core knows that the store has no ready rows, and has asked for running ones. */
static int start(void **state)
{
	script_init(&S, NULL);
	S.show = SHOW_STRAYS | SHOW_RELEASE;
	SAYS("wait 0", "strays after t0");
	script_run(&S, "queues; due");
	return 0;
}

static int done(void **state)
{
	script_done(&S);
	return 0;
}

/* The rows of an older incarnation's session, at each sweep for `s` seconds: nothing may happen. */
static void nothing_for(int s, const char *rows)
{
	for (int at = 0; at < s; at += 5) {
		SAYS(rows, "");
		SAYS("wait 5", "strays after t0");
	}
}

static void test_own_after_a_lease(void **state)
{
	nothing_for(10, "strays w1#3:t1/2");
	SAYS("strays w1#3:t1/2", "back t1/2 #3 lost counted; release t1/2 w1");
	script_run(&S, "taken t1/2 #3 pending");
	SAYS("hello p1 w2", "open w2 p1");
	SAYS("opened p1 w2 #1", "welcome p1 w2#1; preempt t1/3 w2#1");
}

static void test_asked_again_when_away(void **state)
{
	nothing_for(10, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
	SAYS("taken t1/1 #3 away", "");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
	SAYS("wait 5", "strays after t0");
	SAYS("strays away", "");
	SAYS("wait 5", "strays after t0");
	/* What was remembered is remembered still. */
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
}

static void test_lease_of_the_row(void **state)
{
	script_run(&S, "task t1 lease=60 excl");
	nothing_for(60, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* A session that nobody held, and then somebody did, is met anew. */
static void test_met_anew(void **state)
{
	nothing_for(5, "strays w1#3:t1/1");
	nothing_for(5, "strays");
	nothing_for(10, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
}

static void test_pages(void **state)
{
	script_done(&S);
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.fill = 2;
	script_init(&S, &cfg);
	S.show = SHOW_STRAYS;
	SAYS("wait 0", "strays after t0");
	SAYS("queues; due; strays w1#3:t1/1 w1#3:t2/1", "strays after t2");
	SAYS("strays w2#1:t5/1 w1#3:t7/1", "strays after t7");
	SAYS("wait 5", ""); /* one sweep at a time */
	SAYS("strays w2#1:t8/1", "");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#3:t1/1 w1#3:t2/1", "back t1/1 #3 lost counted; back t2/1 #3 lost counted; strays after t2");
}

/* Held, or about to be: left alone, however long. */
static void test_held(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1");
	script_run(&S, "opened p1 w1 #4 adopt=t1/1; submit t2; preempted t2/1 ok");
	for (int i = 0; i < 10; i++) {
		SAYS("hb p1 n=1 held=t1/1; strays w1#4:t1/1 w1#4:t2/1 w1#3:t2/1", "hback p1 n=1");
		SAYS("wait 5", "strays after t0");
	}
}

static void test_hello_on_its_way(void **state)
{
	nothing_for(10, "strays w1#3:t1/1");
	SAYS("hello p1 w1 held=t1/1", "open w1 p1 held=t1/1");
	nothing_for(5, "strays w1#3:t1/1");
	SAYS("opened p1 w1 #4 adopt=t1/1; strays w1#3:t1/1", "welcome p1 w1#4");
}

/* Its worker is here with a newer session: nothing to wait for, except the lease of an exclusive one. */
static void test_replaced_session(void **state)
{
	script_run(&S, "task t2 excl; hello p1 w1 slots=4; opened p1 w1 #4");
	SAYS("strays w1#3:t1/1 w1#3:t2/1", "back t1/1 #3 lost counted; release t1/1 w1");
	for (int i = 0; i < 2; i++) {
		SAYS("hb p1 n=1; wait 5", "hback p1 n=1; strays after t0");
		if (i == 0)
			SAYS("strays w1#3:t2/1", "");
	}
	SAYS("strays w1#3:t2/1", "back t2/1 #3 lost counted; release t2/1 w1");
}

/* Of a job that knows an older session: the worker went to another master and was lost there. */
static void test_moved_on(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1; opened p1 w1 #4 adopt=t1/1");
	for (int i = 0; i < 8; i++) {
		SAYS("hb p1 n=1 held=t1/1; strays w1#5:t1/1 of=m2 beat=7", "hback p1 n=1");
		SAYS("wait 5", "strays after t0");
	}
	SAYS("strays w1#5:t1/1 of=m2 beat=7", "back t1/1 #5 lost counted; release t1/1 w1");
}

static void test_another_master(void **state)
{
	script_run(&S, "task t2 excl");
	for (int i = 0; i < 20; i++) { /* alive */
		char line[64];
		snprintf(line, sizeof(line), "strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=%d", i);
		SAYS(line, "");
		SAYS("wait 5", "strays after t0");
	}
	nothing_for(40, "strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=20");
	SAYS("strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=20", "back t1/1 #3 lost counted; release t1/1 w1");
	SAYS("wait 5", "strays after t0");
	nothing_for(85, "strays w1#3:t2/1 of=m2 beat=20");
	SAYS("strays w1#3:t2/1 of=m2 beat=20", "back t2/1 #3 lost counted; release t2/1 w1");
}

static void test_next_incarnation_counts_anew(void **state)
{
	nothing_for(35, "strays w1#3:t1/1 of=m2 beat=5");
	nothing_for(40, "strays w1#3:t1/1 of=m2 beat=5 inc=2");
	SAYS("strays w1#3:t1/1 of=m2 beat=5 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

static void test_outage_counts_anew(void **state)
{
	nothing_for(5, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "");
	SAYS("store down", "");
	SAYS("wait 2", "");
	SAYS("store up", "strays after t0");
	nothing_for(10, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* A short one does not, but its own time doesn't count; nor does that of a loop that stood still. */
static void test_short_outage(void **state)
{
	nothing_for(5, "strays w1#3:t1/1");
	SAYS("strays w1#3:t1/1", "");
	SAYS("store down", "");
	SAYS("wait 0.5", "");
	SAYS("store up", "strays after t0");
	SAYS("strays w1#3:t1/1; stalled 2", "");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#3:t1/1", ""); /* 10.5 s after the start */
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#3:t1/1", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* More sessions than may be remembered: the others in a later sweep. */
static void test_bounded(void **state)
{
	script_done(&S);
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.max_workers = 1;
	script_init(&S, &cfg);
	S.show = SHOW_STRAYS;
	SAYS("wait 0", "strays after t0");
	script_run(&S, "queues; due");
	nothing_for(10, "strays w1#3:t1/1 w2#1:t2/1");
	SAYS("strays w1#3:t1/1 w2#1:t2/1", "back t1/1 #3 lost counted");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w2#1:t2/1", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(10, "strays w2#1:t2/1");
	SAYS("strays w2#1:t2/1", "back t2/1 #1 lost counted");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, done)
	const struct CMUnitTest tests[] = {
		T(test_own_after_a_lease), T(test_asked_again_when_away), T(test_lease_of_the_row), T(test_met_anew),
		T(test_pages), T(test_held), T(test_hello_on_its_way), T(test_replaced_session), T(test_moved_on),
		T(test_another_master), T(test_next_incarnation_counts_anew), T(test_outage_counts_anew),
		T(test_short_outage), T(test_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
