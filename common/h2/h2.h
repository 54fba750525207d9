/* One HTTP/2 connection without I/O and without a clock, either role: bytes in, bytes out, `now` a parameter.
 *
 *   h2_recv   takes what arrived. Nothing is called back; what happened is noted at the streams.
 *   h2_next   hands out the streams that have news, each with a set of flags. Until it returned NULL the owner
 *             is to act in the order headers, data, end, drained, closed.
 *   h2_pull   appends what is to be sent. It makes news as well (streams close, queues drain): call
 *             h2_next after it.
 *
 * The owner may call everything below while it handles news. Received bytes are kept per stream until dropped
 * and the peer's window is credited by the owner, so a stream can hold at most its window plus what the owner
 * chose to retain. Connection credit is given on receipt (one paused stream must not starve the others) unless
 * all streams together hold more than in_budget.
 *
 * A server refuses abuse by itself: h2_dead turns true, the reason is in h2_error, and a last GOAWAY waits in
 * h2_pull. */
#ifndef REINS_H2_H
#define REINS_H2_H

#include "common/base/base.h"
#include "common/base/buf.h"

struct h2;
struct h2_stream;

enum h2_role { H2_SERVER, H2_CLIENT };

/* Error codes of RFC 9113, section 7, as far as they are named here. */
enum {
	H2_NO_ERROR = 0,
	H2_PROTOCOL_ERROR = 1,
	H2_INTERNAL_ERROR = 2,
	H2_FLOW_CONTROL_ERROR = 3,
	H2_STREAM_CLOSED = 5,
	H2_FRAME_SIZE_ERROR = 6,
	H2_REFUSED_STREAM = 7,
	H2_CANCEL = 8,
	H2_COMPRESSION_ERROR = 9,
	H2_ENHANCE_YOUR_CALM = 11,
	H2_INADEQUATE_SECURITY = 12,
};

struct h2_limits {
	size_t max_header_list;     /* advertised; name + value + 32 per field. Beyond: H2_NEWS_HEADERS comes with h2_oversized */
	uint32_t max_header_fields; /* the same for the number of fields */
	uint32_t max_streams;       /* streams the owner has not released, closed ones included */
	uint32_t stream_window;
	uint32_t conn_window;       /* raised to at least stream_window */
	int64_t ping_min_ns;        /* server: the peer may send a PING every so often, see h2_guard.c; 0: no such rule */
	size_t in_budget;           /* received bytes held over all streams before connection credit stops */
};

/* -ENOMEM. */
int h2_new(enum h2_role role, const struct h2_limits *limits, struct h2 **ret) MUST_CHECK;
/* Every stream goes with it, released or not. NULL-safe. */
void h2_free(struct h2 *h);
/* Sessions of the library that were left in memory, in the life of the process. */
int64_t h2_abandoned(void);

/* 0, or -EPROTO once the connection is beyond repair: pull what is left, close. Bytes after that are ignored. */
int h2_recv(struct h2 *h, const uint8_t *data, size_t len, int64_t now_mono_ns) MUST_CHECK;
/* Appends frames to `out` until it holds `high` bytes or nothing is left to send. -ENOMEM, -EPROTO. */
int h2_pull(struct h2 *h, struct buf *out, size_t high, int64_t now_mono_ns) MUST_CHECK;
/* Gives memory back that the next h2_pull would need again: for a connection that sends seldom. */
void h2_rest(struct h2 *h);
bool h2_want_write(const struct h2 *h);
/* No more use in reading or going on: an error, or both sides said goodbye and no stream is left. */
bool h2_dead(const struct h2 *h);
/* One line for a log; "" when all is well. */
const char *h2_error(const struct h2 *h);

enum {
	H2_NEWS_HEADERS = 1, /* request or response headers are complete */
	H2_NEWS_DATA = 2,    /* more bytes in h2_data */
	H2_NEWS_END = 4,     /* the peer's side is closed; h2_trailer may find something */
	H2_NEWS_DRAINED = 8, /* after h2_notify_drained */
	H2_NEWS_CLOSED = 16, /* the stream is no more, see h2_close_code; the owner must h2_release it now or later */
};
struct h2_stream *h2_next(struct h2 *h, unsigned *ret_news);

/* ---- connection ---- */
/* The peer's SETTINGS arrived. */
bool h2_ready(const struct h2 *h);
/* The peer sent GOAWAY: a client opens no more streams. */
bool h2_goaway_received(const struct h2 *h);
/* The peer's GOAWAY carried an error: its text for a log, else "". */
const char *h2_goaway_text(const struct h2 *h);
/* Server. First of the two steps: GOAWAY(2^31-1), so that nothing in flight is lost, and a PING; its answer, or
 * h2_drain_finish, brings the second with the real last id, and `why` as its debug text (static, or NULL). Idempotent. */
