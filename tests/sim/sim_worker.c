/* A worker: the worker's side of the protocol, its programs, and what can happen to both.  The programs outlive the
 * agent, as under a supervisor; they die with the machine, or with an in-process agent. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void on_connect(struct sim *s, struct msg *m);

static struct run *find(struct sim_worker *w, const struct core_attempt *at)
{
	for (int i = 0; i < w->n_runs; i++)
		if (w->runs[i].at.attempt == at->attempt && uuid_eq(&w->runs[i].at.task, &at->task))
			return &w->runs[i];
	return NULL;
}

static struct run *find_gen(struct sim_worker *w, uint64_t gen)
{
	for (int i = 0; i < w->n_runs; i++)
		if (w->runs[i].gen == gen)
			return &w->runs[i];
	return NULL;
}

static void drop(struct sim_worker *w, struct run *r)
{
	*r = w->runs[--w->n_runs];
}

static int index_of(const struct sim *s, const struct sim_worker *w) { return (int)(w - s->w); }

/* While the machine is paused nothing happens on it. */
static bool later(struct sim *s, struct sim_worker *w, struct msg *m, void (*run)(struct sim *, struct msg *))
{
	if (w->paused_until <= s->now)
		return false;
	struct msg *again = sim_at(s, w->paused_until, run);
	again->worker = m->worker;
	again->conn = m->conn;
	again->gen = m->gen;
	again->index = m->index;
	return true;
}

static struct msg *after(struct sim *s, struct sim_worker *w, int64_t ns, void (*run)(struct sim *, struct msg *),
			 uint64_t gen)
{
	struct msg *m = sim_at(s, s->now + ns, run);
	m->worker = index_of(s, w);
	m->gen = gen;
	m->conn = w->conn;
	return m;
}

/* ---- to the master ---- */

static void say(struct sim *s, struct sim_worker *w, enum core_event_type type, const struct run *r)
{
	if (!w->up || !w->conn || !w->welcomed)
		return;
	struct msg *m = sim_at(s, s->now, NULL);
	m->conn = w->conn;
	m->ev.type = type;
	m->ev.at = r->at;
	if (type == CORE_EV_OUTCOME) {
		if (s->n_outcomes == SIM_OUTCOMES) {
			sim_violation(s, "outcomes are sent without end");
			free(m);
			return;
		}
		m->ev.token = s->n_outcomes;
		m->ev.outcome.succeeded = r->succeeded;
		m->ev.outcome.given_back = r->stopped || r->lost;
		s->outcomes[s->n_outcomes++] =
			(struct outcome){ index_of(s, w), r->at, r->succeeded, r->stopped, r->lost };
	}
	net_to_master(s, m);
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
	if (!w->up || !w->conn || !w->welcomed)
		return;
	struct msg *m = sim_at(s, s->now, NULL);
	m->conn = w->conn;
	m->ev.type = CORE_EV_DRAINING;
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
		net_cut(s, conn, true);
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
	if (later(s, w, m, on_heartbeat) || !w->up || w->conn != m->conn)
		return;
	if (w->unanswered_since && s->now - w->unanswered_since >= w->patience_ns) {
		hang_up(s, w);
		reconnect(s, w);
		return;
	}
	struct msg *h = sim_at(s, s->now, NULL);
	h->conn = w->conn;
	h->mem = held(w);
	h->ev.type = CORE_EV_HEARTBEAT;
	h->ev.heartbeat.number = ++w->number;
	h->ev.heartbeat.last_dispatch = w->last_dispatch;
	h->ev.heartbeat.held = h->mem;
	h->ev.heartbeat.n_held = (size_t)w->n_runs;
	w->sent_at[w->number % 64] = s->now;
	if (!w->unanswered_since)
		w->unanswered_since = s->now;
	net_to_master(s, h);
	/* What was not acknowledged is said again. */
	for (int i = 0; i < w->n_runs; i++)
		if (w->runs[i].state == RUN_ENDED)
			say(s, w, CORE_EV_OUTCOME, &w->runs[i]);
	after(s, w, w->heartbeat_ns, on_heartbeat, w->gen);
}

static void on_patience(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m, on_patience) || !w->up || w->conn != m->conn || w->welcomed)
		return;
	hang_up(s, w);
	reconnect(s, w);
}

static void on_connect(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m, on_connect) || !w->up || w->gen != m->gen || w->conn)
		return;
	if (!s->m.up || s->n_conns + 1 >= SIM_CONNS) {
		reconnect(s, w);
		return;
	}
	w->conn = ++s->n_conns;
	w->welcomed = false;
	s->conns[w->conn] = (struct conn){ .worker = m->worker, .epoch = s->m.epoch };
	struct msg *h = sim_at(s, s->now, NULL);
	h->conn = w->conn;
	h->mem = held(w);
	h->ev.type = CORE_EV_HELLO;
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
	w->sent_at[0] = s->now;
	net_to_master(s, h);
	after(s, w, 2 * NS_PER_S, on_patience, w->gen);
}

