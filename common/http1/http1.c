/* Owns the connections: their input up to the end of a head, their output, and one timer each, whose meaning is what the
 * connection waits for.
 *
 *   OPEN    reads heads and answers them; `closing`: no further one
 *   LINGER  all was sent and the write side is shut: reading on, to nowhere, for a moment, so that the peer's kernel does
 *           not throw our last words away because of what it still sends
 *
 * Work is done in the LOOP_WRITE phase only: a readable socket fills `in`, the flush answers and writes once. */
#include "common/http1/http1.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"

#define IN_MAX ((size_t)96 << 10)  /* what was handed over, or a head and what was sent ahead */
#define READ_SIZE ((size_t)16 << 10)
#define OUT_HIGH ((size_t)64 << 10) /* no further request is answered above it */
#define ANSWER_HEAD_MAX 1024
#define LINGER_NS NS_PER_S

struct http1_server {
	struct loop *loop;
	struct http1_server_config cfg;
	struct list idle, busy; /* connections; idle ones between requests, the longest first */
	struct http1_stats stats;
	bool draining;
	struct loop_timer deadline; /* of that */
	void (*on_drained)(void *app);
	struct loop_dirty drained;
	struct loop_grave grave;
};

struct http1_conn {
	struct list node;
	struct http1_server *srv;
	struct stream *stream;
	struct buf in, out;
	size_t scanned;
	int64_t requests;
	bool closing, lingering;
	bool ended;    /* the peer sends no more */
	bool answered; /* since it was at rest */
	struct loop_timer timer;
	struct loop_dirty dirty;
	struct loop_grave grave;
	char peer[64];
};

void http1_limits_default(struct http1_limits *l)
{
	*l = (struct http1_limits){
		.max_connections = 200,
		.max_body = (size_t)1 << 20,
		.requests_per_turn = 4,
		.max_requests = 1000,
		.head_ns = 5 * NS_PER_S,
		.idle_ns = 90 * NS_PER_S,
		.blocked_output_ns = 30 * NS_PER_S,
	};
}

static void tell(struct http1_conn *c, const char *text)
{
	char line[160];
	if (!c->srv->cfg.on_log)
		return;
	snprintf(line, sizeof(line), "HTTP/1.1: %s", text);
	c->srv->cfg.on_log(c->srv->cfg.app, c->peer, line);
}

/* ---- the end of a connection ---- */

static void bury(struct loop_grave *g)
{
	struct http1_conn *c = container_of(g, struct http1_conn, grave);
	buf_done(&c->in);
	buf_done(&c->out);
	free(c);
}

static void conn_close(struct http1_conn *c)
{
	struct http1_server *s = c->srv;
	stream_close(c->stream);
	loop_timer_stop(&c->timer);
	loop_unmark(&c->dirty);
	list_remove(&c->node);
	s->stats.connections--;
	if (s->draining)
		loop_mark(s->loop, &s->drained);
	loop_bury(s->loop, &c->grave, bury);
}

static void set_due(struct http1_conn *c, int64_t ns)
{
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

/* ---- answers ---- */

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *words;
	} rows[] = {
		{ 200, "OK" }, { 400, "Bad Request" }, { 404, "Not Found" }, { 405, "Method Not Allowed" },
		{ 408, "Request Timeout" }, { 413, "Content Too Large" }, { 417, "Expectation Failed" },
		{ 431, "Request Header Fields Too Large" }, { 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 503, "Service Unavailable" }, { 505, "HTTP Version Not Supported" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].words;
	return "";
}

