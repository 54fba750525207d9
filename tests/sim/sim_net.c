/* Streams between workers and masters: each direction keeps its order, two streams do not keep theirs.  A stream that one
 * side has closed may still bring the other what was sent before; one that broke brings nothing.  While a worker and a
 * master are parted what they say waits to be sent again, or the stream is gone by then. */
#include "tests/sim/sim.h"

static int64_t parted(const struct sim *s, const struct conn *c) { return s->parted_until[c->worker][c->master]; }

static bool gone(const struct sim *s, const struct conn *c)
{
	return c->epoch != s->m[c->master].epoch || !s->m[c->master].up;
}

uint64_t net_connect(struct sim *s, int worker, int master)
{
	const struct master *m = &s->m[master];
	if (!m->up || s->n_conns + 1 >= SIM_CONNS)
		return 0;
	s->conns[++s->n_conns] = (struct conn){ .worker = worker, .master = master, .epoch = m->epoch, .at = s->now };
	return s->n_conns;
}

/* What has to wait, comes again in its order; what was sent behind it waits as long, also if the reason ends sooner than
 * was foreseen. */
static bool later(struct sim *s, struct msg *m, int to, int64_t until)
{
	struct conn *c = &s->conns[m->conn];
	until = max_i64(until, c->behind[to]);
	if (until <= s->now)
		return false;
	c->behind[to] = until;
	sim_again(s, m, until, m->run);
	return true;
}

static void on_to_master(struct sim *s, struct msg *m)
{
	const struct conn *c = &s->conns[m->conn];
	if (c->broken || c->closed[0] || gone(s, c) ||
	    later(s, m, 0, max_i64(parted(s, c), s->m[c->master].paused_until)))
		return;
	struct msg *d = master_event(s, m->ev.type);
	d->ev = m->ev;
	d->ev.peer = m->conn;
	d->mem = m->mem;
	m->mem = NULL;
	master_deliver(s, &s->m[c->master], d);
	if (m->ev.type == CORE_EV_ACCEPTED) { /* its program starts at once */
		struct msg *started = store_ask(s, &s->m[c->master], OP_STARTED);
		started->worker = c->worker;
		started->ef.at = m->ev.at;
	}
}

void net_to_master(struct sim *s, struct msg *m)
{
	struct conn *c = &s->conns[m->conn];
	c->last[0] = max_i64(c->last[0], s->now + sim_latency(s) / 4);
	sim_push(s, m, c->last[0], on_to_master);
}

static void on_to_worker(struct sim *s, struct msg *m)
{
	const struct conn *c = &s->conns[m->conn];
	const struct sim_worker *w = &s->w[c->worker];
	if (c->broken || c->closed[1] || later(s, m, 1, max_i64(parted(s, c), max_i64(w->agent_until, w->machine_until))))
		return;
	worker_receive(s, c->worker, m->conn, &m->ef);
}

void net_to_worker(struct sim *s, struct msg *m, int64_t at)
{
	struct conn *c = &s->conns[m->conn];
	c->last[1] = max_i64(c->last[1], at);
	sim_push(s, m, at, on_to_worker);
}

/* ---- the end of a stream ---- */

static void on_told_master(struct sim *s, struct msg *m)
{
	const struct conn *c = &s->conns[m->conn];
	if (gone(s, c) || c->closed[0] || later(s, m, 0, max_i64(parted(s, c), s->m[c->master].paused_until)))
		return;
	struct msg *d = master_event(s, CORE_EV_PEER_GONE);
	d->ev.peer = m->conn;
	master_deliver(s, &s->m[c->master], d);
}

static void on_told_worker(struct sim *s, struct msg *m)
{
	if (!later(s, m, 1, parted(s, &s->conns[m->conn])))
		worker_conn_lost(s, s->conns[m->conn].worker, m->conn);
}

static void tell(struct sim *s, uint64_t conn, int to)
{
	int64_t at = max_i64(s->now + sim_latency(s), s->conns[conn].last[to]);
	sim_at(s, at, to ? on_told_worker : on_told_master)->conn = conn;
}

void net_cut(struct sim *s, uint64_t conn, bool told)
{
	struct conn *c = &s->conns[conn];
	if (c->broken)
		return;
	c->broken = true;
	for (int to = 0; told && to < 2; to++)
		if (!c->closed[to])
			tell(s, conn, to);
}

void net_close(struct sim *s, uint64_t conn, bool by_worker)
{
	struct conn *c = &s->conns[conn];
	c->closed[by_worker] = true;
	if (c->broken)
		return;
	if (sim_chance(s, 50))
		c->broken = true;
	tell(s, conn, !by_worker);
}

void net_part(struct sim *s, int worker, int master, int64_t until)
{
	s->parted_until[worker][master] = until;
	for (uint64_t i = 1; i <= s->n_conns; i++) {
		struct conn *c = &s->conns[i];
		/* Long enough, and one end or the other gives it up. */
		if (c->worker == worker && c->master == master && !c->broken && sim_chance(s, 50))
			net_cut(s, i, true);
	}
}
