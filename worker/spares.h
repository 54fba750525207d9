/* Supervisors started ahead, so that a task need not wait for a fork: one or two idle processes of reins-supervisor,
 * each at the other end of a socket pair.  What is taken is replaced a little later, not in the turn that starts tasks.
 *
 * They are children of this process, in sessions of their own: a signal to our process group does not reach them, and
 * those with a job outlive us.  Those without end when we do. */
#ifndef REINS_WORKER_SPARES_H
#define REINS_WORKER_SPARES_H

#include "common/base/base.h"
#include "common/loop/loop.h"

struct spares;

/* `program`: the path of reins-supervisor. */
struct spares *spares_new(struct loop *loop, const char *program, unsigned ahead);
/* The socket (SOCK_SEQPACKET, non-blocking) of a supervisor without a job: the caller's to close. Starts one if none is
 * idle.  -errno: there is none and none could be started. */
int spares_take(struct spares *s) MUST_CHECK;
/* Idle ones end; those with a job go on. NULL-safe. */
void spares_free(struct spares *s);

#endif
