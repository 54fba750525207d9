/* Owns calls: from a stream's headers to on_end.
 *
 *   open   a handler may act on it;
 *   over   ended by the handler (finish), the peer (reset), the deadline or the connection's loss: it is on srv->todo,
 *          where on_end is called in LOOP_WORK, and then it is reused. What the handler queued leaves
 *          without it: the stream goes on alone, its user is NULL.
 *
 * A request that is refused from its headers never becomes a call. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/grpc/framing.h"
#include "common/grpc/server_impl.h"
#include "common/grpc/trailers.h"

#define SPARE_MAX 256

static const struct h2_header RESPONSE[] = {
	H2_HEADER(":status", "200"),
	H2_HEADER("content-type", "application/grpc"),
	H2_HEADER("server", "reins/" REINS_VERSION),
};
#define RESPONSE_LEN ARRAY_LEN(RESPONSE)

static void on_deadline(struct loop_timer *t);

/* ---- objects ---- */

static struct grpc_call *call_new(struct server_conn *sc, struct h2_stream *s, struct method_entry *entry, void *caller)
{
	const struct grpc_method *m = entry->method;
	struct grpc_server *srv = sc->srv;
	struct list *it = list_pop_front(&srv->spare);
	struct grpc_call *c = it ? container_of(it, struct grpc_call, node) : malloc(sizeof(*c));
	if (!c)
		return NULL;
	if (it)
		srv->n_spare--;
	*c = (struct grpc_call){ .srv = srv, .sc = sc, .s = s, .method = m, .caller = caller,
				  .deadline_mono_ns = GRPC_NO_DEADLINE, .patience_mono_ns = GRPC_NO_DEADLINE, .stats = &entry->stats,
				  .began_mono_ns = loop_now_mono_ns(srv->loop) };
	entry->stats.started++;
	c->max_message = m->max_message ? m->max_message : srv->cfg.limits.max_message;
	list_init(&c->todo);
	list_init(&c->parked);
	list_push_back(&sc->calls, &c->node);
	loop_timer_init(&c->timer, srv->loop, on_deadline);
	h2_set_user(s, c);
	srv->stats.calls_open++;
	srv->stats.calls_total++;
	return c;
}

static void call_free(struct grpc_call *c)
{
	struct grpc_server *srv = c->srv;
	if (c->s)
		h2_set_user(c->s, NULL);
	loop_timer_stop(&c->timer);
	list_remove(&c->node);
	list_remove(&c->parked);
	list_remove(&c->todo);
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

void server_call_free_spares(struct grpc_server *srv)
{
	struct list *it;
	while ((it = list_pop_front(&srv->spare)))
		free(container_of(it, struct grpc_call, node));
	srv->n_spare = 0;
}

static void schedule(struct grpc_call *c)
{
	if (list_empty(&c->todo))
		list_push_back(&c->srv->todo, &c->todo);
	loop_mark(c->srv->loop, &c->srv->dirty);
}

/* ---- the end ---- */

static void count(struct grpc_server *srv, struct grpc_method_stats *stats, enum status_code code)
{
	if (code >= GRPC_STATUS_CODES)
		return;
	srv->stats.ended[code]++;
	stats->ended[code]++;
}

static void count_refused(struct grpc_server *srv, enum status_code code)
{
	count(srv, &srv->entries[srv->cfg.n_methods].stats, code);
}

static void set_over(struct grpc_call *c, enum status_code code, bool finished)
{
	assert(!c->over);
	count(c->srv, c->stats, code);
	if (c->method->shape != GRPC_BIDI)
		histogram_add(&c->stats->took, loop_now_mono_ns(c->srv->loop) - c->began_mono_ns);
	c->over = true;
	c->finished = finished;
	c->code = code;
	loop_timer_stop(&c->timer);
	list_remove(&c->parked);
	schedule(c);
}

static void send_status(struct h2_stream *s, bool headers_sent, const struct refusal *r)
{
	struct trailers t;
	trailers_build(&t, r);
	if (headers_sent) {
		h2_finish(s, t.h, t.n);
		return;
	}
	struct h2_header h[RESPONSE_LEN + TRAILERS_MAX];
	memcpy(h, RESPONSE, sizeof(RESPONSE));
	memcpy(h + RESPONSE_LEN, t.h, t.n * sizeof(t.h[0]));
	h2_respond(s, h, RESPONSE_LEN + t.n, true);
}

static void end_call(struct grpc_call *c, const struct refusal *r, bool finished)
{
	if (c->over)
		return;
	if (c->s) {
		h2_discard(c->s);
		send_status(c->s, c->headers_sent, r);
		conn_mark(&c->sc->base);
	}
	set_over(c, r ? r->code : STATUS_OK, finished);
}

void grpc_call_finish(struct grpc_call *c, const struct refusal *r_or_null) { end_call(c, r_or_null, true); }

void server_call_refuse(struct grpc_call *c, enum status_code code, const char *text)
{
	struct refusal r;
	(void)refuse(&r, code, NULL, "%s", text);
	end_call(c, &r, false);
}

void server_call_cut(struct grpc_call *c)
{
	c->s = NULL;
	if (!c->over)
		set_over(c, STATUS_CANCELLED, false);
	/* The connection may be gone before on_end is called. */
	if (c->sc && c->sc->base.state == CONN_CLOSED) {
		c->sc = NULL;
		list_remove(&c->node);
	}
}

/* The timer stands at the earlier of the deadline and the time by which more of the request must have come; a
 * byte does not move it, it is looked at afresh when it fires. */
static void set_timer(struct grpc_call *c)
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
	if (c->body_mono_ns && now >= c->body_mono_ns + c->srv->cfg.limits.body_ns)
		server_call_refuse(c, STATUS_DEADLINE_EXCEEDED, "the request stopped coming");
	else
		set_timer(c);
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
	if (c->s && h2_queued(c->s)) {
		/* A message may be half on the wire, and the peer doesn't take the rest: trailers would wait behind it. */
		h2_reset(c->s, H2_CANCEL);
		conn_mark(&c->sc->base);
		set_over(c, deadline ? STATUS_DEADLINE_EXCEEDED : c->out_of_patience->code, false);
		return;
	}
	if (deadline)
		server_call_refuse(c, STATUS_DEADLINE_EXCEEDED, "the call's deadline passed");
	else
		end_call(c, c->out_of_patience, false);
}

