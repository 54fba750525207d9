/* Windows, queues, limits and draining: our client against our server. */
#include "tests/unit/grpc_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

static enum over TCP = OVER_TCP, TLS = OVER_TLS;
static enum over over(void **state) { return *state ? *(enum over *)*state : OVER_PAIR; }

static uint8_t big[1 << 20];

static void windows_of_one_byte(void **state)
{
	struct grpc_limits l;
	struct rig r;
	struct seen s;
	grpc_limits_default(&l);
	l.stream_window = 1;
	rig_init(&r, &l, &l, false);
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("eleven byte")), 0);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_OK);
	assert_memory_equal(buf_head(&s.bytes), "eleven byte", 11);
	seen_done(&s);
	rig_done(&r);
}

/* Connection window given to calls that end half-way must come back. */
static void uploads_given_up(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, OVER_PAIR);
	for (int i = 0; i < 2000; i++) {
		struct seen half;
		seen_init(&half, &r);
		start(&half, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
		r.hold_bidi = true;
		assert_int_equal(grpc_client_send(half.call, big, 3000), 0);
		/* At different depths of the pipe. */
		for (int turn = 0; turn < i % 4; turn++)
			loop_turn(r.loop, false);
		assert_false(half.done);
		grpc_client_cancel(half.call);
		until(&r, half.done);
		seen_done(&half);
	}
	r.hold_bidi = false;
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, big, sizeof(big)), 0);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_OK);
	assert_int_equal(buf_len(&s.bytes), sizeof(big));
	assert_int_equal(r.started, r.ended - 1);
	seen_done(&s);
	rig_done(&r);
}

static void client_is_told_to_wait(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, OVER_PAIR);
	seen_init(&s, &r);
	start(&s, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	until(&r, r.bidi);
	r.hold_bidi = true;
	grpc_call_pause(r.bidi, true);
	/* The server's window and our queue fill up. */
	int sent = 0;
	for (int64_t give_up = clock_mono_ns() + 20 * NS_PER_S; clock_mono_ns() < give_up;) {
		int rc = grpc_client_send(s.call, big, 1000);
		if (rc == -EAGAIN && grpc_client_queued(s.call) > r.limits.stream_queue - 2000 && s.writable > 0)
			break;
		sent += rc == 0;
		if (rc == -EAGAIN)
			loop_turn(r.loop, false);
	}
	assert_int_equal(r.messages, 0);
	assert_true(sent > 500 && sent < 600); /* two times 256 KiB and what was on the way */
	int writable = s.writable;
	loop_turn(r.loop, false);
	assert_int_equal(s.writable, writable); /* no room, no call */
	grpc_call_pause(r.bidi, false);
	until(&r, r.messages == sent);
	until(&r, s.writable > writable);
	grpc_client_half_close(s.call);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_OK);
	seen_done(&s);
	rig_done(&r);
}

static void server_is_told_to_wait(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	r.fill = 3000;
	start(&s, "/test.Echo/Fill", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	grpc_client_pause(s.call, true);
	assert_int_equal(grpc_client_send(s.call, "", 0), 0);
	grpc_client_half_close(s.call);
	until(&r, r.writable == 1);
	size_t left = r.fill;
	assert_true(left > 2000 && left < 3000);
	grpc_client_pause(s.call, false);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_OK);
	assert_int_equal(s.messages, 3000);
	assert_int_equal(buf_len(&s.bytes), 3000000);
	assert_true(r.writable > 5);
	seen_done(&s);
	rig_done(&r);
}

