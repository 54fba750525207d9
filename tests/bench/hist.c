/* Bucket of v: v itself below 2 * HIST_SUB, then the position of its highest bit and the HIST_SUB_BITS bits after it. */
#include "tests/bench/hist.h"

#include <math.h>
#include <string.h>

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

static size_t bucket_of(uint64_t v)
{
	if (v < 2 * HIST_SUB)
		return (size_t)v;
	unsigned shift = 63u - (unsigned)__builtin_clzll(v) - HIST_SUB_BITS;
	return ((size_t)shift << HIST_SUB_BITS) + (size_t)(v >> shift);
}

/* The largest value of the bucket. */
static uint64_t bucket_top(size_t b)
{
	if (b < 2 * HIST_SUB)
		return b;
	unsigned shift = (unsigned)(b >> HIST_SUB_BITS) - 1;
	uint64_t head = HIST_SUB + (b & (HIST_SUB - 1));
	return ((head + 1) << shift) - 1;
}

void hist_add(struct hist *h, int64_t ns)
{
	if (ns < 0)
		ns = 0;
	if (h->count == 0 || ns < h->min)
		h->min = ns;
	if (ns > h->max)
		h->max = ns;
	h->count++;
	if (__builtin_add_overflow(h->sum, ns, &h->sum))
		h->sum = INT64_MAX;
	h->at[bucket_of((uint64_t)ns)]++;
}

int64_t hist_quantile(const struct hist *h, double q)
{
	if (h->count == 0)
		return 0;
	/* 0.001 of 20,000 is 20, whatever the last bit of the product says. */
	uint64_t want = (uint64_t)ceil(q * (double)h->count * (1 - 1e-12)), seen = 0;
	if (want == 0)
		return h->min;
	for (size_t b = 0; b < HIST_BUCKETS; b++) {
		seen += h->at[b];
		if (seen >= want)
			return min_i64((int64_t)bucket_top(b), h->max);
	}
	return h->max;
}
