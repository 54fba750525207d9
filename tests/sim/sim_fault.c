/* What goes wrong: each history has its own mix of faults, and all of them end before it does. */
#include "tests/sim/sim.h"

enum fault {
	F_CUT, F_SILENT, F_PART, F_PART_STORE, F_CUT_STORE, F_PART_LEASE, F_ALONE,
	F_AGENT, F_MACHINE, F_PAUSE_AGENT, F_PAUSE_MACHINE, F_SUSPEND, F_SUPERVISOR, F_GONE,
	F_MASTER, F_MASTER_BETWEEN, F_MASTER_ANSWER, F_MASTER_PAUSE, F_MASTER_PAUSE_BETWEEN, F_TWIN,
	F_STORE, F_STORE_SLOW, F_STORE_CLOCK,
	F_LEASE, F_FLUSH, F_LOSE_KEY,
	F_CANCEL, F_RETRY, F_DRAIN, F_DETACH,
	FAULTS
};

static void on_worker_back(struct sim *s, struct msg *m) { worker_start(s, m->worker); }
static void on_lease_back(struct sim *s, struct msg *m)
{
	if (sim_chance(s, 50))
		lease_flush(s);
	lease_set(s, true);
}
static void on_lease_heals(struct sim *s, struct msg *m) { lease_part(s, m->index, false); }

static void store_set(struct sim *s, bool up)
{
	if (s->store.up == up)
		return;
	sim_trace(s, "store %s", up ? "is back" : "is away");
	s->store.up = up;
	store_changed(s);
}
static void on_store_back(struct sim *s, struct msg *m) { store_set(s, true); }

static void part_store(struct sim *s, int i, bool cut)
{
	struct master *m = &s->m[i];
	if (m->store_cut == cut)
		return;
	sim_trace(s, "%s %s the store", master_name(s, m), cut ? "does not reach" : "reaches");
	m->store_cut = cut;
	store_changed(s);
}
static void on_store_heals(struct sim *s, struct msg *m) { part_store(s, m->index, false); }

static void on_cut_store(struct sim *s, struct msg *m)
{
	part_store(s, m->index, true);
	sim_at(s, s->now + sim_between(s, 1, 200) * NS_PER_MS, on_store_heals)->index = m->index;
	if (s->flaky && !s->healed)
		s->m[m->index].cut_in = sim_between(s, 1, 50);
}
void fault_cut_store(struct sim *s, int master) { sim_at(s, s->now, on_cut_store)->index = master; }

/* A master with its workers, apart from all else. */
static void leave_alone(struct sim *s, int i, int64_t ns)
{
	part_store(s, i, true);
	lease_part(s, i, true);
	sim_at(s, s->now + ns, on_store_heals)->index = i;
	sim_at(s, s->now + ns, on_lease_heals)->index = i;
}
static void on_alone(struct sim *s, struct msg *m) { leave_alone(s, m->index, sim_between(s, 10, 60) * NS_PER_S); }

static struct msg *within(struct sim *s, int64_t low_ms, int64_t high_s, void (*run)(struct sim *, struct msg *))
{
	return sim_at(s, s->now + sim_between(s, low_ms * NS_PER_MS, high_s * NS_PER_S), run);
}

static void strike_worker(struct sim *s, enum fault f, int w)
{
	int m = (int)rng_below(&s->rng, (uint64_t)s->n_masters);
	switch (f) {
	case F_CUT:
	case F_SILENT:
		if (s->w[w].conn) {
			sim_trace(s, "stream of %s is cut%s", s->w[w].id, f == F_CUT ? "" : ", and nobody is told");
			net_cut(s, s->w[w].conn, f == F_CUT);
		}
		break;
	case F_PART:
		sim_trace(s, "%s and %s are parted", s->w[w].id, master_name(s, &s->m[m]));
		net_part(s, w, m, s->now + sim_between(s, 100 * NS_PER_MS, 20 * NS_PER_S));
		break;
	case F_AGENT:
	case F_MACHINE:
		worker_kill(s, w, f == F_MACHINE);
		within(s, 1, 15, on_worker_back)->worker = w;
		break;
	case F_PAUSE_AGENT:
	case F_PAUSE_MACHINE: worker_pause(s, w, f == F_PAUSE_MACHINE, sim_between(s, NS_PER_S, 30 * NS_PER_S)); break;
	case F_SUSPEND: /* its clock goes on, its connections don't */
		worker_pause(s, w, true, sim_between(s, NS_PER_S, 60 * NS_PER_S));
		if (s->w[w].conn)
			net_cut(s, s->w[w].conn, sim_chance(s, 50));
		break;
	case F_SUPERVISOR: run_lose_one(s, w); break;
	case F_GONE:
		/* One stays that fits everything. The master often dies with it, and does not know that it ever was. */
		if (w > 0 && sim_chance(s, 30)) {
			worker_kill(s, w, true);
			s->w[w].gone = true;
			sim_trace(s, "%s is gone for ever", s->w[w].id);
			if (sim_chance(s, 70))
				master_crash(s, m);
		}
		break;
	case F_DRAIN: operator_drain(s, w, !s->store.drained[w]); break;
	default: worker_detach(s, w, sim_between(s, 5, 60) * NS_PER_S); break;
	}
}

