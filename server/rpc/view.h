/* A stored task as clients see it: reins.v1.Task in bytes. */
#ifndef REINS_RPC_VIEW_H
#define REINS_RPC_VIEW_H

#include "common/base/buf.h"
#include "server/store/store.h"

/* Appends the encoded Task.  The spec's bytes go in as they were stored; the basic view leaves out payload and
 * env, result and attempts.  Program texts are made valid UTF-8 (the raw bytes are added where that changed them).
 * 0, -ENOBUFS, -ENOMEM. */
int view_task(const struct store_task *t, bool full, const char *pending_reason, struct buf *b) MUST_CHECK;

#endif
