/* A handler's messages: as the client wants them, into the exchange. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/grpc/codec.h"
#include "common/grpc/framing.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server_impl.h"

#define SMALL_MESSAGE (64 * 1024)

/* A thousand streams, each with one large message in an empty queue, are more than a connection may hold. */
static bool waits_for_others(const struct grpc_call *c, size_t len)
{
	return c->method->shape == GRPC_SERVER_STREAM && c->method->on_writable && len > SMALL_MESSAGE && c->reply.x.ops->parked(&c->reply.x) &&
	       grpc_call_backed_up(c);
}

/* -EAGAIN: the queues are full; on_writable follows. */
static int room(struct grpc_call *c, size_t len)
{
	const struct exchange *x = &c->reply.x;
	const struct grpc_limits *l = &c->srv->cfg.limits;
	size_t queued = x->ops->queued(x);
	if (!queued && waits_for_others(c, len)) {
		c->want_writable = true;
		if (list_empty(&c->parked))
			list_push_back(x->ops->parked(x), &c->parked);
		return -EAGAIN;
	}
	if (!queued || (queued + len + FRAMING_PREFIX <= l->stream_queue && x->ops->out_total(x) + len <= l->conn_queue))
		return 0;
	c->want_writable = true;
	x->ops->notify_drained(x, min_sz(l->stream_queue / 2, queued / 2));
	return -EAGAIN;
}

static int no_memory(struct grpc_call *c)
{
	call_no_memory(c);
	return -EPIPE;
}

static bool worth_gzip(const struct grpc_call *c, size_t len) { return c->reply.gzip && len >= GZIP_MIN && len <= GZIP_MAX; }

/* The message as `text` of its dialect's codec: b itself, or JSON. */
static int encode(struct grpc_call *c, const struct buf **b)
{
	struct grpc_server *srv = c->srv;
	if (c->reply.dialect->codec == CODEC_PROTO)
		return 0;
	buf_clear(&srv->json_out);
	int rc = codec_write_json(c->types->output, buf_head(*b), buf_len(*b), &srv->json_out);
	if (rc == -ENOBUFS)
		return -EMSGSIZE;
	if (rc == -ENOMEM)
		return no_memory(c);
	if (rc) {
		call_refuse(c, STATUS_INTERNAL, "the reply can't be written as JSON");
		return -EPIPE;
	}
	*b = &srv->json_out;
	return 0;
}

static bool deflate_message(struct grpc_call *c, const struct buf **b)
{
	struct buf *z = &c->srv->gzip_out;
	buf_clear(z);
	if (!worth_gzip(c, buf_len(*b)) || gzip_deflate(buf_head(*b), buf_len(*b), z))
		return false;
	*b = z;
	return true;
}

/* Headers come with the end, and so does the message. */
static int hold(struct grpc_call *c, const struct buf *b, bool gzip)
{
	struct reply *r = &c->reply;
	buf_init(&r->held, buf_len(b));
	if (buf_add(&r->held, buf_head(b), buf_len(b)))
		return no_memory(c);
	r->held_any = true;
	r->held_gzip = gzip;
	return 0;
}

/* Only a reply whose first message is in gzip announces it: grpc-core's own health check (1.51) crashes at a grpc-encoding
 * that it did not ask for. */
static void begin(struct grpc_call *c, bool gzip)
{
	if (c->reply.begun)
		return;
	c->reply.gzip = gzip;
	c->reply.dialect->begin(&c->reply);
}

static int put(struct grpc_call *c, const struct buf *b, bool gzip)
{
	const struct exchange *x = &c->reply.x;
	size_t len = buf_len(b);
	begin(c, gzip);
	uint8_t *at = x->ops->reserve(x, FRAMING_PREFIX + len);
	if (!at)
		return no_memory(c);
	framing_prefix(at, gzip ? FRAMING_COMPRESSED : 0, (uint32_t)len);
	if (len)
		memcpy(at + FRAMING_PREFIX, buf_head(b), len);
	x->ops->commit(x, FRAMING_PREFIX + len);
	return 0;
}

/* By way of buffers: as JSON, in gzip, or kept. */
static int send_encoded(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg)
{
	const struct buf *b = &c->srv->wire_out;
	buf_clear(&c->srv->wire_out);
	uint8_t *at = buf_reserve(&c->srv->wire_out, len);
	if (!at && len)
		return no_memory(c);
	size_t packed = len ? pack(msg, at) : 0;
	assert(packed == len);
	if (packed)
		buf_commit(&c->srv->wire_out, packed);
	int rc = encode(c, &b);
	if (rc)
		return rc;
	bool gzip = deflate_message(c, &b);
	return c->reply.dialect->begin ? put(c, b, gzip) : hold(c, b, gzip);
}

/* Straight into the exchange's queue. */
static int send_plain(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg)
{
	const struct exchange *x = &c->reply.x;
	begin(c, false);
	uint8_t *at = x->ops->reserve(x, FRAMING_PREFIX + len);
	if (!at)
		return no_memory(c);
	framing_prefix(at, 0, (uint32_t)len);
	size_t packed = pack(msg, at + FRAMING_PREFIX);
	assert(packed == len);
	x->ops->commit(x, FRAMING_PREFIX + packed);
	return 0;
}

int grpc_call_send_packed(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg)
{
	const struct dialect *d = c->reply.dialect;
	if (c->over || !call_alive(c))
		return -EPIPE;
	if (len > c->srv->cfg.limits.max_message || len > UINT32_MAX)
		return -EMSGSIZE;
	if (c->reply.held_any)
		return -EAGAIN;
	int rc = room(c, len);
	if (rc)
		return rc;
	rc = d->codec != CODEC_PROTO || !d->begin || worth_gzip(c, len) ? send_encoded(c, len, pack, msg)
								       : send_plain(c, len, pack, msg);
	if (rc)
		return rc;
	c->reply.x.ops->proven(&c->reply.x);
	c->stats->messages_out++;
	c->stats->bytes_out += (int64_t)len;
	return 0;
}

int grpc_call_send(struct grpc_call *c, const void *data, size_t len)
{
	struct framing_span s = { data, len };
	return grpc_call_send_packed(c, len, framing_pack_span, &s);
}

size_t grpc_call_queued(const struct grpc_call *c) { return call_alive(c) ? c->reply.x.ops->queued(&c->reply.x) : 0; }

bool grpc_call_backed_up(const struct grpc_call *c)
{
	return call_alive(c) && c->reply.x.ops->out_total(&c->reply.x) > c->srv->cfg.limits.conn_queue;
}
