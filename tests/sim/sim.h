/* The simulator: the production core against a simulated store, lease table, network, clocks and workers, in virtual time.
 *
 * One history is one seed: everything random comes from it, so a failing history is replayed exactly.  One to three masters
 * share the store and the lease table; workers and clients use any of them.  A history has a time of faults and then
 * heals; at its end every accepted task must have ended.  What is checked stands in sim_check.h.
 *
 *   sim.c         virtual time and the life of a history
 *   sim_net.c     streams between workers and masters
 *   sim_fault.c   what goes wrong, and its end
 *   sim_client.c  clients and operators
 *   sim_master.c  what the engine does in reinsd
 *   sim_process.c a master's process: starts, dies, stands still, beats
 *   sim_store.c   connections to the store: what is asked, lost, settled, answered
 *   sim_rows.c    the rows: each operation one conditional update
 *   sim_lease.c   the lease table's keys
 *   sim_worker.c  a worker's agent
 *   sim_runs.c    its programs
 *   sim_check.c   the promises
 *
 * Times are of three kinds: virtual time (s->now; nobody in a history knows it), each process's own clock
 * (struct clock), and the database's wall clock (store_wall). */
#ifndef REINS_SIM_H
#define REINS_SIM_H

#include "common/base/heap.h"
#include "common/base/list.h"
#include "common/base/rng.h"
#include "server/core/core.h"
#include "server/core/core_view.h"

#include <stdio.h>
#include <string.h>

#define SIM_MASTERS 3
#define SIM_MASTER_IDS 64 /* a master may come back under a new one */
#define SIM_WORKERS 5
#define SIM_QUEUES 3
#define SIM_TASKS 40    /* what clients want done */
#define SIM_ROWS 1024   /* rows tried: a repeated submit has a new id */
#define SIM_RUNS 64
#define SIM_CONNS 4096
#define SIM_OUTCOMES 65536
#define SIM_INBOX 4096
#define SIM_OUTBOX 8192
#define LOST_LIMIT 3
#define HEARTBEAT (2 * NS_PER_S)
#define LEASE_MAX (20 * NS_PER_S) /* the longest that a task asks for */
#define SIM_START (1000 * NS_PER_S)

struct sim;

/* Something that happens at a time. One shape for all, so that the queue owns them. */
struct msg {
	struct heap_node node;
	struct list link;        /* operations of the store: master.ops */
	int64_t at;
	uint64_t order;
	void (*run)(struct sim *s, struct msg *m);
	int master, id;          /* place, and row of store.masters: who asked may come back under another */
	uint64_t epoch;          /* of the master's process that it belongs to */
	uint64_t conn;
	uint64_t gen;            /* of the worker or timer */
	int worker, index;
	struct core_event ev;
	struct core_effect ef;
	void *mem, *asked;       /* freed with the message; asked: what `ef` points to */
	int again;               /* an operation: how often it was sent before */
	bool kept;               /* by the function that it runs: it is in the queue again, or waits */
};

/* Each machine counts its own nanoseconds: from an offset of its own, at a rate within 0.1 %. */
struct clock {
	int64_t offset;
	int64_t ppm;
};

enum row_state { ROW_NONE, ROW_PENDING, ROW_RUNNING, ROW_COMPLETED, ROW_FAILED, ROW_CANCELLED };

struct row {
	enum row_state state;
	struct core_task t;      /* .attempt: the newest */
	int key;                 /* of idempotency: index of the client's task */
	int worker;              /* of the newest attempt; -1 none */
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session, lease_ns;
	int64_t due_at, expires_at; /* by the database's clock. expires_at: 0: never, or given out before */
	int64_t nowhere_since;   /* RUNNING of a session that stands, whose worker has no such program; 0: it is not so */
	int64_t nowhere_session; /* that one: with the next all waits begin anew */
	int64_t free_at;         /* by then the leases of attempts that were taken back have ended */
	int closed, retries;     /* the newest attempt when a client retried it last */
	bool open;               /* PENDING, and its last attempt may be adopted again */
	bool wish, started;
	int64_t wish_at;
	bool counted;            /* its last attempt's end is in `lost` */
	int lost, ends;          /* terminal records: must be one */
	uint64_t recorded;       /* attempts with an outcome, bit per number */
	uint64_t truly_succeeded, truly_ended; /* what really happened at the workers */
};

struct master_row {
	int64_t incarnation, beat;
	uint64_t process;        /* epoch of the one that opened it */
	int64_t opened_at, taken_at; /* virtual times of that, and of the first take-over since. 0: never */
	char name[8];
};

struct sim_store {
	bool up;
	int64_t slow_until;      /* every answer takes long */
	int64_t wall;            /* the database's wall clock beside virtual time */
	struct row rows[SIM_ROWS];
	int n_rows;
	int by_key[SIM_TASKS];   /* row, -1 none */
	int64_t seq;
	struct master_row masters[SIM_MASTER_IDS];
	int n_masters;
	int64_t sessions[SIM_WORKERS];
	int opened_by[SIM_WORKERS]; /* master id that opened the newest; -1: none */
	int64_t hello[SIM_WORKERS]; /* order of the Hello that became it, and how often that had been sent before */
	int hello_sent[SIM_WORKERS];
	bool drained[SIM_WORKERS];  /* the wish of an operator */
	int64_t paused_at[SIM_QUEUES]; /* virtual time; 0: not paused */
	int64_t detached_until[SIM_WORKERS]; /* by the database's clock */
};

