#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/stream/stream_impl.h"
#include "common/stream/tls.h"
#include "tests/unit/bulk.h"
#include "tests/unit/tls_files.h"
#include "tests/unit/turns.h"

#define MB ((size_t)1024 * 1024)

static struct loop *loop;
static struct tls_files files;
static const char *const h2[] = { "h2" };
static const char *const h2_and_old[] = { "h2", "http/1.1" };
static const char *const foreign[] = { "spdy/3" };

static int setup_group(void **state)
{
	tls_files_init(&files);
	tls_files_issue(&files, "server", "ca", "DNS:localhost,DNS:*.reins.test,IP:127.0.0.1", "serverAuth", 10);
	tls_files_issue(&files, "late-server", "ca", "DNS:localhost", "serverAuth", -1);
	tls_files_issue(&files, "client", "ca", "URI:spiffe://reins/worker/7,DNS:w7.reins.test,IP:10.1.2.3", "clientAuth", 10);
	tls_files_issue(&files, "late-client", "ca", "DNS:w8.reins.test", "clientAuth", -1);
	tls_files_issue(&files, "other-client", "other-ca", "DNS:w9.reins.test", "clientAuth", 10);
	return 0;
}

static int teardown_group(void **state)
{
	tls_files_done(&files);
	return 0;
}

static int setup(void **state)
{
	return loop_new(&loop);
}

static int teardown(void **state)
{
	loop_free(loop);
	return 0;
}

/* ---- contexts ---- */

struct side {
	const char *own; /* NULL: no certificate */
	const char *ca;  /* NULL: none */
	bool required;
	const char *const *alpn;
	size_t n_alpn;
};

static struct tls_context *context(bool server, struct side side)
{
	char cert[32], key[32], ca[32], err[256] = "";
	snprintf(cert, sizeof(cert), "%s.pem", side.own ? side.own : "");
	snprintf(key, sizeof(key), "%s.key", side.own ? side.own : "");
	snprintf(ca, sizeof(ca), "%s.pem", side.ca ? side.ca : "");
	_cleanup_free_ char *cert_file = tls_files_path(&files, cert);
	_cleanup_free_ char *key_file = tls_files_path(&files, key);
	_cleanup_free_ char *ca_file = tls_files_path(&files, ca);
	struct tls_config cfg = {
		.server = server,
		.cert_file = side.own ? cert_file : NULL,
		.key_file = side.own ? key_file : NULL,
		.ca_file = side.ca ? ca_file : NULL,
		.require_client_cert = side.required,
		.alpn = side.alpn,
		.n_alpn = side.n_alpn,
	};
	struct tls_context *ctx = NULL;
	int rc = tls_context_new(&cfg, err, sizeof(err), &ctx);
	assert_string_equal(err, "");
	assert_int_equal(rc, 0);
	return ctx;
}

/* A server and a client that have met, or not. */
struct meeting {
	struct bulk_server v;
	struct tls_context *server, *client;
	struct bulk a, b; /* client, server */
};

static void prepare(struct meeting *m, struct side server, struct side client)
{
	m->server = context(true, server);
	m->client = context(false, client);
	bulk_server_start(&m->v, loop, (struct listener_config){ .tls = m->server });
}

static void begin(struct meeting *m, const char *name, size_t len)
{
	bulk_init(&m->a, 1, 2, len);
	bulk_init(&m->b, 2, 1, len);
	m->v.next = &m->b;
	bulk_server_connect(&m->v, &m->a, m->client, name);
}

static void part(struct meeting *m)
{
	stream_close(m->a.s);
	stream_close(m->b.s);
	m->a.s = m->b.s = NULL;
}

static void finish(struct meeting *m)
{
	part(m);
	listener_free(m->v.l);
	tls_context_free(m->server);
	tls_context_free(m->client);
}

static void exchange(struct meeting *m, const char *name, size_t len)
{
	begin(m, name, len);
	TURNS_UNTIL(loop, m->a.err || (m->b.s && bulk_done(&m->a) && bulk_done(&m->b)));
	assert_string_equal(m->a.text, "");
	assert_string_equal(m->b.text, "");
	assert_false(m->a.wrong || m->b.wrong);
	assert_int_equal(m->a.received, len);
	assert_int_equal(m->b.received, len);
}

