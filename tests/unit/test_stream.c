#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/bulk.h"
#include "tests/unit/turns.h"

#define MB ((size_t)1024 * 1024)

static struct loop *loop;

static int setup(void **state)
{
	return loop_new(&loop);
}

static int teardown(void **state)
{
	loop_free(loop);
	return 0;
}

static void assert_exchanged(const struct bulk *a, const struct bulk *b)
{
	assert_string_equal(a->text, "");
	assert_string_equal(b->text, "");
	assert_false(a->wrong || b->wrong);
	assert_int_equal(a->received, b->to_send);
	assert_int_equal(b->received, a->to_send);
}

/* ---- pair ---- */

struct seen {
	struct stream *s;
	int opens, readies;
	int last;
	bool in_call;
};

static void on_open(void *arg)
{
	struct seen *e = arg;
	assert_false(e->in_call);
	assert_int_equal(e->readies, 0);
	e->opens++;
}

static void on_ready(void *arg, int events)
{
	struct seen *e = arg;
	assert_false(e->in_call);
	assert_int_equal(e->opens, 1);
	e->readies++;
	e->last = events;
}

static void on_broken(void *arg, int err, const char *text)
{
	fail_msg("broken: %s", text);
}

static const struct stream_events seen_events = { .on_open = on_open, .on_ready = on_ready, .on_broken = on_broken };

static ssize_t put(struct seen *e, const char *data, size_t len)
{
	struct iovec iov = { (void *)data, len };
	e->in_call = true;
	ssize_t n = stream_writev(e->s, &iov, 1);
	e->in_call = false;
	return n;
}

static void pair_pushes_back_at_its_cap(void **state)
{
	struct seen a = { 0 }, b = { 0 };
	char data[200] = "0123456789";
	assert_int_equal(stream_pair(loop, 64, &seen_events, &a, &seen_events, &b, &a.s, &b.s), 0);
	assert_int_equal(put(&a, data, 10), -EAGAIN); /* not open yet */
	stream_want(b.s, LOOP_READ);
	assert_int_equal(a.opens + b.opens, 0);
	TURNS_UNTIL(loop, a.opens == 1 && b.opens == 1);
	assert_int_equal(b.readies, 0);

	assert_int_equal(put(&a, data, 100), 64);
	assert_int_equal(put(&a, data, 1), -EAGAIN);
	TURNS_UNTIL(loop, b.readies);
	assert_int_equal(b.last, LOOP_READ);
	stream_want(a.s, LOOP_WRITE_READY);
	loop_turn(loop, false);
	loop_turn(loop, false);
	assert_int_equal(a.readies, 0);

	assert_int_equal(stream_read(b.s, data, 10), 10);
	assert_memory_equal(data, "0123456789", 10);
	TURNS_UNTIL(loop, a.readies);
	assert_int_equal(a.last, LOOP_WRITE_READY);
	assert_int_equal(put(&a, data, 100), 10);

	/* What was written arrives although the writer is gone. */
	stream_close(a.s);
	assert_int_equal(stream_read(b.s, data, sizeof(data)), 64);
	assert_int_equal(stream_read(b.s, data, sizeof(data)), 0);
	assert_int_equal(put(&b, data, 1), -EPIPE);
	stream_close(b.s);
}

static void pair_carries_megabytes(void **state)
{
	struct bulk a, b;
	bulk_init(&a, 1, 2, MB);
	bulk_init(&b, 2, 1, MB + 77);
	assert_int_equal(stream_pair(loop, 5000, &bulk_events, &a, &bulk_events, &b, &a.s, &b.s), 0);
	TURNS_UNTIL(loop, bulk_done(&a) && bulk_done(&b));
	assert_exchanged(&a, &b);
	assert_true(a.partial_writes > 0);
	stream_close(a.s);
	stream_close(b.s);
	stream_close(NULL);
}

/* ---- TCP ---- */

