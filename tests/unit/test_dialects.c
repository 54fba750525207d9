/* What every dialect makes of a call, over HTTP/1.1 on an in-memory pair (where it can be read), and its parts on their own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/grpc/connect.h"
#include "common/grpc/dialect.h"
#include "common/grpc/gzip.h"
#include "common/grpc/query.h"
#include "common/grpc/server.h"
#include "common/http1/body.h"
#include "grpc/health/v1/health.pb-c.h"
#include "tests/unit/http1_client.h"

#define UNARY "/grpc.health.v1.Health/Check"
#define STREAM "/grpc.health.v1.Health/Watch"

/* ---- a server whose answer is asked for: the request's `service` is a status code ---- */

static struct {
	struct loop *loop;
	struct http1_server *http1;
	struct grpc_server *server;
	struct grpc_limits limits;
	struct http1_limits http1_limits;
	int messages; /* that a stream has still to send */
	size_t most_queued;
	int ended, finished;
	struct grpc_call *held;
	bool hold;
} T;

static void finish(struct grpc_call *c, const uint8_t *data, size_t len)
{
	struct refusal r;
	if (len < 3) {
		grpc_call_finish(c, NULL);
		return;
	}
	(void)refuse(&r, (enum status_code)strtoul((const char *)data + 2, NULL, 10), "a.b", "why \"%s\"", "\n\xc3\xb6");
	grpc_call_finish(c, &r);
}

static void on_unary(struct grpc_call *c, const uint8_t *data, size_t len)
{
	char text[8] = "";
	memcpy(text, data, min_sz(len, sizeof(text) - 1));
	if (T.hold)
		T.held = c;
	else if (len < 3)
		assert_int_equal(grpc_call_send(c, "\x08\x01", 2), 0); /* SERVING */
	if (!T.hold)
		finish(c, (const uint8_t *)text, len);
}

static void send_on(struct grpc_call *c)
{
	static uint8_t bytes[10000]; /* unknown fields: as long as we like */
	bytes[0] = 0x12; /* field 2 */
	bytes[1] = 0x8d;
	bytes[2] = 0x4e; /* 9,997 bytes */
	while (T.messages && grpc_call_send(c, bytes, sizeof(bytes)) == 0)
		T.messages--;
	T.most_queued = max_sz(T.most_queued, grpc_call_queued(c));
	if (!T.messages)
		grpc_call_finish(c, NULL);
}

static void on_stream(struct grpc_call *c, const uint8_t *data, size_t len)
{
	char text[8] = "";
	memcpy(text, data, min_sz(len, sizeof(text) - 1));
	if (T.messages) {
		send_on(c);
		return;
	}
	if (len < 3)
		assert_int_equal(grpc_call_send(c, "\x08\x01", 2), 0);
	finish(c, (const uint8_t *)text, len);
}

static void on_end(struct grpc_call *c, bool finished)
{
	T.ended++;
	T.finished += finished;
	T.held = NULL;
}

static const struct grpc_method METHODS[] = {
	{ .path = UNARY, .shape = GRPC_UNARY, .safe = true, .on_request = on_unary, .on_end = on_end },
	{ .path = STREAM, .shape = GRPC_SERVER_STREAM, .on_request = on_stream, .on_writable = send_on, .on_end = on_end },
};
static const ProtobufCServiceDescriptor *const SERVICES[] = { &grpc__health__v1__health__descriptor };

static int set_up(void **state)
{
	memset(&T, 0, sizeof(T));
	grpc_limits_default(&T.limits);
	http1_limits_default(&T.http1_limits);
	return 0;
}

static void begin(void)
{
	struct http1_server_config hc = { .limits = T.http1_limits, .about = "about" };
	assert_int_equal(loop_new(&T.loop), 0);
	assert_int_equal(http1_server_new(T.loop, &hc, &T.http1), 0);
	struct grpc_server_config gc = { .limits = T.limits, .methods = METHODS, .n_methods = ARRAY_LEN(METHODS), .services = SERVICES,
					 .n_services = 1, .http1 = T.http1 };
	assert_int_equal(grpc_server_new(T.loop, &gc, &T.server), 0);
}

static void end(void)
{
	grpc_server_free(T.server);
	http1_server_free(T.http1);
	loop_turn(T.loop, false);
	loop_free(T.loop);
}

