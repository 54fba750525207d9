/* An attempt's directories: made with their limits, ended, removed. A hierarchy that has nothing to do for an attempt
 * gets no directory, since making and removing one is not free. */
#include "worker/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/cgroup_private.h"

#define PERIOD_US 100000      /* over which a cpu limit is counted */
#define LONG_PERIOD_US 1000000
#define QUOTA_MIN_US 1000     /* of the kernel */
#define PROCS_MAX 65536       /* bytes of cgroup.procs read at a time; what does not fit is killed next time */
#define SWEEP_STEP_NS (5 * NS_PER_MS)

ssize_t cgroup_read(const char *dir, const char *file, char *out, size_t cap)
{
	char path[4096];
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, out, cap - 1);
	int err = errno;
	close(fd);
	if (n < 0)
		return -err;
	out[n] = '\0';
	if (n > 0 && out[n - 1] == '\n')
		out[--n] = '\0';
	return n;
}

int cgroup_write(const char *dir, const char *file, const char *text)
{
	char path[4096];
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	ssize_t n = write(fd, text, strlen(text));
	int r = n < 0 ? -errno : (size_t)n < strlen(text) ? -EIO : 0;
	close(fd);
	return r;
}

bool cgroup_has(const char *dir, const char *file)
{
	char path[4096];
	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) < sizeof(path) && access(path, F_OK) == 0;
}

int cgroups_new(const struct cgroup_config *cfg, char *err, size_t cap, struct cgroups **ret)
{
	struct cgroups *c = xcalloc(1, sizeof(*c));
	c->pids_limit = cfg->pids_limit;
	int r = cgroups_find(c, cfg, err, cap);
	if (r < 0)
		cgroups_free(c);
	else
		*ret = c;
	return r;
}

void cgroups_free(struct cgroups *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++) {
		rmdir(c->h[i].dir);
		free(c->h[i].mount);
		free(c->h[i].base);
		free(c->h[i].dir);
	}
	free(c);
}

unsigned cgroups_can(const struct cgroups *c)
{
	return c->can;
}

const char *cgroups_describe(const struct cgroups *c)
{
	return c->text;
}

void cgroups_outer(const struct cgroups *c, int64_t *ret_cpu_millis, int64_t *ret_memory)
{
	*ret_cpu_millis = c->outer_cpu_millis;
	*ret_memory = c->outer_memory;
}

/* ---- limits ---- */

struct write {
	const char *dir;
	int err;
	char file[48];
};

static void put(struct write *w, const char *file, int64_t value)
{
	char text[32];
	if (w->err)
		return;
	snprintf(text, sizeof(text), "%" PRId64, value);
	w->err = cgroup_write(w->dir, file, text);
	if (w->err)
		snprintf(w->file, sizeof(w->file), "%s", file);
}

/* One that not every kernel has. */
static void put_if_there(struct write *w, const char *file, int64_t value)
{
	if (!w->err && cgroup_has(w->dir, file))
		put(w, file, value);
}

static void limit_memory(struct write *w, int version, int64_t bytes)
{
	if (version == 2) {
		put(w, "memory.max", bytes);
		put_if_there(w, "memory.swap.max", 0);
		put_if_there(w, "memory.oom.group", 1);
		return;
	}
	put(w, "memory.limit_in_bytes", bytes);
	/* Memory and swap together: as much as memory alone. */
	put_if_there(w, "memory.memsw.limit_in_bytes", bytes);
	if (!cgroup_has(w->dir, "memory.memsw.limit_in_bytes"))
		put_if_there(w, "memory.swappiness", 0);
}

static void limit_cpu(struct write *w, int version, int64_t millis)
{
	int64_t period = PERIOD_US, quota = millis * (PERIOD_US / 1000);
	if (quota < QUOTA_MIN_US) {
		period = LONG_PERIOD_US;
		quota = max_i64(millis * (LONG_PERIOD_US / 1000), QUOTA_MIN_US);
	}
	if (version == 2) {
		char text[64];
		snprintf(text, sizeof(text), "%" PRId64 " %" PRId64, quota, period);
		w->err = w->err ? w->err : cgroup_write(w->dir, "cpu.max", text);
		if (w->err)
			snprintf(w->file, sizeof(w->file), "cpu.max");
		return;
	}
	put(w, "cpu.cfs_period_us", period);
	put(w, "cpu.cfs_quota_us", quota);
	/* The limit of a cgroup around us is tighter: that one holds. */
	if (w->err == -EINVAL)
		w->err = 0;
}

/* What this hierarchy is to do for the attempt. */
static unsigned duties(const struct cgroups *c, const struct hierarchy *h, const struct cgroup_limits *l)
{
	unsigned all = CGROUP_KILL | (l->memory_bytes ? CGROUP_MEMORY : 0) | (l->cpu_millis ? CGROUP_CPU : 0) |
		       (c->pids_limit ? CGROUP_PIDS : 0);
	return h->can & all;
}

