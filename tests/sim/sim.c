/* Virtual time, the network, the faults, and what is checked at the end of a history. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS_END (40 * NS_PER_S)
#define HEALED_END (300 * NS_PER_S) /* virtual time after the faults by which everything must have ended */

const char *const sim_handlers[3] = { "x", "y", "nobody" };

static bool msg_less(const struct heap_node *a, const struct heap_node *b)
{
	const struct msg *x = container_of(a, struct msg, node), *y = container_of(b, struct msg, node);
	return x->at != y->at ? x->at < y->at : x->order < y->order;
}

/* run NULL: only made, not put into the queue. */
struct msg *sim_at(struct sim *s, int64_t at, void (*run)(struct sim *, struct msg *))
{
	struct msg *m = xcalloc(1, sizeof(*m));
	heap_node_init(&m->node);
	m->at = at;
	m->order = ++s->order;
	m->run = run;
	if (run)
		heap_push(&s->queue, &m->node);
	return m;
}

void sim_violation(struct sim *s, const char *fmt, ...)
{
	if (s->violation[0])
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->violation, sizeof(s->violation), fmt, ap);
	va_end(ap);
	sim_trace(s, "VIOLATION: %s", s->violation);
}

void sim_trace(const struct sim *s, const char *fmt, ...)
{
	if (!s->trace)
		return;
	printf("%10.4f ", (double)s->now / 1e9);
	va_list ap;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

int64_t sim_between(struct sim *s, int64_t low, int64_t high)
{
	return low + (int64_t)rng_below(&s->rng, (uint64_t)(high - low + 1));
}

bool sim_chance(struct sim *s, int percent)
{
	return percent > 0 && (int)rng_below(&s->rng, 100) < percent;
}

/* Mostly a millisecond, sometimes much more. */
int64_t sim_latency(struct sim *s)
{
	uint64_t r = rng_below(&s->rng, 100);
	return sim_between(s, 50 * NS_PER_US, r < 80 ? 2 * NS_PER_MS : r < 97 ? 20 * NS_PER_MS : 200 * NS_PER_MS);
}

struct uuid sim_id(int row)
{
	struct uuid u = { .b = { [0] = 1, [14] = (uint8_t)(row >> 8), [15] = (uint8_t)row } };
	return u;
}

/* ---- network ---- */

static void on_to_master(struct sim *s, struct msg *m)
{
	const struct conn *c = &s->conns[m->conn];
	if (c->cut || c->epoch != s->m.epoch || !s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev = m->ev;
	d->ev.peer = m->conn;
	d->mem = m->mem;
	m->mem = NULL;
	master_deliver(s, d);
}

static void enqueue(struct sim *s, struct msg *m, int64_t at, void (*run)(struct sim *, struct msg *))
{
	m->at = at;
	m->run = run;
	m->order = ++s->order;
	heap_push(&s->queue, &m->node);
}

void net_to_master(struct sim *s, struct msg *m)
{
	struct conn *c = &s->conns[m->conn];
	c->last[0] = max_i64(c->last[0], s->now + sim_latency(s) / 4);
	enqueue(s, m, c->last[0], on_to_master);
}

static void on_to_worker(struct sim *s, struct msg *m)
{
	const struct conn *c = &s->conns[m->conn];
	struct sim_worker *w = &s->w[c->worker];
	if (c->cut)
		return;
	if (w->paused_until > s->now) {
		struct msg *again = sim_at(s, w->paused_until, on_to_worker);
		again->conn = m->conn;
		again->ef = m->ef;
		return;
	}
	worker_receive(s, c->worker, m->conn, &m->ef);
}

void net_to_worker(struct sim *s, struct msg *m, int64_t at)
{
	struct conn *c = &s->conns[m->conn];
	c->last[1] = max_i64(c->last[1], at);
	enqueue(s, m, at, on_to_worker);
}

static void on_told_master(struct sim *s, struct msg *m)
{
	if (s->conns[m->conn].epoch != s->m.epoch || !s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_PEER_GONE;
	d->ev.peer = m->conn;
	master_deliver(s, d);
}

static void on_told_worker(struct sim *s, struct msg *m)
{
	worker_conn_lost(s, s->conns[m->conn].worker, m->conn);
}

void net_cut(struct sim *s, uint64_t conn, bool told)
{
	struct conn *c = &s->conns[conn];
	if (c->cut)
		return;
	c->cut = true;
	if (!told)
		return;
	sim_at(s, s->now + sim_latency(s), on_told_master)->conn = conn;
	sim_at(s, max_i64(s->now + sim_latency(s), c->last[1]), on_told_worker)->conn = conn;
}

/* ---- faults ---- */

enum fault { F_CUT, F_PARTITION, F_AGENT, F_MACHINE, F_PAUSE, F_MASTER, F_MASTER_BETWEEN, F_STORE, F_LEASE, F_FLUSH,
	     F_CANCEL, F_RETRY, F_SUPERVISOR, F_GONE, F_DRAIN, F_DETACH, FAULTS };

static void on_worker_back(struct sim *s, struct msg *m) { worker_start(s, m->worker); }
static void on_store_back(struct sim *s, struct msg *m) { store_set(s, true, 0); }
static void on_lease_back(struct sim *s, struct msg *m) { lease_set(s, true, sim_chance(s, 50)); }

static void pause_worker(struct sim *s, int w)
{
	if (s->w[w].paused_until > s->now)
		return;
	/* Supervisor and tree paused together: the exclusive rule does not cover that. */
	for (int i = 0; i < s->w[w].n_runs; i++)
		if (s->w[w].runs[i].exclusive && s->w[w].runs[i].state == RUN_RUNNING)
			return;
	s->w[w].paused_until = s->now + sim_between(s, NS_PER_S, 30 * NS_PER_S);
	sim_trace(s, "%s is paused until %.1f", s->w[w].id, (double)s->w[w].paused_until / 1e9);
}

static void strike(struct sim *s, enum fault f)
{
	int w = (int)rng_below(&s->rng, (uint64_t)s->n_workers);
	switch (f) {
	case F_CUT:
	case F_PARTITION:
		if (s->w[w].conn) {
			sim_trace(s, "stream of %s is cut%s", s->w[w].id, f == F_CUT ? "" : ", and nobody is told");
			net_cut(s, s->w[w].conn, f == F_CUT);
		}
		break;
	case F_AGENT:
	case F_MACHINE:
		worker_kill(s, w, f == F_MACHINE);
		sim_at(s, s->now + sim_between(s, NS_PER_MS, 15 * NS_PER_S), on_worker_back)->worker = w;
		break;
	case F_PAUSE: pause_worker(s, w); break;
	case F_MASTER: master_crash(s); break;
	case F_MASTER_BETWEEN: s->m.crash_in = sim_between(s, 0, 12); break;
	case F_STORE:
		if (s->store.up) {
			int64_t back = s->now + sim_between(s, 100 * NS_PER_MS, 15 * NS_PER_S);
			store_set(s, false, back);
			sim_at(s, back, on_store_back);
		}
		break;
	case F_LEASE:
		lease_set(s, false, false);
		sim_at(s, s->now + sim_between(s, 100 * NS_PER_MS, 20 * NS_PER_S), on_lease_back);
		break;
	case F_FLUSH: lease_set(s, s->lease.up, true); break;
	case F_CANCEL: client_cancel(s, (int)rng_below(&s->rng, (uint64_t)s->n_tasks)); break;
	case F_RETRY: client_retry(s, (int)rng_below(&s->rng, (uint64_t)s->n_tasks)); break;
	case F_SUPERVISOR: worker_lose_run(s, w); break;
	case F_GONE:
		/* One stays that fits everything. The master often dies with it, and does not know that it ever was. */
		if (w > 0 && sim_chance(s, 30)) {
			worker_kill(s, w, true);
			s->w[w].gone = true;
			sim_trace(s, "%s is gone for ever", s->w[w].id);
			if (sim_chance(s, 70))
				master_crash(s);
		}
		break;
	case F_DRAIN: operator_drain(s, w, !s->store.drained[w]); break;
	case F_DETACH: worker_detach(s, w, sim_between(s, 5, 60) * NS_PER_S); break;
	case FAULTS: break;
	}
}

static void on_fault(struct sim *s, struct msg *m)
{
	if (s->healed)
		return;
	uint64_t enabled = m->gen;
	enum fault f = FAULTS;
	while (enabled && !(enabled >> f & 1))
		f = (enum fault)rng_below(&s->rng, FAULTS);
	strike(s, f);
	sim_at(s, s->now + sim_between(s, 10 * NS_PER_MS, s->fault_gap), on_fault)->gen = enabled;
}

/* ---- a history ---- */

static bool ended(struct sim *s)
{
	for (int i = 0; i < s->n_tasks; i++) {
		int row = s->store.by_key[i];
		if (!s->tasks[i].accepted || row < 0 || s->store.rows[row].state < ROW_COMPLETED)
			return false;
	}
	for (int i = 0; i < s->n_workers; i++)
		if (s->w[i].n_runs)
			return false;
	return true;
}

static void on_check(struct sim *s, struct msg *m)
{
	if (ended(s)) {
		/* A little longer: nothing may change any more. */
		s->quiet = true;
		s->end_at = min_i64(s->end_at, s->now + 3 * NS_PER_S);
	} else {
		sim_at(s, s->now + NS_PER_S, on_check);
	}
}

static void on_heal(struct sim *s, struct msg *m)
{
	sim_trace(s, "all faults end");
	s->healed = true;
	s->m.crash_in = -1;
	store_set(s, true, 0);
	lease_set(s, true, false);
	if (!s->m.up)
		master_start(s);
	for (int i = 0; i < s->n_workers; i++) {
		s->w[i].refuse_percent = s->w[i].late_percent = 0;
		operator_drain(s, i, false);
		worker_start(s, i);
	}
	on_check(s, m);
}

static void on_submit(struct sim *s, struct msg *m) { client_submit(s, m->index); }

static void prepare(struct sim *s)
{
	s->n_workers = (int)sim_between(s, 1, SIM_WORKERS);
	s->n_tasks = (int)sim_between(s, 1, SIM_TASKS);
	bool exclusives = sim_chance(s, 50);
	for (int i = 0; i < s->n_workers; i++) {
		worker_init(s, i);
		worker_start(s, i);
	}
	for (int i = 0; i < s->n_tasks; i++) {
		s->tasks[i] = (struct client_task){
			.priority = sim_chance(s, 30) ? (int)sim_between(s, -2, 2) : 0,
			.queue = (int)sim_between(s, 0, 2),
			.exclusive = exclusives && sim_chance(s, 40),
			.handler = sim_chance(s, 30) ? sim_handlers[rng_below(&s->rng, 2)] : NULL,
			.custom = sim_chance(s, 20) ? (sim_chance(s, 50) ? "lic=1" : "lic=2") : NULL,
			.expiry = sim_chance(s, 15) ? sim_between(s, NS_PER_MS, 20 * NS_PER_S) : 0,
		};
		if (s->tasks[i].expiry && sim_chance(s, 40))
			s->tasks[i].handler = sim_handlers[2];
		sim_at(s, s->now + sim_between(s, 0, FAULTS_END * 3 / 4), on_submit)->index = i;
	}
	/* Each history has its own mix of faults; a tenth has none. */
	uint64_t enabled = sim_chance(s, 10) ? 0 : rng_next(&s->rng) & (sim_chance(s, 50) ? rng_next(&s->rng) : ~UINT64_C(0));
	s->new_ids = sim_chance(s, 30);
	s->fault_gap = sim_chance(s, 50) ? NS_PER_S : 6 * NS_PER_S;
	sim_at(s, s->now + NS_PER_S, on_fault)->gen = enabled & ((UINT64_C(1) << FAULTS) - 1);
	sim_at(s, s->now + FAULTS_END, on_heal);
}

static void judge(struct sim *s)
{
	for (int i = 0; i < s->n_tasks; i++) {
		int row = s->store.by_key[i];
		if (row < 0 || !s->tasks[i].accepted) {
			sim_violation(s, "task %d was never accepted", i);
			continue;
		}
		const struct row *r = &s->store.rows[row];
		if (r->state < ROW_COMPLETED)
			sim_violation(s, "task %d (row %d) was lost: state %d, attempt %d, worker %d, session %d", i, row,
				      r->state, r->t.attempt, r->worker, (int)r->session);
		else if (r->ends != 1)
			sim_violation(s, "task %d has %d terminal records", i, r->ends);
	}
	for (int i = 0; !s->quiet && i < s->n_workers; i++)
		if (s->w[i].n_runs)
			sim_violation(s, "%s still holds %d attempts", s->w[i].id, s->w[i].n_runs);
}

bool sim_run(struct sim *s, uint64_t seed, bool trace)
{
	struct core_effects keep = s->m.out;
	memset(s, 0, sizeof(*s));
	s->m.out = keep;
	s->seed = seed;
	s->trace = trace;
	rng_seed(&s->rng, seed);
	heap_init(&s->queue, msg_less);
	s->now = 1000 * NS_PER_S;
	s->end_at = s->now + FAULTS_END + HEALED_END;
	store_init(s);
	s->lease.up = true;
	s->m.crash_in = -1;
	master_start(s);
	prepare(s);
	while (s->queue.len && !s->violation[0]) {
		struct msg *m = container_of(heap_top(&s->queue), struct msg, node);
		if (m->at > s->end_at)
			break;
		heap_remove(&s->queue, &m->node);
		s->now = max_i64(s->now, m->at);
		m->run(s, m);
		free(m->mem);
		free(m);
	}
	if (!s->violation[0])
		judge(s);
	while (s->queue.len) {
		struct msg *m = container_of(heap_top(&s->queue), struct msg, node);
		heap_remove(&s->queue, &m->node);
		free(m->mem);
		free(m);
	}
	heap_done(&s->queue);
	for (int i = 0; i < s->m.n_inbox; i++) {
		free(s->m.inbox[i]->mem);
		free(s->m.inbox[i]);
	}
	for (int i = 0; i < s->m.n_outbox; i++)
		free(s->m.outbox[i]);
	core_free(s->m.core);
	core_effects_clear(&s->m.out);
	return !s->violation[0];
}
