/* RunningTaskRecovery: running rows against memory, and of sessions that nobody holds.  Lease 10 s, sweeps every 5 s,
 * master-ttl 30 s, for exclusive tasks 120 s. */
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

/* A second process under this id, started by mistake, may still answer: what is exclusive waits for its silence. */
static void test_own_exclusive_after_a_silent_lease(void **state)
{
	script_run(&S, "task t1 excl");
	nothing_for(10, "strays w1#3:t1/2");
	SAYS("strays w1#3:t1/2", "hb? w1#3");
	SAYS("hb-of w1#3 fresh", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(5, "strays w1#3:t1/2");
	SAYS("strays w1#3:t1/2", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/2", "back t1/2 #3 lost counted; release t1/2 w1");
}

/* An earlier process under this id, cut off from the store, answers heartbeats of exclusive tasks for nine tenths of 120 s, and
 * with Redis flushed nobody shows it: they wait that long and a lease, counted from when this one opened the master's row. */
static void test_own_exclusive_waits_for_a_former_process(void **state)
{
	script_run(&S, "task t1 excl; beat; strays; wait 5; beat");
	nothing_for(130, "strays w1#3:t1/2");
	SAYS("strays w1#3:t1/2", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/2", "back t1/2 #3 lost counted; release t1/2 w1");
}

/* A store that lets one process in shows that the former one is gone. */
static void test_own_exclusive_alone(void **state)
{
	script_done(&S);
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.alone = true;
	script_init(&S, &cfg);
	S.show = SHOW_STRAYS | SHOW_RELEASE;
	SAYS("wait 0", "strays after t0");
	script_run(&S, "queues; due; task t1 excl; beat");
	nothing_for(10, "strays w1#3:t1/2");
	SAYS("strays w1#3:t1/2", "hb? w1#3");
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
	SAYS("strays w1#3:t1/1", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
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
	SAYS("strays w1#3:t2/1", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t2/1", "back t2/1 #3 lost counted; release t2/1 w1");
}

/* Of a job that knows an older session: the worker went to another master and was lost there.  Who still speaks here as that
 * worker is the older of two. */
static void test_moved_on(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1; opened p1 w1 #4 adopt=t1/1");
	SAYS("hb p1 n=1 held=t1/1; strays w1#5:t1/1 of=m2 beat=7", "hback p1 n=1; close p1 replaced");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#5:t1/1 of=m2 beat=7", "");
	SAYS("wait 5", "strays after t0; release t1/1 w1; back t1/1 #4 lost counted");
	SAYS("taken t1/1 #4 fenced", "");
	nothing_for(20, "strays w1#5:t1/1 of=m2 beat=7");
	SAYS("strays w1#5:t1/1 of=m2 beat=7", "hb? w1#5");
}

/* Of hellos that are not counted a late one may have opened it, for nobody: the worker is not told that it was replaced. */
static void test_moved_on_uncounted(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1 no=0; opened p1 w1 #4 adopt=t1/1");
	SAYS("hb p1 n=1 held=t1/1; strays w1#5:t1/1 of=m2 beat=7", "hback p1 n=1; close p1 away");
}

/* ---- take-over ---- */

#define STILL "strays w1#3:t1/1 of=m2 beat=20"

/* Its beat was seen to stand still for master-ttl, and Redis knows nothing of the session. */
static void stands_still(void)
{
	nothing_for(30, STILL);
	SAYS(STILL, "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0"); /* at once */
	SAYS(STILL, "take over m2 inc=1 beat=20");
}

static void test_take_over(void **state)
{
	for (int i = 0; i < 20; i++) { /* alive */
		char line[64];
		snprintf(line, sizeof(line), "strays w1#3:t1/1 of=m2 beat=%d", i);
		SAYS(line, "");
		SAYS("wait 5", "strays after t0");
	}
	stands_still();
	SAYS("wait 5", "strays after t0");
	SAYS(STILL, ""); /* on its way */
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(5, "strays w1#3:t1/1 of=m2 beat=20 inc=2");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* It is alive after all: all begins anew. */
static void test_take_over_too_late(void **state)
{
	stands_still();
	SAYS("took-over m2 not inc=1 beat=21", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(30, "strays w1#3:t1/1 of=m2 beat=21");
	SAYS("strays w1#3:t1/1 of=m2 beat=21", "hb? w1#3");
}

/* Taken over, it opened its row again: with a beat. */
static void test_next_incarnation_counts_anew(void **state)
{
	stands_still();
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(30, "strays w1#3:t1/1 of=m2 beat=21 inc=3");
	SAYS("strays w1#3:t1/1 of=m2 beat=21 inc=3", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=21 inc=3", "take over m2 inc=3 beat=21");
}

/* Two that judge one: the second finds the incarnation raised and the beat as it was, and waits its own lease. */
static void test_taken_over_by_a_third(void **state)
{
	nothing_for(30, STILL);
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(5, "strays w1#3:t1/1 of=m2 beat=20 inc=2");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* A fresh hb of just that session begins the count anew, before the take-over and after it. */
static void test_fresh_hb(void **state)
{
	nothing_for(30, STILL);
	SAYS(STILL, "hb? w1#3");
	SAYS("hb-of w1#3 fresh", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(25, STILL);
	SAYS(STILL, "hb? w1#3");
	SAYS("wait 5", "strays after t0");
	SAYS(STILL, ""); /* not asked twice */
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS(STILL, "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "hb? w1#3");
	SAYS("hb-of w1#3 fresh", "");
	SAYS("wait 5", "strays after t0");
	nothing_for(35, "strays w1#3:t1/1 of=m2 beat=20 inc=2");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "hb? w1#3");
	SAYS("hb-of w1#3 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* One session of it lives by Redis, another does not: each by itself. */
static void test_hb_of_another_session(void **state)
{
	nothing_for(30, "strays w1#3:t1/1 w2#1:t2/1 of=m2 beat=20");
	SAYS("strays w1#3:t1/1 w2#1:t2/1 of=m2 beat=20", "hb? w1#3; hb? w2#1");
	SAYS("hb-of w1#3 fresh; hb-of w2#1 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 w2#1:t2/1 of=m2 beat=20", "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 w2#1:t2/1 of=m2 beat=20 inc=2", "hb? w2#1");
	SAYS("hb-of w2#1 silent", "strays after t0");
	SAYS("strays w1#3:t1/1 w2#1:t2/1 of=m2 beat=20 inc=2", "back t2/1 #1 lost counted; release t2/1 w2");
}

/* With Redis down there is nothing to ask. */
static void test_without_redis(void **state)
{
	SAYS("lease down", "");
	nothing_for(30, STILL);
	SAYS(STILL, "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* For exclusive tasks the master has longer, and the lease is waited for after both. */
static void test_exclusive_of_another_master(void **state)
{
	script_run(&S, "task t2 excl lease=20; lease down");
	nothing_for(30, "strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=20");
	SAYS("strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=20", "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 w1#3:t2/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
	SAYS("wait 5", "strays after t0");
	nothing_for(95, "strays w1#3:t2/1 of=m2 beat=20 inc=2");
	SAYS("strays w1#3:t2/1 of=m2 beat=20 inc=2", "back t2/1 #3 lost counted; release t2/1 w1");
}

static void test_only_exclusive(void **state)
{
	script_run(&S, "task t1 excl; lease down");
	nothing_for(120, STILL);
	SAYS(STILL, "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* Time in which this master could not read the store, or stood still, does not count: of the beat, and of the lease. */
static void test_take_over_counts_own_time(void **state)
{
	SAYS("lease down", "");
	nothing_for(25, STILL);
	SAYS("store down; strays away", "");
	SAYS("wait 100", "");
	SAYS("store up", "strays after t0");
	nothing_for(30, STILL);
	SAYS("stalled 5", "");
	nothing_for(5, STILL);
	SAYS(STILL, "take over m2 inc=1 beat=20");
	SAYS("took-over m2 inc=2 beat=20; stalled 2", "");
	SAYS("wait 10", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#3:t1/1 of=m2 beat=20 inc=2", "back t1/1 #3 lost counted; release t1/1 w1");
}

/* A worker that comes here meanwhile is adopted. */
static void test_taken_over_worker_comes(void **state)
{
	stands_still();
	SAYS("took-over m2 inc=2 beat=20", "");
	SAYS("wait 10", "strays after t0");
	SAYS("hello p1 w1 held=t1/1; strays w1#3:t1/1 of=m2 beat=20 inc=2", "open w1 p1 held=t1/1");
	SAYS("opened p1 w1 #4 adopt=t1/1", "welcome p1 w1#4");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#4:t1/1", "");
}

/* ---- rows of sessions that are held here ---- */

/* A row that memory lacks: in the second sweep it is known, and the next heartbeat decides. */
static void test_unknown_row(void **state)
{
	for (int listed = 0; listed < 2; listed++) {
		script_done(&S);
		start(NULL);
		script_run(&S, "hello p1 w1 slots=2 enforce; opened p1 w1 #4; task t1 excl");
		SAYS("strays w1#4:t1/1", "");
		SAYS("wait 5", "strays after t0");
		SAYS("strays", ""); /* it was an old reading */
		SAYS("hb p1 n=1; wait 5", "hback p1 n=1; strays after t0");
		SAYS("strays w1#4:t1/1", "");
		SAYS("wait 5", "strays after t0");
		SAYS("strays w1#4:t1/1 wish", "stop t1/1 p1 cancelled");
		if (listed)
			SAYS("hb p1 n=2 held=t1/1", "hback p1 n=2");
		else
			SAYS("hb p1 n=2", "hback p1 n=2; release t1/1 w1; back t1/1 #4 unlisted");
	}
}

/* Its lease is judged like any other. */
static void test_unknown_row_of_a_lost_worker(void **state)
{
	script_run(&S, "hello p1 w1 slots=1; opened p1 w1 #4; hb p1 n=1; strays w1#4:t1/1; bye p1");
	SAYS("wait 5", "strays after t0");
	SAYS("strays w1#4:t1/1", "");
	SAYS("wait 5", "strays after t0; release t1/1 w1; back t1/1 #4 lost counted");
}

static void test_wish_again(void **state)
{
	script_run(&S, "hello p1 w1 slots=4 held=t1/1; opened p1 w1 #4 adopt=t1/1");
	SAYS("strays w1#4:t1/1", "");
	for (int i = 0; i < 3; i++) {
		SAYS("hb p1 n=1 held=t1/1; wait 5", "hback p1 n=1; strays after t0");
		SAYS("strays w1#4:t1/1 wish", "stop t1/1 p1 cancelled");
	}
	/* One that is just being given out is not sent at all. */
	script_run(&S, "submit t2; preempted t2/1 ok");
	SAYS("hb p1 n=2 held=t1/1; wait 5", "hback p1 n=2; strays after t0");
	SAYS("strays w1#4:t2/1 wish", "");
	SAYS("inserted t2 created", "back t2/1 #4 unsent; release t2/1 w1");
}

/* ---- this master is the one ---- */

static void test_deposed(void **state)
{
	script_run(&S, "hello p1 w1 slots=6 held=t1/1,t2/1,t3/1; opened p1 w1 #4 adopt=t1/1,t2/1,t3/1");
	script_run(&S, "outcome p1 t2/1 tok=7 ok; submit t4; submit t5; preempted t5/1 ok");
	script_run(&S, "refused p1 t3/1; ready t6");
	script_run(&S, "preempted t6/1 ok");
	SAYS("deposed; store down; strays away", "close p1 unavailable");
	SAYS("hb p1 n=1 held=t1/1", "");
	/* What was asked of the store is answered: nothing of it is held, and nobody is told. */
	SAYS("recorded p1 t2/1 tok=7 recorded; taken t3/1 #4 pending", "");
	SAYS("inserted t5 created; claimed t6/1 won", "back t5/1 #4 unsent; release t5/1 w1; back t6/1 #4 unsent; release t6/1 w1");
	SAYS("taken t5/1 #4 pending; taken t6/1 #4 pending", "");
	SAYS("preempted t4/1 ok", "release t4/1 w1; insert t4");
	SAYS("inserted t4 created", "");
	SAYS("wait 1", "");
	SAYS("store up", "strays after t0");
	/* Its former sessions are those of an older incarnation. */
	nothing_for(10, "strays w1#4:t1/1");
	SAYS("strays w1#4:t1/1", "back t1/1 #4 lost counted; release t1/1 w1");
	SAYS("hello p3 w1 slots=4", "open w1 p3");
	SAYS("opened p3 w1 #5", "welcome p3 w1#5; preempt t3/2 w1#5; preempt t4/1 w1#5; preempt t5/2 w1#5; preempt t6/2 w1#5");
}

/* A session that was on its way is this master's, if it is opened after all: judged by it, and its worker comes again. */
static void test_deposed_while_opening(void **state)
{
	script_run(&S, "hello p1 w1 held=t1/1");
	SAYS("hello p2 w1 held=t1/1", "close p1 replaced");
	SAYS("deposed; store down; strays away", "close p2 unavailable");
	SAYS("opened p1 w1 #4 adopt=t1/1", "");
	SAYS("store up", "strays after t0");
	SAYS("hello p3 w1 held=t1/1", "open w1 p3 held=t1/1");
	SAYS("opened p3 w1 away", "close p3 away");
	SAYS("wait 10", "release t1/1 w1; back t1/1 #4 lost counted");
}

/* A claim that the store gives to nobody: the stream is of no use, the task is for others. */
static void test_stale_claim(void **state)
{
	script_run(&S, "hello p1 w1; opened p1 w1 #4; ready t1");
	script_run(&S, "preempted t1/1 ok");
	SAYS("claimed t1/1 stale", "release t1/1 w1; close p1 unavailable");
	SAYS("hello p2 w2; opened p2 w2 #1", "open w2 p2; welcome p2 w2#1; preempt t1/1 w2#1");
	SAYS("bye p2", "");
	SAYS("preempted t1/1 ok", "release t1/1 w2");
	script_run(&S, "gone t1; hello p3 w2; opened p3 w2 #2; submit t2; preempted t2/1 ok");
	SAYS("inserted t2 created pending", "release t2/1 w2; close p3 unavailable");
	SAYS("hello p4 w2; opened p4 w2 #3", "open w2 p4; welcome p4 w2#3; preempt t2/1 w2#3");
}

/* Judged as nobody's by the store, which then gave the attempt to the worker's next session: the answer is old, the worker is
 * not told to forget what is its own, and says its outcome again. */
static void test_fenced_before_it_was_adopted(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1,t2/1; opened p1 w1 #4");
	SAYS("outcome p1 t1/1 tok=5 fail", "record t1/1 tok=5");
	SAYS("hello p2 w1 slots=2 held=t1/1,t2/1", "open w1 p2 held=t1/1,t2/1");
	script_run(&S, "opened p2 w1 #5 adopt=t1/1,t2/1");
	SAYS("recorded p1 t1/1 tok=5 fenced", "");
	SAYS("outcome p2 t1/1 tok=6 fail", "record t1/1 tok=6");
	SAYS("recorded p2 t1/1 tok=6 fenced", "ack t1/1 p2 fenced");
}

/* Sent again after its connection was lost, a claim finds the row as this session adopted it: it is not sent twice. */
static void test_claim_of_an_adopted_row(void **state)
{
	script_run(&S, "hello p1 w1 slots=2 held=t1/1; opened p1 w1 #4 adopt=t1/1");
	SAYS("ready t1/1", "preempt t1/2 w1#4"); /* read before that */
	SAYS("preempted t1/2 ok", "claim t1/2 w1#4");
	SAYS("claimed t1/1 won", "");
	SAYS("hb p1 n=1 held=t1/1", "hback p1 n=1");
	SAYS("hb p1 n=2", "hback p1 n=2; release t1/1 w1; back t1/1 #4 unlisted");
}

/* After nine tenths of 120 s without a beat in the store, and until the next one. */
static void test_exclusive_not_renewed(void **state)
{
	script_run(&S, "beat; hello p1 w1; opened p1 w1 #4");
	for (int i = 1; i <= 21; i++)
		script_run(&S, "hb p1 n=1; wait 5");
	SAYS("wait 2.999", "");
	SAYS("hb p1 n=2", "hback p1 n=2");
	SAYS("wait 0.001", "");
	SAYS("hb p1 n=3", "hback p1 n=3 not-exclusive");
	SAYS("beat; hb p1 n=4", "hback p1 n=4");
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
		T(test_own_after_a_lease), T(test_own_exclusive_after_a_silent_lease),
		T(test_own_exclusive_waits_for_a_former_process), T(test_own_exclusive_alone), T(test_asked_again_when_away), T(test_lease_of_the_row), T(test_met_anew),
		T(test_pages), T(test_held), T(test_hello_on_its_way), T(test_replaced_session), T(test_moved_on), T(test_moved_on_uncounted),
		T(test_take_over), T(test_take_over_too_late), T(test_next_incarnation_counts_anew), T(test_taken_over_by_a_third),
		T(test_fresh_hb), T(test_hb_of_another_session), T(test_without_redis), T(test_exclusive_of_another_master),
		T(test_only_exclusive), T(test_take_over_counts_own_time), T(test_taken_over_worker_comes),
		T(test_unknown_row), T(test_unknown_row_of_a_lost_worker), T(test_wish_again),
		T(test_deposed), T(test_deposed_while_opening), T(test_stale_claim), T(test_claim_of_an_adopted_row), T(test_fenced_before_it_was_adopted), T(test_exclusive_not_renewed),
		T(test_outage_counts_anew), T(test_short_outage), T(test_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