static void strike_master(struct sim *s, enum fault f)
{
	int i = (int)rng_below(&s->rng, (uint64_t)s->n_masters);
	switch (f) {
	case F_PART_STORE:
		part_store(s, i, true);
		within(s, 100, 15, on_store_heals)->index = i;
		break;
	case F_CUT_STORE: s->m[i].cut_in = sim_between(s, 0, 12); break;
	case F_PART_LEASE:
		lease_part(s, i, true);
		within(s, 100, 20, on_lease_heals)->index = i;
		break;
	case F_ALONE: leave_alone(s, i, sim_between(s, 5, 40) * NS_PER_S); break;
	case F_MASTER: master_crash(s, i); break;
	case F_MASTER_BETWEEN: s->m[i].crash_in = sim_between(s, 0, 12); break;
	case F_MASTER_ANSWER: s->m[i].crash_in_answers = sim_between(s, 0, 12); break;
	case F_MASTER_PAUSE: master_pause(s, i, sim_between(s, NS_PER_S, 45 * NS_PER_S)); break;
	case F_MASTER_PAUSE_BETWEEN: s->m[i].pause_in = sim_between(s, 0, 12); break;
	default: master_twin(s, i); break;
	}
}

static void strike(struct sim *s, enum fault f)
{
	int w = (int)rng_below(&s->rng, (uint64_t)s->n_workers), task = (int)rng_below(&s->rng, (uint64_t)s->n_tasks);
	switch (f) {
	case F_STORE:
		if (s->store.up)
			within(s, 100, 15, on_store_back);
		store_set(s, false);
		break;
	case F_STORE_SLOW:
		s->store.slow_until = s->now + sim_between(s, NS_PER_S, 10 * NS_PER_S);
		sim_trace(s, "store is slow");
		break;
	case F_STORE_CLOCK:
		s->store.wall += sim_chance(s, 50) ? sim_between(s, -20, 0) * NS_PER_S : sim_between(s, 0, 3600) * NS_PER_S;
		sim_trace(s, "the database's clock jumps to %+d s", (int)(s->store.wall / NS_PER_S));
		break;
	case F_LEASE:
		if (s->lease.up)
			within(s, 100, 20, on_lease_back);
		lease_set(s, false);
		break;
	case F_FLUSH: lease_flush(s); break;
	case F_LOSE_KEY: lease_lose_one(s); break;
	case F_CANCEL: client_cancel(s, task); break;
	case F_RETRY: client_retry(s, task); break;
	case F_PART_STORE:
	case F_CUT_STORE:
	case F_PART_LEASE:
	case F_ALONE:
	case F_MASTER:
	case F_MASTER_BETWEEN:
	case F_MASTER_ANSWER:
	case F_MASTER_PAUSE:
	case F_MASTER_PAUSE_BETWEEN:
	case F_TWIN: strike_master(s, f); break;
	default: strike_worker(s, f, w);
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
	if (f != FAULTS)
		strike(s, f);
	sim_at(s, s->now + sim_between(s, 10 * NS_PER_MS, s->fault_gap), on_fault)->gen = enabled;
}

void fault_prepare(struct sim *s)
{
	uint64_t all = (UINT64_C(1) << FAULTS) - 1, enabled = all;
	for (uint64_t r = rng_below(&s->rng, 3); r > 0; r--)
		enabled &= rng_next(&s->rng);
	/* A tenth has none at all. */
	if (sim_chance(s, 10))
		enabled = 0;
	s->fault_gap = sim_chance(s, s->takes_over ? 10 : 50) ? NS_PER_S : 6 * NS_PER_S;
	/* Connections to the store that break again and again, always with statements on their way. */
	s->flaky = sim_chance(s, 15);
	for (int i = 0; s->flaky && i < s->n_masters; i++)
		s->m[i].cut_in = sim_between(s, 1, 50);
	if (s->takes_over) {
		enabled &= rng_next(&s->rng); /* fewer: what is to be seen takes long */
		sim_at(s, s->now + sim_between(s, 5, 40) * NS_PER_S, on_alone)->index = (int)rng_below(&s->rng, (uint64_t)s->n_masters);
	}
	sim_at(s, s->now + NS_PER_S, on_fault)->gen = enabled;
	operator_prepare(s);
}

void fault_heal(struct sim *s)
{
	store_set(s, true);
	s->store.slow_until = 0;
	lease_set(s, true);
	memset(s->parted_until, 0, sizeof(s->parted_until));
	for (int i = 0; i < s->n_masters; i++) {
		s->m[i].cut_in = s->m[i].crash_in = s->m[i].pause_in = s->m[i].crash_in_answers = -1;
		part_store(s, i, false);
		lease_part(s, i, false);
		if (!s->m[i].up)
			master_start(s, i);
	}
	operator_heal(s);
	for (int i = 0; i < s->n_workers; i++) {
		s->w[i].refuse_percent = s->w[i].late_percent = 0;
		operator_drain(s, i, false);
		worker_start(s, i);
	}
}
