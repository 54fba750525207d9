/* Sessions: hello, the list, heartbeats, streams that end.
 *
 * One SESSION_OPEN per worker is on its way at a time; a hello that comes meanwhile waits and replaces one that waited
 * before it.  The answer is applied even when its stream is gone by then: the store has stamped the rows with the
 * new session, and only this master will judge them.
 *
 * While the store is away a session that is held here goes on, on a new stream, for the process that had it; what became
 * of its attempts is judged by this memory, as at a heartbeat.  Any other hello waits. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

/* So long may a hello wait for the store.  It paces those who come again and again, and a short outage turns nobody away;
 * but it ends before the 2 s that a worker gives a master for the first answer, so that the worker hears why and
 * goes to another one, which may reach the store. */
#define HELLO_WAIT_NS (1500 * NS_PER_MS)

/* ---- peers ---- */

struct peer *peer_find(const struct core *c, uint64_t id)
{
	struct map_node *n = map_get(&c->peers, &id, sizeof(id));
	return n ? container_of(n, struct peer, node) : NULL;
}

static void peer_add(struct core *c, uint64_t id, struct worker *w)
{
	struct peer *p = xcalloc(1, sizeof(*p));
	p->id = id;
	p->worker = w;
	map_put(&c->peers, &p->node, &p->id, sizeof(p->id));
}

void peer_remove(struct core *c, uint64_t id)
{
	struct peer *p = peer_find(c, id);
	if (!p)
		return;
	map_remove(&c->peers, &p->node);
	free(p);
}

struct worker *peer_worker(const struct core *c, uint64_t id)
{
	const struct peer *p = peer_find(c, id);
	return p && p->worker->peer == id ? p->worker : NULL;
}

/* ---- hello ---- */

void hello_free(struct core *c, struct hello *h)
{
	if (!h)
		return;
	if (h->pool)
		pool_put(c, h->pool);
	stock_free(c, h->stock, h->n_stock);
	free(h->held);
	free(h);
}

static int by_ref(const void *a, const void *b)
{
	const struct core_attempt *x = a, *y = b;
	int r = memcmp(&x->task, &y->task, sizeof(x->task));
	return r ? r : x->attempt < y->attempt ? -1 : x->attempt > y->attempt;
}

/* Ordered, and each attempt once: of one that is listed twice a store might adopt the first and fence the second. */
static size_t sort_held(struct core_attempt *held, size_t n)
{
	size_t kept = 0;
	if (n)
		qsort(held, n, sizeof(*held), by_ref);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || by_ref(&held[kept - 1], &held[i]) != 0)
			held[kept++] = held[i];
	return kept;
}

static struct hello *hello_copy(struct core *c, const struct core_event *ev)
{
	struct hello *h = xcalloc(1, sizeof(*h));
	h->peer = ev->peer;
	memcpy(h->instance, ev->hello.instance, sizeof(h->instance));
	h->capacity = ev->hello.capacity;
	h->capacity.slots = (int32_t)min_i64(max_i64(h->capacity.slots, 0), c->cfg.max_held);
	h->in_process = ev->hello.in_process;
	h->draining = ev->hello.draining;
	h->resumes = ev->hello.resumes;
	h->number = ev->hello.number;
	h->no_other = ev->hello.no_other;
	h->heard = c->now;
	h->wait_until = c->now + HELLO_WAIT_NS;
	h->n_held = ev->hello.n_held;
	h->held = calloc(max_sz(1, h->n_held), sizeof(*h->held));
	h->pool = pool_get(c, ev);
	int rc = stock_new(c, ev->hello.capacity.custom, &h->stock, &h->n_stock);
	h->capacity.custom = NULL; /* valid during the step only */
	if (!h->held || !h->pool || rc < 0) {
		hello_free(c, h);
		return NULL;
	}
	if (h->n_held)
		memcpy(h->held, ev->hello.held, h->n_held * sizeof(*h->held));
	h->n_held = sort_held(h->held, h->n_held);
	return h;
}

static void open_session(struct core *c, struct worker *w, struct hello *h)
{
	w->opening = h;
	worker_refresh(c, w, false);
	fleet_pace(c, w, h);
	struct core_effect *f = emit_worker(c, CORE_DO_SESSION_OPEN, w);
	uint8_t *instance = emit_alloc(c, CORE_INSTANCE_LEN);
	memcpy(instance, h->instance, CORE_INSTANCE_LEN);
	struct core_attempt *held = emit_alloc(c, h->n_held * sizeof(*held));
	if (h->n_held)
		memcpy(held, h->held, h->n_held * sizeof(*held));
	f->instance = instance;
	f->session = 0;
	f->number = h->number;
	f->peer = h->peer;
	f->lease_ns = h->lease_ns;
	f->held = held;
	f->n_held = h->n_held;
}

