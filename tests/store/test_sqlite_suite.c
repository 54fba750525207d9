/* The suite on SQLite, in a directory of its own. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq.h"
#include "tests/store/old_labels.h"
#include "tests/store/suite.h"
#include "tests/store/tmp_dir.h"

static struct tmp_dir dir;

static void begin(void) { tmp_dir_make(&dir); }
static void end(void) { tmp_dir_remove(&dir); }

static struct store *open_store(struct loop *loop)
{
	struct sqlite_store_config cfg;
	struct store *s;
	char path[TMP_PATH_MAX], err[200];
	sqlite_store_config_default(&cfg);
	cfg.path = tmp_dir_path(&dir, "reins.db", path);
	if (sqlite_store_new(loop, &cfg, err, sizeof(err), &s) < 0)
		fail_msg("%s", err);
	return s;
}

static void make_file(const char *name, bool logs, const char *rows)
{
	char path[TMP_PATH_MAX], *err = NULL;
	sqlite3 *db;
	assert_int_equal(sqlite3_open(tmp_dir_path(&dir, name, path), &db), SQLITE_OK);
	char head[200];
	snprintf(head, sizeof(head), "PRAGMA application_id = %d; PRAGMA user_version = 1; INSERT INTO meta VALUES ('store_id', "
		 "'0190b6a0-0000-4000-8000-000000000000')", logs ? SQ_LOGS_ID : SQ_TASKS_ID);
	const char *const scripts[] = {sq_schema_script(logs, 0), head, rows};
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++)
		if (sqlite3_exec(db, scripts[i], NULL, NULL, &err) != SQLITE_OK)
			fail_msg("%s", err);
	sqlite3_close(db);
}

/* See old.c. */
#define ID(n) "x'0190b6a0000070008000" "00000000000" n "'"
#define CORE(n, prio, attempt, failures, losses, max) \
	ID(n) "," n "," prio "," attempt "," failures "," losses ",500,0,0,0,NULL," max ",'old'"
#define TASK(n, key, prio, max) \
	"(" n "," ID(n) ",1719900000000000,NULL," prio ",500,0,0,0,NULL," max ",'old',NULL,NULL," key ",NULL,NULL,x'73706563')"
#define ONCE "NULL,NULL,NULL,NULL"
#define TWICE "2,1000000000,5000000000,2.0"
static void make_old(void)
{
	make_file("reins.db", false,
		  "INSERT INTO task VALUES " TASK("1", "'old-key'", "0", ONCE) "," TASK("2", "NULL", "0", ONCE) ","
		  TASK("3", "NULL", "-5", TWICE) "," TASK("4", "NULL", "0", ONCE) "," TASK("5", "NULL", "0", ONCE) ","
		  TASK("6", "NULL", "0", ONCE) ";"
		  "INSERT INTO ready VALUES (" CORE("1", "0", "0", "0", "0", ONCE) ",NULL), ("
		  CORE("2", "0", "1", "0", "1", ONCE) ",'old-w');"
		  "INSERT INTO delayed VALUES (" CORE("3", "-5", "1", "1", "0", TWICE) ",1719900001000000);"
		  "INSERT INTO running VALUES (" CORE("4", "0", "1", "0", "0", ONCE)
		  ",'old-w',x'01000000000000000000000000000000',1,10000000000,1719900000000000,NULL,NULL);"
		  "INSERT INTO attempt VALUES (" ID("2") ",1,6,0,1,10000000000,1719900000000000,NULL,1719900001000000,NULL,NULL,0,'old-w',NULL),"
		  "(" ID("3") ",1,2,1,0,10000000000,1719900000000000,NULL,1719900001000000,7,NULL,0,'old-w',NULL);"
		  "INSERT INTO ended VALUES (5," ID("5") ",3,1,1,0,0,1,1719900000000000,NULL,1719900001000000,NULL,0,NULL,3,NULL,'old-w',"
		  "NULL,x'726573'),(6," ID("6") ",5,0,0,0,0,0,NULL,NULL,1719900001000000,1719900001000000,NULL,NULL,0,NULL,NULL,NULL,NULL);"
		  "INSERT INTO idempotency VALUES ('old-key'," ID("1") ",zeroblob(32));"
		  "INSERT INTO worker VALUES ('old-w',x'01000000000000000000000000000000',1,1719900000000000,'m1');"
		  "INSERT INTO master VALUES ('m1',3,7,1719900000000000)");
	make_file("reins.db-logs", true,
		  "INSERT INTO log VALUES (" ID("4") ",1,0,1,x'6162'),(" ID("5") ",1,0,2,x'616263');"
		  "INSERT INTO log_task VALUES (" ID("4") ",2),(" ID("5") ",3);UPDATE meta SET value = 5 WHERE key = 'bytes'");
}

static void make_labelled(void)
{
	struct buf b;
	buf_init(&b, 8 << 20);
	for (int v = 1; v < 4; v++)
		assert_int_equal(buf_addf(&b, "%s;", sq_schema_script(false, v)), 0);
	assert_int_equal(buf_addf(&b, "PRAGMA user_version = 4; INSERT INTO task (id, seq, created_us, neg_priority, cpu, memory, gpus, exclusive, "
				      "queue, list_spec, spec) VALUES "), 0);
	for (int n = 1; n <= OLD_LABELLED; n++) {
		const char *list = old_list_spec(n), *quote = list ? "'" : "";
		assert_int_equal(buf_addf(&b, "%s(x'0190b6a0000070008000%012x', %d, 1719900000000000, 0, 0, 0, 0, 0, 'old', %s%s%s%s, x'%s')",
					  n > 1 ? "," : "", (unsigned)n, n, list ? "x" : "", quote, list ? list : "NULL", quote, old_spec(n)), 0);
	}
	assert_int_equal(buf_add(&b, "", 1), 0);
	make_file("reins.db", false, (const char *)buf_head(&b));
	make_file("reins.db-logs", true, "");
	buf_done(&b);
}

static const struct factory sqlite = {"sqlite", open_store, begin, end, make_old, make_labelled, .alone = true};
const struct factory *factory = &sqlite;

/* With the argument "old" or "labels": what is done on an old store. */
int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "labels") == 0)
		return _cmocka_run_group_tests("store/sqlite-labels", old_labels_tests, old_labels_n, harness_begin_labelled, harness_end);
	if (argc > 1)
		return _cmocka_run_group_tests("store/sqlite-old", old_tests, old_n, harness_begin_old, harness_end);
	return _cmocka_run_group_tests("store/sqlite", suite_tests, suite_n, harness_begin, harness_end);
}
