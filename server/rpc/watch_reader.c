/* A reader of events: a page of rows, of these some changes at a time, the tasks that somebody wants of them, and then all
 * of it to the watchers, in order.
 *
 *   IDLE ──run──▶ READS ──page──▶ GETS ⇄ (next changes of the page) ──▶ IDLE, or READS where there is more
 *
 * What can't be had (the store is away) or handed out (the only watcher takes nothing) is given up: `at` stands before it,
 * and it is read again. */
#include <string.h>

#include "server/rpc/view.h"
#include "server/rpc/watch.h"

#define ROWS_MAX 500
#define PAGE_BYTES (64 * 1024) /* of changes: some 2,700 */
#define AGAIN_NS (1 * NS_PER_S)  /* for what other masters did, and while the store is away */
#define PAUSE_NS (10 * NS_PER_MS) /* at least between two pages where all is read: what comes meanwhile comes together */
#define READING_MAX 8 /* readers beside the head at a time */

static bool is_head(const struct watch_reader *r) { return r == r->watch->head; }
static struct watcher *watcher_at(struct list *n) { return container_of(n, struct watcher, node); }
static struct watcher *only_one(const struct watch_reader *r) { return watcher_at(r->watchers.next); }
static int64_t now_ns(const struct watch_reader *r) { return loop_now_mono_ns(r->watch->rpc->loop); }

static void drop_task(struct watch_task *t)
{
	store_op_done_fields(&t->get.op);
	store_op_done_fields(&t->metrics.op);
}

static void drop_tasks(struct watch_reader *r)
{
	for (size_t i = 0; i < r->n_tasks; i++)
		drop_task(&r->tasks[i]);
	r->n_tasks = r->n_items = 0;
}

static void run_waiting(struct watch *watch)
{
	list_each(it, &watch->readers) {
		struct watch_reader *r = container_of(it, struct watch_reader, node);
		if (watch->n_reading >= READING_MAX)
			return;
		if (r->waits)
			watch_reader_run(r);
	}
}

/* Nothing is on its way any more. */
static void idle(struct watch_reader *r)
{
	drop_tasks(r);
	store_op_done_fields(&r->page.op);
	r->doing = WATCH_IDLE;
	if (is_head(r))
		return;
	r->watch->n_reading--;
	run_waiting(r->watch);
}

static void release(struct watch_reader *r)
{
	cursor_done(&r->at);
	cursor_done(&r->after);
	free(r);
}

void watch_reader_free(struct watch_reader *r)
{
	r->dead = true;
	r->waits = false;
	loop_timer_stop(&r->timer);
	loop_unmark(&r->dirty);
	list_remove(&r->node);
	if (r->doing == WATCH_IDLE)
		release(r);
}

/* What it waited for has come. */
static bool was_dead(struct watch_reader *r)
{
	if (!r->dead)
		return false;
	idle(r);
	release(r);
	return true;
}

void watch_reader_leave(struct watcher *w)
{
	struct watch_reader *r = w->reader;
	list_remove(&w->node);
	if (!is_head(r))
		watch_reader_free(r);
}

/* ---- joining ---- */

static struct cursor *copy_of(const struct cursor *c)
{
	struct cursor *copy = xcalloc(1, sizeof(*copy));
	cursor_copy(copy, c);
	return copy;
}

static void forget_ahead(struct watcher *w)
{
	if (w->ahead)
		cursor_done(w->ahead);
	free(w->ahead);
	w->ahead = NULL;
}

/* Both may have read what the other has not: the head goes back to what neither lacks, and each leaves out what it has. */
static void join(struct watch_reader *r)
{
	struct watch_reader *head = r->watch->head;
	struct watcher *w = only_one(r);
	if (list_empty(&head->watchers)) {
		cursor_copy(&head->at, &r->at);
		head->caught_up = true;
	} else {
		list_each(it, &head->watchers)
			if (!watcher_at(it)->ahead)
				watcher_at(it)->ahead = copy_of(&head->at);
		w->ahead = copy_of(&r->at);
		cursor_min(&head->at, &r->at);
	}
	list_remove(&w->node);
	list_push_back(&head->watchers, &w->node);
	w->reader = head;
	watch_reader_free(r);
	head->again = true;
}

static void join_all(struct watch *watch)
{
	list_each(it, &watch->readers) {
		struct watch_reader *r = container_of(it, struct watch_reader, node);
		if (r->caught_up && r->doing == WATCH_IDLE && !only_one(r)->blocked)
			join(r);
	}
}

