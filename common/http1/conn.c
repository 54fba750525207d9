/* Owns a connection: its input up to the end of a head, its output, and one timer, whose meaning is what the connection waits
 * for.
 *
 *   OPEN      reads heads and answers them, one exchange at a time; `closing`: no further one
 *   LINGER    all was sent and the write side is shut: reading on, to nowhere, for a moment, so that the peer's kernel does
 *             not throw our last words away because of what it still sends
 *
 * Work is done in the LOOP_WRITE phase only: a readable socket fills `in`, the flush answers and writes once. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/http1/impl.h"

#define LINGER_NS NS_PER_S

void http1_conn_log(struct http1_conn *c, const char *text)
{
	char line[160];
	if (!c->srv->cfg.on_log)
		return;
	snprintf(line, sizeof(line), "HTTP/1.1: %s", text);
	c->srv->cfg.on_log(c->srv->cfg.app, c->peer, line);
}

void http1_conn_mark(struct http1_conn *c)
{
	if (!c->closed)
		loop_mark(c->srv->loop, &c->dirty);
}

bool http1_conn_incomplete(const struct http1_conn *c)
{
	if (c->lingering || buf_len(&c->out))
		return false;
	return !c->x.active || !http1_body_done(&c->x.in);
}

/* ---- the end of a connection ---- */

static void bury(struct loop_grave *g)
{
	struct http1_conn *c = container_of(g, struct http1_conn, grave);
	http1_exchange_done(&c->x);
	buf_done(&c->in);
	buf_done(&c->out);
	free(c);
}

void http1_conn_close(struct http1_conn *c)
{
	struct http1_server *s = c->srv;
	if (c->closed)
		return;
	c->closed = true;
	http1_exchange_close(c);
	stream_close(c->stream);
	loop_timer_stop(&c->timer);
	loop_unmark(&c->dirty);
	list_remove(&c->node);
	s->stats.connections--;
	if (s->draining)
		loop_mark(s->loop, &s->drained);
	loop_bury(s->loop, &c->grave, bury);
	if (s->service && s->service->on_left)
		s->service->on_left(s->service_arg);
}

static void set_due(struct http1_conn *c, int64_t ns)
{
	c->awaits_rest = false;
	loop_timer_set(&c->timer, loop_now_mono_ns(c->srv->loop) + ns);
}

static void linger(struct http1_conn *c)
{
	c->lingering = true;
	buf_clear(&c->in);
	stream_shutdown(c->stream);
	stream_want(c->stream, LOOP_READ);
	set_due(c, LINGER_NS);
}

/* ---- requests ---- */

static void serve(struct http1_conn *c, const struct http1_head *h, size_t len)
{
	struct http1_server *s = c->srv;
	const struct http1_route *route = http1_server_route(s, h->path, h->path_len);
	bool head = h->method == HTTP1_HEAD;
	s->stats.requests++;
	c->requests++;
	c->old = h->old;
	c->closing = c->closing || !h->keep_alive || s->draining || c->requests >= s->cfg.limits.max_requests;
	if (!route && s->service) {
		http1_exchange_begin(c, h, len);
		return;
	}
	if (h->has_body) {
		c->closing = true; /* what follows is not read as a request */
		http1_answer_text(c, 413, "", "a request without a body is wanted", head);
	} else if (!route) {
		http1_answer_text(c, 404, "", s->cfg.about, head);
	} else if (!(route->methods & h->method)) {
		http1_answer_text(c, 405, "allow: GET, HEAD\r\n", "only GET and HEAD are answered here", head);
	} else {
		http1_answer_route(c, route, len, head);
	}
	buf_consume(&c->in, len);
}

/* Some senders put an empty line behind a request (RFC 9112, 2.2): one is passed over. A second is the beginning of a bad head,
 * or each would begin the head's time anew. */
static void skip_empty_line(struct http1_conn *c)
{
	if (c->empty_line || buf_len(&c->in) < 2 || c->scanned || memcmp(buf_head(&c->in), "\r\n", 2) != 0)
		return;
	buf_consume(&c->in, 2);
	c->empty_line = true;
}

