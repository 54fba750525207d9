/* Asks nvidia-smi, or looks into /dev. nvidia-smi can take seconds, and for ever when a driver hangs: it gets a time
 * limit, and one that SIGKILL does not end is left behind. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/num.h"
#include "worker/devices_private.h"

#define ANSWER_MAX (256 * 1024) /* 1024 GPUs take less */
#define REAP_NS NS_PER_S        /* for the end after SIGKILL */

static bool find_smi(const char *search, char ret[static PATH_MAX])
{
	for (const char *p = search; *p; p += strspn(p, ":")) {
		size_t len = strcspn(p, ":");
		if (len && *p == '/' && (size_t)snprintf(ret, PATH_MAX, "%.*s/nvidia-smi", (int)len, p) < PATH_MAX &&
		    access(ret, X_OK) == 0)
			return true;
		p += len;
	}
	return false;
}

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	size_t n = strlen(s);
	while (n > 0 && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	return s;
}

static bool parse_line(char *line, struct found_device *ret)
{
	char *uuid = strchr(line, ',');
	int64_t index;
	if (!uuid)
		return false;
	*uuid++ = '\0';
	line = trim(line);
	uuid = trim(uuid);
	if (num_parse_i64(line, &index) < 0 || index < 0 || index >= DEVICES_MAX || strlen(uuid) >= sizeof(ret->uuid) ||
	    (strncmp(uuid, "GPU-", 4) != 0 && strcmp(uuid, "[N/A]") != 0) || strpbrk(uuid, ", \t"))
		return false;
	snprintf(ret->index, sizeof(ret->index), "%d", (int)index);
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", *uuid == 'G' ? uuid : "");
	return true;
}

bool devices_parse_smi(const char *text, struct device_list *ret)
{
	_cleanup_free_ char *copy = xstrdup(text);
	char *rest = copy;
	ret->n = 0;
	for (char *line; (line = strsep(&rest, "\n"));) {
		line = trim(line);
		if (!*line)
			continue;
		if (ret->n == DEVICES_MAX || !parse_line(line, &ret->at[ret->n]))
			return false;
		for (size_t i = 0; i < ret->n; i++)
			if (strcmp(ret->at[i].index, ret->at[ret->n].index) == 0)
				return false;
		ret->n++;
	}
	return true;
}

static int start(const char *path, int out, pid_t *ret)
{
	char *argv[] = {(char *)"nvidia-smi", (char *)"--query-gpu=index,uuid", (char *)"--format=csv,noheader", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t group; /* of its own, so that it can be ended with what it may have started */
	int err = posix_spawn_file_actions_init(&files);
	if (err)
		return -err;
	if ((err = posix_spawnattr_init(&group)) != 0) {
		posix_spawn_file_actions_destroy(&files);
		return -err;
	}
	err = posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
	if (!err)
		err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	if (!err)
		err = posix_spawn_file_actions_adddup2(&files, out, 1);
	if (!err)
		err = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	if (!err)
		err = posix_spawn(ret, path, &files, &group, argv, environ);
	posix_spawnattr_destroy(&group);
	posix_spawn_file_actions_destroy(&files);
	return -err;
}

/* All that it says, until its output ends. -ETIMEDOUT, -E2BIG. */
static ssize_t read_answer(int fd, char *text, int64_t until_boot_ns)
{
	size_t len = 0;
	for (;;) {
		int64_t left = until_boot_ns - clock_boot_ns();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)min_i64(left / NS_PER_MS + 1, 1000)) <= 0)
			continue;
		if (len == ANSWER_MAX - 1)
			return -E2BIG;
		ssize_t n = read(fd, text + len, ANSWER_MAX - 1 - len);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		len += n > 0 ? (size_t)n : 0;
	}
	text[len] = '\0';
	return (ssize_t)len;
}

static bool reap(pid_t pid, int64_t until_boot_ns, int *ret_status)
{
	while (waitpid(pid, ret_status, WNOHANG) == 0) {
		if (clock_boot_ns() > until_boot_ns)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
	}
	return true;
}

int devices_ask_smi(const struct devices_config *cfg, char *why, size_t cap, struct device_list *ret)
{
	char path[PATH_MAX], limit[32];
	int ends[2], status = 0;
	pid_t pid;
	if (!find_smi(cfg->search_path, path))
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		snprintf(why, cap, "no pipe: %s", strerror(errno));
		return -1;
	}
	int64_t until = clock_boot_ns() + cfg->limit_ns;
	int r = start(path, ends[1], &pid);
	close(ends[1]);
	if (r < 0) {
		close(ends[0]);
		snprintf(why, cap, "%.200s can't be run: %s", path, strerror(-r));
		return -1;
	}
	_cleanup_free_ char *text = xcalloc(1, ANSWER_MAX);
	ssize_t len = read_answer(ends[0], text, until);
	close(ends[0]);
	bool ended = len >= 0 && reap(pid, until, &status);
	num_format_duration(cfg->limit_ns, limit, sizeof(limit));
	if (!ended) {
		kill(-pid, SIGKILL);
		(void)!reap(pid, clock_boot_ns() + REAP_NS, &status);
		snprintf(why, cap, len == -E2BIG ? "%.200s says more than can be read" : "%.200s did not end within %s", path, limit);
		return -1;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		snprintf(why, cap, "%.200s failed (%s %d)", path, WIFEXITED(status) ? "exit code" : "signal",
			 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		return -1;
	}
	if (!devices_parse_smi(text, ret)) {
		snprintf(why, cap, "%.200s did not answer with lines of \"index, uuid\"", path);
		return -1;
	}
	return 1;
}

static int by_index(const void *a, const void *b)
{
	const struct found_device *x = a, *y = b;
	return (int)strtol(x->index, NULL, 10) - (int)strtol(y->index, NULL, 10);
}

void devices_look(const char *dir, struct device_list *ret)
{
	DIR *d = opendir(dir);
	ret->n = 0;
	for (struct dirent *e; d && ret->n < DEVICES_MAX && (e = readdir(d));) {
		int64_t index;
		if (strncmp(e->d_name, "nvidia", 6) != 0 || !isdigit((unsigned char)e->d_name[6]) ||
		    num_parse_i64(e->d_name + 6, &index) < 0 || index >= DEVICES_MAX)
			continue;
		struct found_device *f = &ret->at[ret->n++];
		f->uuid[0] = '\0';
		snprintf(f->index, sizeof(f->index), "%d", (int)index);
	}
	if (d)
		closedir(d);
	qsort(ret->at, ret->n, sizeof(ret->at[0]), by_index);
}
