/* HTTP/2 sessions in memory: both roles against each other, and a server against bare frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/h2/h2.h"
#include "tests/unit/h2_raw.h"

#define NO_MAX ((size_t)1 << 30)

static const struct h2_limits LIMITS = {
	.max_header_list = 16 * 1024,
	.max_header_fields = 100,
	.max_streams = 1000,
	.stream_window = 65535,
	.conn_window = 1 << 20,
	.in_budget = 32 << 20,
};

static const struct h2_header REQUEST[] = {
	H2_HEADER(":method", "POST"), H2_HEADER(":scheme", "http"), H2_HEADER(":path", "/p"), H2_HEADER(":authority", "a"),
};
static const struct h2_header RESPONSE[] = { H2_HEADER(":status", "200"), H2_HEADER("content-type", "x") };
static const struct h2_header TRAILERS[] = { H2_HEADER("grpc-status", "0"), H2_HEADER("grpc-message", "a longer text") };

static void write_bytes(struct h2_stream *s, const void *data, size_t len)
{
	uint8_t *at = h2_write_reserve(s, len);
	assert_non_null(at);
	memcpy(at, data, len);
	h2_write_commit(s, len);
}

/* ---- both roles, any chunking, any window ---- */

#define STREAMS 12

struct side {
	struct h2 *h;
	struct buf wire; /* pulled, not yet given to the other */
};

struct flow {
	struct h2_stream *s;
	uint8_t *bytes;
	size_t len, queued; /* of what the client sends */
	struct buf echoed;
	bool ended, closed;
};

struct duo {
	struct rng rng;
	struct side client, server;
	struct flow flows[STREAMS];
	int done;
};

static uint8_t byte_at(size_t stream, size_t i) { return (uint8_t)(i * 7 + stream * 13 + (i >> 9)); }

static void server_news(struct h2_stream *s, unsigned news)
{
	if (news & H2_NEWS_CLOSED) {
		assert_int_equal(h2_close_code(s), H2_NO_ERROR);
		h2_release(s);
		return;
	}
	if (news & H2_NEWS_HEADERS) {
		assert_string_equal(h2_header(s, ":path"), "/p");
		assert_null(h2_header(s, "none"));
		h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
	}
	size_t n;
	const uint8_t *data = h2_data(s, &n);
	if (n) {
		write_bytes(s, data, n);
		h2_drop(s, n);
	}
	if (news & H2_NEWS_END)
		h2_finish(s, TRAILERS, ARRAY_LEN(TRAILERS));
}

static void client_news(struct duo *d, struct h2_stream *s, unsigned news)
{
	struct flow *f = h2_user(s);
	if (news & H2_NEWS_HEADERS)
		assert_string_equal(h2_header(s, ":status"), "200");
	size_t n;
	const uint8_t *data = h2_data(s, &n);
	/* Sometimes leave a part, sometimes credit and keep. */
	size_t take = n && !(news & (H2_NEWS_END | H2_NEWS_CLOSED)) ? rng_below(&d->rng, n) + 1 : n;
	if (take) {
		assert_int_equal(buf_add(&f->echoed, data, take), 0);
		h2_drop(s, take);
	}
	if (n > take)
		h2_credit(s);
	if (news & H2_NEWS_END) {
		assert_string_equal(h2_trailer(s, "grpc-status"), "0");
		assert_string_equal(h2_trailer(s, "grpc-message"), "a longer text");
		assert_false(h2_headers_only(s));
		f->ended = true;
	}
	if (news & H2_NEWS_CLOSED) {
		assert_int_equal(h2_close_code(s), H2_NO_ERROR);
		f->closed = true;
		f->s = NULL;
		d->done++;
		h2_release(s);
	}
}

static void news(struct duo *d, struct h2 *h)
{
	unsigned flags;
	struct h2_stream *s;
	while ((s = h2_next(h, &flags))) {
		if (h == d->server.h)
			server_news(s, flags);
		else
			client_news(d, s, flags);
	}
}

