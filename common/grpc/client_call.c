/* Owns a channel's calls: from grpc_call_start to on_status.
 *
 * A call is over when its status is known; on_status is called from the news that decided it, or from LOOP_WORK when
 * it was our own doing (cancel, deadline). The stream may outlive the call: its user is NULL then. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "common/grpc/client_impl.h"
#include "common/grpc/details.h"
#include "common/grpc/framing.h"
#include "common/grpc/wire.h"

#define DETAILS_BYTES_MAX (16 * 1024)
#define HEADERS_MAX 10

static void on_deadline(struct loop_timer *t);

/* ---- objects ---- */

static void call_free(struct grpc_client_call *c)
{
	loop_timer_stop(&c->timer);
	list_remove(&c->marked);
	list_remove(&c->node);
	if (c->s) {
		h2_set_user(c->s, NULL);
		if (c->stream_closed)
			h2_release(c->s);
		c->s = NULL;
	}
	list_push_front(&c->ch->spare, &c->node);
}

void client_call_free_spares(struct grpc_channel *ch)
{
	struct list *it;
	while ((it = list_pop_front(&ch->spare)))
		free(container_of(it, struct grpc_client_call, node));
}

static void schedule(struct grpc_client_call *c)
{
	if (list_empty(&c->marked))
		list_push_back(&c->ch->marked, &c->marked);
	loop_mark(c->ch->base.loop, &c->ch->dirty);
}

/* ---- the end ---- */

static void set_status(struct grpc_client_call *c, enum status_code code, const char *text)
{
	if (c->over)
		return;
	c->over = true;
	c->status = (struct grpc_status){ .code = code };
	snprintf(c->status.message, sizeof(c->status.message), "%s", text);
}

/* What is left of the stream is of no use to anyone. */
static void drop_stream(struct grpc_client_call *c)
{
	if (!c->s || c->stream_closed)
		return;
	h2_discard(c->s);
	if (c->peer_done && c->half_closed && !h2_queued(c->s))
		return;
	h2_reset(c->s, H2_CANCEL);
	conn_mark(&c->ch->base);
}

static void tell(struct grpc_client_call *c)
{
	if (c->told)
		return;
	c->told = true;
	drop_stream(c);
	loop_timer_stop(&c->timer);
	c->ev.on_status(c->arg, &c->status);
	call_free(c);
}

static void end_later(struct grpc_client_call *c, enum status_code code, const char *text)
{
	if (c->over)
		return;
	set_status(c, code, text);
	drop_stream(c);
	schedule(c);
}

static void on_deadline(struct loop_timer *t)
{
	struct grpc_client_call *c = container_of(t, struct grpc_client_call, timer);
	end_later(c, STATUS_DEADLINE_EXCEEDED, "the call's deadline passed");
}

void grpc_client_cancel(struct grpc_client_call *c) { end_later(c, STATUS_CANCELLED, "cancelled by us"); }

void client_call_end_all(struct grpc_channel *ch, const char *text)
{
	while (!list_empty(&ch->calls)) {
		struct grpc_client_call *c = container_of(ch->calls.next, struct grpc_client_call, node);
		set_status(c, STATUS_UNAVAILABLE, text);
		if (!c->told) {
			tell(c);
			continue;
		}
		list_remove(&c->node); /* on the stack, its tell goes on */
	}
}

/* grpc-status and what goes with it, from trailers or from headers that are both. */
static void status_of_fields(struct grpc_client_call *c, const char *(*get)(const struct h2_stream *, const char *),
			     uint8_t *details, size_t details_cap)
{
	const char *code = get(c->s, "grpc-status"), *text = get(c->s, "grpc-message");
	const char *bin = get(c->s, "grpc-status-details-bin");
	if (!code) {
		set_status(c, STATUS_UNKNOWN, "the response ended without grpc-status");
		return;
	}
	int n = 0;
	for (const char *p = code; *p && n <= 99; p++)
		n = *p >= '0' && *p <= '9' ? n * 10 + (*p - '0') : 100;
	set_status(c, n >= 0 && n <= STATUS_UNAUTHENTICATED && code[0] ? (enum status_code)n : STATUS_UNKNOWN, "");
	if (text)
		wire_decode_message(text, c->status.message, sizeof(c->status.message));
	size_t len;
	if (bin && wire_base64_decode(bin, strlen(bin), details, details_cap, &len) == 0 && len) {
		c->status.details = details;
		c->status.details_len = len;
		c->status.retry_after_ms = details_retry_ms(details, len);
	}
}

