/* The base library: each structure against a naive one with random input; parsers by table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/availability.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/base/histogram.h"
#include "common/base/id.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/num.h"
#include "common/base/rng.h"

#define N 500

struct item {
	struct heap_node heap;
	struct map_node map;
	struct list list;
	uint64_t key;
	bool in;
};

static bool less(const struct heap_node *a, const struct heap_node *b)
{
	return container_of((struct heap_node *)(uintptr_t)a, struct item, heap)->key <
	       container_of((struct heap_node *)(uintptr_t)b, struct item, heap)->key;
}

static struct rng seeded(void)
{
	const char *given = getenv("REINS_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : rng_process_next();
	print_message("# REINS_SEED=%llu\n", (unsigned long long)seed);
	struct rng r;
	rng_seed(&r, seed);
	return r;
}

static void test_us_to_ns_saturates(void **state)
{
	assert_int_equal(us_to_ns(-7), -7000);
	assert_int_equal(us_to_ns(INT64_MAX / 1000), INT64_MAX / 1000 * 1000);
	assert_int_equal(us_to_ns(INT64_MAX / 1000 + 1), INT64_MAX);
	assert_int_equal(us_to_ns(INT64_MIN), INT64_MIN);
}

static void test_heap(void **state)
{
	static struct item items[N];
	struct rng r = seeded();
	struct heap h;
	heap_init(&h, less);
	for (size_t i = 0; i < N; i++)
		heap_node_init(&items[i].heap);
	for (int step = 0; step < 20000; step++) {
		struct item *it = &items[rng_below(&r, N)];
		if (!heap_has(&it->heap)) {
			it->key = rng_below(&r, 1000);
			heap_push(&h, &it->heap);
		} else if (rng_below(&r, 2)) {
			it->key = rng_below(&r, 1000);
			heap_update(&h, &it->heap);
		} else {
			heap_remove(&h, &it->heap);
		}
		uint64_t smallest = UINT64_MAX;
		size_t n = 0;
		for (size_t i = 0; i < N; i++)
			if (heap_has(&items[i].heap)) {
				n++;
				smallest = items[i].key < smallest ? items[i].key : smallest;
			}
		assert_int_equal(h.len, n);
		if (n)
			assert_true(container_of(heap_top(&h), struct item, heap)->key == smallest);
		else
			assert_null(heap_top(&h));
	}
	heap_done(&h);
}

static void test_map(void **state)
{
	static struct item items[N];
	struct rng r = seeded();
	struct map m;
	map_init(&m);
	for (size_t i = 0; i < N; i++)
		items[i].key = i * 7919;
	size_t n = 0;
	for (int step = 0; step < 50000; step++) {
		struct item *it = &items[rng_below(&r, N)];
		struct map_node *found = map_get(&m, &it->key, sizeof(it->key));
		assert_ptr_equal(found, it->in ? &it->map : NULL);
		if (it->in) {
			map_remove(&m, &it->map);
			n--;
		} else {
			map_put(&m, &it->map, &it->key, sizeof(it->key));
			n++;
		}
		it->in = !it->in;
		assert_int_equal(m.len, n);
	}
	size_t seen = 0;
	for (struct map_node *e = map_first(&m), *next; e; e = next) {
		next = map_next(&m, e);
		map_remove(&m, e); /* allowed while walking */
		seen++;
	}
	assert_int_equal(seen, n);
	map_done(&m);
}

static void test_list(void **state)
{
	struct item a, b, c;
	struct list l, other;
	list_init(&l);
	list_init(&other);
	list_push_back(&l, &b.list);
	list_push_front(&l, &a.list);
	list_push_back(&other, &c.list);
	list_splice_back(&l, &other);
	assert_true(list_empty(&other));
	assert_ptr_equal(list_pop_front(&l), &a.list);
	list_remove(&a.list); /* harmless on no list */
	list_each(it, &l)
		if (it == &b.list)
			list_remove(it);
	assert_ptr_equal(list_pop_front(&l), &c.list);
	assert_null(list_pop_front(&l));
}

