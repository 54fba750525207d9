/* Addresses as people write them: what is read, what is refused and why, and look-ups from the loop. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/net/endpoint.h"

static void reads_and_writes_back(void **state)
{
	static const struct {
		const char *text, *host, *written;
		uint16_t port;
		bool tls, is_unix;
	} rows[] = {
		{ "127.0.0.1:7346", "127.0.0.1", "127.0.0.1:7346", 7346, false, false },
		{ "[::1]:1", "::1", "[::1]:1", 1, false, false },
		{ "[::1]", "::1", "[::1]:7346", 7346, false, false },
		{ "[fe80::1%lo]:5", "fe80::1%lo", "[fe80::1%lo]:5", 5, false, false },
		{ "gpu-1", "gpu-1", "gpu-1:7346", 7346, false, false },
		{ "http://gpu-1:80/", "gpu-1", "gpu-1:80", 80, false, false },
		{ "HTTPS://gpu_1.example:7347", "gpu_1.example", "tls://gpu_1.example:7347", 7347, true, false },
		{ "tls://0.0.0.0:0", "0.0.0.0", "tls://0.0.0.0:0", 0, true, false },
		{ "unix:/run/reins.sock", "/run/reins.sock", "unix:/run/reins.sock", 0, false, true },
		{ "unix:///run/reins.sock", "/run/reins.sock", "unix:/run/reins.sock", 0, false, true },
		{ "unix:a:b", "a:b", "unix:a:b", 0, false, true },
		{ "h:65535", "h", "h:65535", 65535, false, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct endpoint e, again;
		char err[256] = "", text[300];
		if (endpoint_parse(rows[i].text, 7346, &e, err, sizeof err))
			fail_msg("%s: %s", rows[i].text, err);
		assert_string_equal(e.host, rows[i].host);
		assert_int_equal(e.port, rows[i].port);
		assert_int_equal(e.tls, rows[i].tls);
		assert_int_equal(e.is_unix, rows[i].is_unix);
		endpoint_format(&e, text, sizeof text);
		assert_string_equal(text, rows[i].written);
		assert_int_equal(endpoint_parse(text, 1, &again, err, sizeof err), 0);
		assert_memory_equal(&e, &again, sizeof e);
	}
}

static void refuses(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "", "missing" },
		{ ":80", "missing" },
		{ "http://", "missing" },
		{ "h:", "port" },
		{ "h:1,i:2", "one address" },
		{ "https://h:1,https://i:2", "one address" },
		{ "h:65536", "port" },
		{ "h:-1", "port" },
		{ "h:+1", "port" },
		{ "h: 1", "port" },
		{ "h:1x", "port" },
		{ "h:00000000080", "port" },
		{ "::1", "brackets" },
		{ "[::1", "]" },
		{ "[::1]80", "port" },
		{ "[1.2.3.4]", "IPv6" },
		{ "[::1%]", "IPv6" },
		{ "[]", "missing" },
		{ "ftp://h", "scheme" },
		{ "h/x", "path" },
		{ "h:80/", "path" },
		{ "http://h/x", "path" },
		{ "a b", "letters" },
		{ "user@h", "letters" },
		{ "unix:", "path" },
	};
	char name[400], err[256];
	struct endpoint e, untouched;
	memset(&e, 0x5a, sizeof e);
	untouched = e;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		err[0] = 0;
		if (endpoint_parse(rows[i].text, 7346, &e, err, sizeof err) != -EINVAL || !strstr(err, rows[i].says))
			fail_msg("\"%s\": \"%s\" does not name \"%s\"", rows[i].text, err, rows[i].says);
	}
	memset(name, 'a', sizeof name);
	name[253] = 0;
	assert_int_equal(endpoint_parse(name, 1, &untouched, err, sizeof err), 0);
	name[253] = 'a';
	name[254] = 0;
	assert_int_equal(endpoint_parse(name, 1, &e, err, sizeof err), -EINVAL);
	memcpy(name, "unix:", 5);
	name[5 + 107] = 0;
	assert_int_equal(endpoint_parse(name, 1, &untouched, err, sizeof err), 0);
	name[5 + 107] = 'a';
	name[5 + 108] = 0;
	assert_int_equal(endpoint_parse(name, 1, &e, err, sizeof err), -EINVAL);
	/* A small buffer for the sentence is enough. */
	assert_int_equal(endpoint_parse("", 1, &e, err, 3), -EINVAL);
	assert_int_equal(strlen(err), 2);
	for (size_t i = 0; i < sizeof e; i++)
		assert_int_equal(((unsigned char *)&e)[i], 0x5a);
}

static struct endpoint parsed(const char *text)
{
	struct endpoint e;
	char err[256];
	assert_int_equal(endpoint_parse(text, 7346, &e, err, sizeof err), 0);
	return e;
}

