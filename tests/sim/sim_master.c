/* What the engine does in reinsd: gathers the events of a turn, steps the core, carries out the effects one by one.
 * The master may die between any two of them.  What goes to one stream in one turn leaves together, at its end. */
#include "tests/sim/sim.h"
#include "server/core/core_view.h"

#include <stdlib.h>
#include <string.h>

static int number_of(const char *worker) { return (int)strtol(worker + 1, NULL, 10); }

static void on_restart(struct sim *s, struct msg *m)
{
	if (!s->m.up)
		master_start(s);
}

static void flush(struct sim *s)
{
	struct master *m = &s->m;
	for (int i = 0; i < m->n_outbox; i++) {
		struct msg *o = m->outbox[i];
		const struct conn *c = &s->conns[o->conn];
		/* One message per turn and stream: its parts arrive at one time, in order. */
		int64_t at = 0;
		for (int k = 0; k < i && !at; k++)
			if (m->outbox[k] && m->outbox[k]->conn == o->conn)
				at = m->outbox[k]->at;
		net_to_worker(s, o, at ? at : max_i64(c->last[1], s->now + sim_latency(s) / 4));
	}
	m->n_outbox = 0;
}

void master_crash(struct sim *s)
{
	struct master *m = &s->m;
	if (!m->up)
		return;
	sim_trace(s, "master dies");
	if (sim_chance(s, 50))
		flush(s);
	for (int i = 0; i < m->n_outbox; i++)
		free(m->outbox[i]);
	m->n_outbox = 0;
	for (int i = 0; i < m->n_inbox; i++) {
		free(m->inbox[i]->mem);
		free(m->inbox[i]);
	}
	m->n_inbox = 0;
	core_free(m->core);
	m->core = NULL;
	core_effects_clear(&m->out);
	m->up = false;
	m->crash_in = -1;
	uint64_t old = m->epoch++;
	for (uint64_t i = 1; i <= s->n_conns; i++)
		if (s->conns[i].epoch == old && !s->conns[i].cut) {
			/* What was sent may still arrive before the end does. */
			struct conn *c = &s->conns[i];
			net_cut(s, i, true);
			c->cut = sim_chance(s, 50);
		}
	sim_at(s, s->now + sim_between(s, 500 * NS_PER_MS, 20 * NS_PER_S), on_restart);
}

static void execute(struct sim *s, const struct core_effect *f)
{
	switch (f->type) {
	case CORE_DO_PREEMPT:
	case CORE_DO_RELEASE:
	case CORE_DO_LEASE_BEAT:
		lease_effect(s, f);
		return;
	case CORE_DO_OWN:
	case CORE_DO_DROP:
	case CORE_DO_WORKER_GONE:
		return;
	case CORE_DO_DETACHED: {
		int w = number_of(f->worker);
		if (s->store.up && s->store.sessions[w] == f->session)
			s->store.detached_until[w] = f->detach_ns ? s->now + f->detach_ns : 0;
		return;
	}
	case CORE_DO_WELCOME:
	case CORE_DO_HEARTBEAT_ACK:
	case CORE_DO_DISPATCH:
	case CORE_DO_STOP:
	case CORE_DO_OUTCOME_ACK:
	case CORE_DO_CLOSE_PEER: {
		struct msg *o = sim_at(s, s->now, NULL);
		o->conn = f->peer;
		o->ef = *f;
		o->ef.spec = NULL;
		o->ef.worker = NULL;
		o->ef.instance = NULL;
		if (s->m.n_outbox == (int)ARRAY_LEN(s->m.outbox))
			abort();
		s->m.outbox[s->m.n_outbox++] = o;
		return;
	}
	default:
		store_effect(s, f);
	}
}

/* What the core knows from this turn on of drains; `ret_off`: of whom it heard that the wish is gone. */
static void note_drains(struct sim *s, const struct core_event *ev, int n, bool ret_off[static SIM_WORKERS])
{
	struct master *m = &s->m;
	for (int i = 0; i < n; i++) {
		bool opened = ev[i].type == CORE_EV_SESSION_OPENED && ev[i].opened.ok;
		if (!opened && ev[i].type != CORE_EV_DRAIN_WISH)
			continue;
		int w = number_of(opened ? ev[i].opened.worker : ev[i].drain_wish.worker);
		m->wished[w] = opened ? ev[i].opened.drain_wish : ev[i].drain_wish.on;
		ret_off[w] |= !m->wished[w];
	}
}

static void note_detached(struct sim *s, const struct core_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		struct core_worker_view v;
		int w = s->conns[ev[i].peer].worker;
		if (ev[i].type != CORE_EV_DRAINING || !core_worker(s->m.core, s->w[w].id, &v) || v.peer != ev[i].peer)
			continue;
		s->m.detached_until[w] = ev[i].draining.on && ev[i].draining.detach_ns ? s->now + ev[i].draining.detach_ns : 0;
		s->m.detached_session[w] = v.session;
	}
}

