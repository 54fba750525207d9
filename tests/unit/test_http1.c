/* HTTP/1.1: what a head may be and what is refused, and a server on an in-memory pair: its bounds, its order, its ends. */
#include "common/http1/http1.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/http1_client.h"

/* ---- heads ---- */

static int parse(const char *text, struct http1_head *h)
{
	const char *why = "";
	size_t scanned = 0;
	ssize_t n = http1_head_end(text, strlen(text), &scanned);
	if (n <= 0)
		return n == 0 ? 1 : 400;
	assert_int_equal(n, strlen(text));
	int status = http1_head_parse(text, (size_t)n, h, &why);
	if (status)
		assert_true(strlen(why) > 5);
	return status;
}

static void good_heads(void **state)
{
	static const struct {
		const char *text, *path;
		enum http1_method method;
		bool keep_alive, body;
	} cases[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "/", HTTP1_GET, true, false },
		{ "HEAD /metrics?x=1&y HTTP/1.1\r\nhost:a\r\n\r\n", "/metrics", HTTP1_HEAD, true, false },
		{ "GET /metrics HTTP/1.0\r\n\r\n", "/metrics", HTTP1_GET, false, false },
		{ "GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "/metrics", HTTP1_GET, true, false },
		{ "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "/a", HTTP1_GET, false, false },
		{ "GET http://a:1/b/c?d HTTP/1.1\r\nHost: x\r\n\r\n", "/b/c", HTTP1_GET, true, false },
		{ "GET http://a HTTP/1.1\r\nHost: x\r\n\r\n", "/", HTTP1_GET, true, false },
		{ "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "*", HTTP1_OTHER, true, false },
		{ "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", "/a", HTTP1_OTHER, true, true },
		{ "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 000\r\n\r\n", "/a", HTTP1_GET, true, false },
		{ "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n", "/a", HTTP1_GET, true, true },
		{ "GET /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", "/a", HTTP1_GET, true, false },
		/* what curl --http2 sends: the offer is passed over */
		{ "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n", "/a",
		  HTTP1_GET, true, false },
		{ "GET /a HTTP/1.1\r\nHost: x\r\nX-Odd: \t caf\xc3\xa9 \xff\t\r\nX-Empty:\r\n\r\n", "/a", HTTP1_GET, true, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct http1_head h;
		int status = parse(cases[i].text, &h);
		if (status)
			fail_msg("%zu: %d", i, status);
		assert_int_equal(h.path_len, strlen(cases[i].path));
		assert_memory_equal(h.path, cases[i].path, h.path_len);
		assert_int_equal(h.method, cases[i].method);
		assert_int_equal(h.keep_alive, cases[i].keep_alive);
		assert_int_equal(h.has_body, cases[i].body);
	}
}

static void bad_heads(void **state)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		/* where two parsers may differ about where a request ends */
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\n Content-Length: 1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n X: b\r\nHost: a\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 501 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501 },
		{ "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
		/* lines */
		{ "GET / HTTP/1.1\nHost: a\n\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400 },
		/* fields */
		{ "GET / HTTP/1.1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400 },
		{ "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nExpect: the-unexpected\r\n\r\n", 417 },
		/* the request line */
		{ "\r\n\r\n", 400 },
		{ "GET\r\n\r\n", 400 },
		{ "GET /\r\n\r\n", 400 },
		{ "GET / \r\n\r\n", 400 },
		{ "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400 },
		{ "GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505 },
		{ "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505 },
		{ "GET / HTTP/1.11\r\nHost: a\r\n\r\n", 400 },
		{ "GET / http/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
		{ "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501 },
		{ "get / HTTP/1.1\r\nHost: a\r\n\r\n", 501 },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct http1_head h;
		int status = parse(cases[i].text, &h);
		if (status != cases[i].status)
			fail_msg("%zu: %d instead of %d: %s", i, status, cases[i].status, cases[i].text);
	}
	size_t scanned = 0;
	assert_int_equal(http1_head_end("GET /\0", 6, &scanned), -EBADMSG);
}

static void too_many_fields(void **state)
{
	char text[4096];
	struct http1_head h;
	int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");
	for (int i = 1; i < HTTP1_FIELDS_MAX; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "a: b\r\n");
	char more[4200];
	snprintf(more, sizeof(more), "%s\r\n", text);
	assert_int_equal(parse(more, &h), 0);
	snprintf(more, sizeof(more), "%sa: b\r\n\r\n", text);
	assert_int_equal(parse(more, &h), 400);
}

/* However it is cut into pieces. */
static void heads_in_pieces(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
	size_t len = sizeof(text) - 4;
	for (size_t cut = 0; cut < len; cut++) {
		size_t scanned = 0;
		assert_int_equal(http1_head_end(text, cut, &scanned), 0);
		assert_int_equal(http1_head_end(text, cut, &scanned), 0);
		assert_int_equal(http1_head_end(text, sizeof(text) - 1, &scanned), len);
	}
}

/* ---- the server ---- */

static struct {
	struct loop *loop;
	struct http1_server *server;
	struct http1_limits limits;
	size_t page;       /* bytes of /page */
	int answered, drained;
	char logged[200];
} T;

static void on_page(void *app, struct http1_reply *r)
{
	T.answered++;
	for (size_t i = 0; i < T.page; i++)
		assert_int_equal(buf_add(&r->body, "x", 1), 0);
}

static void on_busy(void *app, struct http1_reply *r) { r->status = 503; }

static const struct http1_route routes[] = {
	{ "/page", HTTP1_GET | HTTP1_HEAD, on_page },
	{ "/busy", HTTP1_GET | HTTP1_HEAD, on_busy },
};

static void on_log(void *app, const char *peer, const char *text) { snprintf(T.logged, sizeof(T.logged), "%s", text); }
static void on_drained(void *app) { T.drained++; }

static void begin(void)
{
	assert_int_equal(loop_new(&T.loop), 0);
	struct http1_server_config cfg = { .limits = T.limits, .routes = routes, .n_routes = ARRAY_LEN(routes), .about = "about",
					   .on_log = on_log };
	assert_int_equal(http1_server_new(T.loop, &cfg, &T.server), 0);
	T.logged[0] = '\0';
	T.answered = T.drained = 0;
	T.page = 3;
}

static int set_up(void **state)
{
	http1_limits_default(&T.limits);
	return 0;
}

static void end(void)
{
	http1_server_free(T.server);
	loop_turn(T.loop, false);
	loop_free(T.loop);
}

static struct client *client(const void *first, size_t len, size_t cap) { return client_new(T.loop, T.server, first, len, cap); }

static struct client *ask(const char *text) { return client(text, strlen(text), 1 << 16); }

static void say(struct client *c, const char *text)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) };
	assert_int_equal(stream_writev(c->s, &v, 1), (ssize_t)v.iov_len);
}

static int count(const char *text, const char *word)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
		n++;
	return n;
}

static int64_t connections(void)
{
	struct http1_stats s;
	http1_server_stats(T.server, &s);
	return s.connections;
}

#define GET_PAGE "GET /page HTTP/1.1\r\nHost: a\r\n\r\n"

static void answers(void **state)
{
	begin();
	struct client *c = ask(GET_PAGE);
	TURNS_UNTIL(T.loop, strstr(c->got, "\r\n\r\nxxx"));
	assert_memory_equal(c->got, "HTTP/1.1 200 OK\r\ndate: ", 23);
	assert_non_null(strstr(c->got, "content-length: 3\r\n"));
	assert_null(strstr(c->got, "connection: close"));
	c->n = 0;
	say(c, "HEAD /page HTTP/1.1\r\nHost: a\r\n\r\nGET /busy HTTP/1.1\r\nHost: a\r\n\r\n");
	TURNS_UNTIL(T.loop, strstr(c->got, "503 Service Unavailable"));
	assert_non_null(strstr(c->got, "content-length: 3\r\n"));
	assert_null(strstr(c->got, "xxx"));
	c->n = 0;
	say(c, "GET /pag HTTP/1.1\r\nHost: a\r\n\r\nPOST /page HTTP/1.1\r\nHost: a\r\n\r\n");
	TURNS_UNTIL(T.loop, strstr(c->got, "405 Method"));
	assert_non_null(strstr(c->got, "404 Not Found"));
	assert_non_null(strstr(c->got, "about\n"));
	assert_non_null(strstr(c->got, "allow: GET, HEAD\r\n"));
	assert_false(c->over);
	c->n = 0;
	say(c, "\r\nGET /page HTTP/1.0\r\n\r\n");
	TURNS_UNTIL(T.loop, c->over);
	assert_non_null(strstr(c->got, "connection: close\r\n"));
	assert_int_equal(T.logged[0], 0);
	client_free(c);
	end();
}

/* What follows a body is no request: it may be the body's. */
static void bodies(void **state)
{
	static const char *const requests[] = {
		"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" GET_PAGE,
		"GET /page HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET_PAGE,
		"GET /page HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n" GET_PAGE,
	};
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		begin();
		struct client *c = ask(requests[i]);
		TURNS_UNTIL(T.loop, c->over);
		assert_non_null(strstr(c->got, "413 "));
		assert_int_equal(count(c->got, "HTTP/1.1 "), 1);
		assert_int_equal(T.answered, 0);
		client_free(c);
		end();
	}
}

static void malformed(void **state)
{
	begin();
	struct client *c = ask(GET_PAGE "GET /page HTTP/1.1\nHost: a\n\n" GET_PAGE);
	TURNS_UNTIL(T.loop, c->over);
	assert_int_equal(count(c->got, "HTTP/1.1 200"), 1);
	assert_int_equal(count(c->got, "HTTP/1.1 400"), 1);
	assert_int_equal(count(c->got, "HTTP/1.1 "), 2);
	assert_non_null(strstr(T.logged, "bare"));
	client_free(c);
	end();
}

static void long_head(void **state)
{
	begin();
	static char text[HTTP1_HEAD_MAX + 100] = "GET /page HTTP/1.1\r\nHost: a\r\nx: ";
	memset(text + strlen(text), 'y', sizeof(text) - 1 - strlen(text));
	struct client *c = client(text, HTTP1_HEAD_MAX - 1, 1 << 16);
	turns_for(T.loop, 10 * NS_PER_MS);
	assert_int_equal(c->n, 0);
	say(c, "y");
	TURNS_UNTIL(T.loop, c->over);
	assert_non_null(strstr(c->got, "HTTP/1.1 431 "));
	client_free(c);
	end();
}

/* A byte now and then is no head in time. */
static void slow_head(void **state)
{
	T.limits.head_ns = 50 * NS_PER_MS;
	begin();
	struct client *c = ask("G");
	while (!c->over) {
		turns_for(T.loop, 5 * NS_PER_MS);
		if (!c->n)
			say(c, "E");
	}
	assert_non_null(strstr(c->got, "HTTP/1.1 408 "));
	client_free(c);
	end();
}

/* Nor do empty lines begin its time anew; one before each head is passed over. */
static void empty_lines(void **state)
{
	T.limits.head_ns = 50 * NS_PER_MS;
	begin();
	struct client *c = ask("\r\n" GET_PAGE "\r\n" GET_PAGE);
	TURNS_UNTIL(T.loop, count(c->got, "HTTP/1.1 200 ") == 2);
	client_free(c);
	c = ask("\r\n");
	int64_t end_ns = loop_now_mono_ns(T.loop) + 10 * NS_PER_S;
	while (!c->over && loop_now_mono_ns(T.loop) < end_ns) {
		turns_for(T.loop, 20 * NS_PER_MS);
		if (!c->n)
			say(c, "\r\n");
	}
	assert_true(c->over);
	assert_non_null(strstr(c->got, "HTTP/1.1 40"));
	client_free(c);
	end();
}

static void idle_ends(void **state)
{
	T.limits.idle_ns = 30 * NS_PER_MS;
	begin();
	struct client *c = ask(GET_PAGE);
	TURNS_UNTIL(T.loop, c->over);
	assert_int_equal(count(c->got, "HTTP/1.1 "), 1);
	assert_int_equal(connections(), 0);
	client_free(c);
	end();
}

/* Many requests at once are answered in order; of one that does not read, no more than the output holds. */
static void pipelining(void **state)
{
	enum { N = 500 };
	static char text[N * sizeof(GET_PAGE)];
	begin();
	for (int i = 0; i < N; i++)
		memcpy(text + strlen(text), GET_PAGE, sizeof(GET_PAGE));
	struct client *c = client(text, strlen(text), 1 << 16);
	assert_int_equal(T.answered, 4); /* in a turn: others are served too */
	TURNS_UNTIL(T.loop, T.answered == N && c->n > 0 && count(c->got, "xxx") == N);
	client_free(c);

	T.answered = 0;
	T.page = 10000;
	c = client(text, strlen(text), 4096);
	stream_want(c->s, 0);
	turns_for(T.loop, 50 * NS_PER_MS);
	assert_true(T.answered <= 8);
	stream_want(c->s, LOOP_READ);
	TURNS_UNTIL(T.loop, T.answered > 20);
	client_free(c);
	TURNS_UNTIL(T.loop, connections() == 0);
	end();
}

/* The output's limit stops the answers for as long as it holds, not for good: nothing more need come from the client. */
static void pipelined_large_answers(void **state)
{
	begin();
	T.page = 50000;
	struct client *c = client(GET_PAGE GET_PAGE GET_PAGE GET_PAGE GET_PAGE, 5 * strlen(GET_PAGE), 1 << 20);
	TURNS_UNTIL(T.loop, c->over || count(c->got, "HTTP/1.1 200") == 5);
	assert_int_equal(T.answered, 5);
	assert_int_equal(count(c->got, "HTTP/1.1 408"), 0);
	client_free(c);
	end();
}

static void blocked_output(void **state)
{
	T.limits.blocked_output_ns = 50 * NS_PER_MS;
	begin();
	T.page = 100000;
	struct client *c = client(GET_PAGE, strlen(GET_PAGE), 4096);
	stream_want(c->s, 0);
	TURNS_UNTIL(T.loop, T.answered && connections() == 0);
	client_free(c);
	end();
}

/* A half-closed client gets its answers. */
static void half_closed(void **state)
{
	begin();
	struct client *c = ask(GET_PAGE);
	say(c, GET_PAGE "GET /pa");
	stream_shutdown(c->s);
	TURNS_UNTIL(T.loop, c->over);
	assert_int_equal(count(c->got, "xxx"), 2);
	assert_int_equal(connections(), 0);
	client_free(c);
	end();
}

static void last_request(void **state)
{
	T.limits.max_requests = 3;
	begin();
	struct client *c = ask(GET_PAGE GET_PAGE GET_PAGE GET_PAGE);
	TURNS_UNTIL(T.loop, c->over);
	assert_int_equal(count(c->got, "HTTP/1.1 200"), 3);
	assert_int_equal(count(c->got, "connection: close"), 1);
	client_free(c);
	end();
}

/* At the limit the longest idle makes room, then the oldest half of a head: whole requests get through. */
static void limit(void **state)
{
	T.limits.max_connections = 2;
	begin();
	struct client *a = ask(GET_PAGE), *b = ask("GET /pa");
	TURNS_UNTIL(T.loop, strstr(a->got, "xxx"));
	struct client *c = ask("GET /pa");
	TURNS_UNTIL(T.loop, a->over);
	struct client *d = ask(GET_PAGE);
	TURNS_UNTIL(T.loop, strstr(d->got, "xxx"));
	assert_true(b->over);
	assert_int_equal(b->n, 0);
	assert_int_equal(connections(), 2);
	assert_non_null(strstr(T.logged, "too many"));
	say(c, "ge HTTP/1.0\r\n\r\n");
	TURNS_UNTIL(T.loop, strstr(c->got, "xxx"));
	client_free(a);
	client_free(b);
	client_free(c);
	client_free(d);
	end();
}

static void draining(void **state)
{
	begin();
	struct client *idle = ask(GET_PAGE), *busy = ask("GET /page HTTP/1.1\r\nHost");
	TURNS_UNTIL(T.loop, strstr(idle->got, "xxx"));
	http1_server_drain(T.server, INT64_MAX, on_drained);
	TURNS_UNTIL(T.loop, idle->over);
	assert_int_equal(T.drained, 0);
	say(busy, ": a\r\n\r\n");
	TURNS_UNTIL(T.loop, busy->over);
	assert_non_null(strstr(busy->got, "xxx"));
	TURNS_UNTIL(T.loop, T.drained);
	assert_int_equal(T.drained, 1);
	client_free(idle);
	client_free(busy);
	end();
}

/* One sends half a head, one does not read: neither keeps the program from its end. */
static void drained_at_the_deadline(void **state)
{
	T.limits.head_ns = T.limits.blocked_output_ns = 3600 * NS_PER_S;
	begin();
	T.page = 100000;
	struct client *half = ask("GET /page HTTP/1.1\r\nHost"), *deaf = client(GET_PAGE, strlen(GET_PAGE), 1000);
	stream_want(deaf->s, 0);
	TURNS_UNTIL(T.loop, T.answered && connections() == 2);
	http1_server_drain(T.server, loop_now_mono_ns(T.loop), on_drained);
	TURNS_UNTIL(T.loop, T.drained);
	assert_int_equal(connections(), 0);
	client_free(half);
	client_free(deaf);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_heads),
		cmocka_unit_test(bad_heads),
		cmocka_unit_test(too_many_fields),
		cmocka_unit_test(heads_in_pieces),
		cmocka_unit_test_setup(answers, set_up),
		cmocka_unit_test_setup(bodies, set_up),
		cmocka_unit_test_setup(malformed, set_up),
		cmocka_unit_test_setup(long_head, set_up),
		cmocka_unit_test_setup(slow_head, set_up),
		cmocka_unit_test_setup(empty_lines, set_up),
		cmocka_unit_test_setup(idle_ends, set_up),
		cmocka_unit_test_setup(pipelining, set_up),
		cmocka_unit_test_setup(pipelined_large_answers, set_up),
		cmocka_unit_test_setup(blocked_output, set_up),
		cmocka_unit_test_setup(half_closed, set_up),
		cmocka_unit_test_setup(last_request, set_up),
		cmocka_unit_test_setup(limit, set_up),
		cmocka_unit_test_setup(draining, set_up), cmocka_unit_test_setup(drained_at_the_deadline, set_up),
	};
	return cmocka_run_group_tests_name("http1", tests, NULL, NULL);
}
