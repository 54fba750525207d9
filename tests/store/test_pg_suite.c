/* The suite on Postgres. */
#include "server/store/postgres/pg_store.h"
#include "tests/store/pg_server.h"
#include "tests/store/suite.h"

static struct pg_server server;

static void begin(void) { pg_server_start(&server, false); }
static void end(void) { pg_server_stop(&server); }

static struct store *open_store(struct loop *loop)
{
	struct pg_store_config cfg;
	struct store *s;
	pg_store_config_default(&cfg);
	cfg.url = server.tcp_url;
	if (pg_store_new(loop, &cfg, &s) < 0)
		fail_msg("pg_store_new");
	return s;
}

static const struct factory postgres = {"postgres", open_store, begin, end};
const struct factory *factory = &postgres;

int main(void)
{
	return _cmocka_run_group_tests("store/postgres", suite_tests, suite_n, harness_begin, harness_end);
}
