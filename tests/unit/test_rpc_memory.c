/* Every allocation on the way of a call fails once: from an accepted connection through HTTP/2 (the library's too), gzip,
 * dialects and handlers to the end of the connection.  What may come of it is a refusal, a reset stream or a lost
 * connection; what may not is a crash, a leak, a call whose on_end does not come, or a server that is worse off afterwards.
 *
 * Left out are those that end the process by design (common/base/base.h).  The services on a store are in
 * test_handlers_memory.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/grpc/server.h"
#include "common/h2/h2.h"
#include "server/rpc/rpc.h"
#include "tests/unit/failing_memory.h"
#include "tests/unit/h2_raw.h"

/* ---- a server: echoes, and reflection as it is ---- */

static struct {
	struct loop *loop;
	struct rpc rpc;
	struct grpc_server *server;
	struct stream *s;
	struct buf got;
	bool ended;
	int told, over;
} T;

static void echo_request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	T.told++;
	if (len && data[0] == '!') {
		struct refusal r;
		(void)refuse(&r, STATUS_NOT_FOUND, "a.b", "no");
		(void)refuse_resource(&r, "task", "t");
		r.retry_after_ms = 5;
		grpc_call_finish(c, &r);
		return;
	}
	grpc_call_finish(c, grpc_call_send(c, data, len) ? &(struct refusal){ .code = STATUS_UNAVAILABLE } : NULL);
}

static void bidi_start(struct grpc_call *c) { T.told++; }
static void bidi_message(struct grpc_call *c, const uint8_t *data, size_t len)
{
	for (int i = 0; i < 20; i++) /* -EAGAIN and -EPIPE are as good here */
		if (grpc_call_send(c, data, len))
			break;
}
static void bidi_half_close(struct grpc_call *c) { grpc_call_finish(c, NULL); }
static void on_end(struct grpc_call *c, bool finished) { T.over++; }

static void reflect_start(struct grpc_call *c)
{
	T.told++;
	reflection_on_start(c);
}

static void reflect_end(struct grpc_call *c, bool finished)
{
	T.over++;
	reflection_on_end(c, finished);
}

static const struct grpc_method METHODS[] = {
	{ .path = "/test.Echo/Unary", .shape = GRPC_UNARY, .on_request = echo_request, .on_end = on_end },
	{ .path = "/test.Echo/Bidi", .shape = GRPC_BIDI, .on_start = bidi_start, .on_message = bidi_message,
	  .on_half_close = bidi_half_close, .on_end = on_end },
	{ .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", .shape = GRPC_BIDI, .on_start = reflect_start,
	  .on_message = reflection_on_message, .on_writable = reflection_on_writable,
	  .on_half_close = reflection_on_half_close, .on_end = reflect_end },
};

/* ---- a client: bytes that were made before ---- */

#define MESSAGE(id, end, bytes) raw_frame(r, NGHTTP2_DATA, (end) ? NGHTTP2_FLAG_END_STREAM : 0, id, bytes, sizeof(bytes) - 1)
#define HEAD ":method", "POST", ":scheme", "http", ":authority", "a"
/* 3,000 times "a" */
#define GZIP "\x1f\x8b\x08\0\0\0\0\0\x02\x03\xed\xc1\x31\x01\0\0\0\xc2\xa0\xac\xeb\x5f\xc2\x1a\x1e\x40\x01\0\0\xef\x06\xc8\x3c\xdc\x5e\xb8\x0b\0\0"

