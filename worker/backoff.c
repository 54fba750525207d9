/* Exponential backoff with full jitter: see backoff.h. */
#include "worker/backoff.h"

void backoff_init(struct backoff *b, int64_t first_ns, int64_t max_ns, uint64_t seed)
{
	b->first_ns = first_ns;
	rng_seed(&b->rng, seed);
	backoff_set_max(b, max_ns);
	backoff_reset(b);
}

int64_t backoff_next(struct backoff *b)
{
	int64_t bound = b->bound_ns;
	b->bound_ns = bound > b->max_ns / 2 ? b->max_ns : bound * 2;
	return (int64_t)rng_below(&b->rng, (uint64_t)bound + 1);
}

void backoff_reset(struct backoff *b)
{
	b->bound_ns = b->first_ns;
}

void backoff_to_max(struct backoff *b)
{
	b->bound_ns = b->max_ns;
}

void backoff_set_max(struct backoff *b, int64_t max_ns)
{
	b->max_ns = max_i64(max_ns, b->first_ns);
	b->bound_ns = min_i64(b->bound_ns, b->max_ns);
}
