/* Owns the nghttp2 session of a connection and everything that comes in.  nghttp2's callbacks only take notes at
 * our stream objects; nothing of the owner's is called.  Once `dead` is set every callback returns at once: the
 * library may go on calling until the end of the bytes it was given, and stream objects may be gone by then. */
#include "common/h2/h2.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/h2/h2_impl.h"

/* The library's own limits: cancelled calls of honest clients are RST_STREAMs too, so its default of 1,000 in a
 * burst is too tight; the rest is what it defends by default, written down. */
#define RESET_BURST 5000
#define RESET_RATE 500
#define MAX_SETTINGS 32
#define MAX_ACKS 1000
#define MAX_CONTINUATIONS 8
/* Beyond this multiple of the header list's limit the block is refused instead of counted on. */
#define OVERSIZE_FACTOR 4

static const uint8_t PING_KEEPALIVE[8] = "keepaliv";
static const uint8_t PING_DRAIN[8] = "drain...";

static struct h2_stream *stream_of(struct h2 *h, int32_t id)
{
	return nghttp2_session_get_stream_user_data(h->session, id);
}

static void die(struct h2 *h, uint32_t code, const char *text)
{
	h->dead = true;
	if (text != h->error)
		snprintf(h->error, sizeof(h->error), "%s", text);
	list_each(it, &h->streams)
		h2_stream_close(container_of(it, struct h2_stream, node), code ? code : H2_CANCEL);
}

void h2_fail(struct h2 *h, uint32_t code, const char *text)
{
	if (h->dead)
		return;
	/* Without memory the peer is cut off without a word. */
	(void)nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session), code,
				    (const uint8_t *)text, strlen(text));
	die(h, code, text);
}

/* ---- what nghttp2 tells ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;
	if (h->dead || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	int32_t id = frame->hd.stream_id;
	struct h2_stream *s = h->n_streams < h->limits.max_streams ? h2_stream_new(h, id) : NULL;
	if (!s)
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
	nghttp2_session_set_stream_user_data(session, id, s);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
		     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
	struct h2 *h = arg;
	struct h2_stream *s = h->dead ? NULL : stream_of(h, frame->hd.stream_id);
	if (!s || s->discard)
		return 0;
	s->list_size += name_len + value_len + 32;
	s->list_fields++;
	if (s->list_size > h->limits.max_header_list || s->list_fields > h->limits.max_header_fields)
		s->oversized = true;
	if (s->list_size / OVERSIZE_FACTOR > h->limits.max_header_list)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (s->oversized)
		return 0;
	int rc = h2_fields_add(s->headers_done ? &s->trailers : &s->headers, name, name_len, value, value_len);
	if (rc == -ENOMEM)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (rc < 0)
		s->oversized = true;
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
	struct h2 *h = arg;
	if (h->dead)
		return 0;
	h->in_uncredited += len;
	struct h2_stream *s = stream_of(h, id);
	if (s && s->read_to_end)
		return nghttp2_session_consume_stream(session, id, len);
	if (!s || s->discard)
		return 0;
	if (buf_add(&s->in, data, len) < 0) {
		s->discard = true;
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_INTERNAL_ERROR);
	}
	h->in_total += len;
	s->in_uncredited += len;
	h2_news(s, H2_NEWS_DATA);
	return 0;
}

static void headers_complete(struct h2_stream *s, bool end)
{
	if (!s->headers_done) {
		const char *status = s->h->role == H2_CLIENT ? h2_fields_get(&s->headers, ":status") : NULL;
		if (status && status[0] == '1') { /* informational: the real ones follow */
			buf_clear(&s->headers);
			s->list_size = 0;
			s->list_fields = 0;
			return;
		}
		s->headers_done = true;
		s->headers_only = end;
		s->list_size = 0;
		s->list_fields = 0;
		h2_news(s, H2_NEWS_HEADERS);
	}
	if (end) {
		s->in_closed = true;
		h2_news(s, H2_NEWS_END);
	}
}

/* Requests that wait for the peer's stream limit: the library would keep them until there is room. Those on the
 * wire it closes itself. */
static void refuse_waiting(struct h2 *h, int32_t last_id)
{
	list_each(it, &h->streams) {
		struct h2_stream *s = container_of(it, struct h2_stream, node);
		if (s->closed || s->id <= last_id || nghttp2_session_find_stream(h->session, s->id))
			continue;
		nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
		if (!s->reset) /* takes it off the library's queue */
			(void)nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
		h2_stream_close(s, H2_REFUSED_STREAM);
	}
}

