/* Metrics at the worker: lines as points, and the file that a program writes while it is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/rng.h"
#include "common/pb/pb.h"
#include "reins/v1/worker_service.pb-c.h"
#include "tests/unit/work_dir.h"
#include "worker/metrics_reader.h"
#include "worker/remove_tree.h"
#include "worker/state_dir.h"

/* ---- lines ---- */

struct seen {
	struct metrics_point points[64];
	size_t n, stop_at;
};

static bool on_point(void *arg, const struct metrics_point *p)
{
	struct seen *s = arg;
	assert_true(s->n < ARRAY_LEN(s->points));
	s->points[s->n++] = *p;
	return s->n != s->stop_at;
}

static struct seen seen;

/* One line by itself: 1 point, 0 nothing, -1 malformed. */
static int line(const char *text, size_t len)
{
	struct metrics_scan s = {.last_step = 41};
	seen = (struct seen){0};
	assert_int_equal(metrics_scan(&s, text, len, true, on_point, &seen), len);
	assert_true(seen.n + (size_t)s.malformed <= 1);
	return seen.n ? 1 : -(int)s.malformed;
}

static void lines_one_by_one(void **state)
{
	static const struct {
		const char *text;
		int is;
		int64_t step;
	} rows[] = {
		{"{\"step\":1,\"reward\":3.2}", 1, 1},
		{"{\"reward\":3.2}", 1, 42},
		{" {\"reward\" : -0.0 , \"step\" : 7 } \r", 1, 7},
		{"{\"step\":-9223372036854775808,\"x\":1}", 1, INT64_MIN},
		{"{\"step\":9223372036854775807,\"x\":1}", 1, INT64_MAX},
		{"{\"step\":5.0,\"x\":1}", 1, 5},
		{"{\"step\":1e3,\"x\":1}", 1, 1000},
		{"{\"a.b/c-d_E9\":1e-300}", 1, 42},
		{"", 0, 0},
		{" \t\r", 0, 0},
		{"{}", -1, 0},
		{"{\"step\":1}", -1, 0},
		{"{\"step\":1.5,\"x\":1}", -1, 0},
		{"{\"step\":1e300,\"x\":1}", -1, 0},
		{"{\"step\":9223372036854775808,\"x\":1}", -1, 0},
		{"{\"step\":\"1\",\"x\":1}", -1, 0},
		{"{\"step\":null,\"x\":1}", -1, 0},
		{"{\"x\":NaN}", -1, 0},
		{"{\"x\":Infinity}", -1, 0},
		{"{\"x\":1e999}", -1, 0},
		{"{\"x\":\"1\"}", -1, 0},
		{"{\"x\":true}", -1, 0},
		{"{\"x\":null}", -1, 0},
		{"{\"x\":[1]}", -1, 0},
		{"{\"x\":{\"y\":1}}", -1, 0},
		{"{\"\":1}", -1, 0},
		{"{\"a b\":1}", -1, 0},
		{"{\"\xc3\xa4\":1}", -1, 0},
		{"{\"x\":1,\"x\":2}", -1, 0},
		{"{\"x\":1}{\"x\":2}", -1, 0},
		{"{\"x\":1},", -1, 0},
		{"[1]", -1, 0},
		{"3", -1, 0},
		{"{\"x\":1", -1, 0},
		{"\xff\xfe", -1, 0},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int is = line(rows[i].text, strlen(rows[i].text));
		if (is != rows[i].is || (is == 1 && seen.points[0].step != rows[i].step))
			fail_msg("%s: %d, step %lld", rows[i].text, is, (long long)seen.points[0].step);
	}
	assert_int_equal(line("{\"x\":1}\0", 8), -1);
}

