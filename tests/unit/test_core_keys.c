/* RunningTaskRecovery, the keys' half: what the lease table has against what runs.  Lease 10 s, recovery interval 5 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"

static struct script S;

#define SAYS(line, words) assert_string_equal(script_run(&S, line), words)

static int start(void **state)
{
	script_start(&S, NULL);
	S.show = SHOW_KEYS;
	return 0;
}

static int done(void **state)
{
	script_done(&S);
	return 0;
}

/* A round that finds nothing, and the 5 s until the next one. */
static void empty_round(void)
{
	SAYS("keys", "");
	SAYS("wait 4.9", "");
	SAYS("wait 0.1", "keys from 0");
}

static void test_rounds(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("wait 20", ""); /* one question at a time */
	SAYS("keys", "");
	SAYS("wait 0.25", "keys from 0");
	for (int i = 0; i < 10; i++)
		empty_round();
}

static void test_without_a_row(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys w1#3:t1/1 w2#1:t2/1 w9#1:t3/4", "runs w1#3:t1/1 w2#1:t2/1 w9#1:t3/4");
	SAYS("wait 20", "");
	SAYS("runs w1#3:t1/1=yes w2#1:t2/1=no w9#1:t3/4=no", "disown t2/1 w2#1; disown t3/4 w9#1");
	SAYS("wait 0.25", "keys from 0");
}

static void test_hashes(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys w1 w2#1:t2/1 w5", "drop hash w1; drop hash w5; runs w2#1:t2/1");
}

/* What runs here needs no question; what this core only has a slot taken for does. */
static void test_held(void **state)
{
	script_run(&S, "hello p1 w1 slots=3 held=t1/1,t2/1");
	script_run(&S, "opened p1 w1 #4 adopt=t1/1 fence=t2/1");
	SAYS("wait 0.01", "keys from 0");
	/* The key of the older session is the next beat's to write anew; that of another worker is nobody's. */
	SAYS("keys w1#4:t1/1 w1#3:t1/1 w1#4:t2/1 w2#9:t1/1", "runs w1#4:t2/1 w2#9:t1/1");
	SAYS("runs w1#4:t2/1=no w2#9:t1/1=no", "disown t2/1 w1#4; disown t1/1 w2#9");
}

/* While a claim is on its way its slot is in the hash, with an hb; there is no owner key to be judged. */
static void test_claim_on_its_way(void **state)
{
	S.show = SHOW_KEYS | SHOW_OWN | SHOW_BEAT;
	script_run(&S, "hello p1 w1 slots=3; opened p1 w1 #4");
	SAYS("submit t1", "preempt t1/1 w1#4");
	SAYS("preempted t1/1 ok", "insert t1 @w1#4");
	SAYS("hb p1 n=1", "hback p1 n=1; beat w1 slots=t1/1");
	SAYS("inserted t1 created", "own t1/1 w1; send t1/1 p1 n1");
	SAYS("hb p1 n=2 seen=0", "hback p1 n=2; beat w1 held=t1/1");
}

/* The pages of a round: quickly while keys without a row are to be expected, else few in a recovery interval. */
static void test_pages(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys next=7", "");
	SAYS("wait 0.005", "");
	SAYS("wait 0.005", "keys from 7");
	SAYS("keys w1#1:t1/1 next=3", "runs w1#1:t1/1");
	SAYS("runs w1#1:t1/1=no next=3", "disown t1/1 w1#1");
	SAYS("wait 0.01", "keys from 3");
	SAYS("keys", "");
	SAYS("wait 4.97", "");
	SAYS("wait 0.02", "keys from 0");
	for (int i = 0; i < 2; i++)
		empty_round();
	/* A lease and a recovery interval after the start. */
	SAYS("keys next=7", "");
	SAYS("wait 0.24", "");
	SAYS("wait 0.01", "keys from 7");
	SAYS("keys", "");
	SAYS("wait 4.74", "");
	SAYS("wait 0.01", "keys from 0");
}

/* Of a round that takes longer than the interval the next one begins where it ends. */
static void test_long_round(void **state)
{
	SAYS("wait 20", "keys from 0");
	for (int i = 0; i < 60; i++) {
		SAYS("keys next=7", "");
		SAYS("wait 0.24", "");
		SAYS("wait 0.01", "keys from 7");
	}
	SAYS("keys", "");
	SAYS("wait 0.25", "keys from 0");
}

static void test_table_away(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys next=7", "");
	SAYS("lease down", "");
	SAYS("wait 30", "");
	SAYS("lease up", "");
	SAYS("wait 0.01", "keys from 7");
	SAYS("keys away", ""); /* the round is void */
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys away", "");
	SAYS("wait 4.9", "");
	SAYS("wait 0.1", "keys from 0");
	SAYS("keys w1#1:t1/1 next=9", "runs w1#1:t1/1");
	SAYS("lease down; runs w1#1:t1/1=no next=9", "disown t1/1 w1#1");
	SAYS("wait 30", "");
	SAYS("lease up", "");
	SAYS("wait 0.01", "keys from 9");
}

static void test_store_away(void **state)
{
	SAYS("wait 0.01", "keys from 0");
	SAYS("keys w1#1:t1/1 next=7", "runs w1#1:t1/1");
	SAYS("store down; runs w1#1:t1/1=no away", ""); /* nothing is said of anybody */
	SAYS("wait 30", "");
	SAYS("store up", "");
	SAYS("wait 0.01", "keys from 0");
}

/* However often a reason comes, one round in a recovery interval. */
static void test_reasons(void **state)
{
	SAYS("wait 30", "keys from 0");
	SAYS("keys", "");
	for (int i = 0; i < 4; i++)
		SAYS("lease down; lease up; wait 1", "");
	SAYS("wait 1", "keys from 0");
	SAYS("keys next=7", "");
	SAYS("wait 0.01", "keys from 7"); /* busy */
	SAYS("keys", "");
	script_run(&S, "wait 30");
	SAYS("keys next=7", "");
	SAYS("wait 0.01", "");
	/* In the middle of a round too. */
	script_run(&S, "hello p1 w1; opened p1 w1 #1");
	SAYS("wait 0.24", "keys from 7");
}

/* What a new session is without loses its owner key at once: no beat would. */
static void test_left_out(void **state)
{
	S.show = SHOW_RELEASE | SHOW_BEAT;
	script_run(&S, "hello p1 w1 slots=3 held=t1/1,t2/1");
	script_run(&S, "opened p1 w1 #4 adopt=t1/1,t2/1");
	script_run(&S, "hello p2 w1 slots=3 held=t2/1");
	SAYS("opened p2 w1 #5 adopt=t2/1", "close p1 replaced; welcome p2 w1#5; release t1/1 w1; beat w1 held=t2/1");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, done)
	const struct CMUnitTest tests[] = {
		T(test_rounds), T(test_without_a_row), T(test_hashes), T(test_held), T(test_claim_on_its_way), T(test_pages),
		T(test_long_round), T(test_table_away), T(test_store_away), T(test_reasons), T(test_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
