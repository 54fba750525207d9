/* A stored task as clients see it: reins.v1.Task in bytes. */
#ifndef REINS_RPC_VIEW_H
#define REINS_RPC_VIEW_H

#include "common/base/buf.h"
#include "server/store/store_metrics.h"

/* Appends the encoded Task.  The spec's bytes go in as they were stored; the basic view leaves out payload and
 * env, result and attempts.  Program texts are made valid UTF-8 (the raw bytes are added where that changed them).
 * 0, -ENOBUFS, -ENOMEM. */
int view_task(const struct store_task *t, bool full, const char *pending_reason, struct buf *b) MUST_CHECK;

/* Appends Task.metrics to an encoded Task: of each name the newest value among these points, which are given the newest
 * first; at most 64 of them. */
#define VIEW_METRICS_POINTS 64
#define VIEW_METRICS_BYTES (64 * 1024)
int view_metrics(const struct store_metric *items, size_t n, struct buf *b) MUST_CHECK;

#endif
