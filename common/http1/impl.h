/* What the files of this folder share: http1.c (the server), conn.c (a connection's input, output and time), exchange.c (a
 * request with a body and its response), answer.c (answers from memory). */
#ifndef REINS_HTTP1_IMPL_H
#define REINS_HTTP1_IMPL_H

#include "common/base/list.h"
#include "common/http1/body.h"
#include "common/http1/exchange.h"
#include "common/http1/http1.h"

#define IN_MAX ((size_t)96 << 10)  /* what was handed over, or a head and what was sent ahead */
#define READ_SIZE ((size_t)16 << 10)
#define OUT_HIGH ((size_t)64 << 10) /* no further request is answered above it */
#define OUT_MAX (SIZE_MAX / 4)      /* the bounds are OUT_HIGH and max_body, and http1_queued */
#define WINDOW ((size_t)64 << 10)   /* of a body, read and not yet looked at */
#define DRAIN_BODY_MAX ((size_t)64 << 10) /* longer rests of a body that nobody wants end the connection */

struct http1_server {
	struct loop *loop;
	struct http1_server_config cfg;
	const struct http1_service *service;
	void *service_arg;
	struct list idle, busy; /* connections; idle ones between requests, the longest first */
	struct http1_stats stats;
	bool draining;
	struct loop_timer deadline; /* of that */
	void (*on_drained)(void *app);
	struct loop_dirty drained;
	struct loop_grave grave;
};

struct http1_exchange {
	bool active;
	void *user;
	struct buf fields; /* head.h */
	struct http1_body in;
	struct buf body;   /* came and was not dropped */
	size_t uncredited;
	bool discard, told_end;
	bool expects;      /* the peer waits for 100 Continue before it sends the body */
	bool responded, chunked, ended; /* the response: its head is in `out`; all of it */
	bool reset;
	bool notify;
	size_t low;
};

struct http1_conn {
	struct list node;
	struct http1_server *srv;
	struct stream *stream;
	struct buf in, out;
	size_t scanned;
	int64_t requests;
	struct http1_exchange x;
	bool old;      /* the present request is HTTP/1.0 */
	bool closing, lingering, closed;
	bool ended;    /* the peer sends no more */
	bool answered; /* since it was at rest */
	bool empty_line; /* one was passed over before the next head */
	bool awaits_rest; /* the timer is that of a body that nobody wants */
	struct loop_timer timer;
	struct loop_dirty dirty;
	struct loop_grave grave;
	char peer[64];
};

/* ---- conn.c ---- */
struct http1_conn *http1_conn_new(struct http1_server *s, struct stream *stream, const void *data, size_t len);
void http1_conn_close(struct http1_conn *c);
void http1_conn_mark(struct http1_conn *c);
void http1_conn_log(struct http1_conn *c, const char *text);
/* It has us wait for the rest of a request, and may be ended for another. */
bool http1_conn_incomplete(const struct http1_conn *c);

/* ---- exchange.c ---- */
static inline struct http1_conn *http1_conn_of(struct http1_exchange *x) { return container_of(x, struct http1_conn, x); }
void http1_exchange_init(struct http1_exchange *x);
void http1_exchange_done(struct http1_exchange *x);
/* The head at the front of `in`; tells the service. */
void http1_exchange_begin(struct http1_conn *c, const struct http1_head *h, size_t len);
/* Goes on with what came and with what was asked for. -EBADMSG: the body is malformed; -ENOMEM. */
int http1_exchange_go_on(struct http1_conn *c) MUST_CHECK;
/* With one of these. */
void http1_exchange_refuse_body(struct http1_conn *c, int err);
/* Response and request are through: the next one may come. */
bool http1_exchange_over(const struct http1_conn *c);
/* Tells the service that it is gone. */
void http1_exchange_close(struct http1_conn *c);
/* More of the body may be read. */
bool http1_exchange_reads(const struct http1_conn *c);
/* After a write. */
void http1_exchange_written(struct http1_conn *c);

/* ---- answer.c ---- */
const char *http1_reason(int status);
void http1_format_date(char *ret, size_t cap); /* "date: …\r\n" */
void http1_answer_text(struct http1_conn *c, int status, const char *allow, const char *text, bool head);
void http1_answer_route(struct http1_conn *c, const struct http1_route *r, size_t head_len, bool head);
void http1_refuse(struct http1_conn *c, int status, const char *why);

#endif
