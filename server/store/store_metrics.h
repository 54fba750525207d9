/* Metrics in the store: points of an attempt, numbered from 1 by its worker, each an encoded reins.v1.MetricPoint.
 * Number 0 is what is known of the points that are not there, an encoded reins.v1.ReadMetricsResponse with only its
 * counts. They go when the attempt's log goes. */
#ifndef REINS_STORE_METRICS_H
#define REINS_STORE_METRICS_H

#include "server/store/store.h"

struct store_metric {
	int64_t number;
	struct store_bytes point;
};

struct store_metrics {
	struct store_op op; /* STORE_METRICS */
	struct core_attempt at;
	const char *worker;
	/* A number that is stored already changes nothing, but 0, which is replaced.  Committed in the order of submission. */
	const struct store_metric *items;
	size_t n;
	bool ret_fenced; /* the row names another worker's attempt, or none: nothing was stored */
};

struct store_metrics_read {
	struct store_op op; /* STORE_METRICS_READ */
	struct core_attempt at;
	int64_t after;      /* points with larger numbers, in their order … */
	bool newest;        /* … or the last ones, the newest first */
	int32_t limit;
	int64_t max_bytes;  /* stop after the point that reaches it; 0: no bound */
	struct store_metric *ret_items;
	size_t ret_n;
	struct store_bytes ret_counts; /* of number 0; empty: none */
	void *ret_memory;
};

#endif