void grpc_call_patience(struct grpc_call *c, int64_t until_mono_ns, const struct refusal *r)
{
	if (c->over)
		return;
	if (until_mono_ns != GRPC_NO_DEADLINE && c->patience_mono_ns != GRPC_NO_DEADLINE)
		return;
	c->patience_mono_ns = until_mono_ns;
	c->out_of_patience = r;
	set_timer(c);
}

/* ---- a request's headers ---- */

static void answer_http(struct grpc_server *srv, struct h2_stream *s, const char *status)
{
	srv->stats.not_grpc++;
	struct h2_header h[] = {
		{ ":status", status, strlen(status), 0 },
		H2_HEADER("server", "reins/" REINS_VERSION),
	};
	h2_read_to_end(s);
	h2_respond(s, h, ARRAY_LEN(h), true);
}

static void answer_refusal(struct h2_stream *s, const struct refusal *r)
{
	h2_discard(s);
	send_status(s, false, r);
}

static void answer_status(struct grpc_server *srv, struct h2_stream *s, enum status_code code, const char *text)
{
	struct refusal r;
	(void)refuse(&r, code, NULL, "%s", text);
	count_refused(srv, code);
	answer_refusal(s, &r);
}

static void answer_encoding(struct grpc_server *srv, struct h2_stream *s)
{
	count_refused(srv, STATUS_UNIMPLEMENTED);
	struct h2_header h[RESPONSE_LEN + 3];
	memcpy(h, RESPONSE, sizeof(RESPONSE));
	h[RESPONSE_LEN] = (struct h2_header)H2_HEADER("grpc-accept-encoding", "identity");
	h[RESPONSE_LEN + 1] = (struct h2_header)H2_HEADER("grpc-status", "12");
	h[RESPONSE_LEN + 2] = (struct h2_header)H2_HEADER("grpc-message", "messages must be sent uncompressed");
	h2_discard(s);
	h2_respond(s, h, ARRAY_LEN(h), true);
}

static bool is_grpc_type(const char *type)
{
	static const char base[] = "application/grpc";
	if (!type || strncmp(type, base, sizeof(base) - 1) != 0)
		return false;
	const char *rest = type + sizeof(base) - 1;
	if (strncmp(rest, "+proto", 6) == 0)
		rest += 6;
	return *rest == 0 || *rest == ';' || *rest == ' ';
}

int server_call_authorize(struct grpc_server *srv, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r)
{
	*ret_caller = NULL;
	return srv->cfg.on_authorize ? srv->cfg.on_authorize(srv->cfg.app, rq, ret_caller, ret_r) : 0;
}

