/* The scheduler core: the largest values that clients and the store may hand it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/core_script.h"
#include "server/core/core_view.h"

static struct script S;

static int done(void **state)
{
	script_done(&S);
	return 0;
}

/* What is due in centuries: as long a delay as the type holds must not come round to the past, where it would be asked
 * for again and again. */
static void test_due_farther_than_time_goes(void **state)
{
	script_start(&S, NULL);
	const struct core_event far[] = {
		{ .type = CORE_EV_INSERTED, .inserted = CORE_INSERT_CREATED, .due_in_ns = INT64_MAX, .task.queue = "a" },
		{ .type = CORE_EV_DUE, .due = { .ok = true, .next_in_ns = INT64_MAX } },
	};
	for (size_t i = 0; i < ARRAY_LEN(far); i++) {
		core_step(S.core, S.now, &far[i], 1, &S.out);
		assert_int_equal(S.out.n, 0);
		assert_true(core_next_deadline(S.core) > S.now);
	}
}

/* Each may ask for the most that is allowed, of what nobody counts and of what is there. */
static void test_sums_of_large_needs(void **state)
{
	static const struct core_task most = {
		.queue = "a", .need = { .memory_bytes = INT64_C(1) << 48, .cpu_millis = 1000000000 },
	};
	script_start(&S, NULL);
	script_run(&S, "hello p1 w1 slots=5 mem=2000000000000000");
	script_run(&S, "opened p1 w1 #1");
	struct core_event ev[5];
	struct blob *spec = blob_new("", 0);
	for (size_t i = 0; i < ARRAY_LEN(ev); i++) {
		ev[i] = (struct core_event){ .type = CORE_EV_SUBMIT, .token = 1 + i, .task = most, .spec = spec };
		ev[i].task.id.b[0] = ev[i].at.task.b[0] = (uint8_t)(1 + i);
	}
	core_step(S.core, S.now, ev, ARRAY_LEN(ev), &S.out);
	core_check(S.core);
	assert_int_equal(S.out.n, ARRAY_LEN(ev));
	assert_int_equal(S.out.at[4].type, CORE_DO_PREEMPT);
	blob_unref(spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_due_farther_than_time_goes, done),
		cmocka_unit_test_teardown(test_sums_of_large_needs, done),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
