/* A worker's agent: the worker's side of the protocol.  It is connected to one master at a time, takes any that answers,
 * and counts in its own clock.  It may die, stand still alone (its programs and their supervisors go on), or with its
 * whole machine. */
#include "tests/sim/sim.h"

#define HELLO_PATIENCE (2 * NS_PER_S)
#define HELLOS_OF_A_PROCESS 1000 /* more than one says: the next begins behind them */

static void on_connect(struct sim *s, struct msg *m);

static int index_of(const struct sim *s, const struct sim_worker *w) { return (int)(w - s->w); }
static int64_t agent_stands(const struct sim_worker *w) { return max_i64(w->agent_until, w->machine_until); }

/* While it stands still nothing happens on it. */
static bool later(struct sim *s, const struct sim_worker *w, struct msg *m)
{
	if (agent_stands(w) <= s->now)
		return false;
	sim_again(s, m, agent_stands(w), m->run);
	return true;
}

/* `ns` by its own clock. */
static struct msg *after(struct sim *s, struct sim_worker *w, int64_t ns, void (*run)(struct sim *, struct msg *),
			 uint64_t gen)
{
	struct msg *m = sim_at(s, clock_when(&w->clock, worker_clock(s, w) + ns), run);
	m->worker = index_of(s, w);
	m->gen = gen;
	m->conn = w->conn;
	return m;
}

/* ---- to the master ---- */

static bool talks(const struct sim *s, const struct sim_worker *w)
{
	return w->up && w->conn && w->welcomed && agent_stands(w) <= s->now;
}

static struct msg *message(struct sim *s, const struct sim_worker *w, enum core_event_type type)
{
	struct msg *m = sim_at(s, s->now, NULL);
	m->conn = w->conn;
	m->ev.type = type;
	return m;
}

void worker_say(struct sim *s, struct sim_worker *w, enum core_event_type type, const struct run *r)
{
	if (!talks(s, w))
		return;
	if (s->n_outcomes == SIM_OUTCOMES) {
		sim_violation(s, "outcomes are sent without end");
		return;
	}
	struct msg *m = message(s, w, type);
	m->ev.at = r->at;
	if (type == CORE_EV_OUTCOME) {
		m->ev.token = s->n_outcomes;
		m->ev.outcome.succeeded = r->succeeded;
		m->ev.outcome.given_back = r->stopped || r->lost;
		s->outcomes[s->n_outcomes++] =
			(struct outcome){ index_of(s, w), r->at, r->succeeded, r->stopped, r->lost };
	}
	net_to_master(s, m);
}

/* What was not acknowledged is said again. */
static void say_outcomes(struct sim *s, struct sim_worker *w)
{
	for (int i = 0; i < w->n_runs; i++)
		if (w->runs[i].state == RUN_ENDED)
			worker_say(s, w, CORE_EV_OUTCOME, &w->runs[i]);
}

static struct core_attempt *held(const struct sim_worker *w)
{
	struct core_attempt *at = xcalloc(SIM_RUNS, sizeof(*at));
	for (int i = 0; i < w->n_runs; i++)
		at[i] = w->runs[i].at;
	return at;
}

static void say_draining(struct sim *s, struct sim_worker *w, int64_t detach_ns)
{
	if (!talks(s, w))
		return;
	struct msg *m = message(s, w, CORE_EV_DRAINING);
	m->ev.draining.on = w->drains || detach_ns > 0;
	m->ev.draining.detach_ns = detach_ns;
	net_to_master(s, m);
}

static void hang_up(struct sim *s, struct sim_worker *w)
{
	uint64_t conn = w->conn;
	w->conn = 0;
	w->welcomed = false;
	if (conn)
		net_close(s, conn, true);
}

static void reconnect(struct sim *s, struct sim_worker *w)
{
	w->conn = 0;
	w->welcomed = false;
	after(s, w, sim_between(s, 50 * NS_PER_MS, NS_PER_S), on_connect, w->gen);
}

static void on_heartbeat(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m) || !w->up || w->conn != m->conn)
		return;
	int64_t now = worker_clock(s, w);
	if (w->unanswered_since && now - w->unanswered_since >= w->patience_ns) {
		hang_up(s, w);
		reconnect(s, w);
		return;
	}
	struct msg *h = message(s, w, CORE_EV_HEARTBEAT);
	h->mem = held(w);
	h->ev.heartbeat.number = ++w->number;
	h->ev.heartbeat.last_dispatch = w->last_dispatch;
	h->ev.heartbeat.held = h->mem;
	h->ev.heartbeat.n_held = (size_t)w->n_runs;
	w->sent_at[w->number % 64] = now;
	if (!w->unanswered_since)
		w->unanswered_since = now;
	net_to_master(s, h);
	say_outcomes(s, w);
	after(s, w, w->heartbeat_ns, on_heartbeat, w->gen);
}

