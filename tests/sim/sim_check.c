/* The promises, looked at from outside: against what really happened at the workers, and against the store. */
#include "tests/sim/sim.h"

#define LEASE_LONGEST (60 * NS_PER_S) /* of any attempt: a session of so few workers is given no longer one */

/* ---- around a step ---- */

/* What the core knows from this turn on of drains; `off`: of whom it heard that the wish is gone. */
static void note_drains(struct master *m, const struct core_event *ev, int n, bool ret_off[static SIM_WORKERS])
{
	for (int i = 0; i < n; i++) {
		bool opened = ev[i].type == CORE_EV_SESSION_OPENED && ev[i].opened.ok;
		if (!opened && ev[i].type != CORE_EV_DRAIN_WISH)
			continue;
		int w = number_of(opened ? ev[i].opened.worker : ev[i].drain_wish.worker);
		m->wished[w] = opened ? ev[i].opened.drain_wish : ev[i].drain_wish.on;
		ret_off[w] |= !m->wished[w];
	}
}

static void note_detached(struct sim *s, struct master *m, const struct core_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		struct core_worker_view v;
		int w = s->conns[ev[i].peer].worker;
		if (ev[i].type == CORE_EV_DEPOSED) /* and with the sessions it forgets this */
			memset(m->detached_session, 0, sizeof(m->detached_session));
		if (ev[i].type != CORE_EV_DRAINING || !core_worker(m->core, s->w[w].id, &v) || v.peer != ev[i].peer)
			continue;
		/* By the master's own clock: at the least. */
		int64_t ns = ev[i].draining.on ? ev[i].draining.detach_ns : 0;
		m->detached_until[w] = ns ? s->now + ns - ns / 500 : 0;
		m->detached_session[w] = v.session;
	}
}

static void note_store(struct sim *s, struct master *m, const struct core_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		if (ev[i].type != CORE_EV_STORE)
			continue;
		int64_t now = master_now(s, m);
		bool news = ev[i].up != m->told_up;
		m->told_up = ev[i].up;
		if (!news)
			continue;
		if (!ev[i].up)
			m->store_down_at = now;
		else if (now - m->store_down_at > LEASE_LONGEST / 10) /* a shorter one some attempt's lease may not mind */
			m->listens_from = now;
	}
}

/* A lease is judged by who listened and reached its store all through it; in-process workers have their own grace. */
static void check_listened(struct sim *s, const struct master *m, const struct core_effect *f)
{
	const struct row *r = &s->store.rows[row_of(&f->at.task)];
	struct core_worker_view v;
	if (r->worker < 0 || r->t.attempt != f->at.attempt || r->session != f->session || s->w[r->worker].in_process)
		return;
	/* Of a session that has been replaced here nobody waits for a word. */
	if (core_worker(m->core, s->w[r->worker].id, &v) && v.session > f->session)
		return;
	int64_t listened = master_now(s, m) - m->listens_from + m->unseen;
	if (listened < r->lease_ns)
		sim_violation(s, "row %d/%d is taken from %s by who listened for %.3f s, its lease is %.0f s", row_of(&f->at.task),
			      f->at.attempt, s->w[r->worker].id, (double)listened / 1e9, (double)r->lease_ns / 1e9);
}

#define SLOWEST (15 * NS_PER_S) /* an answer of the store, and a sweep over the rows */

/* Another master's session whose hb this one could see, long enough for its sweep: work is held back. */
static void check_silent(struct sim *s, const struct master *m, const struct core_effect *f)
{
	const struct row *r = &s->store.rows[row_of(&f->at.task)];
	int w = r->worker;
	bool its = r->state == ROW_RUNNING && r->t.attempt == f->at.attempt && r->session == f->session;
	if (!its || s->store.opened_by[w] == m->id || f->session != s->store.sessions[w] || s->store.slow_until > s->now - 60 * NS_PER_S)
		return;
	bool shown = s->lease.w[w].session == f->session && s->lease.w[w].hb_end > s->now;
	int64_t since = max_i64(max_i64(s->lease.w[w].hb_since, m->lease_since), max_i64(m->paused_until, m->hb_lost_at));
	if (shown && since < s->now - 12 * NS_PER_S)
		sim_violation(s, "row %d/%d is taken from %s, which the lease table shows alive", row_of(&f->at.task), f->at.attempt,
			      s->w[w].id);
}

