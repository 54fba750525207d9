/* Owns, while it runs, the one child process that asks git. */
#include "client/origin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/pb/utf8.h"

extern char **environ;

static int spawn_with_output(const char *const *argv, int out_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attr);
	/* A group of its own, so that what it started ends with it. */
	posix_spawnattr_setpgroup(&attr, 0);
	sigemptyset(&set);
	posix_spawnattr_setsigmask(&attr, &set);
	sigaddset(&set, SIGPIPE);
	posix_spawnattr_setsigdefault(&attr, &set);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int err = posix_spawnp(ret_pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

/* Until the end of the output or the deadline; what does not fit is read and dropped. */
static int read_output(int fd, int64_t deadline_mono_ns, char *out, size_t cap)
{
	size_t len = 0;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = deadline_mono_ns - clock_mono_ns();
		char drop[512];
		out[len] = 0;
		if (left <= 0)
			return -ETIMEDOUT;
		int ready = poll(&p, 1, (int)min_i64((left + NS_PER_MS - 1) / NS_PER_MS, INT_MAX));
		if (ready < 0 && errno != EINTR)
			return -errno;
		if (ready <= 0)
			continue;
		bool room = len + 1 < cap;
		ssize_t n = room ? read(fd, out + len, cap - 1 - len) : read(fd, drop, sizeof drop);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && room)
			len += (size_t)n;
	}
}

/* Its output may end before it does. */
static int wait_until(pid_t pid, int64_t deadline_mono_ns, int *ret_status)
{
	const struct timespec pause = { .tv_nsec = NS_PER_MS };
	for (;;) {
		pid_t got = waitpid(pid, ret_status, WNOHANG);
		if (got == pid)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (clock_mono_ns() >= deadline_mono_ns)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

int origin_run(const char *const *argv, int64_t deadline_mono_ns, char *ret_out, size_t cap)
{
	int fds[2], status;
	pid_t pid;
	ret_out[0] = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	int err = spawn_with_output(argv, fds[1], &pid);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		return err;
	}
	err = read_output(fds[0], deadline_mono_ns, ret_out, cap);
	close(fds[0]);
	if (!err)
		err = wait_until(pid, deadline_mono_ns, &status);
	if (err) {
		kill(-pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	if (err)
		return err;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

static bool is_hex(const char *s)
{
	return *s && s[strspn(s, "0123456789abcdef")] == 0;
}

static void find_git(int64_t timeout_ns, struct origin *o)
{
	static const char *const head[] = { "git", "rev-parse", "--verify", "--quiet", "HEAD", NULL };
	/* No lock on the index, and no hook program that the work tree's settings name. */
	static const char *const status[] = { "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "status",
					      "--porcelain", "--untracked-files=no", NULL };
	int64_t deadline = clock_mono_ns() + timeout_ns;
	char out[256];
	if (origin_run(head, deadline, out, sizeof out) != 0)
		return;
	out[strcspn(out, "\n")] = 0;
	if (!is_hex(out) || strlen(out) >= sizeof o->git_commit)
		return;
	snprintf(o->git_commit, sizeof o->git_commit, "%s", out);
	o->git_dirty = origin_run(status, deadline, out, sizeof out) != 0 || out[0];
}

static void set_text(const char *s, char *ret_text, size_t cap)
{
	if (s)
		utf8_make_valid(s, strlen(s), ret_text, cap, NULL);
}

void origin_find(int64_t timeout_ns, struct origin *ret)
{
	struct origin o = { 0 };
	char host[256] = "", directory[PATH_MAX];
	const struct passwd *pw = getpwuid(getuid());
	set_text(pw ? pw->pw_name : getenv("USER"), o.user, sizeof o.user);
	if (!gethostname(host, sizeof host - 1))
		set_text(host, o.host, sizeof o.host);
	set_text(getcwd(directory, sizeof directory), o.directory, sizeof o.directory);
	find_git(timeout_ns, &o);
	const char *trace = getenv("TRACEPARENT");
	if (trace && traceparent_ok(trace))
		set_text(trace, o.traceparent, sizeof o.traceparent);
	*ret = o;
}
