/* The gRPC server against bare frames: what clients see on the wire, and clients that misbehave. */
#include "tests/unit/grpc_peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

/* ---- good calls ---- */

static void a_message_in_single_bytes(void **state)
{
	static const char bytes[] = "\0\0\0\0\3abc";
	struct peer p;
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, UNARY);
	for (int i = 0; i < 8; i++) {
		char padded[4] = { 2, bytes[i], 0, 0 };
		raw_frame(&p.raw, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, padded, 4);
		talk(&p);
	}
	send_bytes(&p, 1, true, "", 0);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.http, "200");
	assert_string_equal(a.status, "0");
	assert_string_equal(a.type, "application/grpc");
	assert_int_equal(a.data, 8);
	assert_int_equal(a.blocks, 2);
	assert_true(a.ended && !a.reset);
	peer_done(&p);
}

static void many_messages_in_one_frame(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	assert_int_equal(answer(&p, 1).blocks, 1); /* headers before any message */
	send_bytes(&p, 1, false, "\0\0\0\0\1a\0\0\0\0\0\0\0\0\0\2bc\0\0", 20);
	talk(&p);
	assert_int_equal(p.rig.messages, 3);
	send_bytes(&p, 1, false, "\0\0\1", 3);
	send_bytes(&p, 1, false, "d", 1);
	talk(&p);
	assert_int_equal(p.rig.messages, 4);
	/* The end of the client's side comes with trailers. */
	raw_headers(&p.raw, 1, NGHTTP2_FLAG_END_STREAM, "x-trailer", "1", NULL);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_int_equal(p.rig.half_closes, 1);
	assert_string_equal(a.status, "0");
	assert_int_equal(a.data, 24);
	assert_true(a.ended && !a.reset);
	peer_done(&p);
}

/* ---- requests that are refused ---- */

static void content_types(void **state)
{
	static const struct {
		const char *type;
		const char *http, *status;
	} types[] = {
		{ "application/grpc", "200", "0" },    { "application/grpc+proto", "200", "0" },
		{ "application/grpcx", "415", "" },    { "application/grpc;charset=utf-8", "200", "0" },
		{ "application/json", "415", "" },     { "application/grpc+json", "415", "" },
		{ "application/grpc-web", "200", "" }, { "application/grpc-web-text", "415", "" },
		{ "", "415", "" },
	};
	struct peer p;
	peer_init(&p, NULL, true);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		int32_t id = (int32_t)(2 * i + 1);
		raw_headers(&p.raw, id, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
			    types[i].type, NULL);
		send_bytes(&p, id, true, "\0\0\0\0\0", 5);
		talk(&p);
		struct answer a = answer(&p, id);
		assert_string_equal(a.http, types[i].http);
		assert_string_equal(a.status, types[i].status);
	}
	raw_headers(&p.raw, 21, NGHTTP2_FLAG_END_STREAM, ":method", "GET", ":scheme", "http", ":path", UNARY, ":authority", "a",
		    "content-type", "application/grpc", NULL);
	talk(&p);
	assert_string_equal(answer(&p, 21).http, "405");
	/* Plain HTTP clients are let finish, however much they send. */
	raw_headers(&p.raw, 23, 0, ":method", "PUT", ":scheme", "http", ":path", UNARY, ":authority", "a", NULL);
	for (int i = 0; i < 40; i++) {
		raw_data(&p.raw, 23, i == 39, 16384);
		talk(&p);
	}
	assert_string_equal(answer(&p, 23).http, "405");
	assert_true(answer(&p, 23).ended);
	assert_false(answer(&p, 23).reset);
	assert_false(p.ended);
	peer_done(&p);
}

static void refused(const char *bytes, size_t len, bool end, const char *status)
{
	struct peer p;
	struct grpc_limits l;
	grpc_limits_default(&l);
	l.max_message = 10;
	peer_init(&p, &l, true);
	raw_request(&p.raw, 1, 0, UNARY);
	send_bytes(&p, 1, end, bytes, len);
	talk(&p);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.http, "200");
	assert_string_equal(a.status, status);
	assert_int_equal(a.blocks, 1); /* trailers only */
	assert_true(a.ended);
	assert_int_equal(a.reset, !end); /* after the trailers, when we were not done */
	assert_int_equal(a.reset_code, 0);
	assert_int_equal(p.rig.requests, 0);
	assert_int_equal(p.rig.ended, 0);
	peer_done(&p);
}

