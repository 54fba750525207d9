/* The load generator's own parts: a histogram that lies makes every figure a lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "tests/bench/hist.h"
#include "tests/bench/idset.h"
#include "tests/bench/procs.h"
#include "tests/bench/scan.h"

#define N 20000

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* Against sorted values: never below the true quantile, at most the stated error above. */
static void test_hist_error(void **state)
{
	static int64_t values[N];
	static struct hist h;
	const char *given = getenv("REINS_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : rng_process_next();
	struct rng r;
	print_message("# REINS_SEED=%llu\n", (unsigned long long)seed);
	rng_seed(&r, seed);
	hist_init(&h);
	for (size_t i = 0; i < N; i++) {
		values[i] = (int64_t)(rng_next(&r) >> (1 + rng_below(&r, 62)));
		hist_add(&h, values[i]);
	}
	qsort(values, N, sizeof(*values), by_value);
	for (int p = 1; p <= 1000; p++) {
		double q = p / 1000.0;
		size_t rank = (size_t)p * N / 1000;
		int64_t truth = values[rank - 1], got = hist_quantile(&h, q);
		assert_true(got >= truth);
		assert_true((double)(got - truth) <= (double)truth / HIST_SUB);
	}
	assert_int_equal(h.count, N);
	assert_int_equal(h.min, values[0]);
	assert_int_equal(h.max, values[N - 1]);
	assert_int_equal(hist_quantile(&h, 1), values[N - 1]);
}

static void test_hist_edges(void **state)
{
	static struct hist h;
	hist_init(&h);
	assert_int_equal(hist_quantile(&h, 0.5), 0);
	hist_add(&h, -5);
	hist_add(&h, INT64_MAX);
	assert_int_equal(h.min, 0);
	assert_int_equal(hist_quantile(&h, 0.5), 0);
	assert_int_equal(hist_quantile(&h, 1), INT64_MAX);
}

static void test_idset(void **state)
{
	struct idset s;
	struct idset_sums sums;
	struct uuid7_maker m = { 0 };
	struct uuid ids[3000];
	idset_init(&s, 10);
	for (size_t i = 0; i < 3000; i++) {
		ids[i] = uuid7_make(&m, 1700000000000000);
		idset_get(&s, &ids[i])->submits++;
	}
	for (size_t i = 0; i < 3000; i++) {
		struct idset_entry *e = idset_get(&s, &ids[i]);
		e->dispatches++;
		e->recorded = i == 7 ? 0 : i == 8 ? 2 : 1;
	}
	struct uuid other = uuid7_make(&m, 1700000000000000);
	idset_get(&s, &other)->dispatches = 2;
	idset_sum(&s, &sums);
	assert_int_equal(sums.submitted, 3000);
	assert_int_equal(sums.recorded, 2999);
	assert_int_equal(sums.unfinished, 1);
	assert_int_equal(sums.twice, 1);
	assert_int_equal(sums.again, 1);
	assert_int_equal(sums.unknown, 1);
	idset_done(&s);
}

static void test_scan(void **state)
{
	static const char text[] = "018bcfe5-6800-7000-8000-000000000001";
	uint8_t m[64] = { 1 << 3 | 2, UUID_TEXT_LEN };
	struct uuid id, want;
	struct scan_field f;
	int32_t attempt;
	memcpy(m + 2, text, UUID_TEXT_LEN);
	m[2 + UUID_TEXT_LEN] = 2 << 3;
	m[3 + UUID_TEXT_LEN] = 0xac;
	m[4 + UUID_TEXT_LEN] = 0x02;
	size_t len = 5 + UUID_TEXT_LEN;
	assert_int_equal(uuid_parse(text, UUID_TEXT_LEN, &want), 0);
	assert_int_equal(scan_attempt(m, len, &id, &attempt), 0);
	assert_true(uuid_eq(&id, &want));
	assert_int_equal(attempt, 300);
	assert_true(scan_find(m, len, 1, &f));
	assert_int_equal(f.len, UUID_TEXT_LEN);
	assert_false(scan_find(m, len, 3, &f));
	/* Cut anywhere it ends, and never reads on. */
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut + 1);
		memcpy(copy, m, cut);
		struct scan s = scan_of(copy, cut);
		while (scan_next(&s, &f))
			;
		assert_true(s.bad == (cut != 0 && cut != 2 + UUID_TEXT_LEN));
		free(copy);
	}
}

static void test_procs(void **state)
{
	struct procs p = { .n = 0 };
	struct procs_reading r;
	assert_int_equal(procs_add(&p, "nobody"), -EINVAL);
	assert_int_equal(procs_add(&p, "=5"), -EINVAL);
	assert_int_equal(procs_add(&p, "a=0"), -EINVAL);
	assert_int_equal(procs_add(&p, "a=x+"), -EINVAL);
	assert_int_equal(procs_add(&p, "pg=1+"), 0);
	assert_true(p.at[0].tree);
	assert_int_equal(p.at[0].pid, 1);
	procs_add_self(&p);
	procs_read(&p.at[1], &r);
	assert_true(r.rss_bytes > 100 * 1024);
	assert_int_equal(procs_rss(getpid()) > 100 * 1024, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hist_error), cmocka_unit_test(test_hist_edges), cmocka_unit_test(test_idset),
		cmocka_unit_test(test_scan),       cmocka_unit_test(test_procs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