/* And it was taken over before, a whole lease ago. */
static void check_taken_over(struct sim *s, const struct master *m, const struct core_effect *f)
{
	const struct row *r = &s->store.rows[row_of(&f->at.task)];
	int w = r->worker;
	bool its = r->state == ROW_RUNNING && r->t.attempt == f->at.attempt && r->session == f->session;
	if (!its || s->store.opened_by[w] == m->id || f->session != s->store.sessions[w])
		return;
	const struct master_row *of = &s->store.masters[s->store.opened_by[w]];
	int64_t waited = s->now - of->taken_at;
	if (of->opened_at > of->taken_at && of->opened_at < s->now - SLOWEST)
		sim_violation(s, "row %d/%d is taken from %s, whose master %s nobody has taken over", row_of(&f->at.task),
			      f->at.attempt, s->w[w].id, of->name);
	else if (of->opened_at < of->taken_at && waited + m->unseen < r->lease_ns - r->lease_ns / 500)
		sim_violation(s, "row %d/%d is taken from %s %.3f s after its master %s was taken over", row_of(&f->at.task),
			      f->at.attempt, s->w[w].id, (double)waited / 1e9, of->name);
}

static void check_take_back(struct sim *s, const struct master *m, const struct core_effect *f)
{
	check_listened(s, m, f);
	check_silent(s, m, f);
	check_taken_over(s, m, f);
	const struct row *r = &s->store.rows[row_of(&f->at.task)];
	int w = r->worker;
	if (r->state != ROW_RUNNING || r->t.exclusive || r->t.attempt != f->at.attempt || f->session != r->session)
		return;
	/* Who heard it itself counts by its own clock, others by what is stored. */
	bool heard = f->session == m->detached_session[w], jumps = s->store.wall != 0;
	bool stored = f->session == s->store.sessions[w] && store_wall(s) < s->store.detached_until[w] && !jumps;
	if (heard ? s->now < m->detached_until[w] : stored)
		sim_violation(s, "row %d/%d is taken from %s, which left it running", row_of(&f->at.task), f->at.attempt,
			      s->w[w].id);
}

void check_before(struct sim *s, struct master *m, const struct core_event *ev, int n, struct drains_before *ret)
{
	memcpy(ret->was, m->wished, sizeof(ret->was));
	memset(ret->off, 0, sizeof(ret->off));
	note_drains(m, ev, n, ret->off);
	note_store(s, m, ev, n);
}

/* Nothing of a queue that is paused, once the master has answered so, or began since, or had long enough to find out. */
static void check_pause(struct sim *s, const struct master *m, const struct core_effect *f)
{
	int row = row_of(&f->at.task), q = s->store.rows[row].t.queue[0] - 'a';
	int64_t at = s->store.paused_at[q], before = s->now - 2 * SLOWEST;
	bool listens = m->paused_until < before && m->listens_from < clock_at(&m->clock, before) && s->store.slow_until < before;
	if (at && (m->pause_answered[q] || m->started_at > at || (at < before && listens)))
		sim_violation(s, "%s sends row %d, of queue %c, which is paused for %.1f s%s", master_name(s, m), row, 'a' + q,
			      (double)(s->now - at) / 1e9, m->pause_answered[q] ? ", as it has answered" : "");
}

void check_after(struct sim *s, struct master *m, const struct core_event *ev, int n, const struct drains_before *before)
{
	note_detached(s, m, ev, n);
	core_check(m->core);
	for (size_t i = 0; i < m->out.n; i++) {
		const struct core_effect *f = &m->out.at[i];
		bool gives = f->type == CORE_DO_PREEMPT || f->type == CORE_DO_DISPATCH || f->type == CORE_DO_CLAIM;
		int w = gives ? number_of(f->worker) : 0;
		if (gives && before->was[w] && !before->off[w])
			sim_violation(s, "row %d is given to %s, which an operator drains", row_of(&f->at.task), s->w[w].id);
		if (f->type == CORE_DO_DISPATCH)
			check_pause(s, m, f);
		if (f->type == CORE_DO_TAKE_BACK && f->cause == CORE_CAUSE_WORKER_LOST)
			check_take_back(s, m, f);
	}
}

/* ---- at the worker ---- */

void check_starts(struct sim *s, const struct sim_worker *w, const struct run *r)
{
	int row = row_of(&r->at.task);
	for (int i = 0; r->exclusive && i < s->n_workers; i++)
		for (int k = 0; k < s->w[i].n_runs; k++) {
			const struct run *o = &s->w[i].runs[k];
			if (o != r && o->state == RUN_RUNNING && !o->frozen && row_of(&o->at.task) == row)
				sim_violation(s, "exclusive row %d: %s starts attempt %d while %s runs %d", row, w->id,
					      r->at.attempt, s->w[i].id, o->at.attempt);
		}
}

