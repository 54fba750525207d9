/* Owns the one exchange of a connection: news to the service, the body's window, the response's form.  Relies on conn.c to read, to
 * write and to end: what is called here only fills buffers and marks the connection. */
#include "common/http1/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/http1/impl.h"

/* "0000001f\r\n" before what was written, and "\r\n" behind it. */
#define CHUNK_HEAD 10
#define CHUNK_TAIL 2

void http1_exchange_init(struct http1_exchange *x)
{
	buf_init(&x->fields, 2 * HTTP1_HEAD_MAX);
	buf_init(&x->body, OUT_MAX); /* WINDOW and what the owner credits */
}

void http1_exchange_done(struct http1_exchange *x)
{
	buf_done(&x->fields);
	buf_done(&x->body);
}

/* ---- news ---- */

static void tell(struct http1_conn *c, unsigned news)
{
	if (c->srv->service)
		c->srv->service->on_news(c->srv->service_arg, &c->x, news);
}

static int add_pseudo(struct buf *b, const char *name, const char *value, size_t len)
{
	int rc = buf_add(b, name, strlen(name) + 1);
	if (rc == 0)
		rc = buf_add(b, value, len);
	return rc ? rc : buf_add(b, "", 1);
}

static int keep_head(struct http1_exchange *x, const struct http1_head *h, const char *data, size_t len)
{
	buf_clear(&x->fields);
	int rc = add_pseudo(&x->fields, ":method", h->verb, h->verb_len);
	if (rc || (rc = add_pseudo(&x->fields, ":path", h->path, h->target_len)))
		return rc;
	return http1_head_fields(data, len, &x->fields);
}

/* The body's bytes that came, as far as the window lets them. */
static int take(struct http1_conn *c, unsigned *ret_news)
{
	struct http1_exchange *x = &c->x;
	size_t had = buf_len(&x->body);
	int rc;
	if (x->discard) {
		struct buf nowhere;
		buf_init(&nowhere, IN_MAX);
		rc = http1_body_take(&x->in, &c->in, &nowhere, IN_MAX);
		buf_done(&nowhere);
	} else {
		rc = http1_body_take(&x->in, &c->in, &x->body, x->uncredited < WINDOW ? WINDOW - x->uncredited : 0);
		size_t n = buf_len(&x->body) - had;
		x->uncredited += n;
		*ret_news |= n ? HTTP1_NEWS_DATA : 0;
		x->expects = x->expects && !n;
	}
	if (rc == 0 && http1_body_done(&x->in) && !x->told_end) {
		x->told_end = true;
		*ret_news |= HTTP1_NEWS_END;
	}
	return rc;
}

void http1_exchange_begin(struct http1_conn *c, const struct http1_head *h, size_t len)
{
	struct http1_exchange *x = &c->x;
	unsigned news = HTTP1_NEWS_HEADERS;
	struct buf fields = x->fields, body = x->body;
	*x = (struct http1_exchange){ .active = true, .fields = fields, .body = body, .expects = h->expects && h->has_body };
	http1_body_init(&x->in, h);
	int rc = keep_head(x, h, (const char *)buf_head(&c->in), len);
	buf_consume(&c->in, len);
	if (rc) {
		x->active = false;
		http1_refuse(c, 503, "out of memory");
		return;
	}
	rc = take(c, &news);
	if (rc) {
		x->active = false;
		http1_exchange_refuse_body(c, rc);
		return;
	}
	tell(c, news);
	if (c->closed || !x->active)
		return;
	/* Whoever was refused need not send the body. */
	if (x->expects && !x->responded && !x->reset && buf_add(&c->out, "HTTP/1.1 100 Continue\r\n\r\n", 25) == 0)
		x->expects = false;
}

int http1_exchange_go_on(struct http1_conn *c)
{
	unsigned news = 0;
	int rc = take(c, &news);
	if (rc == 0 && news)
		tell(c, news);
	return rc;
}

void http1_exchange_refuse_body(struct http1_conn *c, int err)
{
	if (err == -ENOMEM)
		http1_refuse(c, 503, "out of memory");
	else
		http1_refuse(c, 400, "the request's body is malformed");
}

bool http1_exchange_over(const struct http1_conn *c)
{
	return c->x.ended && (c->closing || http1_body_done(&c->x.in));
}

void http1_exchange_close(struct http1_conn *c)
{
	if (!c->x.active)
		return;
	c->x.active = false;
	buf_clear(&c->x.body);
	tell(c, HTTP1_NEWS_CLOSED);
}

bool http1_exchange_reads(const struct http1_conn *c)
{
	return c->x.discard || c->x.uncredited < WINDOW;
}

void http1_exchange_written(struct http1_conn *c)
{
	if (!c->x.active || !c->x.notify || buf_len(&c->out) > c->x.low)
		return;
	c->x.notify = false;
	tell(c, HTTP1_NEWS_DRAINED);
}

/* ---- the request ---- */

