/* The window of ready tasks, and the pick.
 *
 * Order: the queue whose best task has the highest priority; within one priority the queues take turns; within a
 * queue by priority, then seq.  Tasks of one queue that ask for the same form a class.  A class that nobody fits is
 * parked until a worker gains something that fits it, so that it costs nothing meanwhile.  A task that its worker
 * refused a moment ago, and that only this worker fits, rests alone. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

#define PICK_BUDGET 65536   /* workers looked at in one step, so that a step stays short; more than there can be */
#define CLAIM_BYTES (64 * 1024 * 1024) /* of specs that the store hands over at a time, about */
#define SPARE_CLASSES 16    /* empty classes that a queue keeps */
#define UNPARK_BUDGET 65536 /* parked classes looked at in one step, about: there may be as many as tasks */
#define FRESH_MAX 8         /* workers looked at one by one; more: all parked classes are tried again */

static struct row_key key_of(const struct job *j) { return (struct row_key){ j->t.priority, j->t.seq }; }

static struct job *best_of(const struct class *k)
{
	return container_of(heap_top(&k->jobs), struct job, best);
}

static struct job *head_of(const struct queue *q)
{
	return best_of(container_of(heap_top(&q->classes), struct class, order));
}

static bool best_less(const struct heap_node *a, const struct heap_node *b)
{
	return key_before(key_of(container_of(a, struct job, best)), key_of(container_of(b, struct job, best)));
}

bool worst_less(const struct heap_node *a, const struct heap_node *b)
{
	return key_before(key_of(container_of(b, struct job, worst)), key_of(container_of(a, struct job, worst)));
}

bool class_less(const struct heap_node *a, const struct heap_node *b)
{
	return best_less(&best_of(container_of(a, struct class, order))->best,
			 &best_of(container_of(b, struct class, order))->best);
}

bool order_less(const struct heap_node *a, const struct heap_node *b)
{
	const struct queue *x = container_of(a, struct queue, order), *y = container_of(b, struct queue, order);
	int32_t p = head_of(x)->t.priority, r = head_of(y)->t.priority;
	return p != r ? p > r : x->turn < y->turn;
}

/* ---- indexes ---- */

void window_order(struct core *c, struct queue *q)
{
	if (!q->classes.len || !queue_gives(q))
		heap_remove(&c->order, &q->order);
	else if (heap_has(&q->order))
		heap_update(&c->order, &q->order);
	else
		heap_push(&c->order, &q->order);
}

static bool parked(const struct class *k) { return !list_empty(&k->link_parked); }

/* Before the last job leaves, a class must be out of the heap that compares by its best job. */
static void class_out(struct core *c, struct class *k)
{
	struct queue *q = k->queue;
	if (heap_has(&k->order)) {
		heap_remove(&q->classes, &k->order);
		window_order(c, q);
	}
	list_remove(&k->link_parked);
	if (list_empty(&q->parked))
		list_remove(&q->link_parked);
}

static void class_in(struct core *c, struct class *k)
{
	if (heap_has(&k->order))
		heap_update(&k->queue->classes, &k->order);
	else
		heap_push(&k->queue->classes, &k->order);
	window_order(c, k->queue);
}

static void class_park(struct core *c, struct class *k)
{
	class_out(c, k);
	list_push_back(&k->queue->parked, &k->link_parked);
	if (list_empty(&k->queue->link_parked))
		list_push_back(&c->parked, &k->queue->link_parked);
}

static struct class *class_get(struct core *c, struct job *j)
{
	struct class_key key;
	memset(&key, 0, sizeof(key));
	key.queue = j->queue;
	key.want.need.memory_bytes = j->t.need.memory_bytes;
	key.want.need.cpu_millis = j->t.need.cpu_millis;
	key.want.need.gpus = j->t.need.gpus;
	key.want.exclusive = j->t.exclusive;
	key.want.asks = j->asks;
	struct map_node *n = map_get(&c->classes, &key, sizeof(key));
	if (n)
		return container_of(n, struct class, node);
	struct class *k = xcalloc(1, sizeof(*k));
	k->key = key;
	asks_ref(c, j->asks);
	k->queue = j->queue;
	heap_init(&k->jobs, best_less);
	heap_node_init(&k->order);
	list_init(&k->link_parked);
	list_push_back(&j->queue->class_list, &k->link);
	j->queue->n_classes++;
	map_put(&c->classes, &k->node, &k->key, sizeof(k->key));
	return k;
}

