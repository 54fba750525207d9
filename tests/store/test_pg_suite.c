/* The suite on Postgres. */
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg_schema_sql.h"
#include "server/store/postgres/pg_store.h"
#include "tests/store/pg_server.h"
#include "tests/store/old_labels.h"
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

/* See old.c.  What is in the default partitions stays there; the others are of tasks of this week. */
#define ID(n) "'0190b6a0-0000-7000-8000-00000000000" n "'"
#define CORE(n, prio, attempt, failures, losses, max) \
	ID(n) "," n "," prio "," attempt "," failures "," losses ",500,0,0,false,NULL," max ",'old'"
#define TASK(n, key, prio, max) \
	"(" ID(n) "," n ",'2024-07-02 06:00Z',NULL," prio ",500,0,0,false,NULL," max ",'old',NULL,NULL," key ",NULL,NULL,'spec')"
#define ONCE "NULL,NULL,NULL,NULL"
#define TWICE "2,1000000000,5000000000,2.0"
#define T0 "'2024-07-02 06:00Z'"
#define T1 "'2024-07-02 06:00:01Z'"
#define INSTANCE "'01000000-0000-0000-0000-000000000000'"
static void make_old(void)
{
	static const char rows[] =
		"; SELECT make_partitions(2); INSERT INTO meta VALUES ('schema', '1');"
		"INSERT INTO task VALUES " TASK("1", "'old-key'", "0", ONCE) "," TASK("2", "NULL", "0", ONCE) ","
		TASK("3", "NULL", "-5", TWICE) "," TASK("4", "NULL", "0", ONCE) "," TASK("5", "NULL", "0", ONCE) ","
		TASK("6", "NULL", "0", ONCE) ";"
		"SELECT setval('task_seq', 6);"
		"INSERT INTO ready VALUES (" CORE("1", "0", "0", "0", "0", ONCE) ",NULL), ("
		CORE("2", "0", "1", "0", "1", ONCE) ",'old-w');"
		"INSERT INTO delayed VALUES (" ID("3") ",3," T1 ",-5,1,1,0,500,0,0,false,NULL," TWICE ",'old');"
		"INSERT INTO running VALUES (" ID("4") ",4," INSTANCE ",1,10000000000," T0 ",NULL,NULL,0,1,0,0,500,0,0,false,NULL," ONCE
		",'old','old-w');"
		"INSERT INTO attempt VALUES (" ID("2") ",1,6,false,true,10000000000," T0 ",NULL," T1 ",NULL,NULL,0,'old-w',NULL),"
		"(" ID("3") ",1,2,true,false,10000000000," T0 ",NULL," T1 ",7,NULL,0,'old-w',NULL);"
		"INSERT INTO ended VALUES (" ID("5") ",3,1,1,0,0,true," T0 ",NULL," T1 ",NULL,0,NULL,3,NULL,'old-w',NULL,'res'),"
		"(" ID("6") ",5,0,0,0,0,false,NULL,NULL," T1 "," T1 ",NULL,NULL,0,NULL,NULL,NULL,NULL);"
		"INSERT INTO log VALUES (" ID("4") ",0,1,1,'ab'),(" ID("5") ",0,1,2,'abc');"
		"INSERT INTO idempotency VALUES ('old-key'," ID("1") ",decode(repeat('00', 32), 'hex'));"
		"INSERT INTO worker VALUES ('old-w'," INSTANCE ",1,1," T0 ",'m1');"
		"INSERT INTO master VALUES ('m1',3,7," T0 "); COMMIT";
	static const char head[] = "BEGIN; CREATE SCHEMA reins; SET search_path = reins;";
	size_t len = sizeof(head) + strlen(pg_schema_migrations[0]) + sizeof(rows);
	char *sql = test_calloc(1, len);
	snprintf(sql, len, "%s%s%s", head, pg_schema_migrations[0], rows);
	pg_server_sql(&server, sql);
	test_free(sql);
}

static void add(struct buf *b, const char *text) { assert_int_equal(buf_add(b, text, strlen(text)), 0); }

static void make_labelled(void)
{
	struct buf b;
	buf_init(&b, 8 << 20);
	add(&b, "BEGIN; CREATE SCHEMA reins; SET search_path = reins;");
	for (int v = 0; v < 4; v++)
		add(&b, pg_schema_migrations[v]);
	add(&b, ";INSERT INTO meta VALUES ('schema', '4'); SELECT make_partitions(2); INSERT INTO task (id, seq, created_at, neg_priority, cpu, "
		"memory, gpus, exclusive, queue, list_spec, spec) VALUES ");
	for (int n = 1; n <= OLD_LABELLED; n++) {
		const char *list = old_list_spec(n), *quote = list ? "'" : "";
		assert_int_equal(buf_addf(&b, "%s('0190b6a0-0000-7000-8000-%012x', %d, '2024-07-02 06:00Z', 0, 0, 0, 0, false, 'old', %s%s%s%s, '\\x%s')",
					  n > 1 ? "," : "", (unsigned)n, n, quote, list ? "\\x" : "", list ? list : "NULL", quote, old_spec(n)), 0);
	}
	add(&b, "; COMMIT");
	assert_int_equal(buf_add(&b, "", 1), 0);
	pg_server_sql(&server, (const char *)buf_head(&b));
	buf_done(&b);
}

static const struct factory postgres = {"postgres", open_store, begin, end, make_old, make_labelled};
const struct factory *factory = &postgres;

/* With the argument "old" or "labels": what is done on an old store. */
int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "labels") == 0)
		return _cmocka_run_group_tests("store/postgres-labels", old_labels_tests, old_labels_n, harness_begin_labelled, harness_end);
	if (argc > 1)
		return _cmocka_run_group_tests("store/postgres-old", old_tests, old_n, harness_begin_old, harness_end);
	return _cmocka_run_group_tests("store/postgres", suite_tests, suite_n, harness_begin, harness_end);
}
