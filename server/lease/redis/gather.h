/* What one loop turn asks of the workers' hashes, gathered by worker, session and kind so that a script runs once for
 * many tasks.  Groups leave in the order release, preempt, own: a release that came before a preempt or own of the
 * same task stays before it, and one of an attempt that was not answered yet does not come. */
#ifndef REINS_LEASE_REDIS_GATHER_H
#define REINS_LEASE_REDIS_GATHER_H

#include "common/base/id.h"
#include "common/base/list.h"
#include "common/base/map.h"

#define GATHER_WORKER_MAX 255

enum gather_kind { GATHER_RELEASE, GATHER_PREEMPT, GATHER_OWN, GATHER_KINDS };

struct gather_item {
	struct uuid task;
	int32_t attempt;
	uint64_t cookie; /* PREEMPT */
};

struct gather_group {
	struct list node; /* the gather's, then its taker's */
	struct map_node by_key;
	struct gather_key {
		int64_t session; /* 0 for RELEASE */
		uint8_t kind;
		char worker[GATHER_WORKER_MAX + 1];
	} key;
	/* PREEMPT: of the first item, the lease of the longest */
	char master[65];
	int32_t slots;
	int64_t lease_ttl_ns;
	size_t n, cap;
	struct gather_item *at;
};

struct gather {
	struct map groups;
	struct list by_kind[GATHER_KINDS], spare;
	size_t n_spare;
};

void gather_init(struct gather *g);
void gather_done(struct gather *g);
/* The group to add to, made where there is none.  `worker`: at most GATHER_WORKER_MAX bytes. */
struct gather_group *gather_open(struct gather *g, enum gather_kind kind, const char *worker, int64_t session);
void gather_add(struct gather_group *p, const struct uuid *task, int32_t attempt, uint64_t cookie);
/* Takes a group out: it gets no more items.  The taker gives it back. */
void gather_take(struct gather *g, struct gather_group *p);
/* The next group in order, or NULL; still inside. */
struct gather_group *gather_first(struct gather *g);
/* For use again. */
void gather_give_back(struct gather *g, struct gather_group *p);

#endif
