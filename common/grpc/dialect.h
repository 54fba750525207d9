/* The ways in which a call may be spoken: gRPC, gRPC-Web, Connect (unary), Connect (streaming), with protobuf or JSON.
 *
 * A dialect is told by the request's content type.  It says what its fields are called, how a message is put into the body,
 * and how the end of a call is told; the rest, from the handlers to deadlines, limits and queues, is the same for all. */
#ifndef REINS_GRPC_DIALECT_H
#define REINS_GRPC_DIALECT_H

#include "common/base/buf.h"
#include "common/grpc/exchange.h"
#include "common/grpc/grpc.h"
#include "common/grpc/server.h"

enum codec { CODEC_PROTO, CODEC_JSON };
struct reply;
struct grpc_server_config;

struct dialect {
	const char *type;      /* content type of requests, and of replies */
	enum codec codec;
	enum grpc_protocol protocol;
	unsigned shapes;       /* of methods, 1 << enum grpc_shape */
	bool enveloped;        /* messages have prefixes (framing.h); else the body is the one message, bare */
	bool needs_http2;      /* its status is in trailers */
	bool reads_to_end;     /* after an early answer its clients are let finish */
	bool missing_is_404;   /* an unknown method is an unknown path */
	/* Fields of the request, and of the reply. */
	const char *timeout, *encoding, *accept_encoding;
	int (*parse_timeout)(const char *text, int64_t *ret_ns);
	const char *bad_timeout; /* what it must be */
	enum status_code corrupt; /* a message that is not what its encoding says */
	/* Response headers, before the first message. NULL: they come with the end. */
	void (*begin)(struct reply *r);
	/* The end, with a status or (NULL) well: after what was sent, or as all that there is. */
	void (*end)(struct reply *r, const struct refusal *refusal_or_null);
};

/* NULL: none that we speak. */
const struct dialect *dialect_of_type(const char *content_type);

/* A response, from a request's headers to its end. Part of a call; on the stack for a request that never becomes one. */
struct reply {
	struct exchange x;
	const struct grpc_server_config *cfg;
	const struct dialect *dialect;
	const char *origin; /* that may read it, of the configured ones; NULL: none */
	bool gzip;          /* its reader takes it; once begun: the headers say so */
	bool begun;         /* headers were sent */
	bool held_any, held_gzip;
	struct buf held;    /* the message, where headers come with the end */
};

void reply_init(struct reply *r, const struct exchange *x, const struct grpc_server_config *cfg);
void reply_done(struct reply *r);
/* Headers; the first is :status.  Adds `server` and what CORS wants. */
void reply_respond(struct reply *r, const struct h2_header *h, size_t n, bool end);
/* Room for so many fields beside the caller's in reply_respond. */
#define REPLY_FIELDS_MAX 24
/* Before reply_respond, for a response whose body is whole already: one more field. curl 7.88 needs it where the answer comes
 * before it has sent the request: it does not notice the end of the stream then. */
struct h2_header reply_length(size_t n, char ret_text[static 24]);
/* Appends bytes of the body; without memory the exchange is reset. */
bool reply_write(struct reply *r, const void *data, size_t len) MUST_CHECK;
/* A whole response in plain text, below any dialect.  `field` (NULL: none): one more. */
void reply_plain(struct reply *r, const char *status, const struct h2_header *field, const char *text);

extern const struct dialect dialect_grpc, dialect_web, dialect_connect_proto, dialect_connect_json, dialect_connect_stream_proto,
	dialect_connect_stream_json;

#endif
