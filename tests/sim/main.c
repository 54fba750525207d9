/* sim [--seeds N] [--first S]      N histories from seed S on
 * sim --seed S [--trace]           one history, told line by line */
#include "common/base/clock.h"
#include "common/base/num.h"
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim sim;

static int usage(void)
{
	fprintf(stderr, "usage: sim [--seeds N] [--first S] | --seed S [--trace]\n");
	return 64;
}

static bool run(uint64_t seed, bool trace)
{
	if (sim_run(&sim, seed, trace))
		return true;
	printf("seed %llu: %s\nreplay with: sim --seed %llu --trace\n", (unsigned long long)seed, sim.violation,
	       (unsigned long long)seed);
	return false;
}

int main(int argc, char **argv)
{
	int64_t seeds = 2000, first = 1, seed = -1;
	bool trace = false;
	for (int i = 1; i < argc; i++) {
		int64_t *value = strcmp(argv[i], "--seeds") == 0 ? &seeds :
				 strcmp(argv[i], "--first") == 0 ? &first :
				 strcmp(argv[i], "--seed") == 0	 ? &seed :
								   NULL;
		if (strcmp(argv[i], "--trace") == 0)
			trace = true;
		else if (!value || ++i == argc || num_parse_i64(argv[i], value) < 0 || *value < 0)
			return usage();
	}
	if (seed >= 0) {
		bool ok = run((uint64_t)seed, trace);
		core_effects_done(&sim.m.out);
		return ok ? 0 : 1;
	}
	int64_t start = clock_mono_ns(), steps = 0;
	for (int64_t i = 0; i < seeds; i++) {
		bool ok = run((uint64_t)(first + i), false);
		steps += sim.steps;
		if (!ok) {
			printf("%lld histories\n", (long long)(i + 1));
			core_effects_done(&sim.m.out);
			return 1;
		}
	}
	double s = (double)(clock_mono_ns() - start) / 1e9;
	printf("%lld histories kept the promises; %.0f histories/s, %.0f steps each\n", (long long)seeds,
	       (double)seeds / (s > 0 ? s : 1), (double)steps / (double)(seeds ? seeds : 1));
	core_effects_done(&sim.m.out);
	return 0;
}