static void bounds_of_a_line(void **state)
{
	char text[METRICS_LINE_MAX + 64];
	/* 63 bytes of a name, and 64. */
	snprintf(text, sizeof(text), "{\"%063d\":1}", 0);
	assert_int_equal(line(text, strlen(text)), 1);
	snprintf(text, sizeof(text), "{\"%064d\":1}", 0);
	assert_int_equal(line(text, strlen(text)), -1);
	/* 64 values, and 65; the step does not count. */
	for (int n = 64; n <= 65; n++) {
		size_t at = (size_t)snprintf(text, sizeof(text), "{\"step\":1");
		for (int i = 0; i < n; i++)
			at += (size_t)snprintf(text + at, sizeof(text) - at, ",\"k%d\":%d", i, i);
		text[at++] = '}';
		assert_int_equal(line(text, at), n == 64 ? 1 : -1);
	}
	/* A line of just the most bytes, and one more. */
	for (size_t extra = 0; extra < 2; extra++) {
		memset(text, ' ', sizeof(text));
		memcpy(text, "{\"x\":1}", 7);
		assert_int_equal(line(text, METRICS_LINE_MAX + extra), extra ? -1 : 1);
	}
}

/* What comes of the bytes when at most `step` more of them become visible at a time. */
static uint64_t scan_in_pieces(const char *data, size_t len, size_t step)
{
	struct metrics_scan s = {0};
	uint64_t sum = 7;
	size_t at = 0;
	for (size_t end = min_sz(step, len);; end = min_sz(end + step, len)) {
		seen = (struct seen){0};
		size_t taken;
		do {
			taken = metrics_scan(&s, data + at, end - at, end == len, on_point, &seen);
			at += taken;
			for (size_t i = 0; i < seen.n; i++)
				sum = sum * 31 + (uint64_t)seen.points[i].step * 7 + seen.points[i].n;
			seen.n = 0;
		} while (taken && at < end);
		if (end == len)
			break;
	}
	assert_int_equal(at, len);
	return sum * 31 + (uint64_t)s.malformed;
}

static void pieces_do_not_matter(void **state)
{
	static char data[3 * METRICS_LINE_MAX];
	static const char *const parts[] = {"{\"x\":1}\n", "{\"step\":9,\"x\":1}\n", "no\n", "\n", "{\"x\":"};
	struct rng rng;
	rng_seed(&rng, 99);
	for (int round = 0; round < 20; round++) {
		size_t len = 0;
		for (int i = 0; i < 12; i++) {
			const char *part = parts[rng_below(&rng, ARRAY_LEN(parts))];
			memcpy(data + len, part, strlen(part));
			len += strlen(part);
			if (i == 5 && round % 3 == 0) {
				size_t fill = METRICS_LINE_MAX - 3 + rng_below(&rng, 8);
				memset(data + len, 'y', fill);
				len += fill;
			}
		}
		uint64_t whole = scan_in_pieces(data, len, len);
		assert_true(scan_in_pieces(data, len, 1 + rng_below(&rng, 5)) == whole);
		assert_true(scan_in_pieces(data, len, 1000 + rng_below(&rng, 60000)) == whole);
	}
}

static void stops_when_told(void **state)
{
	static const char text[] = "{\"x\":1}\n{\"x\":2}\n{\"x\":3}\n";
	struct metrics_scan s = {0};
	seen = (struct seen){.stop_at = 2};
	assert_int_equal(metrics_scan(&s, text, strlen(text), false, on_point, &seen), 16);
	assert_int_equal(seen.n, 2);
}

/* ---- the file ---- */

static struct metrics_reader r;

static int set_up(void **state)
{
	metrics_reader_init(&r);
	return work_dir_make(state) < 0 || mkdirat(dir_fd, "a", 0700) < 0 ? -1 : mkdirat(dir_fd, "a/io", 0700);
}

static int tear_down(void **state)
{
	metrics_reader_done(&r);
	return work_dir_remove(state);
}

static void write_file(const char *name, int flags, const char *text, size_t times)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
	assert_true(fd >= 0);
	for (size_t i = 0; i < times; i++)
		assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void append(const char *text) { write_file("a/" STATE_METRICS, O_APPEND, text, 1); }

