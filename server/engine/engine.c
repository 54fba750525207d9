/* The turn: events are gathered, the core steps, effects are carried out, what both pointed to is freed.
 *
 * Owns the core, the operations in flight and the list of peers; relies on store and lease to answer
 * from the loop only. */
#include "server/engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "server/engine/engine_impl.h"

#define FREE_OPS_MAX 8192
#define PULSES_PER_BEAT 4

struct scratch {
	struct list node;
	max_align_t data[];
};

struct core_event *engine_event(struct engine *e, enum core_event_type type)
{
	e->events = xgrow(e->events, e->n_events, &e->cap_events, sizeof(*e->events));
	struct core_event *ev = &e->events[e->n_events++];
	memset(ev, 0, sizeof(*ev));
	ev->type = type;
	loop_mark(e->loop, &e->work);
	return ev;
}

void *engine_scratch_try(struct engine *e, size_t size)
{
	struct scratch *s = calloc(1, sizeof(*s) + size);
	if (!s)
		return NULL;
	list_push_back(&e->scratch, &s->node);
	return s->data;
}

void *engine_scratch(struct engine *e, size_t size)
{
	if (size == 0)
		return NULL;
	struct scratch *s = xcalloc(1, sizeof(*s) + size);
	list_push_back(&e->scratch, &s->node);
	return s->data;
}

struct eng_op *engine_op_new(struct engine *e, const struct core_effect *effect)
{
	struct list *n = list_pop_front(&e->free_ops);
	struct eng_op *op;
	if (n) {
		op = container_of(n, struct eng_op, node);
		e->n_free_ops--;
		memset(op, 0, sizeof(*op));
	} else {
		op = xcalloc(1, sizeof(*op));
	}
	op->engine = e;
	op->effect = *effect;
	if (effect->worker)
		snprintf(op->worker, sizeof(op->worker), "%s", effect->worker);
	list_push_back(&e->in_flight, &op->node);
	return op;
}

/* The answer is an event now; the operation's memory must last until the core has stepped. */
void engine_op_spent(struct eng_op *op)
{
	list_remove(&op->node);
	list_push_back(&op->engine->spent, &op->node);
}

static void free_spent(struct engine *e)
{
	struct list *n;
	while ((n = list_pop_front(&e->scratch)))
		free(container_of(n, struct scratch, node));
	while ((n = list_pop_front(&e->spent))) {
		struct eng_op *op = container_of(n, struct eng_op, node);
		enum core_effect_type of = op->effect.type;
		if (of != CORE_DO_PREEMPT && of != CORE_DO_ASK_HB && of != CORE_DO_KEYS)
			store_op_done_fields(&op->op);
		free(op->held);
		free(op->owners);
		blob_unref(op->info);
		free(op->words);
		if (e->n_free_ops < FREE_OPS_MAX) {
			list_push_back(&e->free_ops, &op->node);
			e->n_free_ops++;
		} else {
			free(op);
		}
	}
	while ((n = list_pop_front(&e->spent_outcomes))) {
		struct engine_outcome *o = container_of(n, struct engine_outcome, node);
		store_op_done_fields(&o->rec.op);
		o->done(o);
	}
	while ((n = list_pop_front(&e->spent_submits))) {
		struct engine_submit *s = container_of(n, struct engine_submit, node);
		s->done(s);
	}
}

/* The pulse is late by what the loop, or the process, stood still. */
static void note_stall(struct engine *e, int64_t now)
{
	int64_t late = now - e->pulse_due_mono_ns;
	if (late <= e->core_config.lease_ttl_ns / 10)
		return;
	log_warn("master", NULL, "the event loop stood still for %lld ms; leases are lengthened by that",
		 (long long)(late / NS_PER_MS));
	engine_event(e, CORE_EV_STALLED)->stalled_ns = late;
	e->stalls++;
	e->pulse_due_mono_ns = now;
}

static void step(struct engine *e)
{
	int64_t now = loop_now_mono_ns(e->loop);
	/* Before the pulse when it was between the turn's input and here: the time that the core is told must not be news. */
	note_stall(e, now);
	struct core_event *events = e->events;
	size_t n = e->n_events;
	core_step(e->core, now, events, n, &e->effects);
	e->n_events = 0;
	engine_execute(e);
	core_effects_clear(&e->effects);
	free_spent(e);

	int64_t next = core_next_deadline(e->core);
	if (next == INT64_MAX)
		loop_timer_stop(&e->deadline);
	else
		loop_timer_set(&e->deadline, next);
}

