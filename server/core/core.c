/* The step: events in order, then timers, then what fits is given out, then the backlog is read on.
 * Owns the core's life, the table of events and the timers; decides nothing itself. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

/* Before any spec was seen: neither as if all were empty, nor as if all were the largest. */
#define SPEC_GUESS_FIRST (64 * 1024)

void core_config_default(struct core_config *cfg)
{
	*cfg = (struct core_config){
		.heartbeat_ns = 2 * NS_PER_S,
		.lease_ttl_ns = 10 * NS_PER_S,
		.heartbeat_rate = 1000,
		.accept_timeout_ns = 5 * NS_PER_S,
		.disconnect_grace_ns = 1 * NS_PER_S,
		.reconcile_ns = 2 * NS_PER_S,
		.recovery_ns = 5 * NS_PER_S,
		.master_ttl_ns = 30 * NS_PER_S,
		.master_ttl_exclusive_ns = 120 * NS_PER_S,
		.max_workers = 10000,
		.max_queues = 10000,
		.window = 20000,
		.fill = 500,
		.max_held = 10000,
		.in_flight_claims = 4096,
		.seed = 1,
	};
}

/* ---- timers ---- */

static bool timer_less(const struct heap_node *a, const struct heap_node *b)
{
	return container_of(a, struct timer, node)->at < container_of(b, struct timer, node)->at;
}

void timer_init(struct timer *t, enum timer_kind kind)
{
	heap_node_init(&t->node);
	t->at = NEVER;
	t->kind = kind;
}

void timer_set(struct core *c, struct timer *t, int64_t at)
{
	if (t->at == at)
		return;
	t->at = at;
	if (at == NEVER)
		heap_remove(&c->timers, &t->node);
	else if (heap_has(&t->node))
		heap_update(&c->timers, &t->node);
	else
		heap_push(&c->timers, &t->node);
}

static void on_timer(struct core *c, struct timer *t)
{
	timer_set(c, t, NEVER);
	switch (t->kind) {
	case TIMER_WORKER:
		worker_on_timer(c, container_of(t, struct worker, timer));
		break;
	case TIMER_JOB: {
		struct job *j = container_of(t, struct job, timer);
		if (j->state == JOB_READY)
			window_wake(c, j);
		else if (c->store_up) /* otherwise judged when the store is back */
			job_input(c, j, IN_LOST, NULL);
		break;
	}
	case TIMER_RECONCILE:
		timer_set(c, &c->reconcile, c->now + c->cfg.reconcile_ns);
		queue_reconcile(c);
		job_retry_take_backs(c);
		break;
	case TIMER_DUE:
		queue_ask_due(c);
		break;
	case TIMER_EXPIRE:
		queue_ask_expire(c);
		break;
	case TIMER_PAUSE:
		break;
	case TIMER_RECOVERY:
		recovery_on_timer(c);
		break;
	case TIMER_KEYS:
		keys_on_timer(c);
		break;
	}
}

static void run_timers(struct core *c)
{
	struct heap_node *top;
	while ((top = heap_top(&c->timers))) {
		struct timer *t = container_of(top, struct timer, node);
		if (t->at > c->now)
			break;
		on_timer(c, t);
	}
}

/* ---- events ---- */

static void on_ready(struct core *c, const struct core_event *ev)
{
	if (ev->due_in_ns > 0) {
		queue_due_in(c, ev->due_in_ns);
		return;
	}
	for (size_t i = 0; i < ev->ready.n; i++)
		window_offer(c, &ev->ready.at[i], NULL);
	if (ev->expires_in_ns > 0)
		queue_expires_in(c, ev->expires_in_ns);
}

static void on_store(struct core *c, const struct core_event *ev)
{
	if (c->store_up == ev->up)
		return;
	c->store_up = ev->up;
	if (!ev->up) {
		c->store_down_at = c->now;
		return;
	}
	worker_store_back(c, c->now - c->store_down_at);
	session_store_back(c);
	recovery_store_back(c, c->now - c->store_down_at);
	keys_expect(c);
	job_retry_take_backs(c);
	timer_set(c, &c->reconcile, c->now);
}

static void on_lease(struct core *c, const struct core_event *ev)
{
	/* Nothing waits for the lease table: preempts are answered DOWN while it is away, and the next heartbeat of
	 * each worker writes its keys anew when it is back.  Releases of that time are lost. */
	c->lease_up = ev->up;
	if (ev->up)
		keys_expect(c);
}

static void on_stalled(struct core *c, const struct core_event *ev)
{
	worker_stalled(c, ev->stalled_ns);
	recovery_stalled(c, ev->stalled_ns);
}

static void on_beat(struct core *c, const struct core_event *ev)
{
	c->beat_at = max_i64(c->beat_at, ev->beat_mono_ns);
	recovery_on_beat(c);
}

static void on_time(struct core *c, const struct core_event *ev)
{
}

