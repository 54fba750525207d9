/* The body of an HTTP/1.1 request: by length, or in chunks.  No I/O.
 *
 * Chunks are read strictly, for the reason that heads are (head.h): lines end in CRLF, a size has 1 to 8 hexadecimal digits,
 * extensions and trailers are passed over and bounded. */
#ifndef REINS_HTTP1_BODY_H
#define REINS_HTTP1_BODY_H

#include "common/base/buf.h"
#include "common/http1/head.h"

#define HTTP1_CHUNK_LINE_MAX 256    /* a size and its extensions */
#define HTTP1_TRAILERS_MAX (8 << 10)

struct http1_body {
	enum { BODY_LENGTH, BODY_SIZE, BODY_CHUNK, BODY_CHUNK_END, BODY_TRAILERS, BODY_DONE } state;
	uint64_t left;    /* of the length, or of the chunk */
	size_t line;      /* bytes of the present line, or of all trailers */
	unsigned digits;  /* of a chunk's size */
	size_t line_len;  /* of the present trailer */
	bool size_over, cr;
	bool extension;   /* of the chunk: it begins with a semicolon */
};

void http1_body_init(struct http1_body *b, const struct http1_head *h);
static inline bool http1_body_done(const struct http1_body *b) { return b->state == BODY_DONE; }
/* Takes what it can off `in` and appends the body's bytes to `out`, `max` of them at most.  -EBADMSG: malformed; -ENOMEM. */
int http1_body_take(struct http1_body *b, struct buf *in, struct buf *out, size_t max) MUST_CHECK;

#endif
