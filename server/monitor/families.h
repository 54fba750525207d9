/* The families of /metrics, by file. */
#ifndef REINS_FAMILIES_H
#define REINS_FAMILIES_H

#include "server/monitor/exposition.h"
#include "server/monitor/monitor.h"

#define COUNTER EXPOSITION_COUNTER
#define GAUGE EXPOSITION_GAUGE
#define HISTOGRAM EXPOSITION_HISTOGRAM

/* families_work.c: tasks, dispatch, store, lease table */
void families_work(struct exposition *x, const struct monitor *m);
/* families_net.c: connections and calls */
void families_net(struct exposition *x, const struct monitor *m);

#endif
