/* The rows, with the meaning of server/store/store.h: every operation is one conditional update.  One that was sent before
 * answers what the first sending did, as far as the rows show it. */
#include "tests/sim/sim.h"

#include <stdlib.h>

#define MAX_ATTEMPTS 63 /* a bit for each */
#define RETRIES_MAX 3

static const char *const queue_names[] = { "a", "b", "c" };

static struct row *row_get(struct sim *s, const struct uuid *id) { return &s->store.rows[row_of(id)]; }

static bool terminal(enum row_state st) { return st >= ROW_COMPLETED; }

static void set_state(struct sim *s, struct row *r, enum row_state to)
{
	if (terminal(r->state))
		sim_violation(s, "task %d: ended twice", r->key);
	if (terminal(to))
		r->ends++;
	r->state = to;
	r->open = false;
	if (to == ROW_RUNNING)
		r->expires_at = 0;
	sim_trace(s, "  store: row %d (task %d) is %s, attempt %d", row_of(&r->t.id), r->key,
		  (const char *[]){ "", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED" }[to], r->t.attempt);
}

static void *list_new(struct msg *m, size_t n, size_t size)
{
	m->mem = xcalloc(n ? n : 1, size);
	return m->mem;
}

static void assign(struct row *r, const struct core_effect *f)
{
	r->worker = number_of(f->worker);
	memcpy(r->instance, f->instance, CORE_INSTANCE_LEN);
	r->session = f->session;
	r->lease_ns = f->lease_ns;
	r->started = r->counted = false;
}

/* Given out by one who may not any more: the worker has a newer session, or this master another incarnation. */
static bool given_by_stale(const struct sim *s, const struct msg *m)
{
	return s->store.sessions[number_of(m->ef.worker)] > m->ef.session ||
	       s->store.masters[m->id].incarnation > m->ef.incarnation;
}

/* ---- tasks ---- */

static void do_insert(struct sim *s, struct msg *m, bool again)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_INSERTED;
	m->ev.token = m->ef.token;
	m->ev.inserted = CORE_INSERT_CREATED;
	m->ev.task = r->t;
	int *by_key = &s->store.by_key[r->key];
	bool done = again && *by_key == row_of(&r->t.id);
	bool given = m->ef.worker && (done ? r->state == ROW_RUNNING && r->t.attempt == 1 && r->worker == number_of(m->ef.worker) &&
							    r->session == m->ef.session :
						    !given_by_stale(s, m));
	m->ev.task.attempt = given;
	m->ev.expires_in_ns = given ? 0 : s->tasks[r->key].expiry;
	m->ev.due_in_ns = r->due_at ? max_i64(0, r->due_at - store_wall(s)) : 0;
	if (done)
		return;
	if (*by_key >= 0) {
		m->ev.inserted = CORE_INSERT_EXISTS;
		return;
	}
	*by_key = row_of(&r->t.id);
	m->ev.task.seq = r->t.seq = ++s->store.seq;
	if (r->due_at <= store_wall(s))
		r->due_at = 0;
	if (s->tasks[r->key].expiry)
		r->expires_at = store_wall(s) + s->tasks[r->key].expiry;
	if (given) {
		assign(r, &m->ef);
		r->t.attempt = 1;
	}
	set_state(s, r, given ? ROW_RUNNING : ROW_PENDING);
}

static void do_claim(struct sim *s, struct msg *m, bool again)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_CLAIMED;
	m->ev.at = m->ef.at;
	bool stale = given_by_stale(s, m);
	m->ev.claimed = stale && !again ? CORE_CLAIM_STALE : CORE_CLAIM_LOST;
	bool may = !stale && r->state == ROW_PENDING && r->due_at <= store_wall(s) && (!r->expires_at || r->expires_at > store_wall(s));
	if (may && r->t.attempt == MAX_ATTEMPTS)
		sim_violation(s, "row %d has no end of attempts", row_of(&r->t.id));
	if (may && r->t.attempt < MAX_ATTEMPTS) {
		r->t.attempt++;
		assign(r, &m->ef);
		set_state(s, r, ROW_RUNNING);
	}
	bool mine = r->state == ROW_RUNNING && r->worker == number_of(m->ef.worker) && r->session == m->ef.session;
	if (!may && !(again && mine))
		return;
	m->ev.claimed = CORE_CLAIM_WON;
	m->ev.at.attempt = r->t.attempt;
	m->ev.task = r->t;
}

