/* Arithmetic of the exclusive lease and of heartbeats; no clock is read here.
 *
 * S is CLOCK_BOOTTIME before the newest acknowledged heartbeat was encoded, L the attempt's lease.
 * With m = L/10 and G = min(kill-grace, 3L/10) a program is started only before S + L - m - G,
 * gets SIGTERM then, and SIGKILL from S + L - m until its tree is empty. */
#ifndef REINS_WORKER_LEASE_H
#define REINS_WORKER_LEASE_H

#include "common/base/base.h"
#include "common/base/rng.h"

#define LEASE_NEVER INT64_MIN /* S before any heartbeat was acknowledged */
#define LEASE_MAX_NS (24 * 3600 * NS_PER_S) /* a master that gives a longer one makes a mistake */

struct lease_rule {
	int64_t length_ns; /* L */
	int64_t margin_ns; /* m: clock rates, lateness of timers and of kills */
	int64_t grace_ns;  /* G */
};

void lease_rule_set(struct lease_rule *r, int64_t length_ns, int64_t kill_grace_ns);
/* When a stop begins; from then on nothing is started. LEASE_NEVER for an S of LEASE_NEVER. */
int64_t lease_term_due(const struct lease_rule *r, int64_t s_boot_ns);
/* When SIGKILL begins. LEASE_NEVER likewise. */
int64_t lease_kill_due(const struct lease_rule *r, int64_t s_boot_ns);
bool lease_may_start(const struct lease_rule *r, int64_t s_boot_ns, int64_t now_boot_ns);
/* So long may a heartbeat stay unanswered: (0.6 L - H)/2, but not less than 50 ms. */
int64_t lease_ack_timeout_ns(int64_t lease_ns, int64_t interval_ns);
/* From a session's first heartbeat to its second, a quarter of the interval to all of it: workers that came together
 * do not beat in step. */
int64_t lease_second_beat_ns(struct rng *rng, int64_t interval_ns);

#endif
