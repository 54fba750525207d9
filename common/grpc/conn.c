/* Owns the order of things on a connection: read at most READ_MAX a turn, let the session take notes, then tell the
 * owner; write once per turn in LOOP_WRITE, then tell the owner what that changed.
 *
 * One timer serves all of the connection's deadlines: it is set to the earliest, and when it fires the
 * conditions are looked at afresh, so that traffic need not move it. */
#include "common/grpc/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/rng.h"

#define READ_MAX (64 * 1024)  /* per connection and turn: fairness */
#define WRITE_HIGH (256 * 1024) /* encoded bytes waiting for the socket */
#define OUT_MAX (SIZE_MAX / 4)  /* h2_pull stops at WRITE_HIGH plus a frame */
#define LINGER_NS NS_PER_S
#define SELDOM_NS (100 * NS_PER_MS)
#define CUT_NS NS_PER_S /* from the end of an old connection's calls to its own */
#define DRAIN_NS NS_PER_S /* for a peer that doesn't answer the PING between the two GOAWAYs */

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN (sizeof(PREFACE) - 1)

static const char HTTP1_ANSWER[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
				   "content-type: text/plain\r\n"
				   "content-length: 53\r\n"
				   "connection: close\r\n"
				   "\r\n"
				   "This port speaks gRPC (HTTP/2 with prior knowledge).\n";

static void on_timer(struct loop_timer *t);
static void on_flush(struct loop_dirty *d);

int conn_init(struct conn *c, struct loop *loop, enum h2_role role, const struct grpc_limits *limits,
	      const struct conn_ops *ops)
{
	struct h2_limits l = {
		.max_header_list = limits->max_header_list,
		.max_header_fields = limits->max_header_fields,
		.max_streams = limits->max_streams,
		.stream_window = limits->stream_window,
		.conn_window = limits->conn_window,
		.in_budget = limits->conn_recv,
		.ping_min_ns = limits->ping_min_ns,
	};
	c->loop = loop;
	c->role = role;
	c->limits = limits;
	c->ops = ops;
	c->state = CONN_OPENING;
	int rc = h2_new(role, &l, &c->h2);
	if (rc < 0)
		return rc;
	buf_init(&c->out, OUT_MAX);
	loop_dirty_init(&c->dirty, LOOP_WRITE, on_flush);
	loop_timer_init(&c->timer, loop, on_timer);
	return 0;
}

void conn_mark(struct conn *c)
{
	if (c->state == CONN_OPEN || c->state == CONN_ENDING)
		loop_mark(c->loop, &c->dirty);
}

/* ---- deadlines ---- */

static void arm(struct conn *c, int64_t due)
{
	if (due == INT64_MAX)
		return;
	if (!loop_timer_active(&c->timer) || c->timer.due_mono_ns > due)
		loop_timer_set(&c->timer, due);
}

/* How long it may be idle; INT64_MAX: for ever. */
static int64_t idle_limit(const struct conn *c)
{
	const struct grpc_limits *l = c->limits;
	int64_t ns = l->idle_ns > 0 ? l->idle_ns : INT64_MAX;
	if (c->role != H2_SERVER)
		return INT64_MAX;
	return c->proven || l->unproven_idle_ns <= 0 ? ns : min_i64(ns, l->unproven_idle_ns);
}

static int64_t check_keepalive(struct conn *c, int64_t now)
{
	const struct grpc_limits *l = c->limits;
	if (l->keepalive_ns <= 0)
		return INT64_MAX;
	if (h2_ping_waiting(c->h2)) {
		int64_t due = max_i64(c->ping_mono_ns, c->received_mono_ns) + l->keepalive_timeout_ns;
		return now >= due ? -1 : due;
	}
	int64_t due = c->received_mono_ns + l->keepalive_ns;
	if (now < due)
		return due;
	h2_ping(c->h2);
	c->ping_mono_ns = now;
	conn_mark(c);
	return now + l->keepalive_timeout_ns;
}

/* The next step of growing old, if it is due; -1: the connection is to be cut. Else when the next one is. */
static int64_t check_age(struct conn *c, int64_t now)
{
	if (!c->age_mono_ns)
		return INT64_MAX;
	if (now < c->age_mono_ns)
		return c->age_mono_ns;
	switch (c->age) {
	case AGE_YOUNG:
		c->age = AGE_DRAINS;
		c->age_mono_ns = now + c->limits->max_age_grace_ns;
		conn_drain(c, "max_age");
		break;
	case AGE_DRAINS:
		c->age = AGE_ENDED;
		c->age_mono_ns = now + CUT_NS;
		h2_drain_finish(c->h2);
		c->ops->on_aged(c);
		conn_mark(c);
		break;
	default:
		return -1;
	}
	return c->age_mono_ns;
}

/* The text of what is overdue, or NULL and the next time to look. */
static const char *check(struct conn *c, int64_t now, int64_t *ret_due)
{
	const struct grpc_limits *l = c->limits;
	int64_t due = INT64_MAX;
	if (c->role == H2_SERVER && !h2_ready(c->h2) && l->first_headers_ns > 0) {
		due = c->opened_mono_ns + l->first_headers_ns;
		if (now >= due)
			return "no HTTP/2 settings in time";
	}
	int64_t alive = check_keepalive(c, now);
	if (alive < 0)
		return "no answer to the keepalive PING";
	due = min_i64(due, alive);
	int64_t age = check_age(c, now);
	if (age < 0)
		return "cut: the grace of its age is over";
	due = min_i64(due, age);
	if (c->out_pending && l->blocked_output_ns > 0) {
		int64_t blocked = c->progress_mono_ns + l->blocked_output_ns;
		if (now >= blocked)
			return "the peer takes no output";
		due = min_i64(due, blocked);
	}
	if (c->drain_mono_ns && c->state == CONN_OPEN) {
		int64_t drained = c->drain_mono_ns + DRAIN_NS;
		if (now >= drained) {
			h2_drain_finish(c->h2);
			conn_mark(c);
		} else {
			due = min_i64(due, drained);
		}
	}
	if (c->idle && idle_limit(c) != INT64_MAX && c->state == CONN_OPEN) {
		int64_t idle = c->idle_mono_ns + idle_limit(c);
		if (now >= idle)
			conn_terminate(c, H2_NO_ERROR, "max_idle");
		else
			due = min_i64(due, idle);
	}
	*ret_due = due;
	return NULL;
}

static void on_timer(struct loop_timer *t)
{
	struct conn *c = container_of(t, struct conn, timer);
	int64_t now = loop_now_mono_ns(c->loop), due = INT64_MAX;
	if (c->state == CONN_LINGER) {
		conn_fail(c, c->text[0] ? c->text : NULL);
		return;
	}
	const char *text = check(c, now, &due);
	if (text)
		conn_fail(c, text);
	else
		arm(c, due);
}

static void rearm(struct conn *c)
{
	int64_t due = INT64_MAX;
	if (!check(c, loop_now_mono_ns(c->loop), &due))
		arm(c, due);
}

/* ---- the end ---- */

void conn_shut(struct conn *c)
{
	if (c->state == CONN_CLOSED)
		return;
	c->state = CONN_CLOSED;
	loop_timer_stop(&c->timer);
	loop_unmark(&c->dirty);
	stream_close(c->stream);
	c->stream = NULL;
	h2_abort(c->h2);
}

void conn_done(struct conn *c)
{
	h2_free(c->h2);
	c->h2 = NULL;
	buf_done(&c->out);
}

void conn_fail(struct conn *c, const char *text)
{
	if (c->state == CONN_CLOSED)
		return;
	if (text && text != c->text)
		snprintf(c->text, sizeof(c->text), "%s", text);
	conn_shut(c);
	struct h2_stream *s;
	unsigned news;
	while ((s = h2_next(c->h2, &news)))
		c->ops->on_stream(c, s, news);
	c->ops->on_closed(c, text ? c->text : NULL);
}

static void set_ending(struct conn *c, const char *text)
{
	c->state = CONN_ENDING;
	snprintf(c->text, sizeof(c->text), "%s", text);
	loop_mark(c->loop, &c->dirty);
}

void conn_terminate(struct conn *c, uint32_t code, const char *text)
{
	if (c->state != CONN_OPEN)
		return;
	h2_terminate(c->h2, code, text);
	set_ending(c, code == H2_NO_ERROR ? "" : text);
}

void conn_drain(struct conn *c, const char *why)
{
	if (c->state != CONN_OPEN || c->drain_mono_ns)
		return;
	h2_drain(c->h2, why);
	c->drain_mono_ns = loop_now_mono_ns(c->loop);
	arm(c, c->drain_mono_ns + DRAIN_NS);
	conn_mark(c);
}

/* ---- news ---- */

static void deliver(struct conn *c)
{
	struct h2_stream *s;
	unsigned news;
	while (c->state != CONN_CLOSED && (s = h2_next(c->h2, &news)))
		c->ops->on_stream(c, s, news);
	if (c->state == CONN_CLOSED)
		return;
	bool idle = h2_open_streams(c->h2) == 0;
	if (idle && !c->idle) {
		c->idle_mono_ns = loop_now_mono_ns(c->loop);
		if (idle_limit(c) != INT64_MAX)
			arm(c, c->idle_mono_ns + idle_limit(c));
	}
	c->idle = idle;
	if (!c->ready_told && h2_ready(c->h2)) {
		c->ready_told = true;
		if (c->ops->on_ready)
			c->ops->on_ready(c);
	}
	if (c->state != CONN_CLOSED && !c->goaway_told && h2_goaway_received(c->h2)) {
		c->goaway_told = true;
		if (c->ops->on_goaway)
			c->ops->on_goaway(c);
	}
	if (c->state == CONN_OPEN && h2_dead(c->h2))
		set_ending(c, h2_error(c->h2));
}

static void want(struct conn *c)
{
	int events = c->state == CONN_OPENING ? 0 : LOOP_READ;
	if (buf_len(&c->out))
		events |= LOOP_WRITE_READY;
	stream_want(c->stream, events);
}

static void linger(struct conn *c)
{
	c->state = CONN_LINGER;
	c->linger_mono_ns = loop_now_mono_ns(c->loop) + LINGER_NS;
	loop_timer_set(&c->timer, c->linger_mono_ns);
	stream_shutdown(c->stream);
	want(c);
}

/* ---- input ---- */

/* All that came so far goes with the stream: what was taken for a preface, then what shows that it is none. */
static void hand_over(struct conn *c, const uint8_t *data, size_t len)
{
	static _Thread_local uint8_t bytes[PREFACE_LEN + READ_MAX];
	struct stream *s = c->stream;
	size_t seen = c->preface;
	memcpy(bytes, PREFACE, seen);
	memcpy(bytes + seen, data, len);
	c->stream = NULL;
	c->ops->on_other(c, s, bytes, seen + len);
	conn_fail(c, NULL);
}

/* False: this is not HTTP/2; an answer that such a client can read is on its way, or the stream is somebody else's. */
static bool preface_ok(struct conn *c, const uint8_t *data, size_t len)
{
	if (c->role == H2_CLIENT || c->preface == PREFACE_LEN)
		return true;
	size_t n = min_sz(len, PREFACE_LEN - c->preface);
	if (memcmp(PREFACE + c->preface, data, n) == 0) {
		c->preface += n;
		return true;
	}
	if (c->ops->on_other && strcmp(stream_peer(c->stream)->alpn, "h2") != 0) {
		hand_over(c, data, len);
		return false;
	}
	h2_abort(c->h2);
	if (buf_add(&c->out, HTTP1_ANSWER, sizeof(HTTP1_ANSWER) - 1) < 0)
		c->preface = 0; /* no memory: closed without an answer */
	set_ending(c, "not HTTP/2");
	return false;
}

/* TLS knows more than an errno says: which certificate was refused, and why. */
static void io_text(const struct conn *c, const char *doing, int err, char *ret, size_t cap)
{
	const char *known = stream_error(c->stream);
	if (known[0])
		snprintf(ret, cap, "%s", known);
	else
		snprintf(ret, cap, "%s: %s", doing, strerror(err));
}

static void read_some(struct conn *c)
{
	static _Thread_local uint8_t bytes[READ_MAX];
	bool tls = stream_peer(c->stream)->tls;
	size_t got = 0;
	ssize_t n = -EAGAIN;
	while (got < sizeof(bytes)) {
		n = stream_read(c->stream, bytes + got, sizeof(bytes) - got);
		if (n <= 0)
			break;
		got += (size_t)n;
		if (!tls && got < sizeof(bytes))
			break; /* a short read emptied the socket: spares a call */
	}
	if (got) {
		c->received_mono_ns = loop_now_mono_ns(c->loop);
		c->bytes_in += (int64_t)got;
	}
	if (got && c->state == CONN_OPEN && preface_ok(c, bytes, got)) {
		if (h2_recv(c->h2, bytes, got, c->received_mono_ns) == 0 || c->state == CONN_OPEN)
			conn_mark(c);
		deliver(c);
	}
	if (c->state == CONN_CLOSED)
		return;
	if (n == 0) {
		conn_fail(c, c->text[0] ? c->text : h2_open_streams(c->h2) ? "closed by the peer" : NULL);
	} else if (n < 0 && n != -EAGAIN) {
		char text[300];
		io_text(c, "read", (int)-n, text, sizeof(text));
		conn_fail(c, c->text[0] ? c->text : text);
	} else {
		want(c);
	}
}

/* ---- output ---- */

static void on_flush(struct loop_dirty *d)
{
	struct conn *c = container_of(d, struct conn, dirty);
	int64_t now = loop_now_mono_ns(c->loop);
	/* A server keeps quiet until it knows that the client speaks HTTP/2. */
	bool may = c->role == H2_CLIENT || c->preface == PREFACE_LEN;
	if (may && h2_pull(c->h2, &c->out, WRITE_HIGH, now) < 0) {
		conn_fail(c, h2_error(c->h2));
		return;
	}
	if (buf_len(&c->out)) {
		struct iovec iov = { .iov_base = c->out.data + c->out.start, .iov_len = buf_len(&c->out) };
		ssize_t n = stream_writev(c->stream, &iov, 1);
		if (n < 0 && n != -EAGAIN) {
			char text[300];
			io_text(c, "write", (int)-n, text, sizeof(text));
			conn_fail(c, c->text[0] ? c->text : text);
			return;
		}
		if (n > 0) {
			buf_consume(&c->out, (size_t)n);
			buf_trim(&c->out); /* many connections send little, and seldom */
			c->bytes_out += n;
			c->progress_mono_ns = now;
		}
	}
	bool pending = buf_len(&c->out) || h2_out_total(c->h2);
	if (pending && !c->out_pending) {
		c->progress_mono_ns = now;
		if (c->limits->blocked_output_ns > 0)
			arm(c, now + c->limits->blocked_output_ns);
	}
	c->out_pending = pending;
	deliver(c);
	if (c->state != CONN_CLOSED && c->ops->on_flushed)
		c->ops->on_flushed(c);
	if (c->state == CONN_CLOSED)
		return;
	bool more = may && h2_want_write(c->h2);
	if (c->state == CONN_ENDING && !buf_len(&c->out) && !more) {
		linger(c);
		return;
	}
	/* Not of a connection that is busy: the pages would be back at once. */
	if (!more && !buf_len(&c->out) && now - c->flushed_mono_ns >= SELDOM_NS)
		h2_rest(c->h2);
	c->flushed_mono_ns = now;
	want(c);
	if (more && !buf_len(&c->out))
		stream_want(c->stream, LOOP_READ | LOOP_WRITE_READY); /* the rest in the next turn */
}

/* ---- the stream's events ---- */

static void opened(struct conn *c)
{
	int64_t now = loop_now_mono_ns(c->loop);
	c->state = CONN_OPEN;
	c->opened_mono_ns = c->received_mono_ns = c->progress_mono_ns = c->idle_mono_ns = now;
	c->idle = true;
	if (c->role == H2_SERVER && c->limits->max_age_ns > 0) {
		/* Spread, so that those who came together don't come back together. */
		int64_t tenth = c->limits->max_age_ns / 10;
		c->age_mono_ns = now + c->limits->max_age_ns - tenth + (int64_t)(rng_process_next() % (uint64_t)(2 * tenth + 1));
	}
	const struct stream_peer *peer = stream_peer(c->stream);
	snprintf(c->peer, sizeof(c->peer), "%s", peer->address);
	rearm(c);
	want(c);
	conn_mark(c);
}

static void on_open(void *arg)
{
	struct conn *c = arg;
	if (c->state != CONN_OPENING)
		return;
	const struct stream_peer *peer = stream_peer(c->stream);
	if (c->role == H2_CLIENT && peer->tls && strcmp(peer->alpn, "h2") != 0)
		conn_fail(c, "the server does not offer HTTP/2");
	else
		opened(c);
}

static void on_ready(void *arg, int events)
{
	struct conn *c = arg;
	if (events & LOOP_READ)
		read_some(c);
	if (events & LOOP_WRITE_READY)
		conn_mark(c);
}

static void on_broken(void *arg, int err, const char *text)
{
	struct conn *c = arg;
	conn_fail(c, c->text[0] ? c->text : text);
}

const struct stream_events conn_stream_events = { .on_open = on_open, .on_ready = on_ready, .on_broken = on_broken };

void conn_attach(struct conn *c, struct stream *s, bool open)
{
	c->stream = s;
	if (!open)
		return;
	stream_set_events(s, &conn_stream_events, c);
	opened(c);
}
