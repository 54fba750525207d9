/* Whether a task in memory matches a TaskFilter. */
#ifndef REINS_RPC_MATCH_H
#define REINS_RPC_MATCH_H

#include "common/base/refusal.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/store/store_events.h"

struct match {
	const Reins__V1__TaskFilter *of; /* NULL: nothing is asked for. Must live as long */
	uint32_t states;                 /* bit (1 << state); 0: all */
	int64_t created_from_us, created_before_us; /* 0: any */
	struct uuid *ids;                /* sorted */
	size_t n_ids;
};

/* 0, or -1 with INVALID_ARGUMENT that names the field under "filter.". */
int match_parse(const Reins__V1__TaskFilter *f, struct match *ret, struct refusal *ret_refusal) MUST_CHECK;
void match_done(struct match *m);
/* All that can be said without the task: false: the change is none that matches. */
bool match_change(const struct match *m, const struct store_change *c);
/* After match_change: the task matches, before or after that change.  It must have its attempts. */
bool match_task(const struct match *m, const struct store_change *c, const struct store_task *t);
/* A task that is not there any more: only a filter that says nothing of it but its id matches. */
bool match_without_task(const struct match *m);

#endif
