/* The whole of a history, and what the files of the simulator call of each other. Included by sim.h. */
#ifndef REINS_SIM_STATE_H
#define REINS_SIM_STATE_H

#define TRACE_LINES 200 /* kept for a failure */

struct outcome {
	int worker;
	struct core_attempt at;
	bool succeeded, stopped, lost;
};

struct client_task {
	bool accepted, exclusive;
	int priority, queue;
	const char *handler, *custom;
	int64_t expiry;          /* 0: none */
};

struct sim {
	uint64_t seed;
	struct rng rng, pauses;
	int64_t now, end_at;
	int64_t fault_gap;       /* the longest between two faults */
	int64_t faults_end;      /* so long after the start */
	bool flaky;              /* connections to the store */
	bool takes_over;         /* a master that shows no life has its sessions judged soon */
	struct heap queue;
	uint64_t order, epochs;
	struct core_config cfg;  /* what all masters are set to */
	struct master m[SIM_MASTERS];
	int n_masters;
	struct sim_store store;
	struct sim_lease lease;
	struct sim_worker w[SIM_WORKERS];
	int n_workers;
	int64_t parted_until[SIM_WORKERS][SIM_MASTERS]; /* nothing passes between the two */
	struct client_task tasks[SIM_TASKS];
	int n_tasks;
	int race_percent;        /* of programs whose end a cancel meets */
	bool exclusives;         /* some tasks are */
	bool healed, quiet;
	bool new_ids;            /* a master that is started again has another id */
	bool trace, keep;        /* printed; kept in `lines` */
	char violation[256];
	int64_t steps;
	uint64_t n_conns, n_outcomes;
	/* Not cleared between histories. */
	struct conn conns[SIM_CONNS];
	struct outcome outcomes[SIM_OUTCOMES];
	struct list spare;       /* messages */
	char lines[TRACE_LINES][200];
	int n_lines;
};

/* ---- clocks ---- */
static inline int64_t clock_at(const struct clock *c, int64_t virtual_ns)
{
	int64_t d = virtual_ns - SIM_START;
	return c->offset + d + d * c->ppm / 1000000;
}
/* The first virtual time by which the clock shows `own_ns`; what is far away is never. */
static inline int64_t clock_when(const struct clock *c, int64_t own_ns)
{
	if (own_ns > c->offset + 5000 * NS_PER_S)
		return INT64_MAX;
	int64_t d = (own_ns - c->offset) * 1000000 / (1000000 + c->ppm);
	while (clock_at(c, SIM_START + d) < own_ns)
		d++;
	return SIM_START + d;
}

