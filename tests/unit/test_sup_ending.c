/* Every state × event of a tree's end, and its deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/supervisor/ending.h"

enum { NOW = 1000, GRACE = 100 };

static struct ending in_state(enum ending_state state)
{
	struct ending e;
	ending_init(&e, GRACE);
	e.state = state;
	if (state == ENDING_TERM) {
		e.stopped_by = SUP_BY_AGENT;
		e.kill_boot_ns = NOW + 10 * GRACE;
	}
	return e;
}

/* What a stop with the job's grace does. */
static void each_state_and_event(void **state)
{
	enum { RUN = ENDING_RUN, TERM = ENDING_TERM, KILL = ENDING_KILL, DONE = ENDING_DONE };
	static const struct {
		int next[ENDING_STATES];
		enum sup_stopped_by by; /* where it is the first */
	} want[ENDING_EVENTS] = {
		[ENDING_STOP] = {{TERM, TERM, KILL, DONE}, SUP_BY_AGENT},
		[ENDING_SIGNAL] = {{TERM, TERM, KILL, DONE}, SUP_BY_SIGNAL},
		[ENDING_TIMEOUT] = {{TERM, TERM, KILL, DONE}, SUP_BY_TIMEOUT},
		[ENDING_ORPHAN] = {{TERM, TERM, KILL, DONE}, SUP_BY_ORPHAN},
		[ENDING_LEASE_TERM] = {{TERM, TERM, KILL, DONE}, SUP_BY_LEASE},
		[ENDING_LEASE_KILL] = {{KILL, KILL, KILL, DONE}, SUP_BY_LEASE},
		[ENDING_GRACE_OVER] = {{RUN, KILL, KILL, DONE}, SUP_NOT_STOPPED},
		[ENDING_FIRST_EXIT] = {{KILL, TERM, KILL, DONE}, SUP_NOT_STOPPED},
		[ENDING_EMPTY] = {{RUN, DONE, DONE, DONE}, SUP_NOT_STOPPED},
	};
	for (int s = 0; s < ENDING_STATES; s++)
		for (int ev = 0; ev < ENDING_EVENTS; ev++) {
			struct ending e = in_state((enum ending_state)s);
			enum sup_stopped_by before = e.stopped_by;
			enum ending_action a = ending_step(&e, (enum ending_event)ev, -1, NOW);
			assert_int_equal(e.state, want[ev].next[s]);
			assert_int_equal(e.stopped_by, s == RUN ? want[ev].by : before);
			bool moved = (int)e.state != s;
			assert_int_equal(a, !moved           ? ENDING_NOTHING
			                    : (int)e.state == TERM ? ENDING_SEND_TERM
			                    : (int)e.state == KILL ? ENDING_SEND_KILL
			                                      : ENDING_FINISH);
		}
}

static void graces(void **state)
{
	struct ending e = in_state(ENDING_RUN);
	assert_int_equal(ending_step(&e, ENDING_STOP, 0, NOW), ENDING_SEND_KILL);
	e = in_state(ENDING_RUN);
	ending_step(&e, ENDING_STOP, -1, NOW);
	assert_int_equal(ending_next(&e), NOW + GRACE);
	assert_int_equal(ending_due(&e, NOW + GRACE - 1), ENDING_EVENTS);
	assert_int_equal(ending_due(&e, NOW + GRACE), ENDING_GRACE_OVER);
	/* Quicker, never slower. */
	assert_int_equal(ending_step(&e, ENDING_STOP, 5 * GRACE, NOW), ENDING_NOTHING);
	assert_int_equal(ending_next(&e), NOW + GRACE);
	assert_int_equal(ending_step(&e, ENDING_SIGNAL, GRACE / 2, NOW), ENDING_NOTHING);
	assert_int_equal(ending_next(&e), NOW + GRACE / 2);
	assert_int_equal(ending_step(&e, ENDING_STOP, 0, NOW), ENDING_SEND_KILL);
	assert_int_equal(ending_next(&e), SUP_NEVER);
	/* For ever is no number that wraps. */
	e = in_state(ENDING_RUN);
	ending_step(&e, ENDING_STOP, INT64_MAX, NOW);
	assert_int_equal(ending_next(&e), SUP_NEVER);
}

static struct sup_deadlines lease(int64_t term, int64_t kill)
{
	return (struct sup_deadlines){.term_boot_ns = term, .kill_boot_ns = kill, .orphan_boot_ns = SUP_NEVER};
}

