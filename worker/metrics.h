/* The lines of a metrics file as points.  No I/O.
 *
 * A line is a JSON object: `step`, a whole number, and at least one value, a finite number, under a key of 1 to 63 of
 * [A-Za-z0-9._/-].  Without `step` a point gets the step after the last one.  Whatever else a line is, it is malformed
 * and counted; an empty line is nothing. */
#ifndef REINS_WORKER_METRICS_H
#define REINS_WORKER_METRICS_H

#include "common/base/base.h"

#define METRICS_LINE_MAX (64 * 1024) /* without the line's end; a longer one is malformed */
#define METRICS_VALUES_MAX 64
#define METRICS_KEY_MAX 63

struct metrics_point {
	int64_t step;
	size_t n;
	struct {
		char key[METRICS_KEY_MAX + 1];
		double value;
	} values[METRICS_VALUES_MAX];
};

/* Where the reading of a file stands. All zero: at its beginning. */
struct metrics_scan {
	int64_t last_step;
	int64_t malformed;
	bool skipping; /* within a line that is too long */
};

/* Takes lines from the head of `data`, whole ones, and with `last` (no more comes) also what stands behind the last
 * line's end.  on_point gets each point, and returns false to stop after it.  Returns the bytes taken: what is left is
 * to be given again, with what follows it.  Of METRICS_LINE_MAX + 1 bytes and more some are always taken. */
size_t metrics_scan(struct metrics_scan *s, const char *data, size_t len, bool last,
		    bool (*on_point)(void *arg, const struct metrics_point *p), void *arg);

#endif
