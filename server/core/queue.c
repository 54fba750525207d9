/* Queues: their names, and how the window follows the backlog in the store.
 *
 * Each queue has a cursor in the order (priority descending, seq ascending).  Rows up to the cursor are in the window
 * or on their way through this master; rows after it are unread.  A row that there is no room for, or that is put
 * out of the window for another, moves the cursor back to just before it.
 *
 * Rows up to the cursor are read again, pass after pass: some that nobody told us of come in, and of the window those go
 * that another master gave out or ended.  Else what nobody here can run would hold its place for ever. */
#include "server/core/internal.h"

#include <string.h>

#define SWEEPS_MAX 100 /* queues swept per reconcile though the window holds rows of theirs */

static struct queue *from_check(struct list *n) { return container_of(n, struct queue, link_check); }

struct queue *queue_get(struct core *c, const char *name)
{
	size_t len = strlen(name);
	struct map_node *n = map_get(&c->queues, name, len);
	if (n)
		return container_of(n, struct queue, node);
	/* Names come from clients and workers: without a limit they fill the memory. */
	if (c->queues.len >= (size_t)c->cfg.max_queues || len > CORE_NAME_MAX)
		return NULL;
	struct queue *q = xcalloc(1, sizeof(*q));
	q->name = xstrdup(name);
	heap_init(&q->classes, class_less);
	heap_init(&q->worst, worst_less);
	heap_node_init(&q->order);
	struct list *const lists[] = { &q->parked, &q->class_list, &q->link_active, &q->link_parked, &q->link_check,
				       &q->pools, &q->link_paused, &q->link_pausing };
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
	q->turn = c->turn;
	/* Once it is known which queues have rows, a name that was not among them has none. */
	q->cursor = c->queues_known ? KEY_END : KEY_START;
	q->sweep = KEY_START;
	map_put(&c->queues, &q->node, q->name, len);
	return q;
}

void queue_free(struct core *c, struct queue *q)
{
	struct list *n;
	while ((n = list_pop_front(&q->class_list))) {
		struct class *k = container_of(n, struct class, link);
		asks_put(c, k->key.want.asks);
		heap_done(&k->jobs);
		free(k);
	}
	heap_done(&q->classes);
	heap_done(&q->worst);
	free(q->paused_reason);
	free(q->name);
	free(q);
}

void queue_check(struct core *c, struct queue *q)
{
	if (list_empty(&q->link_check))
		list_push_back(&c->check, &q->link_check);
}

/* What one queue may hold of the window.  One share stays free, so that a queue that wakes up finds room. */
size_t queue_share(const struct core *c)
{
	return max_sz(1, (size_t)c->cfg.window / (c->n_active + 1));
}

static void fill(struct core *c, struct queue *q, struct row_key from, size_t limit, bool sweeps)
{
	struct core_effect *f = emit(c, CORE_DO_FILL);
	f->queue = q->name;
	f->from_start = !key_before(KEY_START, from);
	f->priority = from.priority;
	f->seq = from.seq;
	f->limit = (int32_t)limit;
	q->filling = true;
	q->pass += sweeps && f->from_start;
	q->fill_sweeps = sweeps;
	q->fill_stale = false;
	q->fill_from = from;
}

void queue_fill_checked(struct core *c)
{
	struct list *n;
	size_t share = queue_share(c), chunk = min_sz((size_t)c->cfg.fill, share);
	while ((n = list_pop_front(&c->check))) {
		struct queue *q = from_check(n);
		bool unread = key_before(q->cursor, KEY_END);
		if (c->store_up && unread && !q->filling && q->n_ready <= chunk / 2 && q->n_ready < share)
			fill(c, q, q->cursor, min_sz(chunk, share - q->n_ready), false);
	}
}

/* PendingTaskReconciler: rows that no event told us of (late commits, other masters, lost notices). */
void queue_reconcile(struct core *c)
{
	if (!c->store_up)
		return;
	if (!c->asking_queues) {
		c->asking_queues = true;
		c->asked++;
		emit(c, CORE_DO_QUEUES);
	}
	queue_ask_due(c);
	queue_ask_expire(c);
}

/* Ready rows in the window, and none in the store. */
static void sweep_unnamed(struct core *c, size_t sweeps)
{
	list_each(it, &c->active) {
		struct queue *q = container_of(it, struct queue, link_active);
		if (q->named != c->questions && !q->filling && sweeps++ < SWEEPS_MAX)
			fill(c, q, q->sweep, (size_t)c->cfg.fill, true);
	}
}

void queue_on_queues(struct core *c, const struct core_event *ev)
{
	c->asking_queues = false;
	if (!ev->queues.ok || !c->store_up)
		return;
	pause_on_queues(c, ev);
	if (!c->queues_known) {
		c->queues_known = true;
		for (struct map_node *n = map_first(&c->queues); n; n = map_next(&c->queues, n))
			queue_check(c, container_of(n, struct queue, node));
	}
	size_t sweeps = 0, n = ev->queues.n, first = n ? c->sweep_offset % n : 0;
	c->questions++;
	for (size_t i = 0; i < n; i++) {
		struct queue *q = queue_get(c, ev->queues.at[(first + i) % n]);
		if (q)
			q->named = c->questions;
		if (!q || q->filling)
			continue;
		if (!key_before(KEY_START, q->cursor)) {
			queue_check(c, q);
		} else if (q->n_ready == 0) {
			/* None of its rows is in the window, so none may be known. */
			fill(c, q, KEY_START, (size_t)c->cfg.fill, true);
		} else if (sweeps < SWEEPS_MAX) {
			sweeps++;
			c->sweep_offset = (first + i + 1) % n;
			fill(c, q, q->sweep, (size_t)c->cfg.fill, true);
		}
	}
	sweep_unnamed(c, sweeps);
}

