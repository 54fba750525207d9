/* Control groups: how much memory, cpu and how many processes an attempt may have, and how its tree is ended.
 *
 * Used is what is there: a cgroup v2 hierarchy with controllers (we are root, or our own cgroup was delegated to us), one
 * without (for cgroup.kill alone), and v1 hierarchies of the controllers memory, cpu and pids.  In each the worker has
 * one directory, in it each attempt one, made by cgroups_make and removed by who ends the tree.
 *
 * All calls are a few small file operations on kernel files and don't block, but for cgroups_sweep. */
#ifndef REINS_WORKER_CGROUP_H
#define REINS_WORKER_CGROUP_H

#include "common/base/base.h"

enum { CGROUP_MEMORY = 1, CGROUP_CPU = 2, CGROUP_PIDS = 4, CGROUP_KILL = 8 };

#define CGROUP_DIRS_MAX 4     /* v2, and v1 memory, cpu, pids */
#define CGROUP_AGENT "agent"  /* the leaf that the agent itself moves into: v2 wants no processes beside directories */

struct cgroups;

struct cgroup_config {
	const char *mode;     /* "auto"; "off"; or the absolute path of a cgroup v2 directory to use, and nothing else */
	const char *name;     /* of this worker's directory; must be its own on this machine */
	int64_t pids_limit;   /* for each attempt, where there is a controller; 0: none */
	bool pids_v1;         /* also one of v1, which every start would wait for: to move a process into a cgroup takes long */
	/* For tests; NULL: of /proc/self. */
	const char *mountinfo, *self;
};

/* Looks and makes the worker's directories.  With "auto" it takes what there is; with a path -1 and a sentence when
 * it can't be used. */
int cgroups_new(const struct cgroup_config *cfg, char *ret_err, size_t err_cap, struct cgroups **ret) MUST_CHECK;
/* Removes the worker's directories if no attempt has one any more. NULL-safe. */
void cgroups_free(struct cgroups *c);

/* CGROUP_… : what can be enforced. */
unsigned cgroups_can(const struct cgroups *c);
/* One line for the log: what is used, and why not more. */
const char *cgroups_describe(const struct cgroups *c);
/* What the cgroups around this process leave: in thousandths of a CPU and in bytes; INT64_MAX: no limit. */
void cgroups_outer(const struct cgroups *c, int64_t *ret_cpu_millis, int64_t *ret_memory);

struct cgroup_limits {
	int64_t cpu_millis, memory_bytes; /* 0: none */
};

/* Directories for a process to join. */
struct cgroup_dirs {
	char *path[CGROUP_DIRS_MAX];
	size_t n;
	int kill_index; /* which of them has cgroup.kill; -1: none */
	int oom_index;  /* which of them counts oom_kill; -1: none */
};

/* Makes the attempt's directories (those that there is a use for) and writes its limits.  Directories left by an
 * earlier try are taken.  -ENOTSUP: a limit can't be enforced here; other -errno: nothing is left.  A sentence with each. */
int cgroups_make(struct cgroups *c, const char *name, const struct cgroup_limits *limits, char *ret_err, size_t err_cap,
		 struct cgroup_dirs *ret) MUST_CHECK;
void cgroup_dirs_done(struct cgroup_dirs *d);

/* Sends SIGKILL to all that is in the attempt's directories and removes them. 0: they are gone; -EBUSY: something
 * still lives, call again; other -errno: they can't be removed. */
int cgroups_end(struct cgroups *c, const char *name) MUST_CHECK;
/* cgroups_end for each attempt's directory that `keep` (which may be NULL) does not claim, until all are gone or
 * `limit_ns` is over. Blocks. Returns how many are left. */
int cgroups_sweep(struct cgroups *c, bool (*keep)(void *arg, const char *name), void *arg, int64_t limit_ns) MUST_CHECK;

#endif
