/* The simulator: the production core against a simulated store, lease table, network and workers, in virtual time.
 *
 * One history is one seed: everything random comes from it, so a failing history is replayed exactly.  A history has
 * a time of faults and then heals; at its end every accepted task must have ended.  What is checked:
 *
 *   each accepted task gets exactly one terminal record, and none is lost
 *   each attempt's outcome is recorded at most once, and not after a retry has closed it
 *   a task is COMPLETED only if its worker really finished that attempt with success
 *   an exclusive task never runs twice at a time
 *   a worker that an operator drains is given nothing
 *   who left its programs running loses none of them before the time that it asked for, exclusive ones excepted
 *   no worker holds more than it has slots and counted resources for, or what it can't run
 *   a task with an expiry ends by it, or was given out before
 *   the core's own bookkeeping (core_check), after every step */
#ifndef REINS_SIM_H
#define REINS_SIM_H

#include "common/base/heap.h"
#include "common/base/rng.h"
#include "server/core/core.h"
#include "server/core/core_view.h"

#include <stdio.h>

#define SIM_WORKERS 5
#define SIM_TASKS 40    /* what clients want done */
#define SIM_ROWS 512    /* rows tried: a repeated submit has a new id */
#define SIM_RUNS 64
#define SIM_CONNS 4096
#define SIM_OUTCOMES 65536
#define LOST_LIMIT 3

struct sim;

/* Something that happens at a time. One shape for all, so that the queue owns them. */
struct msg {
	struct heap_node node;
	int64_t at;
	uint64_t order;
	void (*run)(struct sim *s, struct msg *m);
	uint64_t epoch;  /* of the master that it belongs to */
	uint64_t conn;
	uint64_t gen;    /* of the worker or timer */
	int worker, index;
	struct core_event ev;
	struct core_effect ef;
	void *mem;       /* freed with the message */
	bool applied;
};

enum row_state { ROW_NONE, ROW_PENDING, ROW_RUNNING, ROW_COMPLETED, ROW_FAILED, ROW_CANCELLED };

struct row {
	enum row_state state;
	struct core_task t;      /* .attempt: the newest */
	int key;                 /* of idempotency: index of the client's task */
	int worker;              /* of the newest attempt; -1 none */
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session, lease_ns, due_at, expires_at; /* expires_at: 0: never, or given out before */
	int64_t free_at;         /* by then the leases of attempts that were taken back have ended */
	int closed, retries;     /* the newest attempt when a client retried it last */
	bool open;               /* PENDING, and its last attempt may be adopted again */
	bool wish;
	int lost, ends;          /* terminal records: must be one */
	uint64_t recorded;       /* attempts with an outcome, bit per number */
	uint64_t truly_succeeded, truly_ended; /* what really happened at the workers */
};

struct sim_store {
	bool up;
	int64_t back_at;         /* while away */
	struct row rows[SIM_ROWS];
	int n_rows;
	int by_key[SIM_TASKS];   /* row, -1 none */
	int64_t seq;
	int64_t sessions[SIM_WORKERS];
	bool drained[SIM_WORKERS]; /* the wish of an operator */
	int64_t detached_until[SIM_WORKERS];
	uint64_t opened_by[SIM_WORKERS]; /* epoch of the master that opened the newest */
	int64_t last_apply[32], last_answer[32];
};

struct sim_lease {
	bool up;
	int64_t hb_session[SIM_WORKERS]; /* 0: missing */
	struct core_attempt hash[SIM_WORKERS][SIM_RUNS];
	int n_hash[SIM_WORKERS];
};

struct master {
	struct core *core;
	struct core_effects out;
	uint64_t epoch;
	bool up;
	struct msg *inbox[4096]; /* events of the next turn */
	int n_inbox;
	bool turn_set;
	int64_t wake_at;
	struct msg *outbox[8192];
	int n_outbox;
	int64_t crash_in;        /* effects until it dies; -1: no */
	/* what the core was told */
	bool wished[SIM_WORKERS];
	int64_t detached_until[SIM_WORKERS], detached_session[SIM_WORKERS];
};

enum run_state { RUN_HELD, RUN_RUNNING, RUN_ENDED };
struct run {
	struct core_attempt at;
	uint64_t gen;
	enum run_state state;
	bool exclusive, succeeded, stopped, lost;
	int64_t lease_ns;
	const struct core_task *t;
};

