/* The store in memory, with the meaning of server/store/store.h: every operation is one conditional update.  Operations
 * are applied some time after they were asked for and answered some time after that; kinds overtake each other.  What
 * was applied when the store went away is answered when it is back: an unknown outcome is settled, never guessed. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define RETRIES_MAX 3 /* attempts are counted in bits of 64 */

static const char *const queue_names[] = { "a", "b", "c" };

void store_init(struct sim *s)
{
	memset(&s->store, 0, sizeof(s->store));
	s->store.up = true;
	for (int i = 0; i < SIM_TASKS; i++)
		s->store.by_key[i] = -1;
}

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
	sim_trace(s, "  store: row %d (task %d) is %d, attempt %d", row_of(&r->t.id), r->key, to, r->t.attempt);
}

static void *list_new(struct msg *m, size_t n, size_t size)
{
	/* One list per answer: session answers use one block for all of theirs. */
	m->mem = xcalloc(n ? n : 1, size);
	return m->mem;
}

/* ---- one operation each; m->ef is the question, m->ev becomes the answer ---- */

static void do_insert(struct sim *s, struct msg *m)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_INSERTED;
	m->ev.token = m->ef.token;
	int *by_key = &s->store.by_key[r->key];
	if (*by_key >= 0) {
		m->ev.inserted = CORE_INSERT_EXISTS;
		m->ev.task = r->t;
		return;
	}
	*by_key = row_of(&r->t.id);
	r->t.seq = ++s->store.seq;
	if (s->tasks[r->key].expiry)
		r->expires_at = s->now + s->tasks[r->key].expiry;
	if (m->ef.worker) {
		r->worker = (int)strtol(m->ef.worker + 1, NULL, 10);
		memcpy(r->instance, m->ef.instance, CORE_INSTANCE_LEN);
		r->session = m->ef.session;
		r->lease_ns = m->ef.lease_ns;
		r->t.attempt = 1;
		set_state(s, r, ROW_RUNNING);
	} else {
		set_state(s, r, ROW_PENDING);
		m->ev.due_in_ns = max_i64(0, r->due_at - s->now);
		m->ev.expires_in_ns = s->tasks[r->key].expiry;
	}
	m->ev.inserted = CORE_INSERT_CREATED;
	m->ev.task = r->t;
}

static void do_claim(struct sim *s, struct msg *m)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_CLAIMED;
	m->ev.at = m->ef.at;
	m->ev.claimed = CORE_CLAIM_LOST;
	if (r->state != ROW_PENDING || r->due_at > s->now || (r->expires_at && r->expires_at <= s->now))
		return;
	r->t.attempt++;
	r->worker = (int)strtol(m->ef.worker + 1, NULL, 10);
	memcpy(r->instance, m->ef.instance, CORE_INSTANCE_LEN);
	r->session = m->ef.session;
	r->lease_ns = m->ef.lease_ns;
	set_state(s, r, ROW_RUNNING);
	m->ev.claimed = CORE_CLAIM_WON;
	m->ev.at.attempt = r->t.attempt;
	m->ev.task = r->t;
}

static bool names_attempt(const struct row *r, const struct core_attempt *at, int worker)
{
#ifdef REINS_MUTATION_NO_ATTEMPT_CHECK
	return r->worker == worker;
#else
	return r->worker == worker && r->t.attempt == at->attempt;
#endif
}

/* After a client's retry no attempt from before may change anything. */
static void check_open(struct sim *s, const struct row *r, const char *what)
{
	if (r->t.attempt <= r->closed)
		sim_violation(s, "task %d attempt %d: %s after a retry of attempt %d", r->key, r->t.attempt, what, r->closed);
}

/* After the failure that has just been counted. */
static int64_t asked_delay(const struct row *r)
{
	double ns = (double)r->t.backoff_initial_ns;
	for (int i = 1; i < r->t.failures; i++)
		ns *= r->t.backoff_multiplier;
	return (int64_t)(ns < (double)r->t.backoff_max_ns ? ns : (double)r->t.backoff_max_ns);
}