static const char *check_response(struct grpc_client_call *c, enum status_code *ret_code)
{
	static _Thread_local char text[64];
	const char *status = h2_header(c->s, ":status"), *type = h2_header(c->s, "content-type");
	if (h2_oversized(c->s)) {
		*ret_code = STATUS_RESOURCE_EXHAUSTED;
		return "the response's headers are too large";
	}
	if (!status || strcmp(status, "200") != 0) {
		int64_t http = 0;
		if (!status || num_parse_i64(status, &http) < 0)
			http = 0;
		*ret_code = wire_status_of_http(http > 0 && http < 1000 ? (int)http : 0);
		snprintf(text, sizeof(text), "HTTP status %.3s", status ? status : "missing");
		return text;
	}
	if (!type || strncmp(type, "application/grpc", 16) != 0) {
		*ret_code = STATUS_UNKNOWN;
		return "the response is not gRPC";
	}
	const char *encoding = h2_header(c->s, "grpc-encoding");
	if (encoding && strcmp(encoding, "identity") != 0) {
		*ret_code = STATUS_INTERNAL;
		return "the response is compressed though we did not offer that";
	}
	return NULL;
}

/* ---- messages in ---- */

/* 1: a message; 0: none yet; -1: the call is over. */
static int next_message(struct grpc_client_call *c, struct framing_message *m, size_t *ret_held)
{
	const uint8_t *data = h2_data(c->s, ret_held);
	size_t max = c->ch->cfg.limits.max_message;
	int rc = framing_next(data, *ret_held, max, m);
	char text[96];
	if (rc == -EMSGSIZE) {
		snprintf(text, sizeof(text), "message of %u bytes; the limit is %zu", m->declared, max);
		set_status(c, STATUS_RESOURCE_EXHAUSTED, text);
	} else if (rc < 0 || (rc == 1 && m->compressed)) {
		set_status(c, STATUS_INTERNAL, "the flags of a message are not 0");
	}
	return c->over ? -1 : rc;
}

static void input_stream(struct grpc_client_call *c)
{
	struct framing_message m;
	size_t n;
	while (!c->over && !c->paused) {
		int rc = next_message(c, &m, &n);
		if (rc == 0 && n && !c->peer_done)
			h2_credit(c->s);
		if (rc <= 0)
			return;
		struct h2_stream *s = c->s;
		if (c->ev.on_message)
			c->ev.on_message(c->arg, m.data, m.len);
		if (c->s == s)
			h2_drop(s, FRAMING_PREFIX + m.len);
	}
}

static void input_unary(struct grpc_client_call *c)
{
	struct framing_message m;
	size_t n;
	int rc = next_message(c, &m, &n);
	if (rc == 0 && n && !c->peer_done)
		h2_credit(c->s);
	if (rc == 1 && n > FRAMING_PREFIX + m.len)
		set_status(c, STATUS_INTERNAL, "more than one reply to a unary call");
}

/* The peer's side is closed and everything it sent was looked at. */
static void conclude(struct grpc_client_call *c)
{
	uint8_t details[DETAILS_BYTES_MAX];
	struct framing_message m;
	size_t n;
	int rc = next_message(c, &m, &n);
	if (rc < 0) {
		tell(c);
		return;
	}
	if (h2_headers_only(c->s))
		status_of_fields(c, h2_header, details, sizeof(details));
	else
		status_of_fields(c, h2_trailer, details, sizeof(details));
	bool ok = c->status.code == STATUS_OK;
	if (ok && c->kind == GRPC_CALL_UNARY && rc == 1) {
		if (c->ev.on_message)
			c->ev.on_message(c->arg, m.data, m.len);
	} else if (ok && (c->kind == GRPC_CALL_UNARY || n)) {
		c->over = false;
		set_status(c, STATUS_INTERNAL, n ? "the reply is cut short" : "no reply to a unary call");
	}
	tell(c);
}

