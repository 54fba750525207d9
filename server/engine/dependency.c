#include "server/engine/dependency.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/log/log.h"

void dependency_init(struct dependency *d, const char *area, const char *consequence, int64_t now_mono_ns)
{
	*d = (struct dependency){ .area = area, .consequence = consequence, .told_mono_ns = now_mono_ns,
				  .credit_mono_ns = now_mono_ns - DEPENDENCY_LINES_AT_ONCE * DEPENDENCY_LINES_EVERY };
	availability_init(&d->state, now_mono_ns, clock_wall_us(), "not connected yet");
}

static bool may_write(struct dependency *d, int64_t now)
{
	d->credit_mono_ns = max_i64(d->credit_mono_ns, now - DEPENDENCY_LINES_AT_ONCE * DEPENDENCY_LINES_EVERY);
	if (now < d->credit_mono_ns + DEPENDENCY_LINES_EVERY)
		return false;
	d->credit_mono_ns += DEPENDENCY_LINES_EVERY;
	return true;
}

void dependency_tell(struct dependency *d, int64_t now)
{
	const struct availability *a = &d->state;
	char more[64] = "", after[48] = "";
	if (!a->known || (d->told && d->told_up == a->up) || !may_write(d, now))
		return;
	if (d->changes > 1)
		snprintf(more, sizeof(more), " (it came and went %lld times)", (long long)d->changes / 2);
	if (a->up && d->told)
		snprintf(after, sizeof(after), " after %.1f s", (double)(a->since_mono_ns - d->told_mono_ns) / (double)NS_PER_S);
	if (a->up)
		log_info(d->area, NULL, "up%s%s%s%s", after, *a->text ? ": " : "", a->text, more);
	else
		log_warn(d->area, NULL, "down%s: %s%s", d->consequence, a->text, more);
	d->told = true;
	d->told_up = a->up;
	d->told_mono_ns = a->since_mono_ns;
	d->changes = 0;
}

void dependency_set(struct dependency *d, bool up, const char *text, int64_t now)
{
	if (availability_set(&d->state, up, text, now, clock_wall_us()))
		d->changes++;
	else if (!up)
		log_debug(d->area, NULL, "still down: %s", text);
	dependency_tell(d, now);
}
