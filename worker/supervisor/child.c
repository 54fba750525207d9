/* Between fork and exec everything that fails is said over a pipe that a successful exec closes.
 *
 * The first process is born in its cgroup of version 2 where the kernel can do that (5.7): to move a process that exists
 * waits for all processors, 10 ms and more, and what is born there was never outside. */
#include "worker/supervisor/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_FD 3
#define EXIT_NOT_STARTED 127
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#define CLONE_INTO 0x200000000ULL /* CLONE_INTO_CGROUP, which older headers lack */
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

static int fill(struct child_failure *f, int own, const char *what, int err)
{
	*f = (struct child_failure){.err = err ? err : EIO, .own = own};
	snprintf(f->text, sizeof(f->text), "%.400s: %s", what, strerror(f->err));
	return -f->err;
}

/* As execvp, but over a given search path, and without its way out to /bin/sh for a script that names no
 * interpreter.  Returns the errno that says most. */
static int exec_search(const char *search, char **argv, char **envp)
{
	const char *name = argv[0];
	if (strchr(name, '/')) {
		execve(name, argv, envp);
		return errno;
	}
	if (*name == '\0')
		return ENOENT;
	int seen = ENOENT;
	for (const char *p = search;;) {
		size_t len = strcspn(p, ":");
		char path[PATH_MAX];
		int n = len ? snprintf(path, sizeof(path), "%.*s/%s", (int)len, p, name)
			    : snprintf(path, sizeof(path), "./%s", name);
		if (n > 0 && (size_t)n < sizeof(path)) {
			execve(path, argv, envp);
			int err = errno;
			if (err != EACCES && err != ENOENT && err != ENOTDIR)
				return err;
			/* Only if the program is there: a directory that may not be entered says nothing of it. */
			if (err == EACCES && access(path, F_OK) == 0)
				seen = EACCES;
		}
		if (p[len] == '\0')
			return seen;
		p += len + 1;
	}
}

