/* What unfinished requests of all connections hold: who is counted, who goes, and who never does. */
#include "tests/unit/grpc_peer.h"

#include <stdio.h>
#include <string.h>

#define SESSION "/test.Echo/Session"
#define WHOLE 150000 /* of each message, less than a stream's window */

static struct grpc_server_stats stats(struct peer *p)
{
	struct grpc_server_stats s;
	grpc_server_stats(p->rig.server, &s);
	return s;
}

static int64_t held(struct peer *p) { return stats(p).body_bytes[GRPC_BODIES_CALLS]; }

static void init_with(struct peer *p, const struct grpc_limits *l)
{
	peer_init(p, l, true);
	raw_setting(&p->raw, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20); /* whatever is answered may come */
	raw_window_update(&p->raw, 0, 1 << 24);
}

static void init(struct peer *p, size_t all_recv)
{
	struct grpc_limits l;
	grpc_limits_default(&l);
	l.all_recv = all_recv;
	init_with(p, &l);
}

static void send_zeros(struct peer *p, int32_t id, bool end, size_t n)
{
	while (n) {
		size_t some = min_sz(n, 16384);
		n -= some;
		raw_data(&p->raw, id, end && !n ? NGHTTP2_FLAG_END_STREAM : 0, some);
	}
	talk(p);
}

/* The first n bytes, prefix included, of a message of WHOLE. */
static void begin(struct peer *p, int32_t id, const char *path, size_t n)
{
	static const uint8_t prefix[] = { 0, WHOLE >> 24, WHOLE >> 16 & 255, WHOLE >> 8 & 255, WHOLE & 255 };
	raw_request(&p->raw, id, 0, path);
	send_bytes(p, id, false, prefix, sizeof(prefix));
	send_zeros(p, id, false, n - sizeof(prefix));
}

/* The rest of it, to a good answer. */
static void finish(struct peer *p, int32_t id, size_t had)
{
	send_zeros(p, id, true, WHOLE + 5 - had);
	for (int i = 0; i < 100 && !answer(p, id).ended; i++)
		talk(p);
	assert_string_equal(answer(p, id).status, "0");
}

static void is_served(struct peer *p, int32_t id, const char *path)
{
	int before = p->rig.requests;
	raw_request(&p->raw, id, 0, path);
	send_bytes(p, id, true, "\0\0\0\0\1x", 6);
	talk(p);
	assert_string_equal(answer(p, id).status, "0");
	assert_int_equal(p->rig.requests, before + 1);
}

static void the_one_that_waited_longest_goes(void **state)
{
	struct peer p;
	init(&p, 300000);
	begin(&p, 1, UNARY, 100000);
	begin(&p, 3, UNARY, 100000);
	assert_int_equal(held(&p), 200000);
	send_zeros(&p, 1, false, 10); /* so 3 waits longer */
	begin(&p, 5, UNARY, 110000);
	struct answer a = answer(&p, 3);
	assert_string_equal(a.status, "8");
	assert_string_equal(a.pushback, "1000");
	assert_non_null(strstr(a.message, "300000 bytes"));
	assert_non_null(strstr(a.message, "all connections"));
	assert_int_equal(held(&p), 210010);
	assert_int_equal(stats(&p).refused_bodies[GRPC_BODY_SERVER], 1);
	/* The connection goes on, and so do the others; what of the refused one still comes is counted no more. */
	is_served(&p, 7, UNARY);
	finish(&p, 1, 100010);
	finish(&p, 5, 110000);
	assert_int_equal(held(&p), 0);
	assert_false(p.ended);
	peer_done(&p);
}

/* Many small ones that wait for long go for others, small or large, and one that comes whole is never counted. */
static void small_ones_keep_nobody_out(void **state)
{
	struct peer p;
	init(&p, 250000);
	for (int i = 0; i < 4; i++)
		begin(&p, 1 + 2 * i, UNARY, 60000);
	assert_int_equal(held(&p), 240000);
	send_zeros(&p, 1, false, 10); /* so 3 waits the longest */
	begin(&p, 9, UNARY, 60000);
	assert_string_equal(answer(&p, 3).status, "8");
	assert_int_equal(held(&p), 240010);
	begin(&p, 11, UNARY, 100000);
	assert_string_equal(answer(&p, 5).status, "8");
	assert_string_equal(answer(&p, 7).status, "8");
	assert_int_equal(held(&p), 220010);
	is_served(&p, 13, UNARY);
	raw_rst(&p.raw, 11, NGHTTP2_CANCEL);
	finish(&p, 1, 60010);
	finish(&p, 9, 60000);
	assert_int_equal(held(&p), 0);
	assert_int_equal(stats(&p).refused_bodies[GRPC_BODY_SERVER], 3);
	peer_done(&p);
}

