/* A machine that takes a byte at a time outside of the data: it may stop anywhere, and goes on there. */
#include "common/http1/body.h"

#include <errno.h>

#include "common/base/num.h"

void http1_body_init(struct http1_body *b, const struct http1_head *h)
{
	*b = (struct http1_body){ .state = h->chunked ? BODY_SIZE : h->length ? BODY_LENGTH : BODY_DONE, .left = h->length };
}

static bool is_text(uint8_t c) { return c == '\t' || (c >= 0x20 && c != 0x7f); }

/* A byte of a line that ends in CRLF: 1 at its end, 0, or -EBADMSG. */
static int line_byte(struct http1_body *b, uint8_t c, size_t max)
{
	if (++b->line > max)
		return -EBADMSG;
	if (b->cr)
		return c == '\n' ? 1 : -EBADMSG;
	b->cr = c == '\r';
	return b->cr || is_text(c) ? 0 : -EBADMSG;
}

static int size_byte(struct http1_body *b, uint8_t c)
{
	int rc = line_byte(b, c, HTTP1_CHUNK_LINE_MAX);
	if (rc < 0)
		return rc;
	if (rc == 1) {
		b->cr = b->size_over = b->extension = false;
		b->line = 0;
		b->digits = 0;
		b->state = b->left ? BODY_CHUNK : BODY_TRAILERS;
		return 0;
	}
	int digit = b->size_over ? -1 : num_hex_digit((char)c);
	if (digit >= 0) {
		b->left = b->left << 4 | (uint64_t)digit;
		return ++b->digits > 8 ? -EBADMSG : 0;
	}
	if (!b->digits || (!b->extension && c != '\r' && c != ';' && c != ' ' && c != '\t'))
		return -EBADMSG;
	b->size_over = true;
	b->extension = b->extension || c == ';';
	return 0;
}

static int trailer_byte(struct http1_body *b, uint8_t c)
{
	int rc = line_byte(b, c, HTTP1_TRAILERS_MAX);
	if (rc < 0)
		return rc;
	if (rc == 0) {
		b->line_len += !b->cr;
		return 0;
	}
	if (!b->line_len)
		b->state = BODY_DONE;
	b->line_len = 0;
	b->cr = false;
	return 0;
}

static int chunk_end_byte(struct http1_body *b, uint8_t c)
{
	int rc = line_byte(b, c, 2);
	if (rc < 0 || (rc == 0 && c != '\r'))
		return -EBADMSG;
	if (rc == 1) {
		b->cr = false;
		b->line = 0;
		b->state = BODY_SIZE;
	}
	return 0;
}

static int take_bytes(struct http1_body *b, struct buf *in, struct buf *out, size_t n)
{
	int rc = buf_add(out, buf_head(in), n);
	if (rc)
		return -ENOMEM;
	buf_consume(in, n);
	b->left -= n;
	if (!b->left)
		b->state = b->state == BODY_LENGTH ? BODY_DONE : BODY_CHUNK_END;
	return 0;
}

int http1_body_take(struct http1_body *b, struct buf *in, struct buf *out, size_t max)
{
	while (buf_len(in) && b->state != BODY_DONE) {
		int rc;
		if (b->state == BODY_LENGTH || b->state == BODY_CHUNK) {
			size_t n = min_sz(buf_len(in), max);
			n = n < b->left ? n : (size_t)b->left;
			if (!n)
				return 0;
			rc = take_bytes(b, in, out, n);
			max -= n;
		} else {
			uint8_t c = *buf_head(in);
			buf_consume(in, 1);
			rc = b->state == BODY_SIZE ? size_byte(b, c) : b->state == BODY_CHUNK_END ? chunk_end_byte(b, c) : trailer_byte(b, c);
		}
		if (rc)
			return rc;
	}
	return 0;
}
