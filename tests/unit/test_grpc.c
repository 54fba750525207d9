/* Server and client of common/grpc against each other: each test over an in-memory pair, TCP and TLS. */
#include "tests/unit/grpc_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

static enum over TCP = OVER_TCP, TLS = OVER_TLS;
static enum over over(void **state) { return *state ? *(enum over *)*state : OVER_PAIR; }


static void check_ok(const struct seen *s, const void *bytes, size_t len)
{
	assert_string_equal(s->status.message, "");
	assert_int_equal(s->status.code, STATUS_OK);
	assert_int_equal(buf_len(&s->bytes), len);
	if (len)
		assert_memory_equal(buf_head(&s->bytes), bytes, len);
}

static void unary(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("hello")), 0);
	until(&r, s.done);
	check_ok(&s, SPAN_S("hello"));
	assert_int_equal(s.messages, 1);
	until(&r, r.ended == 1);
	assert_int_equal(r.finished, 1);
	seen_done(&s);
	rig_done(&r);
}

static void unary_empty_and_large(void **state)
{
	static uint8_t big[4 * 1024 * 1024];
	static const size_t sizes[] = { 0, 1, 16384, 65536, 300000, sizeof(big) };
	struct rig r;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 31 >> 3);
	rig_init(&r, NULL, NULL, over(state));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct seen s;
		seen_init(&s, &r);
		start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
		assert_int_equal(grpc_client_send(s.call, big, sizes[i]), 0);
		until(&r, s.done);
		check_ok(&s, big, sizes[i]);
		seen_done(&s);
	}
	rig_done(&r);
}

static void bidi(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	start(&s, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	until(&r, r.started == 1);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("one")), 0);
	until(&r, s.messages == 1);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("two")), 0);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("")), 0);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("three")), 0);
	grpc_client_half_close(s.call);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("late")), -EPIPE);
	until(&r, s.done);
	check_ok(&s, SPAN_S("onetwothree"));
	assert_int_equal(s.messages, 4);
	assert_int_equal(r.half_closes, 1);
	seen_done(&s);
	rig_done(&r);
}

static void refusal_with_details(void **state)
{
	struct rig r;
	rig_init(&r, NULL, NULL, over(state));
	for (int stream = 0; stream < 2; stream++) {
		struct seen s;
		seen_init(&s, &r);
		start(&s, stream ? "/test.Echo/Bidi" : "/test.Echo/Unary", stream ? GRPC_CALL_STREAM : GRPC_CALL_UNARY,
		      GRPC_NO_DEADLINE);
		assert_int_equal(grpc_client_send(s.call, SPAN_S("!")), 0);
		until(&r, s.done);
		assert_int_equal(s.status.code, STATUS_FAILED_PRECONDITION);
		assert_string_equal(s.status.message, "100% nö: why");
		assert_int_equal(s.status.retry_after_ms, 1500);
		assert_true(s.status.details_len > 50);
		assert_non_null(memmem(s.details, sizeof(s.details), SPAN_S("google.rpc.BadRequest")));
		assert_non_null(memmem(s.details, sizeof(s.details), SPAN_S("a.b")));
		assert_int_equal(s.messages, 0);
		seen_done(&s);
	}
	/* The connection is as good as before. */
	struct seen s;
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("x")), 0);
	until(&r, s.done);
	check_ok(&s, SPAN_S("x"));
	seen_done(&s);
	rig_done(&r);
}

static void unknown_method(void **state)
{
	static const char *const paths[] = { "/test.Echo/None", "/test.echo/Unary", "/test.Echo/Unary/", "/test.Echo/Unary?x", "/" };
	struct rig r;
	rig_init(&r, NULL, NULL, over(state));
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct seen s;
		seen_init(&s, &r);
		/* Answered from the headers: nothing is sent and the stream stays open on our side. */
		start(&s, paths[i], GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
		until(&r, s.done);
		assert_int_equal(s.status.code, STATUS_UNIMPLEMENTED);
		seen_done(&s);
	}
	assert_int_equal(r.ended, 0);
	rig_done(&r);
}

static void deadline_on_the_client(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	r.hold = true;
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, loop_now_mono_ns(r.loop) + 30 * NS_PER_MS);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("x")), 0);
	rig_poll = true;
	until(&r, s.done);
	rig_poll = false;
	assert_int_equal(s.status.code, STATUS_DEADLINE_EXCEEDED);
	until(&r, r.ended == 1);
	assert_int_equal(r.finished, 0);
	seen_done(&s);
	rig_done(&r);
}

static void cancel(void **state)
{
	struct rig r;
	struct seen s, other;
	rig_init(&r, NULL, NULL, over(state));
	r.hold = true;
	seen_init(&s, &r);
	seen_init(&other, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("x")), 0);
	until(&r, r.held);
	grpc_client_cancel(s.call);
	assert_false(s.done); /* never inside the call */
	until(&r, s.done && r.ended == 1);
	assert_int_equal(s.status.code, STATUS_CANCELLED);
	assert_int_equal(r.finished, 0);
	/* Cancelled before anything left. */
	r.hold = false;
	start(&other, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(other.call, SPAN_S("x")), 0);
	grpc_client_cancel(other.call);
	until(&r, other.done);
	assert_int_equal(other.status.code, STATUS_CANCELLED);
	for (int i = 0; i < 50; i++)
		loop_turn(r.loop, false);
	assert_false(r.closed);
	seen_done(&s);
	seen_done(&other);
	rig_done(&r);
}

static void server_gone(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	r.hold = true;
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("x")), 0);
	until(&r, r.held);
	grpc_server_free(r.server);
	r.server = NULL;
	assert_int_equal(r.ended, 1);
	r.listener = NULL;
	until(&r, r.closed);
	assert_true(s.done);
	assert_int_equal(s.status.code, STATUS_UNAVAILABLE);
	assert_false(s.status.unprocessed);
	seen_done(&s);
	rig_done(&r);
}

static void client_gone(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	start(&s, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	until(&r, r.started);
	grpc_channel_free(r.channel);
	r.channel = NULL;
	assert_true(s.done);
	assert_int_equal(s.status.code, STATUS_UNAVAILABLE);
	until(&r, r.ended == 1);
	assert_int_equal(r.finished, 0);
	seen_done(&s);
	rig_done(&r);
}

#define EACH(f) \
	{ #f " pair", f, NULL, NULL, NULL }, { #f " tcp", f, NULL, NULL, &TCP }, { #f " tls", f, NULL, NULL, &TLS }

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(unary),
		EACH(unary_empty_and_large),
		EACH(bidi),
		EACH(refusal_with_details),
		EACH(unknown_method),
		EACH(deadline_on_the_client),
		EACH(cancel),
		EACH(server_gone),
		EACH(client_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
