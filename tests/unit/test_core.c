/* The scheduler core, sentence by sentence: each test is a list of (events of a step, effects) in words. */
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

/* ---- giving out ---- */

static void test_eager(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_OWN | SHOW_BEAT;
	GO({ "hello p1 w1 slots=2", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1; beat w1" },
	   { "submit t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "insert t1 @w1#1" },
	   { "inserted t1 created", "own t1/1 w1; send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "hb p1 n=1 seen=1 held=t1/1", "hback p1 n=1; beat w1 held=t1/1" });
}

static void test_eager_when_lease_table_is_down(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "submit t1", "preempt t1/1 w1#1" }, { "preempted t1 down", "insert t1 @w1#1" },
	   { "inserted t1 created", "send t1/1 p1 n1" });
}

static void test_eager_full_becomes_pending(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "submit t1", "preempt t1/1 w1#1" }, { "preempted t1 full", "insert t1" },
	   /* the worker rests until its heartbeat has written its keys anew */
	   { "inserted t1 created", "" }, { "hb p1", "hback p1 n=1; preempt t1/1 w1#1" },
	   { "preempted t1 newer", "" }, { "wait 2", "preempt t1/1 w1#1" });
}

static void test_eager_insert_fails_or_exists(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_RELEASE;
	GO({ "hello p1 w1 slots=1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1"),
	   { "inserted t1 failed", "release t1/1 w1" }, RUNNING("t2"), { "inserted t2 exists", "release t2/1 w1" },
	   { "submit t3", "preempt t3/1 w1#1" });
}

static void test_submit_without_worker(void **state)
{
	script_start(&S, NULL);
	GO({ "submit t1", "insert t1" }, { "inserted t1 created", "" }, { "hello p1 w1", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 won", "send t1/1 p1 n1" });
}

static void test_submit_does_not_overtake(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 gpus=1", "" }, { "ready t1", "" }, { "hello p1 w1 slots=1", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" },
	   /* t1 fits nobody: it holds nobody up */
	   { "submit t2", "preempt t2/1 w1#1" }, { "preempted t2 ok", "insert t2 @w1#1" },
	   { "inserted t2 created", "send t2/1 p1 n1" }, { "ready t3", "" }, { "task t5 prio=1", "" },
	   { "outcome p1 t2/1 tok=1 ok; submit t4", "record t2/1 tok=1; insert t4; preempt t3/1 w1#1" });
}

static void test_submit_of_higher_priority_overtakes(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "ready t2", "" }, { "task t3 prio=1", "" },
	   { "outcome p1 t1/1 tok=1 ok; submit t3", "record t1/1 tok=1; preempt t3/1 w1#1" });
}

static void test_not_eager_behind_unread_backlog(void **state)
{
	script_init(&S, NULL);
	S.show = SHOW_FILL;
	GO({ "wait 0", "queues; due" }, { "due", "" }, { "hello p1 w1 slots=9", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "submit t9", "insert t9" }, /* not known yet what waits */
	   { "queues a", "fill a start 500" }, { "submit t8", "insert t8" },
	   { "filled a t1 end", "preempt t1/1 w1#1" }, { "submit t7", "preempt t7/1 w1#1" });
}

static void test_delayed_submit(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_FILL;
	GO(WORKER, { "submit t1 due=1", "insert t1" }, { "inserted t1 created due=1", "" }, { "wait 0.9", "" },
	   { "wait 0.1", "due" }, { "due t1 next=0.5", "preempt t1/1 w1#1" }, { "wait 0.5", "due" });
}

static void test_claim_lost(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_RELEASE;
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 lost", "release t1/1 w1" }, { "ready t2", "preempt t2/1 w1#1" });
}

static void test_claim_unavailable_is_tried_again(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 away", "" }, { "wait 0.1", "preempt t1/1 w1#1" });
}

static void test_dispatches_of_a_step_share_a_number(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=9", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1,t2,t3", "preempt t1/1 w1#1; preempt t2/1 w1#1; preempt t3/1 w1#1" },
	   { "preempted t1 ok; preempted t2 ok; preempted t3 ok", "claim t1/1 w1#1; claim t2/1 w1#1; claim t3/1 w1#1" },
	   { "claimed t1/1 won; claimed t3/1 won", "send t1/1 p1 n1; send t3/1 p1 n1" },
	   { "claimed t2/1 won", "send t2/1 p1 n2" });
}