/* A whole pass has not met them. */
static void drop_unmet(struct core *c, struct queue *q)
{
	struct job **unmet = emit_alloc(c, q->worst.len * sizeof(*unmet));
	size_t n = 0;
	for (size_t i = 0; i < q->worst.len; i++) {
		struct job *j = container_of(q->worst.at[i], struct job, worst);
		if (j->pass != q->pass)
			unmet[n++] = j;
	}
	while (n > 0)
		job_free(c, unmet[--n]);
}

void queue_on_filled(struct core *c, const struct core_event *ev)
{
	struct queue *q = queue_get(c, ev->filled.queue);
	if (!q || !q->filling)
		return;
	q->filling = false;
	if (!ev->filled.ok)
		return; /* the reconciler asks again */
	struct row_key last = q->fill_from;
	size_t fresh = 0;
	bool whole = true, past = false; /* past: the pass has read all rows up to the cursor */
	for (size_t i = 0; i < ev->filled.n; i++) {
		const struct core_task *t = &ev->filled.at[i];
		struct row_key key = { t->priority, t->seq };
		past |= key_before(q->cursor, key);
		if (key_before(q->cursor, key)) {
			/* Rows between the cursor and the start of this answer were never read. */
			if (key_before(q->cursor, q->fill_from)) {
				whole = false;
				break;
			}
			q->cursor = key;
		}
		bool known = job_by_task(c, &t->id);
		if (!window_offer(c, t, NULL) && key_before(q->cursor, key)) {
			whole = false;
			break;
		}
		fresh += !known;
		last = key;
	}
	bool contiguous = !key_before(q->cursor, q->fill_from);
	if (whole && ev->filled.exhausted && contiguous && !q->fill_stale)
		q->cursor = KEY_END;
#ifdef REINS_MUTATION_NO_SWEEP_OUT /* tests/sim proves that it would notice */
	past = whole = false;
#endif
	if (q->fill_sweeps && (past || (whole && (ev->filled.exhausted || !key_before(last, q->cursor)))))
		drop_unmet(c, q);
	if (q->fill_sweeps) {
		bool more = whole && !ev->filled.exhausted;
		q->sweep = more && key_before(last, q->cursor) ? last : KEY_START;
		/* Mostly rows that nobody told us of: there is a backlog that we took for read. */
		if (more && fresh > ev->filled.n / 2 && key_before(last, q->cursor))
			q->cursor = last;
	}
	queue_check(c, q);
}

/* ---- rows whose time comes ---- */

void reminder_init(struct reminder *r, enum timer_kind kind)
{
	timer_init(&r->timer, kind);
	r->hint = NEVER;
}

static void ask(struct core *c, struct reminder *r, enum core_effect_type type)
{
	if (!c->store_up || r->asking)
		return;
	r->asking = true;
	r->hint = NEVER;
	timer_set(c, &r->timer, NEVER);
	emit(c, type)->limit = c->cfg.fill;
}

/* Delays come from clients and may be as long as the type allows. */
static int64_t later(const struct core *c, int64_t in_ns)
{
	return in_ns < NEVER - c->now ? c->now + in_ns : NEVER;
}

static void remind(struct core *c, struct reminder *r, int64_t in_ns)
{
	int64_t at = later(c, in_ns);
	if (r->asking)
		r->hint = min_i64(r->hint, at);
	else
		timer_set(c, &r->timer, min_i64(r->timer.at, at));
}

/* `n` rows came, and the next is due in next_in_ns. */
static void answered(struct core *c, struct reminder *r, size_t n, int64_t next_in_ns)
{
	int64_t next = r->hint;
	if (n >= (size_t)c->cfg.fill)
		next = c->now;
	else if (next_in_ns >= 0)
		next = min_i64(next, later(c, max_i64(next_in_ns, NS_PER_MS)));
	timer_set(c, &r->timer, next);
}

void queue_ask_due(struct core *c) { ask(c, &c->due, CORE_DO_DUE); }
void queue_ask_expire(struct core *c)
{
#ifndef REINS_MUTATION_NO_EXPIRE /* tests/sim proves that it would notice */
	ask(c, &c->expire, CORE_DO_EXPIRE);
#endif
}
void queue_due_in(struct core *c, int64_t in_ns) { remind(c, &c->due, in_ns); }
void queue_expires_in(struct core *c, int64_t in_ns) { remind(c, &c->expire, in_ns); }

void queue_on_due(struct core *c, const struct core_event *ev)
{
	c->due.asking = false;
	if (!ev->due.ok)
		return; /* the reconciler asks again */
	for (size_t i = 0; i < ev->due.n; i++)
		window_offer(c, &ev->due.at[i], NULL);
	answered(c, &c->due, ev->due.n, ev->due.next_in_ns);
}

void queue_on_expired(struct core *c, const struct core_event *ev)
{
	c->expire.asking = false;
	if (!ev->expired.ok)
		return; /* the reconciler asks again */
	for (size_t i = 0; i < ev->expired.n; i++) {
		struct job *j = job_by_task(c, &ev->expired.at[i]);
		if (j)
			job_input(c, j, IN_GONE, ev);
	}
	answered(c, &c->expire, ev->expired.n, ev->expired.next_in_ns);
}