static void goaway_received(struct h2 *h, const nghttp2_goaway *g)
{
	h->got_goaway = true;
	if (h->role == H2_CLIENT)
		refuse_waiting(h, g->last_stream_id);
	if (g->error_code == NGHTTP2_NO_ERROR)
		return;
	char text[96] = "";
	size_t n = min_sz(g->opaque_data_len, sizeof(text) - 1);
	for (size_t i = 0; i < n; i++)
		text[i] = g->opaque_data[i] >= 0x20 && g->opaque_data[i] < 0x7f ? (char)g->opaque_data[i] : '?';
	snprintf(h->goaway_text, sizeof(h->goaway_text), "%s%s%s", nghttp2_http2_strerror(g->error_code), n ? ": " : "", text);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;
	if (h->dead)
		return 0;
	h2_guard_recv(h, frame);
	if (h->dead)
		return 0;
	struct h2_stream *s = frame->hd.stream_id ? stream_of(h, frame->hd.stream_id) : NULL;
	bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		if (s)
			headers_complete(s, end);
		break;
	case NGHTTP2_DATA:
		if (s && end) {
			s->in_closed = true;
			h2_news(s, H2_NEWS_END);
		}
		break;
	case NGHTTP2_RST_STREAM:
		if (s)
			h2_guard_reset_received(h, s);
		break;
	case NGHTTP2_SETTINGS:
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
			h->got_settings = true;
		break;
	case NGHTTP2_PING:
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
			break;
		if (memcmp(frame->ping.opaque_data, PING_KEEPALIVE, sizeof(PING_KEEPALIVE)) == 0)
			h->ping_waiting = false;
		else if (memcmp(frame->ping.opaque_data, PING_DRAIN, sizeof(PING_DRAIN)) == 0)
			h2_drain_finish(h);
		break;
	case NGHTTP2_GOAWAY:
		goaway_received(h, &frame->goaway);
		break;
	default:
		break;
	}
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2 *h = arg;
	struct h2_stream *s = h->dead ? NULL : stream_of(h, id);
	if (s)
		h2_stream_close(s, code);
	return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;
	if (h->dead)
		return 0;
	h2_guard_sent(h, frame);
	if (h->dead)
		return 0;
	if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
		/* The library's own verdict on the peer. */
		char text[sizeof(h->error)];
		snprintf(text, sizeof(text), "%s%s%.200s", nghttp2_http2_strerror(frame->goaway.error_code),
			 h->error[0] ? ": " : "", h->error);
		die(h, frame->goaway.error_code, text);
		return 0;
	}
	bool end = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
		   (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
	struct h2_stream *s = end ? stream_of(h, frame->hd.stream_id) : NULL;
	if (s)
		h2_sent_end(s);
	return 0;
}

static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
	struct h2 *h = arg;
	if (h->dead || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	struct h2_stream *s = stream_of(h, frame->hd.stream_id);
	if (s)
		s->unprocessed = true; /* on_stream_close follows */
	return 0;
}

static int on_error(nghttp2_session *session, int code, const char *msg, size_t len, void *arg)
{
	struct h2 *h = arg;
	if (!h->dead)
		snprintf(h->error, sizeof(h->error), "%.*s", (int)min_sz(len, sizeof(h->error) - 1), msg);
	return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
	struct h2 *h = arg;
	if (!h->dead)
		snprintf(h->error, sizeof(h->error), "frame of type %d on stream %d: %s", frame->hd.type, frame->hd.stream_id,
			 nghttp2_strerror(error));
	return 0;
}

/* ---- making and ending ---- */

static int session_new(struct h2 *h)
{
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *opt = NULL;
	int rc = -ENOMEM;
	if (nghttp2_session_callbacks_new(&cb) != 0 || nghttp2_option_new(&opt) != 0)
		goto out;
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
	nghttp2_session_callbacks_set_error_callback2(cb, on_error);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
	nghttp2_option_set_no_auto_window_update(opt, 1);
	nghttp2_option_set_no_closed_streams(opt, 1);
	nghttp2_option_set_stream_reset_rate_limit(opt, RESET_BURST, RESET_RATE);
	nghttp2_option_set_max_settings(opt, MAX_SETTINGS);
	nghttp2_option_set_max_outbound_ack(opt, MAX_ACKS);
	nghttp2_option_set_max_continuations(opt, MAX_CONTINUATIONS);
	/* Odd blanks around a value are no reason to reset a call. */
	nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(opt, 1);
	nghttp2_mem mem = h2_mem(h);
	int err = h->role == H2_SERVER ? nghttp2_session_server_new3(&h->session, cb, h, opt, &mem) :
					 nghttp2_session_client_new3(&h->session, cb, h, opt, &mem);
	rc = err ? -ENOMEM : 0;
out:
	nghttp2_option_del(opt);
	nghttp2_session_callbacks_del(cb);
	return rc;
}

static int settings_submit(struct h2 *h)
{
	const struct h2_limits *l = &h->limits;
	nghttp2_settings_entry e[5];
	size_t n = 0;
	e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, l->stream_window };
	e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)l->max_header_list };
	if (h->role == H2_SERVER) {
		e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->max_streams };
		e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 };
	} else {
		e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 };
	}
	if (nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, e, n) != 0)
		return -ENOMEM;
	/* SETTINGS do not change the connection's window. */
	if (nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, (int32_t)l->conn_window) != 0)
		return -ENOMEM;
	return 0;
}