/* ---- programs ---- */

static void end(struct sim *s, struct sim_worker *w, struct run *r, bool stopped)
{
	struct row *row = &s->store.rows[row_of(&r->at.task)];
	r->state = RUN_ENDED;
	r->stopped = stopped;
	r->succeeded = !stopped && !r->lost && !sim_chance(s, w->fail_percent);
	row->truly_ended |= UINT64_C(1) << r->at.attempt;
	if (r->succeeded)
		row->truly_succeeded |= UINT64_C(1) << r->at.attempt;
	sim_trace(s, "%s: row %d/%d %s", w->id, row_of(&r->at.task), r->at.attempt,
		  r->succeeded ? "succeeded" : stopped ? "was stopped" : r->lost ? "was lost" : "failed");
	say(s, w, CORE_EV_OUTCOME, r);
}

static void on_end(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m, on_end))
		return;
	struct run *r = find_gen(w, m->gen);
	if (r && r->state == RUN_RUNNING)
		end(s, w, r, m->index);
}

/* The exclusive lease: the tree is gone at S + L - m, whoever is alive. */
static void on_lease(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	struct run *r = find_gen(w, m->gen);
	if (!r || r->state != RUN_RUNNING)
		return;
	int64_t at = w->acked_sent_at + r->lease_ns - r->lease_ns / 10;
	if (at <= s->now)
		end(s, w, r, true);
	else
		after(s, w, at - s->now, on_lease, r->gen);
}

static void accept(struct sim *s, struct sim_worker *w, struct run *r)
{
	if (r->exclusive && s->now >= w->acked_sent_at + r->lease_ns * 6 / 10) {
		say(s, w, CORE_EV_REFUSED, r);
		drop(w, r);
		return;
	}
	r->state = RUN_RUNNING;
	int row = row_of(&r->at.task);
	for (int i = 0; r->exclusive && i < s->n_workers; i++)
		for (int k = 0; k < s->w[i].n_runs; k++) {
			const struct run *o = &s->w[i].runs[k];
			if (o != r && o->state == RUN_RUNNING && row_of(&o->at.task) == row)
				sim_violation(s, "exclusive row %d: %s starts attempt %d while %s runs %d", row, w->id,
					      r->at.attempt, s->w[i].id, o->at.attempt);
		}
	sim_trace(s, "%s: row %d/%d starts", w->id, row, r->at.attempt);
	say(s, w, CORE_EV_ACCEPTED, r);
	static const int64_t longest[] = { 10 * NS_PER_MS, NS_PER_S, 30 * NS_PER_S };
	/* Once healed nothing runs long: then a task that has not ended in time is stuck, not slow. */
	after(s, w, sim_between(s, 0, longest[rng_below(&s->rng, s->healed ? 2 : 3)]), on_end, r->gen);
	if (r->exclusive)
		after(s, w, 0, on_lease, r->gen);
}

static void on_accept(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m, on_accept))
		return;
	struct run *r = find_gen(w, m->gen);
	if (r && r->state == RUN_HELD)
		accept(s, w, r);
}

/* ---- from the master ---- */

static int licences(const struct core_task *t) { return t->custom ? t->custom[4] - '0' : 0; }

/* What it was given it can run, and has: an attempt counts until its tree is gone. */
static void check_fits(struct sim *s, const struct sim_worker *w, const struct run *fresh)
{
	const struct core_task *t = fresh->t;
	int used = licences(t), gpus = t->need.gpus;
	bool has = !t->handler && w->commands;
	for (int i = 0; t->handler && i < w->handlers; i++)
		has |= strcmp(t->handler, sim_handlers[i]) == 0;
	if (!has)
		sim_violation(s, "%s: row %d asks for %s", w->id, row_of(&t->id), t->handler ? t->handler : "a command");
	for (int i = 0; i < w->n_runs; i++) {
		/* Of an attempt that is its no more a master that has just started knows the slot alone. */
		const struct row *row = &s->store.rows[row_of(&w->runs[i].at.task)];
		bool its = row->state == ROW_RUNNING && row->worker == index_of(s, w) && row->t.attempt == w->runs[i].at.attempt;
		if (w->runs[i].state == RUN_ENDED || !its)
			continue;
		used += licences(w->runs[i].t);
		gpus += w->runs[i].t->need.gpus;
	}
	if (used > w->licences)
		sim_violation(s, "%s: %d licences are taken of %d", w->id, used, w->licences);
	if (gpus > w->gpus)
		sim_violation(s, "%s: %d gpus are taken of %d", w->id, gpus, w->gpus);
}

