/* Ends: who stops it, what resists, who is not there to say so. */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "tests/skip.h"

#define SHORT_NS (200 * NS_PER_MS)

/* Started, and ready to be stopped. */
static void begin(struct rig *r, const char *mode)
{
	rig_victim(r, mode, NULL);
	rig_launch(r);
	rig_wait_file(r, "ready");
	rig_until(r, SUP_RUNNING);
	assert_int_equal(r->last.phase, SUP_RUNNING);
}

static void let_go_on(struct rig *r)
{
	int fd = openat(r->dir_fd, "go", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void ended(struct rig *r, enum sup_stopped_by by, int signal)
{
	rig_until_end(r);
	assert_int_equal(r->last.stopped_by, by);
	assert_int_equal(r->last.signal, signal);
	rig_done(r);
}

static void wait_unmarked(struct rig *r)
{
	int64_t until = clock_boot_ns() + RIG_WAIT_NS;
	while (rig_marked(r) > 0 && clock_boot_ns() < until)
		usleep(2000);
}

/* S40 */
static void stop_reaches_the_whole_tree(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_shell(&r, "sleep 1000 & sleep 1000 & touch ready; wait");
	rig_launch(&r);
	rig_wait_file(&r, "ready");
	rig_stop(&r, 42, -1, "cancelled by hand");
	rig_until_end(&r);
	assert_int_equal(r.last.stop_reason, 42);
	assert_string_equal(r.last.text, "cancelled by hand");
	assert_int_equal(r.last.stopped_by, SUP_BY_AGENT);
	assert_int_equal(r.last.signal, SIGTERM);
	rig_done(&r);
}

/* S41 */
static void leftovers_are_killed(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_victim(&r, "daemon", "3");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 3);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	rig_done(&r);
}

static void grace_then_kill(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "stubborn");
	rig_stop(&r, 1, SHORT_NS, "");
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

static void no_grace_at_all(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "noting");
	rig_stop(&r, 1, 0, "");
	rig_until(&r, SUP_EXITED);
	assert_true(faccessat(r.dir_fd, "termed", F_OK, 0) < 0);
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

/* One that would take an hour; the second may only make it quicker, and does not change who it was. */
static void second_stop_is_quicker(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "noting");
	rig_stop(&r, 1, 3600 * NS_PER_S, "first");
	rig_wait_file(&r, "termed");
	rig_stop(&r, 2, 7200 * NS_PER_S, "second");
	rig_stop(&r, 3, SHORT_NS, "third");
	rig_until(&r, SUP_EXITED);
	assert_int_equal(r.last.stop_reason, 1);
	assert_string_equal(r.last.text, "first");
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

static void sigterm_comes_once(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "count");
	rig_stop(&r, 1, 3600 * NS_PER_S, "");
	rig_wait_file(&r, "termed");
	let_go_on(&r);
	rig_until(&r, SUP_EXITED);
	assert_int_equal(r.last.exit_code, 1);
	ended(&r, SUP_BY_AGENT, 0);
}

static void a_stopped_program_hears_sigterm(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "stopped");
	rig_stop(&r, 1, 3600 * NS_PER_S, "");
	ended(&r, SUP_BY_AGENT, SIGTERM);
}

static void a_stop_after_the_end_is_none(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_argv(&r, "true", NULL);
	rig_launch(&r);
	rig_until(&r, SUP_EXITED);
	rig_stop(&r, 1, 0, "too late");
	rig_until_end(&r);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	rig_done(&r);
}

static void timeout_ends_it(void **state)
{
	struct rig r;
	rig_new(&r);
	r.file.timeout_ns = SHORT_NS;
	r.file.kill_grace_ns = SHORT_NS;
	rig_victim(&r, "stubborn", NULL);
	rig_launch(&r);
	ended(&r, SUP_BY_TIMEOUT, SIGKILL);
}

