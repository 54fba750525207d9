/* reins-exec: what stands between the agent and the program.  Linked with libc only.
 *
 *   reins-exec AGENT_PID FILES SEARCH_PATH DIRECTORY PROGRAM [ARG…]
 *
 * It is started by the agent as leader of its own session with stdin, stdout and stderr as the program will
 * have them and a pipe as descriptor 3.  It ties its life to the agent's, changes the
 * directory and becomes the program.  The pipe is closed by a successful exec; before a failure it
 * carries one line for a person, and the exit code is 127.
 *
 * FILES is the soft limit on open files that the program gets; the agent may have raised its own.
 * SEARCH_PATH is the agent's own PATH: the task's environment may name another, which counts for the
 * program's children only. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STATUS_FD = 3, EXIT_NOT_STARTED = 127 };

static int fail(const char *what, int err)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "%.800s: %s", what, strerror(err));
	if (n > 0 && write(STATUS_FD, line, (size_t)n) < 0)
		return EXIT_NOT_STARTED;
	return EXIT_NOT_STARTED;
}

/* As execvp, but over a given search path, and without its way out to /bin/sh for a script that names no
 * interpreter.  Returns the errno that says most. */
static int exec_search(const char *search, char **argv)
{
	const char *name = argv[0];
	if (strchr(name, '/')) {
		execv(name, argv);
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
			execv(path, argv);
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

/* A number from 1 to LONG_MAX; 0 for anything else. */
static long number(const char *text)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	return errno || *end || n < 1 ? 0 : n;
}

int main(int argc, char **argv)
{
	long agent = argc < 6 ? 0 : number(argv[1]);
	if (!agent || fcntl(STATUS_FD, F_SETFD, FD_CLOEXEC) < 0) {
		fputs("reins-exec is started by reins-worker\n", stderr);
		return 64;
	}
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return fail("prctl", errno);
	if (getppid() != (pid_t)agent)
		return fail("reins-worker is gone", ESRCH);
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && number(argv[2])) {
		files.rlim_cur = (rlim_t)number(argv[2]);
		if (setrlimit(RLIMIT_NOFILE, &files) < 0)
			return fail("limit of open files", errno);
	}
	if (chdir(argv[4]) < 0)
		return fail(argv[4], errno);
	return fail(argv[5], exec_search(argv[3], argv + 5));
}
