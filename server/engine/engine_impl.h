/* Shared by the engine's files only. */
#ifndef REINS_ENGINE_IMPL_H
#define REINS_ENGINE_IMPL_H

#include "common/loop/loop.h"
#include "server/engine/dependency.h"
#include "server/engine/engine.h"

/* An operation that the core asked for, on its way through the store or the lease table. */
struct eng_op {
	struct list node; /* in_flight, then spent until the core has seen its answer */
	struct engine *engine;
	struct core_effect effect; /* what was asked; pointers in it are not valid any more */
	struct core_attempt *held; /* SESSION_OPEN's list, owned */
	struct core_owner *owners; /* RUNS' list and behind it the names, owned */
	struct blob *info;         /* SESSION_OPEN's, owned */
	char *words;               /* TAKE_BACK's, owned */
	char worker[CORE_NAME_MAX + 1]; /* of the effect; TAKE_OVER: the master */
	union {
		struct store_op op;
		struct store_claim claim;
		struct store_take_back take_back;
		struct store_session_open open;
		struct store_fill fill;
		struct store_queues queues;
		struct store_due due;
		struct store_expire expire;
		struct store_strays strays;
		struct store_take_over take_over;
		struct store_runs runs;
		struct store_worker_gone gone;
		struct store_detached detached;
	};
	uint64_t asked_at;         /* SESSION_OPEN: drain_clock */
};

struct wait_head {
	struct map_node by_task;
	struct uuid task;
	struct list waiters;
};

struct engine {
	struct loop *loop;
	struct core *core;
	struct core_config core_config;
	struct store *store;
	struct lease *lease;
	char master_id[LEASE_MASTER_MAX + 1];
	int32_t lost_limit;

	/* events of this turn, and the memory that they point to until the step is done */
	struct core_event *events;
	size_t n_events, cap_events;
	struct list scratch;
	struct core_effects effects;
	struct loop_dirty work;
	struct loop_timer deadline;

	struct list in_flight, spent, free_ops;
	size_t n_free_ops;
	struct list fresh_outcomes, recording, spent_outcomes;
	struct list submits, spent_submits;
	struct list pausing; /* struct engine_pause, stored or not */

	struct map peers;
	uint64_t next_peer;
	struct list dirty_peers;

	struct map waiting;
	struct uuid7_maker ids;

	/* this master's row in the store */
	struct store_master_open master_open;
	struct store_beat beat;
	struct uuid process;           /* tells this process from another one under the same id */
	bool opening, beating, opened, replaced;
	char store_id[UUID_TEXT_LEN + 1];
	int64_t incarnation;
	struct loop_timer pulse; /* beats, and notices a loop that stood still */
	int64_t pulse_due_mono_ns, next_beat_mono_ns, beat_sent_mono_ns;
	struct dependency store_state, lease_state;
	int64_t stalls; /* of the loop */
	struct engine_stats stats;

	/* drain.c: wishes of operators */
	struct store_workers wishes; /* the page that is read */
	char wishes_after[CORE_NAME_MAX + 1];
	bool reading_wishes;
	uint64_t wishes_round;       /* drain_clock when this reading of all pages began */
	int64_t next_wishes_mono_ns;
	uint64_t drain_clock;        /* counts what was learnt of wishes and what was asked */
	void (*on_replaced)(void *arg);
	void *arg;
	void (*on_readiness)(void *arg); /* may be NULL */
	void *readiness_arg;
	bool told_ready;
#ifdef REINS_CRASH_POINTS
	struct loop_timer crash_after_write;
#endif
};

/* A zeroed event at the end of this turn's list; the engine is marked. */
struct core_event *engine_event(struct engine *e, enum core_event_type type);
/* Memory that lives until the step is done; NULL for 0 bytes. */
void *engine_scratch(struct engine *e, size_t size);
void *engine_scratch_try(struct engine *e, size_t size) MUST_CHECK; /* for what may be large; NULL: no memory */
struct eng_op *engine_op_new(struct engine *e, const struct core_effect *effect);
void engine_op_spent(struct eng_op *op);

/* After each change of what engine_ready goes by. */
void engine_tell_readiness(struct engine *e);

/* words.c: the cause of a take-back, where its outcome does not say it all; NULL: none. To be freed. */
char *engine_take_back_words(const struct core_effect *x, const struct core_config *cfg);

void engine_execute(struct engine *e);        /* effects.c: carries out e->effects */
/* drain.c */
/* The wish that the store gave with the session; what was learnt since it was asked is newer and holds. */
void engine_drain_opened(struct engine *e, struct engine_peer *p, uint64_t asked_at, const struct store_drain_wish *wish);
/* Tells the worker of its wish, if there is one: after Welcome. */
void engine_drain_welcome(struct engine_peer *p);
/* Looks for wishes that another master stored, once every recovery interval. */
void engine_drain_pulse(struct engine *e);
/* The core has said so of this queue. */
void engine_paused(struct engine *e, const char *queue);
void engine_pause_end(struct engine *e);
void engine_drain_forget(struct engine_peer *p);
void engine_on_preempted(void *arg, const struct lease_answer *answers, size_t n);
void engine_on_hb(void *arg, const struct lease_hb *hb);
void engine_on_page(void *arg, const struct lease_page *page);

#endif