static void sigterm_to_the_supervisor(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "noting");
	r.file.kill_grace_ns = SHORT_NS;
	kill(r.pid, SIGINT);
	kill(r.pid, SIGHUP);
	kill(r.pid, SIGTERM);
	rig_wait_file(&r, "termed");
	rig_stop(&r, 1, 0, "");
	ended(&r, SUP_BY_SIGNAL, SIGKILL);
}

/* The connection's end alone does nothing; orphan_boot_ns does, and only without an agent. */
static void orphan(void **state)
{
	struct rig r;
	rig_new(&r);
	r.deadlines.orphan_boot_ns = 1;
	begin(&r, "count");
	let_go_on(&r);
	ended(&r, SUP_NOT_STOPPED, 0);
	rig_new(&r);
	begin(&r, "noting");
	r.deadlines.orphan_boot_ns = clock_boot_ns() + SHORT_NS;
	r.deadlines.kill_boot_ns = SUP_NEVER;
	rig_send(&r, &r.deadlines);
	rig_disconnect(&r);
	rig_wait_file(&r, "termed");
	rig_connect(&r);
	rig_stop(&r, 1, 0, "");
	ended(&r, SUP_BY_ORPHAN, SIGKILL);
}

/* Its worker's state directory was removed: there is nobody whom it could tell, and it ends all the same. */
static void orphan_without_a_directory(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "stubborn");
	rig_disconnect(&r);
	rig_remove_directory(&r);
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	rig_until_gone(&r);
	assert_int_equal(rig_marked(&r), 0);
	rig_done(&r);
}

/* The agent is dead, then: the agent is there and says nothing. */
static void exclusive_lease(void **state)
{
	for (int deaf = 0; deaf < 2; deaf++) {
		struct rig r;
		rig_new(&r);
		begin(&r, "stubborn");
		r.deadlines.term_boot_ns = clock_boot_ns() + SHORT_NS;
		r.deadlines.kill_boot_ns = r.deadlines.term_boot_ns + SHORT_NS;
		rig_send(&r, &r.deadlines);
		if (!deaf)
			rig_disconnect(&r);
		rig_until_dead(&r);
		assert_int_equal(r.last.phase, SUP_EMPTY);
		assert_int_equal(r.last.stopped_by, SUP_BY_LEASE);
		assert_int_equal(r.last.signal, SIGKILL);
		rig_done(&r);
	}
}

