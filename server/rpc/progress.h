/* How far logs and metrics of attempts are stored, by the streams of workers that have ended: a session that goes on while
 * the store is away can't ask it.  What is not known here is sent again from the start. */
#ifndef REINS_RPC_PROGRESS_H
#define REINS_RPC_PROGRESS_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "server/core/core_event.h"

struct progress {
	struct map by_worker;
	struct list oldest;  /* first */
	size_t n;            /* attempts, of all workers; bounded */
};

struct progress_of {
	struct core_attempt at;
	int64_t log_stored, log_dropped, metrics_stored; /* as in core_adopted */
};

void progress_init(struct progress *p);
void progress_done(struct progress *p);
/* Of the worker's last stream; takes `at` (from malloc). Nothing else is known of that worker any more. */
void progress_keep(struct progress *p, const char *worker, struct progress_of *at, size_t n);
void progress_drop(struct progress *p, const char *worker);
/* Fills in what is known of these attempts. */
void progress_fill(const struct progress *p, const char *worker, struct core_adopted *adopted, size_t n);

#endif
