/* How often who could not be let in was tried from an address, so that a flood of it costs little: over FAILURES_PER_S of an
 * address the answer is RESOURCE_EXHAUSTED and no line is logged.  A good token is let in whatever else comes from its address.
 *
 * Bounded: FAILURES_ADDRESSES are known at a time; one more takes the place of the one that is heard of least. */
#ifndef REINS_AUTH_FAILURES_H
#define REINS_AUTH_FAILURES_H

#include "common/base/base.h"

#define FAILURES_PER_S 10
#define FAILURES_ADDRESSES 1024
#define FAILURES_WAYS 4 /* places that an address may have */

struct failures {
	uint64_t seed;
	struct {
		uint64_t address; /* hashed; 0: free */
		int64_t full_mono_ns; /* when all of FAILURES_PER_S may come at once again */
	} of[FAILURES_ADDRESSES];
};

void failures_init(struct failures *f, uint64_t seed);
/* One more, from "ADDRESS:PORT".  False: too many. */
bool failures_add(struct failures *f, const char *peer, int64_t now_mono_ns);

#endif
