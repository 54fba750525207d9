/* Whether this worker can start programs at all.  A worker that fails several launches in a row for its own reasons (no
 * process, no directory, no cgroup) would take the queue's tasks one after the other and give each back: it takes none
 * instead, says why, and tries again with a single one after a while.  No I/O, no clock. */
#ifndef REINS_WORKER_LAUNCH_HEALTH_H
#define REINS_WORKER_LAUNCH_HEALTH_H

#include "common/base/base.h"

#define LAUNCH_HEALTH_WAIT_NS (60 * NS_PER_S)

struct launch_health {
	int64_t limit;         /* failures in a row; 0: it never stops taking tasks */
	int64_t failures;
	int64_t again_mono_ns; /* when one is tried */
	bool trial;            /* that one is under way */
	char why[200];
};

/* A sentence, or NULL: tasks are taken. */
const char *launch_health_paused(const struct launch_health *h, int64_t now_mono_ns);
/* One is taken: true if it is the trial, and its taker says launch_health_trial_over if nothing comes of it. */
bool launch_health_taken(struct launch_health *h);
void launch_health_trial_over(struct launch_health *h);
/* What became of a launch: the worker did its part; or it did not, and this is the last such failure before it stops
 * taking tasks (true). */
void launch_health_good(struct launch_health *h);
bool launch_health_bad(struct launch_health *h, const char *why, int64_t now_mono_ns);

#endif