/* False: there is no whole one, or none is wanted now. */
static bool one_request(struct http1_conn *c)
{
	struct http1_head h;
	const char *why;
	if (c->closing || buf_len(&c->out) > OUT_HIGH)
		return false;
	skip_empty_line(c);
	const char *data = (const char *)buf_head(&c->in);
	ssize_t len = http1_head_end(data, buf_len(&c->in), &c->scanned);
	if (len == 0)
		return false;
	if (len < 0) {
		if (len == -EMSGSIZE)
			http1_refuse(c, 431, "the request's head has more than 16 KiB");
		else
			http1_refuse(c, 400, "the request's head holds a bare CR, LF or NUL");
		return true;
	}
	c->scanned = 0;
	c->empty_line = false;
	int status = http1_head_parse(data, (size_t)len, &h, &why);
	if (status) {
		http1_refuse(c, status, why);
		buf_consume(&c->in, (size_t)len);
	} else {
		serve(c, &h, (size_t)len);
	}
	return true;
}

/* False: nothing more can be done now. */
static bool step(struct http1_conn *c)
{
	if (!c->x.active)
		return one_request(c);
	bool responded = c->x.responded;
	int err = http1_exchange_go_on(c);
	if (err) {
		http1_exchange_close(c);
		c->closing = true;
		if (responded || c->closed)
			return false;
		http1_exchange_refuse_body(c, err);
		return true;
	}
	if (c->closed || !http1_exchange_over(c))
		return false;
	http1_exchange_close(c);
	return !c->closed;
}

/* ---- output and time ---- */

static bool write_out(struct http1_conn *c)
{
	while (buf_len(&c->out)) {
		struct iovec v = { .iov_base = c->out.data + c->out.start, .iov_len = buf_len(&c->out) };
		ssize_t n = stream_writev(c->stream, &v, 1);
		if (n == -EAGAIN)
			return true;
		if (n < 0)
			return false;
		buf_consume(&c->out, (size_t)n);
		set_due(c, c->srv->cfg.limits.blocked_output_ns);
	}
	return true;
}

static void move_to(struct http1_conn *c, struct list *to)
{
	list_remove(&c->node);
	list_push_back(to, &c->node);
}

/* While an exchange is on, the end of the peer's side is to be noticed: reading goes on as far as `in` has room. */
static int reading(const struct http1_conn *c)
{
	bool room = c->x.active && !c->ended && buf_len(&c->in) < IN_MAX - 2 * READ_SIZE;
	return room && (http1_body_done(&c->x.in) || http1_exchange_reads(c)) ? LOOP_READ : 0;
}

/* The owner's own deadlines hold while it has the exchange; who sends a body to nowhere has ours. */
static void wait_for_exchange(struct http1_conn *c)
{
	stream_want(c->stream, reading(c));
	if (!c->x.discard || http1_body_done(&c->x.in)) {
		loop_timer_stop(&c->timer);
	} else if (!c->awaits_rest) {
		set_due(c, c->srv->cfg.limits.head_ns);
		c->awaits_rest = true;
	}
}

static void rest(struct http1_conn *c)
{
	struct http1_server *s = c->srv;
	stream_want(c->stream, LOOP_READ);
	if (!c->answered)
		return; /* the head's time runs on */
	c->answered = false;
	move_to(c, buf_len(&c->in) ? &s->busy : &s->idle);
	set_due(c, buf_len(&c->in) ? s->cfg.limits.head_ns : s->cfg.limits.idle_ns);
}

/* All was answered that can be, and written that the peer takes. */
static void wait_on(struct http1_conn *c, bool more, bool was_blocked)
{
	if (buf_len(&c->out))
		stream_want(c->stream, LOOP_WRITE_READY | reading(c));
	else if (!c->x.active && (c->closing || (c->srv->draining && c->answered)))
		linger(c);
	else if (more || was_blocked) /* others first */
		stream_want(c->stream, LOOP_WRITE_READY | reading(c));
	else if (c->ended) /* and no whole request is left, or nobody who would read its answer */
		http1_conn_close(c);
	else if (c->x.active)
		wait_for_exchange(c);
	else
		rest(c);
}

