/* The gRPC server's frames as docs/protocol.md wants them, row by row where no client shows it. */
#include "tests/unit/grpc_peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/grpc/conn.h"
#include "common/h2/h2.h"

#define EMPTY "\0\0\0\0\0"

static void request_for(struct peer *p, int32_t id, const char *path)
{
	raw_request(&p->raw, id, 0, path);
	talk(p);
}

/* 1.1 */
static void a_good_call_is_headers_data_and_trailers(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, UNARY);
	send_bytes(&p, 1, true, "\0\0\0\0\2ab", 7);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.http, "200");
	assert_string_equal(a.type, "application/grpc");
	assert_string_equal(a.status, "0");
	assert_string_equal(a.message, "");
	assert_string_equal(a.odd, ""); /* no content-length, no connection */
	assert_string_equal(a.server, "reins/" REINS_VERSION);
	assert_int_equal(a.blocks, 2);
	assert_false(a.status_first);
	assert_true(a.ended && !a.reset && a.data == 7);
	peer_done(&p);
}

/* 1.2: a unary call's headers wait for its first message, so that an error is one block and a client may retry. */
static void headers_wait_for_the_first_message(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	p.rig.hold = true;
	raw_request(&p.raw, 1, 0, UNARY);
	send_bytes(&p, 1, true, EMPTY, 5);
	talk(&p);
	assert_int_equal(p.rig.requests, 1);
	assert_int_equal(answer(&p, 1).blocks, 0);
	struct refusal r;
	(void)refuse(&r, STATUS_ABORTED, NULL, "no");
	grpc_call_finish(p.rig.held, &r);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.status, "10");
	assert_true(a.blocks == 1 && a.status_first && a.ended && a.data == 0);
	peer_done(&p);
}