static void on_dispatch(struct sim *s, struct sim_worker *w, const struct core_effect *f)
{
	w->last_dispatch = f->number;
	if (find(w, &f->at)) {
		sim_violation(s, "%s: row %d/%d dispatched twice", w->id, row_of(&f->at.task), f->at.attempt);
		return;
	}
	int live = 1;
	for (int i = 0; i < w->n_runs; i++)
		live += w->runs[i].state != RUN_ENDED;
	if (live > w->slots)
		sim_violation(s, "%s: %d attempts in %d slots", w->id, live, w->slots);
	struct run fresh = { .at = f->at, .gen = ++w->run_gen, .exclusive = f->exclusive, .lease_ns = f->lease_ns,
			     .t = &s->store.rows[row_of(&f->at.task)].t };
	check_fits(s, w, &fresh);
	if (w->n_runs == SIM_RUNS || w->drains || sim_chance(s, w->refuse_percent)) {
		say(s, w, CORE_EV_REFUSED, &fresh);
		return;
	}
	struct run *r = &w->runs[w->n_runs++];
	*r = fresh;
	if (sim_chance(s, w->late_percent))
		after(s, w, sim_between(s, 0, 9 * NS_PER_S), on_accept, r->gen);
	else
		accept(s, w, r);
}

static void on_stop(struct sim *s, struct sim_worker *w, const struct core_effect *f)
{
	struct run *r = find(w, &f->at);
	if (!r)
		return;
	if (r->state == RUN_HELD) {
		say(s, w, CORE_EV_REFUSED, r);
		drop(w, r);
	} else if (r->state == RUN_RUNNING) {
		after(s, w, sim_between(s, 0, NS_PER_S), on_end, r->gen)->index = 1;
	}
}

/* Who beats more rarely is told of the longer leases that its attempts have now. */
static void on_welcome(struct sim *s, struct sim_worker *w, const struct core_effect *f)
{
	if (f->resumed)
		sim_trace(s, "%s: session %d goes on", w->id, (int)f->session);
	if (f->resumed && f->session != w->session)
		sim_violation(s, "%s: session %d goes on, but it had %d", w->id, (int)f->session, (int)w->session);
	w->session = f->session;
	w->heartbeat_ns = f->heartbeat_ns;
	w->patience_ns = (f->lease_ns / 10 * 6 - f->heartbeat_ns) / 2;
	for (int i = 0; i < w->n_runs; i++) {
		const struct row *row = &s->store.rows[row_of(&w->runs[i].at.task)];
		if (row->state == ROW_RUNNING && row->worker == index_of(s, w) && row->t.attempt == w->runs[i].at.attempt)
			w->runs[i].lease_ns = max_i64(w->runs[i].lease_ns, row->lease_ns);
	}
}

void worker_receive(struct sim *s, int index, uint64_t conn, const struct core_effect *f)
{
	struct sim_worker *w = &s->w[index];
	if (!w->up || w->conn != conn)
		return;
	struct run *r;
	switch (f->type) {
	case CORE_DO_WELCOME:
		w->welcomed = true;
		w->number = w->last_dispatch = w->unanswered_since = 0;
		on_welcome(s, w, f);
		w->acked_sent_at = max_i64(w->acked_sent_at, w->sent_at[0]);
		for (int i = 0; i < w->n_runs; i++)
			if (w->runs[i].state == RUN_ENDED)
				say(s, w, CORE_EV_OUTCOME, &w->runs[i]);
		after(s, w, sim_between(s, 0, w->heartbeat_ns), on_heartbeat, w->gen);
		worker_drain(s, index);
		break;
	case CORE_DO_HEARTBEAT_ACK:
		w->acked_sent_at = max_i64(w->acked_sent_at, w->sent_at[f->number % 64]);
		w->unanswered_since = 0;
		break;
	case CORE_DO_DISPATCH: on_dispatch(s, w, f); break;
	case CORE_DO_STOP: on_stop(s, w, f); break;
	case CORE_DO_OUTCOME_ACK:
		r = find(w, &f->at);
		if (r && r->state == RUN_ENDED)
			drop(w, r);
		break;
	default: /* CLOSE_PEER */
		reconnect(s, w);
		break;
	}
}

void worker_lose_run(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	for (int i = 0; i < w->n_runs; i++) {
		struct run *r = &w->runs[i];
		if (r->state != RUN_RUNNING)
			continue;
		r->lost = true;
		end(s, w, r, false);
		return;
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
	if (!w->up || !w->welcomed || w->in_process)
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
	w->late_percent = sim_chance(s, 30) ? 20 : 0;
	w->fail_percent = (int)sim_between(s, 0, 30);
}

void worker_start(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	if (w->up || w->gone)
		return;
	sim_trace(s, "%s starts", w->id);
	w->up = true;
	w->gen++;
	w->session = 0;
	reconnect(s, w);
}

void worker_kill(struct sim *s, int index, bool machine)
{
	struct sim_worker *w = &s->w[index];
	if (!w->up && !machine)
		return;
	sim_trace(s, "%s dies%s", w->id, machine ? " with its machine" : "");
	w->up = false;
	hang_up(s, w);
	for (int i = w->n_runs - 1; i >= 0; i--)
		if (machine || w->in_process || w->runs[i].state == RUN_HELD)
			drop(w, &w->runs[i]);
	if (machine || w->in_process)
		new_instance(s, w);
}
