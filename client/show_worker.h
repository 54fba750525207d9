/* Workers as text. */
#ifndef REINS_CLIENT_SHOW_WORKER_H
#define REINS_CLIENT_SHOW_WORKER_H

#include "client/output.h"
#include "reins/v1/admin_service.pb-c.h"

/* "DRAINING"; never NULL. */
const char *show_worker_state(Reins__V1__WorkerInfo__State state);
/* "requeue"; never NULL. */
const char *show_drain_mode(Reins__V1__DrainMode mode);
struct table *show_worker_table(void);
void show_worker_row(struct table *t, const Reins__V1__WorkerInfo *w, int64_t now_wall_us);
/* All of it, one fact a line, to stdout. */
void show_worker(const Reins__V1__WorkerInfo *w, int64_t now_wall_us);
/* A worker that is drained: what happens now, in one line to stdout. */
void show_drain(const Reins__V1__WorkerInfo *w);

#endif