static void class_maybe_free(struct core *c, struct class *k)
{
	bool spare = k->queue->n_classes <= SPARE_CLASSES && (!k->key.want.asks || c->asks.len <= ASKS_SPARE);
	if (k->jobs.len || spare)
		return;
	map_remove(&c->classes, &k->node);
	list_remove(&k->link);
	k->queue->n_classes--;
	asks_put(c, k->key.want.asks);
	heap_done(&k->jobs);
	free(k);
}

static void enlist(struct core *c, struct job *j)
{
	struct class *k = class_get(c, j);
	j->class = k;
	bool was_parked = parked(k);
	heap_push(&k->jobs, &j->best);
	if (!was_parked)
		class_in(c, k);
}

static void delist(struct core *c, struct job *j)
{
	struct class *k = j->class;
	if (!k)
		return;
	j->class = NULL;
	bool was_parked = parked(k);
	if (k->jobs.len == 1) {
		class_out(c, k);
		heap_remove(&k->jobs, &j->best);
		class_maybe_free(c, k);
		return;
	}
	heap_remove(&k->jobs, &j->best);
	if (!was_parked)
		class_in(c, k);
}

void window_remove(struct core *c, struct job *j)
{
	struct queue *q = j->queue;
	if (!j->class) {
		timer_set(c, &j->timer, NEVER);
		c->n_resting--;
	}
	delist(c, j);
	heap_remove(&q->worst, &j->worst);
	q->n_ready--;
	c->n_ready--;
	if (q->n_ready == 0) {
		list_remove(&q->link_active);
		c->n_active--;
	}
	queue_check(c, q);
}

static void rest(struct core *c, struct job *j)
{
	delist(c, j);
	c->n_resting++;
	timer_set(c, &j->timer, j->avoid.until);
}

void window_wake(struct core *c, struct job *j)
{
	c->n_resting--;
	enlist(c, j);
}

/* ---- room ---- */

static void unread_from(struct queue *q, struct row_key key)
{
	struct row_key before = { key.priority, key.seq - 1 };
	if (key_before(before, q->cursor))
		q->cursor = before;
	q->fill_stale = true;
}

static void evict_worst(struct core *c, struct queue *q)
{
	struct job *j = container_of(heap_top(&q->worst), struct job, worst);
	unread_from(q, key_of(j));
	job_free(c, j);
}

/* Room for one row of `q` at `key`; the window never holds more than its limit, a queue little more than its share. */
static bool room(struct core *c, struct queue *q, struct row_key key)
{
	size_t share = queue_share(c);
	if (q->n_ready >= share) {
		if (key_before(key_of(container_of(heap_top(&q->worst), struct job, worst)), key))
			return false;
		evict_worst(c, q);
	}
	for (size_t i = c->n_active; c->n_ready >= (size_t)c->cfg.window && i > 0; i--) {
		struct queue *other = container_of(list_pop_front(&c->active), struct queue, link_active);
		list_push_back(&c->active, &other->link_active);
		/* An eighth of what is above the share: what goes must be read again later. */
		if (other->n_ready > share)
			for (size_t n = 1 + (other->n_ready - share) / 8; n > 0; n--)
				evict_worst(c, other);
	}
	return c->n_ready < (size_t)c->cfg.window;
}

bool window_offer(struct core *c, const struct core_task *t, const struct avoid *avoid)
{
	struct queue *q = queue_get(c, t->queue);
	if (!q)
		return false;
	struct job *known = job_by_task(c, &t->id);
	if (known) {
		if (known->state != JOB_READY) {
			known->again = true;
			known->again_row = *t;
			known->again_row.queue = q->name;
			known->again_row.handler = known->t.handler;
			known->again_row.custom = known->t.custom;
		}
		known->pass = q->pass;
		return true;
	}
	/* Read before this master's own claim of it. */
	if (job_by_attempt(c, (struct core_attempt){ t->id, t->attempt + 1 }))
		return true;
	struct row_key key = { t->priority, t->seq };
	if (key_before(q->cursor, key)) {
		q->fill_stale = true;
		queue_check(c, q);
		return false;
	}
	if (!room(c, q, key)) {
		unread_from(q, key);
		queue_check(c, q);
		return false;
	}
	struct job *j = job_new(c, t, q);
	j->pass = q->pass;
	if (avoid)
		j->avoid = *avoid;
	heap_push(&q->worst, &j->worst);
	if (q->n_ready++ == 0) {
		list_push_back(&c->active, &q->link_active);
		c->n_active++;
	}
	c->n_ready++;
	enlist(c, j);
	return true;
}

/* ---- pick ---- */