static void test_priority_then_turns_then_seq(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 q=a", "" }, { "task t2 q=a", "" }, { "task t3 q=b", "" }, { "task t4 q=b", "" },
	   { "task t5 q=b prio=3", "" }, { "task t6 q=c prio=-1", "" },
	   { "ready t6,t2,t1,t4,t3,t5", "" }, { "hello p1 w1 slots=9", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t5/1 w1#1; preempt t1/1 w1#1; preempt t3/1 w1#1; "
				"preempt t2/1 w1#1; preempt t4/1 w1#1; preempt t6/1 w1#1" });
}

static void test_least_used_worker_first(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=2", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "hello p2 w2 slots=2", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1" },
	   { "ready t1,t2,t3,t4,t5", "preempt t1/1 w1#1; preempt t2/1 w2#1; preempt t3/1 w1#1; preempt t4/1 w2#1" });
}

static void test_queues_and_resources(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 q=a gpus=1", "" }, { "task t2 q=b", "" }, { "task t3 q=c", "" },
	   { "hello p1 w1 slots=3 q=a,b gpus=1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1,t2,t3", "preempt t1/1 w1#1; preempt t2/1 w1#1" }, { "task t4 q=a gpus=1", "" },
	   { "ready t4", "" }, /* its gpu is taken */
	   { "preempted t1 ok", "claim t1/1 w1#1" }, { "claimed t1/1 won", "send t1/1 p1 n1" },
	   { "outcome p1 t1/1 tok=1 ok", "record t1/1 tok=1; preempt t4/1 w1#1" });
}

static void test_exclusive_only_where_the_lease_is_enforced(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, WORKER, { "ready t1", "" }, { "hello p2 w2 enforce", "open w2 p2" },
	   { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/1 w2#1" });
}

static void test_draining_takes_nothing(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "draining p1", "" }, { "submit t1", "insert t1" }, { "inserted t1 created", "" },
	   { "hello p2 w2 drain", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1" });
}

static void test_draining_after_preempt(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "draining p1", "" }, { "preempted t1 ok", "" },
	   { "ready t2", "" });
}

static void test_claims_in_flight_are_bounded(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.in_flight_claims = 2;
	script_start(&S, &cfg);
	GO({ "hello p1 w1 slots=9", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1,t2,t3", "preempt t1/1 w1#1; preempt t2/1 w1#1" },
	   { "preempted t1 ok", "claim t1/1 w1#1" }, { "claimed t1/1 won", "send t1/1 p1 n1; preempt t3/1 w1#1" });
}

/* As many at a time as its stream may hold, whatever its slots; more as it accepts. */
static void test_large_specs_wait_until_the_worker_has_accepted(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=99", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1,t2,t3", "preempt t1/1 w1#1; preempt t2/1 w1#1; preempt t3/1 w1#1" },
	   { "preempted t1 ok; preempted t2 ok; preempted t3 ok", "claim t1/1 w1#1; claim t2/1 w1#1; claim t3/1 w1#1" },
	   /* The third shows its size only now: back it goes, counted by nobody. */
	   { "claimed t1/1 won spec=3; claimed t2/1 won spec=3; claimed t3/1 won spec=3",
	     "send t1/1 p1 n1; send t2/1 p1 n1; back t3/1 #1 unsent" },
	   { "taken t3/1 #1 pending", "preempt t3/2 w1#1" }, { "ready t4,t5", "" },
	   { "preempted t3 ok", "claim t3/2 w1#1" },
	   { "accepted p1 t1/1", "preempt t4/1 w1#1" }, { "claimed t3/2 won spec=3", "send t3/2 p1 n2" },
	   { "preempted t4 ok", "claim t4/1 w1#1" },
	   { "accepted p1 t2/1", "preempt t5/1 w1#1" });
}

/* A single one larger than that still goes out, alone. */
static void test_a_spec_larger_than_the_room_goes_alone(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 slots=99", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "claimed t1/1 won spec=9", "send t1/1 p1 n1" }, { "ready t2", "" },
	   { "accepted p1 t1/1", "preempt t2/1 w1#1" });
}

static void test_gone_leaves_the_window(void **state)
{
	script_start(&S, NULL);
	GO({ "ready t1,t2", "" }, { "gone t1", "" }, { "hello p1 w1", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1; preempt t2/1 w1#1" }, { "gone t2", "" }, { "preempted t2 ok", "" },
	   { "ready t3", "preempt t3/1 w1#1" });
}

/* ---- answers of the worker ---- */

static void test_refused(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_RELEASE;
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "refused p1 t1/1", "release t1/1 w1; back t1/1 #1 refused" },
	   { "taken t1/1 #1 pending", "" }, /* not straight back */
	   { "ready t2", "preempt t2/1 w1#1" }, { "wait 1", "preempt t1/2 w1#1" });
}

