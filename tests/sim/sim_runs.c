/* The programs of a worker and their supervisors.  They outlive the agent; they die with the machine, or with an in-process
 * agent.  An exclusive one is ended by the lease rule, whoever is alive. */
#include "tests/sim/sim.h"

struct run *run_find(struct sim_worker *w, const struct core_attempt *at)
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

void run_drop(struct sim_worker *w, struct run *r)
{
	*r = w->runs[--w->n_runs];
}

/* While the machine stands still nothing happens on it. */
static bool later(struct sim *s, const struct sim_worker *w, struct msg *m)
{
	if (w->machine_until <= s->now)
		return false;
	sim_again(s, m, w->machine_until, m->run);
	return true;
}

static struct msg *after(struct sim *s, struct sim_worker *w, int64_t ns, void (*run)(struct sim *, struct msg *),
			 uint64_t gen)
{
	struct msg *m = sim_at(s, clock_when(&w->clock, worker_clock(s, w) + ns), run);
	m->worker = number_of(w->id);
	m->gen = gen;
	return m;
}

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
	worker_say(s, w, CORE_EV_OUTCOME, r);
}

static void on_end(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m))
		return;
	struct run *r = find_gen(w, m->gen);
	if (r && r->state == RUN_RUNNING)
		end(s, w, r, m->index || r->stopping);
}

static int64_t margin(const struct run *r) { return r->lease_ns / 10; }
static int64_t grace(const struct run *r) { return r->lease_ns * 3 / 10; }

/* The exclusive lease: from S + L - m - G on it is asked to end, from S + L - m on it is killed, which may be a little
 * late; what has begun goes on whatever arrives. */
static void on_lease(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m))
		return;
	struct run *r = find_gen(w, m->gen);
	if (!r || r->state != RUN_RUNNING)
		return;
	int64_t now = worker_clock(s, w);
	int64_t kill = w->acked_sent_at + r->lease_ns - margin(r), term = kill - grace(r);
	if (term > now) {
		after(s, w, term - now, on_lease, r->gen);
		return;
	}
	r->stopping = true;
	int64_t killed = max_i64(kill - now, 0) + sim_between(s, 0, margin(r) / 2);
	after(s, w, sim_chance(s, 30) ? killed : sim_between(s, 0, killed), on_end, r->gen)->index = 1;
}

static void accept(struct sim *s, struct sim_worker *w, struct run *r)
{
	int64_t until = w->acked_sent_at + r->lease_ns - margin(r) - grace(r);
	if (r->exclusive && worker_clock(s, w) >= until) {
		worker_say(s, w, CORE_EV_REFUSED, r);
		run_drop(w, r);
		return;
	}
	r->state = RUN_RUNNING;
	int row = row_of(&r->at.task);
	sim_trace(s, "%s: row %d/%d starts", w->id, row, r->at.attempt);
	check_starts(s, w, r);
	worker_say(s, w, CORE_EV_ACCEPTED, r);
	static const int64_t longest[] = { 10 * NS_PER_MS, NS_PER_S, 30 * NS_PER_S };
	/* Once healed nothing runs long: then a task that has not ended in time is stuck, not slow. */
	int64_t most = longest[rng_below(&s->rng, s->healed ? 2 : 3)];
	bool spans = s->takes_over && r->exclusive && !s->healed && sim_chance(s, 50); /* a take-over and a lease */
	const struct msg *ends = after(s, w, spans ? 90 * NS_PER_S : sim_between(s, 0, most), on_end, r->gen);
	client_races(s, row, ends->at);
	if (r->exclusive)
		after(s, w, 0, on_lease, r->gen);
}

static void on_accept(struct sim *s, struct msg *m)
{
	struct sim_worker *w = &s->w[m->worker];
	if (later(s, w, m))
		return;
	struct run *r = find_gen(w, m->gen);
	if (r && r->state == RUN_HELD)
		accept(s, w, r);
}

void run_dispatched(struct sim *s, struct sim_worker *w, const struct core_effect *f)
{
	if (run_find(w, &f->at)) {
		sim_violation(s, "%s: row %d/%d dispatched twice", w->id, row_of(&f->at.task), f->at.attempt);
		return;
	}
	struct run fresh = { .at = f->at, .gen = ++w->run_gen, .exclusive = f->exclusive, .lease_ns = f->lease_ns,
			     .t = &s->store.rows[row_of(&f->at.task)].t };
	check_given(s, w, &fresh);
	if (w->n_runs == SIM_RUNS || w->drains || sim_chance(s, w->refuse_percent)) {
		worker_say(s, w, CORE_EV_REFUSED, &fresh);
		return;
	}
	struct run *r = &w->runs[w->n_runs++];
	*r = fresh;
	if (sim_chance(s, w->late_percent))
		after(s, w, sim_between(s, sim_chance(s, 50) ? 4 * NS_PER_S : 0, 9 * NS_PER_S), on_accept, r->gen);
	else
		accept(s, w, r);
}

void run_stop(struct sim *s, struct sim_worker *w, const struct core_attempt *at)
{
	struct run *r = run_find(w, at);
	if (!r)
		return;
	if (r->state == RUN_HELD) {
		worker_say(s, w, CORE_EV_REFUSED, r);
		run_drop(w, r);
	} else if (r->state == RUN_RUNNING) {
		after(s, w, sim_between(s, 0, NS_PER_S), on_end, r->gen)->index = 1;
	}
}

void run_lose_one(struct sim *s, int index)
{
	struct sim_worker *w = &s->w[index];
	for (int i = 0; i < w->n_runs; i++) {
		struct run *r = &w->runs[i];
		if (r->state != RUN_RUNNING || w->machine_until > s->now)
			continue;
		r->lost = true;
		end(s, w, r, false);
		return;
	}
}