static bool names_attempt(const struct row *r, const struct core_attempt *at, int worker)
{
#ifdef REINS_MUTATION_NO_ATTEMPT_CHECK
	return r->worker == worker;
#endif
	return r->worker == worker && r->t.attempt == at->attempt;
}

/* After the failure that has just been counted. */
static int64_t asked_delay(const struct row *r)
{
	double ns = (double)r->t.backoff_initial_ns;
	for (int i = 1; i < r->t.failures; i++)
		ns *= r->t.backoff_multiplier;
	return (int64_t)(ns < (double)r->t.backoff_max_ns ? ns : (double)r->t.backoff_max_ns);
}

static enum row_state state_after(struct row *r, const struct outcome *o)
{
	bool failed = !o->succeeded && !o->stopped && !o->lost;
	r->lost += o->lost;
	r->t.failures += failed;
	if (o->succeeded)
		return ROW_COMPLETED;
	if (r->wish)
		return failed ? ROW_FAILED : ROW_CANCELLED;
	return (o->lost && r->lost >= LOST_LIMIT) || (failed && r->t.failures >= r->t.max_attempts) ? ROW_FAILED : ROW_PENDING;
}

static void do_record(struct sim *s, struct msg *m, bool again)
{
	struct row *r = row_get(s, &m->ef.at.task);
	const struct outcome *o = &s->outcomes[m->ef.token];
	uint64_t bit = UINT64_C(1) << m->ef.at.attempt;
	m->ev.type = CORE_EV_RECORDED;
	m->ev.at = m->ef.at;
	m->ev.token = m->ef.token;
	m->ev.peer = m->ef.peer;
	bool mine = r->state == ROW_RUNNING || (r->state == ROW_PENDING && r->open && o->succeeded);
	if (!mine || !names_attempt(r, &o->at, o->worker)) {
		m->ev.recorded.verdict = !(r->recorded & bit) ? CORE_RECORD_FENCED :
					 again		      ? CORE_RECORD_RECORDED :
								CORE_RECORD_DUPLICATE;
		return;
	}
	if (r->recorded & bit)
		sim_violation(s, "task %d attempt %d: outcome recorded twice", r->key, o->at.attempt);
	check_open(s, r, "recorded");
	if (o->succeeded && (!(r->truly_succeeded & bit) || o->at.attempt != r->t.attempt))
		sim_violation(s, "task %d: COMPLETED by attempt %d, newest is %d", r->key, o->at.attempt, r->t.attempt);
	r->recorded |= bit;
	m->ev.recorded.verdict = CORE_RECORD_RECORDED;
	set_state(s, r, state_after(r, o));
	if (r->state != ROW_PENDING)
		return;
	int64_t in = o->lost || o->stopped ? 0 : max_i64(m->ef.retry_in_ns, asked_delay(r));
	r->due_at = in ? store_wall(s) + in : 0;
	m->ev.recorded.pending_again = true;
	m->ev.recorded.retry_in_ns = in;
	m->ev.task = r->t;
}

/* Back to PENDING, or to its end. */
static enum row_state give_back(struct sim *s, struct row *r, bool counted)
{
	r->counted = counted;
	r->lost += counted;
	r->free_at = store_wall(s) + r->lease_ns;
	set_state(s, r, r->wish ? ROW_CANCELLED : counted && r->lost >= LOST_LIMIT ? ROW_FAILED : ROW_PENDING);
	return r->state;
}

static void do_take_back(struct sim *s, struct msg *m, bool again)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_TAKEN_BACK;
	m->ev.at = m->ef.at;
	m->ev.session = m->ef.session;
	m->ev.taken_back = CORE_TAKE_BACK_FENCED;
	bool mine = r->state == ROW_RUNNING && r->t.attempt == m->ef.at.attempt && r->session == m->ef.session;
#ifdef REINS_MUTATION_NO_SESSION_FENCE /* tests/sim proves that it would notice */
	mine = r->state == ROW_RUNNING && r->t.attempt == m->ef.at.attempt;
