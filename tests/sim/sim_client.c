/* Clients and operators: they ask any master that is up, and ask again until they are told. */
#include "tests/sim/sim.h"

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
	int i = master_any(s);
	if (i < 0 || s->store.n_rows == SIM_ROWS)
		return;
	struct master *m = &s->m[i];
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
		.lease_ttl_ns = task % 5 == 0 ? LEASE_MAX : 0,
		.max_attempts = 1 + task % 3,
		.backoff_initial_ns = task % 2 ? 0 : NS_PER_S,
		.backoff_max_ns = 5 * NS_PER_S,
		.backoff_multiplier = 2,
	};
	if (task % 6 == 0)
		r->due_at = store_wall(s) + sim_between(s, 0, 10 * NS_PER_S);
	if (task % 4 == 0) {
		store_insert_direct(s, m, n);
		return;
	}
	struct msg *d = master_event(s, CORE_EV_SUBMIT);
	d->ev.token = (uint64_t)n + 1;
	d->ev.task = r->t;
	d->ev.due_in_ns = r->due_at ? r->due_at - store_wall(s) : 0;
	master_deliver(s, m, d);
}

void client_cancel(struct sim *s, int task)
{
	int row = s->store.by_key[task], i = master_any(s);
	if (i >= 0 && row >= 0)
		store_ask(s, &s->m[i], OP_CANCEL)->index = row;
}

/* The next that may be retried, from `task` on; one that waits with an open attempt is cancelled for it first. */
void client_retry(struct sim *s, int task)
{
	for (int i = 0; i < s->n_tasks; i++) {
		int row = s->store.by_key[(task + i) % s->n_tasks], m = master_any(s);
		enum row_state st = row >= 0 ? s->store.rows[row].state : ROW_NONE;
		bool open = st == ROW_PENDING && s->store.rows[row].open;
		if (m < 0 || (st != ROW_FAILED && st != ROW_CANCELLED && !open))
			continue;
		if (open)
			store_ask(s, &s->m[m], OP_CANCEL)->index = row;
		struct msg *ask = store_ask(s, &s->m[m], OP_RETRY);
		ask->index = row;
		ask->ef.at.attempt = s->store.rows[row].t.attempt;
		return;
	}
}

/* ---- races ---- */

static void on_race(struct sim *s, struct msg *m)
{
	int i = master_any(s);
	if (s->healed || i < 0)
		return;
	struct msg *ask = store_ask(s, &s->m[i], m->gen ? OP_CANCEL : OP_RETRY);
	ask->index = m->index;
	ask->ef.at.attempt = s->store.rows[m->index].t.attempt;
}

void client_races(struct sim *s, int row, int64_t ends_at)
{
	if (!sim_chance(s, s->race_percent))
		return;
	struct msg *m = sim_at(s, max_i64(s->now, ends_at + sim_between(s, -2 * NS_PER_MS, 2 * NS_PER_MS)), on_race);
	m->index = row;
	m->gen = sim_chance(s, 70);
	if (m->gen && sim_chance(s, 30)) { /* and tried again in the same breath */
		struct msg *retry = sim_at(s, m->at + sim_between(s, 0, 5 * NS_PER_MS), on_race);
		retry->index = row;
	}
}

/* ---- operators ---- */

static void on_drain_told(struct sim *s, struct msg *m)
{
	const struct sim_worker *w = &s->w[m->worker];
	int64_t stands_until = max_i64(w->agent_until, w->machine_until);
	if (stands_until > s->now)
		sim_again(s, m, stands_until, on_drain_told);
	else
		worker_drain(s, m->worker);
}

/* Stored; the master that was asked hears of it at once, the others with the worker's next session or from the list. */
void operator_drain(struct sim *s, int w, bool on)
{
	if (!s->store.up || s->store.drained[w] == on)
		return;
	sim_trace(s, "%s is %s", s->w[w].id, on ? "drained" : "to take tasks again");
	s->store.drained[w] = on;
	sim_at(s, s->now + sim_latency(s), on_drain_told)->worker = w;
	int i = master_any(s);
	if (i >= 0)
		master_learn_wish(s, &s->m[i], w, on);
}

/* ---- pauses ---- */

static void on_pause(struct sim *s, struct msg *m)
{
	if (s->healed)
		return;
	int q = (int)rng_below(&s->pauses, SIM_QUEUES), i = master_any(s);
	if (i >= 0) {
		struct msg *ask = store_ask(s, &s->m[i], OP_PAUSE);
		ask->index = q;
		ask->ef.resumed = s->store.paused_at[q] != 0; /* the other way round */
	}
	sim_at(s, s->now + (int64_t)rng_below(&s->pauses, 8 * NS_PER_S), on_pause);
}

/* With chances of its own, so that the other histories are as they were without. */
void operator_prepare(struct sim *s)
{
	rng_seed(&s->pauses, s->seed ^ UINT64_C(0x70617573));
	if (rng_below(&s->pauses, 100) < 25)
		sim_at(s, s->now + NS_PER_S, on_pause);
}

void operator_heal(struct sim *s)
{
	memset(s->store.paused_at, 0, sizeof(s->store.paused_at));
	for (int i = 0; i < s->n_masters; i++)
		memset(s->m[i].pause_answered, 0, sizeof(s->m[i].pause_answered));
}

void operator_paused(struct sim *s, struct master *m, const char *queue)
{
	int q = queue[0] - 'a';
	m->pause_answered[q] = m->pause_told[q] && s->store.paused_at[q];
	if (m->pause_answered[q])
		sim_trace(s, "%s answers that %s is paused", master_name(s, m), queue);
}
