/* One attempt's life: start, end, exit, what fails before it begins, who stops it. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/skip.h"

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

static void launch_fails(struct rig *r, int err, int own, const char *text)
{
	rig_launch(r);
	rig_until(r, SUP_LAUNCH_FAILED);
	assert_int_equal(r->last.phase, SUP_LAUNCH_FAILED);
	rig_until_end(r);
	assert_int_equal(r->last.launch_errno, err);
	assert_int_equal(r->last.launch_own, own);
	if (!strstr(r->last.text, text))
		fail_msg("\"%s\" does not say \"%s\"", r->last.text, text);
	assert_int_equal(r->last.started_wall_us, 0);
	rig_done(r);
}

static void programs_that_do_not_start(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_argv(&r, "no-such-program", NULL);
	launch_fails(&r, ENOENT, 0, "no-such-program: No such file");
	rig_new(&r);
	rig_argv(&r, "/etc/passwd", NULL);
	launch_fails(&r, EACCES, 0, "/etc/passwd: Permission denied");
	rig_new(&r);
	rig_argv(&r, "sh", NULL);
	r.directory = "/no/such/directory";
	launch_fails(&r, ENOENT, 0, "/no/such/directory");
	rig_new(&r);
	rig_argv(&r, "", NULL);
	launch_fails(&r, ENOENT, 0, "No such file");
	rig_new(&r);
	rig_argv(&r, "sh", NULL);
	r.join[0] = "/no/such/cgroup";
	launch_fails(&r, ENOENT, 1, "/no/such/cgroup");
	rig_new(&r);
	rig_argv(&r, "sh", NULL);
	r.user = "no-such-user";
	launch_fails(&r, ENOENT, 1, "running as user no-such-user");
}

/* A script without an interpreter is not given to a shell. */
static void no_shell_behind_the_back(void **state)
{
	struct rig r;
	rig_new(&r);
	int fd = openat(r.dir_fd, "script", O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	assert_int_equal(write(fd, "echo hello\n", 11), 11);
	close(fd);
	r.directory = r.dir;
	r.search_path = r.dir;
	rig_argv(&r, "script", NULL);
	launch_fails(&r, ENOEXEC, 0, "script: ");
}

static void search_path_is_the_jobs(void **state)
{
	struct rig r;
	rig_new(&r);
	assert_int_equal(symlinkat("/bin/sh", r.dir_fd, "own-shell"), 0);
	char search[200];
	snprintf(search, sizeof(search), "/no/such:%s:/bin", r.dir);
	r.search_path = search;
	rig_argv(&r, "own-shell", "-c", "exit 9", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 9);
	rig_done(&r);
}

static void what_the_program_finds(void **state)
{
	struct rig r;
	rig_new(&r);
	r.file.open_files = 77;
	r.env[2] = "GIVEN=a b";
	rig_shell(&r, "pwd; echo $GIVEN; ulimit -n; ulimit -c; [ $(cut -d\" \" -f6 /proc/$$/stat) = $$ ] && echo leads; "
	              "grep NoNewPrivs /proc/self/status; wc -c");
	rig_launch(&r);
	rig_until_end(&r);
	struct rig_log l;
	char want[256];
	snprintf(want, sizeof(want), "%s\na b\n77\n0\nleads\nNoNewPrivs:\t1\n0\n", r.dir);
	rig_read_log(&r, &l);
	assert_string_equal(l.out[0], want);
	rig_log_done(&l);
	rig_done(&r);
}

static void no_descriptor_no_mask_is_inherited(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_victim(&r, "fds", NULL);
	r.payload = "x";
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.launch_errno, 0);
	assert_int_equal(r.last.exit_code, 0);
	rig_done(&r);
}

static void another_user(void **state)
{
	struct rig r;
	if (geteuid() != 0) {
		SKIP("only root may run programs as others");
	}
	rig_new(&r);
	r.user = "nobody";
	rig_argv(&r, "sh", "-c", "id -un; id -Gn | wc -w; echo by name >/dev/stdout", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 0);
	struct rig_log l;
	rig_read_log(&r, &l);
	assert_string_equal(l.out[0], "nobody\n1\nby name\n");
	rig_log_done(&l);
	rig_done(&r);
}

static void refused(struct rig *r, const char *text)
{
	rig_argv(r, "sh", NULL);
	launch_fails(r, EINVAL, 1, text);
}

