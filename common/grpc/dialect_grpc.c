/* gRPC over HTTP/2: messages with prefixes, the status in trailers. */
#include <string.h>

#include "common/grpc/dialect.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server.h"
#include "common/grpc/trailers.h"
#include "common/grpc/wire.h"

static size_t head(const struct reply *r, struct h2_header *h)
{
	size_t n = 0;
	h[n++] = (struct h2_header)H2_HEADER(":status", "200");
	h[n++] = (struct h2_header){ "content-type", r->dialect->type, strlen(r->dialect->type), 0 };
	h[n++] = (struct h2_header)H2_HEADER("grpc-accept-encoding", GZIP_ENCODINGS);
	return n;
}

static void begin(struct reply *r)
{
	struct h2_header h[REPLY_FIELDS_MAX];
	size_t n = head(r, h);
	if (r->gzip)
		h[n++] = (struct h2_header)H2_HEADER("grpc-encoding", "gzip");
	reply_respond(r, h, n, false);
}

static void end(struct reply *r, const struct refusal *refusal)
{
	struct trailers t;
	struct h2_header h[REPLY_FIELDS_MAX];
	trailers_build(&t, refusal);
	if (r->begun) {
		r->x.ops->finish(&r->x, t.h, t.n);
		return;
	}
	size_t n = head(r, h);
	memcpy(h + n, t.h, t.n * sizeof(*h));
	reply_respond(r, h, n + t.n, true);
}

const struct dialect dialect_grpc = {
	.type = "application/grpc",
	.shapes = 1 << GRPC_UNARY | 1 << GRPC_SERVER_STREAM | 1 << GRPC_BIDI,
	.enveloped = true,
	.needs_http2 = true,
	.timeout = "grpc-timeout",
	.encoding = "grpc-encoding",
	.accept_encoding = "grpc-accept-encoding",
	.parse_timeout = wire_parse_timeout,
	.bad_timeout = "grpc-timeout must be 1 to 8 digits and one of H M S m u n",
	.corrupt = STATUS_INTERNAL,
	.begin = begin,
	.end = end,
};