static void knows_loopback(void **state)
{
	static const char *const near[] = { "127.0.0.1", "127.9.9.9:1", "[::1]", "LocalHost", "unix:/x", "[::ffff:127.0.0.1]" };
	static const char *const far[] = { "0.0.0.0", "[::]", "128.0.0.1", "gpu-1", "localhost.example", "[::ffff:10.0.0.1]" };
	for (size_t i = 0; i < ARRAY_LEN(near); i++) {
		struct endpoint e = parsed(near[i]);
		if (!endpoint_is_loopback(&e))
			fail_msg("%s is loopback", near[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(far); i++) {
		struct endpoint e = parsed(far[i]);
		if (endpoint_is_loopback(&e))
			fail_msg("%s is not loopback", far[i]);
	}
}

static void literals_need_no_resolution(void **state)
{
	struct endpoint e = parsed("10.1.2.3:80");
	struct endpoint_addr a;
	assert_int_equal(endpoint_literal(&e, &a), 0);
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a.addr;
	assert_int_equal(in->sin_family, AF_INET);
	assert_int_equal(ntohl(in->sin_addr.s_addr), 0x0a010203);
	assert_int_equal(ntohs(in->sin_port), 80);
	assert_int_equal(a.len, sizeof *in);
	e = parsed("[fe80::1%lo]:80");
	assert_int_equal(endpoint_literal(&e, &a), 0);
	assert_int_not_equal(((const struct sockaddr_in6 *)&a.addr)->sin6_scope_id, 0);
	e = parsed("[fe80::1%nosuchif]:80");
	assert_int_equal(endpoint_literal(&e, &a), -ENODEV);
	e = parsed("unix:/run/x");
	assert_int_equal(endpoint_literal(&e, &a), 0);
	assert_string_equal(((const struct sockaddr_un *)&a.addr)->sun_path, "/run/x");
	e = parsed("localhost");
	assert_int_equal(endpoint_literal(&e, &a), -EAGAIN);
	/* inet_aton would read this as an address. */
	e = parsed("127.1");
	assert_int_equal(endpoint_literal(&e, &a), -EAGAIN);
}

struct answer {
	int calls, err;
	size_t n;
	char text[400];
	struct endpoint_addr first;
};

static void on_answer(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n)
{
	struct answer *a = arg;
	a->calls++;
	a->err = err;
	a->n = n;
	snprintf(a->text, sizeof a->text, "%s", text ? text : "");
	if (n)
		a->first = addrs[0];
}

static struct answer ask(const char *text)
{
	struct endpoint e = parsed(text);
	struct answer a = { 0 };
	struct endpoint_query *q;
	struct loop *loop;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(endpoint_resolve(loop, &e, on_answer, &a, &q), 0);
	assert_int_equal(a.calls, 0);
	while (!a.calls)
		loop_turn(loop, true);
	loop_run(loop);
	assert_int_equal(a.calls, 1);
	loop_free(loop);
	return a;
}

static void resolves(void **state)
{
	struct answer a = ask("127.0.0.1:99");
	assert_int_equal(a.err, 0);
	assert_int_equal(a.n, 1);
	assert_int_equal(ntohs(((struct sockaddr_in *)&a.first.addr)->sin_port), 99);
	a = ask("unix:/run/x");
	assert_int_equal(a.err, 0);
	assert_int_equal(a.first.addr.ss_family, AF_UNIX);
	a = ask("localhost:98");
	assert_int_equal(a.err, 0);
	assert_true(a.n >= 1 && a.n <= ENDPOINT_MAX_ADDRS);
	if (a.first.addr.ss_family == AF_INET)
		assert_int_equal(ntohs(((struct sockaddr_in *)&a.first.addr)->sin_port), 98);
	/* A label may not begin with a hyphen or be this long: refused without a name server. */
	a = ask("-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.invalid");
	assert_true(a.err < 0);
	assert_int_equal(a.n, 0);
	assert_non_null(strstr(a.text, ".invalid: "));
}

static void a_cancelled_query_is_silent(void **state)
{
	static const char *const targets[] = { "127.0.0.1", "localhost" };
	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		struct endpoint e = parsed(targets[i]);
		struct answer a = { 0 };
		struct endpoint_query *q;
		struct loop *loop;
		assert_int_equal(loop_new(&loop), 0);
		assert_int_equal(endpoint_resolve(loop, &e, on_answer, &a, &q), 0);
		endpoint_query_cancel(q);
		loop_run(loop); /* ends when nothing is active */
		assert_int_equal(a.calls, 0);
		loop_free(loop);
	}
	endpoint_query_cancel(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_and_writes_back),
		cmocka_unit_test(refuses),
		cmocka_unit_test(knows_loopback),
		cmocka_unit_test(literals_need_no_resolution),
		cmocka_unit_test(resolves),
		cmocka_unit_test(a_cancelled_query_is_silent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
