/* Randomness: a seeded generator (simulator, jitter) and one of the process, seeded by
 * getrandom(2).  xoshiro256** 1.0 by Blackman and Vigna, seeded by SplitMix64 (both public
 * domain, prng.di.unimi.it).  Not for secrets: those take getrandom directly. */
#ifndef REINS_RNG_H
#define REINS_RNG_H

#include "common/base/base.h"

struct rng {
	uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
/* 0 … n-1; n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);

uint64_t rng_process_next(void);
/* The same for the life of the process. */
uint64_t rng_process_seed(void);
/* For programs that replay: all of it, the order of maps included, comes from this seed (not 0). Before any other use. */
void rng_process_fix(uint64_t seed);

#endif