static void test_refused_goes_to_another(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hello p2 w2", "open w2 p2" },
	   { "opened p2 w2 #1", "welcome p2 w2#1" }, { "refused p1 t1/1", "back t1/1 #1 refused" },
	   { "taken t1/1 #1 pending", "preempt t1/2 w2#1" });
}

static void test_refused_by_all_rests_ever_longer(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hello p2 w2", "open w2 p2" },
	   { "opened p2 w2 #1", "welcome p2 w2#1" }, { "refused p1 t1/1", "back t1/1 #1 refused" },
	   { "taken t1/1 #1 pending", "preempt t1/2 w2#1" }, { "preempted t1 ok", "claim t1/2 w2#1" },
	   { "claimed t1/2 won", "send t1/2 p2 n1" }, { "refused p2 t1/2", "back t1/2 #1 refused" },
	   { "taken t1/2 #1 pending", "" }, /* not back to the first */
	   { "ready t2", "preempt t2/1 w1#1" }, { "wait 1", "preempt t1/3 w2#1" }, { "preempted t1 ok", "claim t1/3 w2#1" },
	   { "claimed t1/3 won", "send t1/3 p2 n2" }, { "refused p2 t1/3", "back t1/3 #1 refused" },
	   { "taken t1/3 #1 pending", "" }, { "wait 1", "" }, { "wait 1", "preempt t1/4 w2#1" });
}

static void test_outcome(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_RELEASE | SHOW_BEAT;
	GO({ "hello p1 w1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1; beat w1" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1; ready t2", "" },
	   { "outcome p1 t1/1 tok=7 ok", "release t1/1 w1; record t1/1 tok=7; preempt t2/1 w1#1" },
	   { "outcome p1 t1/1 tok=8 ok", "drop tok=8" },
	   { "hb p1 n=1 seen=1 held=t1/1", "hback p1 n=1; beat w1 slots=t2/1" },
	   { "hb p1 n=2 seen=1", "hback p1 n=2; beat w1 slots=t2/1" }, /* an outcome on its way is not compared */
	   { "recorded p1 t1/1 tok=7 recorded", "ack t1/1 p1 recorded" },
	   { "hb p1 n=3 seen=1 held=t1/1", "hback p1 n=3; beat w1 slots=t2/1" }, /* the ack was on its way */
	   { "hb p1 n=4 seen=1", "hback p1 n=4; beat w1 slots=t2/1" },
	   { "hb p1 n=5 seen=1 held=t1/1", "hback p1 n=5; stop t1/1 p1 fenced; beat w1 slots=t2/1" });
}

static void test_outcome_of_an_unknown_attempt_is_the_stores_to_judge(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "outcome p1 t1/4 tok=3 ok", "record t1/4 tok=3" }, { "outcome p1 t1/4 tok=4 ok", "drop tok=4" },
	   { "recorded p1 t1/4 tok=3 duplicate", "ack t1/4 p1 duplicate" },
	   { "outcome p9 t2/1 tok=5 ok", "record t2/1 tok=5" }, { "recorded p9 t2/1 tok=5 fenced", "" });
}

static void test_outcome_while_the_store_is_away(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "store down", "" }, { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" },
	   { "recorded p1 t1/1 tok=7 away", "" }, { "hb p1 n=1 seen=1 held=t1/1", "hback p1 n=1" }, { "store up", "" },
	   { "outcome p1 t1/1 tok=8 fail", "record t1/1 tok=8" },
	   { "recorded p1 t1/1 tok=8 recorded", "ack t1/1 p1 recorded" });
}

static void test_outcome_of_a_recalled_attempt(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled; back t1/1 #1 recalled" }, { "draining p1", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" }, { "taken t1/1 #1 pending", "" },
	   /* it was still open: the success counts, and its row leaves the window */
	   { "recorded p1 t1/1 tok=7 recorded", "ack t1/1 p1 recorded" }, { "hello p2 w2", "open w2 p2" },
	   { "opened p2 w2 #1", "welcome p2 w2#1" });
}

static void test_outcome_of_a_taken_back_attempt_unrecorded(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled; back t1/1 #1 recalled" }, { "taken t1/1 #1 ended", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" }, { "recorded p1 t1/1 tok=7 away", "" },
	   { "hb p1 n=2 seen=1", "hback p1 n=2" } /* it was not ours any more: nothing to take back */);
}

