/* A request with a body, or one for which there is no path in the table, and its response: for whoever serves such.
 *
 * The words and the order of news are those of streams in common/h2/h2.h.  One exchange at a time is worked on per connection;
 * what was sent ahead waits, bounded.  A body is kept until it is dropped, and no more of it is read than WINDOW bytes beyond
 * what the owner has seen and credited.  A peer that ends its side is gone, and the exchange with it. */
#ifndef REINS_HTTP1_EXCHANGE_H
#define REINS_HTTP1_EXCHANGE_H

#include "common/base/base.h"
#include "common/stream/stream.h"

struct http1_exchange;

enum {
	HTTP1_NEWS_HEADERS = 1,
	HTTP1_NEWS_DATA = 2,
	HTTP1_NEWS_END = 4,
	HTTP1_NEWS_DRAINED = 8,
	HTTP1_NEWS_CLOSED = 16, /* the object may be used no more */
};

struct http1_service {
	/* From the loop, never from inside a call below. */
	void (*on_news)(void *arg, struct http1_exchange *x, unsigned news);
	/* A connection has ended: there is room for another. */
	void (*on_left)(void *arg);
};

struct http1_field {
	const char *name, *value; /* no CR, LF or NUL */
	size_t value_len;
};

/* ":method", and ":path" with its query, too. NULL: absent, or there more than once. */
const char *http1_header(const struct http1_exchange *x, const char *name);
size_t http1_header_count(const struct http1_exchange *x, const char *name);
const uint8_t *http1_data(const struct http1_exchange *x, size_t *ret_len);
void http1_drop(struct http1_exchange *x, size_t n);
void http1_credit(struct http1_exchange *x);
/* What still comes of the body is thrown away. A long rest ends the connection with the response instead. */
void http1_discard(struct http1_exchange *x);

/* `end`: without a body.  Else by the length in its content-length, or in chunks, each commit one. */
void http1_respond(struct http1_exchange *x, int status, const struct http1_field *fields, size_t n, bool end);
uint8_t *http1_write_reserve(struct http1_exchange *x, size_t n) MUST_CHECK;
void http1_write_commit(struct http1_exchange *x, size_t n);
void http1_finish(struct http1_exchange *x);
/* The connection ends without the rest of the response. CLOSED follows. */
void http1_reset(struct http1_exchange *x);
size_t http1_queued(const struct http1_exchange *x);
void http1_notify_drained(struct http1_exchange *x, size_t low);

const struct stream_peer *http1_peer(const struct http1_exchange *x);
void http1_set_user(struct http1_exchange *x, void *user);
void *http1_user(const struct http1_exchange *x);

#endif