static struct client *client(const void *first, size_t len, size_t cap) { return client_new(T.loop, T.http1, first, len, cap); }

static struct client *said(const char *text) { return client(text, strlen(text), 1 << 16); }

static struct client *post(const char *path, const char *type, const void *body, size_t len, const char *fields)
{
	char text[4096];
	int n = snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", path, type,
			 len, fields);
	memcpy(text + n, body, len);
	return client(text, (size_t)n + len, 1 << 16);
}

/* The body of the answer, which ends with its connection. */
static const char *answered(struct client *c, const char *status)
{
	char line[32];
	TURNS_UNTIL(T.loop, c->over);
	snprintf(line, sizeof(line), "HTTP/1.1 %s ", status);
	if (memcmp(c->got, line, strlen(line)) != 0)
		fail_msg("%s instead of %s", c->got, status);
	const char *body = strstr(c->got, "\r\n\r\n");
	assert_non_null(body);
	return body + 4;
}

/* ---- the end of a call, in each ---- */

static const struct {
	enum status_code code;
	const char *name, *http;
} CODES[] = {
	{ 1, "canceled", "499" },	  { 2, "unknown", "500" },	      { 3, "invalid_argument", "400" },
	{ 4, "deadline_exceeded", "504" }, { 5, "not_found", "404" },	      { 6, "already_exists", "409" },
	{ 7, "permission_denied", "403" }, { 8, "resource_exhausted", "429" }, { 9, "failed_precondition", "400" },
	{ 10, "aborted", "409" },	  { 11, "out_of_range", "400" },     { 12, "unimplemented", "501" },
	{ 13, "internal", "500" },	  { 14, "unavailable", "503" },      { 15, "data_loss", "500" },
	{ 16, "unauthenticated", "401" }, { 77, "unknown", "500" },
};

#define CLOSE "Connection: close\r\n"

static void codes_of_connect(void **state)
{
	begin();
	for (size_t i = 0; i < ARRAY_LEN(CODES); i++) {
		char body[64], want[128];
		size_t n = (size_t)snprintf(body, sizeof(body), "{\"service\":\"%d\"}", CODES[i].code);
		struct client *c = post(UNARY, "application/json", body, n, CLOSE);
		snprintf(want, sizeof(want), "{\"code\":\"%s\",\"message\":\"why \\\"\\u000a\xc3\xb6\\\"\",\"details\":[{\"type\":\"google.rpc.", CODES[i].name);
		const char *got = answered(c, CODES[i].http);
		assert_memory_equal(got, want, strlen(want));
		assert_non_null(strstr(c->got, "content-type: application/json\r\n"));
		assert_int_equal(strstr(c->got, "www-authenticate: Bearer") != NULL, CODES[i].code == 16);
		client_free(c);
		/* The same in a stream: HTTP's status stays 200. */
		uint8_t framed[80] = { 0, 0, 0, 0, (uint8_t)n };
		memcpy(framed + 5, body, n);
		c = post(STREAM, "application/connect+json", framed, n + 5, CLOSE);
		got = answered(c, "200");
		assert_int_equal(got[0], 2);
		snprintf(want, sizeof(want), "{\"error\":{\"code\":\"%s\",", CODES[i].name);
		assert_memory_equal(got + 5, want, strlen(want));
		client_free(c);
	}
	end();
}

static void good_ends(void **state)
{
	begin();
	struct client *c = post(UNARY, "application/json", "{}", 2, CLOSE);
	assert_string_equal(answered(c, "200"), "{\"status\":\"SERVING\"}");
	client_free(c);
	c = post(STREAM, "application/connect+json", "\0\0\0\0\2{}", 7, CLOSE);
	static const char chunks[] = "00000019\r\n\0\0\0\0\x14{\"status\":\"SERVING\"}\r\n00000007\r\n\2\0\0\0\2{}\r\n"
				     "0\r\n\r\n";
	const char *got = answered(c, "200");
	assert_memory_equal(got, chunks, sizeof(chunks) - 1);
	client_free(c);
	c = post(UNARY, "application/grpc-web", "\0\0\0\0\0", 5, CLOSE);
	static const char web[] = "00000007\r\n\0\0\0\0\2\x08\1\r\n00000014\r\n\x80\0\0\0\x0f" "grpc-status:0\r\n\r\n0\r\n\r\n";
	got = answered(c, "200");
	assert_memory_equal(got, web, sizeof(web) - 1);
	client_free(c);
	end();
}

