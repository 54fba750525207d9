/* What the files of this folder share. */
#ifndef REINS_H2_IMPL_H
#define REINS_H2_IMPL_H

#include <nghttp2/nghttp2.h>

#include "common/base/list.h"
#include "common/h2/h2.h"

/* Rules against abuse; see h2_guard.c. */
struct h2_guard {
	int64_t window_start_mono_ns;
	uint32_t control, traffic; /* frames in this window */
	uint32_t resets_sent;
	uint32_t empty_data; /* in a row */
	uint32_t streams, premature;
	int64_t ping_mono_ns; /* the last one that did not come too early; 0: none since we sent something */
	uint32_t ping_strikes;
};

struct h2 {
	nghttp2_session *session;
	enum h2_role role;
	struct h2_limits limits;
	int64_t now;
	struct list ready;   /* streams with news */
	struct list streams; /* all not released */
	struct list spare;   /* released objects for reuse */
	size_t n_streams, n_open, n_spare;
	size_t in_total, out_total;
	size_t in_uncredited; /* connection credit owed to the peer */
	bool got_settings, got_goaway, draining, drain_finished, goaway_due, ping_waiting, dead, aborted;
	bool broken; /* the library had no memory in the middle of sending: see h2_free */
	const char *drain_why;
	char error[256];
	char goaway_text[160];
	struct h2_guard guard;
	void *large; /* h2_mem.c */
	size_t large_len;
	bool rests;  /* nothing of a frame is in it */
};

struct h2_stream {
	struct list ready, node;
	struct h2 *h;
	int32_t id;
	unsigned news;
	uint32_t close_code;
	int64_t opened_mono_ns;
	void *user;
	/* records of fields: two uint16 lengths, name, NUL, value, NUL */
	struct buf headers, trailers, out_trailers;
	struct buf in, out;
	size_t in_uncredited;
	size_t low;
	size_t list_size;
	uint32_t list_fields;
	bool notify;
	bool headers_done, headers_only, oversized, discard, read_to_end, started, answered;
	bool out_begun;     /* a data provider is in place */
	bool out_ending;    /* no more bytes from us */
	bool out_closed;    /* END_STREAM left */
	bool in_closed;     /* END_STREAM arrived */
	bool closed, reset, unprocessed;
};

void h2_news(struct h2_stream *s, unsigned news);
struct h2_stream *h2_stream_new(struct h2 *h, int32_t id);
void h2_stream_close(struct h2_stream *s, uint32_t code);
void h2_fail(struct h2 *h, uint32_t code, const char *text);
/* What was received and not credited, unless too much is held. */
void h2_credit_connection(struct h2 *h);
/* END_STREAM left: closes our side, sends the RST that had to wait. */
void h2_sent_end(struct h2_stream *s);

/* 0, or -ENOBUFS / -ENOMEM. */
int h2_fields_add(struct buf *b, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len) MUST_CHECK;
const char *h2_fields_get(const struct buf *b, const char *name);
size_t h2_fields_count(const struct buf *b, const char *name);

/* h2_mem.c */
nghttp2_mem h2_mem(struct h2 *h);

void h2_guard_recv(struct h2 *h, const nghttp2_frame *frame);
void h2_guard_reset_received(struct h2 *h, const struct h2_stream *s);
void h2_guard_sent(struct h2 *h, const nghttp2_frame *frame);

#endif
