/* Keeps an exclusive lease's last deadline when the supervisor itself can't: a disk that hangs holds the thread that
 * writes to it, for as long as it likes.  A second thread, which touches no disk, then sends SIGKILL to the tree until it
 * is told to stop.  Only attempts with such a deadline have it. */
#ifndef REINS_SUPERVISOR_GUARD_H
#define REINS_SUPERVISOR_GUARD_H

#include "worker/supervisor/tree.h"

struct guard {
	int timer_fd;             /* -1: there is no thread */
	int64_t kill_boot_ns;     /* as armed */
	struct tree tree;         /* its own view: paths and rounds */
};

void guard_init(struct guard *g);
/* Kills from this moment on, and a little: that is the supervisor's own chance.  SUP_NEVER: not at all.  `t` lives as long
 * as the process.  Without memory for a thread there is no guard. */
void guard_arm(struct guard *g, const struct tree *t, int64_t kill_boot_ns);

#endif