static void format_date(char *ret, size_t cap)
{
	static const char days[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char months[][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	time_t now = (time_t)(clock_wall_us() / 1000000);
	struct tm t;
	*ret = '\0';
	/* strftime would use the locale's names. */
	if (gmtime_r(&now, &t))
		snprintf(ret, cap, "date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday,
			 months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

/* `allow`: "" or a whole field. */
static void answer(struct http1_conn *c, const struct http1_reply *r, const char *allow, bool head)
{
	char date[64];
	size_t len = buf_len(&r->body);
	format_date(date, sizeof(date));
	/* Room for both was made sure of by `out`'s maximum. */
	int rc = buf_addf(&c->out,
			  "HTTP/1.1 %d %s\r\n%sserver: reins/" REINS_VERSION "\r\ncontent-type: %s\r\ncontent-length: %zu\r\n"
			  "cache-control: no-store\r\n%s%s\r\n",
			  r->status, reason(r->status), date, r->type, len, allow, c->closing ? "connection: close\r\n" : "");
	if (rc == 0 && !head)
		rc = buf_add(&c->out, buf_head(&r->body), len);
	if (rc) { /* no memory: half an answer must not be taken for one */
		buf_clear(&c->out);
		c->closing = true;
	}
}

static void answer_text(struct http1_conn *c, int status, const char *allow, const char *text, bool head)
{
	struct http1_reply r = { .status = status, .type = "text/plain; charset=utf-8" };
	buf_init(&r.body, 2048);
	if (buf_addf(&r.body, "%s\n", text) == 0)
		answer(c, &r, allow, head);
	else
		c->closing = true;
	buf_done(&r.body);
}

static void refuse_request(struct http1_conn *c, int status, const char *why)
{
	c->srv->stats.refused_requests++;
	c->closing = true;
	tell(c, why);
	answer_text(c, status, "", why, false);
}

static const struct http1_route *route_of(const struct http1_server *s, const struct http1_head *h)
{
	for (size_t i = 0; i < s->cfg.n_routes; i++)
		if (strlen(s->cfg.routes[i].path) == h->path_len && memcmp(s->cfg.routes[i].path, h->path, h->path_len) == 0)
			return &s->cfg.routes[i];
	return NULL;
}

static void serve(struct http1_conn *c, const struct http1_head *h)
{
	struct http1_server *s = c->srv;
	const struct http1_route *route = route_of(s, h);
	bool head = h->method == HTTP1_HEAD;
	s->stats.requests++;
	c->requests++;
	c->closing = c->closing || !h->keep_alive || s->draining || c->requests >= s->cfg.limits.max_requests;
	if (h->has_body) {
		c->closing = true; /* what follows is not read as a request */
		answer_text(c, 413, "", "a request without a body is wanted", head);
	} else if (!route) {
		answer_text(c, 404, "", s->cfg.about, head);
	} else if (!(route->methods & h->method)) {
		answer_text(c, 405, "allow: GET, HEAD\r\n", "only GET and HEAD are answered here", head);
	} else {
		struct http1_reply r = { .status = 200, .type = "text/plain; charset=utf-8" };
		buf_init(&r.body, s->cfg.limits.max_body);
		route->on_request(s->cfg.app, &r);
		answer(c, &r, "", head);
		buf_done(&r.body);
	}
}

/* ---- requests ---- */

/* Some senders put an empty line behind a request (RFC 9112, 2.2): one is passed over. */
static void skip_empty_line(struct http1_conn *c)
{
	if (buf_len(&c->in) >= 2 && c->scanned == 0 && memcmp(buf_head(&c->in), "\r\n", 2) == 0)
		buf_consume(&c->in, 2);
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
			refuse_request(c, 431, "the request's head has more than 16 KiB");
		else
			refuse_request(c, 400, "the request's head holds a bare CR, LF or NUL");
		return true;
	}
	int status = http1_head_parse(data, (size_t)len, &h, &why);
	if (status)
		refuse_request(c, status, why);
	else
		serve(c, &h);
	buf_consume(&c->in, (size_t)len);
	c->scanned = 0;
	return true;
}

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

static void on_flush(struct loop_dirty *d)
{
	struct http1_conn *c = container_of(d, struct http1_conn, dirty);
	struct http1_server *s = c->srv;
	bool more = true, was_blocked = buf_len(&c->out) > 0;
	int served = 0;
	while (more && served < s->cfg.limits.requests_per_turn) {
		more = one_request(c);
		served += more;
	}
	c->answered = c->answered || served;
	more = more || buf_len(&c->out) > OUT_HIGH; /* a further one may be there already */
	if (buf_len(&c->out) && !was_blocked)
		set_due(c, s->cfg.limits.blocked_output_ns);
	if (!write_out(c)) {
		conn_close(c);
		return;
	}
	if (buf_len(&c->out)) {
		stream_want(c->stream, LOOP_WRITE_READY);
		return;
	}
	if (c->closing) {
		linger(c);
		return;
	}
	if (more || was_blocked) { /* others first */
		stream_want(c->stream, LOOP_WRITE_READY);
		return;
	}
	if (c->ended) { /* and no whole request is left */
		conn_close(c);
		return;
	}
	stream_want(c->stream, LOOP_READ);
	if (!c->answered)
		return; /* the head's time runs on */
	c->answered = false;
	move_to(c, buf_len(&c->in) ? &s->busy : &s->idle);
	set_due(c, buf_len(&c->in) ? s->cfg.limits.head_ns : s->cfg.limits.idle_ns);
}

/* ---- the stream's events ---- */

static void read_some(struct http1_conn *c)
{
	bool first = !buf_len(&c->in);
	uint8_t *at = buf_reserve(&c->in, READ_SIZE);
	ssize_t n = at ? stream_read(c->stream, at, READ_SIZE) : -ENOMEM;
	if (n == -EAGAIN)
		return;
	if (n < 0 || (n == 0 && c->lingering)) {
		conn_close(c);
		return;
	}
	if (c->lingering) { /* nothing was committed */
		stream_want(c->stream, LOOP_READ);
		return;
	}
	if (n == 0) {
		c->ended = true;
		stream_want(c->stream, 0);
	} else {
		buf_commit(&c->in, (size_t)n);
		if (first) {
			move_to(c, &c->srv->busy);
			set_due(c, c->srv->cfg.limits.head_ns);
		}
	}
	loop_mark(c->srv->loop, &c->dirty);
}

static void on_ready(void *arg, int events)
{
	struct http1_conn *c = arg;
	if (events & LOOP_READ)
		read_some(c);
	else
		loop_mark(c->srv->loop, &c->dirty);
}

static void on_broken(void *arg, int err, const char *text) { conn_close(arg); }

static const struct stream_events stream_events = { .on_ready = on_ready, .on_broken = on_broken };

static void on_timer(struct loop_timer *t)
{
	struct http1_conn *c = container_of(t, struct http1_conn, timer);
	if (!c->lingering && !buf_len(&c->out) && buf_len(&c->in)) {
		refuse_request(c, 408, "the request's head did not come in time");
		loop_mark(c->srv->loop, &c->dirty);
		return;
	}
	conn_close(c);
}

/* ---- the server ---- */

/* Who is idle longest goes, else who has had us wait longest for the rest of a head: a probe, whose head comes at once, gets
 * through however many send theirs in drops. */
static void make_room(struct http1_server *s)
{
	if (s->stats.connections < s->cfg.limits.max_connections)
		return;
	if (!list_empty(&s->idle)) {
		conn_close(container_of(s->idle.next, struct http1_conn, node));
		return;
	}
	list_each(it, &s->busy) {
		struct http1_conn *c = container_of(it, struct http1_conn, node);
		if (c->lingering || buf_len(&c->out))
			continue;
		if (s->cfg.on_log)
			s->cfg.on_log(s->cfg.app, c->peer, "ended for another: its head is not whole, and there are too many connections");
		conn_close(c);
		return;
	}
}

void http1_server_adopt(struct http1_server *s, struct stream *stream, const void *data, size_t len)
{
	make_room(s);
	bool full = s->stats.connections >= s->cfg.limits.max_connections;
	struct http1_conn *c = full ? NULL : calloc(1, sizeof(*c));
	if (!c) {
		s->stats.refused_connections++;
		if (s->cfg.on_log)
			s->cfg.on_log(s->cfg.app, stream_peer(stream)->address, "refused: too many connections of HTTP/1.1");
		stream_close(stream);
		return;
	}
	c->srv = s;
	c->stream = stream;
	buf_init(&c->in, IN_MAX);
	buf_init(&c->out, OUT_HIGH + s->cfg.limits.max_body + ANSWER_HEAD_MAX);
	snprintf(c->peer, sizeof(c->peer), "%s", stream_peer(stream)->address);
	loop_timer_init(&c->timer, s->loop, on_timer);
	loop_dirty_init(&c->dirty, LOOP_WRITE, on_flush);
	list_push_back(&s->busy, &c->node);
	s->stats.connections++;
	stream_set_events(stream, &stream_events, c);
	set_due(c, s->cfg.limits.head_ns);
	if (buf_add(&c->in, data, len) < 0)
		c->closing = true;
	loop_mark(s->loop, &c->dirty);
}

static void close_all(struct list *conns)
{
	list_each(it, conns)
		conn_close(container_of(it, struct http1_conn, node));
}

static void on_drain_deadline(struct loop_timer *t) { close_all(&container_of(t, struct http1_server, deadline)->busy); }

static void on_all_gone(struct loop_dirty *d)
{
	struct http1_server *s = container_of(d, struct http1_server, drained);
	if (s->stats.connections || !s->on_drained)
		return;
	loop_timer_stop(&s->deadline);
	void (*on_drained)(void *) = s->on_drained;
	s->on_drained = NULL;
	on_drained(s->cfg.app);
}

int http1_server_new(struct loop *loop, const struct http1_server_config *cfg, struct http1_server **ret)
{
	struct http1_server *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->loop = loop;
	s->cfg = *cfg;
	list_init(&s->idle);
	list_init(&s->busy);
	loop_dirty_init(&s->drained, LOOP_WORK, on_all_gone);
	loop_timer_init(&s->deadline, loop, on_drain_deadline);
	*ret = s;
	return 0;
}

void http1_server_drain(struct http1_server *s, int64_t deadline_mono_ns, void (*on_drained)(void *app))
{
	s->draining = true;
	s->on_drained = on_drained;
	close_all(&s->idle);
	loop_timer_set(&s->deadline, deadline_mono_ns);
	loop_mark(s->loop, &s->drained);
}

static void server_bury(struct loop_grave *g) { free(container_of(g, struct http1_server, grave)); }

void http1_server_free(struct http1_server *s)
{
	if (!s)
		return;
	s->draining = false;
	close_all(&s->idle);
	close_all(&s->busy);
	loop_timer_stop(&s->deadline);
	loop_unmark(&s->drained);
	loop_bury(s->loop, &s->grave, server_bury);
}

void http1_server_stats(const struct http1_server *s, struct http1_stats *ret) { *ret = s->stats; }