static void check_drains(struct sim *s, const bool was[static SIM_WORKERS], const bool off[static SIM_WORKERS])
{
	struct master *m = &s->m;
	for (size_t i = 0; i < m->out.n; i++) {
		const struct core_effect *f = &m->out.at[i];
		bool gives = f->type == CORE_DO_PREEMPT || f->type == CORE_DO_DISPATCH || f->type == CORE_DO_CLAIM;
		int w = f->worker ? number_of(f->worker) : 0;
		if (gives && was[w] && !off[w])
			sim_violation(s, "row %d is given to %s, which an operator drains", row_of(&f->at.task), s->w[w].id);
		if (f->type != CORE_DO_TAKE_BACK || f->cause != CORE_CAUSE_WORKER_LOST)
			continue;
		const struct row *r = &s->store.rows[row_of(&f->at.task)];
		w = r->worker;
		if (w < 0 || r->t.exclusive || r->t.attempt != f->at.attempt || f->session != r->session)
			continue;
		bool here = f->session == m->detached_session[w] && s->now < m->detached_until[w];
		bool stored = f->session == s->store.sessions[w] && s->now < s->store.detached_until[w];
		if (here || stored)
			sim_violation(s, "row %d/%d is taken from %s, which left it running", row_of(&f->at.task), f->at.attempt,
				      s->w[w].id);
	}
}

static void set_wake(struct sim *s);

static void turn(struct sim *s)
{
	static struct core_event ev[ARRAY_LEN(s->m.inbox)];
	struct master *m = &s->m;
	int n = m->n_inbox;
	for (int i = 0; i < n; i++)
		ev[i] = m->inbox[i]->ev;
	m->n_inbox = 0;
	m->turn_set = false;
	s->steps++;
	bool was[SIM_WORKERS], off[SIM_WORKERS] = { false };
	memcpy(was, m->wished, sizeof(was));
	note_drains(s, ev, n, off);
	core_step(m->core, s->now, ev, (size_t)n, &m->out);
	note_detached(s, ev, n);
	for (int i = 0; i < n; i++) {
		free(m->inbox[i]->mem);
		free(m->inbox[i]);
	}
	core_check(m->core);
	check_drains(s, was, off);
	for (size_t i = 0; i < m->out.n; i++) {
		if (m->crash_in == 0) {
			master_crash(s);
			return;
		}
		if (m->crash_in > 0)
			m->crash_in--;
		execute(s, &m->out.at[i]);
	}
	flush(s);
	set_wake(s);
}

static void on_turn(struct sim *s, struct msg *m)
{
	if (m->epoch == s->m.epoch && s->m.up)
		turn(s);
}

static void on_wake(struct sim *s, struct msg *m)
{
	if (m->epoch == s->m.epoch && s->m.up && m->at == s->m.wake_at)
		turn(s);
}

static void set_wake(struct sim *s)
{
	int64_t at = core_next_deadline(s->m.core);
	if (at == INT64_MAX)
		return;
	s->m.wake_at = max_i64(at, s->now);
	sim_at(s, s->m.wake_at, on_wake)->epoch = s->m.epoch;
}

void master_deliver(struct sim *s, struct msg *d)
{
	struct master *m = &s->m;
	if (!m->up || m->n_inbox == (int)ARRAY_LEN(m->inbox)) {
		free(d->mem);
		free(d);
		return;
	}
	/* The engine knows of what was stored since the session was asked for. */
	if (d->ev.type == CORE_EV_SESSION_OPENED && d->ev.opened.ok)
		d->ev.opened.drain_wish = s->store.drained[number_of(d->ev.opened.worker)];
	if (d->ev.type == CORE_EV_INSERTED) {
		int row = row_of(&d->ev.task.id), task = s->store.rows[row].key;
		if (d->ev.inserted != CORE_INSERT_FAILED)
			s->tasks[task].accepted = true;
		if (d->ev.token == 0 && d->ev.inserted == CORE_INSERT_CREATED && d->ev.due_in_ns <= 0) {
			/* Of a group: the engine inserts it by itself and tells the core what is ready. */
			struct core_task *ready = xcalloc(1, sizeof(*ready));
			*ready = d->ev.task;
			d->mem = ready;
			int64_t expires_in_ns = d->ev.expires_in_ns;
			d->ev = (struct core_event){ .type = CORE_EV_READY, .ready = { ready, 1 } };
			d->ev.expires_in_ns = expires_in_ns;
		}
	}
	m->inbox[m->n_inbox++] = d;
	if (!m->turn_set) {
		m->turn_set = true;
		sim_at(s, s->now + sim_between(s, 0, NS_PER_MS), on_turn)->epoch = m->epoch;
	}
}

