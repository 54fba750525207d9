/* Looks through /proc; only before the first session, never on the loop. */
#include "worker/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

#define ENVIRON_MAX (512 * 1024) /* the kernel's own limit is of this order */

/* The value of a variable in a block of NUL-terminated strings, or NULL. */
static const char *find_variable(const char *block, size_t len, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = block, *end = block + len; p < end; p += strlen(p) + 1)
		if (!strncmp(p, name, n) && p[n] == '=')
			return p + n + 1;
	return NULL;
}

static size_t read_environ(pid_t pid, char *out, size_t cap)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	size_t len = 0;
	for (ssize_t n; len < cap - 1 && (n = read(fd, out + len, cap - 1 - len)) > 0;)
		len += (size_t)n;
	close(fd);
	out[len] = '\0';
	return len;
}

static bool is_ours(const char *block, size_t len, const char *worker_id, char *const *task_ids, size_t n)
{
	const char *worker = find_variable(block, len, "REINS_WORKER_ID");
	const char *task = find_variable(block, len, "REINS_TASK_ID");
	if (!worker || !task || strcmp(worker, worker_id) != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(task, task_ids[i]))
			return true;
	return false;
}

static int sweep_once(const char *worker_id, char *const *task_ids, size_t n, char *block)
{
	DIR *proc = opendir("/proc");
	if (!proc)
		return 0;
	int found = 0;
	for (struct dirent *e; (e = readdir(proc));) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid == getpid())
			continue;
		size_t len = read_environ(pid, block, ENVIRON_MAX);
		if (len && is_ours(block, len, worker_id, task_ids, n) && kill(pid, SIGKILL) == 0)
			found++;
	}
	closedir(proc);
	return found;
}

int sweep_processes(const char *worker_id, char *const *task_ids, size_t n, int64_t limit_ns)
{
	if (n == 0)
		return 0;
	_cleanup_free_ char *block = xcalloc(1, ENVIRON_MAX);
	int64_t until = clock_boot_ns() + limit_ns;
	for (int total = 0;;) {
		int found = sweep_once(worker_id, task_ids, n, block);
		if (found == 0)
			return total;
		total = found > total ? found : total;
		if (clock_boot_ns() > until)
			return -ETIMEDOUT;
		const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
		nanosleep(&pause, NULL);
	}
}