struct sim_worker {
	char id[16];
	bool up;                 /* the agent */
	bool gone;               /* it never comes back */
	int64_t paused_until;
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
	int64_t session;         /* that this process had last; 0: none */
	int64_t heartbeat_ns, patience_ns; /* as Welcome says */
	int64_t number, last_dispatch, acked_sent_at, sent_at[64], unanswered_since;
	struct run runs[SIM_RUNS];
	int n_runs;
	uint64_t run_gen;
	int refuse_percent, late_percent, fail_percent;
};

struct conn {
	int worker;
	uint64_t epoch;
	bool cut;                /* nothing passes any more */
	int64_t last[2];         /* newest arrival in each direction: streams keep order */
};

struct outcome {
	int worker;
	struct core_attempt at;
	bool succeeded, stopped, lost;
};

struct client_task {
	bool wanted, accepted, exclusive;
	int priority, queue;
	const char *handler, *custom;
	int64_t expiry;          /* 0: none */
	uint64_t asked;          /* number of the newest try */
};

struct sim {
	uint64_t seed;
	struct rng rng;
	int64_t now, end_at;
	int64_t fault_gap;       /* the longest between two faults */
	struct heap queue;
	uint64_t order;
	struct master m;
	struct sim_store store;
	struct sim_lease lease;
	struct sim_worker w[SIM_WORKERS];
	int n_workers;
	struct conn conns[SIM_CONNS];
	uint64_t n_conns;
	struct outcome outcomes[SIM_OUTCOMES];
	uint64_t n_outcomes;
	struct client_task tasks[SIM_TASKS];
	int n_tasks;
	int submit_row[SIM_ROWS]; /* token → row to be: index into `wanted` */
	bool healed, quiet;
	bool new_ids;            /* a master that is started again has another id */
	bool trace;
	char violation[256];
	int64_t steps;
};

/* ---- sim.c ---- */
/* The last is one that no worker has. */
extern const char *const sim_handlers[3];
bool sim_run(struct sim *s, uint64_t seed, bool trace); /* true: all promises were kept */
struct msg *sim_at(struct sim *s, int64_t at, void (*run)(struct sim *, struct msg *));
void sim_violation(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_trace(const struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
int64_t sim_between(struct sim *s, int64_t low, int64_t high); /* both included */
bool sim_chance(struct sim *s, int percent);
int64_t sim_latency(struct sim *s);
static inline int row_of(const struct uuid *id) { return id->b[14] << 8 | id->b[15]; }
struct uuid sim_id(int row);

/* ---- sim_master.c ---- */
void master_start(struct sim *s);
void master_crash(struct sim *s);
/* An event for the next turn; takes the memory of `m`. */
void master_deliver(struct sim *s, struct msg *m);
void client_submit(struct sim *s, int task);
void client_cancel(struct sim *s, int task);
void operator_drain(struct sim *s, int w, bool on);
void client_retry(struct sim *s, int task);
/* ---- sim_store.c ---- */
void store_init(struct sim *s);
void store_effect(struct sim *s, const struct core_effect *f);
void store_insert_direct(struct sim *s, int row);
void store_cancel(struct sim *s, int row);
void store_retry(struct sim *s, int row);
void store_set(struct sim *s, bool up, int64_t back_at);
/* ---- sim_lease.c ---- */
void lease_effect(struct sim *s, const struct core_effect *f);
void lease_set(struct sim *s, bool up, bool flushed);
/* ---- sim_worker.c ---- */
void worker_init(struct sim *s, int w);
void worker_receive(struct sim *s, int w, uint64_t conn, const struct core_effect *f);
void worker_start(struct sim *s, int w);
/* The agent dies. `machine`: its programs and its state directory too. */
void worker_kill(struct sim *s, int w, bool machine);
/* An operator's wish has reached it. */
void worker_drain(struct sim *s, int w);
/* Its agent ends and leaves the programs running, to be back in about `ns`. */
void worker_detach(struct sim *s, int w, int64_t ns);
/* The supervisor of one of its programs dies, and the program with it: nobody knows how that ended. */
void worker_lose_run(struct sim *s, int w);
void worker_conn_lost(struct sim *s, int w, uint64_t conn);
/* ---- network, sim.c ---- */
void net_to_master(struct sim *s, struct msg *m);  /* m.conn, m.ev */
void net_to_worker(struct sim *s, struct msg *m, int64_t at);  /* m.conn, m.ef */
void net_cut(struct sim *s, uint64_t conn, bool told); /* told: both sides notice soon */

#endif