#endif
	bool done = again && r->t.attempt == m->ef.at.attempt && !(r->recorded >> r->t.attempt & 1) && r->state != ROW_RUNNING;
	if (!mine && !done)
		return;
	if (mine && give_back(s, r, m->ef.counted) == ROW_PENDING)
		r->open = m->ef.cause == CORE_CAUSE_WORKER_LOST || m->ef.cause == CORE_CAUSE_RECALLED;
	m->ev.taken_back = r->state == ROW_PENDING ? CORE_TAKE_BACK_PENDING : CORE_TAKE_BACK_ENDED;
	m->ev.task = r->t;
}

/* ---- sessions ---- */

static void adopt(struct core_adopted *list, size_t *n, struct row *r, int64_t session)
{
	r->session = session;
	list[(*n)++] = (struct core_adopted){ .task = r->t, .lease_ns = r->lease_ns, .cancel_wish = r->wish };
}

static bool may_adopt(struct sim *s, struct row *r, const struct core_attempt *at, int w)
{
	if (r->worker != w || r->t.attempt != at->attempt || (r->state != ROW_RUNNING && !(r->state == ROW_PENDING && r->open)))
		return false;
	check_open(s, r, "adopted");
	if (r->state == ROW_PENDING) {
		r->lost -= r->counted;
		r->counted = false;
		set_state(s, r, ROW_RUNNING);
	}
	return true;
}

/* A Hello that waited somewhere while its worker went on with another: it says nothing of what that one led to. */
static bool stale(const struct sim *s, const struct msg *m)
{
#ifdef REINS_MUTATION_NO_STALE_HELLO /* tests/sim proves that it would notice */
	return false;
#endif
	/* The same sending is never carried out after a later one. */
	return m->ef.number < s->store.hello[m->worker] ||
	       (m->ef.number == s->store.hello[m->worker] && m->again <= s->store.hello_sent[m->worker]);
}

static void do_session_open(struct sim *s, struct msg *m)
{
	struct core_event *e = &m->ev;
	int w = m->worker;
	if (stale(s, m)) {
		*e = (struct core_event){ .type = CORE_EV_SESSION_OPENED, .peer = m->ef.peer, .opened.worker = s->w[w].id };
		return;
	}
	size_t running = 0;
	for (int i = 0; i < s->store.n_rows; i++)
		running += s->store.rows[i].worker == w && s->store.rows[i].state == ROW_RUNNING;
	size_t n_held = m->ef.n_held;
	struct core_adopted *adopted = list_new(m, 1, (n_held + running) * (sizeof(*adopted) + sizeof(struct core_task)) + 64);
	struct core_adopted *waiting = adopted + n_held;
	struct core_task *requeued = (struct core_task *)(void *)(waiting + running);
	struct core_attempt *fenced = (struct core_attempt *)(void *)(requeued + running);
	*e = (struct core_event){ .type = CORE_EV_SESSION_OPENED, .peer = m->ef.peer };
	e->opened.worker = s->w[w].id;
	e->opened.ok = true;
	e->opened.session = ++s->store.sessions[w];
	e->opened.adopted = adopted;
	e->opened.waiting = waiting;
	e->opened.requeued = requeued;
	e->opened.fenced = fenced;
	sim_trace(s, "  store: %s has session %d, at %s", s->w[w].id, (int)e->opened.session,
		  s->store.masters[m->id].name);
	s->store.opened_by[w] = m->id;
	s->store.hello[w] = m->ef.number;
	s->store.hello_sent[w] = m->again;
	s->store.detached_until[w] = 0;
	static bool listed[SIM_ROWS];
	memset(listed, 0, sizeof(listed));
	for (size_t i = 0; i < n_held; i++) {
		struct row *r = row_get(s, &m->ef.held[i].task);
		if (!may_adopt(s, r, &m->ef.held[i], w)) {
			fenced[e->opened.n_fenced++] = m->ef.held[i];
			continue;
		}
		listed[row_of(&r->t.id)] = true;
		memcpy(r->instance, m->ef.instance, CORE_INSTANCE_LEN);
		r->lease_ns = max_i64(r->lease_ns, m->ef.lease_ns);
		adopt(adopted, &e->opened.n_adopted, r, e->opened.session);
	}
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		if (r->state != ROW_RUNNING || r->worker != w || listed[i])
			continue;
		bool replaced = memcmp(r->instance, m->ef.instance, CORE_INSTANCE_LEN) != 0;
		if (r->t.exclusive && replaced)
			adopt(waiting, &e->opened.n_waiting, r, e->opened.session);
		else if (give_back(s, r, r->started || replaced) == ROW_PENDING)
			requeued[e->opened.n_requeued++] = r->t;
	}
}