static void on_patience(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m) || !w->up || w->conn != m->conn || w->welcomed)
		return;
	hang_up(s, w);
	reconnect(s, w);
}

static void on_connect(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m) || !w->up || w->gen != m->gen || w->conn)
		return;
	uint64_t conn = net_connect(s, m->worker, (int)rng_below(&s->rng, (uint64_t)s->n_masters));
	if (!conn) {
		reconnect(s, w);
		return;
	}
	w->conn = conn;
	w->welcomed = false;
	struct msg *h = message(s, w, CORE_EV_HELLO);
	h->mem = held(w);
	h->ev.hello.worker = w->id;
	memcpy(h->ev.hello.instance, w->instance, CORE_INSTANCE_LEN);
	h->ev.hello.capacity =
		(struct core_capacity){ .slots = w->slots, .have = { .gpus = w->gpus }, .custom = w->custom };
	h->ev.hello.handlers = sim_handlers;
	h->ev.hello.n_handlers = (size_t)w->handlers;
	h->ev.hello.runs_commands = w->commands;
	h->ev.hello.queues = &w->queue;
	h->ev.hello.n_queues = w->queue != NULL;
	h->ev.hello.held = h->mem;
	h->ev.hello.n_held = (size_t)w->n_runs;
	h->ev.hello.enforces_lease = w->enforces;
	h->ev.hello.in_process = w->in_process;
	h->ev.hello.draining = w->drains;
	h->ev.hello.resumes = w->session;
	h->ev.hello.number = ++w->hellos;
	h->ev.hello.no_other = !w->unsettled;
	w->was_unsettled = w->unsettled;
	w->unsettled = true;
	w->sent_at[0] = worker_clock(s, w);
	net_to_master(s, h);
	after(s, w, HELLO_PATIENCE, on_patience, w->gen);
}

/* ---- from the master ---- */

static void on_welcome(struct sim *s, struct sim_worker *w, const struct core_effect *f)
{
	if (f->resumed)
		sim_trace(s, "%s: session %d goes on", w->id, (int)f->session);
	w->welcomed = true;
	w->unsettled = false;
	w->session = f->session;
	w->heartbeat_ns = f->heartbeat_ns;
	w->patience_ns = (f->lease_ns / 10 * 6 - f->heartbeat_ns) / 2;
	/* Who beats more rarely is told of the longer leases that its attempts have in the store. */
	for (int i = 0; i < w->n_runs; i++) {
		const struct row *row = &s->store.rows[row_of(&w->runs[i].at.task)];
		if (row->state == ROW_RUNNING && row->worker == index_of(s, w) && row->t.attempt == w->runs[i].at.attempt)
			w->runs[i].lease_ns = max_i64(w->runs[i].lease_ns, row->lease_ns);
	}
	w->number = w->last_dispatch = w->unanswered_since = 0;
	w->acked_sent_at = max_i64(w->acked_sent_at, w->sent_at[0]);
	say_outcomes(s, w);
	after(s, w, sim_between(s, 0, w->heartbeat_ns), on_heartbeat, w->gen);
	worker_drain(s, index_of(s, w));
}

void worker_receive(struct sim *s, int index, uint64_t conn, const struct core_effect *f)
{
	struct sim_worker *w = &s->w[index];
	if (!w->up || w->conn != conn)
		return;
	struct run *r;
	switch (f->type) {
	case CORE_DO_WELCOME: on_welcome(s, w, f); break;
	case CORE_DO_HEARTBEAT_ACK:
		if (!f->exclusive_not_renewed)
			w->acked_sent_at = max_i64(w->acked_sent_at, w->sent_at[f->number % 64]);
		w->unanswered_since = 0;
		break;
	case CORE_DO_DISPATCH:
		w->last_dispatch = f->number;
		run_dispatched(s, w, f);
		break;
	case CORE_DO_STOP: run_stop(s, w, &f->at); break;
	case CORE_DO_OUTCOME_ACK:
		r = run_find(w, &f->at);
		if (r && r->state == RUN_ENDED) {
			check_told(s, w, f);
			run_drop(w, r);
		}
		break;
	default: /* CLOSE_PEER */
		if (f->close == CORE_CLOSE_AWAY && !w->welcomed)
			w->unsettled = w->was_unsettled;
		reconnect(s, w);
		break;
	}
}