static void wrong_messages(void **state)
{
	refused("", 0, true, "12");
	refused("\0\0\0\0\1a\0\0\0\0\0", 11, false, "12");
	refused("\0\0\0\0\1a\0", 7, true, "12");
	refused("\0\0\0\0\2a", 6, true, "13");
	refused("\0\0\0", 3, true, "13");
	refused("\1\0\0\0\1a", 6, true, "13");
	refused("\2", 1, false, "13");
	refused("\0\0\0\0\13", 5, false, "8");
	refused("\0\377\377\377\377", 5, false, "8");
}

static void headers_that_are_refused(void **state)
{
	static const struct {
		const char *name, *value, *status;
	} cases[] = {
		{ "grpc-timeout", "10s", "3" },	 { "grpc-timeout", "", "3" },	       { "grpc-timeout", "123456789S", "3" },
		{ "grpc-encoding", "deflate", "12" }, { "grpc-encoding", "gzip", "0" }, { "grpc-encoding", "identity", "0" }, { "grpc-timeout", "99999999H", "0" },
		{ "x-bin", "!!", "0" },		 { "x-high", "\xc3\xb6\xff", "0" },    { "grpc-unknown", "x", "0" },
		{ "x-blank", " x ", "0" },
	};
	struct peer p;
	peer_init(&p, NULL, true);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int32_t id = (int32_t)(2 * i + 1);
		raw_headers(&p.raw, id, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
			    "application/grpc", cases[i].name, cases[i].value, NULL);
		send_bytes(&p, id, true, "\0\0\0\0\0", 5);
		talk(&p);
		struct answer a = answer(&p, id);
		assert_string_equal(a.status, cases[i].status);
		assert_string_equal(a.accept, "identity,gzip");
	}
	/* What is there twice is not taken for absent. */
	static const char *const twice[][4] = { { "grpc-timeout", "10S", "20S", "3" }, { "grpc-encoding", "identity", "gzip", "12" } };
	for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
		int32_t id = (int32_t)(2 * (ARRAY_LEN(cases) + i) + 1);
		raw_headers(&p.raw, id, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
			    "application/grpc", twice[i][0], twice[i][1], twice[i][0], twice[i][2], NULL);
		send_bytes(&p, id, true, "\0\0\0\0\0", 5);
		talk(&p);
		assert_string_equal(answer(&p, id).status, twice[i][3]);
	}
	peer_done(&p);
}

static void reset_before_the_handler(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, UNARY);
	send_bytes(&p, 1, true, "\0\0\0\0\0", 5);
	raw_rst(&p.raw, 1, 8);
	raw_request(&p.raw, 3, 0, BIDI);
	raw_rst(&p.raw, 3, 8);
	talk(&p);
	assert_int_equal(p.rig.requests + p.rig.started + p.rig.ended, 0);
	peer_done(&p);
}

/* ---- deadlines ---- */