static void test_outcome_unrecorded_and_the_worker_lost(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" }, { "bye p1", "" }, { "wait 10", "" },
	   { "recorded p1 t1/1 tok=7 away", "back t1/1 #1 lost counted" });
}

static void test_ack_goes_to_the_newest_stream(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" }, { "bye p1", "" },
	   { "hello p2 w1 held=t1/1", "open w1 p2 held=t1/1" }, { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" },
	   { "outcome p2 t1/1 tok=8 ok", "drop tok=8" },
	   { "recorded p1 t1/1 tok=7 recorded", "ack t1/1 p2 recorded" });
}

static void test_retry_at_once(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "outcome p1 t1/1 tok=7 fail", "record t1/1 tok=7" },
	   { "recorded p1 t1/1 tok=7 recorded again", "ack t1/1 p1 recorded; preempt t1/2 w1#1" });
}

/* ---- accepting ---- */

static void test_not_accepted_in_time(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled; back t1/1 #1 recalled" },
	   { "taken t1/1 #1 pending", "" }, /* w1 gets nothing until it answers */
	   { "hello p2 w2 slots=1", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/2 w2#1" },
	   { "ready t2,t3", "" }, { "accepted p1 t1/1", "preempt t2/1 w1#1" }, /* answered; its slot is still used */
	   { "outcome p1 t1/1 tok=1 fail", "record t1/1 tok=1; preempt t3/1 w1#1" },
	   { "recorded p1 t1/1 tok=1 fenced", "ack t1/1 p1 fenced" });
}

static void test_recalled_and_started_all_the_same(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled; back t1/1 #1 recalled" }, { "taken t1/1 #1 pending", "" },
	   { "hello p2 w2 slots=1", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/2 w2#1" },
	   { "accepted p1 t1/1", "" }, { "hb p1 n=2 seen=1 held=t1/1", "hback p1 n=2" }, /* open as yet */
	   { "preempted t1/2 ok", "claim t1/2 w2#1" }, { "claimed t1/2 won", "send t1/2 p2 n1" },
	   { "hb p1 n=3 seen=1 held=t1/1", "hback p1 n=3; stop t1/1 p1 fenced" });
}

static void test_not_accepted_and_a_heartbeat_lacks_it(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled; back t1/1 #1 recalled" }, { "taken t1/1 #1 pending", "" },
	   { "hb p1 n=2 seen=0", "hback p1 n=2" }, { "hb p1 n=3 seen=1", "hback p1 n=3; preempt t1/2 w1#1" });
}

static void test_exclusive_is_recalled_when_the_worker_answers(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, { "hello p1 w1 enforce", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled" }, { "hb p1 n=2 seen=0", "hback p1 n=2" },
	   { "refused p1 t1/1", "back t1/1 #1 recalled" }, { "taken t1/1 #1 pending", "preempt t1/2 w1#1" });
}

static void test_exclusive_recall_ends_by_the_list(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, { "hello p1 w1 enforce", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "hb p1 n=1", "hback p1 n=1" },
	   { "wait 5", "stop t1/1 p1 recalled" }, { "hb p1 n=2 seen=0", "hback p1 n=2" },
	   { "hb p1 n=3 seen=1", "hback p1 n=3; back t1/1 #1 recalled" });
}

/* ---- heartbeats ---- */

static void test_not_listed(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "hb p1 n=1 seen=0", "hback p1 n=1" }, /* it had not seen that dispatch */
	   { "hb p1 n=2 seen=1", "hback p1 n=2; back t1/1 #1 unlisted" },
	   { "taken t1/1 #1 fenced", "" }, { "hb p1 n=3 seen=1", "hback p1 n=3" });
}

static void test_an_outcome_in_flight_is_not_compared(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "outcome p1 t1/1 tok=7 ok", "record t1/1 tok=7" }, { "hb p1 n=1 seen=1", "hback p1 n=1" },
	   { "hb p1 n=2 seen=1 held=t1/1", "hback p1 n=2" }, { "recorded p1 t1/1 tok=7 recorded", "ack t1/1 p1 recorded" },
	   /* and of one that was acknowledged a heartbeat may still tell */
	   { "hb p1 n=3 seen=1 held=t1/1", "hback p1 n=3" }, { "hb p1 n=4 seen=1", "hback p1 n=4" });
}

static void test_listed_counts_as_accepted(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "hb p1 n=1 seen=1 held=t1/1", "hback p1 n=1" }, { "wait 6", "" });
}

