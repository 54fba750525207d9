#include "common/base/availability.h"

#include <stdio.h>

static void set_text(struct availability *a, const char *text)
{
	snprintf(a->text, sizeof(a->text), "%s", text);
}

void availability_init(struct availability *a, int64_t now_mono_ns, int64_t now_wall_us, const char *text)
{
	*a = (struct availability){ .since_mono_ns = now_mono_ns, .since_wall_us = now_wall_us };
	set_text(a, text);
}

bool availability_set(struct availability *a, bool up, const char *text, int64_t now_mono_ns, int64_t now_wall_us)
{
	bool first = !a->known;
	set_text(a, text);
	a->known = true;
	if (up == a->up && !first)
		return false;
	a->outages += !up;
	if (up == a->up)
		return true; /* away from the start: counted from there */
	if (up)
		a->down_ns += now_mono_ns - a->since_mono_ns;
	a->up = up;
	a->since_mono_ns = now_mono_ns;
	a->since_wall_us = now_wall_us;
	return true;
}

int64_t availability_down_ns(const struct availability *a, int64_t now_mono_ns)
{
	return a->down_ns + (a->up ? 0 : now_mono_ns - a->since_mono_ns);
}
