/* Workers: what they have free, who fits a task, when their leases end.
 *
 * Those that take something now are in the heap of their pool, least used first.  A worker is known as long
 * as its lease runs or an attempt of it is undecided. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

/* Dispatches that a worker has not accepted yet wait in its stream's queue, which ends the stream when it overflows. */
#define UNACCEPTED_MAX (8 * 1024 * 1024)

#define MATCH_COST 4 /* of a look for a worker beside the workers looked at: classes may be as many as tasks */

static struct worker *from_free(const struct heap_node *n) { return container_of(n, struct worker, free); }

bool worker_free_less(const struct heap_node *a, const struct heap_node *b)
{
	const struct worker *x = from_free(a), *y = from_free(b);
	return x->used != y->used ? x->used < y->used : x->given < y->given;
}

/* ---- who fits ---- */

static bool has_free(const struct worker *w, const struct want *want)
{
	const struct core_need *need = &want->need, *have = &w->capacity.have;
	const struct usage *used = &w->used_need;
	return w->used < w->capacity.slots &&
	       (need->gpus == 0 || need->gpus <= have->gpus - used->gpus) &&
	       (have->cpu_millis == 0 || need->cpu_millis <= have->cpu_millis - used->cpu_millis) &&
	       (need->memory_bytes == 0 || need->memory_bytes <= have->memory_bytes - used->memory_bytes) &&
	       (!want->asks || stock_has(w->stock, w->n_stock, want->asks, false));
}

bool worker_fits(const struct worker *w, const struct want *want)
{
	return pool_runs(w->pool, want) && has_free(w, want);
}

static struct worker *pool_match(const struct pool *p, const struct want *want, uint64_t avoid, int64_t *budget)
{
	if (!p->free.len || !pool_runs(p, want) || !pool_could(p, want))
		return NULL;
	/* The array of a heap is nearly in order: the first that fits is among the least used. */
	for (size_t i = 0; i < p->free.len; i++) {
		struct worker *w = from_free(p->free.at[i]);
		if (--*budget <= 0)
			return NULL;
		if (w->serial != avoid && has_free(w, want))
			return w;
	}
	return NULL;
}

struct worker *worker_match(struct core *c, const struct queue *q, const struct want *want, uint64_t avoid, int64_t *budget)
{
	struct worker *best = NULL;
	*budget -= MATCH_COST;
	list_each(it, &c->pools_all) {
		--*budget;
		struct worker *w = pool_match(container_of(it, struct pool, link_all), want, avoid, budget);
		if (w && (!best || worker_free_less(&w->free, &best->free)))
			best = w;
	}
	list_each(it, &q->pools) {
		const struct pool *p = container_of(it, struct pool_link, at_queue)->pool;
		--*budget;
		struct worker *w = pool_match(p, want, avoid, budget);
		if (w && (!best || worker_free_less(&w->free, &best->free)))
			best = w;
	}
	return best;
}

bool worker_has_room(const struct worker *w, size_t bytes)
{
	return w->sent_bytes == 0 || w->sent_bytes + bytes <= UNACCEPTED_MAX;
}

static bool takes_something(const struct core *c, const struct worker *w)
{
	return w->peer && !w->opening && !worker_drains(w) && w->unanswered == 0 && c->now >= w->hold_until &&
	       w->used < w->capacity.slots && w->sent_bytes < UNACCEPTED_MAX &&
	       w->n_given * c->spec_guess < UNACCEPTED_MAX;
}

void worker_refresh(struct core *c, struct worker *w, bool gained)
{
	bool in = heap_has(&w->free), want = takes_something(c, w);
	if (want && !in) {
		heap_push(&w->pool->free, &w->free);
		c->n_free++;
		gained = true;
	} else if (!want && in) {
		heap_remove(&w->pool->free, &w->free);
		c->n_free--;
	} else if (in) {
		heap_update(&w->pool->free, &w->free);
	}
	if (want && gained && list_empty(&w->link_fresh))
		list_push_back(&c->fresh, &w->link_fresh);
}

bool worker_can_send(const struct worker *w, int64_t session)
{
	return w->peer && !w->opening && !worker_drains(w) && w->session == session;
}

/* A hello on its way is a sign of life too. */
static int64_t heard(const struct worker *w)
{
	int64_t at = w->heard;
	if (w->opening)
		at = max_i64(at, w->opening->heard);
	if (w->next)
		at = max_i64(at, w->next->heard);
	return at;
}