static int authorize(struct server_conn *sc, struct h2_stream *s, struct method_entry *entry, void **ret_caller)
{
	const struct grpc_request rq = {
		.method = entry->method,
		.peer = stream_peer(sc->base.stream),
		.authorization = h2_header(s, "authorization"),
		.n_authorization = h2_header_count(s, "authorization"),
		.request_id = h2_header(s, "x-request-id"),
	};
	struct refusal r = { .code = STATUS_OK };
	if (server_call_authorize(sc->srv, &rq, ret_caller, &r) == 0)
		return 0;
	entry->stats.started++;
	count(sc->srv, &entry->stats, r.code);
	answer_refusal(s, &r);
	return -1;
}

/* A call, or NULL when the stream was answered. */
static struct grpc_call *accept_call(struct server_conn *sc, struct h2_stream *s)
{
	struct grpc_server *srv = sc->srv;
	if (h2_oversized(s)) {
		answer_status(srv, s, STATUS_RESOURCE_EXHAUSTED, "the request's headers are too large");
		return NULL;
	}
	const char *method = h2_header(s, ":method"), *path = h2_header(s, ":path");
	if (!method || strcmp(method, "POST") != 0) {
		answer_http(srv, s, "405");
		return NULL;
	}
	if (!is_grpc_type(h2_header(s, "content-type"))) {
		answer_http(srv, s, "415");
		return NULL;
	}
	struct map_node *n = path ? map_get(&srv->methods, path, strlen(path)) : NULL;
	if (!n) {
		answer_status(srv, s, STATUS_UNIMPLEMENTED, "unknown method");
		return NULL;
	}
	const char *encoding = h2_header(s, "grpc-encoding");
	if (encoding && strcmp(encoding, "identity") != 0) {
		answer_encoding(srv, s);
		return NULL;
	}
	const char *timeout = h2_header(s, "grpc-timeout");
	int64_t left = srv->cfg.max_deadline_ns, wanted;
	if (timeout) {
		if (wire_parse_timeout(timeout, &wanted) < 0) {
			answer_status(srv, s, STATUS_INVALID_ARGUMENT, "grpc-timeout must be 1 to 8 digits and one of H M S m u n");
			return NULL;
		}
		left = left > 0 ? min_i64(left, wanted) : wanted;
	}
	struct method_entry *entry = container_of(n, struct method_entry, node);
	void *caller;
	if (authorize(sc, s, entry, &caller))
		return NULL;
	struct grpc_call *c = call_new(sc, s, entry, caller);
	if (!c) {
		if (srv->cfg.on_over)
			srv->cfg.on_over(srv->cfg.app, caller, STATUS_UNAVAILABLE);
		answer_status(srv, s, STATUS_UNAVAILABLE, "out of memory");
		return NULL;
	}
	if (timeout || left > 0) {
		c->deadline_mono_ns = loop_now_mono_ns(srv->loop) + left;
		set_timer(c);
	}
	return c;
}

static void respond(struct grpc_call *c)
{
	if (c->headers_sent)
		return;
	c->headers_sent = true;
	h2_respond(c->s, RESPONSE, RESPONSE_LEN, false);
	conn_mark(&c->sc->base);
}

/* ---- messages in ---- */

static void refuse_message(struct grpc_call *c, int err, const struct framing_message *m)
{
	char text[128];
	if (err == -EMSGSIZE) {
		snprintf(text, sizeof(text), "message of %u bytes; the limit is %zu", m->declared, c->max_message);
		server_call_refuse(c, STATUS_RESOURCE_EXHAUSTED, text);
	} else {
		server_call_refuse(c, STATUS_INTERNAL, "the flags of a message are neither 0 nor 1");
	}
}

/* What of a message is there stays with the stream; its rest may come. */
static void await_rest(struct grpc_call *c, size_t held)
{
	if (h2_in_total(c->sc->base.h2) <= c->srv->cfg.limits.conn_recv) {
		h2_credit(c->s);
		return;
	}
	server_call_refuse(c, STATUS_RESOURCE_EXHAUSTED, "too many large messages in flight on this connection");
	h2_drop(c->s, held); /* at once: the next stream is measured by what is left */
}

static void await_body(struct grpc_call *c)
{
	bool first = !c->body_mono_ns;
	if (c->srv->cfg.limits.body_ns <= 0)
		return;
	c->body_mono_ns = loop_now_mono_ns(c->srv->loop);
	if (first)
		set_timer(c);
}

