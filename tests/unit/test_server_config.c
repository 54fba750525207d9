/* Who may listen where, which times go together, and which worker a certificate is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/config.h"
#include "server/rpc/worker_cert.h"

enum { CERT = 1, KEY = 2, CA = 4, INSECURE = 8 };

static const struct {
	const char *listen;
	int with;
	const char *refused; /* NULL: may start */
} listeners[] = {
	{ "127.0.0.1:7346", 0, NULL },
	{ "127.9.9.9:7346", 0, NULL },
	{ "[::1]:7346", 0, NULL },
	{ "unix:/run/reins.sock", 0, NULL },
	{ "0.0.0.0:7346", 0, "clear text" },
	{ "[::]:7346", 0, "clear text" },
	{ "10.0.0.1:7346", 0, "clear text" },
	{ "10.0.0.1:7346", CERT | KEY | CA, "clear text" }, /* certificates don't help a clear listener */
	{ "http://10.0.0.1:7346", 0, "clear text" },
	{ "0.0.0.0:7346", INSECURE, NULL },
	{ "tls://0.0.0.0:7347", CERT | KEY | CA, NULL },
	{ "https://0.0.0.0:7347", CERT | KEY | CA, NULL },
	{ "tls://0.0.0.0:7347", CERT | KEY, "client-ca" },
	{ "tls://127.0.0.1:7347", CERT | KEY, "client-ca" }, /* nor on loopback: TLS was asked for to keep somebody out */
	{ "tls://0.0.0.0:7347", CERT | KEY | INSECURE, NULL },
	{ "tls://0.0.0.0:7347", CA, "--tls-cert and --tls-key" },
	{ "tls://0.0.0.0:7347", CERT | CA, "--tls-cert and --tls-key" },
	{ "tls://0.0.0.0:7347", KEY | CA, "--tls-cert and --tls-key" },
	{ "tls://0.0.0.0:7347", INSECURE, "--tls-cert and --tls-key" },
	{ "ftp://127.0.0.1:1", 0, "scheme" },
	{ "127.0.0.1:99999", 0, "listen" },
};

static void who_may_listen(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(listeners); i++) {
		char listen[64], err[300] = "";
		char *argv[] = { (char[]){ "reinsd" }, listen, NULL };
		struct server_config c = { 0 };
		snprintf(listen, sizeof(listen), "--listen=%s", listeners[i].listen);
		assert_int_equal(settings_load(&server_settings, 2, argv, &c, NULL, NULL), SETTINGS_RUN);
		c.tls_cert = listeners[i].with & CERT ? xstrdup("cert.pem") : NULL;
		c.tls_key = listeners[i].with & KEY ? xstrdup("key.pem") : NULL;
		c.client_ca = listeners[i].with & CA ? xstrdup("ca.pem") : NULL;
		c.insecure = listeners[i].with & INSECURE;
		int rc = server_config_check(&c, err, sizeof(err));
		if (listeners[i].refused ? rc == 0 || !strstr(err, listeners[i].refused) : rc != 0)
			fail_msg("row %zu: %s: %d %s", i, listeners[i].listen, rc, err);
		settings_done(&server_settings, &c);
	}
}

static const struct {
	const char *flags[3];
	const char *refused;
} times[] = {
	{ { "--lease-ttl=6s" }, NULL },
	{ { "--lease-ttl=5900ms" }, "heartbeat-interval" },
	{ { "--master-ttl=4s" }, NULL },
	{ { "--master-ttl=3900ms" }, "master-ttl: " },
	{ { "--heartbeat-interval=10s", "--lease-ttl=30s" }, NULL }, /* the seed's */
	{ { "--heartbeat-interval=20s", "--lease-ttl=60s" }, "master-ttl: " },
	{ { "--heartbeat-interval=20s", "--lease-ttl=60s", "--master-ttl=40s" }, NULL },
	{ { "--master-ttl=120s" }, NULL },
	{ { "--master-ttl=121s" }, "master-ttl-exclusive" },
	{ { "--master-ttl-exclusive=29s" }, "master-ttl-exclusive" },
};

static void times_that_go_together(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		char err[300] = "", *argv[5] = { (char[]){ "reinsd" } };
		int argc = 1;
		for (size_t k = 0; k < 3 && times[i].flags[k]; k++)
			argv[argc++] = (char *)(uintptr_t)times[i].flags[k];
		struct server_config c = { 0 };
		assert_int_equal(settings_load(&server_settings, argc, argv, &c, NULL, NULL), SETTINGS_RUN);
		int rc = server_config_check(&c, err, sizeof(err));
		if (times[i].refused ? rc == 0 || !strstr(err, times[i].refused) : rc != 0)
			fail_msg("row %zu: %d %s", i, rc, err);
		settings_done(&server_settings, &c);
	}
}

