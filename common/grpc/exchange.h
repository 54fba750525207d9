/* One request and its response, whatever carries them: a stream of HTTP/2 or an exchange of HTTP/1.1.
 *
 * What a transport has to do for the calls is the table below; the words are those of common/h2/h2.h, and so is the news
 * that comes with it (HEADERS, DATA, END, DRAINED, CLOSED).  Everything that sends also sees to it that it leaves. */
#ifndef REINS_GRPC_EXCHANGE_H
#define REINS_GRPC_EXCHANGE_H

#include "common/base/list.h"
#include "common/h2/h2.h"
#include "common/stream/stream.h"

struct exchange;
struct grpc_call;

struct exchange_ops {
	bool http2; /* trailers, and both sides may speak at once */
	/* ---- the request ---- */
	const char *(*header)(const struct exchange *x, const char *name); /* ":method" and ":path" too; NULL: absent, or twice */
	size_t (*header_count)(const struct exchange *x, const char *name);
	bool (*oversized)(const struct exchange *x);
	const uint8_t *(*data)(const struct exchange *x, size_t *ret_len); /* of the body, as far as it came and was not dropped */
	void (*drop)(const struct exchange *x, size_t n);
	void (*credit)(const struct exchange *x);
	void (*discard)(const struct exchange *x);     /* an early answer: what still comes is thrown away; what is there stays */
	void (*read_to_end)(const struct exchange *x); /* the same, for clients that take a reset after the answer for a failure */
	/* ---- the response; `end`: there is no body ---- */
	void (*respond)(const struct exchange *x, const struct h2_header *h, size_t n, bool end);
	uint8_t *(*reserve)(const struct exchange *x, size_t n); /* NULL: no memory, or too late */
	void (*commit)(const struct exchange *x, size_t n);
	void (*finish)(const struct exchange *x, const struct h2_header *trailers, size_t n);
	void (*reset)(const struct exchange *x); /* cancelled: the peer sees that there is no whole response */
	size_t (*queued)(const struct exchange *x);
	void (*notify_drained)(const struct exchange *x, size_t low);
	/* ---- its connection ---- */
	size_t (*in_total)(const struct exchange *x);
	size_t (*out_total)(const struct exchange *x);
	struct list *(*calls)(const struct exchange *x);
	struct list *(*parked)(const struct exchange *x); /* where requests wait until out_total is less; NULL: never needed */
	const struct stream_peer *(*peer)(const struct exchange *x);
	void (*set_user)(const struct exchange *x, struct grpc_call *call);
	void (*working)(const struct exchange *x); /* a handler has it */
	void (*proven)(const struct exchange *x);  /* it was answered with a message: who asks may stay longer */
};

struct exchange {
	const struct exchange_ops *ops;
	void *stream; /* NULL: it is gone; the connection may still be there */
	void *conn;   /* NULL: gone too */
};

/* All that has come of the body. */
static inline void exchange_drop_all(const struct exchange *x)
{
	size_t n;
	(void)x->ops->data(x, &n);
	if (n)
		x->ops->drop(x, n);
}

/* Before an answer that needs no more of the request: what has come of it is thrown away, and what still comes. */
static inline void exchange_ignore(const struct exchange *x, bool to_end)
{
	if (to_end)
		x->ops->read_to_end(x);
	else
		x->ops->discard(x);
	exchange_drop_all(x);
}

#endif