static void test_unknown_is_fenced(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "hb p1 n=1 held=t5/2", "hback p1 n=1; stop t5/2 p1 fenced" });
}

static void test_heartbeat_of_a_replaced_stream_is_nothing(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "hello p2 w1 slots=2", "open w1 p2" }, { "opened p2 w1 #2", "close p1 replaced; welcome p2 w1#2" },
	   { "hb p1 n=1 held=t5/2", "" }, { "bye p1", "" }, { "submit t1", "preempt t1/1 w1#2" });
}

/* ---- sessions ---- */

static void test_adopted(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_BEAT;
	GO({ "hello p1 w1 slots=3 held=t1/2,t2/1,t3/1", "open w1 p1 held=t1/2,t2/1,t3/1" },
	   { "opened p1 w1 #4 adopt=t1/2 wish=t2/1 fence=t3/1 requeue=t4/1",
	     "welcome p1 w1#4; stop t2/1 p1 cancelled; stop t3/1 p1 fenced; beat w1 held=t1/2,t2/1 slots=t3/1" },
	   /* three slots are used; t4 waits */
	   { "outcome p1 t3/1 tok=1 fail", "record t3/1 tok=1; preempt t4/2 w1#4" },
	   { "hb p1 n=1 held=t1/2,t2/1", "hback p1 n=1; beat w1 held=t1/2,t2/1 slots=t4/2" },
	   { "hb p1 n=2 held=t1/2", "hback p1 n=2; back t2/1 #4 unlisted; beat w1 held=t1/2 slots=t4/2" });
}

static void test_earlier_session_is_dropped(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "hello p2 w1 slots=2", "open w1 p2" },
	   { "opened p2 w1 #2 requeue=t1/1", "close p1 replaced; welcome p2 w1#2; preempt t1/2 w1#2" },
	   { "hb p2 n=1", "hback p2 n=1" });
}

static void test_numbers_start_anew_with_the_session(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "hello p2 w1 slots=2 held=t1/1", "open w1 p2 held=t1/1" }, { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" },
	   { "submit t2", "preempt t2/1 w1#2" }, { "preempted t2 ok", "insert t2 @w1#2" },
	   { "inserted t2 created", "send t2/1 p2 n1" },
	   { "hb p2 n=1 seen=0", "hback p2 n=1; back t1/1 #2 unlisted" });
}

static void test_claim_answered_after_the_session_ended(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "hello p2 w1 slots=2", "open w1 p2" }, { "opened p2 w1 #2", "close p1 replaced; welcome p2 w1#2" },
	   { "claimed t1/1 won", "back t1/1 #1 unsent" }, { "taken t1/1 #1 pending", "preempt t1/2 w1#2" });
}

/* Given out by another master, adopted here, and then a claim from an old window, which the store settles after a lost
 * connection, finds the row with this worker and session and takes it for its own. */
static void test_claim_that_finds_what_was_adopted(void **state)
{
	script_start(&S, NULL);
	GO({ "ready t1", "" }, { "hello p1 w1 slots=2 held=t1/1", "open w1 p1 held=t1/1" },
	   { "opened p1 w1 #3 adopt=t1/1", "welcome p1 w1#3; preempt t1/1 w1#3" }, { "preempted t1 ok", "claim t1/1 w1#3" }, { "claimed t1/1 won", "" },
	   /* One slot is taken, not two. */
	   { "submit t2", "preempt t2/1 w1#3" }, { "outcome p1 t1/1 tok=1 ok", "record t1/1 tok=1" },
	   { "recorded p1 t1/1 tok=1 recorded", "ack t1/1 p1 recorded" });
}

static void test_eager_insert_answered_after_the_stream_ended(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "bye p1", "" }, { "inserted t1 created", "back t1/1 #1 unsent" });
}

static void test_preempt_answered_while_a_session_opens(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "ready t1", "preempt t1/1 w1#1" }, { "submit t2", "preempt t2/1 w1#1" },
	   { "hello p2 w1 slots=2", "open w1 p2" }, { "preempted t1 ok", "" }, { "preempted t2 ok", "insert t2" },
	   { "opened p2 w1 #2", "close p1 replaced; welcome p2 w1#2; preempt t1/1 w1#2" });
}

static void test_taken_back_and_adopted_cross(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "wait 10", "back t1/1 #1 lost counted; close p1 unavailable" },
	   { "hello p2 w1 slots=2 held=t1/1", "open w1 p2 held=t1/1" }, { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" },
	   { "taken t1/1 #1 pending", "" }, /* before the adoption, heard of after it: void */
	   { "hb p2 n=1 held=t1/1", "hback p2 n=1" });
}