static int make_one(const struct cgroups *c, const struct hierarchy *h, const char *path, const struct cgroup_limits *l,
		    char *err, size_t cap)
{
	struct write w = {.dir = path};
	unsigned todo = duties(c, h, l);
	if (mkdir(path, 0755) < 0 && errno != EEXIST) {
		int r = -errno;
		snprintf(err, cap, "cgroup %.200s: %s", path, strerror(-r));
		return r;
	}
	if (todo & CGROUP_MEMORY)
		limit_memory(&w, h->version, l->memory_bytes);
	if (todo & CGROUP_CPU)
		limit_cpu(&w, h->version, l->cpu_millis);
	if (todo & CGROUP_PIDS)
		put(&w, "pids.max", c->pids_limit);
	if (w.err)
		snprintf(err, cap, "cgroup %.200s: %s: %s", path, w.file, strerror(-w.err));
	return w.err;
}

int cgroups_make(struct cgroups *c, const char *name, const struct cgroup_limits *l, char *err, size_t cap,
		 struct cgroup_dirs *ret)
{
	struct cgroup_dirs d = {.kill_index = -1, .oom_index = -1};
	int r = 0;
	if (l->memory_bytes && !(c->can & CGROUP_MEMORY)) {
		snprintf(err, cap, "a limit of memory can't be enforced on this worker: it has no cgroup with the memory controller");
		return -ENOTSUP;
	}
	for (size_t i = 0; i < c->n && r == 0; i++) {
		const struct hierarchy *h = &c->h[i];
		if (!duties(c, h, l))
			continue;
		char *path;
		if (asprintf(&path, "%s/%s", h->dir, name) < 0)
			abort(); /* a path's length */
		d.path[d.n] = path;
		r = make_one(c, h, path, l, err, cap);
		if (h->can & CGROUP_KILL)
			d.kill_index = (int)d.n;
		if (h->can & CGROUP_MEMORY)
			d.oom_index = (int)d.n;
		d.n++;
	}
	if (r < 0) {
		for (size_t i = 0; i < d.n; i++)
			rmdir(d.path[i]);
		cgroup_dirs_done(&d);
		return r;
	}
	*ret = d;
	return 0;
}

void cgroup_dirs_done(struct cgroup_dirs *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->path[i]);
	*d = (struct cgroup_dirs){.kill_index = -1, .oom_index = -1};
}

/* ---- the end ---- */

/* Directories that the program made in its own. */
static void remove_below(const char *dir, int depth)
{
	DIR *d = depth < 32 ? opendir(dir) : NULL;
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		char path[4096];
		if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= sizeof(path))
			continue;
		remove_below(path, depth + 1);
		rmdir(path);
	}
	closedir(d);
}

static void kill_procs(const char *dir, int depth)
{
	_cleanup_free_ char *text = xcalloc(1, PROCS_MAX);
	if (cgroup_read(dir, "cgroup.procs", text, PROCS_MAX) > 0)
		for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
			long pid = strtol(line, NULL, 10);
			if (pid > 1 && pid != getpid())
				kill((pid_t)pid, SIGKILL);
		}
	DIR *d = depth < 32 ? opendir(dir) : NULL;
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		char path[4096];
		if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < sizeof(path))
			kill_procs(path, depth + 1);
	}
	closedir(d);
}

int cgroups_end(struct cgroups *c, const char *name)
{
	int r = 0;
	for (size_t i = 0; i < c->n; i++) {
		char path[4096];
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", c->h[i].dir, name) >= sizeof(path))
			return -ENAMETOOLONG;
		if (rmdir(path) == 0 || errno == ENOENT)
			continue;
		if (!(c->h[i].can & CGROUP_KILL) || cgroup_write(path, "cgroup.kill", "1") < 0)
			kill_procs(path, 0);
		remove_below(path, 0);
		if (rmdir(path) < 0 && errno != ENOENT && (r == 0 || r == -EBUSY))
			r = -errno;
	}
	return r;
}

/* Up to `max` names of attempts' directories that nobody keeps. */
static size_t list_left(struct cgroups *c, bool (*keep)(void *, const char *), void *arg, char **names, size_t max)
{
	size_t n = 0;
	for (size_t i = 0; i < c->n; i++) {
		DIR *d = opendir(c->h[i].dir);
		for (struct dirent *e; d && n < max && (e = readdir(d));) {
			bool known = e->d_type != DT_DIR || e->d_name[0] == '.' || (keep && keep(arg, e->d_name));
			for (size_t k = 0; k < n && !known; k++)
				known = strcmp(names[k], e->d_name) == 0;
			if (!known)
				names[n++] = xstrdup(e->d_name);
		}
		if (d)
			closedir(d);
	}
	return n;
}

int cgroups_sweep(struct cgroups *c, bool (*keep)(void *arg, const char *name), void *arg, int64_t limit_ns)
{
	int64_t until = clock_boot_ns() + limit_ns;
	for (;;) {
		char *names[256];
		size_t n = list_left(c, keep, arg, names, ARRAY_LEN(names)), left = 0;
		for (size_t i = 0; i < n; i++) {
			left += cgroups_end(c, names[i]) < 0;
			free(names[i]);
		}
		if (n == 0)
			return 0;
		if (left && clock_boot_ns() > until)
			return (int)left;
		if (left)
			nanosleep(&(struct timespec){.tv_nsec = SWEEP_STEP_NS}, NULL);
	}
}
