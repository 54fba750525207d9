/* WRITE lane: the event of a transaction. */
#ifndef REINS_SQ_EVENTS_H
#define REINS_SQ_EVENTS_H

#include "server/store/sqlite/sq.h"
#include "server/store/store_events.h"

/* A task was changed, from and to these states; 0 before: it was submitted.  The transaction's event says so. */
void sq_changed(struct sq_ctx *x, const struct uuid *task, int before, int after, int32_t attempt);
/* The same with all that an event may say. */
void sq_event_add(struct sq_ctx *x, const struct store_change *c);
/* At the end of the transaction: writes its event, and takes away some that are too old. */
void sq_event_put(struct sq_ctx *x);

#endif
