/* One attempt's supervisor, as the agent sees it: given its job or found alive, listened to, told to stop, and outlived.
 *
 * What the supervisor says (its whole state, struct sup_status) comes to the owner as events, each at most once but for
 * RUN_LOG and RUN_STUCK, in the order of enum run_event; what lies between two states that were heard is filled in.
 * None comes from inside a call into this module.  A lost connection is made again.  A supervisor that is dead, which
 * its lock proves, without having said that its tree is empty, cannot say how the program ended: RUN_DIED, and then
 * the tree is ended from here (sweep.h), RUN_SWEPT.  The last event is RUN_EMPTY or RUN_SWEPT. */
#ifndef REINS_WORKER_RUN_H
#define REINS_WORKER_RUN_H

#include "common/base/base.h"
#include "common/loop/loop.h"
#include "worker/spares.h"
#include "worker/supervisor/wire.h"
#include "worker/sweep.h"

struct run;

enum run_event {
	RUN_EXEC,          /* the program runs */
	RUN_LAUNCH_FAILED, /* it does not: launch_errno, launch_own, text */
	RUN_LOG,           /* log_end or log_dropped has grown */
	RUN_STOPPING,      /* stopped_by is set */
	RUN_STUCK,         /* stuck has changed */
	RUN_EXIT,          /* exit_code, signal, exited_wall_us. Also after a launch that failed, without those */
	RUN_EMPTY,
	RUN_DIED,          /* `status` is the last that was heard or written */
	RUN_SWEPT,
};

struct run_host {
	struct loop *loop;
	struct spares *spares;
	struct sweeper *sweeper;
};

/* `status` is valid in the call only; also after that in run_status. */
typedef void run_on_event(void *arg, enum run_event event, const struct sup_status *status);

struct run_job {
	int dir_fd, job_fd, stdin_fd; /* the caller's; stdin_fd -1: /dev/null */
	struct sup_deadlines deadlines; /* its head is filled in */
};

/* `name`: of the attempt's directory.  -errno: there is no supervisor for it. */
int run_start(const struct run_host *host, const char *name, const struct run_job *job, run_on_event *on_event, void *arg,
	      struct run **ret) MUST_CHECK;
/* An attempt that an earlier agent started: connects to its supervisor, or finds it dead.  All that it has to say
 * comes as events, from the beginning.  `usable` false: it can't be taken over, whatever it is; it and its tree are ended. */
int run_adopt(const struct run_host *host, const char *name, int dir_fd, bool usable, run_on_event *on_event, void *arg,
	      struct run **ret) MUST_CHECK;
/* False as long as it is not known whether the supervisor lives. */
bool run_settled(const struct run *r);
/* SIGTERM, and SIGKILL grace_ns later; a second one may only make it quicker. `reason` comes back in the status. */
void run_stop(struct run *r, int reason, int64_t grace_ns, const char *text);
void run_deadlines(struct run *r, int64_t term_boot_ns, int64_t kill_boot_ns, int64_t orphan_boot_ns);
const struct sup_status *run_status(const struct run *r);
/* The supervisor is left alone: it goes on, or has ended. NULL-safe; may be called inside an event. */
void run_free(struct run *r);

#endif