bool watch_reader_start(struct watcher *w, const struct cursor *at)
{
	struct watch_reader *r = watch_reader_new(w->watch);
	if (!r)
		return false;
	list_remove(&w->node);
	cursor_copy(&r->at, at);
	w->reader = r;
	list_push_back(&r->watchers, &w->node);
	list_push_back(&w->watch->readers, &r->node);
	/* Rows with smaller numbers may have come since: the part that it has of one must be remembered beyond them. */
	if (at->part_done)
		w->ahead = copy_of(at);
	return true;
}

/* One that takes nothing must not hold up the others: it goes on by itself from `at`. */
static void part(struct watcher *w, const struct cursor *at)
{
	struct cursor own = {0};
	cursor_copy(&own, at);
	struct cursor *ahead = w->ahead;
	if (ahead)
		cursor_max(&own, ahead);
	w->ahead = NULL;
	bool started = watch_reader_start(w, &own);
	if (!started) {
		struct refusal r;
		(void)refuse_no_memory(&r, "out of memory; go on from the last cursor");
		watcher_refuse(w, &r);
	}
	if (ahead)
		cursor_done(ahead);
	free(ahead);
	cursor_done(&own);
}

/* ---- a page ---- */

static void try_later(struct watch_reader *r)
{
	idle(r);
	loop_timer_set(&r->timer, now_ns(r) + AGAIN_NS);
}

static void page_done(struct watch_reader *r)
{
	struct watch *watch = r->watch;
	cursor_set(&r->at, &r->page);
	r->caught_up = !r->page.ret_more;
	idle(r);
	list_each(it, &r->watchers) {
		struct watcher *w = watcher_at(it);
		if (r->caught_up)
			forget_ahead(w);
		if (w->sync_due)
			watcher_sync(w, &r->at);
	}
	if (is_head(r)) {
		r->again |= !r->caught_up;
		loop_timer_set(&r->timer, now_ns(r) + AGAIN_NS);
	}
	if (watch->head->doing == WATCH_IDLE)
		join_all(watch); /* r may be one */
	watch_reader_run(watch->head);
	list_each(it, &watch->readers)
		if (container_of(it, struct watch_reader, node) == r) {
			watch_reader_run(r);
			return;
		}
}

static bool wants(const struct watcher *w, const struct store_event *e, size_t place, const struct store_change *c)
{
	if (!(w->kinds >> watch_kind(c) & 1) || !match_change(&w->filter, c))
		return false;
	return !w->ahead || cursor_read_of(w->ahead, e->stream, e->number) <= (int64_t)place;
}

static bool anybody_wants(const struct watch_reader *r, const struct store_event *e, size_t place, const struct store_change *c)
{
	list_each(it, &r->watchers)
		if (wants(watcher_at(it), e, place, c))
			return true;
	return false;
}

static size_t task_of(struct watch_reader *r, const struct uuid *id)
{
	for (size_t i = 0; i < r->n_tasks; i++)
		if (uuid_eq(&r->tasks[i].get.id, id))
			return i;
	r->tasks[r->n_tasks] = (struct watch_task){.of = r, .get = {.id = *id}, .metrics.op.kind = STORE_METRICS_READ};
	return r->n_tasks++;
}

/* Of one row, from r->place on. False: there is no room for more. */
static bool take_changes(struct watch_reader *r, const struct store_event *e)
{
	size_t n = store_event_changes(e);
	if (!r->place)
		r->place = (size_t)min_i64(cursor_read_of(&r->at, e->stream, e->number), (int64_t)n);
	for (; r->place < n; r->place++) {
		struct store_change c = store_event_change(e, r->place);
		if (!anybody_wants(r, e, r->place, &c))
			continue;
		if (r->n_items == WATCH_TASKS)
			return false;
		size_t task = task_of(r, &c.task);
		r->items[r->n_items++] = (struct watch_item){r->row, r->place, c, task};
		if (c.what == STORE_WHAT_METRICS && c.attempt > r->tasks[task].metrics.at.attempt)
			r->tasks[task].metrics.at = (struct core_attempt){c.task, c.attempt}; /* the others are over */
	}
	return true;
}

static void on_task(struct store_op *op);
static void on_metrics(struct store_op *op);

static void read_metrics(struct watch_reader *r, struct watch_task *t)
{
	if (!t->metrics.at.attempt)
		return;
	r->pending++;
	t->metrics.op.done = on_metrics;
	t->metrics.newest = true;
	t->metrics.limit = VIEW_METRICS_POINTS;
	t->metrics.max_bytes = VIEW_METRICS_BYTES;
	store_submit(engine_store(r->watch->rpc->engine), &t->metrics.op);
}