/* A random piece of what `from` sent. */
static void move(struct duo *d, struct side *from, struct side *to, size_t chunk)
{
	uint8_t bytes[4096];
	assert_int_equal(h2_pull(from->h, &from->wire, rng_below(&d->rng, 40000) + 1, 0), 0);
	news(d, from->h);
	size_t n = min_sz(buf_len(&from->wire), rng_below(&d->rng, chunk) + 1);
	if (!n)
		return;
	/* In memory of its own, so that nothing is kept from it. */
	memcpy(bytes, buf_head(&from->wire), n);
	buf_consume(&from->wire, n);
	assert_int_equal(h2_recv(to->h, bytes, n, 0), 0);
	memset(bytes, 0xee, n);
	news(d, to->h);
}

static void feed(struct duo *d, struct flow *f)
{
	if (!f->s || f->queued == f->len)
		return;
	size_t n = min_sz(f->len - f->queued, rng_below(&d->rng, 5000));
	if (n) {
		write_bytes(f->s, f->bytes + f->queued, n);
		f->queued += n;
	}
	if (f->queued == f->len)
		h2_finish(f->s, NULL, 0);
}

static void both_roles(uint64_t seed, uint32_t window, size_t chunk, size_t most)
{
	struct duo d = { 0 };
	struct h2_limits l = LIMITS;
	l.stream_window = window;
	rng_seed(&d.rng, seed);
	buf_init(&d.client.wire, NO_MAX);
	buf_init(&d.server.wire, NO_MAX);
	assert_int_equal(h2_new(H2_SERVER, &l, &d.server.h), 0);
	assert_int_equal(h2_new(H2_CLIENT, &l, &d.client.h), 0);
	for (size_t i = 0; i < STREAMS; i++) {
		struct flow *f = &d.flows[i];
		f->len = i ? rng_below(&d.rng, most) + 1 : 1;
		f->bytes = malloc(f->len);
		assert_non_null(f->bytes);
		for (size_t k = 0; k < f->len; k++)
			f->bytes[k] = byte_at(i, k);
		buf_init(&f->echoed, NO_MAX);
		assert_int_equal(h2_begin(d.client.h, REQUEST, ARRAY_LEN(REQUEST), false, f, &f->s), 0);
	}
	for (long turn = 0; d.done < STREAMS; turn++) {
		if (turn > 5000000)
			fail_msg("seed %llu, window %u, chunk %zu: no end", (unsigned long long)seed, window, chunk);
		for (size_t i = 0; i < STREAMS; i++)
			feed(&d, &d.flows[i]);
		move(&d, &d.client, &d.server, chunk);
		move(&d, &d.server, &d.client, chunk);
	}
	for (size_t i = 0; i < STREAMS; i++) {
		struct flow *f = &d.flows[i];
		assert_true(f->ended && f->closed);
		assert_int_equal(buf_len(&f->echoed), f->len);
		assert_memory_equal(buf_head(&f->echoed), f->bytes, f->len);
		buf_done(&f->echoed);
		free(f->bytes);
	}
	assert_int_equal(h2_in_total(d.server.h), 0);
	assert_int_equal(h2_in_total(d.client.h), 0);
	assert_int_equal(h2_out_total(d.server.h), 0);
	assert_int_equal(h2_open_streams(d.client.h), 0);
	h2_free(d.client.h);
	h2_free(d.server.h);
	buf_done(&d.client.wire);
	buf_done(&d.server.wire);
}

static void any_chunking_and_window(void **state)
{
	both_roles(1, 1, 4096, 60);
	both_roles(2, 1, 1, 20);
	both_roles(3, 7, 20, 300);
	both_roles(4, 100, 4096, 5000);
	both_roles(5, 65535, 4096, 200000);
	both_roles(6, 65535, 1, 2000);
	both_roles(7, 1 << 20, 4096, 300000);
	for (uint64_t seed = 10; seed < 30; seed++)
		both_roles(seed, (uint32_t)seed * 50, 1500, 4000);
}

/* ---- a server against bare frames ---- */

struct rig {
	struct h2 *h;
	struct raw raw;
	struct buf got; /* what the server sent */
	int64_t now;
};

static void rig_init(struct rig *r, const struct h2_limits *l)
{
	assert_int_equal(h2_new(H2_SERVER, l, &r->h), 0);
	raw_init(&r->raw, true);
	buf_init(&r->got, NO_MAX);
	r->now = NS_PER_S;
}

static void rig_done(struct rig *r)
{
	h2_free(r->h);
	raw_done(&r->raw);
	buf_done(&r->got);
}

