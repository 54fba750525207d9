/* The suite on SQLite, in a directory of its own. */
#include <stdio.h>

#include "server/store/sqlite/sqlite_store.h"
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

static const struct factory sqlite = {"sqlite", open_store, begin, end, .alone = true};
const struct factory *factory = &sqlite;

int main(void)
{
	return _cmocka_run_group_tests("store/sqlite", suite_tests, suite_n, harness_begin, harness_end);
}