static void next_changes(struct watch_reader *r)
{
	bool full = false;
	drop_tasks(r);
	for (; r->row < r->page.ret_n && take_changes(r, &r->page.ret_rows[r->row]); r->row++)
		r->place = 0;
	if (!r->n_items) {
		page_done(r);
		return;
	}
	list_each(it, &r->watchers)
		full |= watcher_at(it)->full;
	r->doing = WATCH_GETS;
	r->pending = r->n_tasks;
	for (size_t i = 0; i < r->n_tasks; i++) {
		r->tasks[i].get.op.kind = STORE_GET;
		r->tasks[i].get.op.done = on_task;
		r->tasks[i].get.basic = !full;
		store_submit(engine_store(r->watch->rpc->engine), &r->tasks[i].get.op);
		read_metrics(r, &r->tasks[i]);
	}
}

/* ---- handing out ---- */

static bool is_for(const struct watcher *w, const struct watch_item *i, const struct store_event *row, const struct watch_event *e)
{
	const struct store_task *t = e->task;
	if (!wants(w, row, i->place, &i->change))
		return false;
	/* What is shown of a task is of its newest attempt. */
	if (i->change.what == STORE_WHAT_METRICS && (!e->metrics || !rpc_may(w->call, t->owner, RPC_READ)))
		return false;
	return t ? match_task(&w->filter, &i->change, t) : match_without_task(&w->filter);
}

/* False: the reader's own watcher takes nothing, or is gone. */
static bool hand_to_all(struct watch_reader *r, const struct watch_item *i, struct watch_event *e)
{
	const struct store_event *row = &r->page.ret_rows[i->row];
	list_each(it, &r->watchers) {
		struct watcher *w = watcher_at(it);
		if (!is_for(w, i, row, e))
			continue;
		enum watch_sent sent = watcher_send(w, e);
		if (sent == WATCH_SENT)
			continue;
		if (!is_head(r))
			return false;
		if (sent == WATCH_BLOCKED)
			part(w, &r->at);
	}
	return true;
}

static bool hand_out(struct watch_reader *r, const struct watch_item *i, struct rpc_reasons *reasons)
{
	const struct store_event *row = &r->page.ret_rows[i->row];
	const struct store_get *get = &r->tasks[i->task].get;
	struct watch_event e = {.change = &i->change, .task = get->ret_found ? &get->ret_task : NULL, .at_wall_us = row->at_wall_us,
				.after = &r->after, .reasons = reasons};
	const struct store_metrics_read *m = &r->tasks[i->task].metrics;
	if (i->change.what == STORE_WHAT_METRICS && e.task && e.task->core.attempt == i->change.attempt &&
	    m->at.attempt == i->change.attempt && m->ret_n)
		e.metrics = m;
	cursor_copy(&r->after, &r->at);
	if (i->place + 1 == store_event_changes(row)) {
		cursor_pass(&r->after, row->stream, row->number);
	} else {
		r->after.part = (struct store_place){row->stream, row->number};
		r->after.part_done = (int64_t)i->place + 1;
	}
	bool all = hand_to_all(r, i, &e);
	watch_event_done(&e);
	if (!all)
		return false;
	struct cursor before = r->at;
	r->at = r->after;
	r->after = before;
	return true;
}

static void hand_out_all(struct watch_reader *r)
{
	struct rpc_reasons *reasons = calloc(1, sizeof(*reasons)); /* without, each task's is looked into */
	size_t i = 0;
	for (; i < r->n_items; i++) {
		/* Rows between that nobody wants. */
		for (; r->passed < r->items[i].row; r->passed++)
			cursor_pass(&r->at, r->page.ret_rows[r->passed].stream, r->page.ret_rows[r->passed].number);
		if (!hand_out(r, &r->items[i], reasons))
			break;
	}
	free(reasons);
	if (i == r->n_items) {
		next_changes(r);
	} else if (!was_dead(r)) {
		r->caught_up = false;
		idle(r);
	}
}

static void on_one(struct watch_reader *r)
{
	bool away = false;
	if (--r->pending)
		return;
	if (was_dead(r))
		return;
	for (size_t i = 0; i < r->n_tasks; i++) {
		struct watch_task *t = &r->tasks[i];
		away |= t->get.op.result != STORE_OK || (t->metrics.at.attempt && t->metrics.op.result != STORE_OK);
	}
	if (away)
		try_later(r);
	else
		hand_out_all(r);
}