static void on_work(struct loop_dirty *d)
{
	step(container_of(d, struct engine, work));
}

static void on_deadline(struct loop_timer *t)
{
	struct engine *e = container_of(t, struct engine, deadline);
	loop_mark(e->loop, &e->work);
}

/* ---- this master's row ---- */

static void close_all(struct engine *e)
{
	e->opened = false;
	engine_tell_readiness(e);
	for (struct map_node *n = map_first(&e->peers), *next; n; n = next) {
		next = map_next(&e->peers, n);
		struct engine_peer *p = container_of(n, struct engine_peer, by_id);
		engine_peer_gone(e, p);
		p->ops->close(p, CORE_CLOSE_UNAVAILABLE);
	}
}

static void replaced(struct engine *e)
{
	log_error("master", NULL, "another process runs as master %s (a newer incarnation): ending all streams", e->master_id);
	e->replaced = true;
	close_all(e);
	e->on_replaced(e->arg);
}

/* Nobody serves until the row is this process's again. */
static void taken_over(struct engine *e)
{
	log_warn("master", NULL, "another master has taken over the sessions of this one, whose beat stood still: ending all "
		 "streams, to go on as the next incarnation");
	close_all(e);
	engine_event(e, CORE_EV_DEPOSED);
	engine_event(e, CORE_EV_STORE)->up = false;
}

/* Counted from when it was sent: whoever reads the row sees it no earlier. */
static void beat_committed(struct engine *e)
{
	engine_event(e, CORE_EV_BEAT)->beat_mono_ns = e->beat_sent_mono_ns;
}

static void open_master(struct engine *e);

static void on_beat(struct store_op *op)
{
	struct engine *e = container_of(op, struct engine, beat.op);
	e->beating = false;
	if (op->result != STORE_OK)
		return;
	if (e->beat.ret_replaced) {
		replaced(e);
	} else if (e->beat.ret_taken_over) {
		taken_over(e);
		open_master(e);
	} else {
		beat_committed(e);
	}
}

static void on_master_open(struct store_op *op)
{
	struct engine *e = container_of(op, struct engine, master_open.op);
	e->opening = false;
	if (op->result != STORE_OK)
		return;
	if (e->master_open.ret_replaced) {
		replaced(e);
		return;
	}
	beat_committed(e);
	e->incarnation = e->master_open.ret_incarnation;
	snprintf(e->store_id, sizeof(e->store_id), "%s", e->master_open.ret_store_id);
	e->opened = true;
	engine_tell_readiness(e);
	log_info("master", NULL, "ready master=%s incarnation=%lld store=%s", e->master_id, (long long)e->incarnation,
		 e->store_id);
	if (e->store_state.state.up) /* else it is told when the store is back */
		engine_event(e, CORE_EV_STORE)->up = true;
}

static void open_master(struct engine *e)
{
	if (e->opening || e->opened || e->replaced || !e->store_state.state.up)
		return;
	e->opening = true;
	memset(&e->master_open, 0, sizeof(e->master_open));
	e->master_open.op.kind = STORE_MASTER_OPEN;
	e->master_open.op.done = on_master_open;
	e->master_open.master = e->master_id;
	e->master_open.process = e->process;
	e->master_open.again = e->incarnation > 0;
	e->beat_sent_mono_ns = loop_now_mono_ns(e->loop);
	store_submit(e->store, &e->master_open.op);
}

static void beat(struct engine *e)
{
	if (!e->opened || !e->store_state.state.up || e->beating)
		return;
	int64_t now = loop_now_mono_ns(e->loop);
	e->beating = true;
	memset(&e->beat, 0, sizeof(e->beat));
	e->beat.op.kind = STORE_BEAT;
	e->beat.op.done = on_beat;
	e->beat.master = e->master_id;
	e->beat.incarnation = e->incarnation;
	e->beat.process = e->process;
	e->beat_sent_mono_ns = now;
	e->next_beat_mono_ns = now + e->core_config.heartbeat_ns;
	store_submit(e->store, &e->beat.op);
}

