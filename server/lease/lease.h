/* The lease table: who is believed alive and who owns what, for other masters and for people to see.
 * It mirrors; the store is the truth.  It may hold work back (preempt's refusals), never take it away: a
 * missing key proves nothing, and with the table down the caller goes on without it.
 *
 * Keys, all under a prefix:
 *   worker:{<worker>}:hb      "<master> <session>"             TTL: the lease of the beat (or of the preempt that wrote it)
 *   worker:{<worker>}:task    hash, task id → attempt          TTL: task-key-ttl
 *   task:{<task>}:workerId    "<worker> <session> <attempt>"   TTL: task-key-ttl
 *
 * A prefix is one store's: who shares it sweeps the other's keys away, and writes its own again at each beat.
 *
 * Asynchronous: a call takes notes, all of one loop turn goes out together in LOOP_LEASE, and answers come
 * as callbacks in LOOP_WORK, never inside a call.  What a call points to need not outlive it.  Calls take
 * effect in their order, except that after a script flush in Redis single ones may be late; the next beat heals that.
 * Callbacks may call anything here, lease_free included. */
#ifndef REINS_LEASE_H
#define REINS_LEASE_H

#include "common/base/histogram.h"
#include "common/base/id.h"

struct lease;

#define LEASE_MASTER_MAX 64 /* longest master id */

enum lease_verdict {
	LEASE_OK,            /* the slot is taken */
	LEASE_NEWER_SESSION, /* hb names a newer session of this worker: ask the store */
	LEASE_FULL,          /* the hash of this very session holds `slots` tasks already */
	LEASE_DOWN,          /* no answer in time, an error, or over the limit: go on without; the slot may be taken or not */
};

struct lease_slot {
	uint64_t cookie;
	struct uuid task;
	int32_t attempt;      /* the field's value; 0 while it isn't known before the claim */
	int32_t slots;        /* of the worker */
	const char *worker;   /* ids hold no blanks */
	const char *master;
	int64_t session;
	int64_t lease_ttl_ns; /* for hb, should it be missing or of an older session: then the hash begins anew too */
};

struct lease_owner {
	struct uuid task;
	int32_t attempt;
	const char *worker;
	int64_t session;
};

struct lease_held {
	struct uuid task;
	int32_t attempt;
	bool slot_only; /* no owner key: reserved, or no longer this worker's to run while its slot is taken */
};

struct lease_beat {
	const char *worker, *master;
	int64_t session;
	int64_t lease_ttl_ns;
	const struct lease_held *held; /* all that this session runs or has reserved, preempts in flight included */
	size_t n_held;
};

struct lease_answer {
	uint64_t cookie;
	enum lease_verdict verdict;
};

enum lease_presence { LEASE_PRESENT, LEASE_ABSENT, LEASE_UNKNOWN };

struct lease_hb {
	uint64_t cookie;
	enum lease_presence presence; /* UNKNOWN: the table is down, or holds something else under the key */
	int64_t session;
	int64_t ttl_ns;
	char master[LEASE_MASTER_MAX + 1];
};

/* What one look found. Of keys that are not of the table's own form nothing is said. */
struct lease_page {
	uint64_t cookie;
	bool ok;       /* false: the table is down; all else is empty */
	uint64_t next; /* where the next page begins; 0: the round is over */
	const struct lease_owner *owners;
	size_t n_owners;
	const char *const *hashes; /* workers with a hash and without an hb */
	size_t n_hashes;
};

struct lease_events {
	/* One answer for each slot of lease_preempt, in any number of batches. */
	void (*on_preempted)(void *arg, const struct lease_answer *answers, size_t n);
	void (*on_hb)(void *arg, const struct lease_hb *hb);
	/* Of lease_scan. What it points to stays until the next page is asked for. */
	void (*on_page)(void *arg, const struct lease_page *page);
	/* When the table goes away or comes back, with the reason for a log line. For Redis the outcome of the
	 * first try is told too; until then it is down. Memory is always up and says nothing. */
	void (*on_state)(void *arg, bool up, const char *text);
};