/* 1.3: that is for the library to refuse, and the connection goes on. */
static void requests_without_their_pseudo_headers(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_headers(&p.raw, 1, 0, ":method", "POST", ":scheme", "http", ":authority", "a", "content-type", "application/grpc", NULL);
	raw_headers(&p.raw, 3, 0, ":method", "POST", ":path", UNARY, ":authority", "a", "content-type", "application/grpc", NULL);
	raw_headers(&p.raw, 5, 0, ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type", "application/grpc", NULL);
	raw_headers(&p.raw, 7, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "connection", "close",
		    "content-type", "application/grpc", NULL);
	raw_request(&p.raw, 9, 0, "test");
	raw_request(&p.raw, 11, 0, UNARY);
	send_bytes(&p, 11, true, EMPTY, 5);
	talk(&p);
	for (int32_t id = 1; id < 11; id += 2) {
		struct answer a = answer(&p, id);
		assert_true(a.reset && a.reset_code == 1 && a.blocks == 0);
	}
	assert_string_equal(answer(&p, 11).status, "0");
	peer_done(&p);
}

/* 1.4: who leaves te out is served; another value is none of gRPC's. */
static void te(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_headers(&p.raw, 1, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", NULL);
	send_bytes(&p, 1, true, EMPTY, 5);
	raw_headers(&p.raw, 3, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "te", "gzip",
		    "content-type", "application/grpc", NULL);
	talk(&p);
	assert_string_equal(answer(&p, 1).status, "0");
	assert_true(answer(&p, 3).reset);
	assert_int_equal(p.rig.requests, 1);
	peer_done(&p);
}

/* 1.6, 1.7: from the headers, while the body is still to come; trailers, then RST_STREAM(NO_ERROR). What comes on that
 * stream afterwards is credited, or the connection's window would be used up. */
static void unknown_paths_are_answered_from_the_headers(void **state)
{
	static const char *const paths[] = { "/test.Echo/None", "/test.echo/Unary", "/test.Echo/unary", "/test.Echo/Unary/",
					     "/test.Echo/Unary?a=b", "/test.Echo", "/", "//", "/test.Echo/Unary/x" };
	struct peer p;
	peer_init(&p, NULL, true);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		int32_t id = (int32_t)(2 * i + 1);
		request_for(&p, id, paths[i]);
		struct answer a = answer(&p, id);
		assert_string_equal(a.http, "200");
		assert_string_equal(a.status, "12");
		assert_true(a.blocks == 1 && a.status_first && a.ended && a.reset && a.reset_code == 0);
		for (int n = 0; n < 40; n++) {
			raw_data(&p.raw, id, 0, 16384);
			talk(&p);
		}
	}
	/* 6.4 MiB went nowhere; the window of 1 MiB is there. */
	int32_t credited = 0;
	struct raw_seen f = { 0 };
	while (raw_next(&p.got, &f))
		if (f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0)
			credited += (int32_t)raw_u32(f.payload);
	assert_true(credited >= 5 * 1024 * 1024);
	raw_request(&p.raw, 101, 0, UNARY);
	send_bytes(&p, 101, true, EMPTY, 5);
	talk(&p);
	assert_string_equal(answer(&p, 101).status, "0");
	peer_done(&p);
}

/* 1.8, 1.20, 1.30: the largest refusal there can be, on the wire. */
static void the_largest_trailers(void **state)
{
	struct peer p;
	struct refusal r;
	peer_init(&p, NULL, true);
	p.rig.hold = true;
	raw_request(&p.raw, 1, 0, UNARY);
	send_bytes(&p, 1, true, EMPTY, 5);
	talk(&p);
	char text[512] = "";
	memcpy(text, "\r\n%", 3);
	for (int i = 0; i < 254; i++)
		memcpy(text + 3 + 2 * i, "\u00e4", 2);
	(void)refuse(&r, STATUS_NOT_FOUND, "field", "%s", text);
	memset(r.field, 'f', sizeof(r.field) - 1);
	r.field[sizeof(r.field) - 1] = '\0';
	(void)refuse_resource(&r, "task", text);
	for (int i = 0; i < REFUSAL_MORE_MAX; i++)
		(void)refuse_more(&r, "aKeyOfThatLength", "%s", text);
	r.retry_after_ms = 123456;
	grpc_call_finish(p.rig.held, &r);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.status, "5");
	assert_string_equal(a.pushback, "123456");
	assert_true(a.list < 8192);
	assert_true(strlen(a.message) > 900 && strlen(a.message) <= 1024);
	assert_memory_equal(a.message, "%0D%0A%25", 9);
	assert_int_equal((strlen(a.message) - 9) % 6, 0); /* no half of an %C3%A4 */
	assert_true(strlen(a.details) > 2000 && strlen(a.details) < 4096);
	assert_null(strchr(a.details, '=')); /* unpadded */
	peer_done(&p);
}

/* 1.20, 1.26: what clients are told of the limits at once. */
static void settings(void **state)
{
	struct peer p;
	struct raw_seen f = { 0 };
	uint32_t told[8] = { 0 };
	peer_init(&p, NULL, true);
	talk(&p);
	assert_true(raw_next(&p.got, &f));
	assert_int_equal(f.type, NGHTTP2_SETTINGS); /* the first frame */
	for (size_t i = 0; i + 6 <= f.len; i += 6) {
		unsigned id = (unsigned)f.payload[i] << 8 | f.payload[i + 1];
		if (id < 8)
			told[id] = raw_u32(f.payload + i + 2);
	}
	assert_int_equal(told[NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS], 1000);
	assert_int_equal(told[NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE], 16 * 1024);
	assert_int_equal(told[NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE], 256 * 1024);
	peer_done(&p);
}

