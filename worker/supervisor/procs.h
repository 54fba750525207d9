/* A look through /proc for our descendants. */
#ifndef REINS_SUPERVISOR_PROCS_H
#define REINS_SUPERVISOR_PROCS_H

#include "common/base/base.h"

struct proc {
	int32_t pid, ppid, pgrp;
	char state;        /* as /proc/PID/stat has it */
	bool descendant;
	uint64_t start_ticks;
};

/* Memory for one look; grows with the number of processes on the machine, and is given back. */
struct procs {
	struct proc *all;
	size_t n, cap;
};

/* Of one process: -ESRCH, or -EIO. */
int procs_read(int pid, struct proc *ret_proc) MUST_CHECK;
/* All that are there now, in the order of their ids, our descendants marked.  What doesn't fit into memory is left out.
 * `ps` is zero at first. */
void procs_look(struct procs *ps);
void procs_done(struct procs *ps);
/* A signal to exactly the process that was seen.  False: it is gone, or may not be signalled. */
bool procs_signal(const struct proc *p, int signo);
/* No longer running: nothing can be done to it. */
bool procs_is_dead(const struct proc *p);

#endif
