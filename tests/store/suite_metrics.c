/* The suite's tests of metrics: points by number, counts, pages, and whose they are. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/rng.h"
#include "server/store/store_metrics.h"
#include "tests/store/suite_parts.h"

enum { LAST = 40 };

static struct store_metric item(int64_t number, const char *text)
{
	return (struct store_metric){number, {(const uint8_t *)text, strlen(text)}};
}

static bool put(struct core_attempt at, const char *worker, const struct store_metric *items, size_t n)
{
	struct store_metrics o = {.at = at, .worker = worker, .items = items, .n = n};
	run(&o.op, STORE_METRICS);
	return !o.ret_fenced;
}

static struct store_metrics_read read_after(struct core_attempt at, int64_t after, int32_t limit)
{
	struct store_metrics_read r = {.at = at, .after = after, .limit = limit};
	run(&r.op, STORE_METRICS_READ);
	return r;
}

static void check(const struct store_metric *m, int64_t number, const char *text)
{
	assert_int_equal(m->number, number);
	assert_int_equal(m->point.len, strlen(text));
	assert_memory_equal(m->point.data, text, strlen(text));
}

void metrics(void **state)
{
	struct core_task t;
	int64_t s = session("w-metric");
	struct core_attempt at = running(&t, "w-metric", s);
	const struct store_metric first[] = {item(1, "one"), item(2, "two"), item(0, "counts")};
	const struct store_metric more[] = {item(2, "TWO"), item(3, "three"), item(0, "counts anew")};
	assert_true(put(at, "w-metric", first, 3));
	assert_true(put(at, "w-metric", more, 3));
	struct store_metrics_read r = read_after(at, 0, 10);
	assert_int_equal(r.ret_n, 3);
	check(&r.ret_items[0], 1, "one");
	check(&r.ret_items[1], 2, "two");
	check(&r.ret_items[2], 3, "three");
	assert_int_equal(r.ret_counts.len, strlen("counts anew"));
	assert_memory_equal(r.ret_counts.data, "counts anew", r.ret_counts.len);
	store_op_done_fields(&r.op);

	/* Of others, nothing is taken. */
	const struct store_metric four = item(4, "four");
	assert_false(put(at, "other", &four, 1));
	assert_false(put((struct core_attempt){t.id, 2}, "w-metric", &four, 1));
	record(at, "w-metric", STORE_SUCCEEDED);
	assert_false(put(at, "w-metric", &four, 1));
	r = read_after(at, 2, 10);
	assert_int_equal(r.ret_n, 1);
	check(&r.ret_items[0], 3, "three");
	store_op_done_fields(&r.op);
	r = read_after((struct core_attempt){t.id, 2}, 0, 10);
	assert_int_equal(r.ret_n, 0);
	assert_int_equal(r.ret_counts.len, 0);
	store_op_done_fields(&r.op);
}

void metrics_pages(void **state)
{
	struct core_task t;
	int64_t s = session("w-pages");
	struct core_attempt at = running(&t, "w-pages", s);
	struct store_metric items[LAST];
	for (int i = 0; i < LAST; i++)
		items[i] = item(i + 1, "0123456789");
	assert_true(put(at, "w-pages", items, LAST));
	int64_t after = 0;
	for (size_t n = 7; n == 7;) {
		struct store_metrics_read r = read_after(at, after, 7);
		n = r.ret_n;
		for (size_t i = 0; i < n; i++)
			assert_int_equal(r.ret_items[i].number, ++after);
		store_op_done_fields(&r.op);
	}
	assert_int_equal(after, LAST);
	struct store_metrics_read r = {.at = at, .after = 10, .limit = 100, .max_bytes = 25};
	run(&r.op, STORE_METRICS_READ);
	assert_int_equal(r.ret_n, 3);
	assert_int_equal(r.ret_items[0].number, 11);
	store_op_done_fields(&r.op);
	r = (struct store_metrics_read){.at = at, .newest = true, .limit = 3};
	run(&r.op, STORE_METRICS_READ);
	assert_int_equal(r.ret_n, 3);
	assert_int_equal(r.ret_items[0].number, LAST);
	assert_int_equal(r.ret_items[2].number, LAST - 2);
	store_op_done_fields(&r.op);
	r.limit = 0;
	run(&r.op, STORE_METRICS_READ);
	assert_int_equal(r.ret_n, 0);
	store_op_done_fields(&r.op);
}

/* All on their way at once, of several attempts, some of them twice: each number is what was said first, the counts what was
 * said last. */
void metrics_at_once(void **state)
{
	enum { ATTEMPTS = 5, OPS = 200 };
	static struct store_metrics ops[OPS];
	static struct store_metric items[OPS][3];
	static char texts[OPS][3][24];
	struct core_attempt at[ATTEMPTS];
	int64_t numbers[ATTEMPTS] = {0};
	int last_op[ATTEMPTS];
	struct rng rng;
	rng_seed(&rng, 4711);
	int64_t s = session("w-once");
	for (int i = 0; i < ATTEMPTS; i++) {
		struct core_task t;
		at[i] = running(&t, "w-once", s);
	}
	for (int i = 0; i < OPS; i++) {
		size_t a = (size_t)i % ATTEMPTS;
		/* Some begin with the number that was last: said again, with other words. */
		int64_t from = numbers[a] + (numbers[a] && rng_below(&rng, 3) == 0 ? 0 : 1);
		for (int k = 0; k < 2; k++) {
			snprintf(texts[i][k], sizeof(texts[i][k]), "%d.%d", (int)a, (int)from + k);
			if (from + k <= numbers[a])
				snprintf(texts[i][k], sizeof(texts[i][k]), "again");
			items[i][k] = item(from + k, texts[i][k]);
		}
		snprintf(texts[i][2], sizeof(texts[i][2]), "op %d", i);
		items[i][2] = item(0, texts[i][2]);
		numbers[a] = from + 1;
		last_op[a] = i;
		ops[i] = (struct store_metrics){.at = at[a], .worker = "w-once", .items = items[i], .n = 3};
	}
	run_many(ops, OPS, sizeof(ops[0]), STORE_METRICS);
	for (int a = 0; a < ATTEMPTS; a++) {
		struct store_metrics_read r = read_after(at[a], 0, 1000);
		assert_int_equal(r.ret_n, numbers[a]);
		for (size_t i = 0; i < r.ret_n; i++) {
			char text[24];
			snprintf(text, sizeof(text), "%d.%d", a, (int)i + 1);
			check(&r.ret_items[i], (int64_t)i + 1, text);
		}
		assert_int_equal(r.ret_counts.len, strlen(texts[last_op[a]][2]));
		assert_memory_equal(r.ret_counts.data, texts[last_op[a]][2], r.ret_counts.len);
		store_op_done_fields(&r.op);
	}
}

/* A session that takes an attempt over learns where its points end. */
void metrics_of_adopted(void **state)
{
	struct core_task t;
	int64_t s = session("w-adopt");
	struct core_attempt at = running(&t, "w-adopt", s);
	const struct store_metric items[] = {item(1, "a"), item(2, "b"), item(0, "c")};
	assert_true(put(at, "w-adopt", items, 3));
	struct store_session_open o = session_open("w-adopt", 1, &at, 1);
	assert_int_equal(o.ret_n_adopted, 1);
	assert_int_equal(o.ret_adopted[0].metrics_stored, 2);
	store_op_done_fields(&o.op);
}
