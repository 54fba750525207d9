/* Connect, streaming: messages in envelopes, HTTP status 200 always, and a last envelope that says how it ended. */
#include <string.h>

#include "common/grpc/connect.h"
#include "common/grpc/dialect.h"
#include "common/grpc/framing.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server.h"

#define END_STREAM 2

/* `whole`: the length of a body that holds no message; 0: there are some. */
static void begin_with(struct reply *r, size_t whole)
{
	struct h2_header h[REPLY_FIELDS_MAX];
	char len[24];
	size_t n = 0;
	h[n++] = (struct h2_header)H2_HEADER(":status", "200");
	h[n++] = (struct h2_header){ "content-type", r->dialect->type, strlen(r->dialect->type), 0 };
	h[n++] = (struct h2_header)H2_HEADER("connect-accept-encoding", GZIP_ENCODINGS);
	h[n++] = (struct h2_header)H2_HEADER("cache-control", "no-store");
	if (r->gzip)
		h[n++] = (struct h2_header)H2_HEADER("connect-content-encoding", "gzip");
	if (whole)
		h[n++] = reply_length(whole, len);
	reply_respond(r, h, n, false);
}

static void begin(struct reply *r) { begin_with(r, 0); }

static int last_envelope(const struct refusal *refusal, struct buf *b)
{
	uint8_t prefix[FRAMING_PREFIX] = { 0 };
	bool error = refusal && refusal->code != STATUS_OK;
	int rc = buf_add(b, prefix, sizeof(prefix));
	if (rc || (rc = buf_addf(b, error ? "{\"error\":" : "{")) || (error && (rc = connect_error(refusal, b))) || (rc = buf_add(b, "}", 1)))
		return rc;
	framing_prefix(b->data + b->start, END_STREAM, (uint32_t)(buf_len(b) - FRAMING_PREFIX));
	return 0;
}

static void end(struct reply *r, const struct refusal *refusal)
{
	struct buf b;
	buf_init(&b, CONNECT_ERROR_MAX);
	int rc = last_envelope(refusal, &b);
	if (rc == 0 && !r->begun)
		begin_with(r, buf_len(&b));
	if (rc)
		r->x.ops->reset(&r->x);
	else if (reply_write(r, buf_head(&b), buf_len(&b)))
		r->x.ops->finish(&r->x, NULL, 0);
	buf_done(&b);
}

#define STREAM                                                                                                                 \
	.shapes = 1 << GRPC_SERVER_STREAM | 1 << GRPC_BIDI, .enveloped = true, .reads_to_end = true, .missing_is_404 = true,   \
	.timeout = "connect-timeout-ms", .encoding = "connect-content-encoding",                                               \
	.accept_encoding = "connect-accept-encoding", .parse_timeout = connect_parse_timeout,                                  \
	.bad_timeout = CONNECT_BAD_TIMEOUT, .corrupt = STATUS_INVALID_ARGUMENT, .begin = begin, .end = end

const struct dialect dialect_connect_stream_proto = { .type = "application/connect+proto", .codec = CODEC_PROTO, .protocol = GRPC_PROTOCOL_CONNECT, STREAM };
const struct dialect dialect_connect_stream_json = { .type = "application/connect+json", .codec = CODEC_JSON, .protocol = GRPC_PROTOCOL_CONNECT, STREAM };
