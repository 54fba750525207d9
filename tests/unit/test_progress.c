/* What is known of the progress of attempts whose streams have ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/rpc/progress.h"

static struct uuid task(size_t n)
{
	struct uuid u = { { 0 } };
	for (size_t i = 0; i < sizeof(n); i++)
		u.b[i] = (uint8_t)(n >> 8 * i);
	return u;
}

/* `n` attempts, the last task first; of task i 10 i bytes of log are stored. */
static void keep(struct progress *p, const char *worker, size_t n)
{
	struct progress_of *at = xcalloc(n + 1, sizeof(*at));
	for (size_t i = 0; i < n; i++)
		at[i] = (struct progress_of){ { task(n - i), 1 }, (int64_t)(10 * (n - i)), 1, 2 };
	progress_keep(p, worker, at, n);
}

static int64_t stored(const struct progress *p, const char *worker, size_t n, int32_t attempt)
{
	struct core_adopted a = { .task = { .id = task(n), .attempt = attempt } };
	progress_fill(p, worker, &a, 1);
	assert_int_equal(a.metrics_stored, a.log_stored ? 2 : 0);
	return a.log_stored;
}

static void kept_by_worker_and_attempt(void **state)
{
	struct progress p;
	progress_init(&p);
	keep(&p, "w1", 300);
	keep(&p, "w2", 1);
	assert_int_equal(stored(&p, "w1", 1, 1), 10);
	assert_int_equal(stored(&p, "w1", 300, 1), 3000);
	assert_int_equal(stored(&p, "w1", 301, 1), 0);
	assert_int_equal(stored(&p, "w1", 300, 2), 0);
	assert_int_equal(stored(&p, "w2", 300, 1), 0);
	/* Only the last stream counts. */
	keep(&p, "w1", 1);
	assert_int_equal(stored(&p, "w1", 300, 1), 0);
	assert_int_equal(p.n, 2);
	progress_drop(&p, "w1");
	assert_int_equal(stored(&p, "w1", 1, 1), 0);
	assert_int_equal(stored(&p, "w2", 1, 1), 10);
	progress_done(&p);
}

/* Workers may call themselves what they like: names without attempts are not kept, or nothing would bound them. */
static void nothing_to_keep(void **state)
{
	struct progress p;
	progress_init(&p);
	keep(&p, "w1", 3);
	keep(&p, "w1", 0);
	for (int i = 0; i < 100; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", i);
		keep(&p, name, 0);
	}
	assert_int_equal(p.by_worker.len, 0);
	assert_int_equal(p.n, 0);
	progress_done(&p);
}

static void the_oldest_make_room(void **state)
{
	struct progress p;
	progress_init(&p);
	keep(&p, "w1", 80000);
	keep(&p, "w2", 80000);
	keep(&p, "w1", 80000);
	assert_int_equal(p.n, 160000);
	keep(&p, "w3", 80000);
	assert_int_equal(stored(&p, "w2", 7, 1), 0);
	assert_int_equal(stored(&p, "w1", 7, 1), 70);
	assert_int_equal(stored(&p, "w3", 7, 1), 70);
	assert_int_equal(p.n, 160000);
	progress_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept_by_worker_and_attempt),
		cmocka_unit_test(nothing_to_keep),
		cmocka_unit_test(the_oldest_make_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
