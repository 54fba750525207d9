/* What RunningTaskRecovery remembers between its sweeps over the running rows. */
#ifndef REINS_CORE_RECOVERY_H
#define REINS_CORE_RECOVERY_H

#include "common/base/id.h"
#include "common/base/map.h"
#include "server/core/timer.h"

struct recovery {
	struct timer timer;       /* the next sweep over the rows begins */
	bool asking;
	bool again;               /* another one as soon as this is over */
	struct uuid after;        /* last task of the sweep so far */
	uint64_t sweep;           /* from 1 */
	struct map seen;          /* sessions that nobody here holds, at most max_workers */
	struct map masters;       /* others that opened one of these */
	struct map unknown;       /* rows of sessions that are held here, without a job; bounded */
	size_t n_hb;              /* questions to the lease table that are not answered yet; bounded */
	int64_t since;            /* listening, with the store reachable */
	bool opened;              /* the store has this process in the master's row: no earlier one can beat from then on */
	int64_t former_until;     /* so long an earlier one, if it lives, may renew exclusive leases */
};

#endif
