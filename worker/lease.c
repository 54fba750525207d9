/* The exclusive lease in numbers: see lease.h. */
#include "worker/lease.h"

#define ACK_TIMEOUT_MIN_NS (50 * NS_PER_MS)

void lease_rule_set(struct lease_rule *r, int64_t length_ns, int64_t kill_grace_ns)
{
	r->length_ns = length_ns;
	r->margin_ns = length_ns / 10;
	r->grace_ns = min_i64(kill_grace_ns, length_ns / 10 * 3);
}

int64_t lease_term_due(const struct lease_rule *r, int64_t s_boot_ns)
{
	if (s_boot_ns == LEASE_NEVER)
		return LEASE_NEVER;
	return s_boot_ns + r->length_ns - r->margin_ns - r->grace_ns;
}

int64_t lease_kill_due(const struct lease_rule *r, int64_t s_boot_ns)
{
	if (s_boot_ns == LEASE_NEVER)
		return LEASE_NEVER;
	return s_boot_ns + r->length_ns - r->margin_ns;
}

bool lease_may_start(const struct lease_rule *r, int64_t s_boot_ns, int64_t now_boot_ns)
{
	return s_boot_ns != LEASE_NEVER && now_boot_ns < lease_term_due(r, s_boot_ns);
}

int64_t lease_ack_timeout_ns(int64_t lease_ns, int64_t interval_ns)
{
	return max_i64((lease_ns / 10 * 6 - interval_ns) / 2, ACK_TIMEOUT_MIN_NS);
}

int64_t lease_second_beat_ns(struct rng *rng, int64_t interval_ns)
{
	int64_t least = interval_ns / 4;
	return least + (int64_t)rng_below(rng, (uint64_t)(interval_ns - least) + 1);
}