/* Gives what the client wrote, takes what the server answers. */
static int swap(struct rig *r)
{
	int rc = 0;
	if (buf_len(&r->raw.out))
		rc = h2_recv(r->h, buf_head(&r->raw.out), buf_len(&r->raw.out), r->now);
	buf_clear(&r->raw.out);
	assert_int_equal(h2_pull(r->h, &r->got, NO_MAX, r->now), 0);
	return rc;
}

static struct h2_stream *want_news(struct rig *r, unsigned expected)
{
	unsigned flags = 0;
	struct h2_stream *s = h2_next(r->h, &flags);
	assert_non_null(s);
	assert_int_equal(flags, expected);
	return s;
}

static void want_frame(struct rig *r, struct raw_seen *f, uint8_t type, int32_t id)
{
	while (raw_next(&r->got, f))
		if (f->type == type && f->id == id)
			return;
	fail_msg("no frame of type %d on stream %d", type, id);
}

/* The last frame is GOAWAY with this code. */
static void want_goaway(struct rig *r, uint32_t code, const char *text)
{
	struct raw_seen f = { 0 };
	want_frame(r, &f, NGHTTP2_GOAWAY, 0);
	assert_int_equal(raw_u32(f.payload + 4), code);
	if (text)
		assert_non_null(memmem(f.payload + 8, f.len - 8, text, strlen(text)));
	assert_true(h2_dead(r->h));
	assert_string_not_equal(h2_error(r->h), "");
	assert_int_equal(h2_recv(r->h, (const uint8_t *)"x", 1, r->now), -EPROTO);
	unsigned flags;
	for (struct h2_stream *s; (s = h2_next(r->h, &flags));) {
		assert_true(flags & H2_NEWS_CLOSED);
		h2_release(s);
	}
	assert_int_equal(h2_open_streams(r->h), 0);
}

static void early_answer_is_trailers_then_reset(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	raw_data(&r.raw, 1, 0, 100);
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_DATA);
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
	write_bytes(s, "abc", 3);
	h2_discard(s);
	h2_finish(s, TRAILERS, ARRAY_LEN(TRAILERS));
	raw_data(&r.raw, 1, 0, 1000); /* still on its way */
	assert_int_equal(swap(&r), 0);
	struct raw_seen f = { 0 };
	want_frame(&r, &f, NGHTTP2_HEADERS, 1);
	assert_false(f.flags & NGHTTP2_FLAG_END_STREAM);
	assert_true(raw_next(&r.got, &f));
	assert_int_equal(f.type, NGHTTP2_DATA);
	assert_int_equal(f.len, 3);
	assert_true(raw_next(&r.got, &f));
	assert_int_equal(f.type, NGHTTP2_HEADERS);
	assert_true(f.flags & NGHTTP2_FLAG_END_STREAM);
	assert_true(raw_next(&r.got, &f));
	assert_int_equal(f.type, NGHTTP2_RST_STREAM);
	assert_int_equal(raw_u32(f.payload), H2_NO_ERROR);
	h2_release(want_news(&r, H2_NEWS_CLOSED));
	rig_done(&r);
}

static void whole_request_gets_no_reset(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, "/p");
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END);
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), true);
	assert_int_equal(swap(&r), 0);
	h2_release(want_news(&r, H2_NEWS_CLOSED));
	struct raw_seen f = { 0 };
	while (raw_next(&r.got, &f))
		assert_int_not_equal(f.type, NGHTTP2_RST_STREAM);
	rig_done(&r);
}

static void request_and_reset_in_one_batch(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	raw_data(&r.raw, 1, 0, 10);
	raw_rst(&r.raw, 1, H2_CANCEL);
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_DATA | H2_NEWS_CLOSED);
	assert_int_equal(h2_close_code(s), H2_CANCEL);
	h2_release(s);
	assert_int_equal(h2_in_total(r.h), 0);
	rig_done(&r);
}