static bool must_park(const struct grpc_call *c)
{
	return h2_out_total(c->sc->base.h2) > c->srv->cfg.limits.conn_queue;
}

/* UNARY and SERVER_STREAM: exactly one message, handed over when the peer is done. */
static void input_single(struct grpc_call *c)
{
	struct framing_message m;
	size_t n;
	const uint8_t *data = h2_data(c->s, &n);
	int rc = framing_next(data, n, c->max_message, &m);
	if (rc < 0) {
		refuse_message(c, rc, &m);
	} else if (rc == 1 && m.compressed) {
		server_call_refuse(c, STATUS_INTERNAL, "a compressed message without grpc-encoding");
	} else if (rc == 1 && n > FRAMING_PREFIX + m.len) {
		server_call_refuse(c, STATUS_UNIMPLEMENTED, "more than one request message");
	} else if (!c->peer_done) {
		await_body(c);
		await_rest(c, n);
	} else if (rc == 0) {
		server_call_refuse(c, n ? STATUS_INTERNAL : STATUS_UNIMPLEMENTED,
				   n ? "the request message is cut short" : "no request message");
	} else if (must_park(c)) {
		c->body_mono_ns = 0;
		list_push_back(&c->sc->parked, &c->parked);
	} else if (!c->requested) {
		c->requested = c->told = true;
		if (c->body_mono_ns) {
			c->body_mono_ns = 0;
			set_timer(c);
		}
		h2_mark_started(c->s);
		struct h2_stream *s = c->s;
		c->stats->messages_in++;
		c->stats->bytes_in += m.len;
		c->method->on_request(c, m.data, m.len);
		if (c->s == s) /* not when the handler freed the server */
			h2_drop(s, n);
	}
}

static void input_bidi(struct grpc_call *c)
{
	struct framing_message m;
	while (!c->over && !c->paused) {
		size_t n;
		const uint8_t *data = h2_data(c->s, &n);
		int rc = framing_next(data, n, c->max_message, &m);
		if (rc < 0) {
			refuse_message(c, rc, &m);
		} else if (rc == 0 && !c->peer_done) {
			if (n)
				await_rest(c, n);
			return;
		} else if (rc == 0 && n) {
			server_call_refuse(c, STATUS_INTERNAL, "the last message is cut short");
		} else if (rc == 0) {
			if (!c->told_half_close) {
				c->told_half_close = true;
				if (c->method->on_half_close)
					c->method->on_half_close(c);
			}
			return;
		} else if (m.compressed) {
			server_call_refuse(c, STATUS_INTERNAL, "a compressed message without grpc-encoding");
		} else {
			c->stats->messages_in++;
			c->stats->bytes_in += m.len;
			c->method->on_message(c, m.data, m.len);
			if (!c->over)
				h2_drop(c->s, FRAMING_PREFIX + m.len);
		}
	}
}

static void input(struct grpc_call *c)
{
	if (c->over || !c->s)
		return;
	if (c->method->shape == GRPC_BIDI)
		input_bidi(c);
	else if (!c->requested && list_empty(&c->parked))
		input_single(c);
}

void server_call_unpark(struct server_conn *sc)
{
	const struct grpc_limits *l = &sc->srv->cfg.limits;
	while (!list_empty(&sc->parked) && sc->base.state != CONN_CLOSED &&
	       h2_out_total(sc->base.h2) <= l->conn_queue / 2) {
		struct grpc_call *c = container_of(list_pop_front(&sc->parked), struct grpc_call, parked);
		input(c);
	}
}

/* ---- news ---- */

void server_call_news(struct server_conn *sc, struct h2_stream *s, unsigned news)
{
	struct grpc_call *c = h2_user(s);
	if (news & H2_NEWS_CLOSED) {
		/* Also for a request that came and went in one batch: no handler hears of it. */
		if (c)
			server_call_cut(c);
		h2_release(s);
		return;
	}
	if (news & H2_NEWS_HEADERS) {
		c = accept_call(sc, s);
		if (!c) {
			conn_mark(&sc->base);
			return;
		}
		if (news & H2_NEWS_END)
			c->peer_done = true;
		if (c->method->shape == GRPC_BIDI) {
			c->told = true;
			h2_mark_started(s);
			respond(c);
			c->method->on_start(c);
		} else if (!(news & (H2_NEWS_DATA | H2_NEWS_END))) {
			await_body(c);
		}
	}
	if (!c || c->over)
		return;
	if (news & H2_NEWS_END)
		c->peer_done = true;
	if (news & (H2_NEWS_DATA | H2_NEWS_END))
		input(c);
	if ((news & H2_NEWS_DRAINED) && !c->over && c->want_writable) {
		c->want_writable = false;
		if (c->method->on_writable)
			c->method->on_writable(c);
	}
}