/* A disk that hangs holds the supervisor's first thread, like a debugger does here. */
static void exclusive_lease_while_the_supervisor_hangs(void **state)
{
	struct rig r;
	int status;
	rig_new(&r);
	r.deadlines.term_boot_ns = r.deadlines.kill_boot_ns = clock_boot_ns() + 3600 * NS_PER_S;
	begin(&r, "stubborn");
	if (ptrace(PTRACE_SEIZE, r.pid, NULL, NULL) < 0) {
		rig_stop(&r, 1, 0, "");
		ended(&r, SUP_BY_AGENT, SIGKILL);
		SKIP("may not stop a thread");
	}
	r.deadlines.term_boot_ns = clock_boot_ns() + SHORT_NS;
	r.deadlines.kill_boot_ns = r.deadlines.term_boot_ns + SHORT_NS;
	rig_send(&r, &r.deadlines);
	struct sup_stop s = {.head = {SUP_STOP, sizeof(s)}, .grace_ns = 3600 * NS_PER_S}; /* heard after them */
	rig_send(&r, &s);
	rig_wait_file(&r, "termed");
	assert_int_equal(ptrace(PTRACE_INTERRUPT, r.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(r.pid, &status, __WALL), r.pid);
	assert_true(WIFSTOPPED(status));
	wait_unmarked(&r);
	assert_int_equal(rig_marked(&r), 0);
	assert_int_equal(ptrace(PTRACE_DETACH, r.pid, NULL, NULL), 0);
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

/* Its SIGTERM came, and the shell has ended; what it had started has the rest of the grace. */
static void the_rest_has_its_grace(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_shell(&r, "sh -c 'trap \"\" TERM; touch ready; while [ ! -e go ]; do sleep 0.01; done; touch saved'");
	rig_launch(&r);
	rig_wait_file(&r, "ready");
	rig_stop(&r, 1, 3600 * NS_PER_S, "");
	rig_until(&r, SUP_EXITED);
	assert_int_equal(r.last.signal, SIGTERM);
	let_go_on(&r);
	rig_until(&r, SUP_EMPTY);
	assert_int_equal(faccessat(r.dir_fd, "saved", F_OK, 0), 0);
	ended(&r, SUP_BY_AGENT, SIGTERM);
}

static void a_lease_stop_is_not_taken_back(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "noting");
	r.deadlines.term_boot_ns = clock_boot_ns();
	r.deadlines.kill_boot_ns = r.deadlines.term_boot_ns + SHORT_NS;
	rig_send(&r, &r.deadlines);
	rig_wait_file(&r, "termed");
	r.deadlines.term_boot_ns = r.deadlines.kill_boot_ns = SUP_NEVER;
	rig_send(&r, &r.deadlines);
	ended(&r, SUP_BY_LEASE, SIGKILL);
}

static void fork_bomb(void **state)
{
	struct rig r;
	if (geteuid() != 0 || !getpwnam("nobody")) {
		SKIP("the bomb is bounded by the limit of another user's processes");
	}
	rig_new(&r);
	assert_int_equal(chmod(r.dir, 0777), 0);
	r.user = "nobody";
	r.file.processes = 150;
	rig_victim(&r, "bomb", "4");
	rig_launch(&r);
	rig_until(&r, SUP_RUNNING);
	if (r.last.launch_errno == EACCES) {
		rig_until_end(&r);
		rig_done(&r);
		SKIP("that user can't reach the program");
	}
	rig_wait_file(&r, "full");
	rig_stop(&r, 1, 0, "");
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

static void processes_that_run_away(void **state)
{
	struct rig r;
	rig_new(&r);
	rig_victim(&r, "chase", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 0);
	rig_done(&r);
}

static void another_subreaper_in_the_tree(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "subreaper");
	rig_stop(&r, 1, SHORT_NS, "");
	ended(&r, SUP_BY_AGENT, SIGTERM);
}

static void adoption(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "count");
	int pid = r.last.pid;
	rig_disconnect(&r);
	rig_connect(&r);
	assert_true(rig_next(&r));
	assert_int_equal(r.last.phase, SUP_RUNNING);
	assert_int_equal(r.last.pid, pid);
	/* A newer one replaces the older. */
	int older = dup(r.fd);
	rig_connect(&r);
	assert_true(rig_next(&r));
	char c;
	while (recv(older, &c, 1, 0) > 0)
		;
	close(older);
	let_go_on(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.pid, pid);
	assert_int_equal(r.last.exit_code, 0);
	rig_done(&r);
}

static void ends_while_nobody_listens(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "count");
	rig_disconnect(&r);
	let_go_on(&r);
	rig_until_dead(&r);
	assert_int_equal(r.last.phase, SUP_EMPTY);
	assert_int_equal(r.last.exit_code, 0);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	rig_done(&r);
}

/* An agent that is stopped reads nothing: neither the program nor its end waits for it. */
static void deaf_agent(void **state)
{
	struct rig r;
	rig_new(&r);
	r.deaf = true;
	rig_victim(&r, "lines", "20000");
	rig_launch(&r);
	rig_until_gone(&r);
	struct sup_status file;
	assert_true(rig_read_status(&r, &file));
	assert_int_equal(file.phase, SUP_EMPTY);
	/* The log's growth was told once at most between two changes of state. */
	int n = 0;
	while (rig_next(&r))
		n++;
	assert_true(n <= 8);
	assert_int_equal(r.last.phase, SUP_EMPTY);
	rig_done(&r);
}

static void supervisor_killed(void **state)
{
	struct rig r;
	rig_new(&r);
	begin(&r, "noting");
	assert_true(rig_is_locked(&r));
	kill(r.pid, SIGKILL);
	assert_int_equal(waitpid(r.pid, NULL, 0), r.pid);
	r.pid = 0;
	wait_unmarked(&r);
	assert_int_equal(rig_marked(&r), 0);
	assert_false(rig_is_locked(&r));
	rig_done(&r);
}