static void window_is_not_leaked(void **state)
{
	struct rig r;
	struct h2_limits l = LIMITS;
	l.conn_window = 65535 + 1;
	rig_init(&r, &l);
	int64_t credit = 65535;
	for (int32_t id = 1; id < 4001; id += 2) {
		raw_request(&r.raw, id, 0, "/p");
		raw_data(&r.raw, id, 0, 1000);
		credit -= 1000;
		raw_rst(&r.raw, id, H2_CANCEL);
		if (id % 8 == 1)
			r.now += 100 * NS_PER_MS;
		assert_int_equal(swap(&r), 0);
		h2_release(want_news(&r, H2_NEWS_HEADERS | H2_NEWS_DATA | H2_NEWS_CLOSED));
	}
	struct raw_seen f = { 0 };
	while (raw_next(&r.got, &f))
		if (f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0)
			credit += raw_u32(f.payload);
	/* At most half of the window is on its way back. */
	assert_true(credit > 65535 / 2);
	rig_done(&r);
}

static void refused_streams_leak_no_window(void **state)
{
	struct rig r;
	struct h2_limits l = LIMITS;
	l.max_streams = 1;
	l.conn_window = 65535;
	rig_init(&r, &l);
	raw_request(&r.raw, 1, 0, "/p");
	int64_t credit = 65535;
	for (int32_t id = 3; id < 203; id += 2) {
		raw_request(&r.raw, id, 0, "/p");
		raw_data(&r.raw, id, 0, 5000);
		credit -= 5000;
		assert_int_equal(swap(&r), 0);
	}
	struct raw_seen f = { 0 };
	while (raw_next(&r.got, &f))
		if (f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0)
			credit += raw_u32(f.payload);
	assert_true(credit > 65535 / 2);
	rig_done(&r);
}

static void budget_holds_credit_back(void **state)
{
	struct rig r;
	struct h2_limits l = LIMITS;
	l.in_budget = 20000;
	l.conn_window = 65535;
	rig_init(&r, &l);
	raw_request(&r.raw, 1, 0, "/p");
	for (int i = 0; i < 4; i++)
		raw_data(&r.raw, 1, 0, 16000);
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_DATA);
	struct raw_seen f = { 0 };
	while (raw_next(&r.got, &f))
		assert_false(f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0);
	h2_drop(s, 50000);
	assert_int_equal(swap(&r), 0);
	f.at = 0;
	want_frame(&r, &f, NGHTTP2_WINDOW_UPDATE, 0);
	assert_int_equal(raw_u32(f.payload), 64000);
	rig_done(&r);
}

static void large_headers_are_marked(void **state)
{
	struct rig r;
	static char big[5001];
	memset(big, 'a', sizeof(big) - 1); /* five bits each on the wire */
	rig_init(&r, &LIMITS);
	raw_headers(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, ":method", "POST", ":scheme", "http", ":path", "/p", ":authority", "a", "a",
		    big, "a", big, "a", big, "b", big, NULL);
	/* One entry of the table over and over: 4,000 bytes a byte. */
	uint8_t block[3000];
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END);
	assert_true(h2_oversized(s));
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), true);
	assert_int_equal(swap(&r), 0);
	h2_release(want_news(&r, H2_NEWS_CLOSED));
	static char entry[3001];
	memset(entry, 'e', sizeof(entry) - 1);
	raw_headers(&r.raw, 3, 0, ":method", "POST", ":scheme", "http", ":path", "/p", ":authority", "a", "e", entry, NULL);
	memset(block, 0x80 | 62, sizeof(block));
	raw_frame(&r.raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 3, block, sizeof(block));
	assert_int_equal(swap(&r), 0);
	s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_CLOSED);
	assert_int_equal(h2_close_code(s), H2_INTERNAL_ERROR);
	h2_release(s);
	/* The connection lives, and its compression state is in step. */
	raw_request(&r.raw, 5, NGHTTP2_FLAG_END_STREAM, "/q");
	assert_int_equal(swap(&r), 0);
	s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END);
	assert_string_equal(h2_header(s, ":path"), "/q");
	rig_done(&r);
}

static void field_count_is_limited(void **state)
{
	struct rig r;
	struct h2_limits l = LIMITS;
	l.max_header_fields = 6;
	rig_init(&r, &l);
	raw_request(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, "/six");
	raw_headers(&r.raw, 3, NGHTTP2_FLAG_END_STREAM, ":method", "POST", ":scheme", "http", ":path", "/p", ":authority", "a", "x",
		    "1", "x", "2", "x", "3", NULL);
	assert_int_equal(swap(&r), 0);
	assert_false(h2_oversized(want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END)));
	assert_true(h2_oversized(want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END)));
	rig_done(&r);
}