static void codes_of_grpc_web(void **state)
{
	begin();
	for (size_t i = 0; i + 1 < ARRAY_LEN(CODES); i++) {
		char want[128];
		uint8_t body[16] = { 0, 0, 0, 0, 4, 0x0a, 2, '0', '0' };
		snprintf((char *)body + 7, 4, "%02d", CODES[i].code);
		struct client *c = post(UNARY, "application/grpc-web+proto", body, 9, CLOSE);
		const char *got = answered(c, "200");
		assert_int_equal((uint8_t)got[0], 0x80);
		snprintf(want, sizeof(want), "grpc-status:%d\r\ngrpc-message:why \"%%0A%%C3%%B6\"\r\n", CODES[i].code);
		assert_memory_equal(got + 5, want, strlen(want));
		client_free(c);
	}
	end();
}

/* ---- streams and bodies that are bounded ---- */

/* A reader that takes its time: the sender is told to wait, and all comes in the end. */
static void slow_reader(void **state)
{
	T.limits.stream_queue = 50000;
	T.messages = 300;
	begin();
	struct client *c = post(STREAM, "application/connect+proto", "\0\0\0\0\0", 5, CLOSE);
	stream_want(c->s, 0);
	turns_for(T.loop, 30 * NS_PER_MS);
	assert_true(T.messages > 200);
	assert_int_equal(T.ended, 0);
	stream_want(c->s, LOOP_READ);
	TURNS_UNTIL(T.loop, c->over);
	assert_int_equal(T.messages, 0);
	assert_int_equal(T.finished, 1);
	assert_true(T.most_queued <= 50000);
	assert_true(c->n > 300 * 10000);
	assert_memory_equal(c->got + c->n - 5, "0\r\n\r\n", 5);
	client_free(c);
	end();
}

static void reader_that_takes_nothing(void **state)
{
	T.http1_limits.blocked_output_ns = 30 * NS_PER_MS;
	T.messages = 300;
	begin();
	struct client *c = post(STREAM, "application/connect+proto", "\0\0\0\0\0", 5, "");
	stream_want(c->s, 0);
	TURNS_UNTIL(T.loop, T.ended);
	assert_int_equal(T.finished, 0);
	client_free(c);
	end();
}

static void reader_that_leaves(void **state)
{
	T.hold = true;
	begin();
	struct client *c = post(UNARY, "application/json", "{}", 2, "");
	TURNS_UNTIL(T.loop, T.held);
	client_free(c);
	TURNS_UNTIL(T.loop, T.ended);
	assert_int_equal(T.finished, 0);
	end();
}

static void body_that_stops_coming(void **state)
{
	T.limits.body_ns = 30 * NS_PER_MS;
	begin();
	struct client *c = said("POST " UNARY " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{");
	assert_non_null(strstr(answered(c, "504"), "stopped coming"));
	client_free(c);
	end();
}

/* No more of a body is held than the limit of messages, nor read than is wanted. */
static void long_bodies(void **state)
{
	static char many[60000];
	static const char too_large[] = "\"ChFNRVNTQUdFX1RPT19MQVJHRR"; /* reason: MESSAGE_TOO_LARGE */
	T.limits.max_message = 100000;
	begin();
	memset(many, ' ', sizeof(many));
	struct client *c = said("POST " UNARY " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
				"fffffff\r\n");
	for (int i = 0; i < 50 && !c->over; i++) {
		struct iovec v = { many, sizeof(many) };
		(void)!stream_writev(c->s, &v, 1);
		loop_turn(T.loop, false);
	}
	/* How much it would have been nobody knows. */
	const char *error = answered(c, "429");
	assert_non_null(strstr(error, "\"message of more bytes than the limit, which is 100000 (not compressed)\""));
	assert_non_null(strstr(error, too_large));
	assert_int_equal(T.ended, 0);
	client_free(c);
	c = said("POST " UNARY " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100001\r\n\r\n");
	error = answered(c, "429");
	assert_non_null(strstr(error, "\"message of 100001 bytes; the limit is 100000\""));
	assert_non_null(strstr(error, too_large));
	client_free(c);
	end();
}

