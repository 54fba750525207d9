/* Connect, unary: the body is the message, the status is HTTP's, and an error is JSON whatever the message would be. */
#include <string.h>

#include "common/grpc/connect.h"
#include "common/grpc/dialect.h"
#include "common/grpc/gzip.h"
#include "common/grpc/server.h"

static void answer(struct reply *r, const char *status, const char *type, const struct buf *body, bool gzip)
{
	struct h2_header h[REPLY_FIELDS_MAX];
	char len[24];
	size_t n = 0;
	h[n++] = (struct h2_header){ ":status", status, strlen(status), 0 };
	h[n++] = (struct h2_header){ "content-type", type, strlen(type), 0 };
	h[n++] = reply_length(buf_len(body), len);
	h[n++] = (struct h2_header)H2_HEADER("accept-encoding", GZIP_ENCODINGS);
	h[n++] = (struct h2_header)H2_HEADER("cache-control", "no-store");
	if (gzip)
		h[n++] = (struct h2_header)H2_HEADER("content-encoding", "gzip");
	if (strcmp(status, "401") == 0)
		h[n++] = (struct h2_header)H2_HEADER("www-authenticate", "Bearer");
	reply_respond(r, h, n, false);
	if (!buf_len(body) || reply_write(r, buf_head(body), buf_len(body)))
		r->x.ops->finish(&r->x, NULL, 0);
}

static void end(struct reply *r, const struct refusal *refusal)
{
	static const struct refusal silent = { .code = STATUS_INTERNAL, .message = "no reply" };
	if ((!refusal || refusal->code == STATUS_OK) && r->held_any) {
		answer(r, "200", r->dialect->type, &r->held, r->held_gzip);
		return;
	}
	const struct refusal *why = refusal && refusal->code != STATUS_OK ? refusal : &silent;
	struct buf b;
	buf_init(&b, CONNECT_ERROR_MAX);
	if (connect_error(why, &b) == 0)
		answer(r, connect_http_status(why->code), "application/json", &b, false);
	else
		r->x.ops->reset(&r->x);
	buf_done(&b);
}

#define UNARY                                                                                                                  \
	.shapes = 1 << GRPC_UNARY, .reads_to_end = true, .missing_is_404 = true, .timeout = "connect-timeout-ms",              \
	.encoding = "content-encoding", .accept_encoding = "accept-encoding", .parse_timeout = connect_parse_timeout,          \
	.bad_timeout = CONNECT_BAD_TIMEOUT, .corrupt = STATUS_INVALID_ARGUMENT, .end = end

const struct dialect dialect_connect_proto = { .type = "application/proto", .codec = CODEC_PROTO, .protocol = GRPC_PROTOCOL_CONNECT, UNARY };
const struct dialect dialect_connect_json = { .type = "application/json", .codec = CODEC_JSON, .protocol = GRPC_PROTOCOL_CONNECT, UNARY };
