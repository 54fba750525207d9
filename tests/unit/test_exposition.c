/* The text format of /metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/monitor/exposition.h"

static const char *text_of(struct buf *b)
{
	assert_int_equal(buf_add(b, "", 1), 0);
	return (const char *)buf_head(b);
}

static void test_families(void **state)
{
	struct buf b;
	buf_init(&b, 65536);
	struct exposition x = { .out = &b };
	exposition_one(&x, "a_total", EXPOSITION_COUNTER, "How many.", INT64_MAX);
	exposition_family(&x, "b", EXPOSITION_GAUGE, "Two.");
	exposition_int(&x, "k=\"v\"", INT64_MIN);
	exposition_seconds(&x, NULL, 1500000001);
	exposition_seconds(&x, "k=\"v\",l=\"w\"", -1);
	assert_false(x.failed);
	assert_string_equal(text_of(&b), "# HELP a_total How many.\n# TYPE a_total counter\na_total 9223372036854775807\n"
			    "# HELP b Two.\n# TYPE b gauge\nb{k=\"v\"} -9223372036854775808\nb 1.500000001\n"
			    "b{k=\"v\",l=\"w\"} 0.000000000\n");
	buf_done(&b);
}

/* The edges as text are those as numbers, and samples on an edge are below it. */
static void test_histogram(void **state)
{
	struct buf b;
	struct histogram h = { 0 };
	buf_init(&b, 65536);
	struct exposition x = { .out = &b };
	for (size_t i = 0; i < HISTOGRAM_STEPS; i++)
		histogram_add(&h, histogram_steps_ns[i]);
	histogram_add(&h, INT64_MAX);
	exposition_family(&x, "t_seconds", EXPOSITION_HISTOGRAM, "Times.");
	exposition_histogram(&x, "m=\"a\"", &h);
	const char *at = strstr(text_of(&b), "histogram\n") + strlen("histogram\n");
	for (size_t i = 0; i < HISTOGRAM_STEPS; i++) {
		double edge;
		long long n;
		assert_int_equal(sscanf(at, "t_seconds_bucket{m=\"a\",le=\"%lf\"} %lld\n", &edge, &n), 2);
		assert_true(edge * 1e9 > (double)histogram_steps_ns[i] - 0.5 && edge * 1e9 < (double)histogram_steps_ns[i] + 0.5);
		assert_int_equal(n, i + 1);
		at = strchr(at, '\n') + 1;
	}
	assert_string_equal(at, "t_seconds_bucket{m=\"a\",le=\"+Inf\"} 17\nt_seconds_sum{m=\"a\"} 9223372036.854775807\n"
			    "t_seconds_count{m=\"a\"} 17\n");
	buf_done(&b);
}

/* A page without room is said to be none. */
static void test_no_room(void **state)
{
	struct buf b;
	buf_init(&b, 200);
	struct exposition x = { .out = &b };
	exposition_one(&x, "a", EXPOSITION_GAUGE, "One.", 1);
	assert_false(x.failed);
	for (int i = 0; i < 10; i++)
		exposition_one(&x, "a", EXPOSITION_GAUGE, "One.", 1);
	assert_true(x.failed);
	buf_done(&b);
}

static void test_labels(void **state)
{
	char labels[32] = "";
	assert_true(exposition_label(labels, sizeof(labels), "a", "x"));
	assert_string_equal(labels, "a=\"x\"");
	assert_true(exposition_label(labels, sizeof(labels), "b", "\"\\\n"));
	assert_string_equal(labels, "a=\"x\",b=\"\\\"\\\\\\n\"");
	assert_false(exposition_label(labels, sizeof(labels), "c", "0123456789012345"));
	assert_false(exposition_label(labels, sizeof(labels), "a_very_long_name_of_a_label", ""));
	assert_string_equal(labels, "a=\"x\",b=\"\\\"\\\\\\n\"");
	/* Whatever the room: whole, or nothing. */
	for (size_t cap = 1; cap < 12; cap++) {
		char at[12] = "";
		bool fits = exposition_label(at, cap, "a", "xyz");
		assert_string_equal(at, fits ? "a=\"xyz\"" : "");
		assert_true(fits || cap < 12);
	}
	char at[12] = "";
	assert_true(exposition_label(at, sizeof(at), "a", "xyz"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_labels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
