/* Owns calls: from their making to on_end.
 *
 *   open   a handler may act on it;
 *   over   ended by the handler (finish), the peer (reset), the deadline or the connection's loss: it is on srv->marked,
 *          where on_end is called in LOOP_WORK, and then it is reused. What the handler queued leaves
 *          without it: the exchange goes on alone, its user is NULL.
 *
 * A request that is refused from its headers never becomes a call (accept.c). */
#include <assert.h>
#include <errno.h>

#include "common/grpc/server_impl.h"

#define SPARE_MAX 256

static void on_deadline(struct loop_timer *t);

/* ---- objects ---- */

struct grpc_call *call_new(struct grpc_server *srv, const struct reply *r, struct method_entry *entry, void *caller)
{
	const struct grpc_method *m = entry->method;
	struct list *it = list_pop_front(&srv->spare);
	struct grpc_call *c = it ? container_of(it, struct grpc_call, node) : malloc(sizeof(*c));
	if (!c)
		return NULL;
	if (it)
		srv->n_spare--;
	*c = (struct grpc_call){ .srv = srv, .reply = *r, .method = m, .caller = caller, .deadline_mono_ns = GRPC_NO_DEADLINE,
				  .patience_mono_ns = GRPC_NO_DEADLINE, .types = entry->types, .stats = &entry->stats,
				  .began_mono_ns = loop_now_mono_ns(srv->loop) };
	entry->stats.started[r->dialect->protocol]++;
	c->max_message = m->max_message ? m->max_message : srv->cfg.limits.max_message;
	list_init(&c->marked);
	list_init(&c->parked);
	list_init(&c->large);
	c->bodies = &srv->bodies[m->apart ? GRPC_BODIES_SESSIONS : GRPC_BODIES_CALLS];
	list_push_back(r->x.ops->calls(&r->x), &c->node);
	loop_timer_init(&c->timer, srv->loop, on_deadline);
	r->x.ops->set_user(&r->x, c);
	srv->stats.calls_open++;
	srv->stats.calls_total++;
	return c;
}

static void call_free(struct grpc_call *c)
{
	struct grpc_server *srv = c->srv;
	if (call_alive(c)) {
		/* The exchange may go on for long without us.  Not before: a handler that ended the call may have been reading. */
		exchange_drop_all(&c->reply.x);
		c->reply.x.ops->set_user(&c->reply.x, NULL);
	}
	reply_done(&c->reply);
	buf_done(&c->asked);
	loop_timer_stop(&c->timer);
	list_remove(&c->node);
	list_remove(&c->parked);
	list_remove(&c->marked);
	if (srv->cfg.on_over)
		srv->cfg.on_over(srv->cfg.app, c->caller, c->code);
	srv->stats.calls_open--;
	/* A server freed inside a handler keeps its calls until the end of the turn: one may be on the stack. */
	if (srv->n_spare >= SPARE_MAX && !srv->freed) {
		free(c);
		return;
	}
	list_push_front(&srv->spare, &c->node);
	srv->n_spare++;
}

void call_free_spares(struct grpc_server *srv)
{
	struct list *it;
	while ((it = list_pop_front(&srv->spare)))
		free(container_of(it, struct grpc_call, node));
	srv->n_spare = 0;
}

void call_schedule(struct grpc_call *c)
{
	if (list_empty(&c->marked))
		list_push_back(&c->srv->marked, &c->marked);
	loop_mark(c->srv->loop, &c->srv->dirty);
}

/* ---- the end ---- */

void call_count(struct grpc_server *srv, struct grpc_method_stats *stats, const struct dialect *d, enum status_code code)
{
	if (code >= GRPC_STATUS_CODES)
		return;
	srv->stats.ended[code]++;
	stats->ended[d->protocol][code]++;
}

