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
	STORE_EVENTS,       /* this and the next: store_events.h */
	STORE_NEWS,
	STORE_WORKERS,
	STORE_WORKER_GONE,
	STORE_DETACHED,
	STORE_DRAIN,
	STORE_QUEUE_LIST, /* this and the next: queues.h */
	STORE_PAUSE,
	STORE_MASTER_OPEN,
	STORE_BEAT,
	STORE_TAKE_OVER,
	STORE_KINDS
};

enum store_result {
	STORE_OK,
	STORE_UNAVAILABLE, /* away, or (op.queue_full) too much waits for it */
	STORE_REFUSED,     /* the content can't be stored; op.text says why */
	STORE_RESULTS
};

struct store_op {
	struct list node; /* the store's while submitted */
	enum store_kind kind;
	enum store_result result;
	bool maybe_done, queue_full, no_memory; /* the last: UNAVAILABLE for that alone, and nothing was changed */
	char text[160];
	void (*done)(struct store_op *op);
	/* the store's while submitted */
	uint16_t sent, tries;
	int64_t submitted_mono_ns;
};

static inline bool store_state_is_final(enum store_state s)
{
	return s == STORE_COMPLETED || s == STORE_FAILED || s == STORE_CANCELLED;
}

#endif