const char *http1_header(const struct http1_exchange *x, const char *name)
{
	const char *value;
	return http1_fields_find(&x->fields, name, &value) == 1 ? value : NULL;
}

size_t http1_header_count(const struct http1_exchange *x, const char *name)
{
	const char *value;
	return http1_fields_find(&x->fields, name, &value);
}

const uint8_t *http1_data(const struct http1_exchange *x, size_t *ret_len)
{
	*ret_len = buf_len(&x->body);
	return *ret_len ? buf_head(&x->body) : NULL;
}

void http1_drop(struct http1_exchange *x, size_t n)
{
	buf_consume(&x->body, n);
	x->uncredited = min_sz(x->uncredited, buf_len(&x->body));
	http1_conn_mark(http1_conn_of(x));
}

void http1_credit(struct http1_exchange *x)
{
	x->uncredited = 0;
	http1_conn_mark(http1_conn_of(x));
}

void http1_discard(struct http1_exchange *x)
{
	x->discard = true;
	http1_conn_mark(http1_conn_of(x));
}

/* ---- the response ---- */

/* What of the body is still to come is little, and will come: the connection can go on behind it. */
static bool rest_is_short(const struct http1_conn *c)
{
	const struct http1_body *b = &c->x.in;
	return http1_body_done(b) || (!c->x.expects && b->state == BODY_LENGTH && b->left <= DRAIN_BODY_MAX);
}

static bool has_length(const struct http1_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(fields[i].name, "content-length") == 0)
			return true;
	return false;
}

void http1_respond(struct http1_exchange *x, int status, const struct http1_field *fields, size_t n, bool end)
{
	struct http1_conn *c = http1_conn_of(x);
	char date[64];
	if (!x->active || x->responded || x->reset)
		return;
	bool length = has_length(fields, n);
	x->responded = true;
	x->chunked = !end && !length && !c->old;
	c->closing = c->closing || c->srv->draining || !rest_is_short(c) || (c->old && !end && !length);
	http1_format_date(date, sizeof(date));
	int rc = buf_addf(&c->out, "HTTP/1.1 %d %s\r\n%s", status, http1_reason(status), date);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = buf_addf(&c->out, "%s: %.*s\r\n", fields[i].name, (int)fields[i].value_len, fields[i].value);
	if (rc == 0)
		rc = buf_addf(&c->out, "%s%s%s\r\n", x->chunked ? "transfer-encoding: chunked\r\n" : "",
			      end && !length && status != 204 ? "content-length: 0\r\n" : "", c->closing ? "connection: close\r\n" : "");
	x->ended = end;
	if (rc)
		http1_reset(x);
	http1_conn_mark(c);
}

uint8_t *http1_write_reserve(struct http1_exchange *x, size_t n)
{
	if (!x->active || !x->responded || x->ended || x->reset || n > UINT32_MAX)
		return NULL;
	uint8_t *at = buf_reserve(&http1_conn_of(x)->out, n + (x->chunked ? CHUNK_HEAD + CHUNK_TAIL : 0));
	return at && x->chunked ? at + CHUNK_HEAD : at;
}

void http1_write_commit(struct http1_exchange *x, size_t n)
{
	struct http1_conn *c = http1_conn_of(x);
	if (!n) /* a chunk of 0 would be the last */
		return;
	if (!x->chunked) {
		buf_commit(&c->out, n);
	} else {
		char head[CHUNK_HEAD + 1];
		uint8_t *at = c->out.data + c->out.start + buf_len(&c->out);
		snprintf(head, sizeof(head), "%08x\r\n", (unsigned)n);
		memcpy(at, head, CHUNK_HEAD);
		memcpy(at + CHUNK_HEAD + n, "\r\n", CHUNK_TAIL);
		buf_commit(&c->out, CHUNK_HEAD + n + CHUNK_TAIL);
	}
	http1_conn_mark(c);
}

void http1_finish(struct http1_exchange *x)
{
	struct http1_conn *c = http1_conn_of(x);
	if (!x->active || x->ended || x->reset)
		return;
	x->ended = true;
	if (x->chunked && buf_add(&c->out, "0\r\n\r\n", 5))
		http1_reset(x);
	http1_conn_mark(c);
}

void http1_reset(struct http1_exchange *x)
{
	x->reset = true;
	http1_conn_mark(http1_conn_of(x));
}

size_t http1_queued(const struct http1_exchange *x) { return buf_len(&container_of(x, struct http1_conn, x)->out); }

void http1_notify_drained(struct http1_exchange *x, size_t low)
{
	x->notify = true;
	x->low = low;
	http1_conn_mark(http1_conn_of(x));
}

const struct stream_peer *http1_peer(const struct http1_exchange *x)
{
	return stream_peer(container_of(x, struct http1_conn, x)->stream);
}

void http1_set_user(struct http1_exchange *x, void *user) { x->user = user; }
void *http1_user(const struct http1_exchange *x) { return x->user; }