int h2_new(enum h2_role role, const struct h2_limits *limits, struct h2 **ret)
{
	struct h2 *h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->role = role;
	h->limits = *limits;
	h->limits.conn_window = limits->conn_window > limits->stream_window ? limits->conn_window : limits->stream_window;
	list_init(&h->ready);
	list_init(&h->streams);
	list_init(&h->spare);
	int rc = session_new(h);
	if (rc == 0)
		rc = settings_submit(h);
	if (rc < 0) {
		h2_free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

int h2_recv(struct h2 *h, const uint8_t *data, size_t len, int64_t now_mono_ns)
{
	if (h->dead)
		return -EPROTO;
	h->now = now_mono_ns;
	ssize_t n = nghttp2_session_mem_recv(h->session, data, len);
	if (n < 0) {
		char text[sizeof(h->error)];
		snprintf(text, sizeof(text), "%s%s%.200s", nghttp2_strerror((int)n), h->error[0] ? ": " : "", h->error);
		h2_fail(h, H2_PROTOCOL_ERROR, text);
	}
	if (h->dead)
		return -EPROTO;
	h2_credit_connection(h);
	return 0;
}

/* Only now: what came in the same batch as the PING's answer counts as processed, its handlers may have begun. */
static void send_last_goaway(struct h2 *h)
{
	h->goaway_due = false;
	const char *why = h->drain_why ? h->drain_why : "";
	if (nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session),
				  NGHTTP2_NO_ERROR, (const uint8_t *)why, strlen(why)) != 0)
		h2_fail(h, H2_INTERNAL_ERROR, "no memory for GOAWAY");
}

int h2_pull(struct h2 *h, struct buf *out, size_t high, int64_t now_mono_ns)
{
	h->now = now_mono_ns;
	if (h->aborted)
		return 0;
	if (h->goaway_due && !h->dead)
		send_last_goaway(h);
	while (buf_len(out) < high) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(h->session, &p);
		if (n == 0) {
			h->rests = true;
			break;
		}
		h->rests = false;
		if (n < 0) {
			h->broken = n == NGHTTP2_ERR_NOMEM;
			h2_fail(h, H2_INTERNAL_ERROR, nghttp2_strerror((int)n));
			h2_abort(h);
			return n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
		}
		if (buf_add(out, p, (size_t)n) < 0) {
			h2_fail(h, H2_INTERNAL_ERROR, "no memory for output");
			h2_abort(h);
			return -ENOMEM;
		}
	}
	return 0;
}

bool h2_want_write(const struct h2 *h) { return !h->aborted && (h->goaway_due || nghttp2_session_want_write(h->session)); }

bool h2_dead(const struct h2 *h)
{
	return h->dead || (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session));
}

const char *h2_error(const struct h2 *h) { return h->dead ? h->error : ""; }
bool h2_ready(const struct h2 *h) { return h->got_settings; }
bool h2_goaway_received(const struct h2 *h) { return h->got_goaway; }
const char *h2_goaway_text(const struct h2 *h) { return h->goaway_text; }
bool h2_ping_waiting(const struct h2 *h) { return h->ping_waiting; }
size_t h2_open_streams(const struct h2 *h) { return h->n_open; }
size_t h2_in_total(const struct h2 *h) { return h->in_total; }
size_t h2_out_total(const struct h2 *h) { return h->out_total; }

struct h2_stream *h2_next(struct h2 *h, unsigned *ret_news)
{
	struct list *it = list_pop_front(&h->ready);
	if (!it)
		return NULL;
	struct h2_stream *s = container_of(it, struct h2_stream, ready);
	*ret_news = s->news;
	s->news = 0;
	return s;
}

void h2_drain(struct h2 *h, const char *why)
{
	if (h->dead || h->draining)
		return;
	h->draining = true;
	h->drain_why = why;
	if (h->role == H2_CLIENT) {
		h2_drain_finish(h);
		return;
	}
	/* Both fail without memory only; the owner's timer calls h2_drain_finish then. */
	(void)nghttp2_submit_shutdown_notice(h->session);
	(void)nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, PING_DRAIN);
}

void h2_drain_finish(struct h2 *h)
{
	if (h->dead || !h->draining || h->drain_finished)
		return;
	h->drain_finished = true;
	h->goaway_due = true;
}

void h2_terminate(struct h2 *h, uint32_t code, const char *text) { h2_fail(h, code, text); }

void h2_abort(struct h2 *h)
{
	h->aborted = true;
	if (!h->dead)
		die(h, H2_CANCEL, "");
}

void h2_ping(struct h2 *h)
{
	if (h->dead || h->ping_waiting)
		return;
	if (nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, PING_KEEPALIVE) == 0)
		h->ping_waiting = true;
}