static void on_task(struct store_op *op) { on_one(container_of(op, struct watch_task, get.op)->of); }
static void on_metrics(struct store_op *op) { on_one(container_of(op, struct watch_task, metrics.op)->of); }

/* ---- reading ---- */

static void refuse_all(struct watch_reader *r, const struct refusal *why)
{
	bool head = is_head(r);
	idle(r);
	r->caught_up = false;
	list_each(it, &r->watchers) {
		watcher_refuse(watcher_at(it), why);
		if (!head)
			return; /* and r with it */
	}
}

static void on_away(struct watch_reader *r, const struct store_op *op)
{
	struct watcher *w = is_head(r) ? NULL : only_one(r);
	if (w && !w->begun) {
		idle(r);
		rpc_refuse_store(w->call, op);
		watcher_over(w);
	} else {
		try_later(r);
	}
}

static void on_page(struct store_op *op)
{
	struct watch_reader *r = container_of(op, struct watch_reader, page.op);
	struct refusal why;
	if (was_dead(r))
		return;
	if (op->result != STORE_OK) {
		on_away(r, op);
		return;
	}
	if (r->page.ret_gone) {
		(void)refuse(&why, STATUS_OUT_OF_RANGE, "cursor", "cursor: some of what happened since is not kept any more (--event-retention); "
			     "list the tasks and watch from now on");
		refuse_all(r, &why);
		return;
	}
	if (r->page.ret_n_at > CURSOR_STREAMS_MAX) {
		(void)refuse(&why, STATUS_UNAVAILABLE, NULL, "connections to the store come and go too fast for a cursor to name them all");
		refuse_all(r, &why);
		return;
	}
	bool was_now = r->from_now;
	r->from_now = false;
	if (was_now)
		cursor_set(&r->at, &r->page);
	if (!is_head(r) && !only_one(r)->begun)
		watcher_sync(only_one(r), &r->at);
	if (was_now) {
		page_done(r);
		return;
	}
	r->row = r->place = r->passed = 0;
	next_changes(r);
}

static void read_page(struct watch_reader *r)
{
	r->page = (struct store_events){.op = {.kind = STORE_EVENTS, .done = on_page}, .now = r->from_now, .at = r->at.at, .n_at = r->at.n,
					.known = r->at.known, .limit = ROWS_MAX, .max_bytes = PAGE_BYTES, .metrics = r->watch->n_metrics > 0};
	r->again = r->waits = false;
	r->doing = WATCH_READS;
	r->read_mono_ns = now_ns(r);
	loop_timer_stop(&r->timer);
	store_submit(engine_store(r->watch->rpc->engine), &r->page.op);
}

static void run_head(struct watch_reader *r)
{
	if (list_empty(&r->watchers)) {
		loop_timer_stop(&r->timer);
		return;
	}
	list_each(it, &r->watchers)
		if (r->caught_up && watcher_at(it)->sync_due)
			watcher_sync(watcher_at(it), &r->at);
	if (!r->again)
		return;
	if (r->caught_up && now_ns(r) < r->read_mono_ns + PAUSE_NS)
		loop_timer_set(&r->timer, r->read_mono_ns + PAUSE_NS);
	else
		read_page(r);
}

void watch_reader_run(struct watch_reader *r)
{
	struct watch *watch = r->watch;
	if (r->dead || r->doing != WATCH_IDLE)
		return;
	if (is_head(r)) {
		run_head(r);
		return;
	}
	if (only_one(r)->blocked)
		return;
	if (r->caught_up) {
		if (watch->head->doing == WATCH_IDLE) {
			join(r);
			run_head(watch->head);
		}
		return;
	}
	r->waits = watch->n_reading >= READING_MAX;
	if (r->waits)
		return;
	watch->n_reading++;
	read_page(r);
}

void watch_reader_news(struct watch_reader *r)
{
	r->again = true;
	loop_mark(r->watch->rpc->loop, &r->dirty);
}

static void on_dirty(struct loop_dirty *d) { watch_reader_run(container_of(d, struct watch_reader, dirty)); }

static void on_timer(struct loop_timer *t)
{
	struct watch_reader *r = container_of(t, struct watch_reader, timer);
	r->again = true;
	watch_reader_run(r);
}

struct watch_reader *watch_reader_new(struct watch *watch)
{
	struct watch_reader *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->watch = watch;
	list_init(&r->node);
	list_init(&r->watchers);
	loop_timer_init(&r->timer, watch->rpc->loop, on_timer);
	loop_dirty_init(&r->dirty, LOOP_STORE, on_dirty);
	r->page.op.kind = STORE_EVENTS;
	return r;
}