/* 1.20: large, too many: answered, and the connection goes on. */
static void headers_over_the_limit(void **state)
{
	struct peer p;
	static char large[17000];
	memset(large, 'x', sizeof(large) - 1);
	peer_init(&p, NULL, true);
	raw_headers(&p.raw, 1, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", "x-large", large, NULL);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.status, "8");
	assert_true(a.ended && a.blocks == 1);
	raw_request(&p.raw, 3, 0, UNARY);
	send_bytes(&p, 3, true, EMPTY, 5);
	talk(&p);
	assert_string_equal(answer(&p, 3).status, "0");
	peer_done(&p);
}

/* 1.20: a field counts 32 bytes more than it has (RFC 9113, 6.5.2), as the peer counts that was told the limit. */
static void short_headers_count_too(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.max_header_list = 5 * 32 + strlen(":methodPOST:schemehttp:path" UNARY ":authorityacontent-typeapplication/grpc") + 20 * 34;
	peer_init(&p, &l, true);
	for (int32_t more = 0; more < 2; more++) {
		raw_headers(&p.raw, 1 + 2 * more, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
			    "application/grpc", "a", "1", "a", "2", "a", "3", "a", "4", "a", "5", "a", "6", "a", "7", "a", "8", "a", "9", "b", "1",
			    "b", "2", "b", "3", "b", "4", "b", "5", "b", "6", "b", "7", "b", "8", "b", "9", "c", "1", "c", "2", more ? "c" : NULL, "3",
			    NULL);
		send_bytes(&p, 1 + 2 * more, true, EMPTY, 5);
		talk(&p);
		assert_string_equal(answer(&p, 1 + 2 * more).status, more ? "8" : "0");
	}
	peer_done(&p);
}

/* Section 7, 14: the library counts the body against content-length; no handler runs before the end. */
static void content_length_is_believed_in_no_case(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	for (int32_t id = 1; id < 5; id += 2)
		raw_headers(&p.raw, id, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
			    "application/grpc", "content-length", id == 1 ? "6" : "4", NULL);
	send_bytes(&p, 1, true, EMPTY, 5);
	send_bytes(&p, 3, true, EMPTY, 5);
	talk(&p);
	assert_true(answer(&p, 1).reset && answer(&p, 3).reset);
	assert_int_equal(p.rig.requests, 0);
	peer_done(&p);
}

/* 1.22: half of the streams are paused with full windows; the others upload. */
static void stalled_streams_do_not_starve_others(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	p.rig.hold_bidi = true;
	int64_t window = 65535, sent = 0;
	for (int32_t id = 1; id <= 15; id += 2) {
		raw_request(&p.raw, id, 0, BIDI);
		talk(&p);
		grpc_call_pause(p.rig.bidi, true);
		for (int n = 0; n < 16; n++) {
			raw_data(&p.raw, id, 0, 16384);
			sent += 16384;
			talk(&p);
		}
	}
	raw_request(&p.raw, 17, 0, UNARY);
	send_bytes(&p, 17, false, "\0\0\x20\0\0", 5); /* 2 MiB */
	for (int n = 0; n < 128; n++) {
		raw_data(&p.raw, 17, n == 127 ? NGHTTP2_FLAG_END_STREAM : 0, 16384);
		sent += 16384;
		talk(&p);
		/* No more than a client may send: the connection's window. */
		struct raw_seen f = { 0 };
		int64_t credit = 0;
		while (raw_next(&p.got, &f))
			if (f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0)
				credit += raw_u32(f.payload);
		assert_true(sent + 5 <= window + credit);
	}
	raw_window_update(&p.raw, 0, 4 << 20);
	raw_window_update(&p.raw, 17, 4 << 20);
	talk(&p);
	until(&p.rig, (talk(&p), answer(&p, 17).ended));
	assert_string_equal(answer(&p, 17).status, "0");
	assert_int_equal(p.rig.messages, 0);
	peer_done(&p);
}

/* ---- 1.28, 1.29 ---- */

static bool goaway(struct peer *p, uint32_t *ret_last, uint32_t *ret_code, char *ret_text, size_t cap)
{
	struct raw_seen f = { 0 };
	bool found = false;
	while (raw_next(&p->got, &f)) {
		if (f.type != NGHTTP2_GOAWAY)
			continue;
		found = true;
		*ret_last = raw_u32(f.payload);
		*ret_code = raw_u32(f.payload + 4);
		snprintf(ret_text, cap, "%.*s", (int)(f.len - 8), (const char *)f.payload + 8);
	}
	return found;
}

static void too_many_pings(void **state)
{
	struct peer p;
	uint32_t last = 0, code = 0;
	char text[64] = "";
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, BIDI);
	send_bytes(&p, 1, false, "\0\0\0\0\1a", 6);
	talk(&p);
	for (int i = 0; i < 3; i++) {
		raw_frame(&p.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
		talk(&p);
		assert_false(goaway(&p, &last, &code, text, sizeof(text)));
	}
	raw_frame(&p.raw, NGHTTP2_PING, 0, 0, "12345678", 8);
	talk(&p);
	assert_true(goaway(&p, &last, &code, text, sizeof(text)));
	assert_int_equal(code, 11);
	assert_string_equal(text, "too_many_pings");
	until(&p.rig, p.ended);
	assert_int_equal(p.rig.ended, 1);
	peer_done(&p);
}

static void an_old_connection_is_drained(void **state)
{
	struct grpc_limits l;
	struct peer p;
	uint32_t last = 0, code = 0;
	char text[64] = "";
	grpc_limits_default(&l);
	l.max_age_ns = 50 * NS_PER_MS;
	l.max_age_grace_ns = 60 * NS_PER_S;
	peer_init(&p, &l, true);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	until(&p.rig, (talk(&p), goaway(&p, &last, &code, text, sizeof(text))));
	assert_true(last == 0x7fffffff && code == 0);
	/* Sent meanwhile: served. The PING's answer brings the second. */
	raw_request(&p.raw, 3, 0, UNARY);
	send_bytes(&p, 3, true, EMPTY, 5);
	struct raw_seen f = { 0 };
	while (raw_next(&p.got, &f) && !(f.type == NGHTTP2_PING && !(f.flags & NGHTTP2_FLAG_ACK)))
		;
	assert_int_equal(f.type, NGHTTP2_PING);
	raw_frame(&p.raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, f.payload, 8);
	talk(&p);
	assert_true(goaway(&p, &last, &code, text, sizeof(text)));
	assert_true(last == 3 && code == 0);
	assert_string_equal(text, "max_age");
	assert_string_equal(answer(&p, 3).status, "0");
	/* The open call goes on until its own end. */
	send_bytes(&p, 1, false, "\0\0\0\0\1a", 6);
	talk(&p);
	assert_int_equal(answer(&p, 1).data, 6);
	assert_false(p.ended);
	send_bytes(&p, 1, true, "", 0);
	until(&p.rig, (talk(&p), p.ended));
	assert_string_equal(answer(&p, 1).status, "0");
	peer_done(&p);
}

static void the_grace_of_an_old_connection_ends(void **state)
{
	struct grpc_limits l;
	struct peer p;
	uint32_t last = 0, code = 0;
	char text[64] = "";
	grpc_limits_default(&l);
	l.max_age_ns = 20 * NS_PER_MS;
	l.max_age_grace_ns = 20 * NS_PER_MS;
	peer_init(&p, &l, true);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	until(&p.rig, (talk(&p), answer(&p, 1).ended)); /* the PING is never answered */
	assert_string_equal(answer(&p, 1).status, "14");
	assert_string_equal(answer(&p, 1).pushback, "1");
	assert_true(goaway(&p, &last, &code, text, sizeof(text)));
	assert_int_equal(last, 1);
	assert_string_equal(text, "max_age");
	until(&p.rig, (talk(&p), p.ended));
	assert_int_equal(p.rig.ended, 1);
	peer_done(&p);
}

/* One that takes nothing of its last call's message: nothing would end it. */
static void an_old_connection_that_does_not_end_is_cut(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.max_age_ns = 20 * NS_PER_MS;
	l.max_age_grace_ns = 20 * NS_PER_MS;
	peer_init(&p, &l, true);
	raw_setting(&p.raw, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
	raw_request(&p.raw, 1, 0, BIDI);
	send_bytes(&p, 1, false, "\0\0\0\0\2ab", 7);
	talk(&p);
	until(&p.rig, (talk(&p), p.ended));
	assert_false(answer(&p, 1).ended);
	assert_string_equal(p.rig.log, "cut: the grace of its age is over");
	assert_int_equal(p.rig.ended, 1);
	peer_done(&p);
}

/* Those that came together do not come back together. */
static void ages_are_spread(void **state)
{
	static const struct conn_ops ops = { .on_flushed = NULL };
	static const struct stream_events none;
	struct grpc_limits l;
	struct loop *loop;
	int64_t least = INT64_MAX, most = 0;
	grpc_limits_default(&l);
	l.max_age_ns = 100 * NS_PER_S;
	assert_int_equal(loop_new(&loop), 0);
	for (int i = 0; i < 50; i++) {
		struct conn c;
		struct stream *ours, *theirs;
		memset(&c, 0, sizeof(c));
		assert_int_equal(stream_pair(loop, 4096, &none, NULL, &none, NULL, &ours, &theirs), 0);
		assert_int_equal(conn_init(&c, loop, H2_SERVER, &l, &ops), 0);
		conn_attach(&c, theirs, true);
		least = min_i64(least, c.age_mono_ns - c.opened_mono_ns);
		most = max_i64(most, c.age_mono_ns - c.opened_mono_ns);
		conn_shut(&c);
		conn_done(&c);
		stream_close(ours);
	}
	loop_turn(loop, false);
	loop_free(loop);
	assert_true(least >= 90 * NS_PER_S && most <= 110 * NS_PER_S);
	assert_true(most - least > 5 * NS_PER_S); /* 50 within a quarter of the range: one in 10^28 */
}

/* The PING's answer may wait behind an upload. */
static void who_sends_is_alive(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.keepalive_ns = 10 * NS_PER_MS;
	l.keepalive_timeout_ns = 700 * NS_PER_MS;
	peer_init(&p, &l, true);
	p.rig.hold_bidi = true;
	raw_request(&p.raw, 1, 0, BIDI);
	for (int64_t end = clock_mono_ns() + 800 * NS_PER_MS; clock_mono_ns() < end;) {
		send_bytes(&p, 1, false, "\0\0\0\0\0", 5);
		talk(&p);
		assert_false(p.ended);
	}
	until(&p.rig, p.ended);
	assert_string_equal(p.rig.log, "no answer to the keepalive PING");
	peer_done(&p);
}

/* 1.27: a peer that does not answer the PING between the two GOAWAYs is told of the last call all the same. */
static void a_drain_does_not_wait_for_the_ping(void **state)
{
	struct peer p;
	uint32_t last = 0, code = 0;
	char text[64] = "";
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	grpc_server_drain(p.rig.server, GRPC_NO_DEADLINE, NULL);
	talk(&p);
	assert_true(goaway(&p, &last, &code, text, sizeof(text)));
	assert_int_equal(last, 0x7fffffff);
	until(&p.rig, (talk(&p), goaway(&p, &last, &code, text, sizeof(text)), last == 1));
	assert_int_equal(code, 0);
	assert_false(answer(&p, 1).ended);
	peer_done(&p);
}

/* ---- 1.24, 1.25: what our client makes of a server that is none of gRPC's ---- */

struct other {
	struct h2 *h2;
	struct stream *s;
	struct buf out;
};

static void on_other(void *arg, int events)
{
	struct other *o = arg;
	uint8_t bytes[4096];
	ssize_t n;
	while ((n = stream_read(o->s, bytes, sizeof(bytes))) > 0)
		assert_int_equal(h2_recv(o->h2, bytes, (size_t)n, 1), 0);
}

static void say_other(struct other *o)
{
	assert_int_equal(h2_pull(o->h2, &o->out, 65536, 1), 0);
	struct iovec iov = { o->out.data + o->out.start, buf_len(&o->out) };
	ssize_t n = buf_len(&o->out) ? stream_writev(o->s, &iov, 1) : 0;
	if (n > 0)
		buf_consume(&o->out, (size_t)n);
}

static void ready(void *arg) { ((struct rig *)arg)->ready = true; }
static void closed(void *arg, const char *text) {}

/* http 0: the stream is reset with the code. */
static struct grpc_status status_of(int http, uint32_t reset)
{
	static const struct stream_events events = { .on_ready = on_other }, none;
	struct rig r = { 0 };
	struct other o;
	struct h2_limits hl = { 16384, 100, 100, 65535, 65535, 0, 1 << 20 };
	struct grpc_channel_config cfg = { .authority = "a", .on_ready = ready, .on_closed = closed, .arg = &r };
	struct stream *client_end;
	struct seen seen;
	unsigned news;
	grpc_limits_default(&cfg.limits);
	assert_int_equal(loop_new(&r.loop), 0);
	assert_int_equal(stream_pair(r.loop, 65536, &events, &o, &none, NULL, &o.s, &client_end), 0);
	assert_int_equal(h2_new(H2_SERVER, &hl, &o.h2), 0);
	buf_init(&o.out, 65536);
	stream_want(o.s, LOOP_READ);
	assert_int_equal(grpc_channel_adopt(r.loop, client_end, &cfg, &r.channel), 0);
	seen_init(&seen, &r);
	start(&seen, "/a/b", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(seen.call, "x", 1), 0);
	struct h2_stream *s = NULL;
	until(&r, (say_other(&o), s = s ? s : h2_next(o.h2, &news)));
	char code[8];
	snprintf(code, sizeof(code), "%d", http);
	struct h2_header h[] = { { ":status", code, strlen(code), 0 } };
	if (http)
		h2_respond(s, h, 1, true);
	else
		h2_reset(s, reset);
	until(&r, (say_other(&o), seen.done));
	struct grpc_status st = seen.status;
	seen_done(&seen);
	grpc_channel_free(r.channel);
	loop_turn(r.loop, false);
	stream_close(o.s);
	h2_free(o.h2);
	buf_done(&o.out);
	loop_turn(r.loop, false);
	loop_free(r.loop);
	return st;
}

static void a_server_without_grpc_status(void **state)
{
	static const int http[][2] = { { 400, STATUS_INTERNAL }, { 401, STATUS_UNAUTHENTICATED }, { 403, STATUS_PERMISSION_DENIED },
				       { 404, STATUS_UNIMPLEMENTED }, { 415, STATUS_UNKNOWN }, { 429, STATUS_UNAVAILABLE },
				       { 431, STATUS_INTERNAL }, { 500, STATUS_UNKNOWN }, { 502, STATUS_UNAVAILABLE },
				       { 503, STATUS_UNAVAILABLE }, { 504, STATUS_UNAVAILABLE }, { 200, STATUS_UNKNOWN } };
	static const int resets[][2] = { { H2_NO_ERROR, STATUS_INTERNAL }, { H2_PROTOCOL_ERROR, STATUS_INTERNAL },
					 { H2_INTERNAL_ERROR, STATUS_INTERNAL }, { H2_REFUSED_STREAM, STATUS_UNAVAILABLE },
					 { H2_CANCEL, STATUS_CANCELLED }, { H2_ENHANCE_YOUR_CALM, STATUS_RESOURCE_EXHAUSTED },
					 { H2_INADEQUATE_SECURITY, STATUS_PERMISSION_DENIED } };
	for (size_t i = 0; i < ARRAY_LEN(http); i++)
		assert_int_equal(status_of(http[i][0], 0).code, http[i][1]);
	for (size_t i = 0; i < ARRAY_LEN(resets); i++) {
		struct grpc_status st = status_of(0, (uint32_t)resets[i][0]);
		assert_int_equal(st.code, resets[i][1]);
		assert_int_equal(st.unprocessed, resets[i][0] == H2_REFUSED_STREAM); /* only that may be sent again unasked */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_call_is_headers_data_and_trailers),
		cmocka_unit_test(headers_wait_for_the_first_message),
		cmocka_unit_test(requests_without_their_pseudo_headers),
		cmocka_unit_test(te),
		cmocka_unit_test(unknown_paths_are_answered_from_the_headers),
		cmocka_unit_test(the_largest_trailers),
		cmocka_unit_test(settings),
		cmocka_unit_test(headers_over_the_limit),
		cmocka_unit_test(short_headers_count_too),
		cmocka_unit_test(content_length_is_believed_in_no_case),
		cmocka_unit_test(stalled_streams_do_not_starve_others),
		cmocka_unit_test(too_many_pings),
		cmocka_unit_test(an_old_connection_is_drained),
		cmocka_unit_test(the_grace_of_an_old_connection_ends),
		cmocka_unit_test(an_old_connection_that_does_not_end_is_cut),
		cmocka_unit_test(ages_are_spread),
		cmocka_unit_test(a_drain_does_not_wait_for_the_ping),
		cmocka_unit_test(who_sends_is_alive),
		cmocka_unit_test(a_server_without_grpc_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