static void do_record(struct sim *s, struct msg *m)
{
	struct row *r = row_get(s, &m->ef.at.task);
	const struct outcome *o = &s->outcomes[m->ef.token];
	uint64_t bit = UINT64_C(1) << m->ef.at.attempt;
	m->ev.type = CORE_EV_RECORDED;
	m->ev.at = m->ef.at;
	m->ev.token = m->ef.token;
	m->ev.peer = m->ef.peer;
	bool running = r->state == ROW_RUNNING || (r->state == ROW_PENDING && r->open);
	if (!running || !names_attempt(r, &o->at, o->worker)) {
		m->ev.recorded.verdict = r->recorded & bit ? CORE_RECORD_DUPLICATE : CORE_RECORD_FENCED;
		return;
	}
	if (r->recorded & bit)
		sim_violation(s, "task %d attempt %d: outcome recorded twice", r->key, o->at.attempt);
	check_open(s, r, "recorded");
	r->recorded |= bit;
	m->ev.recorded.verdict = CORE_RECORD_RECORDED;
	if (o->succeeded) {
		if (!(r->truly_succeeded & bit) || o->at.attempt != r->t.attempt)
			sim_violation(s, "task %d: COMPLETED by attempt %d, newest is %d", r->key, o->at.attempt, r->t.attempt);
		set_state(s, r, ROW_COMPLETED);
	} else if (r->wish) {
		set_state(s, r, ROW_CANCELLED);
	} else if (o->lost ? ++r->lost >= LOST_LIMIT : !o->stopped && ++r->t.failures >= r->t.max_attempts) {
		set_state(s, r, ROW_FAILED);
	} else {
		int64_t in = o->lost || o->stopped ? 0 : max_i64(m->ef.retry_in_ns, asked_delay(r));
		set_state(s, r, ROW_PENDING);
		r->due_at = s->now + in;
		m->ev.recorded.pending_again = true;
		m->ev.recorded.retry_in_ns = in;
		m->ev.task = r->t;
	}
}

static void do_take_back(struct sim *s, struct msg *m)
{
	struct row *r = row_get(s, &m->ef.at.task);
	m->ev.type = CORE_EV_TAKEN_BACK;
	m->ev.at = m->ef.at;
	m->ev.session = m->ef.session;
	if (r->state != ROW_RUNNING || r->t.attempt != m->ef.at.attempt || r->session != m->ef.session) {
		m->ev.taken_back = CORE_TAKE_BACK_FENCED;
		return;
	}
	m->ev.taken_back = CORE_TAKE_BACK_ENDED;
	r->free_at = s->now + r->lease_ns;
	if (r->wish) {
		set_state(s, r, ROW_CANCELLED);
	} else if (m->ef.counted && ++r->lost >= LOST_LIMIT) {
		set_state(s, r, ROW_FAILED);
	} else {
		set_state(s, r, ROW_PENDING);
		r->open = true;
		m->ev.taken_back = CORE_TAKE_BACK_PENDING;
		m->ev.task = r->t;
	}
}

struct session_lists {
	struct core_adopted adopted[SIM_RUNS], waiting[SIM_ROWS];
	struct core_task requeued[SIM_ROWS];
	struct core_attempt fenced[SIM_RUNS];
};

static void adopt(struct core_adopted *list, size_t *n, struct row *r, int64_t session)
{
	r->session = session;
	list[(*n)++] = (struct core_adopted){ .task = r->t, .lease_ns = r->lease_ns, .cancel_wish = r->wish };
}

static void do_session_open(struct sim *s, struct msg *m)
{
	struct session_lists *l = list_new(m, 1, sizeof(*l));
	int w = m->worker;
	struct core_event *e = &m->ev;
	e->type = CORE_EV_SESSION_OPENED;
	e->peer = m->ef.peer;
	e->opened.worker = s->w[w].id;
	e->opened.ok = true;
	e->opened.session = ++s->store.sessions[w];
	s->store.opened_by[w] = m->epoch;
	s->store.detached_until[w] = 0;
	e->opened.adopted = l->adopted;
	e->opened.waiting = l->waiting;
	e->opened.requeued = l->requeued;
	e->opened.fenced = l->fenced;
	static bool listed[SIM_ROWS];
	memset(listed, 0, sizeof(listed));
	for (size_t i = 0; i < m->ef.n_held; i++) {
		const struct core_attempt *at = &m->ef.held[i];
		struct row *r = row_get(s, &at->task);
		bool may = r->state == ROW_RUNNING || (r->state == ROW_PENDING && r->open);
		if (!may || r->worker != w || r->t.attempt != at->attempt) {
			l->fenced[e->opened.n_fenced++] = *at;
			continue;
		}
		listed[row_of(&at->task)] = true;
		check_open(s, r, "adopted");
		if (r->state == ROW_PENDING)
			set_state(s, r, ROW_RUNNING);
		memcpy(r->instance, m->ef.instance, CORE_INSTANCE_LEN);
		r->lease_ns = max_i64(r->lease_ns, m->ef.lease_ns);
		adopt(l->adopted, &e->opened.n_adopted, r, e->opened.session);
	}
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		if (r->state != ROW_RUNNING || r->worker != w || listed[i])
			continue;
		if (r->t.exclusive && memcmp(r->instance, m->ef.instance, CORE_INSTANCE_LEN) != 0) {
			adopt(l->waiting, &e->opened.n_waiting, r, e->opened.session);
		} else if (r->wish) {
			set_state(s, r, ROW_CANCELLED);
		} else {
			set_state(s, r, ROW_PENDING);
			r->open = true;
			l->requeued[e->opened.n_requeued++] = r->t;
		}
	}
}