static void do_detached(struct sim *s, const struct msg *m)
{
	if (s->store.sessions[m->worker] == m->ef.session)
		s->store.detached_until[m->worker] = m->ef.detach_ns ? store_wall(s) + m->ef.detach_ns : 0;
}

static void do_started(struct sim *s, const struct msg *m)
{
	struct row *r = row_get(s, &m->ef.at.task);
	if (r->state == ROW_RUNNING && r->worker == m->worker && r->t.attempt == m->ef.at.attempt)
		r->started = true;
}

/* ---- reading ---- */

static int in_order(const void *a, const void *b)
{
	const struct core_task *x = a, *y = b;
	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static bool ready(const struct row *r, const char *queue)
{
	return r->state == ROW_PENDING && !r->due_at && r->t.queue[0] == queue[0];
}

static void do_fill(struct sim *s, struct msg *m)
{
	struct core_task *at = list_new(m, (size_t)s->store.n_rows, sizeof(*at));
	const struct core_task cursor = { .priority = m->ef.priority, .seq = m->ef.seq };
	size_t n = 0;
	for (int i = 0; i < s->store.n_rows; i++) {
		const struct row *r = &s->store.rows[i];
		if (ready(r, m->ef.queue) && (m->ef.from_start || in_order(&cursor, &r->t) < 0))
			at[n++] = r->t;
	}
	qsort(at, n, sizeof(*at), in_order);
	m->ev.type = CORE_EV_FILLED;
	m->ev.filled.queue = m->ef.queue;
	m->ev.filled.ok = true;
	m->ev.filled.exhausted = n <= (size_t)m->ef.limit;
	m->ev.filled.n = min_sz(n, (size_t)m->ef.limit);
	m->ev.filled.at = at;
}

static void do_queues(struct sim *s, struct msg *m)
{
	struct core_paused *paused = list_new(m, ARRAY_LEN(queue_names), sizeof(*paused) + sizeof(char *));
	const char **at = (const char **)(void *)(paused + ARRAY_LEN(queue_names));
	m->ev.queues.paused = paused;
	for (size_t q = 0; q < ARRAY_LEN(queue_names); q++)
		if (s->store.paused_at[q])
			paused[m->ev.queues.n_paused++] = (struct core_paused){ queue_names[q], "" };
	m->ev.type = CORE_EV_QUEUES;
	m->ev.queues.at = at;
	m->ev.queues.ok = true;
	m->ev.queues.n = 0;
	for (size_t q = 0; q < ARRAY_LEN(queue_names); q++)
		for (int i = 0; i < s->store.n_rows; i++)
			if (ready(&s->store.rows[i], queue_names[q])) {
				at[m->ev.queues.n++] = queue_names[q];
				break;
			}
}

static void do_due(struct sim *s, struct msg *m)
{
	struct core_task *at = list_new(m, (size_t)m->ef.limit, sizeof(*at));
	m->ev.type = CORE_EV_DUE;
	m->ev.due.at = at;
	m->ev.due.n = 0;
	m->ev.due.ok = true;
	m->ev.due.next_in_ns = -1;
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		int64_t in = r->due_at - store_wall(s);
		if (r->state != ROW_PENDING || r->due_at == 0)
			continue;
		if (in <= 0 && m->ev.due.n < (size_t)m->ef.limit) {
			r->due_at = 0;
			at[m->ev.due.n++] = r->t;
		} else if (m->ev.due.next_in_ns < 0 || in < m->ev.due.next_in_ns) {
			m->ev.due.next_in_ns = max_i64(in, 0);
		}
	}
}

static void do_expire(struct sim *s, struct msg *m)
{
	struct uuid *at = list_new(m, (size_t)m->ef.limit, sizeof(*at));
	m->ev.type = CORE_EV_EXPIRED;
	m->ev.expired.at = at;
	m->ev.expired.n = 0;
	m->ev.expired.ok = true;
	m->ev.expired.next_in_ns = -1;
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		int64_t in = r->expires_at - store_wall(s);
		if (r->state != ROW_PENDING || !r->expires_at)
			continue;
		if (in <= 0 && m->ev.expired.n < (size_t)m->ef.limit) {
			set_state(s, r, ROW_FAILED);
			at[m->ev.expired.n++] = r->t.id;
		} else if (m->ev.expired.next_in_ns < 0 || in < m->ev.expired.next_in_ns) {
			m->ev.expired.next_in_ns = max_i64(in, 0);
		}
	}
}

