/* What all operations of a store have in common. */
#ifndef REINS_STORE_OP_H
#define REINS_STORE_OP_H

#include "common/base/list.h"
#include "common/base/refusal.h"
#include "server/core/core.h"
#include "server/store/rows.h"

enum store_kind {
	STORE_INSERT,
	STORE_CLAIM,
	STORE_RECORD,
	STORE_TAKE_BACK,
	STORE_CANCEL,
	STORE_RETRY,
	STORE_SESSION_OPEN,
	STORE_STARTED,
	STORE_FILL,
	STORE_QUEUES,
	STORE_DUE,
	STORE_EXPIRE,
	STORE_STRAYS,
	STORE_RUNS,
	STORE_LOG_APPEND,
	STORE_LOG_READ,
	STORE_METRICS,      /* this and the next: store_metrics.h */
	STORE_METRICS_READ,
	STORE_GET,
	STORE_LIST,
	STORE_WORKERS,
	STORE_WORKER_GONE,
	STORE_DETACHED,
	STORE_DRAIN,
	STORE_MASTER_OPEN,
	STORE_BEAT,
	STORE_KINDS
};

enum store_result {
	STORE_OK,
	STORE_UNAVAILABLE, /* away, or its queue is full (op.text says which) */
	STORE_REFUSED,     /* the content can't be stored; op.text says why */
};

struct store_op {
	struct list node; /* the store's while submitted */
	enum store_kind kind;
	enum store_result result;
	bool maybe_done;
	char text[160];
	void (*done)(struct store_op *op);
	uint16_t sent, tries; /* the store's while submitted */
};

static inline bool store_state_is_final(enum store_state s)
{
	return s == STORE_COMPLETED || s == STORE_FAILED || s == STORE_CANCELLED;
}

#endif