void hello_close(struct core *c, struct hello *h, enum core_close_code code)
{
	if (!h || h->dead)
		return;
	h->dead = true;
	emit_close(c, h->peer, code);
	peer_remove(c, h->peer);
}

/* The newest session was of this one. */
static bool same_instance(const struct worker *w, const struct hello *h)
{
	return memcmp(w->instance, h->instance, sizeof(w->instance)) == 0;
}

/* ---- what a session begins with ---- */

static struct job *job_of(struct core *c, struct worker *w, struct core_attempt at)
{
	struct job *j = job_by_attempt(c, at);
	if (j && j->worker != w) {
		/* An attempt has one worker, and the store says that it is this one. */
		job_free(c, j);
		return NULL;
	}
	return j;
}

static void adopt(struct core *c, struct worker *w, const struct core_adopted *a, int64_t lease_from)
{
	struct job *j = job_of(c, w, (struct core_attempt){ a->task.id, a->task.attempt });
	bool fresh = !j;
	if (fresh)
		j = job_new_at(c, &a->task, w, JOB_RUNNING);
	j->lease_ns = a->lease_ns;
	j->mark = w->mark;
	if (lease_from) {
		bool waited = !fresh && j->state == JOB_WAITING;
		if (lease_from > c->now)
			j->heard = waited ? max_i64(j->heard, lease_from) : lease_from;
		else if (!waited)
			j->heard = fresh ? c->now : lease_from;
		job_input(c, j, IN_WAITING, NULL);
		return;
	}
	job_input(c, j, IN_ADOPTED, NULL);
	if (a->cancel_wish && w->peer)
		emit_stop(c, w, job_at(j), CORE_STOP_CANCELLED);
}

static void fence(struct core *c, struct worker *w, struct core_attempt at)
{
	struct job *j = job_of(c, w, at);
	if (!j) {
		/* What it needs is not known; its slot is. */
		struct core_task t = { .id = at.task, .attempt = at.attempt };
		j = job_new_at(c, &t, w, JOB_LEFT);
	}
	j->mark = w->mark;
	job_input(c, j, IN_FENCED, NULL);
}

/* `goes_on`: of a session that goes on. */
static void become(struct core *c, struct worker *w, struct hello *h, int64_t session, const struct core_attempt *goes_on,
		   size_t n)
{
	worker_drop_peer(c, w, true, CORE_CLOSE_REPLACED);
	w->hellos_missed &= w->session == session;
	w->hello_number = same_instance(w, h) ? max_i64(w->hello_number, h->number) : h->number;
	w->session = session;
	w->heartbeat_ns = h->heartbeat_ns;
	w->lease_ns = h->lease_ns;
	w->lapsed = false;
	memcpy(w->instance, h->instance, sizeof(w->instance));
	w->capacity = h->capacity;
	w->in_process = h->in_process;
	w->draining = h->draining;
	w->detached_until = 0;
	w->grace_end = NEVER;
	w->hold_until = 0;
	w->number = 0;
	w->number_step = 0;
	if (w->pool)
		pool_put(c, w->pool);
	w->pool = h->pool;
	w->pool->n_workers++;
	worker_set_stock(c, w, h->stock, h->n_stock);
	h->stock = NULL;
	h->n_stock = 0;
	pool_widen(c, w->pool, w);
	if (!h->dead) {
		w->peer = h->peer;
		c->n_connected++;
		struct core_effect *f = emit_worker(c, CORE_DO_WELCOME, w);
		f->heartbeat_ns = w->heartbeat_ns;
		f->lease_ns = w->lease_ns;
		f->resumed = goes_on != NULL;
		f->held = goes_on;
		f->n_held = n;
	} else if (w->in_process) {
		w->gone_at = c->now;
		w->grace_end = c->now + c->cfg.disconnect_grace_ns;
	}
}