/* A server that goes before the calls do. */
static void freed_under_a_call(void **state)
{
	T.hold = true;
	begin();
	struct client *c = post(UNARY, "application/json", "{}", 2, "");
	TURNS_UNTIL(T.loop, T.held);
	grpc_server_free(T.server);
	assert_int_equal(T.ended, 1);
	TURNS_UNTIL(T.loop, c->over);
	http1_server_free(T.http1);
	loop_turn(T.loop, false);
	client_free(c);
	loop_turn(T.loop, false);
	loop_free(T.loop);
}

static void drained_with_a_word(void **state)
{
	T.hold = true;
	begin();
	struct client *c = post(UNARY, "application/json", "{}", 2, "");
	TURNS_UNTIL(T.loop, T.held);
	http1_server_drain(T.http1, loop_now_mono_ns(T.loop) + 20 * NS_PER_S, NULL);
	grpc_server_drain(T.server, loop_now_mono_ns(T.loop), NULL);
	assert_non_null(strstr(answered(c, "503"), "shutting down"));
	assert_non_null(strstr(c->got, "connection: close\r\n"));
	client_free(c);
	end();
}

/* ---- the parts ---- */

static void types(void **state)
{
	static const struct {
		const char *type;
		const struct dialect *dialect;
	} cases[] = {
		{ "application/grpc", &dialect_grpc },
		{ "application/grpc+proto", &dialect_grpc },
		{ "Application/GRPC;a=b", &dialect_grpc },
		{ "application/grpc+json", NULL },
		{ "application/grpcx", NULL },
		{ "application/grpc-web", &dialect_web },
		{ "application/grpc-web+proto", &dialect_web },
		{ "application/grpc-web-text", NULL },
		{ "application/grpc-web-text+proto", NULL },
		{ "application/json", &dialect_connect_json },
		{ "application/json; charset=utf-8", &dialect_connect_json },
		{ "application/json;charset=\"UTF-8\"", &dialect_connect_json },
		{ "application/json; charset=utf-16", NULL },
		{ "application/json; charset=utf16", NULL },
		{ "application/json; charset=utf-88", NULL },
		{ "application/proto", &dialect_connect_proto },
		{ "application/connect+json", &dialect_connect_stream_json },
		{ "application/connect+proto", &dialect_connect_stream_proto },
		{ "application/connect", NULL },
		{ "text/plain", NULL },
		{ "", NULL },
		{ NULL, NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (dialect_of_type(cases[i].type) != cases[i].dialect)
			fail_msg("%s", cases[i].type);
}

static void timeouts(void **state)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused */
	} cases[] = { { "1", 1 }, { "0", 1 }, { "1500", 1500 }, { "9999999999", 9999999999 }, { "0000000001", 1 }, { "12345678901", -1 },
		      { "", -1 }, { "-1", -1 }, { "+1", -1 }, { "1s", -1 }, { " 1", -1 }, { "1.5", -1 } };
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t ns = -1;
		int rc = connect_parse_timeout(cases[i].text, &ns);
		assert_int_equal(rc == 0, cases[i].ms >= 0);
		assert_int_equal(ns, cases[i].ms >= 0 ? cases[i].ms * NS_PER_MS : -1);
	}
}

