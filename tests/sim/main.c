/* sim [--seeds N] [--first S]      N histories from seed S on
 * sim --find [...]                 the same, of a simulator in which a check is left out: it is right only if one of them breaks
 *                                  a promise, and wrong if all keep them or if it dies of something else
 * sim --seed S [--trace]           one history; --trace: told line by line */
#include "common/base/num.h"
#include "tests/sim/sim.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define SEEDS 2000 /* unless said otherwise */

static struct sim sim;

/* An assertion of the core: which history it was. */
static void on_abort(int sig)
{
	char line[100];
	int n = snprintf(line, sizeof(line), "seed %llu: aborted\nreplay with: tests/sim/run --seed %llu --trace\n",
			 (unsigned long long)sim.seed, (unsigned long long)sim.seed);
	fflush(stdout);
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		_exit(2);
	signal(sig, SIG_DFL);
	raise(sig);
}

static int usage(void)
{
	fprintf(stderr, "usage: sim [--seeds N] [--first S] [--find] | --seed S [--trace]\n");
	return 64;
}

/* The same once more, to tell the last part of it. */
static void tell(uint64_t seed)
{
	sim_run(&sim, seed, SIM_KEEP);
	for (int i = sim.n_lines > TRACE_LINES ? sim.n_lines - TRACE_LINES : 0; i < sim.n_lines; i++)
		puts(sim.lines[i % TRACE_LINES]);
	printf("seed %llu: %s\nreplay with: tests/sim/run --seed %llu --trace\n", (unsigned long long)seed, sim.violation,
	       (unsigned long long)seed);
}

static int one(uint64_t seed, bool trace)
{
	bool ok = sim_run(&sim, seed, trace ? SIM_PRINT : SIM_SILENT);
	if (ok && !trace)
		printf("seed %llu kept the promises; %lld steps\n", (unsigned long long)seed, (long long)sim.steps);
	else if (!ok && trace)
		printf("seed %llu: %s\n", (unsigned long long)seed, sim.violation);
	else if (!ok)
		tell(seed);
	return ok ? 0 : 1;
}

/* 0: as it should be, which with `find` is that one is broken. */
static int many(int64_t first, int64_t seeds, bool find)
{
	clock_t start = clock();
	int64_t steps = 0;
	for (int64_t i = 0; i < seeds; i++) {
		bool ok = sim_run(&sim, (uint64_t)(first + i), SIM_SILENT);
		steps += sim.steps;
		if (ok)
			continue;
		tell((uint64_t)(first + i));
		printf("%lld histories\n", (long long)(i + 1));
		return find ? 0 : 1;
	}
	double s = (double)(clock() - start) / CLOCKS_PER_SEC;
	printf("%lld histories kept the promises; %.0f histories/s of one core, %.0f steps each\n", (long long)seeds,
	       (double)seeds / (s > 0 ? s : 1), (double)steps / (double)seeds);
	return find ? 1 : 0;
}

int main(int argc, char **argv)
{
	int64_t seeds = -1, first = -1, seed = -1;
	bool trace = false, find = false;
	rng_process_fix(1); /* maps have an order too */
	for (int i = 1; i < argc; i++) {
		int64_t *value = strcmp(argv[i], "--seeds") == 0 ? &seeds :
				 strcmp(argv[i], "--first") == 0 ? &first :
				 strcmp(argv[i], "--seed") == 0	 ? &seed :
								   NULL;
		if (strcmp(argv[i], "--trace") == 0)
			trace = true;
		else if (strcmp(argv[i], "--find") == 0)
			find = true;
		else if (!value || ++i == argc || num_parse_i64(argv[i], value) < 0 || *value < 0)
			return usage();
	}
	/* What would be passed over, or prove nothing, is a mistake. */
	if (seeds == 0 || (seed >= 0 ? seeds >= 0 || first >= 0 || find : trace))
		return usage();
	seeds = seeds < 0 ? SEEDS : seeds;
	first = first < 0 ? 1 : first;
	if (seeds > INT64_MAX - first)
		return usage();
	signal(SIGABRT, on_abort);
	int rc = seed >= 0 ? one((uint64_t)seed, trace) : many(first, seeds, find);
	sim_done(&sim);
	return rc;
}