/* ---- sim.c ---- */
/* The last is one that no worker has. */
extern const char *const sim_handlers[3];
enum sim_trace { SIM_SILENT, SIM_KEEP, SIM_PRINT };
bool sim_run(struct sim *s, uint64_t seed, enum sim_trace trace); /* true: all promises were kept */
void sim_done(struct sim *s);
/* run NULL: only made, not put into the queue. */
struct msg *sim_at(struct sim *s, int64_t at, void (*run)(struct sim *, struct msg *));
void sim_push(struct sim *s, struct msg *m, int64_t at, void (*run)(struct sim *, struct msg *));
/* The message that is being run comes once more, later. */
void sim_again(struct sim *s, struct msg *m, int64_t at, void (*run)(struct sim *, struct msg *));
void sim_free(struct sim *s, struct msg *m);
void sim_violation(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_trace_line(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define sim_trace(s, ...) ((s)->trace || (s)->keep ? sim_trace_line(s, __VA_ARGS__) : (void)0)
int64_t sim_between(struct sim *s, int64_t low, int64_t high); /* both included */
bool sim_chance(struct sim *s, int percent);
int64_t sim_latency(struct sim *s);
static inline int row_of(const struct uuid *id) { return id->b[14] << 8 | id->b[15]; }
static inline int number_of(const char *worker) { return worker[1] - '0'; }
struct uuid sim_id(int row);

/* ---- sim_net.c ---- */
/* 0: it can't be reached now. */
uint64_t net_connect(struct sim *s, int worker, int master);
void net_to_master(struct sim *s, struct msg *m);  /* m.conn, m.ev */
void net_to_worker(struct sim *s, struct msg *m, int64_t at);  /* m.conn, m.ef */
void net_cut(struct sim *s, uint64_t conn, bool told); /* told: both sides notice soon */
void net_close(struct sim *s, uint64_t conn, bool by_worker);
void net_part(struct sim *s, int worker, int master, int64_t until);

/* ---- sim_fault.c ---- */
void fault_prepare(struct sim *s);
void fault_heal(struct sim *s);
/* Its connections to the store break, for a moment. */
void fault_cut_store(struct sim *s, int master);

/* ---- sim_process.c ---- */
static inline bool master_stands(const struct sim *s, const struct master *m) { return m->paused_until > s->now; }
static inline struct master *master_of(struct sim *s, const struct msg *m) { return &s->m[m->master]; }
/* The process that the message belongs to is no more. */
static inline bool master_dead(struct sim *s, const struct msg *m)
{
	return !master_of(s, m)->up || master_of(s, m)->epoch != m->epoch;
}
/* Stands still: the message comes again when it goes on. */
bool master_later(struct sim *s, struct msg *m);
struct msg *master_msg(struct sim *s, const struct master *m, int64_t at, void (*run)(struct sim *, struct msg *));
static inline int64_t master_now(const struct sim *s, const struct master *m) { return clock_at(&m->clock, s->now); }
const char *master_name(const struct sim *s, const struct master *m); /* for traces */
int master_any(struct sim *s); /* one that is up, -1: none */
void master_boot(struct sim *s);
void master_start(struct sim *s, int i);
void master_crash(struct sim *s, int i);
void master_pause(struct sim *s, int i, int64_t ns);
/* Another process under this one's id. */
void master_twin(struct sim *s, int i);
void master_learn_wish(struct sim *s, struct master *m, int w, bool on);
/* Its row: opened, beaten in at once, and what follows when another has taken over. */
void master_open(struct sim *s, struct master *m);
void master_beat(struct sim *s, struct master *m);
void master_deposed(struct sim *s, struct master *m);
/* ---- sim_master.c ---- */
/* An event for the next turn; takes the message. */
void master_deliver(struct sim *s, struct master *m, struct msg *d);
struct msg *master_event(struct sim *s, enum core_event_type type); /* to be filled and delivered */
void master_flush(struct sim *s, struct master *m);
void master_drop_wake(struct sim *s, struct master *m);
void master_resume_turn(struct sim *s, struct master *m);

/* ---- sim_client.c ---- */
void client_submit(struct sim *s, int task);
void client_cancel(struct sim *s, int task);
void client_retry(struct sim *s, int task);
/* At about the time when the program of this row ends. */
void client_races(struct sim *s, int row, int64_t ends_at);
void operator_drain(struct sim *s, int w, bool on);
/* In some histories: queues are paused, and go on. */
void operator_prepare(struct sim *s);
void operator_heal(struct sim *s);
/* The master has answered who asked it to pause this queue. */
void operator_paused(struct sim *s, struct master *m, const char *queue);

/* ---- sim_store.c ---- */
enum { OP_CANCEL = 32, OP_RETRY, OP_PAUSE, OP_OPEN, OP_BEAT, OP_STARTED, OP_DETACHED, OP_NEWS }; /* kinds beside the effects' types */
static inline int64_t store_wall(const struct sim *s) { return s->now + s->store.wall; }
void store_init(struct sim *s);
bool store_reachable(const struct sim *s, const struct master *m);
void store_effect(struct sim *s, struct master *m, const struct core_effect *f);
/* One of the engine's own; fill ef and index. */
struct msg *store_ask(struct sim *s, struct master *m, int kind);
void store_insert_direct(struct sim *s, struct master *m, int row);
/* Copies what `f` points to into x, whose `ef` is f already. */
void store_keep_asked(struct msg *x, const struct core_effect *f);
/* After the store, or the way of one master to it, went away or came back. */
void store_changed(struct sim *s);
void store_forget(struct sim *s, struct master *m); /* its process died */
/* ---- sim_rows.c ---- */
/* Carries out m->ef, of a kind; m->ev becomes the answer. `again`: it was sent before, and nobody knows what became of it. */
void rows_apply(struct sim *s, struct msg *m, int kind, bool again);

/* ---- sim_lease.c ---- */
void lease_effect(struct sim *s, struct master *m, const struct core_effect *f);
void lease_set(struct sim *s, bool up);
void lease_part(struct sim *s, int master, bool cut);
void lease_flush(struct sim *s);
void lease_lose_one(struct sim *s);

/* ---- sim_worker.c ---- */
static inline int64_t worker_clock(const struct sim *s, const struct sim_worker *w) { return clock_at(&w->clock, s->now); }
void worker_init(struct sim *s, int w);
void worker_receive(struct sim *s, int w, uint64_t conn, const struct core_effect *f);
void worker_start(struct sim *s, int w);
/* The agent dies. `machine`: its programs and its state directory too. */
void worker_kill(struct sim *s, int w, bool machine);
/* The agent, or all of it, stands still. */
void worker_pause(struct sim *s, int w, bool machine, int64_t ns);
/* An operator's wish has reached it. */
void worker_drain(struct sim *s, int w);
/* Its agent ends and leaves the programs running, to be back in about `ns`. */
void worker_detach(struct sim *s, int w, int64_t ns);
void worker_conn_lost(struct sim *s, int w, uint64_t conn);
void worker_say(struct sim *s, struct sim_worker *w, enum core_event_type type, const struct run *r);
/* ---- sim_runs.c ---- */
struct run *run_find(struct sim_worker *w, const struct core_attempt *at);
void run_drop(struct sim_worker *w, struct run *r);
void run_dispatched(struct sim *s, struct sim_worker *w, const struct core_effect *f);
void run_stop(struct sim *s, struct sim_worker *w, const struct core_attempt *at);
/* The supervisor of one of its programs dies, and the program with it: nobody knows how that ended. */
void run_lose_one(struct sim *s, int w);

/* ---- sim_check.c ---- */
#include "tests/sim/sim_check.h"

#endif