/* Reads on until there is nothing more now. */
static enum metrics_read read_on(bool last)
{
	enum metrics_read what;
	while ((what = metrics_reader_read(&r, dir_fd, "a", 1000000, last)) == METRICS_MORE)
		;
	return what;
}

/* What is to be sent as text, "first: step step …", and it goes out. */
static const char *sent(void)
{
	static char text[64 * 1024];
	struct refusal why;
	Reins__V1__Metrics *m = pb_unpack(&reins__v1__metrics__descriptor, buf_head(&r.points), buf_len(&r.points), NULL, &why);
	assert_non_null(m);
	assert_int_equal(m->n_points, r.n_points);
	size_t n = (size_t)snprintf(text, sizeof(text), "%lld:", r.n_points ? (long long)r.first_number : 0LL);
	for (size_t i = 0; i < m->n_points; i++) {
		assert_true(m->points[i]->n_values == 1 && m->points[i]->at);
		n += (size_t)snprintf(text + n, sizeof(text) - n, " %lld", (long long)m->points[i]->step);
		assert_true(n < sizeof(text));
	}
	pb_free(m);
	metrics_reader_sent(&r);
	return text;
}

static void follows_a_file(void **state)
{
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_false(metrics_reader_has_news(&r));
	append("{\"step\":5,\"x\":1}\n{\"x\":1}\nbad\n{\"x\"");
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_string_equal(sent(), "1: 5 6");
	assert_int_equal(r.scan.malformed, 1);
	append(":1}\n{\"x\":1}");
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_string_equal(sent(), "3: 7");
	assert_int_equal(read_on(true), METRICS_ENDED);
	assert_false(metrics_reader_is_done(&r));
	assert_string_equal(sent(), "4: 8");
	assert_true(metrics_reader_is_done(&r));
}

static void counts_alone_are_news(void **state)
{
	append("bad\n");
	assert_int_equal(read_on(true), METRICS_ENDED);
	assert_true(metrics_reader_has_news(&r) && !r.n_points);
	metrics_reader_sent(&r);
	assert_true(metrics_reader_is_done(&r));
}

static void numbers_go_on_in_another_file(void **state)
{
	append("{\"x\":1}\n{\"x\":1}\n");
	read_on(false);
	assert_string_equal(sent(), "1: 1 2");
	write_file("a/" STATE_METRICS, O_TRUNC, "{\"x\":1}\n", 1);
	read_on(false);
	assert_string_equal(sent(), "3: 3");
	/* Replaced while half a line, which is a line, has not been read. */
	append("{\"step\":9,\"x\":1}");
	write_file("a/new", 0, "{\"x\":1}\n", 1);
	assert_int_equal(renameat(dir_fd, "a/new", dir_fd, "a/" STATE_METRICS), 0);
	read_on(false);
	assert_string_equal(sent(), "4: 9 10");
	/* Sent again from what is still there: only of the last file. */
	metrics_reader_rewind(&r, 2);
	read_on(false);
	assert_string_equal(sent(), "5: 10");
	/* The next process finds the same numbers. */
	metrics_reader_done(&r);
	metrics_reader_init(&r);
	append("{\"x\":1}\n");
	read_on(false);
	assert_string_equal(sent(), "5: 10 11");
}