static void set_over(struct grpc_call *c, enum status_code code, bool finished)
{
	assert(!c->over);
	call_count(c->srv, c->stats, c->reply.dialect, code);
	if (c->method->shape != GRPC_BIDI)
		histogram_add(&c->stats->took, loop_now_mono_ns(c->srv->loop) - c->began_mono_ns);
	c->over = true;
	c->finished = finished;
	c->code = code;
	loop_timer_stop(&c->timer);
	list_remove(&c->parked);
	bodies_release(c);
	call_schedule(c);
}

void call_end(struct grpc_call *c, const struct refusal *r, bool finished)
{
	if (c->over)
		return;
	const struct exchange *x = &c->reply.x;
	if (x->stream) {
		c->reply.gzip = c->reply.gzip && c->reply.begun;
		if (c->reply.dialect->reads_to_end)
			x->ops->read_to_end(x);
		else
			x->ops->discard(x);
		c->reply.dialect->end(&c->reply, r);
	}
	set_over(c, r ? r->code : STATUS_OK, finished);
}

void grpc_call_finish(struct grpc_call *c, const struct refusal *r_or_null) { call_end(c, r_or_null, true); }

void call_size_refusal(struct grpc_server *srv, struct refusal *ret, uint64_t size, size_t limit)
{
	srv->stats.refused_bodies[GRPC_BODY_TOO_LARGE]++;
	if (size)
		(void)refuse(ret, STATUS_RESOURCE_EXHAUSTED, NULL, "message of %llu bytes; the limit is %zu", (unsigned long long)size, limit);
	else
		(void)refuse(ret, STATUS_RESOURCE_EXHAUSTED, NULL, "message of more bytes than the limit, which is %zu (not compressed)", limit);
	(void)refuse_reason(ret, REASON_MESSAGE_TOO_LARGE);
	if (size)
		(void)refuse_more(ret, "size", "%llu", (unsigned long long)size);
	(void)refuse_more(ret, "limit", "%zu", limit);
}

void call_refuse(struct grpc_call *c, enum status_code code, const char *text)
{
	struct refusal r;
	(void)refuse(&r, code, NULL, "%s", text);
	call_end(c, &r, false);
}

void call_no_memory(struct grpc_call *c)
{
	struct refusal r;
	(void)refuse_no_memory(&r, "out of memory");
	call_end(c, &r, false);
}

void call_cut(struct grpc_call *c)
{
	c->reply.x.stream = NULL;
	if (!c->over)
		set_over(c, STATUS_CANCELLED, false);
}

void call_detach(struct grpc_call *c)
{
	c->reply.x.conn = NULL;
	list_remove(&c->node);
}

/* The timer stands at the earlier of the deadline and the time by which more of the request must have come; a
 * byte does not move it, it is looked at afresh when it fires. */
void call_set_timer(struct grpc_call *c)
{
	int64_t due = min_i64(c->deadline_mono_ns, c->patience_mono_ns);
	if (c->body_mono_ns)
		due = min_i64(due, c->body_mono_ns + c->srv->cfg.limits.body_ns);
	if (due != GRPC_NO_DEADLINE)
		loop_timer_set(&c->timer, due);
	else
		loop_timer_stop(&c->timer);
}

static void check_body(struct grpc_call *c)
{
	int64_t now = loop_now_mono_ns(c->srv->loop);
	if (!c->body_mono_ns || now < c->body_mono_ns + c->srv->cfg.limits.body_ns) {
		call_set_timer(c);
		return;
	}
	c->srv->stats.refused_bodies[GRPC_BODY_STOPPED]++;
	call_refuse(c, STATUS_DEADLINE_EXCEEDED, "the request stopped coming");
}

