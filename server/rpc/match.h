/* Whether a change, and the task that it is of, match a TaskFilter: before the change or after it. */
#ifndef REINS_RPC_MATCH_H
#define REINS_RPC_MATCH_H

#include "server/rpc/filter.h"
#include "server/store/store_events.h"

/* All that can be said without the task: false: the change is none that matches.  f->ids must be in their order. */
bool match_change(const struct filter *f, const struct store_change *c);
/* After match_change: the rest.  The task must have its attempts; it may be newer than the change. */
bool match_task(const struct filter *f, const struct store_change *c, const struct store_task *t);
/* A task that is not there any more: only a filter that says nothing of it but states and ids matches. */
bool match_without_task(const struct filter *f);

#endif
