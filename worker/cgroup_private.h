/* Between cgroup.c (attempts) and cgroup_find.c (what there is). */
#ifndef REINS_WORKER_CGROUP_PRIVATE_H
#define REINS_WORKER_CGROUP_PRIVATE_H

#include "worker/cgroup.h"

struct hierarchy {
	int version;      /* 1 or 2 */
	unsigned can;     /* CGROUP_… */
	char *mount;      /* where it is mounted */
	char *base;       /* the directory that the worker's is in */
	char *dir;        /* the worker's own */
};

struct cgroups {
	struct hierarchy h[CGROUP_DIRS_MAX];
	size_t n;
	unsigned can;
	int64_t pids_limit;
	int64_t outer_cpu_millis, outer_memory;
	char text[1024];
};

/* Fills c->h, c->can, outer limits and the text. -1 with a sentence only with a path as the mode. */
int cgroups_find(struct cgroups *c, const struct cgroup_config *cfg, char *ret_err, size_t err_cap) MUST_CHECK;

/* Small kernel files.  The length, or -errno; NUL-terminated. */
ssize_t cgroup_read(const char *dir, const char *file, char *out, size_t cap) MUST_CHECK;
int cgroup_write(const char *dir, const char *file, const char *text) MUST_CHECK;
bool cgroup_has(const char *dir, const char *file);

#endif
