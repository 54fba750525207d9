/* The scheduler core: decides, does nothing.
 *
 * No I/O, no clock, no callbacks: core_step takes the events of one loop turn and the time, and returns
 * the effects that the engine (or the simulator) carries out through the store, the lease table and the
 * workers' streams.  Their answers come back as events.  The same code runs in reinsd and in tests/sim.
 *
 * A task on its way through a master:
 *
 *   READY ──pick──▶ PREEMPTING ──▶ CLAIMING ──▶ SENT ──accepted──▶ RUNNING ──outcome──▶ RECORDING ──▶ (gone)
 *     ▲   full, newer    │   lost, store down │     │refused, recalled, not listed, lease ended
 *     └──────────────────┴────────────────────┴─────┴── TAKING_BACK (a conditional update in the store)
 *
 *   eager match:  a submit that fits an idle worker goes PREEMPTING ▶ INSERTING (as RUNNING) ▶ SENT.
 *
 * What the store says is true; the core's memory is a window on it that may be lost at any time. */
#ifndef REINS_CORE_H
#define REINS_CORE_H

#include "common/base/base.h"
#include "server/core/core_effect.h"
#include "server/core/core_event.h"

struct core;

struct core_config {
	int64_t heartbeat_ns, lease_ttl_ns; /* H and L of a session, while few workers are connected */
	/* Heartbeats a second; sessions that would bring more get longer H and L, by the same factor. 0: none does. */
	int64_t heartbeat_rate;
	int64_t accept_timeout_ns, disconnect_grace_ns;
	int64_t reconcile_ns;    /* PendingTaskReconciler: refill from the start, look for queues, due rows */
	int64_t recovery_ns;     /* RunningTaskRecovery: compare running rows with memory, and with who holds their sessions */
	/* A master whose beat stands still this long has its sessions judged by others; for exclusive tasks, which it
	 * stops renewing after nine tenths of that. */
	int64_t master_ttl_ns, master_ttl_exclusive_ns;
	bool alone; /* the store lets one process in: earlier ones under this master's id are gone, and nobody else is there */
	int32_t max_workers;     /* 10,000 */
	int32_t max_queues;      /* 10,000 */
	int32_t window;          /* ready tasks in memory over all queues: 20,000 */
	int32_t fill;            /* rows per FILL and STRAYS: 500 */
	int32_t max_held;        /* attempts per worker: list and slots; 10,000 */
	int32_t in_flight_claims; /* tasks between pick and dispatch: bounds the batches; 4,096 */
	uint64_t seed;           /* jitter of retries */
};
void core_config_default(struct core_config *c);

struct core *core_new(const struct core_config *cfg, int64_t now_mono_ns);
void core_free(struct core *c);
/* Applies the events in order, then timers that are due, then dispatches what fits. `out` is cleared first. */
void core_step(struct core *c, int64_t now_mono_ns, const struct core_event *ev, size_t n, struct core_effects *out);
/* When core_step must be called again though no event came; INT64_MAX: never. */
int64_t core_next_deadline(const struct core *c);

#endif
