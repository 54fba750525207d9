/* WatchTasks: the calls, and what is sent to them. */
#include "server/rpc/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "server/rpc/view.h"
#include "server/rpc/wire.h"

#define SYNC_NS (30 * NS_PER_S)
#define SYNC_AGAIN_NS (100 * NS_PER_MS) /* for want of memory */
#define EVENT_MAX (16 * 1024 * 1024)
enum { EVENT_CURSOR = 1, EVENT_KIND, EVENT_TASK, EVENT_AT, EVENT_STATE, EVENT_ATTEMPT, EVENT_STATE_BEFORE };
enum { TASK_ID = 1, TIME_SECONDS = 1, TIME_NANOS = 2 };

/* ---- what all watchers share ---- */

static void on_change(void *arg)
{
	struct watch *watch = arg;
	watch_reader_news(watch->head);
}

/* NULL: no memory. */
static struct watch *watch_of(struct rpc *rpc)
{
	if (rpc->watch)
		return rpc->watch;
	struct watch *watch = xcalloc(1, sizeof(*watch));
	watch->rpc = rpc;
	list_init(&watch->readers);
	watch->head = watch_reader_new(watch);
	if (!watch->head) {
		free(watch);
		return NULL;
	}
	rpc->watch = watch;
	return watch;
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;
	watch_reader_free(watch->head);
	free(watch);
}

int watch_count(const struct watch *watch) { return watch ? watch->n_watchers : 0; }

/* ---- one watcher ---- */

static bool wants_metrics(const struct watcher *w) { return w->kinds >> REINS__V1__TASK_EVENT__KIND__METRICS & 1; }

void watcher_over(struct watcher *w)
{
	struct watch *watch = w->watch;
	if (w->call)
		grpc_call_set_user(w->call, NULL);
	loop_timer_stop(&w->patience);
	loop_timer_stop(&w->sync);
	list_remove(&w->parked.node);
	watch->n_metrics -= wants_metrics(w);
	if (--watch->n_watchers == 0)
		engine_store(watch->rpc->engine)->on_change = NULL;
	watch_reader_leave(w);
	if (w->ahead)
		cursor_done(w->ahead);
	free(w->ahead);
	filter_done(&w->filter);
	pb_free(w->request);
	free(w);
}

void watcher_refuse(struct watcher *w, const struct refusal *r)
{
	grpc_call_finish(w->call, r);
	watcher_over(w);
}

void watch_on_end(struct grpc_call *call, bool finished)
{
	struct watcher *w = grpc_call_user(call);
	if (!w)
		return;
	w->call = NULL;
	watcher_over(w);
}

static void on_stopping(struct rpc_parked *p)
{
	struct watcher *w = container_of(p, struct watcher, parked);
	rpc_refuse_stopping(w->call);
	watcher_over(w);
}

static void block(struct watcher *w)
{
	w->blocked = true;
	w->queued = grpc_call_queued(w->call);
	loop_timer_set(&w->patience, loop_now_mono_ns(w->watch->rpc->loop) + w->watch->rpc->limits.watch_patience_ns);
}

static void on_patience(struct loop_timer *t)
{
	struct watcher *w = container_of(t, struct watcher, patience);
	struct refusal r;
	if (grpc_call_queued(w->call) < w->queued) {
		block(w);
		return;
	}
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "no event was taken for %lld ms while more waited; go on from the last cursor",
		     (long long)(w->watch->rpc->limits.watch_patience_ns / NS_PER_MS));
	(void)refuse_reason(&r, REASON_READER_TOO_SLOW);
	watcher_refuse(w, &r);
}

void watch_on_writable(struct grpc_call *call)
{
	struct watcher *w = grpc_call_user(call);
	if (!w || !w->blocked)
		return;
	w->blocked = false;
	loop_timer_stop(&w->patience);
	watch_reader_run(w->reader);
}

/* ---- events ---- */

static int put_time(struct buf *b, int64_t wall_us)
{
	struct buf t;
	buf_init(&t, 64);
	int rc = wire_put_int(&t, TIME_SECONDS, wall_us / 1000000);
	if (!rc)
		rc = wire_put_int(&t, TIME_NANOS, wall_us % 1000000 * 1000);
	if (!rc)
		rc = wire_put_len(b, EVENT_AT, buf_head(&t), buf_len(&t));
	buf_done(&t);
	return rc;
}

static int put_task(struct rpc *rpc, const struct watch_event *e, bool full, struct buf *b)
{
	struct buf t;
	char id[UUID_TEXT_LEN + 1];
	buf_init(&t, EVENT_MAX);
	int rc;
	if (e->task) {
		rc = rpc_task(rpc, e->task, full, e->reasons, &t);
		if (!rc && e->metrics)
			rc = view_metrics(e->metrics->ret_items, e->metrics->ret_n, &t);
	} else {
		uuid_format(&e->change->task, id);
		rc = wire_put_text(&t, TASK_ID, id);
	}
	if (!rc)
		rc = wire_put_len(b, EVENT_TASK, buf_head(&t), buf_len(&t));
	buf_done(&t);
	return rc;
}

