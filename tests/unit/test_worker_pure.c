/* The worker's parts without I/O: the machine of an attempt, lease arithmetic, backoff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "worker/backoff.h"
#include "worker/launch_health.h"
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
	s = go(s, EVENT_EXIT, ACTION_NONE);
	s = go(s, EVENT_EMPTY, ACTION_REPORT);
	assert_false(attempt_state_holds_slot(s));
	s = go(s, EVENT_VERDICT, ACTION_FORGET);
	assert_int_equal(s, ATTEMPT_GONE);
}

/* The whole table once more, in words of its own: "state: event>next/action …"; what is not here is a hole. */
static const char *const machine_rows[ATTEMPT_STATES] = {
	[ATTEMPT_DISPATCHED] = "start>starting/spawn adopt>starting/none stop>gone/refuse recall>gone/refuse fenced>gone/forget",
	[ATTEMPT_STARTING] = "spawn-failed>gone/refuse exec-ok>running/started exec-failed>starting/launch-failed stop>stopping/term "
		"recall>starting/none stopping>stopping/none fenced>stopping/kill exit>clearing/none died>clearing/lost",
	[ATTEMPT_RUNNING] = "stop>stopping/term recall>running/none stopping>stopping/none fenced>stopping/kill exit>clearing/none "
		"died>clearing/lost",
	[ATTEMPT_STOPPING] = "exec-ok>stopping/started exec-failed>stopping/launch-failed stop>stopping/none recall>stopping/none "
		"stopping>stopping/none kill>stopping/kill fenced>stopping/kill exit>clearing/none died>clearing/lost",
	[ATTEMPT_CLEARING] = "stop>clearing/none recall>clearing/none kill>clearing/kill fenced>clearing/kill died>clearing/none "
		"empty>ended/report empty-fenced>gone/forget empty-own>gone/refuse",
	[ATTEMPT_ENDED] = "stop>ended/none recall>ended/none fenced>gone/forget verdict>gone/forget",
	[ATTEMPT_GONE] = "",
};

static void machine_table(void **state)
{
	static const char *const actions[] = {
		[ACTION_NONE] = "none", [ACTION_SPAWN] = "spawn", [ACTION_REFUSE] = "refuse", [ACTION_FORGET] = "forget",
		[ACTION_STARTED] = "started", [ACTION_LAUNCH_FAILED] = "launch-failed", [ACTION_TERM] = "term",
		[ACTION_KILL] = "kill", [ACTION_LOST] = "lost", [ACTION_REPORT] = "report",
	};
	for (int s = 0; s < ATTEMPT_STATES; s++) {
		char row[1024] = "";
		size_t len = 0;
		for (int e = 0; e < ATTEMPT_EVENTS; e++) {
			struct attempt_step step = attempt_step((enum attempt_state)s, (enum attempt_event)e);
			if (step.action == ACTION_ILLEGAL) {
				assert_int_equal(step.next, s);
				continue;
			}
			len += (size_t)snprintf(row + len, sizeof(row) - len, "%s%s>%s/%s", len ? " " : "",
				attempt_event_name((enum attempt_event)e), attempt_state_name(step.next), actions[step.action]);
		}
		assert_string_equal(row, machine_rows[s]);
	}
}

/* Whatever legal events come, an attempt that was fenced or stopped never runs again, one that was given to a supervisor
 * keeps its slot until its tree is empty, and every state but GONE takes a stop and a fence. */
static void machine_walks(void **state)
{
	struct rng rng;
	rng_seed(&rng, 42);
	for (int walk = 0; walk < 20000; walk++) {
		enum attempt_state s = ATTEMPT_DISPATCHED;
		bool given = false, stopping = false;
		for (int n = 0; n < 30 && s != ATTEMPT_GONE; n++) {
			assert_int_not_equal(attempt_step(s, EVENT_STOP).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_RECALL).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_FENCED).action, ACTION_ILLEGAL);
			enum attempt_event e = (enum attempt_event)rng_below(&rng, ATTEMPT_EVENTS);
			struct attempt_step step = attempt_step(s, e);
			if (step.action == ACTION_ILLEGAL)
				continue;
			assert_true(step.next >= s);
			stopping |= step.next == ATTEMPT_STOPPING;
			assert_false(stopping && step.next == ATTEMPT_RUNNING);
			if (given && attempt_state_holds_slot(s) && !attempt_state_holds_slot(step.next))
				assert_true(e == EVENT_EMPTY || e == EVENT_EMPTY_FENCED || e == EVENT_EMPTY_OWN || e == EVENT_SPAWN_FAILED);
			given |= e == EVENT_START || e == EVENT_ADOPT;
			s = step.next;
		}
	}
}

/* ---- launches that fail by the worker's own fault ---- */

static void launch_failures_in_a_row(void **state)
{
	struct launch_health h = {.limit = 3};
	int64_t now = 1000 * NS_PER_S;
	assert_false(launch_health_bad(&h, "no process", now));
	assert_false(launch_health_bad(&h, "no process", now));
	assert_null(launch_health_paused(&h, now));
	assert_false(launch_health_taken(&h));
	launch_health_good(&h); /* not in a row */
	for (int i = 0; i < 3; i++)
		assert_int_equal(launch_health_bad(&h, "no process", now), i == 2);
	assert_non_null(strstr(launch_health_paused(&h, now), "3 launches in a row"));
	assert_non_null(strstr(launch_health_paused(&h, now), "no process"));
	/* A single one is tried after a while. */
	now += LAUNCH_HEALTH_WAIT_NS;
	assert_null(launch_health_paused(&h, now));
	assert_true(launch_health_taken(&h));
	assert_non_null(launch_health_paused(&h, now));
	launch_health_trial_over(&h); /* it was cancelled before it was started */
	assert_null(launch_health_paused(&h, now));
	assert_true(launch_health_taken(&h));
	assert_false(launch_health_bad(&h, "still none", now));
	assert_non_null(strstr(launch_health_paused(&h, now + 1), "still none"));
	now += LAUNCH_HEALTH_WAIT_NS;
	assert_true(launch_health_taken(&h));
	launch_health_good(&h);
	assert_null(launch_health_paused(&h, now));
	assert_false(launch_health_taken(&h));
	h = (struct launch_health){.limit = 0};
	for (int i = 0; i < 100; i++)
		assert_false(launch_health_bad(&h, "x", now));
	assert_null(launch_health_paused(&h, now));
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

/* Spread over the whole range, and never outside. */
static void second_beats(void **state)
{
	struct rng rng;
	int low = 0, high = 0;
	rng_seed(&rng, 3);
	for (int i = 0; i < 1000; i++) {
		int64_t at = lease_second_beat_ns(&rng, 1000);
		assert_in_range(at, 250, 1000);
		low += at < 325;
		high += at > 925;
	}
	assert_in_range(low, 50, 200);
	assert_in_range(high, 50, 200);
	assert_in_range(lease_second_beat_ns(&rng, 1), 0, 1);
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
		cmocka_unit_test(machine_table),
		cmocka_unit_test(machine_walks),
		cmocka_unit_test(launch_failures_in_a_row),
		cmocka_unit_test(lease_numbers),
		cmocka_unit_test(second_beats),
		cmocka_unit_test(backoff_grows_and_resets),
		cmocka_unit_test(backoff_jitter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
