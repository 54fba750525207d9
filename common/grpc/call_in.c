/* A request's messages: out of the body, inflated, as protobuf, to the handler. */
#include <errno.h>
#include <stdio.h>

#include "common/grpc/codec.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server_impl.h"

/* As framing_next; where the body is the message, the end of the body is its end. */
static int next(const struct grpc_call *c, const uint8_t *data, size_t n, struct framing_message *ret)
{
	if (c->reply.dialect->enveloped)
		return framing_next(data, n, c->max_message, ret);
	ret->declared = 0; /* more may come */
	if (n > c->max_message)
		return -EMSGSIZE;
	if (!c->peer_done)
		return 0;
	*ret = (struct framing_message){ .compressed = c->gzip, .declared = (uint32_t)n, .data = n ? data : (const uint8_t *)"", .len = n };
	return 1;
}

static size_t taken(const struct grpc_call *c, const struct framing_message *m)
{
	return m->len + (c->reply.dialect->enveloped ? FRAMING_PREFIX : 0);
}

static void refuse_frame(struct grpc_call *c, int err, const struct framing_message *m)
{
	struct refusal r;
	if (err == -EMSGSIZE) {
		call_size_refusal(c->srv, &r, m->declared, c->max_message);
		call_end(c, &r, false);
	} else {
		call_refuse(c, c->reply.dialect->corrupt, "a message wants five bytes before it: a 0 (or 1: compressed), then its length in four; the first is neither");
	}
}

static bool inflate_message(struct grpc_call *c, struct framing_message *m)
{
	struct buf *b = &c->srv->plain_in;
	char text[128];
	if (!c->gzip) {
		snprintf(text, sizeof(text), "a compressed message without %s", c->reply.dialect->encoding);
		call_refuse(c, STATUS_INTERNAL, text);
		return false;
	}
	if (!m->len)
		return true;
	buf_clear(b);
	int rc = gzip_inflate(m->data, m->len, c->max_message, b);
	if (rc == -EMSGSIZE) {
		struct refusal r;
		call_size_refusal(c->srv, &r, 0, c->max_message);
		call_end(c, &r, false);
	} else if (rc == -ENOMEM) {
		call_no_memory(c);
	} else if (rc) {
		call_refuse(c, c->reply.dialect->corrupt, "a message is not the gzip that it says to be");
	}
	m->data = buf_head(b);
	m->len = buf_len(b);
	if (!m->data)
		m->data = (const uint8_t *)"";
	return rc == 0;
}

static bool read_json(struct grpc_call *c, struct framing_message *m)
{
	struct refusal r;
	struct buf *b = &c->srv->wire_in;
	buf_clear(b);
	if (codec_read_json(c->types->input, m->data, m->len, c->max_message, b, &r)) {
		call_end(c, &r, false);
		return false;
	}
	m->len = buf_len(b);
	m->data = m->len ? buf_head(b) : (const uint8_t *)"";
	return true;
}

/* False: the call was refused. */
static bool decode(struct grpc_call *c, struct framing_message *m)
{
	if ((m->compressed && !inflate_message(c, m)) || (c->reply.dialect->codec == CODEC_JSON && !read_json(c, m)))
		return false;
	c->stats->messages_in++;
	c->stats->bytes_in += (int64_t)m->len;
	return true;
}

/* What of a message is there, n bytes, stays with the stream; its rest may come. */
static void await_rest(struct grpc_call *c, size_t n)
{
	const struct exchange *x = &c->reply.x;
	size_t limit = c->srv->cfg.limits.conn_recv;
	while (n && !c->over && x->ops->in_total(x) > limit)
		bodies_refuse(bodies_in_the_way(c), GRPC_BODY_CONNECTION, limit, "those of a connection");
	if (!c->over && bodies_hold(c, n))
		x->ops->credit(x);
}

void call_await_body(struct grpc_call *c)
{
	bool first = !c->body_mono_ns;
	if (c->srv->cfg.limits.body_ns <= 0)
		return;
	c->body_mono_ns = loop_now_mono_ns(c->srv->loop);
	if (first)
		call_set_timer(c);
}

