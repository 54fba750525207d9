#include "common/base/rng.h"

#include <sys/random.h>

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void rng_seed(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		r->s[i] = z ^ (z >> 31);
	}
}

uint64_t rng_next(struct rng *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	/* Multiply-shift; the bias of 2^-64 · n does not matter here. */
	return (uint64_t)(((uint128)rng_next(r) * n) >> 64);
}

static struct rng process_rng;
static uint64_t process_seed;

static void seed_once(void)
{
	if (process_seed)
		return;
	while (!process_seed)
		if (getrandom(&process_seed, sizeof(process_seed), 0) != sizeof(process_seed))
			abort();
	rng_seed(&process_rng, process_seed);
}

void rng_process_fix(uint64_t seed)
{
	process_seed = seed;
	rng_seed(&process_rng, seed);
}

uint64_t rng_process_next(void)
{
	seed_once();
	return rng_next(&process_rng);
}

uint64_t rng_process_seed(void)
{
	seed_once();
	return process_seed;
}
