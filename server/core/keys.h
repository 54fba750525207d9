/* What RunningTaskRecovery remembers of its way through the lease table's keys. */
#ifndef REINS_CORE_KEYS_H
#define REINS_CORE_KEYS_H

#include "server/core/timer.h"

struct keys {
	struct timer timer;  /* the next page */
	bool asking;         /* for a page, or whether what it names runs */
	uint64_t cursor;     /* of the next page; 0: a round begins with it */
	int64_t round_at;    /* when the last round began */
	int64_t busy_until;  /* keys without a row are to be expected of rounds that begin before this */
};

#endif