static const struct {
	const char *flags[4];
	int64_t descriptors;
	int connections, handshakes;
} rooms[] = {
	{ { "--listen=127.0.0.1:1" }, INT64_MAX, 10200, 256 },
	{ { "--listen=127.0.0.1:1" }, 20000, 10200, 256 },
	{ { "--listen=127.0.0.1:1" }, 1024, 954, 256 },
	{ { "--listen=127.0.0.1:1", "--store-connections=32" }, 1024, 896, 256 },
	{ { "--listen=127.0.0.1:1", "--max-connections=100" }, 1024, 100, 256 },
	{ { "--listen=tls://127.0.0.1:1" }, 20000, 10200, 256 },
	{ { "--listen=tls://127.0.0.1:1" }, 1024, 716, 238 },
	{ { "--listen=tls://127.0.0.1:1", "--listen=tls://127.0.0.1:2" }, 1024, 716, 119 },
	{ { "--listen=tls://127.0.0.1:1" }, 64, 1, 1 }, /* too few for anything */
	{ { "--listen=127.0.0.1:1" }, 0, 1, 256 },
};

static void connections_leave_descriptors_to_the_store(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
		char *argv[6] = { (char *)(uintptr_t)"reinsd" };
		int argc = 1;
		for (size_t k = 0; k < 4 && rooms[i].flags[k]; k++)
			argv[argc++] = (char *)(uintptr_t)rooms[i].flags[k];
		struct server_config c = { 0 };
		assert_int_equal(settings_load(&server_settings, argc, argv, &c, NULL, NULL), SETTINGS_RUN);
		struct server_room room = server_config_room(&c, rooms[i].descriptors);
		if (room.connections != rooms[i].connections || room.handshakes != rooms[i].handshakes)
			fail_msg("row %zu: %d connections, %d handshakes", i, room.connections, room.handshakes);
		settings_done(&server_settings, &c);
	}
}

static const struct {
	const char *sans[3];
	const char *id;
	bool allowed;
	const char *named;
} certs[] = {
	{ { "w1" }, "w1", true, "\"w1\"" },
	{ { "reins:worker:w1" }, "w1", true, "worker \"w1\"" },
	{ { "reins:worker:rack/w_1.a-b" }, "rack/w_1.a-b", true, "worker \"rack/w_1.a-b\"" },
	{ { "other", "reins:worker:w1" }, "w1", true, "\"other\"" },
	{ { "reins:worker:w1" }, "w2", false, "worker \"w1\"" },
	{ { "reins:worker:w1" }, "w", false, "worker \"w1\"" },
	{ { "reins:worker:w1" }, "w11", false, "worker \"w1\"" },
	{ { "reins:worker:" }, "w1", false, "worker \"\"" },
	{ { "reins:worker:W1" }, "w1", false, "worker \"W1\"" },
	{ { "*" }, "w1", false, "\"*\"" },
	{ { "*.example.org" }, "w1.example.org", false, "\"*.example.org\"" },
	{ { "reins:client:w1" }, "w1", false, "client \"w1\"" },
	{ { "spiffe://x/w1" }, "w1", false, "\"spiffe://x/w1\"" },
	{ { NULL }, "w1", false, "nobody" },
};

static void whose_certificate(void **state)
{
	char named[128];
	for (size_t i = 0; i < ARRAY_LEN(certs); i++) {
		struct stream_peer peer = { .tls = true, .sans = certs[i].sans, .cert_not_after_wall_us = 1 };
		while (peer.n_sans < 3 && certs[i].sans[peer.n_sans])
			peer.n_sans++;
		if (worker_cert_allows(&peer, certs[i].id) != certs[i].allowed)
			fail_msg("row %zu: %s", i, certs[i].id);
		worker_cert_names(&peer, named, sizeof(named));
		assert_string_equal(named, certs[i].named);
	}
	/* clear text, and TLS that asks nobody: nothing to go by */
	struct stream_peer clear = { .tls = false }, unasked = { .tls = true };
	assert_true(worker_cert_allows(&clear, "w1"));
	assert_true(worker_cert_allows(&unasked, "w1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_may_listen),
		cmocka_unit_test(times_that_go_together),
		cmocka_unit_test(connections_leave_descriptors_to_the_store),
		cmocka_unit_test(whose_certificate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