static void tcp_carries_megabytes(void **state)
{
	struct bulk_server v;
	struct bulk a, b;
	bulk_init(&a, 1, 2, 10 * MB);
	bulk_init(&b, 2, 1, 10 * MB + 1);
	bulk_server_start(&v, loop, (struct listener_config){ 0 });
	v.next = &b;
	bulk_server_connect(&v, &a, NULL, NULL);
	assert_false(a.opened);
	TURNS_UNTIL(loop, b.s && bulk_done(&a) && bulk_done(&b));
	assert_exchanged(&a, &b);
	assert_true(a.partial_writes > 0);
	assert_memory_equal(stream_peer(a.s)->address, "127.0.0.1:", 10);
	assert_memory_equal(stream_peer(b.s)->address, "127.0.0.1:", 10);
	assert_false(stream_peer(a.s)->tls);
	stream_close(a.s);
	stream_close(b.s);
	listener_free(v.l);
}

static void refused_connect_breaks(void **state)
{
	struct bulk_server v;
	struct bulk a;
	bulk_server_start(&v, loop, (struct listener_config){ 0 });
	listener_free(v.l);
	loop_turn(loop, false);
	bulk_init(&a, 1, 2, 10);
	bulk_server_connect(&v, &a, NULL, NULL);
	assert_int_equal(a.err, 0);
	TURNS_UNTIL(loop, a.err);
	assert_int_equal(a.err, -ECONNREFUSED);
	assert_non_null(strstr(a.text, "Connection refused"));
	assert_non_null(strstr(a.text, "127.0.0.1:"));
	assert_false(a.opened);
	stream_close(a.s);
}

static void connect_that_fails_at_once_breaks_later(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/nonexistent/reins.sock" };
	struct bulk a;
	bulk_init(&a, 1, 2, 10);
	assert_int_equal(stream_connect(loop, (struct sockaddr *)&un, sizeof(un), NULL, NULL, &bulk_events, &a, &a.s), 0);
	assert_int_equal(a.err, 0);
	TURNS_UNTIL(loop, a.err);
	assert_int_equal(a.err, -ENOENT);
	stream_close(a.s);
}

/* A listening socket of the test's own, to behave badly with. */
static int raw_listen(struct sockaddr_in *ret)
{
	socklen_t len = sizeof(*ret);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)ret, sizeof(*ret)), 0);
	assert_int_equal(listen(fd, 10), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &len), 0);
	return fd;
}

static void a_reset_is_seen(void **state)
{
	struct sockaddr_in in;
	struct linger rst = { .l_onoff = 1 };
	struct bulk a;
	int l = raw_listen(&in);
	bulk_init(&a, 1, 2, 0);
	assert_int_equal(stream_connect(loop, (struct sockaddr *)&in, sizeof(in), NULL, NULL, &bulk_events, &a, &a.s), 0);
	TURNS_UNTIL(loop, a.opened);
	int fd = accept(l, NULL, NULL);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &rst, sizeof(rst));
	close(fd);
	TURNS_UNTIL(loop, a.err);
	assert_int_equal(a.err, -ECONNRESET);
	assert_non_null(strstr(a.text, "reset"));
	stream_close(a.s);
	close(l);
}

static void close_on_open(struct bulk *b)
{
	stream_close(b->s);
	b->s = NULL;
}

static void closing_inside_callbacks(void **state)
{
	struct bulk_server v;
	struct bulk a, b;
	bulk_server_start(&v, loop, (struct listener_config){ 0 });
	bulk_init(&a, 1, 2, 100);
	a.on_opened = close_on_open;
	bulk_server_connect(&v, &a, NULL, NULL); /* the server closes it in on_accept */
	TURNS_UNTIL(loop, a.opened && v.accepted);
	bulk_init(&b, 1, 2, 100);
	bulk_server_connect(&v, &b, NULL, NULL);
	stream_close(b.s); /* while connecting */
	turns_for(loop, 20 * NS_PER_MS);
	assert_false(b.opened);
	assert_int_equal(b.err, 0);
	listener_free(v.l);
}