static void random_packets(void **state)
{
	struct rng rng;
	struct rig r;
	uint64_t seed = (uint64_t)clock_wall_us();
	print_message("seed %llu\n", (unsigned long long)seed);
	rng_seed(&rng, seed);
	rig_new(&r);
	begin(&r, "noting");
	for (int i = 0; i < 2000; i++) {
		union {
			struct sup_head head;
			struct sup_deadlines deadlines;
			unsigned char bytes[SUP_PACKET_MAX + 64];
		} p;
		size_t len = 1 + (size_t)rng_below(&rng, i % 4 ? 64 : sizeof(p) - 1);
		for (size_t k = 0; k < len; k++)
			p.bytes[k] = (unsigned char)rng_below(&rng, 256);
		if (i % 2 && len >= sizeof(p.head)) { /* nearly right, but nothing that stops it */
			p.head.type = (uint32_t[]){SUP_JOB, SUP_SEEN, SUP_DEADLINES, SUP_STATUS, 99}[rng_below(&rng, 5)];
			p.head.size = (uint32_t)len;
			len = p.head.type == SUP_DEADLINES && len >= sizeof(p.deadlines) ? sizeof(p.deadlines) - 1 : len;
		} else if (len >= sizeof(p.head) && p.head.type == SUP_STOP) {
			p.head.type = 0;
		}
		if (send(r.fd, &p, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			rig_connect(&r);
	}
	rig_connect(&r);
	assert_true(rig_next(&r));
	assert_int_equal(r.last.phase, SUP_RUNNING);
	assert_int_equal(r.last.stopped_by, SUP_NOT_STOPPED);
	rig_stop(&r, 1, 0, "");
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

static void only_the_same_user_may_connect(void **state)
{
	struct rig r;
	if (geteuid() != 0) {
		SKIP("needs root to be another user");
	}
	rig_new(&r);
	begin(&r, "noting");
	struct stat st;
	assert_int_equal(fstatat(r.dir_fd, "socket", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fchmodat(r.dir_fd, "socket", 0777, 0), 0);
	assert_int_equal(chmod(r.dir, 0777), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct sockaddr_un at = {.sun_family = AF_UNIX};
		char c;
		snprintf(at.sun_path, sizeof(at.sun_path), "%s/socket", r.dir);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (setuid(65534) < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
			_exit(2);
		_exit(recv(fd, &c, 1, 0) > 0); /* 1: it was told the status */
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
	rig_stop(&r, 1, 0, ""); /* and the agent was not replaced */
	ended(&r, SUP_BY_AGENT, SIGKILL);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		rig_test(stop_reaches_the_whole_tree),
		rig_test(leftovers_are_killed),
		rig_test(grace_then_kill),
		rig_test(no_grace_at_all),
		rig_test(second_stop_is_quicker),
		rig_test(sigterm_comes_once),
		rig_test(a_stopped_program_hears_sigterm),
		rig_test(a_stop_after_the_end_is_none),
		rig_test(timeout_ends_it),
		rig_test(sigterm_to_the_supervisor),
		rig_test(orphan),
		rig_test(orphan_without_a_directory),
		rig_test(exclusive_lease),
		rig_test(exclusive_lease_while_the_supervisor_hangs),
		rig_test(the_rest_has_its_grace),
		rig_test(a_lease_stop_is_not_taken_back),
		rig_test(fork_bomb),
		rig_test(processes_that_run_away),
		rig_test(another_subreaper_in_the_tree),
		rig_test(adoption),
		rig_test(ends_while_nobody_listens),
		rig_test(deaf_agent),
		rig_test(supervisor_killed),
		rig_test(random_packets),
		rig_test(only_the_same_user_may_connect),
	};
	/* What a killed supervisor leaves is ours to reap. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(all, NULL, NULL);
}