static void test_buf(void **state)
{
	struct rng r = seeded();
	static uint8_t model[4096];
	size_t len = 0, next = 0, taken = 0;
	struct buf b;
	buf_init(&b, sizeof(model));
	for (int step = 0; step < 20000; step++) {
		size_t n = rng_below(&r, 300);
		if (rng_below(&r, 2)) {
			uint8_t data[300];
			for (size_t i = 0; i < n; i++)
				data[i] = (uint8_t)(next + i);
			int rc = buf_add(&b, data, n);
			assert_int_equal(rc, len + n > sizeof(model) ? -ENOBUFS : 0);
			if (rc == 0) {
				len += n;
				next += n;
			}
		} else {
			n = min_sz(n, len);
			for (size_t i = 0; i < n; i++)
				assert_int_equal(buf_head(&b)[i], (uint8_t)(taken + i));
			buf_consume(&b, n);
			len -= n;
			taken += n;
		}
		assert_int_equal(buf_len(&b), len);
	}
	buf_clear(&b);
	assert_int_equal(buf_addf(&b, "%s-%d", "x", 7), 0);
	assert_memory_equal(buf_head(&b), "x-7", 3);
	assert_null(buf_reserve(&b, SIZE_MAX));
	buf_done(&b);
}

static void test_ids(void **state)
{
	struct uuid7_maker m = { .last_ms = 0 };
	struct uuid last = uuid7_make(&m, 1000000), u;
	/* Grows when time stands, when it steps back, and over the counter's end. */
	for (int i = 0; i < 300000; i++) {
		u = uuid7_make(&m, i == 1000 ? 1 : 1000000 + i);
		assert_true(uuid_cmp(&last, &u) < 0);
		assert_int_equal(u.b[6] >> 4, 7);
		assert_int_equal(u.b[8] >> 6, 2);
		last = u;
	}
	char text[UUID_TEXT_LEN + 1];
	uuid_format(&u, text);
	struct uuid back;
	assert_int_equal(uuid_parse(text, UUID_TEXT_LEN, &back), 0);
	assert_true(uuid_eq(&u, &back));
	for (int i = 0; i < UUID_TEXT_LEN; i++) {
		char bad[UUID_TEXT_LEN + 1];
		memcpy(bad, text, sizeof(bad));
		bad[i] = 'g';
		assert_int_equal(uuid_parse(bad, UUID_TEXT_LEN, &back), -EINVAL);
	}
	assert_int_equal(uuid_parse(text, UUID_TEXT_LEN - 1, &back), -EINVAL);
	u = uuid7_make(&(struct uuid7_maker){ .last_ms = 0 }, 1764500000123456);
	assert_true(uuid7_wall_us(&u) == 1764500000123000);
}

static const struct {
	const char *text;
	int rc;
	int64_t value;
} durations[] = {
	{ "0", 0, 0 }, { "2s", 0, 2 * NS_PER_S }, { "1.5m", 0, 90 * NS_PER_S }, { "0.1s", 0, 100 * NS_PER_MS },
	{ "150ms", 0, 150 * NS_PER_MS }, { "7d", 0, 7 * 86400 * NS_PER_S }, { "10us", 0, 10000 }, { "3ns", 0, 3 },
	{ "", -EINVAL, 0 }, { "2", -EINVAL, 0 }, { "s", -EINVAL, 0 }, { "-1s", -EINVAL, 0 }, { " 1s", -EINVAL, 0 },
	{ "1s ", -EINVAL, 0 }, { "1.s", -EINVAL, 0 }, { "1..2s", -EINVAL, 0 }, { "1e3s", -EINVAL, 0 },
	{ "99999999999999999999s", -ERANGE, 0 }, { "300000000000d", -ERANGE, 0 }, { "1S", -EINVAL, 0 },
}, sizes[] = {
	{ "0", 0, 0 }, { "65536", 0, 65536 }, { "64KiB", 0, 65536 }, { "1.5K", 0, 1536 }, { "4MiB", 0, 4 << 20 }, { "1G", 0, 1 << 30 },
	{ "2TiB", 0, INT64_C(2) << 40 }, { "9B", 0, 9 }, { "1kB", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "8000000T", 0, INT64_C(8000000) << 40 },
	{ "9000000000T", -ERANGE, 0 }, { "0x10", -EINVAL, 0 },
}, integers[] = {
	{ "0", 0, 0 }, { "-5", 0, -5 }, { "9223372036854775807", 0, INT64_MAX }, { "9223372036854775808", -ERANGE, 0 },
	{ "", -EINVAL, 0 }, { "-", -EINVAL, 0 }, { "1a", -EINVAL, 0 }, { "+1", -EINVAL, 0 }, { " 1", -EINVAL, 0 },
};

