/* The engine: joins the core with the world.  In each loop turn it hands the core all events that came,
 * in the LOOP_WORK phase, and carries the effects out: operations to the store, commands to the lease table,
 * messages to the workers' streams.  It decides nothing about tasks.
 *
 * What a client's request needs beyond the core (the text of an outcome, the reply to a submit) stays in
 * objects that the RPC layer owns and the engine passes around by address ("token"). */
#ifndef REINS_ENGINE_H
#define REINS_ENGINE_H

#include "common/base/availability.h"
#include "common/base/histogram.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "server/core/core.h"
#include "server/lease/lease.h"
#include "server/store/queues.h"
#include "server/store/rows.h"
#include "server/store/workers.h"

struct engine;
struct loop;
struct wait_head;

/* ---- a worker's stream, as the engine sees it ---- */

struct engine_peer;
struct engine_peer_ops {
	/* The session stands (`x` says which, and its H and L); the list says what goes on. Always the first message.
	 * x->resumed: of the list only task id and attempt are filled, and the rest is the callee's to know. */
	void (*welcome)(struct engine_peer *p, const struct core_effect *x, struct core_adopted *adopted, size_t n);
	void (*heartbeat_ack)(struct engine_peer *p, int64_t number, bool exclusive_not_renewed);
	/* Tasks of one number come one after the other and are one message. */
	void (*dispatch)(struct engine_peer *p, const struct core_effect *e);
	void (*stop)(struct engine_peer *p, const struct core_attempt *at, enum core_stop_reason reason);
	void (*outcome_ack)(struct engine_peer *p, const struct core_attempt *at, enum core_record_verdict verdict);
	/* An operator's wish, or (mode 0) that it was taken back. */
	void (*drain)(struct engine_peer *p, const struct store_drain_wish *wish);
	/* The stream ends; engine_peer_gone must not be called any more. */
	void (*close)(struct engine_peer *p, enum core_close_code code);
	/* All of this turn was said: send it. */
	void (*flush)(struct engine_peer *p);
};
/* The wish that holds for a worker, as far as its master knows. */
struct engine_drain {
	int32_t mode; /* 0: none */
	int64_t within_ns;
	char *reason;
	uint64_t told_at; /* engine.drain_clock when it was learnt */
};
struct engine_peer {
	const struct engine_peer_ops *ops;
	/* private */
	uint64_t id;
	struct map_node by_id;
	struct list dirty;
	struct core_adopted *adopted;
	size_t n_adopted;
	struct engine_drain drain;
	bool welcomed;
	char worker[CORE_NAME_MAX + 1]; /* from hello on */
	struct blob *hello;
};

/* ---- objects that come with requests ---- */

/* One submit: `ins` is filled but for id, seq and eager. Alone, or the first of a group chained by ins.group_next (all
 * members' `ins` filled; ids too are made by engine_submit). */
struct engine_submit {
	struct store_insert ins;
	/* The store has answered (ins.op.result, ins.ret_…). From the loop, once. */
	void (*done)(struct engine_submit *s);
	struct engine *engine; /* private */
	struct list node;
	bool in_core;
	int64_t due_in_ns;
	char worker[CORE_NAME_MAX + 1];
};

/* An outcome as a worker reported it: `rec` is filled but for retry_in_ns and lost_limit. */
struct engine_outcome {
	struct store_record rec;
	/* The engine needs it no more, recorded or not. From the loop, once. */
	void (*done)(struct engine_outcome *o);
	struct engine *engine; /* private */
	uint64_t peer;
	struct list node;
};

/* A queue to be paused, or to go on: of `op` queue, on, reason and max are filled. */
struct engine_pause {
	struct store_pause op;
	/* It was not stored (op.op.result, op.ret_done); or it was, and this master gives out nothing of a paused queue any more.
	 * From the loop, once. */
	void (*done)(struct engine_pause *p);
	struct engine *engine; /* private */
	struct list node;
	bool told; /* the core */
};

/* Somebody waits for news of a task. */
struct engine_waiter {
	/* The task may have changed, or (log) has more log stored. Once: the waiter is off the list when called. */
	void (*wake)(struct engine_waiter *w);
	bool log; /* also for new log */
	struct list node; /* private; on a list while waiting */
	struct engine *engine;
	struct wait_head *head;
};

/* ---- the engine ---- */

struct engine_config {
	struct loop *loop;
	struct core_config core;
	const char *master_id;
	int32_t lost_limit;
	struct store *store; /* owned by the caller, as is lease; their events are routed by engine_on_… */
	struct lease *lease;
	/* Another process runs under this master's id, and is the newer one.  All streams have been closed; to go on would
	 * mean to replace each other for ever.  (A master whose sessions another one has taken over goes on: it closes all
	 * streams, forgets its sessions, and is its own next incarnation.) */
	void (*on_replaced)(void *arg);
	void *arg;
};