enum lease_op { LEASE_PREEMPT, LEASE_OWN, LEASE_RELEASE, LEASE_BEAT, LEASE_QUERY, LEASE_SCAN, LEASE_OPS };

struct lease_stats {
	int64_t pending;  /* commands without an answer yet */
	int64_t dropped;  /* fire-and-forget commands (one may be for many tasks of a worker) lost: down, over the limit, or refused by Redis */
	int64_t timeouts;
	int64_t connects; /* Redis: connections that became usable */
	int64_t refused;  /* commands that Redis answered with an error */
	/* Beats that found no hb of their worker: it is its first, or hb was evicted, flushed, or has run out. */
	int64_t missing;
	struct histogram took[LEASE_OPS]; /* Redis: from a command's flush to its reply */
};

struct lease_ops {
	void (*preempt)(struct lease *l, const struct lease_slot *items, size_t n);
	void (*own)(struct lease *l, const struct lease_owner *items, size_t n);
	void (*release)(struct lease *l, const struct lease_owner *items, size_t n);
	void (*beat)(struct lease *l, const struct lease_beat *beat);
	void (*query_hb)(struct lease *l, const char *worker, uint64_t cookie);
	void (*scan)(struct lease *l, uint64_t from, uint64_t cookie);
	void (*disown)(struct lease *l, const struct lease_owner *items, size_t n);
	void (*drop_hash)(struct lease *l, const char *worker);
	bool (*is_up)(const struct lease *l);
	void (*stats)(const struct lease *l, struct lease_stats *ret);
	void (*free)(struct lease *l);
};

struct lease {
	const struct lease_ops *ops;
};

/* tryPreemptWorker: takes a slot of a worker for each task: adds the field, writes a missing hb. A task that is in the
 * hash already takes no second slot. */
static inline void lease_preempt(struct lease *l, const struct lease_slot *items, size_t n)
{
	l->ops->preempt(l, items, n);
}

/* registerTaskOwner: the owner key, and the attempt's number into the hash. Fire and forget, like release and beat. */
static inline void lease_own(struct lease *l, const struct lease_owner *items, size_t n)
{
	l->ops->own(l, items, n);
}

/* Deletes owner key and field, each only where it names that attempt of that worker. */
static inline void lease_release(struct lease *l, const struct lease_owner *items, size_t n)
{
	l->ops->release(l, items, n);
}

/* hb and the whole hash in one step, unless hb names a newer session; then the owner keys. */
static inline void lease_beat(struct lease *l, const struct lease_beat *beat)
{
	l->ops->beat(l, beat);
}

/* Some of the keys, from 0 or a page's `next` on.  A key that is there during all pages from 0 to the last is on one of them
 * at least.  Answered by on_page; one at a time. */
static inline void lease_scan(struct lease *l, uint64_t from, uint64_t cookie)
{
	l->ops->scan(l, from, cookie);
}

/* Deletes the owner key where it says exactly this, the session too, as a page said it: what was written since then
 * stays. Fire and forget, as is drop_hash. */
static inline void lease_disown(struct lease *l, const struct lease_owner *items, size_t n)
{
	l->ops->disown(l, items, n);
}

/* Deletes the hash of a worker that has no hb, both judged in one step.  Such a hash holds nothing back: the next preempt or
 * beat begins it anew. */
static inline void lease_drop_hash(struct lease *l, const char *worker)
{
	l->ops->drop_hash(l, worker);
}

/* Answered by on_hb. */
static inline void lease_query_hb(struct lease *l, const char *worker, uint64_t cookie)
{
	l->ops->query_hb(l, worker, cookie);
}

static inline bool lease_is_up(const struct lease *l)
{
	return l->ops->is_up(l);
}

static inline void lease_stats(const struct lease *l, struct lease_stats *ret)
{
	l->ops->stats(l, ret);
}

/* No callback follows; what is in flight stays unanswered. The memory goes at the end of the loop's turn,
 * so run one more before loop_free. NULL-safe. */
static inline void lease_free(struct lease *l)
{
	if (l)
		l->ops->free(l);
}

#endif
