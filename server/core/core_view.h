/* Looking into the core, changing nothing: for AdminService, metrics and tests. */
#ifndef REINS_CORE_VIEW_H
#define REINS_CORE_VIEW_H

#include "common/base/histogram.h"
#include "server/core/core.h"

struct core_worker_view {
	uint64_t peer;   /* 0: stream gone */
	int64_t session; /* 0: the first one is being opened */
	struct core_capacity capacity;
	int32_t used;
	struct core_need used_need;
	int64_t heard_mono_ns, lease_end_mono_ns;
	bool draining;   /* by its own word */
	bool drain_wish; /* by an operator's */
	int32_t unanswered; /* recalled attempts that it has said nothing of: it gets nothing until it does */
	size_t n_held;
};
/* False: the core knows no such worker. */
bool core_worker(const struct core *c, const char *id, struct core_worker_view *ret);
/* What it holds, at most `max` of them; how many were written. */
size_t core_worker_held(const struct core *c, const char *id, struct core_attempt *ret, size_t max);
struct core_counts {
	int64_t ready, workers, connected, in_flight, running, slots, slots_used;
};
void core_counts(const struct core *c, struct core_counts *ret);
/* Of each dispatch that was sent.  `ready`: from when this master knew that the task is ready (its submit was committed, its
 * retry came due, its row was read): the wait for a worker is in it.  `chosen`: from the choice of its worker. */
struct core_timings {
	struct histogram ready, chosen;
};
const struct core_timings *core_timings(const struct core *c);
/* Why a ready task waits, in words, for pending_reason; "" when it is about to be given out.  From this master's memory
 * alone.  Looks at each worker once; `place`: also at the tasks of its queue in the window, to say how many are ahead.
 * *ret_peer: where workers would take it if they took anything, the stream of one of them, who knows why not; else 0. */
void core_why_pending(const struct core *c, const struct core_task *t, bool place, uint64_t *ret_peer, char *ret_text,
		      size_t cap);
/* Two tasks that wait for the same reason, but for their place. */
bool core_same_wants(const struct core_task *a, const struct core_task *b);
/* Aborts when a promise of the core's own bookkeeping is broken (slot counts, indexes); for tests. */
void core_check(const struct core *c);

#endif