void master_start(struct sim *s)
{
	struct core_config cfg;
	static const int32_t windows[] = { 4, 16, 20000 }, fills[] = { 2, 8, 500 }, claims[] = { 1, 4, 4096 };
	core_config_default(&cfg);
	cfg.seed = rng_next(&s->rng);
	cfg.window = windows[rng_below(&s->rng, 3)];
	cfg.fill = fills[rng_below(&s->rng, 3)];
	cfg.in_flight_claims = claims[rng_below(&s->rng, 3)];
	cfg.heartbeat_rate = sim_chance(s, 50) ? 1 : 1000; /* 1: the third worker and those after it get longer H and L */
	struct master *m = &s->m;
	sim_trace(s, "master starts: window %d, fill %d, claims %d", cfg.window, cfg.fill, cfg.in_flight_claims);
	m->core = core_new(&cfg, s->now);
	m->up = true;
	m->epoch++;
	m->turn_set = false;
	m->crash_in = -1;
	memset(m->wished, 0, sizeof(m->wished));
	memset(m->detached_until, 0, sizeof(m->detached_until));
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_STORE;
	d->ev.up = s->store.up;
	master_deliver(s, d);
}

/* ---- clients ---- */

static void on_client(struct sim *s, struct msg *m)
{
	client_submit(s, m->index);
}

/* Asks until it is told that the task was accepted; the same key makes one task however often it asks. */
void client_submit(struct sim *s, int task)
{
	static const char *const queues[] = { "a", "b", "c" };
	struct client_task *t = &s->tasks[task];
	if (t->accepted)
		return;
	sim_at(s, s->now + 5 * NS_PER_S, on_client)->index = task;
	if (!s->m.up || s->store.n_rows == SIM_ROWS)
		return;
	int n = s->store.n_rows++;
	struct row *r = &s->store.rows[n];
	*r = (struct row){ .key = task, .worker = -1 };
	r->t = (struct core_task){
		.id = sim_id(n),
		.queue = queues[t->queue],
		.priority = t->priority,
		.exclusive = t->exclusive,
		.handler = t->handler,
		.custom = t->custom,
		.need.gpus = task % 7 == 0,
		.lease_ttl_ns = task % 5 == 0 ? 20 * NS_PER_S : 0,
		.max_attempts = 1 + task % 3,
		.backoff_initial_ns = task % 2 ? 0 : NS_PER_S,
		.backoff_max_ns = 5 * NS_PER_S,
		.backoff_multiplier = 2,
	};
	if (task % 6 == 0)
		r->due_at = s->now + sim_between(s, 0, 10 * NS_PER_S);
	if (task % 4 == 0) {
		store_insert_direct(s, n);
		return;
	}
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_SUBMIT;
	d->ev.token = (uint64_t)n + 1;
	d->ev.task = r->t;
	d->ev.due_in_ns = r->due_at ? r->due_at - s->now : 0;
	master_deliver(s, d);
}

void client_cancel(struct sim *s, int task)
{
	int row = s->store.by_key[task];
	if (s->m.up && s->store.up && row >= 0)
		store_cancel(s, row);
}

static void on_drain_told(struct sim *s, struct msg *m)
{
	worker_drain(s, m->worker);
}

/* Stored; this master hears of it at once, or with the worker's next session. */
void operator_drain(struct sim *s, int w, bool on)
{
	if (!s->store.up || s->store.drained[w] == on)
		return;
	sim_trace(s, "%s is %s", s->w[w].id, on ? "drained" : "to take tasks again");
	s->store.drained[w] = on;
	sim_at(s, s->now + sim_latency(s), on_drain_told)->worker = w;
	if (!s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_DRAIN_WISH;
	d->ev.drain_wish.worker = s->w[w].id;
	d->ev.drain_wish.on = on;
	master_deliver(s, d);
}

/* The next that may be retried, from `task` on; one that waits with an open attempt is cancelled for it first. */
void client_retry(struct sim *s, int task)
{
	for (int i = 0; i < s->n_tasks && s->m.up && s->store.up; i++) {
		int row = s->store.by_key[(task + i) % s->n_tasks];
		enum row_state st = row >= 0 ? s->store.rows[row].state : ROW_NONE;
		bool open = st == ROW_PENDING && s->store.rows[row].open;
		if (st != ROW_FAILED && st != ROW_CANCELLED && !open)
			continue;
		if (open)
			store_cancel(s, row);
		store_retry(s, row);
		return;
	}
}