static void (*const on_event[])(struct core *, const struct core_event *) = {
	[CORE_EV_SUBMIT] = window_submit,
	[CORE_EV_INSERTED] = job_on_inserted,
	[CORE_EV_READY] = on_ready,
	[CORE_EV_GONE] = job_on_at,
	[CORE_EV_HELLO] = session_on_hello,
	[CORE_EV_SESSION_OPENED] = session_on_opened,
	[CORE_EV_HEARTBEAT] = session_on_heartbeat,
	[CORE_EV_ACCEPTED] = job_on_at,
	[CORE_EV_REFUSED] = job_on_at,
	[CORE_EV_OUTCOME] = job_on_outcome,
	[CORE_EV_RECORDED] = job_on_recorded,
	[CORE_EV_DRAINING] = session_on_draining,
	[CORE_EV_DRAIN_WISH] = session_on_drain_wish,
	[CORE_EV_PEER_GONE] = session_on_peer_gone,
	[CORE_EV_PREEMPTED] = job_on_at,
	[CORE_EV_CLAIMED] = job_on_at,
	[CORE_EV_TAKEN_BACK] = job_on_taken_back,
	[CORE_EV_CANCEL_WISH] = job_on_at,
	[CORE_EV_QUEUES] = queue_on_queues,
	[CORE_EV_PAUSE] = pause_on_pause,
	[CORE_EV_FILLED] = queue_on_filled,
	[CORE_EV_DUE] = queue_on_due,
	[CORE_EV_EXPIRED] = queue_on_expired,
	[CORE_EV_STRAYS] = recovery_on_strays,
	[CORE_EV_HB] = recovery_on_hb,
	[CORE_EV_TOOK_OVER] = recovery_on_took_over,
	[CORE_EV_BEAT] = on_beat,
	[CORE_EV_DEPOSED] = session_on_deposed,
	[CORE_EV_KEYS] = keys_on_page,
	[CORE_EV_RUNS] = keys_on_runs,
	[CORE_EV_STORE] = on_store,
	[CORE_EV_LEASE] = on_lease,
	[CORE_EV_STALLED] = on_stalled,
	[CORE_EV_TIME] = on_time,
};

static void free_dead(struct core *c)
{
	struct list *n;
	while ((n = list_pop_front(&c->dead)))
		worker_free(container_of(n, struct worker, link_dead));
}

void core_step(struct core *c, int64_t now_mono_ns, const struct core_event *ev, size_t n, struct core_effects *out)
{
	core_effects_clear(out);
	free_dead(c);
	asks_free_idle(c);
	c->out = out;
	c->step++;
	if (now_mono_ns > c->now)
		c->now = now_mono_ns;
	for (size_t i = 0; i < n; i++) {
		assert((size_t)ev[i].type < ARRAY_LEN(on_event));
		on_event[ev[i].type](c, &ev[i]);
	}
	run_timers(c);
	window_pick(c);
	queue_fill_checked(c);
	pause_tell(c);
	c->out = NULL;
}

int64_t core_next_deadline(const struct core *c)
{
	if (c->again)
		return c->now;
	const struct heap_node *top = heap_top(&c->timers);
	return top ? container_of(top, struct timer, node)->at : INT64_MAX;
}

/* ---- life ---- */

struct core *core_new(const struct core_config *cfg, int64_t now_mono_ns)
{
	struct core *c = xcalloc(1, sizeof(*c));
	c->cfg = *cfg;
	c->now = now_mono_ns;
	c->store_up = c->lease_up = true;
	c->beat_at = now_mono_ns;
	rng_seed(&c->rng, cfg->seed);
	c->spec_guess = SPEC_GUESS_FIRST;
	heap_init(&c->timers, timer_less);
	timer_init(&c->reconcile, TIMER_RECONCILE);
	reminder_init(&c->due, TIMER_DUE);
	reminder_init(&c->expire, TIMER_EXPIRE);
	timer_init(&c->pause, TIMER_PAUSE);
	struct map *const maps[] = { &c->queues, &c->classes, &c->by_task, &c->by_attempt, &c->workers, &c->peers,
				     &c->pools, &c->names, &c->asks };
	for (size_t i = 0; i < ARRAY_LEN(maps); i++)
		map_init(maps[i]);
	heap_init(&c->order, order_less);
	struct list *const lists[] = { &c->active, &c->parked, &c->check, &c->retry, &c->pools_all, &c->fresh, &c->waiting, &c->dead,
				       &c->idle_asks, &c->paused, &c->pausing };
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
	timer_set(c, &c->reconcile, now_mono_ns);
	recovery_init(c);
	keys_init(c);
	return c;
}

static void free_jobs(struct core *c, struct map *m)
{
	for (struct map_node *n = map_first(m), *next; n; n = next) {
		next = map_next(m, n);
		job_free(c, container_of(n, struct job, node));
	}
}

void core_free(struct core *c)
{
	if (!c)
		return;
	struct core_effects scratch;
	core_effects_init(&scratch);
	c->out = &scratch;
	free_jobs(c, &c->by_task);
	free_jobs(c, &c->by_attempt);
	for (struct map_node *n = map_first(&c->peers), *next; n; n = next) {
		next = map_next(&c->peers, n);
		free(container_of(n, struct peer, node));
	}
	for (struct map_node *n = map_first(&c->workers), *next; n; n = next) {
		next = map_next(&c->workers, n);
		struct worker *w = container_of(n, struct worker, node);
		timer_set(c, &w->timer, NEVER);
		hello_free(c, w->opening);
		hello_free(c, w->next);
		w->opening = w->next = NULL;
		w->peer = 0;
		worker_refresh(c, w, false);
		if (w->pool)
			pool_put(c, w->pool);
		worker_set_stock(c, w, NULL, 0);
		list_remove(&w->link_fresh);
		list_remove(&w->link_waiting);
		worker_free(w);
	}
	free_dead(c);
	for (struct map_node *n = map_first(&c->queues), *next; n; n = next) {
		next = map_next(&c->queues, n);
		queue_free(c, container_of(n, struct queue, node));
	}
	asks_free_idle(c);
	recovery_done(c);
	map_done(&c->queues);
	map_done(&c->classes);
	map_done(&c->asks);
	map_done(&c->names);
	map_done(&c->by_task);
	map_done(&c->by_attempt);
	map_done(&c->workers);
	map_done(&c->peers);
	map_done(&c->pools);
	heap_done(&c->order);
	heap_done(&c->timers);
	core_effects_done(&scratch);
	free(c);
}