static void script(struct raw *r)
{
	static const char reflect[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
	static char large[17000];
	memset(large, 'x', sizeof(large) - 1);
	raw_request(r, 1, 0, "/test.Echo/Unary");
	MESSAGE(1, true, "\0\0\0\0\2ab");
	raw_request(r, 3, 0, "/test.Echo/Unary");
	MESSAGE(3, true, "\0\0\0\0\1!");
	raw_request(r, 5, 0, "/test.Echo/Bidi");
	MESSAGE(5, false, "\0\0\0\0\2ab\0\0\0\0\2cd\0\0");
	MESSAGE(5, true, "\0\0\1e");
	raw_headers(r, 7, 0, HEAD, ":path", "/test.Echo/Unary", "content-type", "application/grpc", "grpc-encoding", "gzip",
		    "grpc-accept-encoding", "gzip", "grpc-timeout", "20S", NULL);
	MESSAGE(7, true, "\1\0\0\0\x27" GZIP);
	raw_headers(r, 9, 0, HEAD, ":path", "/test.Echo/Unary", "content-type", "application/grpc-web+proto", NULL);
	MESSAGE(9, true, "\0\0\0\0\2ab");
	raw_request(r, 11, 0, "/test.Echo/None");
	raw_headers(r, 13, NGHTTP2_FLAG_END_STREAM, HEAD, ":path", "/x", "content-type", "text/plain", NULL);
	raw_headers(r, 15, 0, HEAD, ":path", "/test.Echo/Unary", "content-type", "application/grpc", "x-large", large, NULL);
	raw_request(r, 17, 0, reflect);
	MESSAGE(17, false, "\0\0\0\0\x0e\x22\x0creins.v1.Task");
	MESSAGE(17, false, "\0\0\0\0\2\x3a\0");
	MESSAGE(17, true, "\0\0\0\0\3\x22\1x");
	raw_request(r, 19, 0, "/test.Echo/Unary");
	MESSAGE(19, false, "\0\0\0\0\7ab");
	raw_rst(r, 19, 8);
	raw_request(r, 21, 0, "/test.Echo/Bidi"); /* open at the end */
	MESSAGE(21, false, "\0\0\0\0\1a");
}

static void on_ready(void *arg, int events)
{
	T.ended = memory_apart_read(T.s, &T.got);
}

static void turns(int n)
{
	while (n--)
		loop_turn(T.loop, false);
}

/* Streams that ended well. */
static int ends(void)
{
	struct raw_seen f = { 0 };
	int n = 0;
	while (raw_next(&T.got, &f))
		n += (f.type == NGHTTP2_HEADERS || f.type == NGHTTP2_DATA) && (f.flags & NGHTTP2_FLAG_END_STREAM);
	return n;
}

/* All of the script, in pieces; the number of streams that ended well. */
static int talk(const struct raw *r)
{
	static const struct stream_events events = { .on_ready = on_ready }, none;
	struct stream *server_end;
	size_t at = 0, len = buf_len(&r->out);
	T.told = T.over = 0;
	T.ended = false;
	buf_init(&T.got, 1 << 24);
	assert_int_equal(stream_pair(T.loop, 1 << 20, &events, &T, &none, NULL, &T.s, &server_end), 0);
	stream_want(T.s, LOOP_READ);
	M.n = 0;
	M.armed = true;
	if (grpc_server_adopt(T.server, server_end) < 0) {
		memory_exempt++;
		stream_close(server_end);
		memory_exempt--;
	}
	while (at < len) {
		struct iovec iov = { (void *)(uintptr_t)(buf_head(&r->out) + at), min_sz(len - at, 700) };
		memory_exempt++;
		ssize_t n = stream_writev(T.s, &iov, 1);
		memory_exempt--;
		if (n < 0 && n != -EAGAIN)
			break;
		at += n > 0 ? (size_t)n : 0;
		turns(2);
	}
	turns(10);
	M.armed = false;
	int n = ends();
	stream_close(T.s);
	turns(4);
	buf_done(&T.got);
	struct grpc_server_stats stats;
	grpc_server_stats(T.server, &stats);
	assert_int_equal(T.told, T.over);
	assert_int_equal(stats.calls_open, 0);
	assert_int_equal(stats.connections, 0);
	assert_int_equal(T.rpc.reflections, 0);
	return n;
}

static void server_up(void)
{
	struct grpc_server_config cfg = { .methods = METHODS, .n_methods = ARRAY_LEN(METHODS), .app = &T.rpc, .max_connections = 9 };
	grpc_limits_default(&cfg.limits);
	assert_int_equal(grpc_server_new(T.loop, &cfg, &T.server), 0);
}

static void server_down(void)
{
	grpc_server_free(T.server);
	turns(2);
}

static void sweep(bool for_good)
{
	struct raw r;
	raw_init(&r, true);
	script(&r);
	M.for_good = for_good;
	M.at = INT64_MAX;
	server_up();
	int all = talk(&r);
	assert_int_equal(all, 9);
	server_down();
	int64_t total = M.n, live = 0, abandoned = h2_abandoned(), n_abandoned = 0;
	for (int64_t at = 1; at <= total; at++) {
		/* A server of its own, so that nothing kept for later hides an allocation. */
		if (at == 2)
			live = M.live;
		server_up();
		M.at = at;
		int n = talk(&r);
		assert_true(n <= all + 2); /* two are open or were reset, and may end for want of memory */
		/* And now with memory again. */
		M.at = INT64_MAX;
		assert_int_equal(talk(&r), all);
		server_down();
		if (h2_abandoned() > abandoned) { /* with what it holds; h2_free says why */
			abandoned = h2_abandoned();
			live = M.live;
			n_abandoned++;
		}
		if (memory_is_counted && at > 1 && M.live != live)
			fail_msg("%lld allocations stay when number %lld of %lld fails", (long long)(M.live - live), (long long)at, (long long)total);
	}
	assert_true(n_abandoned < total);
	print_message("# %lld allocations; %lld sessions of the library stay\n", (long long)total, (long long)n_abandoned);
	assert_true(total > 60);
	raw_done(&r);
}

static void each_allocation_fails_once(void **state) { sweep(false); }
static void from_each_allocation_on_all_fail(void **state) { sweep(true); }

static int set_up(void **state)
{
	assert_int_equal(loop_new(&T.loop), 0);
	T.rpc = (struct rpc){ .loop = T.loop };
	rpc_init(&T.rpc);
	return 0;
}

static int tear_down(void **state)
{
	rpc_done(&T.rpc);
	turns(2);
	loop_free(T.loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_allocation_fails_once),
					    cmocka_unit_test(from_each_allocation_on_all_fail) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