struct field {
	int row, attempt;
};
struct sim_lease {
	bool up;
	struct {
		int64_t session, hb_end, hash_end; /* 0: no such key */
		int64_t hb_since;    /* it has been there, for this session, without a gap */
		int master;
		struct field hash[SIM_RUNS];
		int n_hash;
	} w[SIM_WORKERS];
	struct {
		int64_t session, end;
		int worker, attempt;
	} owner[SIM_ROWS];
};

#define STORE_KINDS_MAX 40 /* effects' types, and those of the engine itself */
struct master {
	int id;                  /* row of store.masters */
	struct core *core;
	struct core_effects out;
	struct clock clock;
	uint64_t epoch;          /* of its process; of no other process ever */
	bool up;
	bool opened;             /* the store has taken it in, with this incarnation */
	int64_t incarnation;
	bool beating;
	int64_t paused_at, paused_until; /* stands still */
	struct msg *inbox[SIM_INBOX]; /* events of the next turn */
	int n_inbox;
	bool turn_set;
	struct msg *wake;        /* in the queue; NULL: none */
	struct msg *outbox[SIM_OUTBOX];
	int n_outbox;
	size_t next_effect;      /* of a turn that stopped in the middle */
	bool mid_turn;
	int64_t crash_in, pause_in, crash_in_answers; /* effects, answers of the store until then; -1: no */
	int64_t cut_in;          /* statements until its connections to the store break; -1: no */
	/* its connections */
	bool store_cut, lease_cut;  /* a partition */
	bool reach, store_up;       /* the store; what it knows of that */
	struct list ops;            /* asked of the store, not answered */
	int64_t last_command;       /* to the lease table */
	int64_t last_apply[STORE_KINDS_MAX], last_answer[STORE_KINDS_MAX];
	/* By its own clock: since when it has listened and reached its store, but for pauses that its loop may not have seen. */
	int64_t listens_from, unseen, store_down_at;
	bool told_up;            /* that the store is */
	int64_t lease_since, hb_lost_at; /* it reaches the lease table; asked it in vain. Virtual time */
	int64_t started_at;      /* virtual time */
	bool pause_answered[SIM_QUEUES]; /* it was asked to pause it, has answered, and it is paused since */
	/* what the core was told */
	bool pause_told[SIM_QUEUES];
	bool wished[SIM_WORKERS];
	int64_t detached_until[SIM_WORKERS], detached_session[SIM_WORKERS]; /* virtual time */
};

enum run_state { RUN_HELD, RUN_RUNNING, RUN_ENDED };
struct run {
	struct core_attempt at;
	uint64_t gen;
	enum run_state state;
	bool exclusive, succeeded, stopped, lost;
	bool stopping;           /* the lease rule has begun to end it */
	bool frozen;             /* stood still together with its supervisor: the exclusive rule does not cover that */
	int64_t lease_ns;
	const struct core_task *t;
};

struct sim_worker {
	char id[16];
	bool up;                 /* the agent */
	bool gone;               /* it never comes back */
	int64_t agent_until, machine_until; /* the agent alone, or all of it, stands still until then */
	struct clock clock;      /* CLOCK_BOOTTIME */
	uint8_t instance[CORE_INSTANCE_LEN];
	bool drains;             /* takes no tasks: it was told to */
	bool deaf;               /* to such words */
	int slots, gpus, licences;
	char custom[16];
	bool enforces, in_process, commands;
	int handlers;            /* how many of sim_handlers, from the first */
	const char *queue;       /* NULL: all */
	uint64_t conn;           /* 0: none */
	bool welcomed;
	uint64_t gen;            /* of the agent's process */
	int64_t session;         /* the newest that it knows of */
	int64_t hellos;          /* the newest one's number: grows over its processes, without gaps within one */
	bool unsettled, was_unsettled; /* a Hello since `session` may have opened another; that, before the newest */
	int64_t heartbeat_ns, patience_ns; /* as Welcome said */
	int64_t number, last_dispatch;
	int64_t acked_sent_at, sent_at[64], unanswered_since; /* its own clock; the last: 0: none */
	struct run runs[SIM_RUNS];
	int n_runs;
	uint64_t run_gen;
	int refuse_percent, late_percent, fail_percent;
};

struct conn {
	int worker, master;
	uint64_t epoch;
	bool broken;             /* nothing passes any more */
	bool closed[2];          /* by its [0] master, [1] worker: that one hears nothing of it any more */
	int64_t last[2];         /* newest arrival in each direction: streams keep order */
	int64_t behind[2];       /* until then something waits on its way */
	int64_t at;              /* when it began */
};

#include "tests/sim/sim_state.h"
#endif