static void queries(void **state)
{
	static const struct {
		const char *query;
		int code;         /* 0: good */
		const char *message;
	} cases[] = {
		{ "connect=v1&encoding=json&message=%7b%7D", 0, "{}" },
		{ "message=a+b%2Bc&encoding=json", 0, "a b+c" },
		{ "encoding=proto&base64=1&message=_-8", 0, "\xff\xef" },
		{ "encoding=proto&base64=1&message=%2F%2b8%3D", 0, "\xff\xef" },
		{ "encoding=json&message=&base64=1", 0, "" },
		{ "encoding=json&message=", 0, "" },
		{ "encoding=json&message=x&base64=0&other&y=z", 0, "x" },
		{ "encoding=json&message=x&compression=identity", 0, "x" },
		{ "encoding=json", 3, NULL },
		{ "encoding=json&message", 3, NULL },
		{ "message={}", 3, NULL },
		{ "encoding=xml&message={}", 3, NULL },
		{ "encoding=json&message=%", 3, NULL },
		{ "encoding=json&message=%4", 3, NULL },
		{ "encoding=json&message=%4g", 3, NULL },
		{ "encoding=js%00on&message=x", 3, NULL },
		{ "encoding=json&message=!&base64=1", 3, NULL },
		{ "encoding=json&message=x&connect=v2", 3, NULL },
		{ "encoding=json&message=x&compression=br", 12, NULL },
		{ "", 3, NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct query q;
		struct buf b;
		struct refusal r = { .code = STATUS_OK };
		buf_init(&b, 1000);
		int rc = query_parse(cases[i].query, &q, &b, &r);
		if ((rc == 0 ? 0 : (int)r.code) != cases[i].code)
			fail_msg("%s: %d", cases[i].query, (int)r.code);
		if (cases[i].message) {
			assert_int_equal(buf_len(&b), strlen(cases[i].message));
			assert_memory_equal(buf_len(&b) ? (const char *)buf_head(&b) : "", cases[i].message, buf_len(&b));
		}
		buf_done(&b);
	}
}

static void gzip_and_back(void **state)
{
	static uint8_t text[200000];
	struct buf z, back;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * i >> 9);
	buf_init(&z, SIZE_MAX / 4);
	buf_init(&back, SIZE_MAX / 4);
	assert_int_equal(gzip_deflate(text, sizeof(text), &z), 0);
	assert_true(buf_len(&z) < sizeof(text));
	assert_int_equal(gzip_inflate(buf_head(&z), buf_len(&z), sizeof(text), &back), 0);
	assert_int_equal(buf_len(&back), sizeof(text));
	assert_memory_equal(buf_head(&back), text, sizeof(text));
	buf_clear(&back);
	assert_int_equal(gzip_inflate(buf_head(&z), buf_len(&z), sizeof(text) - 1, &back), -EMSGSIZE);
	assert_true(buf_len(&back) < sizeof(text) + 20000);
	for (size_t n = 0; n < buf_len(&z); n += 997) {
		buf_clear(&back);
		assert_int_equal(gzip_inflate(buf_head(&z), n, sizeof(text), &back), -EBADMSG);
	}
	/* Nothing may follow it. */
	buf_clear(&back);
	assert_int_equal(buf_add(&z, "", 1), 0);
	assert_int_equal(gzip_inflate(buf_head(&z), buf_len(&z), sizeof(text), &back), -EBADMSG);
	/* What would not get shorter stays. */
	uint8_t noise[2000];
	uint32_t seed = 7;
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
	buf_clear(&z);
	assert_int_equal(gzip_deflate(noise, sizeof(noise), &z), -ENOBUFS);
	assert_int_equal(buf_len(&z), 0);
	buf_done(&z);
	buf_done(&back);
}

static void lists_of_encodings(void **state)
{
	static const char *const yes[] = { "gzip", "identity, gzip", "br,gzip;q=0.5", "deflate , GZIP", "gzip;q=1" };
	static const char *const no[] = { "", "identity", "gzipx", "xgzip", "gzip;q=0", "gzip; q=0.000, br", "br;q=1" };
	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		assert_true(gzip_listed(yes[i]));
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		assert_false(gzip_listed(no[i]));
	assert_false(gzip_listed(NULL));
}

static int take_body(const struct http1_head *h, const char *text, size_t len, size_t cut, char *ret, size_t *ret_rest)
{
	struct http1_body b;
	struct buf in, out;
	int rc = 0;
	buf_init(&in, 1 << 16);
	buf_init(&out, 1 << 16);
	http1_body_init(&b, h);
	for (size_t at = 0; rc == 0 && at < len; at += cut) {
		assert_int_equal(buf_add(&in, text + at, min_sz(cut, len - at)), 0);
		rc = http1_body_take(&b, &in, &out, SIZE_MAX);
	}
	if (rc == 0 && !http1_body_done(&b))
		rc = 1;
	snprintf(ret, 100, "%.*s", (int)buf_len(&out), (const char *)buf_head(&out));
	*ret_rest = buf_len(&in);
	buf_done(&in);
	buf_done(&out);
	return rc;
}