void worker_take_slot(struct core *c, struct worker *w, struct job *j)
{
	assert(!j->holds && j->worker == w);
	j->holds = true;
	w->used++;
	w->used_need.gpus += j->t.need.gpus;
	w->used_need.cpu_millis += j->t.need.cpu_millis;
	w->used_need.memory_bytes += j->t.need.memory_bytes;
	if (j->asks)
		stock_use(w->stock, w->n_stock, j->asks, 1);
	w->lease_at = min_i64(w->lease_at, heard(w) + j->lease_ns);
	worker_refresh(c, w, false);
}

void worker_free_slot(struct core *c, struct worker *w, struct job *j)
{
	assert(j->holds && j->worker == w);
	j->holds = false;
	w->used--;
	w->used_need.gpus -= j->t.need.gpus;
	w->used_need.cpu_millis -= j->t.need.cpu_millis;
	w->used_need.memory_bytes -= j->t.need.memory_bytes;
	if (j->asks)
		stock_use(w->stock, w->n_stock, j->asks, -1);
	assert(w->used >= 0);
	worker_refresh(c, w, true);
}

void worker_set_stock(struct core *c, struct worker *w, struct stock *s, size_t n)
{
	stock_free(c, w->stock, w->n_stock);
	w->stock = s;
	w->n_stock = n;
	list_each(it, &w->jobs) {
		const struct job *j = container_of(it, struct job, at_worker);
		if (j->holds && j->asks)
			stock_use(s, n, j->asks, 1);
	}
}

/* ---- life ---- */

struct worker *worker_find(const struct core *c, const char *id)
{
	struct map_node *n = map_get(&c->workers, id, strlen(id));
	return n ? container_of(n, struct worker, node) : NULL;
}

struct worker *worker_new(struct core *c, const char *id)
{
	struct worker *w = xcalloc(1, sizeof(*w));
	w->id = xstrdup(id);
	w->serial = ++c->serial;
	list_init(&w->jobs);
	list_init(&w->sent);
	list_init(&w->done);
	list_init(&w->link_fresh);
	list_init(&w->link_waiting);
	list_init(&w->link_dead);
	heap_node_init(&w->free);
	timer_init(&w->timer, TIMER_WORKER);
	w->heartbeat_ns = c->cfg.heartbeat_ns;
	w->lease_ns = c->cfg.lease_ttl_ns;
	w->heard = c->now;
	w->lease_at = c->now + w->lease_ns;
	w->grace_end = NEVER;
	map_put(&c->workers, &w->node, w->id, strlen(w->id));
	return w;
}

void worker_free(struct worker *w)
{
	assert(w->timer.at == NEVER);
	free(w->id);
	free(w);
}

/* Its id may come again. The memory goes at the start of the next step: effects still name it. */
void worker_maybe_forget(struct core *c, struct worker *w)
{
	if (w->peer || w->opening || w->next || w->n_jobs || !list_empty(&w->link_dead))
		return;
	if (w->session && c->now < w->heard + w->lease_ns)
		return;
	if (w->session) {
		struct core_effect *f = emit_worker(c, CORE_DO_WORKER_GONE, w);
		f->heard_ago_ns = c->now - w->heard;
	}
	worker_refresh(c, w, false);
	timer_set(c, &w->timer, NEVER);
	list_remove(&w->link_fresh);
	list_remove(&w->link_waiting);
	if (w->pool)
		pool_put(c, w->pool);
	w->pool = NULL;
	worker_set_stock(c, w, NULL, 0);
	map_remove(&c->workers, &w->node);
	list_push_back(&c->dead, &w->link_dead);
}

void worker_drop_peer(struct core *c, struct worker *w, bool close, enum core_close_code code)
{
	if (!w->peer)
		return;
	if (close)
		emit_close(c, w->peer, code);
	uint64_t gone = w->peer;
	w->peer = 0;
	c->n_connected--;
	peer_remove(c, gone);
	worker_refresh(c, w, false);
}

/* ---- leases ---- */

static bool runs_on_lease(const struct job *j)
{
	return j->state >= JOB_SENT && j->state != JOB_WAITING && !j->lost;
}

static int64_t lease_end(const struct worker *w, const struct job *j, int64_t from)
{
	int64_t end = from + j->lease_ns;
#ifdef REINS_MUTATION_EARLY_JUDGE /* tests/sim proves that it would notice */
	end -= j->lease_ns / 5;
#endif
#ifdef REINS_MUTATION_NO_DETACH /* tests/sim proves that it would notice */
	return end;
#endif
	return j->t.exclusive ? end : max_i64(end, w->detached_until);
}

/* When the next lease of this worker ends: its own, or that of an attempt. */
static void lease_next(struct core *c, struct worker *w)
{
	int64_t from = heard(w), own = from + w->lease_ns;
	w->lease_at = own > c->now ? own : NEVER;
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (runs_on_lease(j))
			w->lease_at = min_i64(w->lease_at, lease_end(w, j, from));
	}
}

