/* One attempt's life: start, end, exit, what fails before it begins, who stops it. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"

static void exit_code(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_shell(&r, "echo out; echo err >&2; exit 7");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 7);
	assert_int_equal(r.last.signal, 0);
	assert_int_equal(r.last.launch_errno, 0);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	assert_true(r.last.started_wall_us > 0 && r.last.exited_wall_us >= r.last.started_wall_us);
	assert_true(r.last.pid > 0);
	struct rig_log l;
	rig_read_log(&r, &l);
	assert_string_equal(l.out[0], "out\n");
	assert_string_equal(l.out[1], "err\n");
	assert_int_equal(r.last.log_end, 8);
	rig_log_done(&l);
	rig_done(&r);
}

static void ends_by_signal(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_shell(&r, "kill -KILL $$");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.signal, SIGKILL);
	assert_int_equal(r.last.exit_code, 0);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	rig_done(&r);
}

static void stdin_is_the_payload(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_argv(&r, "cat", NULL);
	r.payload = "what it is fed";
	rig_launch(&r);
	rig_until_end(&r);
	struct rig_log l;
	rig_read_log(&r, &l);
	assert_string_equal(l.out[0], "what it is fed");
	rig_log_done(&l);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(exit_code),
		cmocka_unit_test(ends_by_signal),
		cmocka_unit_test(stdin_is_the_payload),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