static void a_header_given_twice_is_none(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_headers(&r.raw, 1, 0, ":method", "POST", ":scheme", "http", ":path", "/p", ":authority", "a", "authorization", "x",
		    "authorization", "y", "one", "", NULL);
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS);
	assert_null(h2_header(s, "authorization"));
	assert_string_equal(h2_header(s, "one"), "");
	rig_done(&r);
}

static void streams_not_released_count(void **state)
{
	struct rig r;
	struct h2_limits l = LIMITS;
	l.max_streams = 2;
	rig_init(&r, &l);
	raw_request(&r.raw, 1, 0, "/p");
	raw_request(&r.raw, 3, 0, "/p");
	raw_rst(&r.raw, 1, H2_CANCEL);
	raw_request(&r.raw, 5, 0, "/p");
	assert_int_equal(swap(&r), 0);
	struct raw_seen f = { 0 };
	want_frame(&r, &f, NGHTTP2_RST_STREAM, 5);
	assert_int_equal(raw_u32(f.payload), H2_REFUSED_STREAM);
	h2_release(want_news(&r, H2_NEWS_HEADERS | H2_NEWS_CLOSED));
	raw_request(&r.raw, 7, 0, "/p");
	assert_int_equal(swap(&r), 0);
	want_news(&r, H2_NEWS_HEADERS);
	assert_int_equal(h2_id(want_news(&r, H2_NEWS_HEADERS)), 7);
	rig_done(&r);
}

static void drain_has_two_steps(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, "/p");
	assert_int_equal(swap(&r), 0);
	struct h2_stream *one = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END);
	h2_drain(r.h, NULL);
	h2_drain(r.h, NULL);
	assert_int_equal(swap(&r), 0);
	struct raw_seen f = { 0 }, ping = { 0 };
	want_frame(&r, &f, NGHTTP2_GOAWAY, 0);
	assert_int_equal(raw_u32(f.payload), 0x7fffffff);
	want_frame(&r, &ping, NGHTTP2_PING, 0);
	/* Sent before the client saw the notice: served. */
	raw_request(&r.raw, 3, NGHTTP2_FLAG_END_STREAM, "/p");
	raw_frame(&r.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, ping.payload, 8);
	raw_request(&r.raw, 5, NGHTTP2_FLAG_END_STREAM, "/p");
	assert_int_equal(swap(&r), 0);
	want_frame(&r, &f, NGHTTP2_GOAWAY, 0);
	int32_t last = (int32_t)raw_u32(f.payload);
	assert_true(last == 3 || last == 5);
	assert_int_equal(raw_u32(f.payload + 4), H2_NO_ERROR);
	raw_request(&r.raw, 7, NGHTTP2_FLAG_END_STREAM, "/p");
	assert_int_equal(swap(&r), 0);
	unsigned flags;
	struct h2_stream *s;
	assert_false(h2_dead(r.h));
	h2_respond(one, RESPONSE, ARRAY_LEN(RESPONSE), true);
	while ((s = h2_next(r.h, &flags))) {
		assert_true(h2_id(s) <= last); /* never above the id it named */
		h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), true);
	}
	assert_int_equal(swap(&r), 0);
	while ((s = h2_next(r.h, &flags)))
		h2_release(s);
	assert_int_equal(h2_open_streams(r.h), 0);
	assert_true(h2_dead(r.h));
	assert_string_equal(h2_error(r.h), "");
	rig_done(&r);
}

static void ping_is_answered(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	h2_ping(r.h);
	assert_int_equal(swap(&r), 0);
	assert_true(h2_ping_waiting(r.h));
	struct raw_seen f = { 0 };
	want_frame(&r, &f, NGHTTP2_PING, 0);
	raw_frame(&r.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "other...", 8);
	assert_int_equal(swap(&r), 0);
	assert_true(h2_ping_waiting(r.h));
	f.at = 0;
	want_frame(&r, &f, NGHTTP2_PING, 0);
	raw_frame(&r.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, f.payload, 8);
	assert_int_equal(swap(&r), 0);
	assert_false(h2_ping_waiting(r.h));
	rig_done(&r);
}

