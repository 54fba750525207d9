/* Results of a run: named numbers, printed as a table for people and as one JSON object for programs. */
#ifndef REINS_BENCH_REPORT_H
#define REINS_BENCH_REPORT_H

#include <jansson.h>

#include "tests/bench/hist.h"
#include "tests/bench/procs.h"

struct report {
	json_t *root;  /* what -o json prints */
	bool json;
	bool failed;   /* something did not add up: the program ends with 1 */
};

void report_init(struct report *r, const char *mode, bool json);
void report_number(struct report *r, const char *name, double value, const char *unit);
/* p50, p90, p99, p99.9, max in milliseconds, and how many. */
void report_hist(struct report *r, const char *name, const struct hist *h);
/* A check that must hold; prints what is wrong and makes the program fail. */
void report_check(struct report *r, bool ok, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* CPU seconds per 100,000 of `tasks`, and memory, of each process between two readings. */
void report_procs(struct report *r, const struct procs *p, const struct procs_reading *before,
		  const struct procs_reading *after, int64_t tasks);
/* Prints and frees. */
void report_end(struct report *r);

#endif