static const struct side plain_server = { .own = "server", .alpn = h2_and_old, .n_alpn = 2 };
static const struct side strict_server = { .own = "server", .ca = "ca", .required = true, .alpn = h2, .n_alpn = 1 };
static const struct side plain_client = { .ca = "ca", .alpn = h2, .n_alpn = 1 };
static const struct side good_client = { .own = "client", .ca = "ca", .alpn = h2, .n_alpn = 1 };

static bool has_san(const struct stream *s, const char *name)
{
	const struct stream_peer *p = stream_peer(s);
	for (size_t i = 0; i < p->n_sans; i++)
		if (strcmp(p->sans[i], name) == 0)
			return true;
	return false;
}

/* ---- what works ---- */

static void tls_carries_megabytes(void **state)
{
	struct meeting m;
	prepare(&m, strict_server, good_client);
	exchange(&m, "localhost", 10 * MB);
	assert_true(m.a.partial_writes > 0);
	const struct stream_peer *client = stream_peer(m.b.s), *server = stream_peer(m.a.s);
	assert_true(client->tls && server->tls);
	assert_string_equal(client->alpn, "h2");
	assert_string_equal(server->alpn, "h2");
	assert_int_equal(client->n_sans, 3);
	assert_string_equal(client->sans[0], "spiffe://reins/worker/7");
	assert_string_equal(client->sans[1], "w7.reins.test");
	assert_string_equal(client->sans[2], "10.1.2.3");
	assert_true(has_san(m.a.s, "localhost"));
	int64_t left_us = client->cert_not_after_wall_us - clock_wall_us();
	assert_true(left_us > 9 * INT64_C(86400000000) && left_us <= 10 * INT64_C(86400000000));
	finish(&m);
}