static bool must_park(const struct grpc_call *c)
{
	const struct exchange *x = &c->reply.x;
	return x->ops->parked(x) && x->ops->out_total(x) > c->srv->cfg.limits.conn_queue;
}

static void hand_over(struct grpc_call *c, struct framing_message *m, size_t held)
{
	struct exchange x = c->reply.x;
	c->requested = true;
	bodies_release(c);
	if (c->body_mono_ns) {
		c->body_mono_ns = 0;
		call_set_timer(c);
	}
	if (!decode(c, m))
		return;
	c->told = true;
	x.ops->working(&x);
	c->method->on_request(c, m->data, m->len);
	if (c->reply.x.stream == x.stream && !c->by_get) /* not when the handler freed the server */
		x.ops->drop(&x, held);
}

static const uint8_t *body(const struct grpc_call *c, size_t *ret_len)
{
	if (!c->by_get)
		return c->reply.x.ops->data(&c->reply.x, ret_len);
	*ret_len = buf_len(&c->asked);
	return buf_head(&c->asked);
}

/* UNARY and SERVER_STREAM: exactly one message, handed over when the peer is done. */
static void input_single(struct grpc_call *c)
{
	struct framing_message m;
	size_t n;
	const struct exchange *x = &c->reply.x;
	if (c->by_get)
		exchange_drop_all(x); /* a body beside the query is nobody's */
	const uint8_t *data = body(c, &n);
	int rc = next(c, data, n, &m);
	if (rc < 0) {
		refuse_frame(c, rc, &m);
	} else if (rc == 1 && m.compressed && !c->gzip) {
		(void)inflate_message(c, &m); /* refuses it */
	} else if (rc == 1 && n > taken(c, &m)) {
		call_refuse(c, STATUS_UNIMPLEMENTED, "more than one request message");
	} else if (!c->peer_done) {
		call_await_body(c);
		await_rest(c, c->by_get ? 0 : n);
	} else if (rc == 0) {
		call_refuse(c, n ? STATUS_INTERNAL : STATUS_UNIMPLEMENTED, n ? "the request message is cut short" : "no request message");
	} else if (must_park(c)) {
		c->body_mono_ns = 0;
		if (bodies_hold(c, n))
			list_push_back(x->ops->parked(x), &c->parked);
	} else {
		hand_over(c, &m, n);
	}
}

static void input_bidi(struct grpc_call *c)
{
	struct framing_message m;
	const struct exchange *x = &c->reply.x;
	while (!c->over && !c->paused) {
		size_t n;
		const uint8_t *data = x->ops->data(x, &n);
		int rc = next(c, data, n, &m);
		if (rc < 0) {
			refuse_frame(c, rc, &m);
		} else if (rc == 0 && !c->peer_done) {
			await_rest(c, n);
			return;
		} else if (rc == 0 && n) {
			call_refuse(c, STATUS_INTERNAL, "the last message is cut short");
		} else if (rc == 0) {
			if (!c->told_half_close) {
				c->told_half_close = true;
				if (c->method->on_half_close)
					c->method->on_half_close(c);
			}
			return;
		} else {
			size_t used = taken(c, &m);
			bodies_release(c);
			if (decode(c, &m))
				c->method->on_message(c, m.data, m.len);
			if (!c->over)
				x->ops->drop(x, used);
		}
	}
}

void call_input(struct grpc_call *c)
{
	if (c->over || !call_alive(c))
		return;
	if (c->method->shape == GRPC_BIDI)
		input_bidi(c);
	else if (!c->requested && list_empty(&c->parked))
		input_single(c);
}

void call_unpark(struct server_conn *sc)
{
	const struct grpc_limits *l = &sc->srv->cfg.limits;
	while (!list_empty(&sc->parked) && sc->base.state != CONN_CLOSED && h2_out_total(sc->base.h2) <= l->conn_queue / 2) {
		struct grpc_call *c = container_of(list_pop_front(&sc->parked), struct grpc_call, parked);
		if (!c->requested) {
			call_input(c);
		} else if (c->want_writable) {
			c->want_writable = false;
			c->method->on_writable(c);
		}
	}
}