static void unix_sockets_work(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct bulk_server v;
	struct bulk a, b;
	char dir[] = "/tmp/reins-test-XXXXXX";
	assert_non_null(mkdtemp(dir));
	snprintf(un.sun_path, sizeof(un.sun_path), "%s/s", dir);
	struct listener_config cfg = { .addr = (struct sockaddr *)&un, .addr_len = sizeof(un) };

	/* The file that a killed process left. */
	int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(stale, (struct sockaddr *)&un, sizeof(un)), 0);
	close(stale);

	bulk_server_start(&v, loop, cfg);
	struct listener *second;
	assert_int_equal(listener_new(loop, &cfg, NULL, NULL, &second), -EADDRINUSE);
	TURNS_UNTIL(loop, v.accepted == 1); /* it knocked to find out */
	bulk_init(&a, 1, 2, MB);
	bulk_init(&b, 2, 1, MB);
	v.next = &b;
	bulk_server_connect(&v, &a, NULL, NULL);
	TURNS_UNTIL(loop, b.s && bulk_done(&a) && bulk_done(&b));
	assert_exchanged(&a, &b);
	assert_string_equal(stream_peer(b.s)->address, "unix");
	stream_set_user_timeout(b.s, 1000);
	stream_close(a.s);
	stream_close(b.s);
	listener_free(v.l);
	assert_int_equal(access(un.sun_path, F_OK), -1);
	assert_int_equal(rmdir(dir), 0);
}

/* ---- listener ---- */

static int raw_connect(const struct bulk_server *v)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&v->addr, v->addr_len), 0);
	return fd;
}

static void paused_listener_waits(void **state)
{
	struct bulk_server v;
	struct bulk b;
	bulk_server_start(&v, loop, (struct listener_config){ 0 });
	listener_pause(v.l, true);
	int fd = raw_connect(&v);
	turns_for(loop, 20 * NS_PER_MS);
	assert_int_equal(v.accepted, 0);
	bulk_init(&b, 1, 2, 0);
	v.next = &b;
	listener_pause(v.l, false);
	TURNS_UNTIL(loop, v.accepted == 1);
	stream_set_user_timeout(b.s, 1234);
	stream_close(b.s);
	close(fd);
	listener_free(v.l);
}

static void few_are_accepted_in_a_turn(void **state)
{
	struct bulk_server v;
	int fd[7];
	bulk_server_start(&v, loop, (struct listener_config){ .accept_per_turn = 3 });
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		fd[i] = raw_connect(&v);
	loop_turn(loop, true);
	assert_int_equal(v.accepted, 3);
	TURNS_UNTIL(loop, v.accepted == 7);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		close(fd[i]);
	listener_free(v.l);
}

static void out_of_descriptors(void **state)
{
	struct bulk_server v;
	struct bulk b;
	struct rlimit old, low;
	char c;
	bulk_server_start(&v, loop, (struct listener_config){ 0 });
	int fd = raw_connect(&v);
	struct timeval patience = { .tv_sec = 20 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	int next = dup(fd);
	close(next); /* the lowest free one */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	turns_for(loop, 20 * NS_PER_MS);
	/* Refused at once instead of left to hang, and the loop is not kept busy. */
	uint64_t turn = loop_turn_number(loop);
	turns_for(loop, 30 * NS_PER_MS);
	bool quiet = loop_turn_number(loop) - turn < 30;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(quiet);
	assert_true(recv(fd, &c, 1, 0) <= 0);
	assert_int_equal(v.accepted, 0);
	close(fd);

	fd = raw_connect(&v);
	bulk_init(&b, 1, 2, 0);
	v.next = &b;
	TURNS_UNTIL(loop, v.accepted == 1);
	stream_close(b.s);
	close(fd);
	listener_free(v.l);
}

static struct listener *to_free;

static void free_it(void *arg, struct stream *s)
{
	stream_close(s);
	listener_free(to_free);
	to_free = NULL;
}

static void listener_freed_in_on_accept(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct listener_config cfg = { .addr = (struct sockaddr *)&in, .addr_len = sizeof(in) };
	struct bulk_server v;
	assert_int_equal(listener_new(loop, &cfg, free_it, NULL, &to_free), 0);
	listener_address(to_free, &v.addr, &v.addr_len);
	int a = raw_connect(&v), b = raw_connect(&v);
	TURNS_UNTIL(loop, !to_free);
	loop_turn(loop, false);
	close(a);
	close(b);
	listener_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(pair_pushes_back_at_its_cap),
		TEST(pair_carries_megabytes),
		TEST(tcp_carries_megabytes),
		TEST(refused_connect_breaks),
		TEST(connect_that_fails_at_once_breaks_later),
		TEST(a_reset_is_seen),
		TEST(closing_inside_callbacks),
		TEST(unix_sockets_work),
		TEST(paused_listener_waits),
		TEST(few_are_accepted_in_a_turn),
		TEST(out_of_descriptors),
		TEST(listener_freed_in_on_accept),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