static void odd_settings_and_frames_are_served(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_setting(&r.raw, 1, 0);       /* HEADER_TABLE_SIZE */
	raw_setting(&r.raw, 4, 1);       /* INITIAL_WINDOW_SIZE */
	raw_setting(&r.raw, 0xfe03, 99); /* unknown */
	raw_setting(&r.raw, 5, 16777215);
	raw_frame(&r.raw, NGHTTP2_PRIORITY, 0, 3, "\0\0\0\0\7", 5);
	raw_frame(&r.raw, 0xee, 0xff, 9, "what?", 5);
	raw_request(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, "/p");
	assert_int_equal(swap(&r), 0);
	assert_true(h2_ready(r.h));
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS | H2_NEWS_END);
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
	write_bytes(s, "abcd", 4);
	h2_notify_drained(s, 2);
	h2_finish(s, TRAILERS, ARRAY_LEN(TRAILERS));
	size_t data = 0;
	for (int i = 0; i < 4; i++) {
		buf_clear(&r.got);
		assert_int_equal(swap(&r), 0);
		struct raw_seen f = { 0 };
		while (raw_next(&r.got, &f))
			data += f.type == NGHTTP2_DATA ? f.len : 0;
		assert_int_equal(data, i + 1);
		unsigned flags;
		assert_true(i == 1 ? h2_next(r.h, &flags) == s && flags == H2_NEWS_DRAINED : i == 3 || !h2_next(r.h, &flags));
		raw_window_update(&r.raw, 1, 1);
	}
	struct raw_seen f = { 0 };
	want_frame(&r, &f, NGHTTP2_HEADERS, 1);
	h2_release(want_news(&r, H2_NEWS_CLOSED));
	rig_done(&r);
}

static void reset_throws_the_queue_away(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS);
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
	write_bytes(s, "abcd", 4);
	assert_int_equal(h2_out_total(r.h), 4);
	h2_reset(s, H2_CANCEL);
	assert_int_equal(h2_out_total(r.h), 0);
	assert_null(h2_write_reserve(s, 1));
	assert_int_equal(swap(&r), 0);
	struct raw_seen f = { 0 };
	want_frame(&r, &f, NGHTTP2_RST_STREAM, 1);
	assert_int_equal(raw_u32(f.payload), H2_CANCEL);
	h2_release(want_news(&r, H2_NEWS_CLOSED));
	rig_done(&r);
}

/* ---- abuse ---- */

static void control_flood(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	for (int i = 0; i < 499; i++)
		raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
	assert_int_equal(swap(&r), 0);
	assert_false(h2_dead(r.h));
	r.now += 11 * NS_PER_S; /* a new window */
	for (int i = 0; i < 499; i++)
		raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
	assert_int_equal(swap(&r), 0);
	assert_false(h2_dead(r.h));
	/* Acknowledgements are none of it. */
	for (int i = 0; i < 1000; i++)
		raw_frame(&r.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "12345678", 8);
	assert_int_equal(swap(&r), 0);
	for (int i = 0; i < 3; i++)
		raw_setting(&r.raw, 4, 1000);
	assert_int_equal(swap(&r), -EPROTO);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, "control frames");
	rig_done(&r);
}

/* gRPC's rule against pings: the third in a row that comes too early. */
static void pings_have_a_pace(void **state)
{
	struct h2_limits l = LIMITS;
	struct rig r;
	l.ping_min_ns = 10 * NS_PER_S;
	rig_init(&r, &l);
	/* Stock clients with 10 s, give or take: for hours, with and without streams. */
	for (int i = 0; i < 1000; i++) {
		r.now += i % 2 ? 9900 * NS_PER_MS : 10100 * NS_PER_MS;
		raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
		raw_frame(&r.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "87654321", 8);
		assert_int_equal(swap(&r), 0);
	}
	/* Two too early, one in time, two too early … */
	for (int i = 0; i < 30; i++) {
		r.now += i % 3 ? NS_PER_MS : 9 * NS_PER_S;
		raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
		assert_int_equal(swap(&r), 0);
	}
	/* What we send begins it anew: so many pings of a client that measures its path are none of it. */
	raw_request(&r.raw, 1, 0, "/p");
	assert_int_equal(swap(&r), 0);
	struct h2_stream *s = want_news(&r, H2_NEWS_HEADERS);
	h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
	for (int i = 0; i < 20; i++) {
		uint8_t *at = h2_write_reserve(s, 1);
		assert_non_null(at);
		*at = 0;
		h2_write_commit(s, 1);
		assert_int_equal(swap(&r), 0);
		for (int n = 0; n < 3; n++)
			raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
		assert_int_equal(swap(&r), 0);
	}
	raw_frame(&r.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
	assert_int_equal(swap(&r), -EPROTO);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, "too_many_pings");
	rig_done(&r);
}

