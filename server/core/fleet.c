/* How often workers beat: the more there are, the more rarely each.
 *
 * A session's H and L are fixed when it is opened, and by the same factor longer than configured, so that what rests on
 * their ratio holds.  Who has a session keeps its own.  So a fleet that grows to n times what fits the rate brings at most
 * 1 + ln n times the rate, and the rate itself once all have had new sessions: the size is remembered for a while, so
 * that streams which all break at once don't begin anew with the shortest. */
#include "server/core/internal.h"

#define MEMORY_NS (600 * NS_PER_S)
#define LEASE_MAX_NS (24 * 3600 * NS_PER_S) /* workers take no longer one */

static size_t size_now(struct core *c)
{
	size_t n = c->n_connected + c->n_opening;
	if (n >= c->fleet.size || c->now - c->fleet.at > MEMORY_NS) {
		c->fleet.size = n;
		c->fleet.at = c->now;
	}
	return c->fleet.size;
}

void fleet_pace(struct core *c, const struct worker *w, struct hello *h)
{
	int64_t factor = 1;
	h->counted = !w->peer; /* whose old stream still stands is among the connected */
	c->n_opening += h->counted;
	if (c->cfg.heartbeat_rate > 0) {
		int64_t fit = max_i64(1, c->cfg.heartbeat_rate * c->cfg.heartbeat_ns / NS_PER_S);
		factor = ((int64_t)size_now(c) + fit - 1) / fit;
		factor = max_i64(1, min_i64(factor, LEASE_MAX_NS / c->cfg.lease_ttl_ns));
	}
	h->heartbeat_ns = factor * c->cfg.heartbeat_ns;
	h->lease_ns = factor * c->cfg.lease_ttl_ns;
}
