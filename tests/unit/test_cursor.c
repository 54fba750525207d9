/* Cursors against a naive model: which changes of which rows were read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/num.h"
#include "common/base/rng.h"
#include "server/rpc/cursor.h"

#define STORE "01234567-0000-4000-8000-000000000000"
#define STREAMS 6
#define ROWS 8
#define CHANGES 4

/* So many changes of this row were read. */
struct model {
	int64_t read[STREAMS + 1][ROWS + 1];
};

static struct rng rng;
static int64_t below(int64_t n) { return (int64_t)rng_below(&rng, (uint64_t)n); }

static void model_of(const struct cursor *c, struct model *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (int s = 1; s <= STREAMS; s++)
		for (int n = 1; n <= ROWS; n++)
			ret->read[s][n] = min_i64(cursor_read_of(c, s, n), CHANGES);
}

/* Streams below `known` are listed, or over. */
static void random_cursor(struct cursor *c)
{
	struct store_place at[STREAMS];
	struct store_events o = {.ret_at = at, .ret_known = below(STREAMS + 1)};
	for (int64_t s = 1; s <= o.ret_known; s++)
		if (below(3))
			at[o.ret_n_at++] = (struct store_place){s, below(ROWS + 1)};
	cursor_set(c, &o);
	if (below(2)) {
		int64_t s = 1 + below(STREAMS), n = 1 + below(ROWS);
		if (!cursor_read_of(c, s, n)) {
			c->part = (struct store_place){s, n};
			c->part_done = 1 + below(CHANGES - 1);
		}
	}
}

static void check_text(const struct cursor *c)
{
	char text[CURSOR_TEXT_MAX + 1];
	struct cursor same = {0};
	struct model a, b;
	cursor_format(c, STORE, text);
	assert_int_equal(cursor_parse(text, STORE, &same), 0);
	model_of(c, &a);
	model_of(&same, &b);
	assert_memory_equal(&a.read[1], &b.read[1], sizeof(a.read) - sizeof(a.read[0]));
	cursor_done(&same);
}

static void at_random(void **state)
{
	int64_t seed = (int64_t)(rng_process_next() % 1000000);
	const char *e = getenv("REINS_TEST_SEED");
	if (e && num_parse_i64(e, &seed) < 0)
		fail_msg("REINS_TEST_SEED");
	print_message("# seed %lld\n", (long long)seed);
	rng_seed(&rng, (uint64_t)seed);
	for (int i = 0; i < 20000; i++) {
		struct cursor a = {0}, b = {0}, c = {0};
		struct model x, y, z;
		random_cursor(&a);
		random_cursor(&b);
		check_text(&a);
		model_of(&a, &x);
		model_of(&b, &y);
		cursor_copy(&c, &a);
		cursor_min(&c, &b);
		model_of(&c, &z);
		/* Whole rows: both have them.  A row that was read in part may be read anew. */
		for (int s = 1; s <= STREAMS; s++)
			for (int n = 1; n <= ROWS; n++)
				assert_true(z.read[s][n] == CHANGES ? x.read[s][n] == CHANGES && y.read[s][n] == CHANGES
								   : z.read[s][n] == 0 && min_i64(x.read[s][n], y.read[s][n]) < CHANGES);
		cursor_copy(&c, &a);
		cursor_max(&c, &b);
		model_of(&c, &z);
		/* Whole rows: either has them.  Of two that were read in part one may be read anew, but none is left out. */
		int kept = 0, parts = 0;
		for (int s = 1; s <= STREAMS; s++)
			for (int n = 1; n <= ROWS; n++) {
				int64_t most = max_i64(x.read[s][n], y.read[s][n]);
				assert_true(z.read[s][n] <= most && (z.read[s][n] == CHANGES) == (most == CHANGES));
				parts += most && most < CHANGES;
				kept += z.read[s][n] && z.read[s][n] < CHANGES;
			}
		assert_int_equal(kept, parts > 0);
		int64_t s = 1 + below(STREAMS), n = 1 + below(ROWS);
		cursor_pass(&a, s, n);
		model_of(&a, &z);
		for (int k = 1; k <= STREAMS; k++)
			for (int m = 1; m <= ROWS; m++)
				assert_int_equal(z.read[k][m], k == s && m <= n ? CHANGES : x.read[k][m]);
		check_text(&a);
		cursor_done(&a);
		cursor_done(&b);
		cursor_done(&c);
	}
}

static void texts(void **state)
{
	struct cursor c = {0}, untouched = {0};
	char text[CURSOR_TEXT_MAX + 1];
	cursor_format(&c, STORE, text);
	assert_int_equal(cursor_parse(text, "11234567-0000-4000-8000-000000000000", &untouched), -ESTALE);
	static const char *const bad[] = {"", "x", "AAAA", "!!!!", "AQ", "ATAxMjM0NTY3"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(cursor_parse(bad[i], STORE, &untouched), -EINVAL);
	for (size_t cut = 1; cut < strlen(text); cut++) {
		char shorter[CURSOR_TEXT_MAX + 1];
		snprintf(shorter, sizeof(shorter), "%.*s", (int)(strlen(text) - cut), text);
		assert_int_equal(cursor_parse(shorter, STORE, &untouched), -EINVAL);
	}
	assert_null(untouched.at);
	/* The longest one fits. */
	struct store_place at[CURSOR_STREAMS_MAX];
	for (int i = 0; i < CURSOR_STREAMS_MAX; i++)
		at[i] = (struct store_place){(i + 1) * INT64_C(8000000), INT64_C(1) << 40};
	struct store_events o = {.ret_at = at, .ret_n_at = ARRAY_LEN(at), .ret_known = INT32_MAX};
	cursor_set(&c, &o);
	c.part = (struct store_place){INT32_MAX, INT64_MAX};
	c.part_done = 1000;
	assert_true(cursor_format(&c, STORE, text) < CURSOR_TEXT_MAX);
	check_text(&c);
	assert_int_equal(cursor_parse(text, STORE, &untouched), 0);
	assert_int_equal(untouched.n, CURSOR_STREAMS_MAX);
	assert_int_equal(untouched.at[CURSOR_STREAMS_MAX - 1].number, INT64_C(1) << 40);
	cursor_done(&untouched);
	cursor_done(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(at_random), cmocka_unit_test(texts)};
	return cmocka_run_group_tests_name("rpc/cursor", tests, NULL, NULL);
}
