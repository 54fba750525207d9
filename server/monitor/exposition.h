/* Prometheus' text format, version 0.0.4: families of samples, each with its help and type before them.
 *
 * Names and the values of labels given as text are this program's own words, so nothing of them is escaped; what comes from
 * outside goes through exposition_label. */
#ifndef REINS_EXPOSITION_H
#define REINS_EXPOSITION_H

#include "common/base/buf.h"
#include "common/base/histogram.h"

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum exposition_type { EXPOSITION_COUNTER, EXPOSITION_GAUGE, EXPOSITION_HISTOGRAM };

struct exposition {
	struct buf *out;
	const char *name; /* of the family that was begun last */
	size_t name_len;
	bool failed;      /* no room, or no memory: what is in `out` is not whole */
};

void exposition_family(struct exposition *x, const char *name, enum exposition_type type, const char *help);
/* Samples of that family.  `labels`: NULL, or as between the braces: kind="get",result="ok". */
void exposition_int(struct exposition *x, const char *labels, int64_t value);
void exposition_seconds(struct exposition *x, const char *labels, int64_t ns);
void exposition_histogram(struct exposition *x, const char *labels, const struct histogram *h);
/* A family of one sample. */
void exposition_one(struct exposition *x, const char *name, enum exposition_type type, const char *help, int64_t value);

/* name="value", escaped, with a comma before it where something stands there already.  Returns false, and leaves what was
 * there, if it does not fit. */
bool exposition_label(char *labels, size_t cap, const char *name, const char *value);

#endif