static void do_strays(struct sim *s, struct msg *m)
{
	struct core_stray *at = list_new(m, (size_t)m->ef.limit, sizeof(*at));
	m->ev.type = CORE_EV_STRAYS;
	m->ev.strays.at = at;
	m->ev.strays.n = 0;
	m->ev.strays.ok = true;
	for (int i = 0; i < s->store.n_rows && m->ev.strays.n < (size_t)m->ef.limit; i++) {
		const struct row *r = &s->store.rows[i];
		if (r->state != ROW_RUNNING || uuid_cmp(&r->t.id, &m->ef.at.task) <= 0)
			continue;
		const struct master_row *by = &s->store.masters[s->store.opened_by[r->worker]];
		at[m->ev.strays.n++] = (struct core_stray){
			.at = { r->t.id, r->t.attempt },
			.worker = s->w[r->worker].id,
			.session = r->session,
			.lease_ns = r->lease_ns,
			.exclusive = r->t.exclusive,
			.cancel_wish = r->wish,
			.detached_ns = max_i64(0, s->store.detached_until[r->worker] - store_wall(s)),
			.own = s->store.opened_by[r->worker] == m->id,
			.master = by->name,
			.incarnation = by->incarnation,
			.beat = by->beat,
		};
	}
}

static void do_runs(struct sim *s, struct msg *m)
{
	size_t n = m->ef.n_owners;
	struct core_owner *at = list_new(m, n, sizeof(*at) + sizeof(bool));
	bool *runs = (bool *)(at + n);
	memcpy(at, m->ef.owners, n * sizeof(*at));
	for (size_t i = 0; i < n; i++) {
		const struct row *r = row_get(s, &at[i].at.task);
		runs[i] = r->state == ROW_RUNNING && r->t.attempt == at[i].at.attempt && r->worker == number_of(at[i].worker);
	}
	m->ev.type = CORE_EV_RUNS;
	m->ev.runs.at = at;
	m->ev.runs.runs = runs;
	m->ev.runs.n = n;
	m->ev.runs.ok = true;
	m->ev.runs.next = m->ef.cursor;
}

/* ---- masters and clients ---- */

static void do_open(struct sim *s, struct msg *m)
{
	struct master_row *r = &s->store.masters[m->id];
	m->ev.up = m->ef.session > 0 && r->process != m->epoch; /* to be opened again by the same process: replaced */
	if (m->ev.up)
		return;
	r->process = m->epoch;
	r->opened_at = s->now;
	r->beat++;
	m->ev.session = ++r->incarnation;
}

static void do_beat(struct sim *s, struct msg *m)
{
	struct master_row *r = &s->store.masters[m->id];
	m->ev.session = r->incarnation;
	m->ev.up = r->incarnation != m->ef.session && r->process != m->epoch; /* replaced */
	r->beat += r->incarnation == m->ef.session;
}

static void do_take_over(struct sim *s, struct msg *m)
{
	struct master_row *r = NULL;
	for (int i = 0; i < s->store.n_masters; i++)
		if (s->store.masters[i].name == m->ef.master)
			r = &s->store.masters[i];
	if (r->incarnation == m->ef.incarnation && r->beat == m->ef.beat) {
		r->incarnation++;
		if (r->taken_at <= r->opened_at)
			r->taken_at = s->now;
		sim_trace(s, "  store: %s is taken over by %s", r->name, s->store.masters[m->id].name);
	}
	m->ev.type = CORE_EV_TOOK_OVER;
	m->ev.took_over.master = r->name;
	m->ev.took_over.taken = r->beat == m->ef.beat && r->incarnation > m->ef.incarnation;
	m->ev.took_over.incarnation = r->incarnation;
	m->ev.took_over.beat = m->ef.beat;
}