static void test_answers_to_an_older_sessions_take_back_are_void(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "wait 10", "back t1/1 #1 lost counted; close p1 unavailable" },
	   { "hello p2 w1 slots=2 held=t1/1", "open w1 p2 held=t1/1" }, { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" },
	   { "hb p2 n=1", "hback p2 n=1; back t1/1 #2 unlisted" }, { "taken t1/1 #1 pending", "" },
	   { "taken t1/1 #2 pending", "preempt t1/2 w1#2" });
}

static void test_hello_is_a_sign_of_life(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "wait 9", "" }, { "hello p2 w1 slots=2 held=t1/1", "open w1 p2 held=t1/1" }, { "wait 5", "" },
	   { "opened p2 w1 #2 adopt=t1/1", "welcome p2 w1#2" }, { "wait 4.9", "" },
	   { "wait 0.1", "back t1/1 #2 lost counted; close p2 unavailable" });
}

static void test_own_claim_heard_of_after_the_row_was_re_stamped(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, { "hello p1 w1 enforce", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   { "ready t1", "preempt t1/1 w1#1" }, { "preempted t1 ok", "claim t1/1 w1#1" },
	   { "hello p2 w1 enforce inst=2", "open w1 p2" },
	   { "opened p2 w1 #2 wait=t1/1", "close p1 replaced; welcome p2 w1#2" }, { "claimed t1/1 won", "" },
	   { "hb p2 n=1", "hback p2 n=1" }, { "wait 10", "back t1/1 #2 lost counted; close p2 unavailable" });
}

static void test_second_hello_waits_and_the_first_is_replaced(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1", "open w1 p1" }, { "hello p2 w1", "close p1 replaced" }, { "hello p3 w1", "close p2 replaced" },
	   { "opened p1 w1 #1", "open w1 p3" }, { "bye p1", "" }, { "opened p3 w1 #2", "welcome p3 w1#2" });
}

static void test_stream_ends_while_its_session_opens(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 held=t1/1", "open w1 p1 held=t1/1" }, { "bye p1", "" }, { "opened p1 w1 #1 adopt=t1/1", "" },
	   { "wait 10", "back t1/1 #1 lost counted" });
}

static void test_store_away_at_hello(void **state)
{
	script_start(&S, NULL);
	GO({ "store down", "" }, { "hello p1 w1", "" }, { "bye p1", "" }, { "store up", "" }, { "hello p2 w1", "open w1 p2" },
	   { "opened p2 w1 away", "close p2 away" });
	struct core_counts n;
	core_counts(S.core, &n);
	assert_int_equal(n.workers, 0);
}

static void test_limits_of_hello(void **state)
{
	struct core_config cfg;
	core_config_default(&cfg);
	cfg.max_workers = 1;
	cfg.max_held = 2;
	cfg.max_queues = 2;
	script_start(&S, &cfg);
	GO({ "hello p1 w1 held=t1/1,t2/1,t3/1", "close p1 limit" }, { "hello p2 w1 q=a,b,c", "close p2 limit" },
	   { "hello p3 w1", "open w1 p3" }, { "hello p4 w2", "close p4 limit" }, { "hello p3 w1", "close p3 protocol" });
}

static void test_new_instance_exclusive_waits_for_the_old_lease(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, { "hello p1 w1 enforce", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" },
	   RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "wait 4", "" }, { "hello p2 w1 enforce inst=2", "open w1 p2" },
	   { "opened p2 w1 #2 wait=t1/1", "welcome p2 w1#2" }, { "hb p2 n=1", "hback p2 n=1" },
	   { "submit t2", "preempt t2/1 w1#2" }, { "wait 5.9", "" }, { "wait 0.1", "back t1/1 #2 lost counted" });
}

/* Another master held it before, and may go on renewing until it has noticed. */
static void test_new_instance_exclusive_waits_for_another_master(void **state)
{
	script_start(&S, NULL);
	GO({ "task t1 excl", "" }, { "hello p1 w1 enforce inst=2", "open w1 p1" },
	   { "opened p1 w1 #4 wait=t1/1", "welcome p1 w1#4" }, { "bye p1", "" }, { "wait 10", "" }, { "wait 119.9", "" },
	   { "wait 0.1", "back t1/1 #4 lost counted" });
}

/* ---- leases ---- */