int watch_kind(const struct store_change *c)
{
	switch (c->what) {
	case STORE_WHAT_STARTED: return REINS__V1__TASK_EVENT__KIND__STARTED;
	case STORE_WHAT_METRICS: return REINS__V1__TASK_EVENT__KIND__METRICS;
	case STORE_WHAT_DELETED: return REINS__V1__TASK_EVENT__KIND__DELETED;
	default: return c->before ? REINS__V1__TASK_EVENT__KIND__CHANGED : REINS__V1__TASK_EVENT__KIND__CREATED;
	}
}

static int put_body(struct rpc *rpc, const struct watch_event *e, bool full, struct buf *b)
{
	const struct store_change *c = e->change;
	if (wire_put_int(b, EVENT_KIND, watch_kind(c)) || wire_put_int(b, EVENT_STATE, c->after) || wire_put_int(b, EVENT_ATTEMPT, c->attempt) ||
	    wire_put_int(b, EVENT_STATE_BEFORE, c->before) || put_time(b, e->at_wall_us))
		return -ENOMEM;
	return put_task(rpc, e, full, b);
}

void watch_event_done(struct watch_event *e)
{
	buf_done(&e->body[0]);
	buf_done(&e->body[1]);
}

/* The place after the event: the reader's, and what it has of what lies behind that. */
static const char *cursor_after(struct watcher *w, struct watch_event *e, char own[static CURSOR_TEXT_MAX + 1])
{
	const char *store_id = engine_store_id(w->watch->rpc->engine);
	if (w->ahead) {
		struct cursor c = {0};
		cursor_copy(&c, e->after);
		cursor_max(&c, w->ahead);
		cursor_format(&c, store_id, own);
		cursor_done(&c);
		return own;
	}
	if (!e->cursor[0])
		cursor_format(e->after, store_id, e->cursor);
	return e->cursor;
}

static int send_with(struct watcher *w, const char *cursor, const struct buf *body)
{
	struct buf b;
	buf_init(&b, EVENT_MAX + CURSOR_TEXT_MAX);
	int rc = wire_put_text(&b, EVENT_CURSOR, cursor);
	if (!rc)
		rc = buf_add(&b, buf_head(body), buf_len(body));
	if (!rc)
		rc = grpc_call_send(w->call, buf_head(&b), buf_len(&b));
	buf_done(&b);
	if (!rc)
		loop_timer_set(&w->sync, loop_now_mono_ns(w->watch->rpc->loop) + SYNC_NS);
	return rc;
}

enum watch_sent watcher_send(struct watcher *w, struct watch_event *e)
{
	char own[CURSOR_TEXT_MAX + 1];
	bool full = w->full && rpc_may(w->call, e->task ? e->task->owner : NULL, RPC_READ);
	struct buf *body = &e->body[full];
	int rc = 0;
	if (!body->max) {
		buf_init(body, EVENT_MAX);
		rc = put_body(w->watch->rpc, e, full, body);
		if (rc) { /* the next watcher must not get half of it */
			buf_done(body);
			body->max = 0;
		}
	}
	if (!rc)
		rc = send_with(w, cursor_after(w, e, own), body);
	if (rc == -EAGAIN) {
		block(w);
		return WATCH_BLOCKED;
	}
	if (rc) {
		struct refusal r;
		(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "no room for an event");
		watcher_refuse(w, &r);
		return WATCH_GONE;
	}
	return WATCH_SENT;
}

void watcher_sync(struct watcher *w, const struct cursor *at)
{
	char text[CURSOR_TEXT_MAX + 1];
	struct buf body;
	struct cursor c = {0};
	cursor_copy(&c, at);
	if (w->ahead)
		cursor_max(&c, w->ahead);
	cursor_format(&c, engine_store_id(w->watch->rpc->engine), text);
	cursor_done(&c);
	buf_init(&body, 256);
	int rc = wire_put_int(&body, EVENT_KIND, REINS__V1__TASK_EVENT__KIND__SYNC);
	if (!rc)
		rc = put_time(&body, clock_wall_us());
	if (!rc)
		rc = send_with(w, text, &body); /* what does not take it has more to take */
	if (rc == -ENOMEM)
		loop_timer_set(&w->sync, loop_now_mono_ns(w->watch->rpc->loop) + SYNC_AGAIN_NS);
	buf_done(&body);
	w->begun = true;
	w->sync_due = false;
}