static void on_flush(struct loop_dirty *d)
{
	struct http1_conn *c = container_of(d, struct http1_conn, dirty);
	struct http1_server *s = c->srv;
	bool more = true, was_blocked = buf_len(&c->out) > 0;
	int served = 0;
	while (more && served < s->cfg.limits.requests_per_turn) {
		more = step(c);
		if (c->closed)
			return;
		served += more;
	}
	if (c->x.reset) {
		http1_conn_close(c);
		return;
	}
	c->answered = c->answered || served;
	more = more || (!c->x.active && buf_len(&c->out) > OUT_HIGH); /* a further one may be there already */
	if (buf_len(&c->out) && !was_blocked)
		set_due(c, s->cfg.limits.blocked_output_ns);
	if (!write_out(c)) {
		http1_conn_close(c);
		return;
	}
	http1_exchange_written(c);
	if (!c->closed)
		wait_on(c, more, was_blocked);
}

/* ---- the stream's events ---- */

static void read_some(struct http1_conn *c)
{
	bool first = !buf_len(&c->in) && !c->x.active;
	uint8_t *at = buf_reserve(&c->in, READ_SIZE);
	ssize_t n = at ? stream_read(c->stream, at, READ_SIZE) : -ENOMEM;
	if (n == -EAGAIN)
		return;
	if (n < 0 || (n == 0 && c->lingering)) {
		http1_conn_close(c);
		return;
	}
	if (c->lingering) { /* nothing was committed */
		stream_want(c->stream, LOOP_READ);
		return;
	}
	if (n == 0) {
		c->ended = true;
		stream_want(c->stream, buf_len(&c->out) ? LOOP_WRITE_READY : 0);
	} else {
		buf_commit(&c->in, (size_t)n);
		c->awaits_rest = false;
		if (first) {
			move_to(c, &c->srv->busy);
			set_due(c, c->srv->cfg.limits.head_ns);
		}
	}
	http1_conn_mark(c);
}

static void on_ready(void *arg, int events)
{
	struct http1_conn *c = arg;
	if (events & LOOP_READ)
		read_some(c);
	if (!c->closed && (events & LOOP_WRITE_READY))
		http1_conn_mark(c);
}

static void on_broken(void *arg, int err, const char *text) { http1_conn_close(arg); }

static const struct stream_events stream_events = { .on_ready = on_ready, .on_broken = on_broken };

static void on_timer(struct loop_timer *t)
{
	struct http1_conn *c = container_of(t, struct http1_conn, timer);
	if (!c->lingering && !c->x.active && !buf_len(&c->out) && buf_len(&c->in)) {
		http1_refuse(c, 408, "the request's head did not come in time");
		http1_conn_mark(c);
		return;
	}
	http1_conn_close(c);
}

struct http1_conn *http1_conn_new(struct http1_server *s, struct stream *stream, const void *data, size_t len)
{
	struct http1_conn *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->srv = s;
	c->stream = stream;
	buf_init(&c->in, IN_MAX);
	buf_init(&c->out, OUT_MAX);
	http1_exchange_init(&c->x);
	snprintf(c->peer, sizeof(c->peer), "%s", stream_peer(stream)->address);
	loop_timer_init(&c->timer, s->loop, on_timer);
	loop_dirty_init(&c->dirty, LOOP_WRITE, on_flush);
	list_push_back(&s->busy, &c->node);
	s->stats.connections++;
	stream_set_events(stream, &stream_events, c);
	set_due(c, s->cfg.limits.head_ns);
	if (buf_add(&c->in, data, len) < 0)
		c->closing = true;
	http1_conn_mark(c);
	return c;
}