static void on_pulse(struct loop_timer *t)
{
	struct engine *e = container_of(t, struct engine, pulse);
	int64_t now = loop_now_mono_ns(e->loop);
	note_stall(e, now);
	dependency_tell(&e->store_state, now);
	dependency_tell(&e->lease_state, now);
	open_master(e);
	engine_drain_pulse(e);
	if (now >= e->next_beat_mono_ns)
		beat(e);
	e->pulse_due_mono_ns = now + e->core_config.heartbeat_ns / PULSES_PER_BEAT;
	loop_timer_set(&e->pulse, e->pulse_due_mono_ns);
}

void engine_on_store_state(struct engine *e, bool up, const char *text)
{
	dependency_set(&e->store_state, up, text, loop_now_mono_ns(e->loop));
	engine_tell_readiness(e);
	if (!up) {
		engine_event(e, CORE_EV_STORE)->up = false;
	} else if (e->opened) {
		engine_event(e, CORE_EV_STORE)->up = true;
		beat(e); /* after a long time without one: it may be another's turn */
	} else {
		open_master(e);
	}
}

void engine_on_lease_state(struct engine *e, bool up, const char *text)
{
	dependency_set(&e->lease_state, up, text, loop_now_mono_ns(e->loop));
	engine_event(e, CORE_EV_LEASE)->up = up;
}

static void on_lease_state(void *arg, bool up, const char *text)
{
	engine_on_lease_state(arg, up, text);
}

const struct lease_events engine_lease_events = {
	.on_preempted = engine_on_preempted,
	.on_hb = engine_on_hb,
	.on_page = engine_on_page,
	.on_state = on_lease_state,
};

/* ---- life ---- */

int engine_new(const struct engine_config *cfg, struct engine **ret)
{
	struct engine *e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->loop = cfg->loop;
	e->core_config = cfg->core;
	e->store = cfg->store;
	e->lease = cfg->lease;
	e->lost_limit = cfg->lost_limit;
	e->on_replaced = cfg->on_replaced;
	e->arg = cfg->arg;
	snprintf(e->master_id, sizeof(e->master_id), "%s", cfg->master_id);
	if (getrandom(e->process.b, sizeof(e->process.b), 0) != (ssize_t)sizeof(e->process.b))
		abort(); /* so few bytes never come short */
	struct list *lists[] = { &e->scratch, &e->in_flight, &e->spent, &e->free_ops, &e->fresh_outcomes, &e->recording,
				 &e->spent_outcomes, &e->submits, &e->spent_submits, &e->dirty_peers, &e->pausing };
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
	map_init(&e->peers);
	map_init(&e->waiting);
	core_effects_init(&e->effects);
	int64_t now = loop_now_mono_ns(e->loop);
	e->core = core_new(&e->core_config, now);
	if (!e->core) {
		free(e);
		return -ENOMEM;
	}
	dependency_init(&e->store_state, "store", "", now);
	dependency_init(&e->lease_state, "lease", ", going on without", now);
	loop_dirty_init(&e->work, LOOP_WORK, on_work);
	loop_timer_init(&e->deadline, e->loop, on_deadline);
	loop_timer_init(&e->pulse, e->loop, on_pulse);
	e->pulse_due_mono_ns = now;
	loop_timer_set(&e->pulse, now);
	/* Until the store has taken us in; else the core's first questions are lost and asked again only by the reconciler. */
	engine_event(e, CORE_EV_STORE)->up = false;
	loop_mark(e->loop, &e->work);
	*ret = e;
	return 0;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	loop_unmark(&e->work);
	loop_timer_stop(&e->deadline);
	loop_timer_stop(&e->pulse);
	/* What the core was still to be told, or held back for an answer of the lease table. */
	list_splice_back(&e->spent_submits, &e->submits);
	list_splice_back(&e->spent_outcomes, &e->fresh_outcomes);
	free_spent(e);
	engine_pause_end(e);
	struct list *n;
	while ((n = list_pop_front(&e->free_ops)))
		free(container_of(n, struct eng_op, node));
	/* The store answered its own when it was freed; the lease table doesn't. */
	while ((n = list_pop_front(&e->in_flight))) {
		struct eng_op *op = container_of(n, struct eng_op, node);
		free(op->held);
		free(op->owners);
		blob_unref(op->info);
		free(op->words);
		free(op);
	}
	core_effects_done(&e->effects);
	core_free(e->core);
	for (struct map_node *m = map_first(&e->waiting), *next; m; m = next) {
		next = map_next(&e->waiting, m);
		struct wait_head *h = container_of(m, struct wait_head, by_task);
		struct list *w;
		while ((w = list_pop_front(&h->waiters)))
			container_of(w, struct engine_waiter, node)->head = NULL;
		map_remove(&e->waiting, m);
		free(h);
	}
	map_done(&e->waiting);
	map_done(&e->peers);
	free(e->events);
	free(e);
}

