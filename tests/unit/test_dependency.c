/* What the log says of something that comes and goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log/log.h"
#include "server/engine/dependency.h"

static struct dependency d;
static int log_fd, saved_stderr;
static char logged[65536];

/* Lines since the last call. */
static int lines(void)
{
	ssize_t n = pread(log_fd, logged, sizeof(logged) - 1, 0);
	int count = 0;
	assert_true(n >= 0);
	logged[n] = '\0';
	for (const char *p = logged; (p = strchr(p, '\n')); p++)
		count++;
	assert_int_equal(ftruncate(log_fd, 0), 0);
	assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
	return count;
}

static int begin(void **state)
{
	log_fd = memfd_create("log", 0);
	saved_stderr = dup(2);
	assert_int_equal(dup2(log_fd, 2), 2);
	dependency_init(&d, "store", ", going on", NS_PER_S);
	return 0;
}

static int end(void **state)
{
	dup2(saved_stderr, 2);
	close(saved_stderr);
	close(log_fd);
	return 0;
}

static void one_line_each_way(void **state)
{
	int64_t now = NS_PER_S;
	dependency_set(&d, true, "", now += NS_PER_S);
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(logged, "store: up\n"));
	dependency_set(&d, false, "refused", now += NS_PER_S);
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(logged, "store: down, going on: refused\n"));
	for (int i = 0; i < 100; i++)
		dependency_set(&d, false, i % 2 ? "starting up" : "refused", now += NS_PER_S / 10);
	dependency_tell(&d, now);
	assert_int_equal(lines(), 0);
	assert_string_equal(d.state.text, "starting up");
	dependency_set(&d, true, "a warning", now += NS_PER_S);
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(logged, "store: up after 11.0 s: a warning\n"));
}

static void down_from_the_start(void **state)
{
	dependency_set(&d, false, "refused", 2 * NS_PER_S);
	dependency_set(&d, false, "refused", 3 * NS_PER_S);
	assert_int_equal(lines(), 1);
	dependency_set(&d, true, "", 4 * NS_PER_S);
	assert_int_equal(lines(), 1);
}

/* A hundred times a second for a minute: few lines, and the last one is true. */
static void flapping(void **state)
{
	int64_t now = 1000 * NS_PER_S;
	for (int i = 0; i <= 6000; i++) {
		dependency_set(&d, i % 2, i % 2 ? "" : "no space", now += NS_PER_S / 100);
		dependency_tell(&d, now);
	}
	int n = lines();
	assert_in_range(n, DEPENDENCY_LINES_AT_ONCE, DEPENDENCY_LINES_AT_ONCE + 7);
	assert_non_null(strstr(logged, "(it came and went "));
	bool told_up = d.told_up;
	dependency_set(&d, !told_up, "gone", now);
	for (int i = 0; i < 20; i++)
		dependency_tell(&d, now += NS_PER_S);
	assert_int_equal(lines(), 1);
	assert_int_equal(d.told_up, !told_up);
	assert_int_equal(d.state.up, d.told_up);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_line_each_way, begin, end),
		cmocka_unit_test_setup_teardown(down_from_the_start, begin, end),
		cmocka_unit_test_setup_teardown(flapping, begin, end),
	};
	return cmocka_run_group_tests_name("dependency", tests, NULL, NULL);
}