static int licences(const struct core_task *t) { return t->custom ? t->custom[4] - '0' : 0; }

/* What it was given it can run, and has: an attempt counts until its tree is gone. */
void check_given(struct sim *s, const struct sim_worker *w, const struct run *fresh)
{
	const struct core_task *t = fresh->t;
	int used = licences(t), gpus = t->need.gpus, live = 1;
	bool has = !t->handler && w->commands;
	for (int i = 0; t->handler && i < w->handlers; i++)
		has |= strcmp(t->handler, sim_handlers[i]) == 0;
	if (!has)
		sim_violation(s, "%s: row %d asks for %s", w->id, row_of(&t->id), t->handler ? t->handler : "a command");
	for (int i = 0; i < w->n_runs; i++) {
		/* Of an attempt that is its no more a master that has just started knows the slot alone. */
		const struct run *o = &w->runs[i];
		const struct row *row = &s->store.rows[row_of(&o->at.task)];
		bool its = row->state == ROW_RUNNING && row->worker == number_of(w->id) && row->t.attempt == o->at.attempt;
		live += o->state != RUN_ENDED;
		if (o->state == RUN_ENDED || !its)
			continue;
		used += licences(o->t);
		gpus += o->t->need.gpus;
	}
	if (live > w->slots)
		sim_violation(s, "%s: %d attempts in %d slots", w->id, live, w->slots);
	if (used > w->licences)
		sim_violation(s, "%s: %d licences are taken of %d", w->id, used, w->licences);
	if (gpus > w->gpus)
		sim_violation(s, "%s: %d gpus are taken of %d", w->id, gpus, w->gpus);
}

/* It forgets what it was told this of: the store must have it, or it must never have been its own to say. */
void check_told(struct sim *s, const struct sim_worker *w, const struct core_effect *f)
{
	const struct row *r = &s->store.rows[row_of(&f->at.task)];
	bool has = r->recorded >> f->at.attempt & 1;
	bool its = r->worker == number_of(w->id) && r->t.attempt == f->at.attempt;
	if (f->verdict != CORE_RECORD_FENCED && !has)
		sim_violation(s, "%s was told that row %d/%d is recorded: the store does not have it", w->id,
			      row_of(&f->at.task), f->at.attempt);
	if (f->verdict == CORE_RECORD_FENCED && its && r->state == ROW_RUNNING)
		sim_violation(s, "%s was told that row %d/%d is not its own: it is", w->id, row_of(&f->at.task), f->at.attempt);
}

/* ---- at the store and the client ---- */

void check_open(struct sim *s, const struct row *r, const char *what)
{
	if (r->t.attempt <= r->closed)
		sim_violation(s, "task %d attempt %d: %s after a retry of attempt %d", r->key, r->t.attempt, what, r->closed);
}

void check_accepted(struct sim *s, int row)
{
	int task = s->store.rows[row].key;
	if (s->store.by_key[task] < 0)
		sim_violation(s, "task %d: the client is told that it was accepted, and the store does not have it", task);
	s->tasks[task].accepted = true;
}

/* A wish that another master stored reaches who holds the worker, within two sweeps over the rows. */
void check_wishes(struct sim *s)
{
	int64_t before = s->now - SLOWEST;
	for (int i = 0; i < s->n_workers; i++) {
		const struct sim_worker *w = &s->w[i];
		const struct conn *c = &s->conns[w->conn];
		const struct master *m = &s->m[c->master];
		if (!w->welcomed || c->at > before || max_i64(w->agent_until, w->machine_until) > before)
			continue;
		if (m->paused_until > before || m->listens_from > clock_at(&m->clock, before))
			continue;
		for (int k = 0; k < w->n_runs; k++) {
			const struct run *r = &w->runs[k];
			const struct row *row = &s->store.rows[row_of(&r->at.task)];
			bool its = row->state == ROW_RUNNING && row->worker == i && row->t.attempt == r->at.attempt;
			if (r->state == RUN_RUNNING && its && row->wish && row->wish_at < before)
				sim_violation(s, "%s still runs row %d/%d, which a client cancelled %.0f s ago", w->id,
					      row_of(&r->at.task), r->at.attempt, (double)(s->now - row->wish_at) / 1e9);
		}
	}
}

/* ---- every second ---- */

