/* A count and a time. */
#include "worker/launch_health.h"

#include <stdio.h>

static bool is_bad(const struct launch_health *h)
{
	return h->limit > 0 && h->failures >= h->limit;
}

const char *launch_health_paused(const struct launch_health *h, int64_t now_mono_ns)
{
	return is_bad(h) && (h->trial || now_mono_ns < h->again_mono_ns) ? h->why : NULL;
}

bool launch_health_taken(struct launch_health *h)
{
	if (!is_bad(h))
		return false;
	h->trial = true;
	return true;
}

void launch_health_trial_over(struct launch_health *h)
{
	h->trial = false;
}

void launch_health_good(struct launch_health *h)
{
	h->failures = 0;
	h->trial = false;
}

bool launch_health_bad(struct launch_health *h, const char *why, int64_t now_mono_ns)
{
	bool before = is_bad(h);
	if (h->failures < INT64_MAX)
		h->failures++;
	h->trial = false;
	h->again_mono_ns = now_mono_ns + LAUNCH_HEALTH_WAIT_NS;
	snprintf(h->why, sizeof(h->why), "%lld launches in a row failed by the worker's own fault: %.120s", (long long)h->failures, why);
	return !before && is_bad(h);
}