void server_call_work(struct grpc_server *srv)
{
	struct list batch, *it;
	list_init(&batch);
	list_splice_back(&batch, &srv->todo);
	while ((it = list_pop_front(&batch))) {
		struct grpc_call *c = container_of(it, struct grpc_call, todo);
		if (!c->over) {
			input(c);
			if (!c->over)
				continue;
			list_remove(&c->todo);
		}
		if (c->told && c->method->on_end)
			c->method->on_end(c, c->finished);
		call_free(c);
	}
}

/* ---- messages out ---- */

int grpc_call_send_packed(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg)
{
	if (c->over || !c->s)
		return -EPIPE;
	const struct grpc_limits *l = &c->srv->cfg.limits;
	if (len > l->max_message || len > UINT32_MAX)
		return -EMSGSIZE;
	size_t queued = h2_queued(c->s);
	if (queued && (queued + len + FRAMING_PREFIX > l->stream_queue ||
		       h2_out_total(c->sc->base.h2) + len > l->conn_queue)) {
		c->want_writable = true;
		h2_notify_drained(c->s, min_sz(l->stream_queue / 2, queued / 2));
		return -EAGAIN;
	}
	respond(c);
	uint8_t *at = h2_write_reserve(c->s, FRAMING_PREFIX + len);
	if (!at) {
		server_call_refuse(c, STATUS_UNAVAILABLE, "out of memory");
		return -EPIPE;
	}
	c->sc->base.proven = true;
	framing_prefix(at, (uint32_t)len);
	size_t packed = pack(msg, at + FRAMING_PREFIX);
	assert(packed == len);
	h2_write_commit(c->s, FRAMING_PREFIX + packed);
	c->stats->messages_out++;
	c->stats->bytes_out += (int64_t)packed;
	conn_mark(&c->sc->base);
	return 0;
}

struct span {
	const void *data;
	size_t len;
};

static size_t pack_span(const void *msg, uint8_t *out)
{
	const struct span *s = msg;
	if (s->len)
		memcpy(out, s->data, s->len);
	return s->len;
}

int grpc_call_send(struct grpc_call *c, const void *data, size_t len)
{
	struct span s = { data, len };
	return grpc_call_send_packed(c, len, pack_span, &s);
}

void grpc_call_reply_packed(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg)
{
	int rc = grpc_call_send_packed(c, len, pack, msg);
	struct refusal r;
	if (rc == -EMSGSIZE) {
		(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "the reply would have %zu bytes; the limit is %zu", len,
			     c->srv->cfg.limits.max_message);
		(void)refuse_reason(&r, REASON_REPLY_TOO_LARGE);
	} else if (rc == -EAGAIN) {
		(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "more than one reply to a unary call");
	}
	grpc_call_finish(c, rc == -EMSGSIZE || rc == -EAGAIN ? &r : NULL);
}

size_t grpc_call_queued(const struct grpc_call *c) { return c->s ? h2_queued(c->s) : 0; }

void grpc_call_pause(struct grpc_call *c, bool paused)
{
	c->paused = paused;
	if (!paused && !c->over)
		schedule(c);
}

/* ---- asking ---- */

void *grpc_call_app(const struct grpc_call *c) { return c->srv->cfg.app; }
void grpc_call_set_user(struct grpc_call *c, void *user) { c->user = user; }
void *grpc_call_user(const struct grpc_call *c) { return c->user; }
const struct grpc_method *grpc_call_method(const struct grpc_call *c) { return c->method; }
void *grpc_call_caller(const struct grpc_call *c) { return c->caller; }
int64_t grpc_call_deadline_mono_ns(const struct grpc_call *c) { return c->deadline_mono_ns; }

const struct stream_peer *grpc_call_peer(const struct grpc_call *c)
{
	static const struct stream_peer gone = { .address = "gone", .alpn = "" };
	return c->sc && c->sc->base.stream ? stream_peer(c->sc->base.stream) : &gone;
}

const char *grpc_call_header(const struct grpc_call *c, const char *name)
{
	return c->s ? h2_header(c->s, name) : NULL;
}