int engine_new(const struct engine_config *cfg, struct engine **ret) MUST_CHECK;
/* After store_free (which answers what is in flight) and lease_free, and with all peers gone.  `done` of submits and
 * outcomes that nobody will answer any more is called inside; their calls must be over. NULL-safe. */
void engine_free(struct engine *e);

/* To be called by the owner of the store and lease table from their events. */
void engine_on_store_state(struct engine *e, bool up, const char *text);
void engine_on_lease_state(struct engine *e, bool up, const char *text);
extern const struct lease_events engine_lease_events; /* arg: the engine */

struct store *engine_store(const struct engine *e);
struct core *engine_core(const struct engine *e);
const char *engine_master_id(const struct engine *e);
const struct core_config *engine_core_config(const struct engine *e);
/* "" until the store was reached once. */
const char *engine_store_id(const struct engine *e);
int64_t engine_incarnation(const struct engine *e);
/* The store is up and this master has its incarnation: sessions may be opened. */
bool engine_ready(const struct engine *e);
/* `changed` is called whenever engine_ready says something else than before; it only takes notes. */
void engine_on_readiness(struct engine *e, void (*changed)(void *arg), void *arg);
/* This master has its incarnation, and knows the store's id: it can hold sessions, also while the store is away. */
bool engine_holds_sessions(const struct engine *e);
bool engine_lease_up(const struct engine *e);
/* Since when, and why not. */
const struct availability *engine_store_state(const struct engine *e);
const struct availability *engine_lease_state(const struct engine *e);
/* Why it is not ready, for a person; NULL: it is. Valid until the next turn. */
const char *engine_not_ready(const struct engine *e);
/* How often the loop stood still for more than a tenth of the lease. */
int64_t engine_stalls(const struct engine *e);
/* What this master did since it was started. */
struct engine_stats {
	int64_t submitted;  /* tasks that were created */
	int64_t dispatched, dispatched_again; /* again: a later attempt than the first */
	int64_t adopted, fenced; /* attempts that a worker listed: its to run on, or not */
	int64_t reports[CORE_RECORD_UNAVAILABLE + 1]; /* outcomes, by verdict */
	int64_t attempts_ended[STORE_EXPIRED + 1];    /* by store_outcome, those of take-backs too */
	int64_t take_backs[CORE_CAUSE_NEVER_SENT + 1];
	/* Tasks that ended, by store_state; at 0: by a take-back, at the lost-limit or by a wish. */
	int64_t tasks_ended[STORE_CANCELLED + 1];
	struct histogram queue_wait; /* from the submission, by its id, to the first dispatch; run_at's delay is in it */
};
const struct engine_stats *engine_stats(const struct engine *e);

void engine_submit(struct engine *e, struct engine_submit *s);
/* After a cancel was stored: `verdict` from the store_cancel operation. */
void engine_cancelled(struct engine *e, const struct store_cancel *op);

/* After a wish was stored or taken back, here. */
void engine_drained(struct engine *e, const struct store_drain *op);
void engine_pause(struct engine *e, struct engine_pause *p);
/* After a retry was stored. */
void engine_retried(struct engine *e, const struct store_retry *op);

void engine_wait(struct engine *e, struct engine_waiter *w, const struct uuid *task);
void engine_unwait(struct engine_waiter *w); /* no-op when it does not wait */
void engine_news(struct engine *e, const struct uuid *task, bool only_log);

/* Of an id that the core knows; NULL: its stream is over. */
struct engine_peer *engine_peer_find(struct engine *e, uint64_t id);
void engine_peer_add(struct engine *e, struct engine_peer *p, const struct engine_peer_ops *ops);
void engine_peer_gone(struct engine *e, struct engine_peer *p);

/* Events of a peer. Arrays and strings are copied. hello_info: see store_session_open.hello; a reference is taken. */
void engine_hello(struct engine *e, struct engine_peer *p, const struct core_event *hello, struct blob *hello_info);
void engine_heartbeat(struct engine *e, struct engine_peer *p, int64_t number, int64_t last_dispatch,
		      const struct core_attempt *held, size_t n);
void engine_attempt_event(struct engine *e, struct engine_peer *p, enum core_event_type type, const struct core_attempt *at);
/* detach_ns: see CORE_EV_DRAINING. */
void engine_draining(struct engine *e, struct engine_peer *p, bool on, int64_t detach_ns);
/* `text`: for people; "": none. */
void engine_refused(struct engine *e, struct engine_peer *p, const struct core_attempt *at, const char *text);
void engine_outcome(struct engine *e, struct engine_peer *p, struct engine_outcome *o);

#endif
