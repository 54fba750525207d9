/* What RunningTaskRecovery remembers: looking for running rows of sessions that nobody holds. */
#ifndef REINS_CORE_RECOVERY_H
#define REINS_CORE_RECOVERY_H

#include "common/base/id.h"
#include "common/base/map.h"
#include "server/core/timer.h"

struct recovery {
	struct timer timer;       /* the next sweep over the rows begins */
	bool asking;
	struct uuid after;        /* last task of the sweep so far */
	uint64_t sweep;
	struct map seen;          /* sessions that nobody here holds, at most max_workers */
	int64_t since;            /* listening, with the store reachable */
};

#endif