static void sessions_count_apart(void **state)
{
	struct peer p;
	init(&p, 250000);
	begin(&p, 1, SESSION, 100000); /* waits the longest of all */
	for (int i = 0; i < 4; i++)
		begin(&p, 3 + 2 * i, UNARY, 100000);
	assert_int_equal(stats(&p).refused_bodies[GRPC_BODY_SERVER], 2);
	assert_string_equal(answer(&p, 1).status, "");
	begin(&p, 11, SESSION, 100000);
	assert_int_equal(stats(&p).body_bytes[GRPC_BODIES_SESSIONS], 200000);
	assert_string_equal(answer(&p, 7).status, ""); /* nor do sessions take from calls */
	send_zeros(&p, 1, false, WHOLE + 5 - 100000);
	assert_int_equal(p.rig.messages, 1);
	assert_int_equal(stats(&p).body_bytes[GRPC_BODIES_SESSIONS], 100000);
	/* Of each other they do. */
	begin(&p, 13, SESSION, 100000);
	begin(&p, 15, SESSION, 100000);
	assert_string_equal(answer(&p, 11).status, "8");
	assert_non_null(strstr(answer(&p, 11).message, "all workers"));
	assert_int_equal(stats(&p).refused_bodies[GRPC_BODY_SESSIONS], 1);
	assert_int_equal(p.rig.started, 4);
	peer_done(&p);
}

/* Behind a proxy that has one connection for all: what callers leave unfinished on it ends no worker's stream. */
static void a_session_does_not_pay_for_its_connection(void **state)
{
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.conn_recv = 250000;
	init_with(&p, &l);
	raw_request(&p.raw, 1, 0, SESSION);
	begin(&p, 3, UNARY, 130000);
	begin(&p, 5, UNARY, 110000);
	/* Nothing of the session is unfinished, when the connection holds too much. */
	raw_frame(&p.raw, NGHTTP2_DATA, 0, 1, "\0\0\0\0\1x", 6);
	send_zeros(&p, 5, false, 15000);
	assert_int_equal(p.rig.messages, 1);
	assert_string_equal(answer(&p, 1).status, "");
	assert_string_equal(answer(&p, 5).status, "8");
	assert_non_null(strstr(answer(&p, 5).message, "of a connection"));
	/* It is what makes it too much. */
	send_bytes(&p, 1, false, "\0\0\1\3651", 5);
	begin(&p, 7, UNARY, 60000);
	begin(&p, 9, UNARY, 50000);
	send_zeros(&p, 1, false, 40000);
	assert_string_equal(answer(&p, 1).status, "");
	assert_string_equal(answer(&p, 3).status, "8");
	assert_string_equal(answer(&p, 9).status, "");
	send_zeros(&p, 1, false, (1 << 16 | 0xf5 << 8 | '1') - 40000);
	assert_int_equal(p.rig.messages, 2);
	assert_int_equal(stats(&p).refused_bodies[GRPC_BODY_CONNECTION], 2);
	finish(&p, 7, 60000);
	peer_done(&p);
}

/* Whoever takes no answers holds what he asked. */
static void what_waits_for_the_queue_counts(void **state)
{
	static uint8_t answer_bytes[20000];
	struct grpc_limits l;
	struct peer p;
	grpc_limits_default(&l);
	l.all_recv = 250000;
	l.conn_queue = 1000;
	peer_init(&p, &l, true);
	raw_setting(&p.raw, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
	raw_request(&p.raw, 1, 0, BIDI);
	talk(&p);
	assert_int_equal(grpc_call_send(p.rig.bidi, answer_bytes, sizeof(answer_bytes)), 0);
	talk(&p);
	begin(&p, 3, UNARY, 100000);
	send_zeros(&p, 3, true, WHOLE + 5 - 100000);
	assert_int_equal(p.rig.requests, 0);
	assert_int_equal(held(&p), WHOLE + 5);
	begin(&p, 5, UNARY, 110000);
	assert_string_equal(answer(&p, 3).status, "8");
	assert_int_equal(held(&p), 110000);
	raw_rst(&p.raw, 5, NGHTTP2_CANCEL);
	talk(&p);
	assert_int_equal(held(&p), 0);
	peer_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_one_that_waited_longest_goes),
		cmocka_unit_test(small_ones_keep_nobody_out),
		cmocka_unit_test(sessions_count_apart),
		cmocka_unit_test(a_session_does_not_pay_for_its_connection),
		cmocka_unit_test(what_waits_for_the_queue_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
