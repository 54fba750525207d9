/* Whether something that we depend on is there: since when, for how long it was not, and why. */
#ifndef REINS_AVAILABILITY_H
#define REINS_AVAILABILITY_H

#include "common/base/base.h"

struct availability {
	bool known;            /* it was said once whether it is there; until then it is down */
	bool up;
	int64_t since_mono_ns; /* the last change */
	int64_t since_wall_us;
	int64_t outages;       /* times it was found to be gone, at the start too */
	char text[200];        /* down: why, as last heard. Up: a warning, or "" */
	int64_t down_ns;       /* private: of the outages that are over */
};

void availability_init(struct availability *a, int64_t now_mono_ns, int64_t now_wall_us, const char *text);
/* True: it has changed, or is known for the first time; else only the text may have changed. */
bool availability_set(struct availability *a, bool up, const char *text, int64_t now_mono_ns, int64_t now_wall_us);
/* How long it was down in all, an outage that goes on included. */
int64_t availability_down_ns(const struct availability *a, int64_t now_mono_ns);

#endif