static void test_lease_ends(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_RELEASE;
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "wait 5", "" }, { "hb p1 n=1 seen=1 held=t1/1", "hback p1 n=1" }, { "wait 9.9", "" },
	   { "wait 0.1", "release t1/1 w1; back t1/1 #1 lost counted; close p1 unavailable" },
	   { "taken t1/1 #1 pending", "" }, { "hello p2 w2", "open w2 p2" },
	   { "opened p2 w2 #1", "welcome p2 w2#1; preempt t1/2 w2#1" });
	struct core_counts n;
	core_counts(S.core, &n);
	assert_int_equal(n.workers, 1); /* w1 is forgotten */
}

static void test_each_attempt_has_its_own_lease(void **state)
{
	script_start(&S, NULL);
	GO({ "task t2 lease=60", "" }, WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "accepted p1 t1/1", "" }, RUNNING("t2"), { "inserted t2 created", "send t2/1 p1 n2" },
	   { "accepted p1 t2/1", "" }, { "bye p1", "" }, { "wait 10", "back t1/1 #1 lost counted" }, { "wait 49.9", "" },
	   { "wait 0.1", "back t2/1 #1 lost counted" });
}

static void test_deadline_is_exact(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" });
	int64_t end = S.now + 10 * NS_PER_S;
	bool lost = false;
	while (!lost) {
		int64_t at = core_next_deadline(S.core);
		assert_true(at > S.now && at <= end);
		S.now = at;
		lost = strstr(script_run(&S, "queues; due; wait 0"), "lost") != NULL;
	}
	assert_int_equal(S.now, end);
}

static void test_store_outage_begins_the_count_anew(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "wait 5", "" }, { "store down", "" }, { "wait 8", "" }, { "store up", "" }, { "wait 9.9", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted" });
}

static void test_short_store_outage_does_not(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "wait 5", "" }, { "store down", "" }, { "wait 0.9", "" }, { "store up", "" }, { "wait 4.0", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted" });
}

/* Nobody could judge it then: it is judged when the store is back, though nothing else happens. */
static void test_a_lease_that_ends_in_a_short_outage(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "wait 9.8", "" }, { "store down", "" }, { "wait 0.5", "" }, { "store up", "close p1 unavailable" });
	core_check(S.core);
}

static void test_a_stalled_loop_lengthens_leases(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" }, { "bye p1", "" },
	   { "wait 60; stalled 57", "" }, { "wait 6.9", "" }, { "wait 0.1", "back t1/1 #1 lost counted" });
}

static void test_in_process_worker_has_a_short_grace(void **state)
{
	script_start(&S, NULL);
	GO({ "task t2 excl", "" }, { "hello p1 w1 slots=2 inproc enforce", "open w1 p1" },
	   { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" },
	   { "accepted p1 t1/1", "" }, RUNNING("t2"), { "inserted t2 created", "send t2/1 p1 n2" },
	   { "accepted p1 t2/1", "" }, { "bye p1", "" }, { "wait 1", "back t1/1 #1 lost counted" }, { "wait 8.9", "" },
	   { "wait 0.1", "back t2/1 #1 lost counted" });
}

static void test_no_grace_when_many_streams_end(void **state)
{
	script_start(&S, NULL);
	GO({ "hello p1 w1 inproc", "open w1 p1" }, { "opened p1 w1 #1", "welcome p1 w1#1" }, RUNNING("t1"),
	   { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "hello p2 w2 inproc", "open w2 p2" }, { "opened p2 w2 #1", "welcome p2 w2#1" },
	   { "bye p1", "" }, { "bye p2", "" }, { "wait 1", "" }, { "wait 8.9", "" },
	   { "wait 0.1", "back t1/1 #1 lost counted" });
}

/* ---- the store ---- */

static void test_no_claims_while_the_store_is_away(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, { "store down", "" }, { "submit t1", "insert t1" }, { "inserted t1 failed", "" }, { "ready t2", "" },
	   { "store up", "preempt t2/1 w1#1" }, { "store down", "" }, { "preempted t2 ok", "" },
	   { "store up", "preempt t2/1 w1#1" });
}

static void test_take_back_is_asked_again(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "refused p1 t1/1", "back t1/1 #1 refused" },
	   { "store down", "" }, { "taken t1/1 #1 away", "" }, { "store up", "back t1/1 #1 refused" },
	   { "taken t1/1 #1 away", "" }, { "wait 2", "back t1/1 #1 refused" },
	   { "taken t1/1 #1 ended", "" }, { "store down", "" }, { "store up", "" });
}