static void sent_again_after_a_reconnect(void **state)
{
	append("{\"x\":1}\nbad\n{\"x\":1}\n{\"x\":1}\n");
	read_on(false);
	assert_string_equal(sent(), "1: 1 2 3");
	metrics_reader_rewind(&r, 1);
	append("{\"x\":1}\n");
	read_on(false);
	assert_int_equal(r.scan.malformed, 1);
	assert_string_equal(sent(), "2: 2 3 4");
	read_on(true);
	assert_true(metrics_reader_is_done(&r));
	/* The outcome was not answered: once more, and from a file whose directory is gone. */
	assert_int_equal(unlinkat(dir_fd, "a/" STATE_METRICS, 0), 0);
	metrics_reader_rewind(&r, 3);
	assert_false(metrics_reader_is_done(&r));
	assert_int_equal(metrics_reader_read(&r, dir_fd, "", 1000000, true), METRICS_ENDED);
	assert_string_equal(sent(), "4: 4");
	/* Where there was none, none is waited for. */
	metrics_reader_done(&r);
	metrics_reader_init(&r);
	assert_int_equal(read_on(true), METRICS_ENDED);
	metrics_reader_rewind(&r, 0);
	assert_true(metrics_reader_is_done(&r));
}

static void parts_and_limits(void **state)
{
	write_file("a/" STATE_METRICS, 0, "{\"x\":1}\n", 3500);
	size_t got = 0;
	while (metrics_reader_read(&r, dir_fd, "a", 2345, true) != METRICS_ENDED || metrics_reader_has_news(&r)) {
		assert_true(r.n_points <= METRICS_BATCH_POINTS);
		assert_true(buf_len(&r.points) < METRICS_BATCH_BYTES + 8192);
		if (r.n_points)
			assert_int_equal(r.first_number, got + 1);
		got += r.n_points;
		sent();
	}
	assert_int_equal(got, 2345);
	assert_int_equal(r.dropped, 3500 - 2345);
	metrics_reader_rewind(&r, 2345);
	while (metrics_reader_read(&r, dir_fd, "a", 2345, true) != METRICS_ENDED)
		;
	assert_int_equal(r.n_points, 0);
	assert_int_equal(r.dropped, 3500 - 2345);
}

static void a_full_one_waits(void **state)
{
	write_file("a/" STATE_METRICS, 0, "{\"x\":1}\n", 1500);
	while (metrics_reader_read(&r, dir_fd, "a", 1000000, false) != METRICS_FULL)
		;
	assert_int_equal(r.n_points, METRICS_BATCH_POINTS);
	assert_int_equal(metrics_reader_read(&r, dir_fd, "a", 1000000, true), METRICS_FULL);
	sent();
	assert_int_equal(read_on(true), METRICS_ENDED);
	assert_int_equal(r.n_points, 500);
}

static void strange_files(void **state)
{
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "a/" STATE_METRICS), 0);
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_int_equal(unlinkat(dir_fd, "a/" STATE_METRICS, 0), 0);
	assert_int_equal(mkfifoat(dir_fd, "a/" STATE_METRICS, 0600), 0);
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_int_equal(unlinkat(dir_fd, "a/" STATE_METRICS, 0), 0);
	assert_int_equal(mkdirat(dir_fd, "a/" STATE_METRICS, 0700), 0);
	assert_int_equal(read_on(false), METRICS_NOTHING);
	assert_int_equal(r.fd, -1);
	assert_int_equal(unlinkat(dir_fd, "a/" STATE_METRICS, AT_REMOVEDIR), 0);
	/* What a program writes beside it costs it its own numbers, no more. */
	write_file("a/metrics-base", 0, "9223372036854775807 1 1 1\n", 1);
	append("{\"x\":1}\n");
	assert_int_equal(read_on(true), METRICS_ENDED);
	assert_string_equal(sent(), "1: 1");
	assert_false(metrics_reader_has_news(&r));
}

#define F(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_one_by_one), cmocka_unit_test(bounds_of_a_line), cmocka_unit_test(pieces_do_not_matter),
		cmocka_unit_test(stops_when_told), F(follows_a_file), F(counts_alone_are_news), F(numbers_go_on_in_another_file),
		F(sent_again_after_a_reconnect), F(parts_and_limits), F(a_full_one_waits), F(strange_files),
	};
	return cmocka_run_group_tests_name("worker/metrics", tests, NULL, NULL);
}