/* What one stream has queued counts for the others of its connection; with nothing queued a stream may send all the same. */
static void a_connection_s_queue_is_full(void **state)
{
	static uint8_t most[60000];
	struct grpc_limits l;
	struct rig r;
	struct seen s[2];
	struct grpc_call *calls[2];
	grpc_limits_default(&l);
	l.conn_queue = 80000;
	rig_init(&r, &l, NULL, false);
	for (int i = 0; i < 2; i++) {
		seen_init(&s[i], &r);
		start(&s[i], "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
		until(&r, r.started == i + 1);
		calls[i] = r.bidi;
	}
	assert_int_equal(grpc_call_send(calls[0], most, sizeof(most)), 0);
	assert_int_equal(grpc_call_send(calls[1], most, 30000), 0);
	assert_int_equal(grpc_call_send(calls[1], most, 1), -EAGAIN);
	until(&r, s[0].messages == 1 && s[1].messages == 1);
	assert_int_equal(grpc_call_send(calls[1], most, 1), 0);
	for (int i = 0; i < 2; i++) {
		grpc_client_cancel(s[i].call);
		until(&r, s[i].done);
		seen_done(&s[i]);
	}
	rig_done(&r);
}

static void paused_at_the_end(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, OVER_PAIR);
	seen_init(&s, &r);
	r.fill = 10;
	start(&s, "/test.Echo/Fill", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	grpc_client_pause(s.call, true);
	assert_int_equal(grpc_client_send(s.call, "", 0), 0);
	grpc_client_half_close(s.call);
	until(&r, r.ended == 1);
	for (int i = 0; i < 20; i++)
		loop_turn(r.loop, false);
	assert_int_equal(s.messages, 0);
	assert_false(s.done);
	grpc_client_pause(s.call, false);
	until(&r, s.done);
	assert_int_equal(s.messages, 10);
	assert_int_equal(s.status.code, STATUS_OK);
	seen_done(&s);
	rig_done(&r);
}

static void message_limits(void **state)
{
	struct grpc_limits small, large;
	struct rig r;
	struct seen s;
	grpc_limits_default(&small);
	large = small;
	small.max_message = 1000;
	/* The server takes 1,000 bytes; the client would send more. */
	rig_init(&r, &small, &large, false);
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, big, sizeof(big)), 0);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_RESOURCE_EXHAUSTED);
	assert_non_null(strstr(s.status.message, "1048576"));
	assert_non_null(strstr(s.status.message, "1000"));
	assert_int_equal(r.requests, 0);
	seen_done(&s);
	rig_done(&r);
	/* The client takes 1,000 bytes. */
	rig_init(&r, &large, &small, false);
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, big, 1001), -EMSGSIZE);
	grpc_client_cancel(s.call);
	until(&r, s.done);
	seen_done(&s);
	rig_done(&r);
}