static void malformed_jobs(void **state)
{
	struct rig r;
	rig_new(&r);
	r.file.version = SUP_VERSION + 1;
	refused(&r, "version");
	rig_new(&r);
	r.file.kill_index = 0;
	refused(&r, "kill_index");
	rig_new(&r);
	r.file.log_ring_bytes = 1;
	refused(&r, "log_ring_bytes");
	rig_new(&r);
	r.file.timeout_ns = -1;
	refused(&r, "timeout_ns");
	rig_new(&r);
	r.directory = "relative";
	refused(&r, "absolute");
	rig_new(&r);
	r.file.size = 1 << 20;
	refused(&r, "size");
}

static void one_supervisor_per_directory(void **state)
{
	struct rig a, b;
	rig_new(&a);
	rig_victim(&a, "noting", NULL);
	rig_launch(&a);
	rig_wait_file(&a, "ready");
	rig_until(&a, SUP_RUNNING); /* the program may be ahead of the note that it runs */
	rig_new_in(&b, a.dir);
	rig_argv(&b, "true", NULL);
	rig_launch(&b);
	rig_until(&b, SUP_EMPTY);
	assert_int_equal(b.last.launch_errno, EWOULDBLOCK);
	assert_int_equal(b.last.launch_own, 1);
	/* The first one's files are untouched. */
	struct sup_status file;
	assert_true(rig_read_status(&a, &file));
	assert_int_equal(file.phase, SUP_RUNNING);
	rig_stop(&a, 1, 0, "");
	rig_until_end(&a);
	close(b.fd);
	close(b.dir_fd);
	rig_done(&a);
}

/* The agent that gave the job is gone, and the next one has found nobody at it. */
static void job_that_was_given_up(void **state)
{
	struct rig r;
	rig_new(&r);
	assert_int_equal(unlinkat(r.dir_fd, "supervisor", 0), 0);
	rig_argv(&r, "touch", "ran", NULL);
	r.directory = r.dir;
	rig_launch(&r);
	rig_until(&r, SUP_EMPTY);
	assert_int_equal(r.last.launch_errno, ENOENT);
	assert_int_equal(r.last.launch_own, 1);
	assert_non_null(strstr(r.last.text, "given up"));
	rig_until_gone(&r);
	assert_int_equal(faccessat(r.dir_fd, "ran", F_OK, 0), -1);
	assert_int_equal(faccessat(r.dir_fd, "status", F_OK, 0), -1); /* the directory is no longer ours */
	rig_done(&r);
}

/* What comes before a job, and is none. */
static void spare_without_a_job(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_disconnect(&r);
	rig_until_gone(&r);
	rig_done(&r);
	const struct {
		struct sup_head head;
		char rest[64];
	} junk[] = {
		{.head = {0, 0}}, {.head = {SUP_JOB, sizeof(struct sup_job)}}, {.head = {SUP_STOP, sizeof(struct sup_stop)}},
		{.head = {SUP_SEEN, sizeof(struct sup_head)}}, {.head = {SUP_DEADLINES, UINT32_MAX}},
	};
	for (size_t i = 0; i < ARRAY_LEN(junk); i++) {
		rig_new(&r);
		assert_int_equal(send(r.fd, &junk[i], junk[i].head.type == SUP_SEEN ? 8 : sizeof(junk[i]), MSG_NOSIGNAL) > 0, 1);
		assert_false(rig_next(&r));
		rig_until_gone(&r);
		rig_done(&r);
	}
}

static void job_without_descriptors(void **state)
{
	struct rig r;
	rig_new(&r);
	struct sup_job job = {.head = {SUP_JOB, sizeof(job)}, .deadlines = r.deadlines};
	rig_send(&r, &job);
	rig_until(&r, SUP_EMPTY);
	assert_int_equal(r.last.launch_errno, EINVAL);
	assert_int_equal(r.last.launch_own, 1);
	rig_until_gone(&r);
	rig_done(&r);
}

static void lease_too_short(void **state)
{
	struct rig r;
	rig_new(&r);
	r.deadlines.term_boot_ns = clock_boot_ns() - 1;
	rig_argv(&r, "true", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.launch_errno, ETIME);
	assert_int_equal(r.last.stopped_by, SUP_BY_LEASE);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		rig_test(exit_code),
		rig_test(ends_by_signal),
		rig_test(stdin_is_the_payload),
		rig_test(programs_that_do_not_start),
		rig_test(no_shell_behind_the_back),
		rig_test(search_path_is_the_jobs),
		rig_test(what_the_program_finds),
		rig_test(no_descriptor_no_mask_is_inherited),
		rig_test(another_user),
		rig_test(malformed_jobs),
		rig_test(one_supervisor_per_directory),
		rig_test(job_that_was_given_up),
		rig_test(spare_without_a_job),
		rig_test(job_without_descriptors),
		rig_test(lease_too_short),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
