#include "common/base/histogram.h"

const int64_t histogram_steps_ns[HISTOGRAM_STEPS] = {
	100 * NS_PER_US, 250 * NS_PER_US, 500 * NS_PER_US, 1 * NS_PER_MS,   2500 * NS_PER_US, 5 * NS_PER_MS,
	10 * NS_PER_MS,	 25 * NS_PER_MS,  50 * NS_PER_MS,  100 * NS_PER_MS, 250 * NS_PER_MS,  500 * NS_PER_MS,
	1 * NS_PER_S,	 2500 * NS_PER_MS, 5 * NS_PER_S,   10 * NS_PER_S,
};

void histogram_add(struct histogram *h, int64_t ns)
{
	size_t i = 0;
	ns = max_i64(ns, 0);
	while (i < HISTOGRAM_STEPS && ns > histogram_steps_ns[i])
		i++;
	h->counts[i]++;
	h->total++;
	h->sum_ns = h->sum_ns > INT64_MAX - ns ? INT64_MAX : h->sum_ns + ns;
}
