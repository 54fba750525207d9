/* Waits between attempts to connect: exponential, with full jitter, so that a thousand workers
 * of one master that came back don't arrive in step. */
#ifndef REINS_WORKER_BACKOFF_H
#define REINS_WORKER_BACKOFF_H

#include "common/base/base.h"
#include "common/base/rng.h"

struct backoff {
	int64_t first_ns, max_ns;
	int64_t bound_ns; /* of the next wait */
	struct rng rng;
};

void backoff_init(struct backoff *b, int64_t first_ns, int64_t max_ns, uint64_t seed);
/* The next wait, 0 … bound; the bound doubles up to the maximum. */
int64_t backoff_next(struct backoff *b);
/* After success: the next wait is bounded by `first` again. */
void backoff_reset(struct backoff *b);
/* A peer that refuses us on principle is not asked more often than this. */
void backoff_to_max(struct backoff *b);
/* Never below `first`. */
void backoff_set_max(struct backoff *b, int64_t max_ns);

#endif