/* reconstructWorkerTasksFromRedis: what a worker holds is what its list and the rows agree on. */
static void apply(struct core *c, struct worker *w, struct hello *h, const struct core_event *ev)
{
	/* Exclusive tasks of another instance: the old lease is over when this master heard of it last, or, where another master
	 * held the session before, when that one has noticed this session, or renews no more because it can't (take_over). */
	bool ours = w->session && ev->opened.session == w->session + 1;
	int64_t old_heard = ours ? max_i64(w->heard, 1) : c->now + (c->cfg.alone ? 0 : c->cfg.master_ttl_exclusive_ns);
	w->heard = max_i64(w->heard, h->heard);
	become(c, w, h, ev->opened.session, NULL, 0);
	w->drain_wish = ev->opened.drain_wish;
	w->mark++;
	for (size_t i = 0; i < ev->opened.n_adopted; i++)
		adopt(c, w, &ev->opened.adopted[i], 0);
	for (size_t i = 0; i < ev->opened.n_waiting; i++)
		adopt(c, w, &ev->opened.waiting[i], old_heard);
	for (size_t i = 0; i < ev->opened.n_fenced; i++)
		fence(c, w, ev->opened.fenced[i]);
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (j->mark != w->mark)
			job_input(c, j, IN_LEFT_OUT, NULL);
	}
	for (size_t i = 0; i < ev->opened.n_requeued; i++)
		window_offer(c, &ev->opened.requeued[i], NULL);
	emit_lease_beat(c, w);
	keys_expect(c); /* whoever held the session before may have died over it */
}

/* ---- while the store is away ---- */

/* Held here, by the process that says so, and none of its leases has ended: what was taken back for that this memory could
 * only fence, while the store may adopt it again.  An opening on its way may have reached the store; so may one of
 * another master, where a hello went whose fate nobody here knows: that master would judge the newer session, and
 * give away what goes on here. */
static bool may_resume(const struct worker *w, const struct hello *h)
{
	return !w->opening && w->session && w->session == h->resumes && !w->lapsed && h->alone && same_instance(w, h);
}

/* A stop that the old stream may have swallowed. */
static void stop_again(struct core *c, struct worker *w, const struct job *j)
{
	if (j->state == JOB_LEFT)
		emit_stop(c, w, job_at(j), CORE_STOP_FENCED);
	else if (j->state == JOB_TAKING_BACK && j->cause == CORE_CAUSE_RECALLED)
		emit_stop(c, w, job_at(j), CORE_STOP_RECALLED);
	else if (j->cancel)
		emit_stop(c, w, job_at(j), CORE_STOP_CANCELLED);
}

/* All that was dispatched so far is compared with the list: what the old stream swallowed is never going to arrive.  It can't
 * be taken back now, but will be when the store is back; until then it keeps no slot. */
static void compare_all(struct core *c, struct worker *w, const struct core_attempt *held, size_t n)
{
#ifdef REINS_MUTATION_RESUME_UNCOMPARED /* tests/sim proves that it would notice */
	return;
#endif
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (j->mark != w->mark)
			job_input(c, j, IN_UNLISTED, NULL);
	}
	for (size_t i = 0; i < n; i++) {
		struct job *j = job_by_attempt(c, held[i]);
		if (!j || j->worker != w) {
			emit_stop(c, w, held[i], CORE_STOP_FENCED);
			continue;
		}
		j->number = 0; /* on this stream it was seen from the start */
		job_input(c, j, IN_LISTED, NULL);
		stop_again(c, w, j);
	}
}

static void resume(struct core *c, struct worker *w, struct hello *h)
{
	int64_t number = w->number, detached_until = w->detached_until;
	h->heartbeat_ns = w->heartbeat_ns;
	h->lease_ns = w->lease_ns;
	w->mark++;
	struct core_attempt *goes_on = emit_alloc(c, h->n_held * sizeof(*goes_on));
	size_t n = 0;
	for (size_t i = 0; i < h->n_held; i++) {
		struct job *j = job_by_attempt(c, h->held[i]);
		if (!j || j->worker != w)
			continue;
		j->mark = w->mark;
		if (j->state != JOB_LEFT)
			goes_on[n++] = h->held[i];
	}
	become(c, w, h, w->session, goes_on, n);
	w->number = number; /* dispatches are numbered within the session */
	w->detached_until = detached_until;
	compare_all(c, w, h->held, h->n_held);
	emit_lease_beat(c, w);
	worker_heard(c, w, h->heard);
	worker_refresh(c, w, true);
}

/* Takes the hello: a session is opened or goes on, or it waits. */
static void take_hello(struct core *c, struct worker *w, struct hello *h)
{
	if (c->store_up && !w->opening) {
		open_session(c, w, h);
	} else if (!c->store_up && may_resume(w, h)) {
		resume(c, w, h);
		hello_free(c, h);
	} else {
		w->next = h;
		if (!c->store_up && list_empty(&w->link_waiting))
			list_push_back(&c->waiting, &w->link_waiting);
	}
}

