/* The lease table in memory: slots per worker by session.  It may be away, and it may forget everything. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static bool same(const struct core_attempt *a, const struct core_attempt *b)
{
	return a->attempt == b->attempt && uuid_eq(&a->task, &b->task);
}

static enum core_preempt_verdict preempt(struct sim *s, int w, const struct core_effect *f)
{
	struct sim_lease *l = &s->lease;
	if (!l->up)
		return CORE_PREEMPT_DOWN;
	if (l->hb_session[w] > f->session)
		return CORE_PREEMPT_NEWER_SESSION;
	if (l->hb_session[w] < f->session) {
		l->hb_session[w] = f->session;
		l->n_hash[w] = 0;
	}
	if (l->n_hash[w] >= f->slots || l->n_hash[w] >= SIM_RUNS)
		return CORE_PREEMPT_FULL;
	l->hash[w][l->n_hash[w]++] = f->at;
	return CORE_PREEMPT_OK;
}

static void release(struct sim *s, int w, const struct core_effect *f)
{
	struct sim_lease *l = &s->lease;
	for (int i = 0; l->up && i < l->n_hash[w]; i++)
		if (same(&l->hash[w][i], &f->at)) {
			l->hash[w][i] = l->hash[w][--l->n_hash[w]];
			return;
		}
}

static void beat(struct sim *s, int w, const struct core_effect *f)
{
	struct sim_lease *l = &s->lease;
	if (!l->up)
		return;
	l->hb_session[w] = f->session;
	l->n_hash[w] = (int)min_sz(f->n_held, SIM_RUNS);
	for (int i = 0; i < l->n_hash[w]; i++)
		l->hash[w][i] = f->held[i];
}

static void on_answer(struct sim *s, struct msg *m)
{
	if (m->epoch != s->m.epoch || !s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev = m->ev;
	master_deliver(s, d);
}

void lease_effect(struct sim *s, const struct core_effect *f)
{
	if (f->type == CORE_DO_KEYS) {
		/* There are no owner keys here, and no hash without an hb. */
		struct msg *m = sim_at(s, s->now + sim_latency(s) / 4, on_answer);
		m->epoch = s->m.epoch;
		m->ev.type = CORE_EV_KEYS;
		m->ev.keys.ok = s->lease.up;
		return;
	}
	int w = (int)strtol(f->worker + 1, NULL, 10);
	if (f->type == CORE_DO_RELEASE) {
		release(s, w, f);
	} else if (f->type == CORE_DO_LEASE_BEAT) {
		beat(s, w, f);
	} else if (f->type == CORE_DO_PREEMPT) {
		struct msg *m = sim_at(s, s->now + sim_latency(s) / 4, on_answer);
		m->epoch = s->m.epoch;
		m->ev.type = CORE_EV_PREEMPTED;
		m->ev.at = f->at;
		m->ev.preempted = preempt(s, w, f);
	}
}

void lease_set(struct sim *s, bool up, bool flushed)
{
	sim_trace(s, "lease table %s%s", up ? "up" : "away", flushed ? ", empty" : "");
	s->lease.up = up;
	if (flushed) {
		memset(s->lease.hb_session, 0, sizeof(s->lease.hb_session));
		memset(s->lease.n_hash, 0, sizeof(s->lease.n_hash));
	}
	if (!s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_LEASE;
	d->ev.up = up;
	master_deliver(s, d);
}
