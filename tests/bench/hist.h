/* A histogram of times with a fixed relative error: buckets that grow with the value.
 *
 * Values are nanoseconds, 0 and more.  Each power of two is cut into HIST_SUB buckets, so a quantile
 * that is read back is at most 1 / HIST_SUB (1.6 %) above the value that was put in, never below it;
 * count, min and max are exact, and the sum as long as it fits. */
#ifndef REINS_BENCH_HIST_H
#define REINS_BENCH_HIST_H

#include "common/base/base.h"

#define HIST_SUB_BITS 6
#define HIST_SUB (1 << HIST_SUB_BITS)
#define HIST_BUCKETS ((64 - HIST_SUB_BITS) * HIST_SUB)

struct hist {
	uint64_t count;
	int64_t sum, min, max;
	uint64_t at[HIST_BUCKETS];
};

void hist_init(struct hist *h);
/* Below 0 counts as 0. */
void hist_add(struct hist *h, int64_t ns);
/* The value that a share q (0 … 1) of all values does not exceed, rounded up by the error; 0 when empty. */
int64_t hist_quantile(const struct hist *h, double q);

#endif
