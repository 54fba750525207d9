/* reins-worker: settings, signals, the loop. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log/log.h"
#include "common/loop/loop.h"
#include "worker/agent.h"
#include "worker/config.h"

#define FILES_PER_ATTEMPT 4
#define FILES_OWN 128
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

static void on_signal(void *arg, int signo)
{
	if (signo == SIGHUP)
		agent_reload(arg);
	else
		agent_signal(arg);
}

/* Beside this program, where the build and an installation put it. malloc'ed, or NULL. */
static char *find_supervisor(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return NULL;
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	char *path;
	if (!slash || asprintf(&path, "%.*s/reins-supervisor", (int)(slash - self), self) < 0)
		return NULL;
	if (access(path, X_OK) == 0)
		return path;
	free(path);
	return NULL;
}

/* Enough descriptors for all slots. Returns what programs are to get: the limit as it was; 0: no change was made. */
static long raise_files(int64_t slots)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 0;
	rlim_t before = r.rlim_cur, want = (rlim_t)(slots * FILES_PER_ATTEMPT + FILES_OWN);
	if (want <= before)
		return 0;
	r.rlim_cur = r.rlim_max != RLIM_INFINITY && want > r.rlim_max ? r.rlim_max : want;
	return setrlimit(RLIMIT_NOFILE, &r) < 0 ? 0 : (long)before;
}

static int fail(const char *text)
{
	fprintf(stderr, "reins-worker: %s\n", text);
	return 1;
}

static int set_up_log(const struct worker_config *c)
{
	enum log_level level;
	if (log_parse_level(c->log_level, &level) < 0) {
		fail("--log-level: debug, info, warn, error or silent");
		return 64;
	}
	if (strcmp(c->log_format, "text") != 0 && strcmp(c->log_format, "json") != 0) {
		fail("--log-format: text or json");
		return 64;
	}
	log_setup(level, strcmp(c->log_format, "json") == 0 ? LOG_JSON : LOG_TEXT);
	return 0;
}

static int run(const struct worker_config *c)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
	struct loop_signal *watched[ARRAY_LEN(signals)] = {NULL};
	struct loop *loop;
	struct agent *agent = NULL;
	char err[1024];
	_cleanup_free_ char *supervisor = find_supervisor();
	if (!supervisor)
		return fail("reins-supervisor is not beside reins-worker");
	long files = raise_files(c->slots);
	if (loop_new(&loop) < 0)
		return fail("no event loop");
	int code = 0;
	if (agent_new(loop, c, supervisor, files, err, sizeof(err), &agent) < 0)
		code = fail(err);
	for (size_t i = 0; agent && i < ARRAY_LEN(signals); i++)
		if (loop_signal_new(loop, signals[i], on_signal, agent, &watched[i]) < 0)
			code = fail("signals can't be watched");
	if (agent && code == 0) {
		agent_start(agent);
		loop_run(loop);
		code = agent_exit_code(agent);
	}
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		loop_signal_free(watched[i]);
	agent_free(agent);
	loop_free(loop);
	return code;
}

/* What we were started with is not for programs: descriptors that our parent left open, and rights for all on what is
 * written. */
static void shed(void)
{
	if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		for (int fd = 3; fd < FILES_OWN; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	umask(umask(0) | 022);
}

int main(int argc, char **argv)
{
	struct worker_config c = {0};
	char err[512];
	shed();
	switch (settings_load(&worker_program, argc, argv, &c, NULL, NULL)) {
	case SETTINGS_EXIT_0:
		return 0;
	case SETTINGS_EXIT_64:
		return 64;
	case SETTINGS_RUN:
		break;
	}
	int code;
	if (worker_config_finish(&c, err, sizeof(err)) < 0) {
		fail(err);
		code = 64;
	} else {
		code = set_up_log(&c);
		if (code == 0)
			code = run(&c);
	}
	settings_done(&worker_program, &c);
	return code;
}