static void test_numbers(void **state)
{
	int64_t v;
	char text[64];
	for (size_t i = 0; i < ARRAY_LEN(durations); i++) {
		v = 42;
		assert_int_equal(num_parse_duration(durations[i].text, &v), durations[i].rc);
		assert_true(v == (durations[i].rc ? 42 : durations[i].value));
		if (durations[i].rc == 0) {
			int64_t again;
			num_format_duration(v, text, sizeof(text));
			assert_int_equal(num_parse_duration(text, &again), 0);
			assert_true(again == v);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		v = 42;
		assert_int_equal(num_parse_size(sizes[i].text, &v), sizes[i].rc);
		assert_true(v == (sizes[i].rc ? 42 : sizes[i].value));
		if (sizes[i].rc == 0) {
			int64_t again;
			num_format_size(v, text, sizeof(text));
			assert_int_equal(num_parse_size(text, &again), 0);
			assert_true(again == v);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(integers); i++) {
		v = 42;
		assert_int_equal(num_parse_i64(integers[i].text, &v), integers[i].rc);
		assert_true(v == (integers[i].rc ? 42 : integers[i].value));
	}
}

static void test_wall_clock_text(void **state)
{
	char text[CLOCK_TEXT_LEN + 1];
	clock_format_wall(1764500000123456, text);
	assert_string_equal(text, "2025-11-30T10:53:20.123Z");
}

static void test_traceparent(void **state)
{
	static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
	char text[sizeof(good) + 1];
	assert_true(traceparent_ok(good));
	assert_false(traceparent_ok(""));
	assert_false(traceparent_ok("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
	assert_false(traceparent_ok("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
	assert_false(traceparent_ok("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
	for (size_t i = 0; i < strlen(good); i++) {
		memcpy(text, good, sizeof(good));
		text[i] = 'A';
		assert_false(traceparent_ok(text));
		text[i] = '\0';
		assert_false(traceparent_ok(text));
	}
	snprintf(text, sizeof(text), "%s0", good);
	assert_false(traceparent_ok(text));
}

static void test_histogram(void **state)
{
	struct histogram h = { .total = 0 };
	histogram_add(&h, -5);
	histogram_add(&h, 100 * NS_PER_US);
	histogram_add(&h, 100 * NS_PER_US + 1);
	histogram_add(&h, 10 * NS_PER_S);
	histogram_add(&h, 11 * NS_PER_S);
	assert_int_equal(h.counts[0], 2); /* the edge belongs to its step */
	assert_int_equal(h.counts[1], 1);
	assert_int_equal(h.counts[HISTOGRAM_STEPS - 1], 1);
	assert_int_equal(h.counts[HISTOGRAM_STEPS], 1);
	assert_int_equal(h.total, 5);
	assert_int_equal(h.sum_ns, 21 * NS_PER_S + 200 * NS_PER_US + 1);
	histogram_add(&h, INT64_MAX);
	assert_int_equal(h.sum_ns, INT64_MAX);
	for (size_t i = 1; i < HISTOGRAM_STEPS; i++)
		assert_true(histogram_steps_ns[i - 1] < histogram_steps_ns[i]);
}

static void test_availability(void **state)
{
	struct availability a;
	availability_init(&a, 100, 1, "not yet");
	assert_false(a.up || a.known);
	assert_int_equal(availability_down_ns(&a, 150), 50);
	assert_true(availability_set(&a, false, "refused", 200, 2));
	assert_false(availability_set(&a, false, "another reason", 300, 3));
	assert_string_equal(a.text, "another reason");
	assert_int_equal(a.since_mono_ns, 100);
	assert_int_equal(a.outages, 1);
	assert_true(availability_set(&a, true, "", 400, 4));
	assert_int_equal(a.since_wall_us, 4);
	assert_int_equal(availability_down_ns(&a, 1000), 300);
	assert_true(availability_set(&a, false, "gone", 1000, 5));
	assert_int_equal(a.outages, 2);
	assert_int_equal(availability_down_ns(&a, 1010), 310);
	availability_init(&a, 100, 1, "not yet");
	assert_true(availability_set(&a, true, "", 110, 2));
	assert_int_equal(a.outages, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_us_to_ns_saturates),
		cmocka_unit_test(test_heap), cmocka_unit_test(test_map), cmocka_unit_test(test_list), cmocka_unit_test(test_buf),
		cmocka_unit_test(test_ids), cmocka_unit_test(test_numbers), cmocka_unit_test(test_wall_clock_text),
		cmocka_unit_test(test_traceparent), cmocka_unit_test(test_histogram), cmocka_unit_test(test_availability),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