static void the_server_s_deadline(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	p.rig.hold = true;
	raw_headers(&p.raw, 1, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", "grpc-timeout", "20m", NULL);
	send_bytes(&p, 1, true, "\0\0\0\0\0", 5);
	talk(&p);
	until(&p.rig, p.rig.ended == 1);
	talk(&p);
	assert_int_equal(p.rig.finished, 0);
	assert_string_equal(answer(&p, 1).status, "4");
	/* An upload that never ends is a call as well, but no handler knew of it. */
	raw_headers(&p.raw, 3, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", "grpc-timeout", "20m", NULL);
	talk(&p);
	until(&p.rig, (talk(&p), answer(&p, 3).ended));
	assert_string_equal(answer(&p, 3).status, "4");
	assert_int_equal(p.rig.ended, 1);
	/* No time at all is little time, and not all of it. */
	raw_headers(&p.raw, 5, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", "grpc-timeout", "0m", NULL);
	send_bytes(&p, 5, true, "\0\0\0\0\0", 5);
	until(&p.rig, (talk(&p), answer(&p, 5).ended));
	assert_string_equal(answer(&p, 5).status, "4");
	peer_done(&p);
}

static void a_request_that_stops_coming(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.body_ns = 30 * NS_PER_MS;
	peer_init(&p, &l, true);
	p.rig.hold = true;
	raw_request(&p.raw, 1, 0, UNARY); /* never a byte */
	raw_request(&p.raw, 3, 0, UNARY); /* whole in time, answered late */
	send_bytes(&p, 3, false, "\0\0\0\0", 4);
	talk(&p);
	send_bytes(&p, 3, true, "\0", 1);
	talk(&p);
	until(&p.rig, (talk(&p), answer(&p, 1).ended));
	assert_string_equal(answer(&p, 1).status, "4");
	assert_int_equal(p.rig.requests, 1);
	assert_int_equal(p.rig.ended, 0);
	peer_done(&p);
}

static void half_sent_at_the_deadline(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_setting(&p.raw, 4, 3); /* the window takes a part of the prefix */
	raw_headers(&p.raw, 1, 0, ":method", "POST", ":scheme", "http", ":path", UNARY, ":authority", "a", "content-type",
		    "application/grpc", "grpc-timeout", "40m", NULL);
	raw_headers(&p.raw, 3, 0, ":method", "POST", ":scheme", "http", ":path", BIDI, ":authority", "a", "content-type",
		    "application/grpc", "grpc-timeout", "40m", NULL);
	send_bytes(&p, 3, false, "\0\0\0\0\2ab", 7);
	talk(&p);
	until(&p.rig, (talk(&p), answer(&p, 3).reset));
	struct answer a = answer(&p, 3);
	assert_int_equal(a.data, 3);
	assert_false(a.ended);
	assert_int_equal(a.reset_code, 8);
	assert_int_equal(p.rig.ended, 1);
	peer_done(&p);
}

/* ---- connections that are given up ---- */

static void give_up(struct grpc_limits *l, const char *log, const char *goaway, bool open_stream)
{
	struct peer p;
	peer_init(&p, l, true);
	if (open_stream) {
		raw_setting(&p.raw, 4, 0);
		raw_request(&p.raw, 1, 0, BIDI);
		send_bytes(&p, 1, false, "\0\0\0\0\2ab", 7);
	}
	talk(&p);
	until(&p.rig, p.ended);
	if (log)
		assert_string_equal(p.rig.log, log);
	assert_int_equal(p.rig.ended, open_stream);
	if (goaway) {
		struct raw_seen f = { 0 };
		bool found = false;
		while (raw_next(&p.got, &f))
			found |= f.type == NGHTTP2_GOAWAY && f.len == 8 + strlen(goaway) &&
				 memcmp(f.payload + 8, goaway, strlen(goaway)) == 0;
		assert_true(found);
	}
	peer_done(&p);
}

static void connections_given_up(void **state)
{
	struct grpc_limits l;
	grpc_limits_default(&l);
	l.keepalive_ns = 20 * NS_PER_MS;
	l.keepalive_timeout_ns = 20 * NS_PER_MS;
	give_up(&l, "no answer to the keepalive PING", NULL, true);
	grpc_limits_default(&l);
	l.blocked_output_ns = 20 * NS_PER_MS;
	give_up(&l, "the peer takes no output", NULL, true);
	grpc_limits_default(&l);
	l.idle_ns = 20 * NS_PER_MS;
	give_up(&l, NULL, "max_idle", false);
	grpc_limits_default(&l);
	l.unproven_idle_ns = 20 * NS_PER_MS;
	give_up(&l, NULL, "max_idle", false);
}

/* Both ask, one is refused; then both are idle, and that one alone is given up. */
static void who_is_refused_is_not_kept(void **state)
{
	struct grpc_limits l;
	struct peer good, bad;
	grpc_limits_default(&l);
	l.unproven_idle_ns = 20 * NS_PER_MS;
	peer_init(&good, &l, true);
	peer_init(&bad, &l, true);
	raw_request(&good.raw, 1, 0, UNARY);
	send_bytes(&good, 1, true, "\0\0\0\0\2ab", 7);
	raw_request(&bad.raw, 1, 0, UNARY);
	send_bytes(&bad, 1, true, "\0\0\0\0\1!", 6);
	until(&good.rig, (talk(&good), answer(&good, 1).ended));
	until(&bad.rig, (talk(&bad), answer(&bad, 1).ended));
	assert_string_equal(answer(&good, 1).status, "0");
	assert_string_equal(answer(&bad, 1).status, "9");
	until(&bad.rig, bad.ended);
	for (int64_t end = clock_mono_ns() + 40 * NS_PER_MS; clock_mono_ns() < end;)
		talk(&good);
	assert_false(good.ended);
	peer_done(&good);
	peer_done(&bad);
}

static void no_preface(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.first_headers_ns = 20 * NS_PER_MS;
	peer_init(&p, &l, false);
	assert_int_equal(buf_add(&p.raw.out, "PRI * HT", 8), 0);
	talk(&p);
	until(&p.rig, p.ended);
	assert_string_equal(p.rig.log, "no HTTP/2 settings in time");
	assert_int_equal(buf_len(&p.got), 0);
	peer_done(&p);
}

static void http1(void **state)
{
	struct peer p;
	peer_init(&p, NULL, false);
	assert_int_equal(buf_add(&p.raw.out, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27), 0);
	talk(&p);
	until(&p.rig, p.ended);
	assert_memory_equal(buf_head(&p.got), "HTTP/1.1 505 ", 13);
	/* Nothing of HTTP/2 before or after it, and the length is true. */
	const char *length = memmem(buf_head(&p.got), buf_len(&p.got), "content-length: ", 16);
	const char *body = memmem(buf_head(&p.got), buf_len(&p.got), "\r\n\r\n", 4);
	assert_true(length && body);
	assert_int_equal(strtol(length + 16, NULL, 10), (const char *)buf_head(&p.got) + buf_len(&p.got) - body - 4);
	peer_done(&p);
}

static void a_protocol_error_gets_a_last_word(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	assert_int_equal(p.rig.started, 1);
	raw_data(&p.raw, 0, 0, 1);
	talk(&p);
	assert_int_equal(p.rig.ended, 1);
	until(&p.rig, p.ended);
	struct raw_seen f = { 0 };
	uint32_t code = 0;
	while (raw_next(&p.got, &f))
		if (f.type == NGHTTP2_GOAWAY)
			code = raw_u32(f.payload + 4);
	assert_int_equal(code, 1);
	peer_done(&p);
}

/* ---- who may call ---- */

static void request_with(struct peer *p, int32_t id, const char *path, const char *a, const char *b)
{
	raw_headers(&p->raw, id, 0, ":method", "POST", ":scheme", "http", ":path", path, ":authority", "a", "content-type",
		    "application/grpc", a ? "authorization" : NULL, a, b ? "authorization" : NULL, b, (char *)NULL);
}

static void without_the_right_no_body_is_taken(void **state)
{
	static const struct {
		const char *path, *a, *b, *said;
	} cases[] = {
		{ UNARY, NULL, NULL, "0 headers are not the word" },
		{ BIDI, NULL, NULL, "0 headers are not the word" },
		{ UNARY, "Bearer wrong", NULL, "1 headers are not the word" },
		{ UNARY, "Bearer secret", "Bearer secret", "2 headers are not the word" },
	};
	struct peer p;
	peer_init(&p, NULL, true);
	p.rig.locked = true;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int32_t id = 1 + 2 * (int32_t)i;
		request_with(&p, id, cases[i].path, cases[i].a, cases[i].b);
		talk(&p); /* the answer comes before the body */
		struct answer a = answer(&p, id);
		assert_string_equal(a.status, "16");
		assert_string_equal(a.message, cases[i].said);
		assert_true(a.ended);
	}
	assert_int_equal(p.rig.let_in + p.rig.started + p.rig.requests, 0);
	request_with(&p, 21, UNARY, "Bearer secret", NULL);
	send_bytes(&p, 21, true, "\0\0\0\0\3abc", 8);
	talk(&p);
	assert_string_equal(answer(&p, 21).status, "0");
	assert_int_equal(p.rig.let_in, 1);
	assert_int_equal(p.rig.over, 1);
	assert_int_equal(p.rig.over_code, STATUS_OK);
	peer_done(&p);
}

static void end_of_right(void *arg, struct grpc_call *call, void *caller)
{
	static const struct refusal r = { .code = STATUS_UNAUTHENTICATED, .message = "no longer" };
	assert_ptr_equal(caller, arg);
	grpc_call_finish(call, &r);
}

static void a_right_that_ends_ends_the_stream(void **state)
{
	struct peer p;
	peer_init(&p, NULL, true);
	request_with(&p, 1, BIDI, NULL, NULL);
	raw_request(&p.raw, 3, 0, BIDI);
	talk(&p);
	grpc_server_each_call(p.rig.server, end_of_right, &p.rig);
	grpc_server_each_call(p.rig.server, end_of_right, &p.rig); /* they have ended */
	assert_int_equal(p.rig.ended, 0);
	talk(&p);
	for (int32_t id = 1; id <= 3; id += 2)
		assert_string_equal(answer(&p, id).status, "16");
	assert_int_equal(p.rig.ended, 2);
	assert_int_equal(p.rig.over, 2);
	assert_int_equal(p.rig.over_code, STATUS_UNAUTHENTICATED);
	peer_done(&p);
}

/* What a GET asks stands in its query; its body is dropped, however much comes. */
static void a_get_with_a_body(void **state)
{
	struct grpc_limits l;
	struct peer p;
	char path[2200], body[1500] = "";
	grpc_limits_default(&l);
	l.conn_recv = 1000;
	snprintf(path, sizeof(path), "/test.Echo/Safe?encoding=proto&message=%02000d", 0);
	peer_init(&p, &l, true);
	raw_headers(&p.raw, 1, 0, ":method", "GET", ":scheme", "http", ":path", path, ":authority", "a", NULL);
	for (int i = 0; i < 3; i++) {
		send_bytes(&p, 1, false, body, sizeof(body));
		talk(&p);
	}
	assert_int_equal(p.rig.requests, 0);
	send_bytes(&p, 1, true, "", 0);
	talk(&p);
	assert_int_equal(p.rig.requests, 1);
	struct answer a = answer(&p, 1);
	assert_string_equal(a.http, "200");
	assert_int_equal(a.data, 2000);
	assert_true(a.ended && !a.reset);
	peer_done(&p);
}

/* Clients of some dialects are let send to the end after an early answer.  What they sent before it is given up too: who asks next on
 * the connection is not refused for it. */
static void what_was_refused_is_not_held(void **state)
{
	static const struct {
		const char *method, *path, *type;
		const char *http;
	} cases[] = {
		{ "POST", UNARY, "application/grpc-web", "200" },      /* too large */
		{ "POST", "/test.Echo/No", "application/grpc-web", "200" },
		{ "POST", "/test.Echo/No", "application/proto", "404" },
		{ "PUT", UNARY, "text/plain", "405" },
		{ "POST", BIDI, "application/json", "415" },
	};
	static uint8_t body[16000] = { 0, 0, 1, 0, 0 }; /* of 65,536 */
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.max_message = 20000;
	l.conn_recv = 20000;
	peer_init(&p, &l, true);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int32_t id = 1 + 4 * (int32_t)i;
		raw_headers(&p.raw, id, 0, ":method", cases[i].method, ":scheme", "http", ":path", cases[i].path, ":authority", "a", "content-type",
			    cases[i].type, NULL);
		send_bytes(&p, id, false, body, sizeof(body));
		talk(&p);
		assert_string_equal(answer(&p, id).http, cases[i].http);
		assert_false(answer(&p, id).reset);
		raw_request(&p.raw, id + 2, 0, UNARY);
		send_bytes(&p, id + 2, false, "\0\0\0\x27\x10", 5); /* 10,000 */
		send_bytes(&p, id + 2, false, body, 9999);
		talk(&p);
		send_bytes(&p, id + 2, true, "x", 1);
		talk(&p);
		if (strcmp(answer(&p, id + 2).status, "0") != 0)
			fail_msg("%s after %s %s", answer(&p, id + 2).message, cases[i].path, cases[i].type);
	}
	peer_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_in_single_bytes),
		cmocka_unit_test(many_messages_in_one_frame),
		cmocka_unit_test(content_types),
		cmocka_unit_test(wrong_messages),
		cmocka_unit_test(headers_that_are_refused),
		cmocka_unit_test(reset_before_the_handler),
		cmocka_unit_test(the_server_s_deadline),
		cmocka_unit_test(a_request_that_stops_coming),
		cmocka_unit_test(half_sent_at_the_deadline),
		cmocka_unit_test(connections_given_up),
		cmocka_unit_test(who_is_refused_is_not_kept),
		cmocka_unit_test(no_preface),
		cmocka_unit_test(http1),
		cmocka_unit_test(a_protocol_error_gets_a_last_word),
		cmocka_unit_test(without_the_right_no_body_is_taken),
		cmocka_unit_test(a_right_that_ends_ends_the_stream),
		cmocka_unit_test(a_get_with_a_body),
		cmocka_unit_test(what_was_refused_is_not_held),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