static void on_deadline(struct loop_timer *t)
{
	struct grpc_call *c = container_of(t, struct grpc_call, timer);
	if (c->over)
		return;
	int64_t now = loop_now_mono_ns(c->srv->loop);
	bool deadline = now >= c->deadline_mono_ns;
	if (!deadline && now < c->patience_mono_ns) {
		check_body(c);
		return;
	}
	const struct exchange *x = &c->reply.x;
	if (x->stream && x->ops->queued(x)) {
		/* A message may be half on the wire, and the peer doesn't take the rest: a status would wait behind it. */
		x->ops->reset(x);
		set_over(c, deadline ? STATUS_DEADLINE_EXCEEDED : c->out_of_patience->code, false);
		return;
	}
	if (deadline)
		call_refuse(c, STATUS_DEADLINE_EXCEEDED, "the call's deadline passed");
	else
		call_end(c, c->out_of_patience, false);
}

void grpc_call_patience(struct grpc_call *c, int64_t until_mono_ns, const struct refusal *r)
{
	if (c->over)
		return;
	if (until_mono_ns != GRPC_NO_DEADLINE && c->patience_mono_ns != GRPC_NO_DEADLINE)
		return;
	c->patience_mono_ns = until_mono_ns;
	c->out_of_patience = r;
	call_set_timer(c);
}

/* ---- news ---- */

static struct grpc_call *begin(struct grpc_server *srv, const struct exchange *x, unsigned news)
{
	struct grpc_call *c = call_accept(srv, x);
	if (!c)
		return NULL;
	c->peer_done = news & H2_NEWS_END;
	if (c->method->shape == GRPC_BIDI) {
		c->told = true;
		x->ops->working(x);
		c->reply.gzip = false; /* a promise before any message is known */
		c->reply.dialect->begin(&c->reply);
		c->method->on_start(c);
	} else if (!(news & (H2_NEWS_DATA | H2_NEWS_END))) {
		call_await_body(c);
	}
	return c;
}

void call_news(struct grpc_server *srv, const struct exchange *x, struct grpc_call *c, unsigned news)
{
	if (news & H2_NEWS_CLOSED) {
		/* Also for a request that came and went in one batch: no handler hears of it. */
		if (c)
			call_cut(c);
		return;
	}
	if (news & H2_NEWS_HEADERS)
		c = begin(srv, x, news);
	if (!c || c->over)
		return;
	if (news & H2_NEWS_END)
		c->peer_done = true;
	if (news & (H2_NEWS_DATA | H2_NEWS_END))
		call_input(c);
	if ((news & H2_NEWS_DRAINED) && !c->over && c->want_writable) {
		c->want_writable = false;
		if (c->method->on_writable)
			c->method->on_writable(c);
	}
}

void call_work(struct grpc_server *srv)
{
	struct list batch, *it;
	list_init(&batch);
	list_splice_back(&batch, &srv->marked);
	while ((it = list_pop_front(&batch))) {
		struct grpc_call *c = container_of(it, struct grpc_call, marked);
		if (!c->over) {
			call_input(c);
			if (!c->over || srv->freed) /* a handler freed the server, which has seen to all its calls */
				continue;
			list_remove(&c->marked);
		}
		if (c->told && c->method->on_end)
			c->method->on_end(c, c->finished);
		call_free(c);
	}
}

/* ---- asking ---- */

void grpc_call_pause(struct grpc_call *c, bool paused)
{
	c->paused = paused;
	if (!paused && !c->over)
		call_schedule(c);
}

void *grpc_call_app(const struct grpc_call *c) { return c->srv->cfg.app; }
void grpc_call_set_user(struct grpc_call *c, void *user) { c->user = user; }
void *grpc_call_user(const struct grpc_call *c) { return c->user; }
void *grpc_call_caller(const struct grpc_call *c) { return c->caller; }

const struct stream_peer *grpc_call_peer(const struct grpc_call *c)
{
	static const struct stream_peer gone = { .address = "gone", .alpn = "" };
	const struct exchange *x = &c->reply.x;
	const struct stream_peer *peer = x->conn ? x->ops->peer(x) : NULL;
	return peer ? peer : &gone;
}

const char *grpc_call_header(const struct grpc_call *c, const char *name)
{
	return call_alive(c) ? c->reply.x.ops->header(&c->reply.x, name) : NULL;
}