static void empty_data_flood(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	for (int i = 0; i < 10; i++)
		raw_data(&r.raw, 1, 0, 0);
	raw_data(&r.raw, 1, 0, 1);
	for (int i = 0; i < 10; i++)
		raw_frame(&r.raw, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, "\3\0\0\0", 4);
	assert_int_equal(swap(&r), 0);
	raw_data(&r.raw, 1, 0, 0);
	assert_int_equal(swap(&r), -EPROTO);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, "empty DATA");
	rig_done(&r);
}

static void rapid_reset(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	int rc = 0;
	int n;
	for (n = 0; n < 2000 && rc == 0; n++) {
		int32_t id = 2 * n + 1;
		unsigned flags;
		raw_request(&r.raw, id, NGHTTP2_FLAG_END_STREAM, "/p");
		rc = swap(&r);
		if (rc)
			break;
		struct h2_stream *s = h2_next(r.h, &flags);
		h2_mark_started(s);
		/* Two of three are reset at once, the third is answered first. */
		if (n % 3 == 0)
			h2_respond(s, RESPONSE, ARRAY_LEN(RESPONSE), false);
		assert_int_equal(swap(&r), 0);
		raw_rst(&r.raw, id, H2_CANCEL);
		r.now += NS_PER_MS;
		rc = swap(&r);
		if (rc == 0)
			h2_release(want_news(&r, H2_NEWS_CLOSED));
	}
	assert_true(n > 700 && n < 800);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, "before they were answered");
	rig_done(&r);
}

static void faulty_streams(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	int n = 0;
	for (; n < 200 && !h2_dead(r.h); n++) {
		int32_t id = 2 * n + 1;
		raw_request(&r.raw, id, NGHTTP2_FLAG_END_STREAM, "/p");
		raw_window_update(&r.raw, id, 0x7fffffff); /* overflows: the server must reset */
		(void)swap(&r);
	}
	assert_int_equal(n, 101);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, "faulty streams");
	rig_done(&r);
}

static void the_library_s_verdict(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	raw_data(&r.raw, 0, 0, 5); /* DATA on stream 0 */
	(void)swap(&r);
	want_goaway(&r, H2_PROTOCOL_ERROR, NULL);
	rig_done(&r);

	rig_init(&r, &LIMITS);
	uint8_t many[33 * 6];
	for (int i = 0; i < 33; i++)
		memcpy(many + 6 * i, "\0\4\0\0\0\1", 6);
	raw_frame(&r.raw, NGHTTP2_SETTINGS, 0, 0, many, sizeof(many));
	(void)swap(&r);
	want_goaway(&r, H2_ENHANCE_YOUR_CALM, NULL);
	rig_done(&r);

	rig_init(&r, &LIMITS);
	raw_frame(&r.raw, NGHTTP2_HEADERS, 0, 1, "\x82", 1);
	for (int i = 0; i < 20; i++)
		raw_frame(&r.raw, NGHTTP2_CONTINUATION, 0, 1, "", 0);
	(void)swap(&r);
	assert_true(h2_dead(r.h));
	rig_done(&r);
}

static void not_http2(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	buf_clear(&r.raw.out);
	assert_int_equal(buf_add(&r.raw.out, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27), 0);
	assert_int_equal(swap(&r), -EPROTO);
	assert_true(h2_dead(r.h));
	rig_done(&r);
}

static void abort_closes_every_stream(void **state)
{
	struct rig r;
	rig_init(&r, &LIMITS);
	raw_request(&r.raw, 1, 0, "/p");
	raw_request(&r.raw, 3, 0, "/p");
	assert_int_equal(swap(&r), 0);
	want_news(&r, H2_NEWS_HEADERS);
	h2_abort(r.h);
	assert_int_equal(h2_id(want_news(&r, H2_NEWS_HEADERS | H2_NEWS_CLOSED)), 3);
	assert_int_equal(h2_id(want_news(&r, H2_NEWS_CLOSED)), 1);
	buf_clear(&r.got);
	assert_int_equal(swap(&r), 0);
	assert_int_equal(buf_len(&r.got), 0);
	rig_done(&r); /* neither was released */
}

