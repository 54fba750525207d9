/* gRPC-Web, binary: gRPC whose trailers are one more frame of the body, so that browsers can read them. */
#include <assert.h>
#include <string.h>

#include "common/grpc/dialect.h"
#include "common/grpc/framing.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server.h"
#include "common/grpc/trailers.h"
#include "common/grpc/wire.h"

#define TRAILERS_FRAME 0x80
/* Status, message and details at their longest. */
#define BLOCK_MAX (WIRE_MESSAGE_CAP + WIRE_BASE64_CAP(DETAILS_STATUS_CAP) + 256)

/* `whole`: the length of a body that holds no message; 0: there are some. */
static void begin_with(struct reply *r, size_t whole)
{
	struct h2_header h[REPLY_FIELDS_MAX];
	char len[24];
	size_t n = 0;
	h[n++] = (struct h2_header)H2_HEADER(":status", "200");
	h[n++] = (struct h2_header){ "content-type", r->dialect->type, strlen(r->dialect->type), 0 };
	h[n++] = (struct h2_header)H2_HEADER("grpc-accept-encoding", GZIP_ENCODINGS);
	if (r->gzip)
		h[n++] = (struct h2_header)H2_HEADER("grpc-encoding", "gzip");
	if (whole)
		h[n++] = reply_length(whole, len);
	reply_respond(r, h, n, false);
}

static void begin(struct reply *r) { begin_with(r, 0); }

struct block {
	uint8_t bytes[FRAMING_PREFIX + BLOCK_MAX];
	size_t n;
};

static void add(struct block *b, const void *data, size_t len)
{
	assert(len <= sizeof(b->bytes) - b->n);
	memcpy(b->bytes + b->n, data, len);
	b->n += len;
}

static void add_field(struct block *b, const char *name, const char *value, size_t len)
{
	add(b, name, strlen(name));
	add(b, ":", 1);
	add(b, value, len);
	add(b, "\r\n", 2);
}

static void end(struct reply *r, const struct refusal *refusal)
{
	struct block b = { .n = FRAMING_PREFIX };
	struct trailers t;
	trailers_build(&t, refusal);
	for (size_t i = 0; i < t.n; i++)
		add_field(&b, t.h[i].name, t.h[i].value, t.h[i].value_len);
	framing_prefix(b.bytes, TRAILERS_FRAME, (uint32_t)(b.n - FRAMING_PREFIX));
	if (!r->begun)
		begin_with(r, b.n);
	if (reply_write(r, b.bytes, b.n))
		r->x.ops->finish(&r->x, NULL, 0);
}

const struct dialect dialect_web = {
	.type = "application/grpc-web+proto",
	.protocol = GRPC_PROTOCOL_WEB,
	.shapes = 1 << GRPC_UNARY | 1 << GRPC_SERVER_STREAM | 1 << GRPC_BIDI, /* browsers have no streams of requests, buf has */
	.enveloped = true,
	.reads_to_end = true,
	.timeout = "grpc-timeout",
	.encoding = "grpc-encoding",
	.accept_encoding = "grpc-accept-encoding",
	.parse_timeout = wire_parse_timeout,
	.bad_timeout = "grpc-timeout must be 1 to 8 digits and one of H M S m u n",
	.corrupt = STATUS_INTERNAL,
	.begin = begin,
	.end = end,
};
