/* The worker's parts without I/O: the machine of an attempt, lease arithmetic, backoff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "worker/backoff.h"
#include "worker/lease.h"
#include "worker/machine.h"

/* ---- machine ---- */

static enum attempt_state go(enum attempt_state from, enum attempt_event event, enum attempt_action action)
{
	struct attempt_step step = attempt_step(from, event);
	assert_int_equal(step.action, action);
	return step.next;
}

static void machine_life(void **state)
{
	enum attempt_state s = ATTEMPT_DISPATCHED;
	s = go(s, EVENT_START, ACTION_SPAWN);
	s = go(s, EVENT_EXEC_OK, ACTION_STARTED);
	s = go(s, EVENT_EXIT, ACTION_CLEAR);
	s = go(s, EVENT_EMPTY, ACTION_REPORT);
	assert_false(attempt_state_holds_slot(s));
	s = go(s, EVENT_VERDICT, ACTION_FORGET);
	assert_int_equal(s, ATTEMPT_GONE);
}

static void machine_stops(void **state)
{
	static const enum attempt_event stops[] = {EVENT_STOP, EVENT_TIMEOUT, EVENT_LEASE};
	for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
		enum attempt_state s = go(ATTEMPT_RUNNING, stops[i], ACTION_TERM);
		assert_int_equal(s, ATTEMPT_STOPPING);
		/* A stop once begun goes on whatever arrives. */
		for (size_t k = 0; k < ARRAY_LEN(stops); k++)
			assert_int_equal(go(s, stops[k], ACTION_NONE), ATTEMPT_STOPPING);
		s = go(s, EVENT_KILL, ACTION_KILL);
		s = go(s, EVENT_EXIT, ACTION_CLEAR);
		assert_int_equal(s, ATTEMPT_CLEARING);
		assert_int_equal(go(s, EVENT_STOP, ACTION_NONE), ATTEMPT_CLEARING);
	}
	assert_int_equal(go(ATTEMPT_RUNNING, EVENT_RECALL, ACTION_NONE), ATTEMPT_RUNNING);
	assert_int_equal(go(ATTEMPT_DISPATCHED, EVENT_RECALL, ACTION_REFUSE), ATTEMPT_GONE);
	assert_int_equal(go(ATTEMPT_DISPATCHED, EVENT_LEASE, ACTION_NONE), ATTEMPT_DISPATCHED);
}

/* Whatever legal events come, an attempt that was fenced or stopped never runs again, one that was spawned is cleared
 * before its slot is free, and every state but GONE takes a stop and a fence. */
static void machine_walks(void **state)
{
	struct rng rng;
	rng_seed(&rng, 42);
	for (int walk = 0; walk < 20000; walk++) {
		enum attempt_state s = ATTEMPT_DISPATCHED;
		bool spawned = false, cleared = false, stopping = false;
		for (int n = 0; n < 30 && s != ATTEMPT_GONE; n++) {
			assert_int_not_equal(attempt_step(s, EVENT_STOP).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_RECALL).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_FENCED).action, ACTION_ILLEGAL);
			enum attempt_event e = (enum attempt_event)rng_below(&rng, ATTEMPT_EVENTS);
			struct attempt_step step = attempt_step(s, e);
			if (step.action == ACTION_ILLEGAL) {
				assert_int_equal(step.next, s);
				continue;
			}
			assert_true(step.next >= s);
			spawned |= step.action == ACTION_SPAWN;
			cleared |= step.action == ACTION_CLEAR || e == EVENT_SPAWN_FAILED;
			stopping |= step.next == ATTEMPT_STOPPING;
			assert_false(stopping && step.next == ATTEMPT_RUNNING);
			if (spawned && !attempt_state_holds_slot(step.next))
				assert_true(cleared);
			s = step.next;
		}
	}
}

/* ---- lease ---- */

static void lease_numbers(void **state)
{
	struct lease_rule r;
	lease_rule_set(&r, 10 * NS_PER_S, 10 * NS_PER_S);
	assert_int_equal(r.margin_ns, NS_PER_S);
	assert_int_equal(r.grace_ns, 3 * NS_PER_S);
	int64_t s = 100 * NS_PER_S;
	assert_int_equal(lease_term_due(&r, s), 106 * NS_PER_S);
	assert_int_equal(lease_kill_due(&r, s), 109 * NS_PER_S);
	assert_true(lease_may_start(&r, s, 106 * NS_PER_S - 1));
	assert_false(lease_may_start(&r, s, 106 * NS_PER_S));
	assert_false(lease_may_start(&r, LEASE_NEVER, 0));
	assert_true(lease_term_due(&r, LEASE_NEVER) == LEASE_NEVER);
	lease_rule_set(&r, 10 * NS_PER_S, NS_PER_S); /* a short grace is not lengthened */
	assert_int_equal(lease_term_due(&r, s), 108 * NS_PER_S);
	/* Live with the defaults: H + two ack timeouts + G + m <= L. */
	int64_t ack = lease_ack_timeout_ns(10 * NS_PER_S, 2 * NS_PER_S);
	assert_int_equal(ack, 2 * NS_PER_S);
	assert_true(2 * NS_PER_S + 2 * ack + 3 * NS_PER_S + NS_PER_S <= 10 * NS_PER_S);
	assert_int_equal(lease_ack_timeout_ns(NS_PER_S, NS_PER_S), 50 * NS_PER_MS);
}

/* ---- backoff ---- */

static void backoff_grows_and_resets(void **state)
{
	struct backoff b;
	backoff_init(&b, 100, 1000, 7);
	static const int64_t bounds[] = {100, 200, 400, 800, 1000, 1000};
	for (int round = 0; round < 200; round++) {
		int64_t seen = 0;
		for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
			assert_int_equal(b.bound_ns, bounds[i]);
			int64_t wait = backoff_next(&b);
			assert_in_range(wait, 0, bounds[i]);
			seen = max_i64(seen, wait);
		}
		assert_true(seen > 0);
		backoff_reset(&b);
	}
	backoff_set_max(&b, 50); /* not below the first */
	assert_int_equal(b.max_ns, 100);
	backoff_set_max(&b, 5000);
	backoff_to_max(&b);
	assert_int_equal(b.bound_ns, 5000);
}

/* Full jitter: waits are spread over the whole range. */
static void backoff_jitter(void **state)
{
	struct backoff b;
	int low = 0, high = 0;
	backoff_init(&b, 1000, 1000, 1);
	for (int i = 0; i < 1000; i++) {
		int64_t w = backoff_next(&b);
		low += w < 100;
		high += w > 900;
	}
	assert_in_range(low, 50, 200);
	assert_in_range(high, 50, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_life),
		cmocka_unit_test(machine_stops),
		cmocka_unit_test(machine_walks),
		cmocka_unit_test(lease_numbers),
		cmocka_unit_test(backoff_grows_and_resets),
		cmocka_unit_test(backoff_jitter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