/* ---- a client against bare frames ---- */

static void client_init(struct rig *r)
{
	assert_int_equal(h2_new(H2_CLIENT, &LIMITS, &r->h), 0);
	raw_init(&r->raw, false);
	buf_init(&r->got, NO_MAX);
	r->now = NS_PER_S;
	raw_setting(&r->raw, 3, 1); /* one stream at a time */
}

static void client_and_goaway(void **state)
{
	struct rig r;
	struct h2_stream *a, *b, *c;
	client_init(&r);
	assert_int_equal(swap(&r), 0);
	assert_int_equal(h2_begin(r.h, REQUEST, ARRAY_LEN(REQUEST), true, NULL, &a), 0);
	assert_int_equal(h2_begin(r.h, REQUEST, ARRAY_LEN(REQUEST), true, NULL, &b), 0);
	assert_int_equal(swap(&r), 0);
	raw_headers(&r.raw, 1, 0, ":status", "103", "link", "x", NULL);
	raw_headers(&r.raw, 1, 0, ":status", "200", NULL);
	raw_frame(&r.raw, NGHTTP2_GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0", 8);
	assert_int_equal(swap(&r), 0);
	assert_true(h2_goaway_received(r.h));
	unsigned flags;
	struct h2_stream *s;
	bool b_closed = false;
	while ((s = h2_next(r.h, &flags))) {
		if (s == a) {
			assert_int_equal(flags, H2_NEWS_HEADERS);
			assert_string_equal(h2_header(a, ":status"), "200");
			assert_null(h2_header(a, "link"));
		} else {
			assert_ptr_equal(s, b);
			assert_true(flags & H2_NEWS_CLOSED);
			assert_true(h2_unprocessed(b));
			b_closed = true;
			h2_release(b);
		}
	}
	assert_true(b_closed);
	assert_int_equal(h2_begin(r.h, REQUEST, ARRAY_LEN(REQUEST), true, NULL, &c), -ENOTCONN);
	raw_headers(&r.raw, 1, NGHTTP2_FLAG_END_STREAM, "grpc-status", "0", NULL);
	assert_int_equal(swap(&r), 0);
	s = want_news(&r, H2_NEWS_END | H2_NEWS_CLOSED);
	assert_string_equal(h2_trailer(s, "grpc-status"), "0");
	assert_false(h2_unprocessed(s));
	h2_release(s);
	assert_true(h2_dead(r.h));
	rig_done(&r);
}

static void client_limits_its_streams(void **state)
{
	struct rig r;
	struct h2_stream *s;
	client_init(&r);
	for (uint32_t i = 0; i < LIMITS.max_streams; i++)
		assert_int_equal(h2_begin(r.h, REQUEST, ARRAY_LEN(REQUEST), true, NULL, &s), 0);
	assert_int_equal(h2_begin(r.h, REQUEST, ARRAY_LEN(REQUEST), true, NULL, &s), -EAGAIN);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_chunking_and_window), cmocka_unit_test(early_answer_is_trailers_then_reset),
		cmocka_unit_test(whole_request_gets_no_reset), cmocka_unit_test(request_and_reset_in_one_batch),
		cmocka_unit_test(window_is_not_leaked), cmocka_unit_test(refused_streams_leak_no_window),
		cmocka_unit_test(budget_holds_credit_back), cmocka_unit_test(large_headers_are_marked),
		cmocka_unit_test(field_count_is_limited), cmocka_unit_test(a_header_given_twice_is_none),
		cmocka_unit_test(streams_not_released_count), cmocka_unit_test(drain_has_two_steps),
		cmocka_unit_test(ping_is_answered), cmocka_unit_test(odd_settings_and_frames_are_served),
		cmocka_unit_test(reset_throws_the_queue_away), cmocka_unit_test(control_flood),
		cmocka_unit_test(pings_have_a_pace), cmocka_unit_test(empty_data_flood), cmocka_unit_test(rapid_reset),
		cmocka_unit_test(faulty_streams), cmocka_unit_test(the_library_s_verdict), cmocka_unit_test(not_http2),
		cmocka_unit_test(abort_closes_every_stream), cmocka_unit_test(client_and_goaway),
		cmocka_unit_test(client_limits_its_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