static void input(struct grpc_client_call *c)
{
	if (c->over || !c->s)
		return;
	if (c->kind == GRPC_CALL_STREAM)
		input_stream(c);
	else
		input_unary(c);
	if (c->told || !c->s)
		return;
	if (c->over) {
		if (list_empty(&c->marked)) /* else cancelled by its own handler: LOOP_WORK tells */
			tell(c);
	} else if (c->peer_done && !c->paused) {
		conclude(c);
	}
}

/* ---- news ---- */

static void stream_ended(struct grpc_client_call *c)
{
	struct conn *conn = &c->ch->base;
	uint32_t code = h2_close_code(c->s);
	if (conn->state == CONN_CLOSED || conn->state == CONN_ENDING || h2_dead(conn->h2)) {
		const char *text = h2_goaway_text(conn->h2);
		if (!text[0])
			text = conn->text[0] ? conn->text : h2_error(conn->h2);
		set_status(c, STATUS_UNAVAILABLE, text[0] ? text : "the connection was closed");
		c->status.unprocessed = h2_unprocessed(c->s) || conn->opened_mono_ns == 0;
	} else {
		char text[64];
		snprintf(text, sizeof(text), "the stream was reset by the server (HTTP/2 code %u)", code);
		set_status(c, wire_status_of_reset(code), text);
		c->status.unprocessed = h2_unprocessed(c->s);
	}
	tell(c);
}

void client_call_news(struct grpc_channel *ch, struct h2_stream *s, unsigned news)
{
	struct grpc_client_call *c = h2_user(s);
	if (!c) {
		if (news & H2_NEWS_CLOSED)
			h2_release(s);
		return;
	}
	if (news & H2_NEWS_CLOSED)
		c->stream_closed = true;
	if (news & H2_NEWS_END)
		c->peer_done = true;
	if (c->over) { /* LOOP_WORK tells */
		return;
	}
	enum status_code code;
	const char *wrong = news & H2_NEWS_HEADERS ? check_response(c, &code) : NULL;
	if (wrong) {
		set_status(c, code, wrong);
		tell(c);
		return;
	}
	if (news & (H2_NEWS_DATA | H2_NEWS_END))
		input(c);
	if (c->over || c->told)
		return;
	if ((news & H2_NEWS_CLOSED) && (!c->peer_done || ch->base.state == CONN_CLOSED)) {
		stream_ended(c);
		return;
	}
	if ((news & H2_NEWS_DRAINED) && c->want_writable) {
		c->want_writable = false;
		if (c->ev.on_writable)
			c->ev.on_writable(c->arg);
	}
}

void client_call_work(struct grpc_channel *ch)
{
	struct list batch, *it;
	list_init(&batch);
	list_splice_back(&batch, &ch->marked);
	while ((it = list_pop_front(&batch))) {
		struct grpc_client_call *c = container_of(it, struct grpc_client_call, marked);
		if (c->over)
			tell(c);
		else
			input(c);
	}
}

/* ---- messages out ---- */

