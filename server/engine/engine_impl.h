/* Shared by the engine's files only. */
#ifndef REINS_ENGINE_IMPL_H
#define REINS_ENGINE_IMPL_H

#include "common/loop/loop.h"
#include "server/engine/engine.h"

/* An operation that the core asked for, on its way through the store or the lease table. */
struct eng_op {
	struct list node; /* in_flight, then spent until the core has seen its answer */
	struct engine *engine;
	struct core_effect effect; /* what was asked; pointers in it are not valid any more */
	struct core_attempt *held; /* SESSION_OPEN's list, owned */
	char worker[CORE_NAME_MAX + 1];
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
	};
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

	struct map peers;
	uint64_t next_peer;
	struct list dirty_peers;

	struct map waiting;
	struct uuid7_maker ids;

	/* this master's row in the store */
	struct store_master_open master_open;
	struct store_beat beat;
	bool opening, beating, opened, replaced;
	char store_id[UUID_TEXT_LEN + 1];
	int64_t incarnation;
	struct loop_timer pulse; /* beats, and notices a loop that stood still */
	int64_t pulse_due_mono_ns, next_beat_mono_ns;
	bool store_up, lease_up;
	void (*on_replaced)(void *arg);
	void *arg;
#ifdef REINS_CRASH_POINTS
	struct loop_timer crash_after_write;
#endif
};

/* A zeroed event at the end of this turn's list; the engine is marked. */
struct core_event *engine_event(struct engine *e, enum core_event_type type);
/* Memory that lives until the step is done; NULL for 0 bytes. */
void *engine_scratch(struct engine *e, size_t size);
struct eng_op *engine_op_new(struct engine *e, const struct core_effect *effect);
void engine_op_spent(struct eng_op *op);
struct engine_peer *engine_peer_find(struct engine *e, uint64_t id);

void engine_execute(struct engine *e);        /* effects.c: carries out e->effects */
void engine_on_preempted(void *arg, const struct lease_answer *answers, size_t n);

#endif