/* The core hears of a client's cancel by GONE or CANCEL_WISH. */
static void do_cancel(struct sim *s, struct msg *m, bool again)
{
	struct row *r = &s->store.rows[m->index];
	m->ev.type = CORE_EV_TIME;
	m->ev.at = (struct core_attempt){ r->t.id, r->t.attempt };
	if (r->state == ROW_PENDING) {
		set_state(s, r, ROW_CANCELLED);
		m->ev.type = CORE_EV_GONE;
	} else if (r->state == ROW_RUNNING) {
		r->wish_at = r->wish ? r->wish_at : s->now;
		r->wish = true;
		m->ev.type = CORE_EV_CANCEL_WISH;
	} else if (again && r->state == ROW_CANCELLED) {
		m->ev.type = CORE_EV_GONE;
	}
}

/* And of a retry by READY. */
static void do_retry(struct sim *s, struct msg *m, bool again)
{
	struct row *r = &s->store.rows[m->index];
	m->ev.type = CORE_EV_TIME;
	bool ended = r->state == ROW_FAILED || r->state == ROW_CANCELLED;
	bool named = r->t.attempt == m->ef.at.attempt;
	bool may = ended && named && r->retries < RETRIES_MAX && !s->quiet;
	if (!may && !(again && named && r->state == ROW_PENDING))
		return;
	if (may) {
		sim_trace(s, "  store: row %d (task %d) is retried after attempt %d", m->index, r->key, r->t.attempt);
		r->retries++;
		r->ends = 0;
		r->state = ROW_PENDING;
		r->wish = r->open = r->counted = false;
#ifdef REINS_MUTATION_NO_RETRY_CLOSE /* tests/sim proves that it would notice */
		r->open = true;
#endif
		r->closed = r->t.attempt;
		r->t.failures = r->lost = 0;
		r->due_at = r->t.exclusive && r->free_at > store_wall(s) ? r->free_at : 0;
	}
	struct core_task *at = list_new(m, 1, sizeof(*at));
	*at = r->t;
	m->ev.type = CORE_EV_READY;
	m->ev.due_in_ns = r->due_at ? max_i64(1, r->due_at - store_wall(s)) : 0;
	m->ev.ready.at = at;
	m->ev.ready.n = 1;
}

static void do_pause(struct sim *s, struct msg *m)
{
	int q = m->index;
	bool on = !m->ef.resumed;
	m->ev.type = CORE_EV_TIME;
	if (s->healed)
		return;
	sim_trace(s, "  store: %s %s", queue_names[q], on ? "is paused" : "goes on");
	s->store.paused_at[q] = !on ? 0 : s->store.paused_at[q] ? s->store.paused_at[q] : s->now;
	for (int i = 0; !on && i < s->n_masters; i++)
		s->m[i].pause_answered[q] = false;
	m->ev.type = CORE_EV_PAUSE;
	m->ev.pause.queue = (struct core_paused){ queue_names[q], "" };
	m->ev.pause.on = on;
}

void rows_apply(struct sim *s, struct msg *m, int kind, bool again)
{
	free(m->mem);
	m->mem = NULL;
	memset(&m->ev, 0, sizeof(m->ev));
	switch (kind) {
	case CORE_DO_INSERT: do_insert(s, m, again); break;
	case CORE_DO_CLAIM: do_claim(s, m, again); break;
	case CORE_DO_RECORD: do_record(s, m, again); break;
	case CORE_DO_TAKE_BACK: do_take_back(s, m, again); break;
	case CORE_DO_SESSION_OPEN: do_session_open(s, m); break;
	case CORE_DO_FILL: do_fill(s, m); break;
	case CORE_DO_QUEUES: do_queues(s, m); break;
	case CORE_DO_DUE: do_due(s, m); break;
	case CORE_DO_EXPIRE: do_expire(s, m); break;
	case CORE_DO_STRAYS: do_strays(s, m); break;
	case CORE_DO_TAKE_OVER: do_take_over(s, m); break;
	case CORE_DO_RUNS: do_runs(s, m); break;
	case OP_CANCEL: do_cancel(s, m, again); break;
	case OP_RETRY: do_retry(s, m, again); break;
	case OP_PAUSE: do_pause(s, m); break;
	case OP_OPEN: do_open(s, m); break;
	case OP_BEAT: do_beat(s, m); break;
	case OP_STARTED: do_started(s, m); break;
	case OP_DETACHED: do_detached(s, m); break;
	default: abort();
	}
}