static int in_order(const void *a, const void *b)
{
	const struct core_task *x = a, *y = b;
	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void do_fill(struct sim *s, struct msg *m)
{
	struct core_task *at = list_new(m, (size_t)s->store.n_rows, sizeof(*at));
	size_t n = 0;
	for (int i = 0; i < s->store.n_rows; i++) {
		const struct row *r = &s->store.rows[i];
		if (r->state != ROW_PENDING || r->due_at > s->now || strcmp(r->t.queue, m->ef.queue) != 0)
			continue;
		const struct core_task cursor = { .priority = m->ef.priority, .seq = m->ef.seq };
		if (m->ef.from_start || in_order(&cursor, &r->t) < 0)
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
	const char **at = list_new(m, ARRAY_LEN(queue_names), sizeof(*at));
	m->ev.type = CORE_EV_QUEUES;
	m->ev.queues.at = at;
	m->ev.queues.ok = true;
	for (size_t q = 0; q < ARRAY_LEN(queue_names); q++)
		for (int i = 0; i < s->store.n_rows; i++) {
			const struct row *r = &s->store.rows[i];
			if (r->state == ROW_PENDING && r->due_at <= s->now && strcmp(r->t.queue, queue_names[q]) == 0) {
				at[m->ev.queues.n++] = queue_names[q];
				break;
			}
		}
}

static void do_due(struct sim *s, struct msg *m)
{
	struct core_task *at = list_new(m, (size_t)s->store.n_rows, sizeof(*at));
	m->ev.type = CORE_EV_DUE;
	m->ev.due.at = at;
	m->ev.due.ok = true;
	m->ev.due.next_in_ns = -1;
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		if (r->state != ROW_PENDING || r->due_at == 0)
			continue;
		if (r->due_at <= s->now) {
			r->due_at = 0;
			at[m->ev.due.n++] = r->t;
		} else if (m->ev.due.next_in_ns < 0 || r->due_at - s->now < m->ev.due.next_in_ns) {
			m->ev.due.next_in_ns = r->due_at - s->now;
		}
	}
}

static void do_expire(struct sim *s, struct msg *m)
{
	struct uuid *at = list_new(m, (size_t)s->store.n_rows, sizeof(*at));
	m->ev.type = CORE_EV_EXPIRED;
	m->ev.expired.at = at;
	m->ev.expired.ok = true;
	m->ev.expired.next_in_ns = -1;
	for (int i = 0; i < s->store.n_rows; i++) {
		struct row *r = &s->store.rows[i];
		if (r->state != ROW_PENDING || !r->expires_at)
			continue;
		if (r->expires_at <= s->now) {
			set_state(s, r, ROW_FAILED);
			at[m->ev.expired.n++] = r->t.id;
		} else if (m->ev.expired.next_in_ns < 0 || r->expires_at - s->now < m->ev.expired.next_in_ns) {
			m->ev.expired.next_in_ns = r->expires_at - s->now;
		}
	}
}

static void do_strays(struct sim *s, struct msg *m)
{
	static const char *const masters[] = { "another", "me" };
	struct core_stray *at = list_new(m, (size_t)m->ef.limit, sizeof(*at));
	m->ev.type = CORE_EV_STRAYS;
	m->ev.strays.at = at;
	m->ev.strays.ok = true;
	for (int i = 0; i < s->store.n_rows && m->ev.strays.n < (size_t)m->ef.limit; i++) {
		const struct row *r = &s->store.rows[i];
		if (r->state != ROW_RUNNING || uuid_cmp(&r->t.id, &m->ef.at.task) <= 0)
			continue;
		bool own = !s->new_ids || s->store.opened_by[r->worker] == m->epoch;
		at[m->ev.strays.n++] = (struct core_stray){
			.at = { r->t.id, r->t.attempt },
			.worker = s->w[r->worker].id,
			.session = r->session,
			.lease_ns = r->lease_ns,
			.exclusive = r->t.exclusive,
			.detached_ns = max_i64(0, s->store.detached_until[r->worker] - s->now),
			.own = own,
			.master = masters[own],
			.incarnation = (int64_t)s->store.opened_by[r->worker],
			.beat = own ? s->now : 0,
		};
	}
}

/* A client's cancel, through the engine: the core hears of it by GONE or CANCEL_WISH. */
static void do_cancel(struct sim *s, struct msg *m)
{
	struct row *r = &s->store.rows[m->index];
	m->ev.type = CORE_EV_TIME;
	m->ev.at = (struct core_attempt){ r->t.id, r->t.attempt };
	if (r->state == ROW_PENDING) {
		set_state(s, r, ROW_CANCELLED);
		m->ev.type = CORE_EV_GONE;
	} else if (r->state == ROW_RUNNING) {
		r->wish = true;
		m->ev.type = CORE_EV_CANCEL_WISH;
	}
}

/* A client's retry likewise: READY. */
static void do_retry(struct sim *s, struct msg *m)
{
	struct row *r = &s->store.rows[m->index];
	m->ev.type = CORE_EV_TIME;
	bool failed = r->state == ROW_FAILED || r->state == ROW_CANCELLED;
	if (!failed || r->t.attempt != m->ef.at.attempt || r->retries == RETRIES_MAX)
		return;
	sim_trace(s, "  store: row %d (task %d) is retried after attempt %d", m->index, r->key, r->t.attempt);
	r->retries++;
	r->ends = 0;
	r->state = ROW_PENDING;
	r->wish = false;
#ifdef REINS_MUTATION_NO_RETRY_CLOSE /* tests/sim proves that it would notice */
	r->open = true;
#endif
	r->closed = r->t.attempt;
	r->t.failures = r->lost = 0;
	r->due_at = r->t.exclusive && r->free_at > s->now ? r->free_at : 0;
	struct core_task *at = list_new(m, 1, sizeof(*at));
	*at = r->t;
	m->ev.type = CORE_EV_READY;
	m->ev.due_in_ns = r->due_at ? r->due_at - s->now : 0;
	m->ev.ready.at = at;
	m->ev.ready.n = 1;
}

/* ---- asking and answering ---- */

static void unavailable(struct sim *s, struct msg *m)
{
	struct core_event *e = &m->ev;
	*e = (struct core_event){ .at = m->ef.at, .token = m->ef.token, .peer = m->ef.peer, .session = m->ef.session };
	switch (m->index >= 0 ? CORE_DO_WELCOME : m->ef.type) {
	case CORE_DO_INSERT:
		e->type = CORE_EV_INSERTED;
		e->inserted = CORE_INSERT_FAILED;
		e->task = row_get(s, &m->ef.at.task)->t;
		break;
	case CORE_DO_CLAIM:
		e->type = CORE_EV_CLAIMED;
		e->claimed = CORE_CLAIM_UNAVAILABLE;
		break;
	case CORE_DO_RECORD:
		e->type = CORE_EV_RECORDED;
		e->recorded.verdict = CORE_RECORD_UNAVAILABLE;
		break;
	case CORE_DO_TAKE_BACK:
		e->type = CORE_EV_TAKEN_BACK;
		e->taken_back = CORE_TAKE_BACK_UNAVAILABLE;
		break;
	case CORE_DO_SESSION_OPEN:
		e->type = CORE_EV_SESSION_OPENED;
		e->opened.worker = s->w[m->worker].id;
		break;
	case CORE_DO_FILL:
		e->type = CORE_EV_FILLED;
		e->filled.queue = m->ef.queue;
		break;
	case CORE_DO_QUEUES: e->type = CORE_EV_QUEUES; break;
	case CORE_DO_DUE: e->type = CORE_EV_DUE; break;
	case CORE_DO_EXPIRE: e->type = CORE_EV_EXPIRED; break;
	case CORE_DO_STRAYS: e->type = CORE_EV_STRAYS; break;
	default: e->type = CORE_EV_TIME; break;
	}
}

static void on_answer(struct sim *s, struct msg *m)
{
	if (m->epoch != s->m.epoch || !s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	void *mem = m->mem;
	if (m->applied && !s->store.up) {
		/* The connection was lost with the answer: settled when the store is back. */
		struct heap_node node = d->node;
		uint64_t order = d->order;
		*d = *m;
		d->node = node;
		d->order = order;
		d->run = on_answer;
		d->at = s->store.back_at + sim_latency(s);
		heap_push(&s->queue, &d->node);
	} else {
		d->ev = m->ev;
		d->mem = mem;
		master_deliver(s, d);
	}
	m->mem = NULL;
}

static void answer(struct sim *s, struct msg *m)
{
	int kind = m->index >= 0 ? 31 : (int)m->ef.type;
	int64_t at = max_i64(s->now + sim_latency(s), s->store.last_answer[kind]);
	s->store.last_answer[kind] = at;
	struct msg *a = sim_at(s, at, on_answer);
	a->epoch = m->epoch;
	a->worker = m->worker;
	a->ef = m->ef;
	a->ef.held = NULL;
	a->ev = m->ev;
	a->mem = m->mem;
	a->applied = m->applied;
	a->index = m->index;
	m->mem = NULL;
}

static void on_apply(struct sim *s, struct msg *m)
{
	/* A dead master's statements may still arrive, or not. */
	if (m->epoch != s->m.epoch && sim_chance(s, 50))
		return;
	if (!s->store.up) {
		free(m->mem);
		m->mem = NULL;
		unavailable(s, m);
		answer(s, m);
		return;
	}
	void *asked = m->mem; /* the held list of a session */
	m->mem = NULL;
	m->applied = true;
	if (m->index >= 0) {
		m->gen ? do_retry(s, m) : do_cancel(s, m);
	} else {
		switch (m->ef.type) {
		case CORE_DO_INSERT: do_insert(s, m); break;
		case CORE_DO_CLAIM: do_claim(s, m); break;
		case CORE_DO_RECORD: do_record(s, m); break;
		case CORE_DO_TAKE_BACK: do_take_back(s, m); break;
		case CORE_DO_SESSION_OPEN: do_session_open(s, m); break;
		case CORE_DO_FILL: do_fill(s, m); break;
		case CORE_DO_QUEUES: do_queues(s, m); break;
		case CORE_DO_STRAYS: do_strays(s, m); break;
		case CORE_DO_EXPIRE: do_expire(s, m); break;
		default: do_due(s, m); break;
		}
	}
	free(asked);
	answer(s, m);
}

static struct msg *ask(struct sim *s, int kind)
{
	int64_t at = max_i64(s->now + sim_latency(s), s->store.last_apply[kind]);
	s->store.last_apply[kind] = at;
	struct msg *m = sim_at(s, at, on_apply);
	m->epoch = s->m.epoch;
	m->index = -1;
	return m;
}

void store_effect(struct sim *s, const struct core_effect *f)
{
	struct msg *m = ask(s, (int)f->type);
	m->ef = *f;
	m->ef.spec = NULL;
	if (f->worker) {
		m->worker = (int)strtol(f->worker + 1, NULL, 10);
		m->ef.worker = s->w[m->worker].id;
	}
	/* The arena is gone by then. */
	size_t head = CORE_INSTANCE_LEN;
	uint8_t *mem = xcalloc(1, head + f->n_held * sizeof(*f->held));
	if (f->instance)
		memcpy(mem, f->instance, CORE_INSTANCE_LEN);
	if (f->n_held)
		memcpy(mem + head, f->held, f->n_held * sizeof(*f->held));
	m->ef.instance = f->instance ? mem : NULL;
	m->ef.held = (const struct core_attempt *)(const void *)(mem + head);
	m->mem = mem;
	for (size_t i = 0; f->queue && i < ARRAY_LEN(queue_names); i++)
		if (strcmp(f->queue, queue_names[i]) == 0)
			m->ef.queue = queue_names[i];
}

void store_insert_direct(struct sim *s, int row)
{
	struct msg *m = ask(s, CORE_DO_INSERT);
	m->ef = (struct core_effect){ .type = CORE_DO_INSERT, .at = { .task = sim_id(row) }, .token = (uint64_t)row };
}

void store_cancel(struct sim *s, int row)
{
	struct msg *m = ask(s, 31);
	m->index = row;
}

void store_retry(struct sim *s, int row)
{
	struct msg *m = ask(s, 31);
	m->index = row;
	m->gen = 1;
	m->ef.at.attempt = s->store.rows[row].t.attempt;
}

static void on_store_state(struct sim *s, struct msg *m)
{
	if (m->epoch != s->m.epoch || !s->m.up)
		return;
	struct msg *d = sim_at(s, s->now, NULL);
	d->ev.type = CORE_EV_STORE;
	d->ev.up = m->ev.up;
	master_deliver(s, d);
}

void store_set(struct sim *s, bool up, int64_t back_at)
{
	if (s->store.up == up)
		return;
	sim_trace(s, "store %s", up ? "is back" : "is away");
	s->store.up = up;
	s->store.back_at = back_at;
	int64_t *told = &s->store.last_answer[30]; /* news of the store keep their order */
	*told = max_i64(*told, s->now + sim_latency(s) / 4);
	struct msg *m = sim_at(s, *told, on_store_state);
	m->epoch = s->m.epoch;
	m->ev.up = up;
}