/* Both ends of the worker's newest session stand, and the master reaches its store. */
static bool session_stands(const struct sim *s, const struct sim_worker *w)
{
	const struct conn *c = &s->conns[w->conn];
	const struct master *m = &s->m[c->master];
	return w->up && w->conn && w->welcomed && w->session == s->store.sessions[number_of(w->id)] && !c->broken &&
	       max_i64(w->agent_until, w->machine_until) <= s->now && m->up && m->epoch == c->epoch && !master_stands(s, m) &&
	       m->opened && m->store_up && s->store.slow_until <= s->now;
}

/* A row that a standing session runs, says the store, while its worker does not: RunningTaskRecovery finds out. */
void check_nowhere(struct sim *s)
{
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		struct core_attempt at = { r->t.id, r->t.attempt };
		bool nowhere = r->state == ROW_RUNNING && r->session == s->store.sessions[r->worker] &&
			       session_stands(s, &s->w[r->worker]) && !run_find(&s->w[r->worker], &at);
		if (!nowhere || r->nowhere_session != r->session)
			r->nowhere_since = 0;
		r->nowhere_session = r->session;
		if (nowhere && !r->nowhere_since)
			r->nowhere_since = s->now;
		int64_t most = 4 * s->cfg.recovery_ns + LEASE_MAX + (r->t.exclusive ? s->cfg.master_ttl_exclusive_ns : 0);
		if (nowhere && s->now - r->nowhere_since > most)
			sim_violation(s, "row %d/%d runs nowhere, and nobody finds out", i, r->t.attempt);
	}
}

/* ---- at the end ---- */

bool check_ended(const struct sim *s)
{
	for (int i = 0; i < s->n_tasks; i++) {
		int row = s->store.by_key[i];
		if (!s->tasks[i].accepted || row < 0 || s->store.rows[row].state < ROW_COMPLETED)
			return false;
	}
	/* One that stands still hears yet what it was sent. */
	for (int i = 0; i < s->n_workers; i++)
		if (s->w[i].n_runs || (s->w[i].up && max_i64(s->w[i].agent_until, s->w[i].machine_until) > s->now))
			return false;
	/* One that stood still says yet what it had decided. */
	for (int i = 0; i < s->n_masters; i++)
		if (master_stands(s, &s->m[i]))
			return false;
	return true;
}

/* What each master thinks of it. */
static void tell_why(struct sim *s, const struct row *r)
{
	for (int i = 0; i < s->n_masters; i++) {
		char text[160] = "";
		uint64_t peer;
		if (s->m[i].up)
			core_why_pending(s->m[i].core, &r->t, true, &peer, text, sizeof(text));
		struct core_counts c = { 0 };
		if (s->m[i].up)
			core_counts(s->m[i].core, &c);
		sim_trace(s, "%s%s: %d workers connected, %d in flight, %d ready: %s", master_name(s, &s->m[i]),
			  s->m[i].opened && s->m[i].store_up ? "" : " (without store)", (int)c.connected, (int)c.in_flight,
			  (int)c.ready, text);
	}
}

static void check_tasks(struct sim *s)
{
	for (int i = 0; i < s->n_tasks; i++) {
		int row = s->store.by_key[i];
		if (row < 0 || !s->tasks[i].accepted) {
			sim_violation(s, "task %d was never accepted", i);
			continue;
		}
		const struct row *r = &s->store.rows[row];
		if (r->state < ROW_COMPLETED)
			tell_why(s, r);
		if (r->state < ROW_COMPLETED)
			sim_violation(s, "task %d (row %d) was lost: state %d, attempt %d, worker %d, session %d", i, row,
				      r->state, r->t.attempt, r->worker, (int)r->session);
		else if (r->ends != 1)
			sim_violation(s, "task %d has %d terminal records", i, r->ends);
	}
}

static void check_keys(struct sim *s)
{
	for (int w = 0; w < s->n_workers; w++)
		for (int i = 0; s->lease.w[w].hash_end > s->now && i < s->lease.w[w].n_hash; i++)
			sim_violation(s, "the hash of %s still names row %d/%d", s->w[w].id, s->lease.w[w].hash[i].row,
				      s->lease.w[w].hash[i].attempt);
	for (int row = 0; row < s->store.n_rows; row++)
		if (s->lease.owner[row].end > s->now)
			sim_violation(s, "row %d still has an owner: w%d, attempt %d", row, s->lease.owner[row].worker,
				      s->lease.owner[row].attempt);
}

void check_end(struct sim *s)
{
	check_tasks(s);
	for (int i = 0; !s->quiet && i < s->n_workers; i++)
		if (s->w[i].n_runs)
			sim_violation(s, "%s still holds %d attempts", s->w[i].id, s->w[i].n_runs);
	check_keys(s);
}