int grpc_call_start(struct grpc_channel *ch, const char *path, enum grpc_call_kind kind, int64_t deadline_mono_ns,
		    const struct grpc_call_events *ev, void *arg, struct grpc_client_call **ret)
{
	struct conn *conn = &ch->base;
	if (ch->freed || ch->shutdown || conn->state > CONN_OPEN)
		return -ENOTCONN;
	struct h2_header h[HEADERS_MAX] = {
		H2_HEADER(":method", "POST"),
		{ ":scheme", ch->scheme, strlen(ch->scheme), 0 },
		{ ":path", path, strlen(path), 0 },
		{ ":authority", ch->authority, strlen(ch->authority), 0 },
		H2_HEADER("te", "trailers"),
		H2_HEADER("content-type", "application/grpc"),
		{ "user-agent", ch->user_agent, strlen(ch->user_agent), 0 },
	};
	size_t n = 7;
	char timeout[WIRE_TIMEOUT_CAP];
	if (deadline_mono_ns != GRPC_NO_DEADLINE) {
		wire_format_timeout(deadline_mono_ns - loop_now_mono_ns(conn->loop), timeout);
		h[n++] = (struct h2_header){ "grpc-timeout", timeout, strlen(timeout), H2_HEADER_ONCE };
	}
	if (ch->authorization)
		h[n++] = (struct h2_header){ "authorization", ch->authorization, strlen(ch->authorization), H2_HEADER_SECRET };
	struct list *it = list_pop_front(&ch->spare);
	struct grpc_client_call *c = it ? container_of(it, struct grpc_client_call, node) : malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct grpc_client_call){ .ch = ch, .ev = *ev, .arg = arg, .kind = kind };
	list_init(&c->marked);
	list_init(&c->node);
	loop_timer_init(&c->timer, conn->loop, on_deadline);
	int rc = h2_begin(conn->h2, h, n, false, c, &c->s);
	if (rc < 0) {
		list_push_front(&ch->spare, &c->node);
		return rc;
	}
	list_push_back(&ch->calls, &c->node);
	if (deadline_mono_ns != GRPC_NO_DEADLINE)
		loop_timer_set(&c->timer, deadline_mono_ns);
	conn_mark(conn);
	*ret = c;
	return 0;
}

int grpc_client_send_packed(struct grpc_client_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out),
			    const void *msg)
{
	if (c->over || !c->s || c->stream_closed || c->half_closed)
		return -EPIPE;
	const struct grpc_limits *l = &c->ch->cfg.limits;
	if (len > l->max_message || len > UINT32_MAX)
		return -EMSGSIZE;
	size_t queued = h2_queued(c->s);
	if (queued && (queued + len + FRAMING_PREFIX > l->stream_queue ||
		       h2_out_total(c->ch->base.h2) + len > l->conn_queue)) {
		c->want_writable = true;
		h2_notify_drained(c->s, min_sz(l->stream_queue / 2, queued / 2));
		return -EAGAIN;
	}
	uint8_t *at = h2_write_reserve(c->s, FRAMING_PREFIX + len);
	if (!at) {
		end_later(c, STATUS_RESOURCE_EXHAUSTED, "out of memory");
		return -EPIPE;
	}
	framing_prefix(at, 0, (uint32_t)len);
	size_t packed = pack(msg, at + FRAMING_PREFIX);
	assert(packed == len);
	h2_write_commit(c->s, FRAMING_PREFIX + packed);
	if (c->kind == GRPC_CALL_UNARY)
		grpc_client_half_close(c);
	conn_mark(&c->ch->base);
	return 0;
}

int grpc_client_send(struct grpc_client_call *c, const void *data, size_t len)
{
	struct framing_span s = { data, len };
	return grpc_client_send_packed(c, len, framing_pack_span, &s);
}

size_t grpc_client_queued(const struct grpc_client_call *c) { return c->s ? h2_queued(c->s) : 0; }

void grpc_client_half_close(struct grpc_client_call *c)
{
	if (c->over || c->half_closed || !c->s || c->stream_closed)
		return;
	c->half_closed = true;
	h2_finish(c->s, NULL, 0);
	conn_mark(&c->ch->base);
}

void grpc_client_pause(struct grpc_client_call *c, bool paused)
{
	c->paused = paused;
	if (paused || c->over)
		return;
	schedule(c);
	if (c->s)
		conn_mark(&c->ch->base); /* it may credit its peer, and has nothing else to write */
}