void session_give_up(struct core *c, struct worker *w)
{
	hello_close(c, w->next, CORE_CLOSE_AWAY);
	hello_free(c, w->next);
	w->next = NULL;
}

void session_store_back(struct core *c)
{
	struct list *n;
	while ((n = list_pop_front(&c->waiting))) {
		struct worker *w = container_of(n, struct worker, link_waiting);
		struct hello *next = w->next;
		if (!next || w->opening)
			continue;
		w->next = NULL;
		take_hello(c, w, next);
		worker_timer(c, w);
	}
}

/* Its process, or one after it, has said a newer hello on another stream. */
static bool is_late(const struct worker *w, const struct hello *h)
{
	return h->resumes && h->number && h->number <= w->hello_number && h->number >= w->hello_number - CORE_HELD_UP_US &&
	       same_instance(w, h);
}

/* Alone: each hello of its process since the session began came here, or none of them has opened another. */
static void count_hello(struct worker *w, struct hello *h)
{
	if (!same_instance(w, h))
		return;
	if (!h->resumes || h->number != w->hello_number + 1)
		w->hellos_missed = h->resumes != 0;
	h->alone = h->no_other || (h->number && !w->hellos_missed);
	w->hello_number = h->number;
}

void session_on_hello(struct core *c, const struct core_event *ev)
{
	if (peer_find(c, ev->peer)) {
		emit_close(c, ev->peer, CORE_CLOSE_PROTOCOL);
		return;
	}
	struct worker *w = worker_find(c, ev->hello.worker);
	bool over = (!w && c->workers.len >= (size_t)c->cfg.max_workers) ||
		    ev->hello.n_held > (size_t)c->cfg.max_held || strlen(ev->hello.worker) > CORE_NAME_MAX;
	struct hello *h = over ? NULL : hello_copy(c, ev);
	if (!h) {
		emit_close(c, ev->peer, CORE_CLOSE_LIMIT);
		return;
	}
	if (!w)
		w = worker_new(c, ev->hello.worker);
	if (is_late(w, h)) {
		hello_free(c, h);
		emit_close(c, ev->peer, CORE_CLOSE_AWAY);
		return;
	}
	count_hello(w, h);
	peer_add(c, ev->peer, w);
	if (w->opening)
		hello_close(c, w->opening, CORE_CLOSE_REPLACED);
	hello_close(c, w->next, CORE_CLOSE_REPLACED);
	hello_free(c, w->next);
	w->next = NULL;
	take_hello(c, w, h);
	worker_timer(c, w);
}

void session_on_opened(struct core *c, const struct core_event *ev)
{
	/* The peer's entry may be gone with its stream; the worker is found by the opening itself. */
	struct worker *w = worker_find(c, ev->opened.worker);
	if (!w || !w->opening || w->opening->peer != ev->peer)
		return;
	struct hello *h = w->opening, *next = w->next;
	w->next = NULL;
	c->n_opening -= h->counted;
	if (ev->opened.ok) {
		apply(c, w, h, ev);
	} else if (!c->store_up && !next && !h->dead) {
		next = h; /* it was not changed */
	} else {
		hello_close(c, h, CORE_CLOSE_AWAY);
	}
	/* Not before: a worker whose lease has run out meanwhile is forgotten with its last job, unless it is opening. */
	w->opening = NULL;
	if (next != h)
		hello_free(c, h);
	if (next)
		take_hello(c, w, next);
	worker_refresh(c, w, true);
	worker_heard(c, w, w->heard);
	worker_maybe_forget(c, w);
}

/* ---- the stream ---- */

/* Others judge exclusive attempts of this master when they have seen its beat stand still for master_ttl_exclusive and
 * then for a whole lease: nine tenths of the former after the last beat was sent, no renewal leaves here any more, and the
 * workers have ended their trees by the time that others give the tasks away.
 *
 * Nothing more is needed when it gives out exclusive tasks meanwhile: the claim is void once another master has taken over
 * (store_assignment), and before that the worker begins and ends by the same clock, its newest renewal. */
static bool may_renew_exclusive(const struct core *c)
{
#ifdef REINS_MUTATION_ALWAYS_RENEW /* tests/sim proves that it would notice */
	return true;
#endif
	return c->now - c->beat_at < c->cfg.master_ttl_exclusive_ns / 10 * 9;
}

