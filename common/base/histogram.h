/* Durations counted by how long they were, in steps from 100 us to 10 s: what a monitoring system can make percentiles
 * of.  Fixed size, no allocation, a few nanoseconds for each. */
#ifndef REINS_HISTOGRAM_H
#define REINS_HISTOGRAM_H

#include "common/base/base.h"

#define HISTOGRAM_STEPS 16
/* The upper edge of each step, itself included. */
extern const int64_t histogram_steps_ns[HISTOGRAM_STEPS];

/* A zeroed struct is ready for use. */
struct histogram {
	int64_t counts[HISTOGRAM_STEPS + 1]; /* of each step alone; the last: longer than all */
	int64_t total;
	int64_t sum_ns; /* stays at INT64_MAX once it got there */
};

/* Below 0 counts as 0. */
void histogram_add(struct histogram *h, int64_t ns);

#endif