void h2_drain(struct h2 *h, const char *why);
void h2_drain_finish(struct h2 *h);
/* Ends the connection: GOAWAY with a code and text, every stream closed. h2_dead from now on. */
void h2_terminate(struct h2 *h, uint32_t code, const char *text);
/* The transport is gone: every stream closed, nothing will be sent. */
void h2_abort(struct h2 *h);
/* A PING of ours; answered when h2_ping_waiting is false again. */
void h2_ping(struct h2 *h);
bool h2_ping_waiting(const struct h2 *h);
size_t h2_open_streams(const struct h2 *h); /* not closed */
size_t h2_in_total(const struct h2 *h);     /* received and not dropped */
size_t h2_out_total(const struct h2 *h);    /* queued and not pulled */

/* ---- streams ---- */
enum {
	H2_HEADER_SECRET = 1, /* never indexed by HPACK */
	H2_HEADER_ONCE = 2,   /* a value that won't come again: kept out of the dynamic table */
};
/* Name in lower case, both copied. The value must have no CR, LF or NUL. */
struct h2_header {
	const char *name;
	const char *value;
	size_t value_len;
	unsigned flags;
};
#define H2_HEADER(n, v) { (n), (v), sizeof(v) - 1, 0 }

/* Client: opens a stream. With `end` there is no body. Above the peer's stream limit it waits inside.
 * -ENOTCONN: dead or going away; -EAGAIN: limits.max_streams are open; -ENOMEM. */
int h2_begin(struct h2 *h, const struct h2_header *hdrs, size_t n, bool end, void *user, struct h2_stream **ret) MUST_CHECK;
/* Server: response headers; `end` makes them the whole response. */
void h2_respond(struct h2_stream *s, const struct h2_header *hdrs, size_t n, bool end);
/* Room for n bytes at the end of the stream's queue, to be written and committed. The owner bounds the queue
 * by h2_queued. NULL: no memory, or the stream is closed or ended on our side. */
uint8_t *h2_write_reserve(struct h2_stream *s, size_t n) MUST_CHECK;
void h2_write_commit(struct h2_stream *s, size_t n);
size_t h2_queued(const struct h2_stream *s);
/* H2_NEWS_DRAINED comes once, when at most `low` bytes are queued. */
void h2_notify_drained(struct h2_stream *s, size_t low);
/* Ends our side after what is queued, with trailers when n > 0. When the peer's side is open at that time a
 * server sends RST_STREAM(NO_ERROR) after the trailers left: earlier it would throw them away. */
void h2_finish(struct h2_stream *s, const struct h2_header *trailers, size_t n);
/* Server: no RST_STREAM after an early answer; what the peer still sends is read to its end and thrown away. For plain
 * HTTP clients: curl 7.88 takes the reset for a failure and drops the whole answer before it. */
void h2_read_to_end(struct h2_stream *s);
/* RST_STREAM at once; what is queued is thrown away. H2_NEWS_CLOSED follows. */
void h2_reset(struct h2_stream *s, uint32_t code);
/* After H2_NEWS_CLOSED: the object may be used no more. */
void h2_release(struct h2_stream *s);

int32_t h2_id(const struct h2_stream *s);
void h2_set_user(struct h2_stream *s, void *user);
void *h2_user(const struct h2_stream *s);
/* After H2_NEWS_CLOSED. */
uint32_t h2_close_code(const struct h2_stream *s);
/* The peer can't have begun to work on it: refused, above GOAWAY's last id, or never sent. */
bool h2_unprocessed(const struct h2_stream *s);
/* Work began for this stream; resets soon after it count as rapid ones (CVE-2023-44487). */
void h2_mark_started(struct h2_stream *s);

/* Header and trailer fields: NUL-terminated, valid until h2_release. NULL when absent or given twice. */
const char *h2_header(const struct h2_stream *s, const char *name);
size_t h2_header_count(const struct h2_stream *s, const char *name);
const char *h2_trailer(const struct h2_stream *s, const char *name);
bool h2_oversized(const struct h2_stream *s);
/* Headers came with the end of the stream: no body and no trailers follow. */
bool h2_headers_only(const struct h2_stream *s);

/* Bytes received and not dropped, in one piece; valid until the next h2_recv or h2_drop. */
const uint8_t *h2_data(const struct h2_stream *s, size_t *ret_len);
/* Takes n bytes off the front and credits what of them was not credited yet. */
void h2_drop(struct h2_stream *s, size_t n);
/* Credits everything received but keeps it: the peer may send the rest of a message larger than its window. */
void h2_credit(struct h2_stream *s);
/* From now on what arrives on this stream is thrown away; what is there stays until dropped or released. */
void h2_discard(struct h2_stream *s);

#endif
