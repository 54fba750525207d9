/* What the engine does in reinsd: gathers the events of a turn, steps the core, carries out the effects one by one.
 * The master may die or stand still between any two of them.  What goes to one stream in one turn leaves together, at its
 * end. */
#include "tests/sim/sim.h"

#include <stdlib.h>

void master_flush(struct sim *s, struct master *m)
{
	for (int i = 0; i < m->n_outbox; i++) {
		struct msg *o = m->outbox[i];
		const struct conn *c = &s->conns[o->conn];
		/* One message per turn and stream: its parts arrive at one time, in order. */
		int64_t at = 0;
		for (int k = 0; k < i && !at; k++)
			if (m->outbox[k]->conn == o->conn)
				at = m->outbox[k]->at;
		net_to_worker(s, o, at ? at : max_i64(c->last[1], s->now + sim_latency(s) / 4));
		if (o->ef.type == CORE_DO_CLOSE_PEER)
			net_close(s, o->conn, false);
	}
	m->n_outbox = 0;
}

static void to_worker(struct sim *s, struct master *m, const struct core_effect *f)
{
	if (s->conns[f->peer].closed[0])
		return;
	if (m->n_outbox == SIM_OUTBOX)
		abort();
	struct msg *o = sim_at(s, s->now, NULL);
	o->conn = f->peer;
	o->ef = *f;
	o->ef.spec = NULL;
	o->ef.worker = NULL;
	o->ef.instance = NULL;
	m->outbox[m->n_outbox++] = o;
	if (f->type != CORE_DO_CLOSE_PEER)
		return;
	/* The engine knows that stream no more, and says so. */
	s->conns[f->peer].closed[0] = true;
	struct msg *d = master_event(s, CORE_EV_PEER_GONE);
	d->ev.peer = f->peer;
	master_deliver(s, m, d);
}

static void execute(struct sim *s, struct master *m, const struct core_effect *f)
{
	struct msg *ask;
	switch (f->type) {
	case CORE_DO_PREEMPT:
	case CORE_DO_OWN:
	case CORE_DO_RELEASE:
	case CORE_DO_LEASE_BEAT:
	case CORE_DO_ASK_HB:
	case CORE_DO_KEYS:
	case CORE_DO_DISOWN:
	case CORE_DO_DROP_HASH:
		lease_effect(s, m, f);
		return;
	case CORE_DO_DROP:
	case CORE_DO_WORKER_GONE:
		return;
	case CORE_DO_PAUSED:
		operator_paused(s, m, f->queue);
		return;
	case CORE_DO_DETACHED:
		ask = store_ask(s, m, OP_DETACHED);
		ask->worker = number_of(f->worker);
		ask->ef.session = f->session;
		ask->ef.detach_ns = f->detach_ns;
		return;
	case CORE_DO_WELCOME:
	case CORE_DO_HEARTBEAT_ACK:
	case CORE_DO_DISPATCH:
	case CORE_DO_STOP:
	case CORE_DO_OUTCOME_ACK:
	case CORE_DO_CLOSE_PEER:
		to_worker(s, m, f);
		return;
	default:
		store_effect(s, m, f);
	}
}

static void on_turn(struct sim *s, struct msg *m);

static void on_wake(struct sim *s, struct msg *m)
{
	master_of(s, m)->wake = NULL;
	on_turn(s, m);
}

void master_drop_wake(struct sim *s, struct master *m)
{
	if (!m->wake)
		return;
	heap_remove(&s->queue, &m->wake->node);
	sim_free(s, m->wake);
	m->wake = NULL;
}

static void set_wake(struct sim *s, struct master *m)
{
	int64_t at = core_next_deadline(m->core);
	if (at != INT64_MAX)
		at = max_i64(clock_when(&m->clock, at), s->now);
	if (m->wake && m->wake->at == at)
		return;
	master_drop_wake(s, m);
	if (at != INT64_MAX)
		m->wake = master_msg(s, m, at, on_wake);
}

/* From the next effect on, to the end of the turn. */
void master_resume_turn(struct sim *s, struct master *m)
{
	m->mid_turn = false;
	for (; m->next_effect < m->out.n; m->next_effect++) {
		if (m->crash_in == 0) {
			master_crash(s, (int)(m - s->m));
			return;
		}
		if (m->pause_in == 0) {
			m->pause_in = -1;
			m->mid_turn = true;
			master_pause(s, (int)(m - s->m), sim_between(s, NS_PER_S, 40 * NS_PER_S));
			return;
		}
		m->crash_in -= m->crash_in > 0;
		m->pause_in -= m->pause_in > 0;
		execute(s, m, &m->out.at[m->next_effect]);
	}
	master_flush(s, m);
	set_wake(s, m);
}

static void on_turn(struct sim *s, struct msg *x)
{
	static struct core_event ev[SIM_INBOX];
	struct drains_before before;
	if (master_dead(s, x))
		return;
	struct master *m = master_of(s, x);
	if (master_stands(s, m)) {
		/* All that is due while it stands still is one turn when it goes on. */
		if (x->run != on_wake || !m->turn_set)
			sim_again(s, x, m->paused_until, on_turn);
		m->turn_set = true;
		return;
	}
	int n = m->n_inbox;
	for (int i = 0; i < n; i++)
		ev[i] = m->inbox[i]->ev;
	m->n_inbox = 0;
	m->turn_set = false;
	s->steps++;
	check_before(s, m, ev, n, &before);
	core_step(m->core, master_now(s, m), ev, (size_t)n, &m->out);
	check_after(s, m, ev, n, &before);
	for (int i = 0; i < n; i++)
		sim_free(s, m->inbox[i]);
	m->next_effect = 0;
	master_resume_turn(s, m);
}

struct msg *master_event(struct sim *s, enum core_event_type type)
{
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = type;
	return d;
}

/* Of a group: the engine inserts it by itself and tells the core what is ready. */
static void as_ready(struct msg *d)
{
	struct core_task *ready = xcalloc(1, sizeof(*ready));
	*ready = d->ev.task;
	free(d->mem);
	d->mem = ready;
	int64_t expires_in_ns = d->ev.expires_in_ns;
	d->ev = (struct core_event){ .type = CORE_EV_READY, .ready = { ready, 1 } };
	d->ev.expires_in_ns = expires_in_ns;
}

void master_deliver(struct sim *s, struct master *m, struct msg *d)
{
	if (!m->up || m->n_inbox == SIM_INBOX) {
		sim_free(s, d);
		return;
	}
	/* The engine knows of what was stored since the session was asked for. */
	if (d->ev.type == CORE_EV_SESSION_OPENED && d->ev.opened.ok)
		d->ev.opened.drain_wish = s->store.drained[number_of(d->ev.opened.worker)];
	if (d->ev.type == CORE_EV_INSERTED) {
		if (d->ev.inserted != CORE_INSERT_FAILED)
			check_accepted(s, row_of(&d->ev.task.id));
		if (d->ev.token == 0 && d->ev.inserted == CORE_INSERT_CREATED && d->ev.due_in_ns <= 0)
			as_ready(d);
	}
	m->inbox[m->n_inbox++] = d;
	if (!m->turn_set) {
		m->turn_set = true;
		master_msg(s, m, s->now + sim_between(s, 0, NS_PER_MS), on_turn);
	}
}
