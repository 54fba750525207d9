/* CPU time and memory of the processes under test, from /proc. */
#ifndef REINS_BENCH_PROCS_H
#define REINS_BENCH_PROCS_H

#include <sys/types.h>

#include "common/base/base.h"

#define PROCS_MAX 8

/* A process; or with `tree` its children too, as Postgres' postmaster has. */
struct procs_watch {
	char name[32];
	pid_t pid;
	bool tree;
};

struct procs_reading {
	double cpu_s;      /* user and system, since the process began; of a tree with the children that have ended */
	int64_t rss_bytes; /* proportional (PSS) for a tree, so that shared memory counts once */
};

struct procs {
	struct procs_watch at[PROCS_MAX];
	size_t n;
};

/* "NAME=PID", or "NAME=PID+" for a process and its children.  -EINVAL, -ENOSPC. */
int procs_add(struct procs *p, const char *text) MUST_CHECK;
void procs_add_self(struct procs *p);
/* A process that is gone reads as 0. */
void procs_read(const struct procs_watch *w, struct procs_reading *ret);
/* Only the memory of one process, cheap. */
int64_t procs_rss(pid_t pid);

#endif