struct store *engine_store(const struct engine *e) { return e->store; }
struct core *engine_core(const struct engine *e) { return e->core; }
const char *engine_master_id(const struct engine *e) { return e->master_id; }
const struct core_config *engine_core_config(const struct engine *e) { return &e->core_config; }
const char *engine_store_id(const struct engine *e) { return e->store_id; }
int64_t engine_incarnation(const struct engine *e) { return e->incarnation; }
bool engine_ready(const struct engine *e) { return e->opened && e->store_state.state.up; }
void engine_on_readiness(struct engine *e, void (*changed)(void *arg), void *arg)
{
	e->on_readiness = changed;
	e->readiness_arg = arg;
	e->told_ready = engine_ready(e);
}

void engine_tell_readiness(struct engine *e)
{
	bool ready = engine_ready(e);
	if (ready == e->told_ready || !e->on_readiness)
		return;
	e->told_ready = ready;
	e->on_readiness(e->readiness_arg);
}

bool engine_holds_sessions(const struct engine *e) { return e->opened; }
bool engine_lease_up(const struct engine *e) { return e->lease_state.state.up; }
const struct availability *engine_store_state(const struct engine *e) { return &e->store_state.state; }
const struct availability *engine_lease_state(const struct engine *e) { return &e->lease_state.state; }
int64_t engine_stalls(const struct engine *e) { return e->stalls; }
const struct engine_stats *engine_stats(const struct engine *e) { return &e->stats; }

const char *engine_not_ready(const struct engine *e)
{
	if (engine_ready(e))
		return NULL;
	if (!e->store_state.state.up)
		return e->store_state.state.text;
	return e->replaced ? "another process runs under this master's id, and is the newer one"
			   : "the store is there, and has not taken this master in yet";
}

/* ---- waiters ---- */

/* Stands for the head of a waiter that is being woken: its own may be gone already. */
static struct wait_head woken_head;

void engine_wait(struct engine *e, struct engine_waiter *w, const struct uuid *task)
{
	struct map_node *n = map_get(&e->waiting, task, sizeof(*task));
	struct wait_head *h;
	if (n) {
		h = container_of(n, struct wait_head, by_task);
	} else {
		h = xcalloc(1, sizeof(*h));
		h->task = *task;
		list_init(&h->waiters);
		map_put(&e->waiting, &h->by_task, &h->task, sizeof(h->task));
	}
	w->engine = e;
	w->head = h;
	list_push_back(&h->waiters, &w->node);
}

static void drop_if_empty(struct engine *e, struct wait_head *h)
{
	if (!list_empty(&h->waiters))
		return;
	map_remove(&e->waiting, &h->by_task);
	free(h);
}

void engine_unwait(struct engine_waiter *w)
{
	if (!w->head)
		return;
	list_remove(&w->node);
	if (w->head != &woken_head)
		drop_if_empty(w->engine, w->head);
	w->head = NULL;
}

void engine_news(struct engine *e, const struct uuid *task, bool only_log)
{
	struct map_node *n = map_get(&e->waiting, task, sizeof(*task));
	if (!n)
		return;
	struct wait_head *h = container_of(n, struct wait_head, by_task);
	struct list woken;
	list_init(&woken);
	list_each(it, &h->waiters) {
		struct engine_waiter *w = container_of(it, struct engine_waiter, node);
		if (only_log && !w->log)
			continue;
		list_remove(&w->node);
		list_push_back(&woken, &w->node);
		w->head = &woken_head;
	}
	drop_if_empty(e, h);
	struct list *it;
	while ((it = list_pop_front(&woken))) {
		struct engine_waiter *w = container_of(it, struct engine_waiter, node);
		w->head = NULL;
		w->wake(w);
	}
}