static void renewals(void **state)
{
	struct ending e = in_state(ENDING_RUN);
	struct sup_deadlines d = lease(NOW, NOW + GRACE);
	ending_renew(&e, &d);
	assert_int_equal(ending_due(&e, NOW - 1), ENDING_EVENTS);
	d = lease(NOW + 50, NOW + 50 + GRACE);
	ending_renew(&e, &d);
	assert_int_equal(ending_due(&e, NOW + 49), ENDING_EVENTS);
	assert_int_equal(ending_next(&e), NOW + 50);
	assert_int_equal(ending_due(&e, NOW + 50), ENDING_LEASE_TERM);
	assert_int_equal(ending_step(&e, ENDING_LEASE_TERM, -1, NOW + 50), ENDING_SEND_TERM);
	/* Begun: later does not count, earlier does. */
	d = lease(SUP_NEVER, SUP_NEVER);
	ending_renew(&e, &d);
	assert_int_equal(ending_next(&e), NOW + 50 + GRACE);
	d = lease(NOW, NOW + 60);
	ending_renew(&e, &d);
	assert_int_equal(ending_next(&e), NOW + 60);
	assert_int_equal(ending_due(&e, NOW + 60), ENDING_GRACE_OVER);
}

/* A stop with a long grace of an exclusive task: the lease's kill bounds it, and moves only until its SIGTERM is due. */
static void lease_during_another_stop(void **state)
{
	struct ending e = in_state(ENDING_RUN);
	struct sup_deadlines d = lease(NOW + 50, NOW + 60);
	ending_renew(&e, &d);
	ending_step(&e, ENDING_STOP, 1000 * GRACE, NOW);
	assert_int_equal(e.state, ENDING_TERM);
	d = lease(NOW + 70, NOW + 80);
	ending_renew(&e, &d);
	assert_int_equal(ending_next(&e), NOW + 70);
	assert_int_equal(ending_due(&e, NOW + 70), ENDING_LEASE_TERM);
	assert_int_equal(ending_step(&e, ENDING_LEASE_TERM, -1, NOW + 70), ENDING_NOTHING);
	d = lease(SUP_NEVER, SUP_NEVER);
	ending_renew(&e, &d);
	assert_int_equal(ending_due(&e, NOW + 79), ENDING_EVENTS);
	assert_int_equal(ending_due(&e, NOW + 80) == ENDING_LEASE_KILL || ending_due(&e, NOW + 80) == ENDING_GRACE_OVER, 1);
	assert_int_equal(e.stopped_by, SUP_BY_AGENT);
}

static void kill_that_is_due_at_once(void **state)
{
	/* The machine slept over both. */
	struct ending e = in_state(ENDING_RUN);
	struct sup_deadlines d = lease(NOW - 2, NOW - 1);
	ending_renew(&e, &d);
	assert_int_equal(ending_due(&e, NOW), ENDING_LEASE_KILL);
	assert_int_equal(ending_step(&e, ENDING_LEASE_KILL, -1, NOW), ENDING_SEND_KILL);
	assert_int_equal(e.stopped_by, SUP_BY_LEASE);
	/* A stop that comes before the deadline is looked at. */
	e = in_state(ENDING_RUN);
	ending_renew(&e, &d);
	assert_int_equal(ending_step(&e, ENDING_STOP, GRACE, NOW), ENDING_SEND_KILL);
}

static void orphans_and_timeouts(void **state)
{
	struct ending e = in_state(ENDING_RUN);
	e.deadlines.orphan_boot_ns = NOW;
	assert_int_equal(ending_due(&e, NOW), ENDING_EVENTS);
	assert_int_equal(ending_next(&e), SUP_NEVER);
	e.connected = false;
	assert_int_equal(ending_next(&e), NOW);
	assert_int_equal(ending_due(&e, NOW), ENDING_ORPHAN);
	e.timeout_boot_ns = NOW - 1;
	assert_int_equal(ending_due(&e, NOW), ENDING_TIMEOUT);
	assert_int_equal(ending_step(&e, ENDING_TIMEOUT, -1, NOW), ENDING_SEND_TERM);
	assert_int_equal(ending_due(&e, NOW), ENDING_EVENTS);
	assert_int_equal(ending_next(&e), NOW + GRACE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_and_event),
		cmocka_unit_test(graces),
		cmocka_unit_test(renewals),
		cmocka_unit_test(lease_during_another_stop),
		cmocka_unit_test(kill_that_is_due_at_once),
		cmocka_unit_test(orphans_and_timeouts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