static void incomplete_messages_are_bounded(void **state)
{
	struct grpc_limits l;
	struct rig r;
	struct seen s[5];
	grpc_limits_default(&l);
	l.conn_recv = 3 << 20;
	rig_init(&r, &l, NULL, false);
	uint8_t *four = calloc(1, 4 << 20);
	assert_non_null(four);
	/* All grow at the same time; some are refused, the others are served. */
	for (int i = 0; i < 5; i++) {
		seen_init(&s[i], &r);
		start(&s[i], "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
		assert_int_equal(grpc_client_send(s[i].call, four, 1 << 20), 0);
	}
	int ok = 0, refused = 0;
	for (int i = 0; i < 5; i++) {
		until(&r, s[i].done);
		ok += s[i].status.code == STATUS_OK;
		refused += s[i].status.code == STATUS_RESOURCE_EXHAUSTED;
		seen_done(&s[i]);
	}
	assert_int_equal(ok + refused, 5);
	assert_true(ok >= 2 && refused >= 1);
	free(four);
	rig_done(&r);
}

static void requests_wait_for_the_queue(void **state)
{
	struct grpc_limits l;
	struct rig r;
	struct seen fill, s[8];
	grpc_limits_default(&l);
	l.conn_queue = 300000;
	rig_init(&r, &l, NULL, false);
	/* Output that nobody takes. */
	seen_init(&fill, &r);
	start(&fill, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	grpc_client_pause(fill.call, true);
	until(&r, r.bidi);
	assert_int_equal(grpc_call_send(r.bidi, big, sizeof(big)), 0);
	for (int i = 0; i < 300; i++)
		loop_turn(r.loop, false);
	assert_true(grpc_call_queued(r.bidi) > l.conn_queue);
	for (int i = 0; i < 8; i++) {
		seen_init(&s[i], &r);
		start(&s[i], "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
		assert_int_equal(grpc_client_send(s[i].call, SPAN_S("x")), 0);
	}
	for (int i = 0; i < 50; i++)
		loop_turn(r.loop, false);
	assert_int_equal(r.requests, 0);
	grpc_client_cancel(s[7].call); /* while it waits */
	grpc_client_pause(fill.call, false);
	for (int i = 0; i < 7; i++) {
		until(&r, s[i].done);
		assert_int_equal(s[i].status.code, STATUS_OK);
	}
	until(&r, s[7].done);
	assert_int_equal(s[7].status.code, STATUS_CANCELLED);
	assert_int_equal(r.requests, 7);
	for (int i = 0; i < 8; i++)
		seen_done(&s[i]);
	seen_done(&fill);
	rig_done(&r);
}

/* ---- draining ---- */

static void on_drained(void *app) { ((struct rig *)app)->drained = true; }

static void drain_serves_what_is_open(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	start(&s, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	until(&r, r.started);
	grpc_server_drain(r.server, GRPC_NO_DEADLINE, on_drained);
	until(&r, r.goaway);
	struct grpc_client_call *refused;
	static const struct grpc_call_events none;
	assert_int_equal(grpc_call_start(r.channel, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE, &none, NULL, &refused),
			 -ENOTCONN);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("still")), 0);
	until(&r, s.messages == 1);
	assert_false(r.drained);
	assert_false(r.closed);
	grpc_client_half_close(s.call);
	until(&r, s.done && r.drained && r.closed);
	assert_int_equal(s.status.code, STATUS_OK);
	seen_done(&s);
	rig_done(&r);
}

static void drain_has_an_end(void **state)
{
	struct rig r;
	struct seen s, parked;
	rig_init(&r, NULL, NULL, over(state));
	r.hold = true;
	seen_init(&s, &r);
	seen_init(&parked, &r);
	start(&s, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
	start(&parked, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(parked.call, SPAN_S("x")), 0);
	until(&r, r.started && r.held);
	grpc_server_drain(r.server, loop_now_mono_ns(r.loop) + 20 * NS_PER_MS, on_drained);
	until(&r, s.done && parked.done && r.drained);
	assert_int_equal(s.status.code, STATUS_UNAVAILABLE);
	assert_int_equal(parked.status.code, STATUS_UNAVAILABLE);
	assert_int_equal(r.ended, 2);
	assert_int_equal(r.finished, 0);
	until(&r, r.closed);
	seen_done(&s);
	seen_done(&parked);
	rig_done(&r);
}

static void channel_shutdown(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, over(state));
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	assert_int_equal(grpc_client_send(s.call, SPAN_S("x")), 0);
	grpc_channel_shutdown(r.channel);
	until(&r, r.closed);
	assert_true(s.done);
	assert_int_equal(s.status.code, STATUS_OK);
	struct grpc_server_stats st;
	until(&r, (grpc_server_stats(r.server, &st), st.connections == 0));
	assert_int_equal(st.calls_total, 1);
	assert_int_equal(st.calls_open, 0);
	assert_true(st.bytes_in > 50 && st.bytes_out > 50);
	assert_string_equal(r.log, ""); /* an orderly end is nothing to report */
	seen_done(&s);
	rig_done(&r);
}

/* ---- ends inside callbacks ---- */

static void free_channel_in_status(void *arg, const struct grpc_status *status)
{
	struct rig *r = arg;
	if (r->channel) {
		struct grpc_channel *ch = r->channel;
		r->channel = NULL;
		grpc_channel_free(ch);
	}
	r->closed = true;
}

static void free_channel_in_message(void *arg, const uint8_t *data, size_t len) { free_channel_in_status(arg, NULL); }

static void channel_freed_inside(void **state)
{
	static const struct grpc_call_events in_status = { .on_status = free_channel_in_status };
	static const struct grpc_call_events in_message = { .on_message = free_channel_in_message, .on_status = free_channel_in_status };
	for (int i = 0; i < 4; i++) {
		struct rig r;
		struct seen other;
		struct grpc_client_call *c;
		rig_init(&r, NULL, NULL, OVER_PAIR);
		seen_init(&other, &r);
		start(&other, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
		assert_int_equal(grpc_call_start(r.channel, i & 1 ? "/test.Echo/Bidi" : "/test.Echo/Unary",
						 i & 1 ? GRPC_CALL_STREAM : GRPC_CALL_UNARY, GRPC_NO_DEADLINE,
						 i & 2 ? &in_message : &in_status, &r, &c), 0);
		assert_int_equal(grpc_client_send(c, SPAN_S("x")), 0);
		grpc_client_half_close(c);
		until(&r, r.closed);
		assert_true(other.done);
		assert_int_equal(other.status.code, STATUS_UNAVAILABLE);
		until(&r, r.ended == 2);
		seen_done(&other);
		rig_done(&r);
	}
}

/* In a handler that was called for what came, and in one that was called because the call goes on. */
static void server_freed_inside(void **state)
{
	enum { IN_REQUEST, IN_MESSAGE, RESUMED, WAYS };
	for (int way = 0; way < WAYS; way++) {
		struct rig r;
		struct seen s, other;
		rig_init(&r, NULL, NULL, false);
		seen_init(&s, &r);
		seen_init(&other, &r);
		start(&other, "/test.Echo/Bidi", GRPC_CALL_STREAM, GRPC_NO_DEADLINE);
		start(&s, way == IN_REQUEST ? "/test.Echo/Unary" : "/test.Echo/Bidi", way == IN_REQUEST ? GRPC_CALL_UNARY : GRPC_CALL_STREAM,
		      GRPC_NO_DEADLINE);
		until(&r, r.started == (way == IN_REQUEST ? 1 : 2));
		if (way == RESUMED)
			grpc_call_pause(r.bidi, true);
		assert_int_equal(grpc_client_send(s.call, SPAN_S("~")), 0);
		if (way == RESUMED) {
			for (int i = 0; i < 20; i++)
				loop_turn(r.loop, false);
			assert_int_equal(r.messages, 0);
			grpc_call_pause(r.bidi, false);
		}
		until(&r, s.done && other.done);
		assert_null(r.server);
		assert_int_equal(r.ended, 2);
		assert_int_equal(r.over, 2);
		seen_done(&s);
		seen_done(&other);
		rig_done(&r);
	}
}

static void refused_connect(void **state)
{
	struct rig r;
	struct seen s;
	rig_init(&r, NULL, NULL, true);
	/* A second channel to the port of a listener that is gone. */
	struct sockaddr_storage addr;
	socklen_t len;
	listener_address(r.listener, &addr, &len);
	grpc_server_drain(r.server, GRPC_NO_DEADLINE, NULL);
	until(&r, r.closed);
	grpc_channel_free(r.channel);
	r.closed = false;
	struct grpc_channel_config cc = { .limits = r.limits, .arg = &r };
	assert_int_equal(grpc_channel_connect(r.loop, (struct sockaddr *)&addr, len, NULL, NULL, GRPC_NO_DEADLINE, &cc, &r.channel), 0);
	seen_init(&s, &r);
	start(&s, "/test.Echo/Unary", GRPC_CALL_UNARY, GRPC_NO_DEADLINE);
	until(&r, s.done);
	assert_int_equal(s.status.code, STATUS_UNAVAILABLE);
	assert_true(s.status.unprocessed);
	assert_string_not_equal(s.status.message, "");
	seen_done(&s);
	rig_done(&r);
}

#define EACH(f) \
	{ #f " pair", f, NULL, NULL, NULL }, { #f " tcp", f, NULL, NULL, &TCP }, { #f " tls", f, NULL, NULL, &TLS }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_of_one_byte),
		cmocka_unit_test(uploads_given_up),
		cmocka_unit_test(client_is_told_to_wait),
		EACH(server_is_told_to_wait),
		cmocka_unit_test(a_connection_s_queue_is_full),
		cmocka_unit_test(paused_at_the_end),
		cmocka_unit_test(message_limits),
		cmocka_unit_test(incomplete_messages_are_bounded),
		cmocka_unit_test(requests_wait_for_the_queue),
		EACH(drain_serves_what_is_open),
		EACH(drain_has_an_end),
		EACH(channel_shutdown),
		cmocka_unit_test(channel_freed_inside),
		cmocka_unit_test(server_freed_inside),
		cmocka_unit_test(refused_connect),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