void worker_heard(struct core *c, struct worker *w, int64_t at)
{
	w->heard = max_i64(w->heard, at);
	lease_next(c, w);
	/* One that ended while nobody could judge it is judged yet: else nothing ever forgets this worker. */
	w->lease_at = min_i64(w->lease_at, max_i64(heard(w) + w->lease_ns, c->now));
	worker_timer(c, w);
}

void worker_timer(struct core *c, struct worker *w)
{
	int64_t at = c->store_up ? min_i64(w->lease_at, w->grace_end) : NEVER;
	if (!list_empty(&w->sent))
		at = min_i64(at, container_of(w->sent.next, struct job, sent)->accept_by);
	if (w->hold_until > c->now)
		at = min_i64(at, w->hold_until);
	if (w->next && !c->store_up)
		at = min_i64(at, w->next->wait_until);
	timer_set(c, &w->timer, at);
}

/* Each attempt by its own lease, the worker by its session's. The stream is closed then, so that the worker comes
 * anew with its list. */
static void judge_leases(struct core *c, struct worker *w)
{
	int64_t from = heard(w);
	bool ended = c->now >= from + w->lease_ns;
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (runs_on_lease(j) && c->now >= lease_end(w, j, from)) {
			ended = true;
			job_input(c, j, IN_LOST, NULL);
		}
	}
	if (ended) {
		w->lapsed = true;
		worker_drop_peer(c, w, true, CORE_CLOSE_UNAVAILABLE);
	}
	lease_next(c, w);
}

static void judge_grace(struct core *c, struct worker *w)
{
	w->grace_end = NEVER;
	if (session_mass_end(c, w->gone_at))
		return;
	w->lapsed = true;
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (runs_on_lease(j) && !j->t.exclusive)
			job_input(c, j, IN_LOST, NULL);
	}
}

void worker_on_timer(struct core *c, struct worker *w)
{
	while (!list_empty(&w->sent)) {
		struct job *j = container_of(w->sent.next, struct job, sent);
		if (j->accept_by > c->now)
			break;
		job_input(c, j, IN_LATE, NULL);
	}
	if (!c->store_up && w->next && w->next->wait_until <= c->now)
		session_give_up(c, w);
	if (c->store_up && w->grace_end <= c->now)
		judge_grace(c, w);
	if (c->store_up && w->lease_at <= c->now)
		judge_leases(c, w);
	worker_refresh(c, w, false);
	worker_maybe_forget(c, w);
	if (list_empty(&w->link_dead))
		worker_timer(c, w);
}

/* Start-up grace: a master that could not have taken anything back for more than a tenth of a lease judges nobody by
 * that time. */
void worker_store_back(struct core *c, int64_t away_ns)
{
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		struct worker *w = container_of(n, struct worker, node);
		int64_t shortest = w->lease_ns;
#ifdef REINS_MUTATION_NO_START_GRACE /* tests/sim proves that it would notice */
		away_ns = 0;
#endif
		list_each(it, &w->jobs)
			shortest = min_i64(shortest, container_of(it, struct job, at_worker)->lease_ns);
		if (w->detached_until)
			w->detached_until += away_ns;
		/* What it said meanwhile nobody stored; and all of it lasts longer now. */
		if (w->detached_until > c->now)
			emit_worker(c, CORE_DO_DETACHED, w)->detach_ns = w->detached_until - c->now;
		worker_heard(c, w, away_ns > shortest / 10 ? c->now : w->heard);
	}
	for (struct map_node *n = map_first(&c->by_attempt); n; n = map_next(&c->by_attempt, n)) {
		struct job *j = container_of(n, struct job, node);
		if (j->state == JOB_WAITING) {
			if (away_ns > j->lease_ns / 10)
				j->heard = max_i64(j->heard, c->now);
			timer_set(c, &j->timer, j->heard + j->lease_ns);
		}
	}
}

void worker_stalled(struct core *c, int64_t ns)
{
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		struct worker *w = container_of(n, struct worker, node);
		if (w->opening)
			w->opening->heard += ns;
		if (w->grace_end != NEVER)
			w->grace_end += ns;
		if (w->detached_until)
			w->detached_until += ns;
		list_each(it, &w->sent)
			container_of(it, struct job, sent)->accept_by += ns;
		worker_heard(c, w, w->heard + ns);
	}
	for (struct map_node *n = map_first(&c->by_attempt); n; n = map_next(&c->by_attempt, n)) {
		struct job *j = container_of(n, struct job, node);
		if (j->state == JOB_WAITING) {
			j->heard += ns;
			timer_set(c, &j->timer, j->heard + j->lease_ns);
		}
	}
}