static size_t in_flight(const struct core *c)
{
	return c->n_state[JOB_PREEMPTING] + c->n_state[JOB_INSERTING] + c->n_state[JOB_CLAIMING];
}

static void unpark(struct core *c, struct queue *q, const struct worker *w)
{
	list_each(it, &q->parked) {
		struct class *k = container_of(it, struct class, link_parked);
		c->unpark_budget--;
		if (w && !worker_fits(w, &k->key.want))
			continue;
		list_remove(it);
		class_in(c, k);
	}
	if (list_empty(&q->parked))
		list_remove(&q->link_parked);
}

/* Workers gained something: classes that they fit are tried again. */
static void unpark_fresh(struct core *c)
{
	struct list *n;
	for (int i = 0; c->unpark_budget > 0 && (n = list_pop_front(&c->fresh)); i++) {
		const struct worker *w = container_of(n, struct worker, link_fresh);
		if (list_empty(&c->parked) || !heap_has(&w->free))
			continue;
		list_each(it, &c->parked) {
			struct queue *q = container_of(it, struct queue, link_parked);
			if (i == FRESH_MAX)
				unpark(c, q, NULL);
			else if (pool_serves(w->pool, q))
				unpark(c, q, w);
		}
	}
}

/* A claim brings the spec into memory; how large it is shows only then. */
static bool may_give(const struct core *c)
{
	/* Which queues are paused comes with the first answer to QUEUES. */
	return c->store_up && c->queues_known && c->n_free > 0 && c->pause.at == NEVER &&
	       in_flight(c) < (size_t)c->cfg.in_flight_claims && in_flight(c) * c->spec_guess < CLAIM_BYTES;
}

void window_pick(struct core *c)
{
	int64_t budget = PICK_BUDGET;
	c->again = false;
	unpark_fresh(c);
	c->again |= !list_empty(&c->fresh);
	/* of the next step */
	c->eager_budget = PICK_BUDGET;
	c->unpark_budget = UNPARK_BUDGET;
	while (may_give(c) && c->order.len) {
		struct queue *q = container_of(heap_top(&c->order), struct queue, order);
		struct class *k = container_of(heap_top(&q->classes), struct class, order);
		struct job *j = best_of(k);
		bool resting = j->avoid.until > c->now;
		if (resting && j->avoid.refused > 1) {
			rest(c, j);
			continue;
		}
		uint64_t avoid = resting ? j->avoid.worker : 0;
		struct worker *w = worker_match(c, q, &k->key.want, avoid, &budget);
		if (!w && budget <= 0) {
			c->again = true;
			break;
		}
		if (!w) {
			if (avoid)
				rest(c, j);
			else
				class_park(c, k);
			continue;
		}
		window_remove(c, j);
		q->turn = ++c->turn;
		window_order(c, q);
		job_reserve(c, j, w);
	}
}

/* A submit goes straight to an idle worker only where it overtakes nobody. */
static struct worker *eager_match(struct core *c, const struct core_event *ev, struct queue *q, struct asks *asks)
{
	const struct core_task *t = &ev->task;
	if (ev->due_in_ns > 0 || !queue_gives(q) || !may_give(c) || c->eager_budget <= 0 || job_by_task(c, &t->id))
		return NULL;
	bool unread = key_before(q->cursor, KEY_END);
	if (unread && q->cursor.priority >= t->priority)
		return NULL;
	unpark_fresh(c);
	if (!list_empty(&c->fresh))
		return NULL;
	if (c->order.len && head_of(container_of(heap_top(&c->order), struct queue, order))->t.priority >= t->priority)
		return NULL;
	struct want want = { .need = t->need, .exclusive = t->exclusive, .asks = asks };
	return worker_match(c, q, &want, 0, &c->eager_budget);
}

void window_submit(struct core *c, const struct core_event *ev)
{
	struct queue *q = queue_get(c, ev->task.queue);
	struct asks *asks = asks_get(c, ev->task.handler, ev->task.custom);
	struct worker *w = q ? eager_match(c, ev, q, asks) : NULL;
	if (!w) {
		asks_put(c, asks);
		struct core_effect *f = emit(c, CORE_DO_INSERT);
		f->token = ev->token;
		f->at.task = ev->task.id;
		return;
	}
	struct job *j = job_new(c, &ev->task, q);
	asks_put(c, asks); /* the job has one */
	j->token = ev->token;
	j->spec = blob_ref(ev->spec);
	q->turn = ++c->turn;
	window_order(c, q);
	job_reserve(c, j, w);
}