static void on_sync(struct loop_timer *t)
{
	struct watcher *w = container_of(t, struct watcher, sync);
	loop_timer_set(t, loop_now_mono_ns(w->watch->rpc->loop) + SYNC_NS);
	w->sync_due = true;
	watch_reader_run(w->reader);
}

/* ---- the call ---- */

static int parse_kinds(const Reins__V1__WatchTasksRequest *req, struct refusal *r)
{
	for (size_t i = 0; i < req->n_kinds; i++)
		if (req->kinds[i] <= REINS__V1__TASK_EVENT__KIND__KIND_UNSPECIFIED || req->kinds[i] > REINS__V1__TASK_EVENT__KIND__STARTED) {
			(void)refuse(r, STATUS_INVALID_ARGUMENT, "kinds", "kinds: %d is none: SYNC, CREATED, CHANGED, METRICS, DELETED and "
				     "STARTED are known", (int)req->kinds[i]);
			return -1;
		}
	return 0;
}

static int parse(struct rpc *rpc, const Reins__V1__WatchTasksRequest *req, struct filter *filter, struct cursor *at, struct refusal *r)
{
	bool full;
	if (rpc->limits.max_watchers <= watch_count(rpc->watch)) {
		(void)refuse(r, STATUS_RESOURCE_EXHAUSTED, NULL, "%d watch already, as many as this master allows (--max-watchers)",
			     watch_count(rpc->watch));
		(void)refuse_more(r, "limit", "%d", (int)rpc->limits.max_watchers);
		return refuse_reason(r, REASON_TOO_MANY_STREAMS);
	}
	if (filter_view(req->view, &full, r) || filter_parse(req->filter, filter, r) || parse_kinds(req, r))
		return -1;
	if (!*req->cursor)
		return 0;
	int rc = cursor_parse(req->cursor, engine_store_id(rpc->engine), at);
	if (rc == -ESTALE)
		(void)refuse(r, STATUS_OUT_OF_RANGE, "cursor", "cursor: it is one of another store; list the tasks and watch from now on");
	else if (rc)
		(void)refuse(r, STATUS_INVALID_ARGUMENT, "cursor", "cursor: not one that a server gave out");
	return rc ? -1 : 0;
}

/* False: no memory; the call, the request and the filter are as they were. */
static bool begin(struct rpc *rpc, struct grpc_call *call, Reins__V1__WatchTasksRequest *req, const struct filter *filter, const struct cursor *at)
{
	struct watch *watch = watch_of(rpc);
	struct watcher *w = watch ? calloc(1, sizeof(*w)) : NULL;
	if (!w)
		return false;
	w->watch = watch;
	list_init(&w->node);
	if (!watch_reader_start(w, at)) {
		free(w);
		return false;
	}
	w->call = call;
	w->request = req;
	w->filter = *filter; /* the request, which it points into, is ours too */
	w->full = req->view == REINS__V1__TASK_VIEW__TASK_VIEW_FULL;
	w->kinds = req->n_kinds ? 0 : UINT32_MAX;
	for (size_t i = 0; i < req->n_kinds; i++)
		w->kinds |= 1u << req->kinds[i];
	loop_timer_init(&w->patience, rpc->loop, on_patience);
	loop_timer_init(&w->sync, rpc->loop, on_sync);
	w->parked.end = on_stopping;
	list_push_back(&rpc->parked, &w->parked.node);
	grpc_call_set_user(call, w);
	struct store *store = engine_store(rpc->engine);
	store->on_change = on_change;
	store->on_change_arg = watch;
	watch->n_watchers++;
	watch->n_metrics += wants_metrics(w);
	w->reader->from_now = !*req->cursor;
	watch_reader_run(w->reader);
	return true;
}

void watch_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct rpc *rpc = rpc_of(call);
	Reins__V1__WatchTasksRequest *req = rpc_unpack(call, &reins__v1__watch_tasks_request__descriptor, data, len);
	_cleanup_free_ struct filter *filter = req ? rpc_calloc(call, sizeof(*filter)) : NULL; /* large */
	struct cursor at = {0};
	struct refusal r;
	if (!filter) {
		pb_free(req);
		return;
	}
	if (rpc->draining) {
		rpc_refuse_stopping(call);
		pb_free(req);
	} else if (!*engine_store_id(rpc->engine)) {
		(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "the store was not reached yet");
		(void)refuse_reason(&r, REASON_STORE_AWAY);
		r.retry_after_ms = 1000;
		grpc_call_finish(call, &r);
		pb_free(req);
	} else if (parse(rpc, req, filter, &at, &r)) {
		grpc_call_finish(call, &r);
		filter_done(filter);
		pb_free(req);
	} else if (!begin(rpc, call, req, filter, &at)) {
		rpc_no_memory(call);
		filter_done(filter);
		pb_free(req);
	}
	cursor_done(&at);
}