static void names_are_checked(void **state)
{
	struct meeting m;
	prepare(&m, plain_server, plain_client);
	exchange(&m, "127.0.0.1", 1000);
	part(&m);
	exchange(&m, "m1.reins.test", 1000);
	assert_int_equal(stream_peer(m.b.s)->n_sans, 0); /* nobody asked for a certificate */
	assert_int_equal(stream_peer(m.b.s)->cert_not_after_wall_us, 0);
	part(&m);

	static const struct {
		const char *name, *text;
	} bad[] = {
		{ "elsewhere.test", "ostname mismatch" },
		{ "a.b.reins.test", "ostname mismatch" },
		{ "127.0.0.2", "IP address mismatch" },
		{ "::1", "IP address mismatch" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		begin(&m, bad[i].name, 1000);
		TURNS_UNTIL(loop, m.a.err);
		assert_non_null(strstr(m.a.text, bad[i].text));
		assert_false(m.a.opened);
		part(&m);
	}
	struct stream *s = NULL;
	assert_int_equal(stream_connect(loop, (struct sockaddr *)&m.v.addr, m.v.addr_len, m.client, "", &bulk_events, &m.a,
					&s), -EINVAL);
	assert_int_equal(stream_connect(loop, (struct sockaddr *)&m.v.addr, m.v.addr_len, m.client, NULL, &bulk_events, &m.a,
					&s), -EINVAL);
	finish(&m);
}

static void sessions_are_resumed(void **state)
{
	struct meeting m;
	prepare(&m, strict_server, good_client);
	exchange(&m, "localhost", 1000);
	assert_false(stream_peer(m.a.s)->resumed);
	part(&m);
	exchange(&m, "localhost", 1000);
	assert_true(stream_peer(m.a.s)->resumed);
	assert_true(stream_peer(m.b.s)->resumed);
	assert_true(has_san(m.b.s, "spiffe://reins/worker/7")); /* who it is comes out of the ticket */
	part(&m);
	exchange(&m, "127.0.0.1", 1000); /* another name: its certificate must be looked at */
	assert_false(stream_peer(m.a.s)->resumed);
	part(&m);
	exchange(&m, "127.0.0.1", 1000);
	assert_true(stream_peer(m.a.s)->resumed);
	finish(&m);
}

static void ticket_keys_grow_old(void **state)
{
	struct meeting m;
	prepare(&m, strict_server, good_client);
	exchange(&m, "localhost", 1000);
	part(&m);
	assert_true(tls_context_rotate_tickets(m.server));
	exchange(&m, "localhost", 1000); /* and gets a ticket of the new key */
	assert_true(stream_peer(m.b.s)->resumed);
	part(&m);
	assert_true(tls_context_rotate_tickets(m.server));
	assert_true(tls_context_rotate_tickets(m.server));
	exchange(&m, "localhost", 1000);
	assert_false(stream_peer(m.b.s)->resumed);
	finish(&m);
}

static void a_client_without_alpn_is_taken(void **state)
{
	struct meeting m;
	struct side client = plain_client;
	client.n_alpn = 0;
	prepare(&m, plain_server, client);
	exchange(&m, "localhost", 10);
	assert_string_equal(stream_peer(m.b.s)->alpn, "");
	finish(&m);
}

struct sipper {
	struct stream *s;
	size_t sip; /* bytes read in one call */
	size_t got;
	bool open, ended;
};

static void on_sipper_open(void *arg)
{
	((struct sipper *)arg)->open = true;
}

static void on_sip(void *arg, int events)
{
	static char data[16384];
	struct sipper *p = arg;
	ssize_t n = stream_read(p->s, data, p->sip);
	assert_true(n >= 0 || n == -EAGAIN);
	if (n > 0)
		p->got += (size_t)n;
	if (n == 0) {
		p->ended = true;
		stream_want(p->s, 0);
	}
}

static const struct stream_events sipper_events = { .on_open = on_sipper_open, .on_ready = on_sip };

static void meet_sipper(struct meeting *m, struct sipper *p)
{
	prepare(m, plain_server, plain_client);
	bulk_init(&m->a, 1, 2, 0);
	bulk_init(&m->b, 2, 1, 0);
	m->b.mute = true;
	m->v.next = &m->b;
	assert_int_equal(stream_connect(loop, (struct sockaddr *)&m->v.addr, m->v.addr_len, m->client, "localhost",
					&sipper_events, p, &p->s), 0);
	TURNS_UNTIL(loop, p->open && m->b.s);
}

static void bytes_in_openssl_are_told(void **state)
{
	struct meeting m;
	struct sipper p = { .sip = 1 };
	struct iovec iov = { (char[]){ "abc" }, 3 };
	meet_sipper(&m, &p);
	for (int i = 0; i < 300; i++)
		assert_int_equal(stream_writev(m.b.s, &iov, 1), 3);
	/* One system call takes many of these small records in, and then the socket stays silent. */
	stream_want(p.s, LOOP_READ);
	TURNS_UNTIL(loop, p.got == 900);
	stream_close(p.s);
	finish(&m);
}

static void what_was_taken_arrives_before_the_end(void **state)
{
	static char data[40000];
	struct meeting m;
	struct sipper p = { .sip = sizeof(data) };
	struct iovec iov = { data, sizeof(data) };
	size_t taken = 0;
	ssize_t n;
	meet_sipper(&m, &p);
	while ((n = stream_writev(m.b.s, &iov, 1)) > 0)
		taken += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	stream_want(p.s, LOOP_READ);
	TURNS_UNTIL(loop, p.got == taken); /* nobody writes or asks to */

	stream_want(p.s, 0);
	while ((n = stream_writev(m.b.s, &iov, 1)) > 0)
		taken += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	stream_shutdown(m.b.s); /* with a record half written */
	assert_int_equal(stream_writev(m.b.s, &iov, 1), -EPIPE);
	stream_want(p.s, LOOP_READ);
	TURNS_UNTIL(loop, p.ended);
	assert_int_equal(p.got, taken);
	/* The other direction is still open. */
	assert_int_equal(stream_writev(p.s, &iov, 1), sizeof(data));
	stream_close(p.s);
	finish(&m);
}

/* ---- what is refused ---- */

static void refused(struct side server, struct side client, const char *client_text, const char *server_text)
{
	struct meeting m;
	prepare(&m, server, client);
	begin(&m, "localhost", 1000);
	TURNS_UNTIL(loop, m.a.err && m.v.refused);
	if (!strstr(m.a.text, client_text) || !strstr(m.v.refused_text, server_text))
		fail_msg("client: %s; server: %s", m.a.text, m.v.refused_text);
	assert_int_equal(m.v.accepted, 0);
	assert_null(m.b.s);
	finish(&m);
}

static void wrong_ca_is_refused(void **state)
{
	struct side client = plain_client;
	client.ca = "other-ca";
	refused(plain_server, client, "unable to get local issuer certificate", "doesn't trust the authority");
}

static void missing_client_certificate_is_refused(void **state)
{
	refused(strict_server, plain_client, "wants a certificate and we gave none", "it gave no certificate");
}

static void foreign_client_certificate_is_refused(void **state)
{
	struct side client = good_client;
	client.own = "other-client";
	refused(strict_server, client, "doesn't trust the authority", "unable to get local issuer certificate");
}

static void a_servers_certificate_is_no_clients(void **state)
{
	struct side client = good_client;
	client.own = "server";
	refused(strict_server, client, "made for another use", "unsuitable certificate purpose");
}

static void expired_certificates_are_refused(void **state)
{
	struct side server = plain_server, client = good_client;
	server.own = "late-server";
	refused(server, plain_client, "certificate has expired", "expired");
	client.own = "late-client";
	refused(strict_server, client, "expired; renew it", "certificate of \"late-client\" refused: certificate has expired");
}

static void foreign_alpn_is_refused(void **state)
{
	struct side client = plain_client;
	client.alpn = foreign;
	refused(plain_server, client, "no application protocol", "no application protocol");
}

static void clear_text_is_refused(void **state)
{
	struct meeting m;
	prepare(&m, plain_server, plain_client);
	bulk_init(&m.a, 1, 2, 100);
	bulk_init(&m.b, 2, 1, 100);
	bulk_server_connect(&m.v, &m.a, NULL, NULL);
	TURNS_UNTIL(loop, m.v.refused);
	assert_true(m.v.refused_text[0]);
	finish(&m);
}

/* ---- files ---- */

static void bad_files_are_named(void **state)
{
	static const struct {
		const char *cert, *key, *ca, *text;
		bool server, required;
	} bad[] = {
		{ "missing.pem", "server.key", NULL, "missing.pem: No such file", true, false },
		{ "server.key", "server.key", NULL, "server.key: holds no certificate (PEM)", true, false },
		{ "server.pem", "ca.pem", NULL, "ca.pem: holds no usable key (PEM)", true, false },
		{ "server.pem", "client.key", NULL, "does not fit", true, false },
		{ "server.pem", NULL, NULL, "needs its key", true, false },
		{ NULL, NULL, NULL, "needs its key", true, false },
		{ "server.pem", "server.key", "server.key", "CA file ", true, false },
		{ "server.pem", "server.key", NULL, "without a CA file", true, true },
		{ NULL, "client.key", "ca.pem", "needs its key", false, false },
		{ NULL, NULL, "missing.pem", "CA file ", false, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char err[256] = "";
		_cleanup_free_ char *cert = tls_files_path(&files, bad[i].cert ? bad[i].cert : "");
		_cleanup_free_ char *key = tls_files_path(&files, bad[i].key ? bad[i].key : "");
		_cleanup_free_ char *ca = tls_files_path(&files, bad[i].ca ? bad[i].ca : "");
		struct tls_config cfg = {
			.server = bad[i].server,
			.require_client_cert = bad[i].required,
			.cert_file = bad[i].cert ? cert : NULL,
			.key_file = bad[i].key ? key : NULL,
			.ca_file = bad[i].ca ? ca : NULL,
		};
		struct tls_context *ctx = NULL;
		assert_int_equal(tls_context_new(&cfg, err, sizeof(err), &ctx), -EINVAL);
		assert_null(ctx);
		if (!strstr(err, bad[i].text))
			fail_msg("row %zu: %s", i, err);
	}
}

static void reload_serves_new_connections(void **state)
{
	struct meeting m;
	struct side server = plain_server;
	struct bulk other, other_end;
	char err[256] = "";
	tls_files_issue(&files, "moving", "ca", "DNS:localhost,DNS:old.test", "serverAuth", 10);
	server.own = "moving";
	prepare(&m, server, plain_client);
	begin(&m, "localhost", MB);
	m.a.mute = true;
	TURNS_UNTIL(loop, m.a.opened && m.b.opened);
	assert_true(has_san(m.a.s, "old.test"));

	assert_int_equal(tls_context_refresh(m.server, err, sizeof(err)), 0); /* nothing has changed */
	tls_files_issue(&files, "moving", "ca", "DNS:localhost,DNS:new.test", "serverAuth", 10);
	assert_int_equal(tls_context_refresh(m.server, err, sizeof(err)), 1);
	assert_int_equal(tls_context_refresh(m.server, err, sizeof(err)), 0);
	bulk_init(&other, 3, 4, 1000);
	bulk_init(&other_end, 4, 3, 1000);
	m.v.next = &other_end;
	bulk_server_connect(&m.v, &other, m.client, "localhost");
	TURNS_UNTIL(loop, bulk_done(&other) && bulk_done(&other_end));
	assert_string_equal(other.text, "");
	assert_true(has_san(other.s, "new.test"));
	assert_false(stream_peer(other.s)->resumed); /* tickets of the old certificate are void */
	stream_close(other.s);
	stream_close(other_end.s);

	/* The old one lives. */
	m.a.mute = false;
	stream_want(m.a.s, LOOP_READ | LOOP_WRITE_READY);
	TURNS_UNTIL(loop, bulk_done(&m.a) && bulk_done(&m.b));
	assert_string_equal(m.a.text, "");
	assert_int_equal(m.a.received, MB);
	assert_true(has_san(m.a.s, "old.test"));
	part(&m);

	/* A broken file changes nothing. */
	_cleanup_free_ char *path = tls_files_path(&files, "moving.pem");
	FILE *f = fopen(path, "w");
	fputs("rubbish\n", f);
	fclose(f);
	assert_int_equal(tls_context_reload(m.server, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "moving.pem"));
	assert_int_equal(tls_context_refresh(m.server, err, sizeof(err)), 0); /* that was said */
	assert_true(tls_context_ends_wall_us(m.server) > clock_wall_us());

	/* Nor does one that would hold up the loop. */
	assert_int_equal(truncate(path, 2 * MB), 0);
	assert_int_equal(tls_context_reload(m.server, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "moving.pem: larger than"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(tls_context_reload(m.server, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "moving.pem: not an ordinary file"));
	assert_int_equal(tls_context_refresh(m.server, err, sizeof(err)), 0);
	assert_int_equal(unlink(path), 0);

	exchange(&m, "localhost", 1000);
	assert_true(has_san(m.a.s, "new.test"));
	finish(&m);
}

/* ---- half-open handshakes ---- */

static int half_open(const struct bulk_server *v)
{
	/* The head of a ClientHello record that never comes. */
	static const unsigned char head[] = { 22, 3, 1, 1, 0, 1 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&v->addr, v->addr_len), 0);
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
	return fd;
}

static void half_open_handshakes_do_not_block(void **state)
{
	struct meeting m;
	int fd[40];
	prepare(&m, plain_server, plain_client);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		fd[i] = half_open(&m.v);
	exchange(&m, "localhost", 1000); /* the deadline of the others is 10 s away */
	assert_int_equal(m.v.refused, 0);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		close(fd[i]);
	TURNS_UNTIL(loop, m.v.refused == (int)ARRAY_LEN(fd));
	finish(&m);
}

static void handshakes_are_limited_and_end(void **state)
{
	struct meeting m;
	int fd[3];
	m.server = context(true, plain_server);
	m.client = context(false, plain_client);
	bulk_server_start(&m.v, loop, (struct listener_config){
		.tls = m.server, .max_handshakes = 2, .handshake_timeout_ns = 400 * NS_PER_MS });
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		fd[i] = half_open(&m.v);
	/* All places are taken twice over, and yet the good one gets in after the others' deadlines. */
	exchange(&m, "localhost", 1000);
	assert_true(m.v.refused >= 2);
	assert_string_equal(m.v.refused_text, "TLS handshake timed out");
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		close(fd[i]);
	finish(&m);
}

static void listener_freed_during_handshakes(void **state)
{
	struct meeting m;
	prepare(&m, plain_server, plain_client);
	bulk_init(&m.a, 1, 2, 0);
	bulk_init(&m.b, 1, 2, 0);
	int fd = half_open(&m.v);
	turns_for(loop, 20 * NS_PER_MS);
	char c;
	finish(&m);
	assert_true(recv(fd, &c, 1, 0) <= 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(tls_carries_megabytes),
		TEST(names_are_checked),
		TEST(sessions_are_resumed),
		TEST(ticket_keys_grow_old),
		TEST(a_client_without_alpn_is_taken),
		TEST(bytes_in_openssl_are_told),
		TEST(what_was_taken_arrives_before_the_end),
		TEST(wrong_ca_is_refused),
		TEST(missing_client_certificate_is_refused),
		TEST(foreign_client_certificate_is_refused),
		TEST(a_servers_certificate_is_no_clients),
		TEST(expired_certificates_are_refused),
		TEST(foreign_alpn_is_refused),
		TEST(clear_text_is_refused),
		TEST(bad_files_are_named),
		TEST(reload_serves_new_connections),
		TEST(half_open_handshakes_do_not_block),
		TEST(handshakes_are_limited_and_end),
		TEST(listener_freed_during_handshakes),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("tls", tests, setup_group, teardown_group);
}