/* checkAndFixStaleRunningTasks: the list of a heartbeat against memory, in stream order. */
void session_on_heartbeat(struct core *c, const struct core_event *ev)
{
	struct worker *w = peer_worker(c, ev->peer);
	if (!w)
		return;
	struct core_effect *f = emit_worker(c, CORE_DO_HEARTBEAT_ACK, w);
	f->number = ev->heartbeat.number;
	f->exclusive_not_renewed = !may_renew_exclusive(c);
	w->mark++;
	for (size_t i = 0; i < ev->heartbeat.n_held; i++) {
		struct job *j = job_by_attempt(c, ev->heartbeat.held[i]);
		if (j && j->worker == w) {
			j->mark = w->mark;
			job_input(c, j, IN_LISTED, ev);
		} else {
			emit_stop(c, w, ev->heartbeat.held[i], CORE_STOP_FENCED);
		}
	}
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
#ifndef REINS_MUTATION_NO_DISPATCH_ORDER /* tests/sim proves that it would notice */
		if (j->number > ev->heartbeat.last_dispatch)
			continue;
#endif
		if (j->mark != w->mark)
			job_input(c, j, IN_UNLISTED, ev);
	}
	emit_lease_beat(c, w);
	w->hold_until = 0;
	worker_refresh(c, w, false);
	worker_heard(c, w, c->now);
}

void session_on_draining(struct core *c, const struct core_event *ev)
{
	const struct peer *p = peer_find(c, ev->peer);
	struct worker *w = p ? p->worker : NULL;
	if (!w)
		return;
	if (w->peer == ev->peer) {
		w->draining = ev->draining.on;
		/* In-process tasks end with the process: nobody is left to wait for. */
		bool detaches = ev->draining.on && ev->draining.detach_ns > 0 && !w->in_process;
		if (detaches || w->detached_until)
			emit_worker(c, CORE_DO_DETACHED, w)->detach_ns = detaches ? ev->draining.detach_ns : 0;
		w->detached_until = detaches ? c->now + ev->draining.detach_ns : 0;
		worker_refresh(c, w, !w->draining);
		worker_heard(c, w, w->heard);
	} else if (w->opening && w->opening->peer == ev->peer) {
		w->opening->draining = ev->draining.on;
	} else if (w->next && w->next->peer == ev->peer) {
		w->next->draining = ev->draining.on;
	}
}

/* One that has no session yet hears of the wish with it. */
void session_on_drain_wish(struct core *c, const struct core_event *ev)
{
	struct worker *w = worker_find(c, ev->drain_wish.worker);
	if (!w || w->drain_wish == ev->drain_wish.on)
		return;
	w->drain_wish = ev->drain_wish.on;
	worker_refresh(c, w, !w->drain_wish);
}

static void note_end(struct core *c)
{
	int64_t second = c->now / NS_PER_S;
	size_t i = (size_t)second % GONE_BUCKETS;
	if (c->ended[i].second != second || !c->ended[i].of) {
		c->ended[i].second = second;
		c->ended[i].gone = 0;
		c->ended[i].of = c->n_connected;
	}
	c->ended[i].gone++;
}

/* More than a tenth of the streams ended in the same second (one alone proves nothing in a small fleet): then it is
 * the network or this master, and streams that end say nothing about processes. */
bool session_mass_end(const struct core *c, int64_t at)
{
	size_t gone = 0, of = 0;
	for (int64_t s = at / NS_PER_S - 1; s <= at / NS_PER_S + 1; s++) {
		size_t i = (size_t)(s + GONE_BUCKETS) % GONE_BUCKETS;
		if (c->ended[i].second != s)
			continue;
		gone = max_sz(gone, c->ended[i].gone);
		of = max_sz(of, c->ended[i].of);
	}
	return gone > 1 && gone * 10 > of;
}

void session_on_peer_gone(struct core *c, const struct core_event *ev)
{
	struct peer *p = peer_find(c, ev->peer);
	if (!p)
		return;
	struct worker *w = p->worker;
	if (w->opening && w->opening->peer == ev->peer) {
		w->opening->dead = true;
		peer_remove(c, ev->peer);
	} else if (w->next && w->next->peer == ev->peer) {
		peer_remove(c, ev->peer);
		hello_free(c, w->next);
		w->next = NULL;
		worker_maybe_forget(c, w);
	} else {
		note_end(c);
		worker_drop_peer(c, w, false, CORE_CLOSE_REPLACED);
		if (w->in_process) {
			w->gone_at = c->now;
			w->grace_end = c->now + c->cfg.disconnect_grace_ns;
		}
		worker_timer(c, w);
	}
}