void worker_conn_lost(struct sim *s, int index, uint64_t conn)
{
	struct sim_worker *w = &s->w[index];
	if (w->up && w->conn == conn)
		reconnect(s, w);
}

/* ---- drains ---- */

void worker_drain(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	w->drains = s->store.drained[index] && !w->deaf;
	say_draining(s, w, 0);
}

static void on_leave(struct sim *s, struct msg *m)
{
	if (s->w[m->worker].conn == m->conn)
		worker_kill(s, m->worker, false);
}

static void on_back(struct sim *s, struct msg *m) { worker_start(s, m->worker); }

void worker_detach(struct sim *s, int index, int64_t ns)
{
	struct sim_worker *w = &s->w[index];
	if (!talks(s, w) || w->in_process)
		return;
	sim_trace(s, "%s leaves its programs running for %.1f s", w->id, (double)ns / 1e9);
	say_draining(s, w, ns);
	after(s, w, 500 * NS_PER_MS, on_leave, w->gen);
	after(s, w, sim_between(s, NS_PER_S, ns + ns / 2), on_back, 0);
}

/* ---- life ---- */

static void new_instance(struct sim *s, struct sim_worker *w)
{
	uint64_t r = rng_next(&s->rng);
	memcpy(w->instance, &r, sizeof(r));
}

void worker_init(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	memset(w, 0, sizeof(*w));
	snprintf(w->id, sizeof(w->id), "w%d", index);
	new_instance(s, w);
	w->clock = (struct clock){ sim_between(s, 1, 100000) * NS_PER_MS, sim_between(s, -1000, 1000) };
	w->slots = (int)sim_between(s, 1, 4);
	w->gpus = index == 0 ? 2 : (int)sim_between(s, 0, 1);
	w->licences = index == 0 ? 2 : (int)sim_between(s, 0, 3);
	snprintf(w->custom, sizeof(w->custom), "lic=%d", w->licences);
	w->handlers = index == 0 ? 2 : (int)sim_between(s, 0, 2);
	w->commands = index == 0 || sim_chance(s, 80);
	w->enforces = index == 0 || sim_chance(s, 60);
	w->in_process = sim_chance(s, 30);
	w->deaf = sim_chance(s, 30);
	w->queue = index > 0 && sim_chance(s, 30) ? (sim_chance(s, 50) ? "a" : "b") : NULL;
	w->refuse_percent = sim_chance(s, 30) ? 20 : 0;
	w->late_percent = sim_chance(s, 40) ? 30 : 0;
	w->fail_percent = (int)sim_between(s, 0, 30);
}

void worker_start(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	if (w->up || w->gone)
		return;
	sim_trace(s, "%s starts", w->id);
	w->up = true;
	w->session = 0;
	w->hellos += HELLOS_OF_A_PROCESS;
	w->unsettled = false;
	w->gen++;
	reconnect(s, w);
}

void worker_kill(struct sim *s, int index, bool machine)
{
	struct sim_worker *w = &s->w[index];
	if (!w->up && !machine)
		return;
	sim_trace(s, "%s dies%s", w->id, machine ? " with its machine" : "");
	w->up = false;
	w->agent_until = 0;
	w->machine_until = machine ? 0 : w->machine_until;
	hang_up(s, w);
	for (int i = w->n_runs - 1; i >= 0; i--)
		if (machine || w->in_process || w->runs[i].state == RUN_HELD)
			run_drop(w, &w->runs[i]);
	if (machine || w->in_process)
		new_instance(s, w);
}

void worker_pause(struct sim *s, int index, bool machine, int64_t ns)
{
	struct sim_worker *w = &s->w[index];
	if (agent_stands(w) > s->now)
		return;
	/* Tasks of a worker of this kind run in the agent's own process. */
	machine |= w->in_process;
	*(machine ? &w->machine_until : &w->agent_until) = s->now + ns;
	sim_trace(s, "%s stands still%s for %.1f s", w->id, machine ? " with all its programs" : "", (double)ns / 1e9);
	for (int i = 0; machine && i < w->n_runs; i++)
		w->runs[i].frozen |= w->runs[i].state == RUN_RUNNING;
}