/* As clone3 takes it; the kernel is told how much of it we know. */
struct clone_args_2 {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* fork, into the cgroup. -1: there is none, or it can't be done (an older kernel, seccomp, rights): fork and join do it
 * otherwise, or say why not.  The caller has one thread, and the child only makes system calls until it is the program or has
 * looked its user up: that libc does not know of this fork does no harm. */
static pid_t fork_into(const char *dir)
{
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		return -1;
	struct clone_args_2 args = {.flags = CLONE_INTO, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid != 0)
		close(fd);
	return pid;
}

/* `born`: the one that we are in already; -1: none. */
static int join_cgroups(char *const *dirs, int born, struct child_failure *f)
{
	for (int i = 0; dirs[i]; i++) {
		char path[PATH_MAX];
		if (i == born)
			continue;
		int n = snprintf(path, sizeof(path), "%s/cgroup.procs", dirs[i]);
		int fd = n > 0 && (size_t)n < sizeof(path) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
		if (fd < 0 || write(fd, "0", 1) != 1)
			return fill(f, 1, dirs[i], errno);
		close(fd);
	}
	return 0;
}

static int set_limit(int which, int64_t soft, bool hard_too, const char *what, struct child_failure *f)
{
	struct rlimit r;
	if (getrlimit((__rlimit_resource_t)which, &r) < 0)
		return fill(f, 1, what, errno);
	/* More than the hard limit would need rights that a worker may lack. */
	r.rlim_cur = r.rlim_max != RLIM_INFINITY && (rlim_t)soft > r.rlim_max ? r.rlim_max : (rlim_t)soft;
	if (hard_too)
		r.rlim_max = r.rlim_cur;
	return setrlimit((__rlimit_resource_t)which, &r) < 0 ? fill(f, 1, what, errno) : 0;
}

static const struct passwd *find_user(const char *name)
{
	const struct passwd *pw = getpwnam(name);
	if (pw || strspn(name, "0123456789") != strlen(name))
		return pw;
	errno = 0;
	unsigned long uid = strtoul(name, NULL, 10);
	return errno || uid >= UINT32_MAX ? NULL : getpwuid((uid_t)uid);
}

static int become(const char *user, struct child_failure *f)
{
	if (!*user)
		return 0;
	errno = 0;
	const struct passwd *pw = find_user(user);
	char what[320];
	snprintf(what, sizeof(what), "running as user %.256s", user);
	if (!pw)
		return fill(f, 1, what, errno ? errno : ENOENT);
	/* So that the program may open /dev/stdout by name. */
	if (fchown(STDOUT_FILENO, pw->pw_uid, pw->pw_gid) < 0 || fchown(STDERR_FILENO, pw->pw_uid, pw->pw_gid) < 0 ||
	    initgroups(pw->pw_name, pw->pw_gid) < 0 || setgid(pw->pw_gid) < 0 || setuid(pw->pw_uid) < 0)
		return fill(f, 1, what, errno);
	return 0;
}

static int apply(const struct job *j, pid_t supervisor, int born, struct child_failure *f)
{
	const struct sup_job_file *s = &j->f;
	int r = join_cgroups(j->join, born, f);
	if (r == 0 && s->open_files)
		r = set_limit(RLIMIT_NOFILE, s->open_files, false, "limit of open files", f);
	if (r == 0 && s->core_bytes >= 0)
		r = set_limit(RLIMIT_CORE, s->core_bytes, true, "limit of core files", f);
	if (r == 0)
		r = become(j->user, f);
	if (r == 0 && s->processes)
		r = set_limit(RLIMIT_NPROC, s->processes, true, "limit of processes", f);
	if (r == 0 && s->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = fill(f, 1, "no_new_privs", errno);
	/* After the change of user, which clears it. */
	if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		r = fill(f, 1, "prctl", errno);
	if (r == 0 && getppid() != supervisor)
		r = fill(f, 1, "the supervisor is gone", ESRCH);
	if (r == 0 && chdir(j->directory) < 0) {
		int err = errno;
		char what[400];
		snprintf(what, sizeof(what), "working directory %.370s", j->directory);
		r = fill(f, 0, what, err);
	}
	return r;
}

/* Failures of the machine, not of the program. */
static int is_own(int err)
{
	return err == EAGAIN || err == ENOMEM || err == ENFILE || err == EMFILE || err == EIO;
}

static void become_program(const struct job *j, pid_t supervisor, int born, const int io[3], struct child_failure *f)
{
	sigset_t none;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < 3; i++)
		if (io[i] >= 0 && dup2(io[i], i) < 0) {
			fill(f, 1, "dup2", errno);
			return;
		}
	if (apply(j, supervisor, born, f) < 0)
		return;
	syscall(SYS_close_range, FIRST_FD, ~0U, CLOSE_RANGE_CLOEXEC);
	int err = exec_search(j->search_path, j->argv, j->envp);
	fill(f, is_own(err), j->argv[0], err);
}

static void close_all(int fds[static 6])
{
	for (int i = 0; i < 6; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int child_start(const struct job *j, int stdin_fd, struct child *ret_child, struct child_failure *f)
{
	int fds[6] = {-1, -1, -1, -1, -1, -1}; /* stdout, stderr, failure: our end, its end */
	for (int i = 0; i < 6; i += 2)
		/* Only our end: a program does not expect its stdout to be non-blocking. */
		if (pipe2(fds + i, O_CLOEXEC) < 0 || fcntl(fds[i], F_SETFL, O_NONBLOCK) < 0) {
			fill(f, 1, "pipe", errno);
			close_all(fds);
			return -f->err;
		}
	pid_t supervisor = getpid();
	int born = j->f.kill_index;
	pid_t pid = fork_into(born >= 0 ? j->join[born] : NULL);
	if (pid < 0) {
		born = -1;
		pid = fork();
	}
	if (pid < 0) {
		fill(f, 1, "fork", errno);
		close_all(fds);
		return -f->err;
	}
	if (pid == 0) {
		const int io[3] = {stdin_fd, fds[1], fds[3]};
		become_program(j, supervisor, born, io, f);
		/* Smaller than PIPE_BUF: whole or not at all. */
		_exit(write(fds[5], f, sizeof(*f)) < 0 ? EXIT_NOT_STARTED : EXIT_NOT_STARTED);
	}
	for (int i = 1; i < 6; i += 2)
		close(fds[i]);
	*ret_child = (struct child){.pid = pid, .out = {fds[0], fds[2]}, .failure = fds[4]};
	return 0;
}
