/* The lines of a metrics file, fed at once, in pieces, and with stops: the same points and the same count each time, and every
 * point within its bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct sum {
	uint64_t value;
	bool stop; /* after each point */
};

static bool on_point(void *arg, const struct metrics_point *p)
{
	struct sum *s = arg;
	if (p->n < 1 || p->n > METRICS_VALUES_MAX)
		abort();
	s->value = s->value * 31 + (uint64_t)p->step;
	for (size_t i = 0; i < p->n; i++) {
		uint64_t bits;
		size_t n = strnlen(p->values[i].key, sizeof(p->values[i].key));
		if (n < 1 || n > METRICS_KEY_MAX || !isfinite(p->values[i].value))
			abort();
		memcpy(&bits, &p->values[i].value, sizeof(bits));
		s->value = (s->value * 31 + bits) * 31 + (uint8_t)p->values[i].key[0] + n;
	}
	return !s->stop;
}

static uint64_t scan(const char *data, size_t len, size_t step, bool stop)
{
	struct metrics_scan s = {0};
	struct sum sum = {1, stop};
	size_t at = 0, end = 0;
	do {
		end = min_sz(len, end + step);
		for (size_t taken = 1; taken && at < end; at += taken)
			taken = metrics_scan(&s, data + at, end - at, end == len, on_point, &sum);
		if (at > end || (end - at > METRICS_LINE_MAX))
			abort();
	} while (end < len);
	if (at != len || s.malformed < 0)
		abort();
	return sum.value * 31 + (uint64_t)s.malformed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Outside of what the sanitizers know of the caller's buffer nothing may be read. */
	char *copy = malloc(len + 1);
	if (!copy)
		abort();
	memcpy(copy, data, len);
	uint64_t whole = scan(copy, len, max_sz(len, 1), false);
	if (len < 1000 && scan(copy, len, 1, false) != whole)
		abort();
	if (scan(copy, len, 1 + len / 50 + (len ? data[0] : 0) * 7u, true) != whole)
		abort();
	free(copy);
	return 0;
}