static void test_cancel_wish(void **state)
{
	script_start(&S, NULL);
	GO(WORKER, RUNNING("t1"), { "inserted t1 created", "send t1/1 p1 n1" }, { "accepted p1 t1/1", "" },
	   { "cancel t1/1", "stop t1/1 p1 cancelled" }, { "cancel t9/1", "" },
	   /* the wish overtakes the answer of the claim: it is never sent */
	   { "ready t2", "preempt t2/1 w1#1" }, { "preempted t2 ok", "claim t2/1 w1#1" }, { "cancel t2/1", "" },
	   { "claimed t2/1 won", "back t2/1 #1 unsent" });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN(test_eager),
		RUN(test_eager_when_lease_table_is_down),
		RUN(test_eager_full_becomes_pending),
		RUN(test_eager_insert_fails_or_exists),
		RUN(test_submit_without_worker),
		RUN(test_submit_does_not_overtake),
		RUN(test_submit_of_higher_priority_overtakes),
		RUN(test_not_eager_behind_unread_backlog),
		RUN(test_delayed_submit),
		RUN(test_claim_lost),
		RUN(test_claim_unavailable_is_tried_again),
		RUN(test_dispatches_of_a_step_share_a_number),
		RUN(test_priority_then_turns_then_seq),
		RUN(test_least_used_worker_first),
		RUN(test_queues_and_resources),
		RUN(test_exclusive_only_where_the_lease_is_enforced),
		RUN(test_draining_takes_nothing),
		RUN(test_draining_after_preempt),
		RUN(test_claims_in_flight_are_bounded),
		RUN(test_large_specs_wait_until_the_worker_has_accepted),
		RUN(test_a_spec_larger_than_the_room_goes_alone),
		RUN(test_gone_leaves_the_window),
		RUN(test_refused),
		RUN(test_refused_goes_to_another),
		RUN(test_refused_by_all_rests_ever_longer),
		RUN(test_outcome),
		RUN(test_outcome_of_an_unknown_attempt_is_the_stores_to_judge),
		RUN(test_outcome_while_the_store_is_away),
		RUN(test_outcome_of_a_recalled_attempt),
		RUN(test_outcome_of_a_taken_back_attempt_unrecorded),
		RUN(test_outcome_unrecorded_and_the_worker_lost),
		RUN(test_ack_goes_to_the_newest_stream),
		RUN(test_retry_at_once),
		RUN(test_not_accepted_in_time),
		RUN(test_not_accepted_and_a_heartbeat_lacks_it),
		RUN(test_recalled_and_started_all_the_same),
		RUN(test_exclusive_is_recalled_when_the_worker_answers),
		RUN(test_exclusive_recall_ends_by_the_list),
		RUN(test_not_listed),
		RUN(test_an_outcome_in_flight_is_not_compared),
		RUN(test_listed_counts_as_accepted),
		RUN(test_unknown_is_fenced),
		RUN(test_heartbeat_of_a_replaced_stream_is_nothing),
		RUN(test_adopted),
		RUN(test_earlier_session_is_dropped),
		RUN(test_numbers_start_anew_with_the_session),
		RUN(test_claim_answered_after_the_session_ended), RUN(test_claim_that_finds_what_was_adopted),
		RUN(test_eager_insert_answered_after_the_stream_ended),
		RUN(test_preempt_answered_while_a_session_opens),
		RUN(test_taken_back_and_adopted_cross),
		RUN(test_answers_to_an_older_sessions_take_back_are_void),
		RUN(test_hello_is_a_sign_of_life),
		RUN(test_own_claim_heard_of_after_the_row_was_re_stamped),
		RUN(test_second_hello_waits_and_the_first_is_replaced),
		RUN(test_stream_ends_while_its_session_opens),
		RUN(test_store_away_at_hello),
		RUN(test_limits_of_hello),
		RUN(test_new_instance_exclusive_waits_for_the_old_lease),
		RUN(test_new_instance_exclusive_waits_for_another_master),
		RUN(test_lease_ends),
		RUN(test_each_attempt_has_its_own_lease),
		RUN(test_deadline_is_exact),
		RUN(test_store_outage_begins_the_count_anew),
		RUN(test_short_store_outage_does_not),
		RUN(test_a_lease_that_ends_in_a_short_outage),
		RUN(test_a_stalled_loop_lengthens_leases),
		RUN(test_in_process_worker_has_a_short_grace),
		RUN(test_no_grace_when_many_streams_end),
		RUN(test_no_claims_while_the_store_is_away),
		RUN(test_take_back_is_asked_again),
		RUN(test_cancel_wish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
