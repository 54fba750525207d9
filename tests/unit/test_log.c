/* The log as a reader of stderr sees it: each test sends fd 2 into a pipe or file and reads it back. */
#include "common/log/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int saved_stderr = -1, pipe_read = -1;

static void capture(void)
{
	int p[2];
	fflush(stderr);
	saved_stderr = dup(2);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(dup2(p[1], 2), 2);
	close(p[1]);
	assert_int_equal(fcntl(p[0], F_SETFL, O_NONBLOCK), 0);
	pipe_read = p[0];
}

static size_t drain(char *text, size_t cap)
{
	size_t len = 0;
	ssize_t n;
	while (len + 1 < cap && (n = read(pipe_read, text + len, cap - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	return len;
}

static size_t captured(char *text, size_t cap)
{
	size_t len = drain(text, cap);
	assert_int_equal(dup2(saved_stderr, 2), 2);
	close(saved_stderr);
	close(pipe_read);
	return len;
}

static void text_line(void **state)
{
	char text[LOG_LINE_MAX * 2];
	log_setup(LOG_INFO, LOG_TEXT);
	capture();
	log_info("worker", "worker=gpu-1 session=7", "session %s", "opened");
	log_warn("loop", NULL, "slow");
	captured(text, sizeof(text));
	assert_string_equal(text + 24 + 1 + 0, strstr(text, "INFO  worker: session opened worker=gpu-1 session=7\n"));
	assert_int_equal(text[10], 'T');
	assert_int_equal(text[23], 'Z');
	assert_non_null(strstr(text, " WARN  loop: slow\n"));
}

static void levels(void **state)
{
	char text[LOG_LINE_MAX];
	enum log_level l = LOG_ERROR;
	assert_int_equal(log_parse_level("debug", &l), 0);
	assert_int_equal(l, LOG_DEBUG);
	assert_int_equal(log_parse_level("WARN", &l), 0);
	assert_int_equal(l, LOG_WARN);
	assert_true(log_parse_level("loud", &l) < 0);
	assert_int_equal(l, LOG_WARN);
	log_setup(LOG_WARN, LOG_TEXT);
	capture();
	log_debug("a", NULL, "not this");
	log_info("a", NULL, "nor this");
	log_error("a", NULL, "this");
	log_setup(LOG_SILENT, LOG_TEXT);
	log_error("a", NULL, "silenced");
	captured(text, sizeof(text));
	assert_null(strstr(text, "not this"));
	assert_null(strstr(text, "nor this"));
	assert_null(strstr(text, "silenced"));
	assert_non_null(strstr(text, "ERROR a: this\n"));
}

/* What a peer sent makes neither a second line nor an escape sequence of the terminal. */
static void forging(void **state)
{
	char text[LOG_LINE_MAX];
	log_setup(LOG_INFO, LOG_TEXT);
	capture();
	log_info("a", "worker=x\ny", "%s", "one\ntwo \x1b[31m \xff\xc0\xaf h\xc3\xa9 \xe2\x80\xae \xc2\x9b");
	captured(text, sizeof(text));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_non_null(strstr(text, "one\\ntwo \\x1b[31m \\xff\\xc0\\xaf h\xc3\xa9 \\u202e \\x9b worker=x\\ny\n"));
}

static json_t *json_line(const char *object, const char *message)
{
	char text[LOG_LINE_MAX * 2];
	log_setup(LOG_INFO, LOG_JSON);
	capture();
	log_info("area", object, "%s", message);
	size_t len = captured(text, sizeof(text));
	assert_true(len > 0 && len <= LOG_LINE_MAX);
	json_error_t e;
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	assert_non_null(j);
	return j;
}

static void json(void **state)
{
	json_t *j = json_line("worker=gpu-1 session=7 note=two words", "say \"hi\" \\ \n\x01 \xff");
	assert_string_equal(json_string_value(json_object_get(j, "level")), "info");
	assert_string_equal(json_string_value(json_object_get(j, "area")), "area");
	assert_string_equal(json_string_value(json_object_get(j, "message")), "say \"hi\" \\ \n\x01 \\xff");
	assert_string_equal(json_string_value(json_object_get(j, "worker")), "gpu-1");
	assert_string_equal(json_string_value(json_object_get(j, "session")), "7");
	assert_string_equal(json_string_value(json_object_get(j, "note")), "two words");
	assert_int_equal(json_object_size(j), 7);
	json_decref(j);
}

static void long_lines(void **state)
{
	static char big[9000], object[9100];
	char text[LOG_LINE_MAX * 3];
	memset(big, '\x01', sizeof(big) - 1);
	snprintf(object, sizeof(object), "worker=%s", big);
	json_t *j = json_line(object, big);
	assert_non_null(strstr(json_string_value(json_object_get(j, "message")), "[cut]"));
	json_decref(j);
	log_setup(LOG_INFO, LOG_TEXT);
	capture();
	log_info("a", object, "%s", big);
	log_info("a", "task=7", "%s", big);
	size_t len = captured(text, sizeof(text));
	assert_true(len <= 2 * LOG_LINE_MAX);
	assert_non_null(strstr(text, "[cut] worker="));
	assert_non_null(strstr(text, "[cut] task=7\n"));
	assert_int_equal(text[len - 1], '\n');
}

/* A pipe that nobody reads: log_line returns, and the lost are counted in the next line that gets through. */
static void full_pipe(void **state)
{
	static char text[1 << 20];
	log_setup(LOG_INFO, LOG_TEXT);
	capture();
	for (int i = 0; i < 2000; i++)
		log_info("a", NULL, "%0200d", i);
	drain(text, sizeof(text));
	int got = 0;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		got++;
	assert_in_range(got, 1, 1999);
	log_info("a", NULL, "after");
	captured(text, sizeof(text));
	char expect[80];
	snprintf(expect, sizeof(expect), "WARN  log: %d lines lost", 2000 - got);
	assert_non_null(strstr(text, expect));
	assert_non_null(strstr(text, "a: after\n"));
}

static void limit(void **state)
{
	struct log_limit l = { 0 };
	int64_t dropped = -1;
	assert_true(log_limit_pass(&l, 5 * NS_PER_S, 10, &dropped));
	assert_int_equal(dropped, 0);
	assert_false(log_limit_pass(&l, 6 * NS_PER_S, 10, &dropped));
	assert_false(log_limit_pass(&l, 15 * NS_PER_S - 1, 10, &dropped));
	assert_true(log_limit_pass(&l, 15 * NS_PER_S, 10, &dropped));
	assert_int_equal(dropped, 2);
}

static void repeats(void **state)
{
	struct log_repeats r = { 0 };
	int64_t dropped;
	assert_true(log_repeats_pass(&r, NS_PER_S, 0, "a", &dropped));
	assert_int_equal(dropped, 0);
	assert_true(log_repeats_pass(&r, NS_PER_S, 0, "ab", &dropped));
	assert_false(log_repeats_pass(&r, NS_PER_S + 1, 0, "a", &dropped));
	assert_false(log_repeats_pass(&r, 61 * NS_PER_S - 1, 0, "a", &dropped));
	assert_true(log_repeats_pass(&r, 61 * NS_PER_S, NS_PER_S, "a", &dropped));
	assert_int_equal(dropped, 2);
	/* within the gap nothing passes, new or old, and it is no loss to it later */
	assert_false(log_repeats_pass(&r, 62 * NS_PER_S - 1, 0, "new", &dropped));
	assert_true(log_repeats_pass(&r, 62 * NS_PER_S, 0, "new", &dropped));
	/* more texts than are known: the oldest is forgotten */
	for (int i = 0; i < LOG_REPEATS; i++) {
		char text[] = { (char)('A' + i), '\0' };
		assert_true(log_repeats_pass(&r, 62 * NS_PER_S, 0, text, &dropped));
	}
	assert_true(log_repeats_pass(&r, 62 * NS_PER_S, 0, "new", &dropped));
	char longer[400];
	memset(longer, 'x', sizeof(longer));
	longer[399] = '\0';
	assert_true(log_repeats_pass(&r, 63 * NS_PER_S, 0, longer, &dropped));
	assert_false(log_repeats_pass(&r, 63 * NS_PER_S, 0, longer, &dropped));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_line), cmocka_unit_test(levels),    cmocka_unit_test(forging), cmocka_unit_test(json),
		cmocka_unit_test(long_lines), cmocka_unit_test(full_pipe), cmocka_unit_test(limit), cmocka_unit_test(repeats),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