/* However it is cut into pieces. */
static void bodies(void **state)
{
	static const struct {
		const char *text, *body;
		int rc;      /* 1: more is wanted */
		size_t rest; /* is the next request's */
	} cases[] = {
		{ "3\r\nabc\r\n0\r\n\r\nGET", "abc", 0, 3 },
		{ "1\r\na\r\n2;x=\"y\"\r\nbc\r\n0;z\r\nA: b\r\nC: d\r\n\r\n", "abc", 0, 0 },
		{ "0000000A \t\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0, 0 },
		{ "0\r\n\r\n", "", 0, 0 },
		{ "3\r\nab", "ab", 1, 0 },
		{ "3\r\nabc\r\n0\r\n", "abc", 1, 0 },
		{ "3\nabc\r\n0\r\n\r\n", "", -EBADMSG, 0 },
		{ "3\r\nabcd\r\n0\r\n\r\n", "abc", -EBADMSG, 0 },
		{ "3\r\nabc\n0\r\n\r\n", "abc", -EBADMSG, 0 },
		{ "3\r\nabc\r\r\n0\r\n\r\n", "abc", -EBADMSG, 0 },
		{ "3\rxabc\r\n0\r\n\r\n", "", -EBADMSG, 0 },
		{ "3\r\nabc\rx0\r\n\r\n", "abc", -EBADMSG, 0 },
		{ "\r\n", "", -EBADMSG, 0 },
		{ " 3\r\nabc\r\n", "", -EBADMSG, 0 },
		{ "0x3\r\nabc\r\n", "", -EBADMSG, 0 },
		{ "-3\r\nabc\r\n", "", -EBADMSG, 0 },
		{ "100000000\r\n", "", -EBADMSG, 0 },
		/* what stands behind the size begins with a semicolon: others may take the digits together */
		{ "3 \t;x\r\nabc\r\n0\r\n\r\n", "abc", 0, 0 },
		{ "3 3\r\nabc\r\n0\r\n\r\n", "", -EBADMSG, 0 },
		{ "3\tx\r\nabc\r\n0\r\n\r\n", "", -EBADMSG, 0 },
		{ "3\r\nabc\r\n0\r\nA: \1\r\n\r\n", "abc", -EBADMSG, 0 },
		{ "3\r\nabc\r\n0\r\nA: b\n\r\n", "abc", -EBADMSG, 0 },
	};
	const struct http1_head chunked = { .has_body = true, .chunked = true }, five = { .has_body = true, .length = 5 };
	char got[100];
	size_t rest;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (size_t cut = 1; cut <= strlen(cases[i].text); cut++) {
			int rc = take_body(&chunked, cases[i].text, strlen(cases[i].text), cut, got, &rest);
			if (rc != cases[i].rc || strcmp(got, cases[i].body) != 0)
				fail_msg("%zu by %zu: %d \"%s\"", i, cut, rc, got);
			if (rc == 0)
				assert_int_equal(rest, cases[i].rest);
		}
	assert_int_equal(take_body(&five, "abcdeGET", 8, 8, got, &rest), 0);
	assert_string_equal(got, "abcde");
	assert_int_equal(rest, 3);
	assert_int_equal(take_body(&five, "abcd", 4, 1, got, &rest), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(codes_of_connect, set_up),
		cmocka_unit_test_setup(good_ends, set_up),
		cmocka_unit_test_setup(codes_of_grpc_web, set_up),
		cmocka_unit_test_setup(slow_reader, set_up),
		cmocka_unit_test_setup(reader_that_takes_nothing, set_up),
		cmocka_unit_test_setup(reader_that_leaves, set_up),
		cmocka_unit_test_setup(body_that_stops_coming, set_up),
		cmocka_unit_test_setup(long_bodies, set_up),
		cmocka_unit_test_setup(freed_under_a_call, set_up),
		cmocka_unit_test_setup(drained_with_a_word, set_up),
		cmocka_unit_test(types),
		cmocka_unit_test(timeouts),
		cmocka_unit_test(queries),
		cmocka_unit_test(gzip_and_back),
		cmocka_unit_test(lists_of_encodings),
		cmocka_unit_test(bodies),
	};
	return cmocka_run_group_tests_name("dialects", tests, NULL, NULL);
}
