/* The lease table for one machine: in this process, gone with it, never down. */
#ifndef REINS_LEASE_MEMORY_H
#define REINS_LEASE_MEMORY_H

#include "common/loop/loop.h"
#include "server/lease/lease.h"
#include "server/lease/memory/table.h"

struct lease_memory_config {
	int64_t task_key_ttl_ns;
	size_t max_pending; /* answers waiting for the flush; a preempt over it is DOWN. 0: 65,536 */
	size_t max_keys;    /* 0: 4 million */
};

/* `events` must stay valid. */
struct lease *lease_memory_new(struct loop *loop, const struct lease_memory_config *cfg,
			       const struct lease_events *events, void *arg);
/* The table below, for tests and for looks by an operator's page. */
struct lease_table *lease_memory_table(struct lease *l);

#endif
