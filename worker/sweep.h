/* Ends what an earlier agent left behind.  Its programs died with it (reins-exec ties the first process to the
 * agent), but their children may live on: they are found by what their environment says. */
#ifndef REINS_WORKER_SWEEP_H
#define REINS_WORKER_SWEEP_H

#include "common/base/base.h"

/* Sends SIGKILL to every process of ours whose environment names this worker and one of the n task ids, until a look
 * finds none. Blocks for at most `limit_ns`. Returns how many were found, or -ETIMEDOUT when some can't be ended. */
int sweep_processes(const char *worker_id, char *const *task_ids, size_t n, int64_t limit_ns) MUST_CHECK;

#endif
