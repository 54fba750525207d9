/* What a file and a disk can do to the store on SQLite: it says what is wrong, loses nothing, comes back by itself
 * where it can, and leaves alone what it doesn't understand. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sqlite_store.h"
#include "server/store/store_logs.h"
#include "server/store/store_metrics.h"
#include "tests/store/fault_vfs.h"
#include "tests/store/follow.h"
#include "tests/store/harness.h"
#include "tests/store/tmp_dir.h"

static struct tmp_dir dir;
static char db_path[TMP_PATH_MAX];
static int64_t max_log_bytes, max_queued, event_retention_ns;

static bool warned;
static char said[200];

static void on_state(void *arg, bool up, const char *text)
{
	snprintf(said, sizeof(said), "%s", text);
	warned = up && text[0];
}

static struct store *open_store(struct loop *loop)
{
	struct sqlite_store_config cfg;
	struct store *s;
	char err[200];
	sqlite_store_config_default(&cfg);
	cfg.path = db_path;
	cfg.on_state = on_state;
	if (max_log_bytes)
		cfg.max_log_bytes = max_log_bytes;
	if (event_retention_ns)
		cfg.event_retention_ns = event_retention_ns;
	if (max_queued)
		cfg.max_queued = (int32_t)max_queued;
	if (sqlite_store_new(loop, &cfg, err, sizeof(err), &s) < 0)
		fail_msg("%s", err);
	return s;
}

static void nothing(void) {}
static const struct factory sqlite = {"sqlite", open_store, nothing, nothing, .alone = true};
const struct factory *factory = &sqlite;

/* A loop and a directory, no store yet. */
static int begin(void **state)
{
	memset(&h, 0, sizeof(h));
	tmp_dir_make(&dir);
	tmp_dir_path(&dir, "reins.db", db_path);
	h.spec = blob_new("spec", 4);
	return loop_new(&h.loop);
}

static int end(void **state)
{
	fault_vfs_full(NULL);
	fault_vfs_sync_fails(NULL);
	fault_vfs_read_fails(NULL);
	max_log_bytes = max_queued = event_retention_ns = 0;
	if (h.store)
		store_free(h.store);
	blob_unref(h.spec);
	loop_turn(h.loop, false);
	loop_free(h.loop);
	tmp_dir_remove(&dir);
	return 0;
}

static void start(void)
{
	h.store = open_store(h.loop);
	harness_wait_up(h.store);
}

static void stop(void)
{
	store_free(h.store);
	h.store = NULL;
}

static bool answered;

static void on_answered(struct store_op *op) { answered = true; }
static void on_wake(struct loop_timer *t) {}

/* Until it is down with a text that has these words in it. */
static void wait_down(struct store *s, const char *words)
{
	int64_t until = clock_mono_ns() + DEADLINE_NS;
	struct loop_timer t;
	loop_timer_init(&t, h.loop, on_wake);
	while (s->up || !strstr(s->down_text, words)) {
		if (clock_mono_ns() > until)
			fail_msg("up %d, \"%s\", not \"%s\"", s->up, s->down_text, words);
		loop_timer_set(&t, clock_mono_ns() + 50 * MS);
		loop_turn(h.loop, true);
	}
	loop_timer_stop(&t);
}

static void sql(const char *path, const char *text)
{
	sqlite3 *db;
	char *err = NULL;
	if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, text, NULL, NULL, &err) != SQLITE_OK)
		fail_msg("%s: %s", text, err ? err : "no database");
	sqlite3_close(db);
}

struct content {
	uint8_t *at;
	size_t len;
};

static struct content content_of(const char *path)
{
	struct content c = {NULL, 0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	c.at = test_malloc((size_t)st.st_size + 1);
	c.len = (size_t)st.st_size;
	assert_int_equal(read(fd, c.at, c.len), c.len);
	close(fd);
	return c;
}

static void assert_unchanged(const char *path, struct content *before)
{
	struct content now = content_of(path);
	assert_int_equal(now.len, before->len);
	assert_memory_equal(now.at, before->at, now.len);
	test_free(now.at);
	test_free(before->at);
}

static bool exists(struct uuid id)
{
	struct store_get g = get(id);
	bool found = g.ret_found;
	store_op_done_fields(&g.op);
	return found;
}

/* ---- files ---- */

static void restart_keeps(void **state)
{
	start();
	int64_t s = session("w");
	struct core_task pending = insert("q"), runs = insert("q"), ended = insert("q");
	claim(&runs, "w", s);
	struct core_attempt at = {ended.id, claim(&ended, "w", s)};
	record(at, "w", STORE_SUCCEEDED);
	struct store_master_open m = {.master = "m"}, again = {.master = "m"};
	run(&m.op, STORE_MASTER_OPEN);
	stop();
	start();
	assert_int_equal(state_of(pending.id), STORE_PENDING);
	assert_int_equal(state_of(runs.id), STORE_RUNNING);
	assert_int_equal(state_of(ended.id), STORE_COMPLETED);
	run(&again.op, STORE_MASTER_OPEN);
	assert_string_equal(m.ret_store_id, again.ret_store_id);
	assert_int_equal(again.ret_incarnation, m.ret_incarnation + 1);
	assert_true(session("w") > s);
	assert_true(insert("q").seq > ended.seq);
	struct stat st;
	assert_int_equal(stat(db_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void second_master(void **state)
{
	char link[TMP_PATH_MAX], real_path[TMP_PATH_MAX];
	start();
	struct core_task t = insert("q");
	memcpy(real_path, db_path, sizeof(real_path));
	assert_int_equal(symlink("reins.db", tmp_dir_path(&dir, "other.db", link)), 0);
	memcpy(db_path, link, sizeof(db_path));
	struct store *second = open_store(h.loop);
	wait_down(second, "is in use by another master (process ");
	assert_false(sqlite_store_stays_down(second));
	struct store_get g = {.id = t.id};
	assert_int_equal(run_any(second, &g.op, STORE_GET), STORE_UNAVAILABLE);
	assert_non_null(strstr(g.op.text, "another master"));
	store_free(h.store);
	h.store = second;
	harness_wait_up(second);
	assert_true(exists(t.id));
}

/* The link was there before its file. */
static void link_first(void **state)
{
	char link[TMP_PATH_MAX], real_path[TMP_PATH_MAX];
	memcpy(real_path, db_path, sizeof(real_path));
	assert_int_equal(symlink("reins.db", tmp_dir_path(&dir, "other.db", link)), 0);
	memcpy(db_path, link, sizeof(db_path));
	start();
	memcpy(db_path, real_path, sizeof(db_path));
	struct store *second = open_store(h.loop);
	wait_down(second, "is in use by another master (process ");
	store_free(second);
}

static void newer_schema(void **state)
{
	start();
	stop();
	sql(db_path, "PRAGMA user_version = 99");
	struct content before = content_of(db_path);
	h.store = open_store(h.loop);
	wait_down(h.store, "its schema 99 is newer than this program's ");
	assert_true(sqlite_store_stays_down(h.store));
	assert_true(h.store->newer_schema);
	stop();
	assert_unchanged(db_path, &before);
}

static void foreign_files(void **state)
{
	sql(db_path, "CREATE TABLE things (x); INSERT INTO things VALUES (1)");
	struct content before = content_of(db_path);
	h.store = open_store(h.loop);
	wait_down(h.store, "something else");
	assert_true(sqlite_store_stays_down(h.store));
	stop();
	assert_unchanged(db_path, &before);

	FILE *f = fopen(db_path, "w");
	assert_non_null(f);
	for (int i = 0; i < 1000; i++)
		fprintf(f, "this is a list of things to do\n");
	fclose(f);
	before = content_of(db_path);
	h.store = open_store(h.loop);
	wait_down(h.store, "is not a store of Reins");
	assert_true(sqlite_store_stays_down(h.store));
	stop();
	assert_unchanged(db_path, &before);
}

static void no_directory(void **state)
{
	tmp_dir_path(&dir, "no/such/reins.db", db_path);
	h.store = open_store(h.loop);
	wait_down(h.store, "No such file or directory");
	assert_false(sqlite_store_stays_down(h.store));
}

static void damaged(void **state)
{
	start();
	for (int i = 0; i < 300; i++)
		insert("q");
	struct core_task t = insert("q");
	stop();
	int fd = open(db_path, O_RDWR | O_CLOEXEC);
	struct stat st;
	char junk[4096];
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t at = 4096; at < st.st_size; at += 4096)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
	close(fd);
	struct content before = content_of(db_path);
	h.store = open_store(h.loop);
	wait_down(h.store, "damaged");
	assert_true(sqlite_store_stays_down(h.store));
	struct store_claim c = {.task = t, .to = to_worker("w", 1)};
	assert_int_equal(run_any(h.store, &c.op, STORE_CLAIM), STORE_UNAVAILABLE);
	stop();
	assert_unchanged(db_path, &before);
}

/* Found by a reader, while the writer has seen nothing yet. */
static void damaged_in_the_middle(void **state)
{
	start();
	struct blob *big = blob_new(NULL, 200000);
	memset(big->data, 7, big->len);
	struct store_insert o = insert_of("q");
	o.spec = big;
	run(&o.op, STORE_INSERT);
	blob_unref(big);
	stop();
	int fd = open(db_path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && ftruncate(fd, 150000) == 0);
	close(fd);
	h.store = open_store(h.loop);
	/* At the opening, or at the first read. */
	for (int i = 0; i < 1000 && !h.store->up && !strstr(h.store->down_text, "damaged"); i++)
		loop_turn(h.loop, true);
	struct store_get g = {.id = o.task.id};
	assert_int_equal(run_any(h.store, &g.op, STORE_GET), STORE_UNAVAILABLE);
	wait_down(h.store, "damaged");
	assert_true(sqlite_store_stays_down(h.store));
	struct store_insert late = insert_of("q");
	assert_int_equal(run_any(h.store, &late.op, STORE_INSERT), STORE_UNAVAILABLE);
}

static void replaced(void **state)
{
	char away[TMP_PATH_MAX];
	start();
	struct core_task t = insert("q");
	assert_int_equal(rename(db_path, tmp_dir_path(&dir, "away.db", away)), 0);
	struct store_insert o = insert_of("q");
	assert_int_equal(run_any(h.store, &o.op, STORE_INSERT), STORE_UNAVAILABLE);
	wait_down(h.store, "removed or replaced");
	assert_true(sqlite_store_stays_down(h.store));
	stop();
	assert_int_equal(rename(away, db_path), 0);
	start();
	assert_true(exists(t.id));
	assert_false(exists(o.task.id));
}

static void read_only(void **state)
{
	start();
	struct core_task t = insert("q");
	stop();
	assert_int_equal(chmod(db_path, 0444), 0);
	assert_int_equal(chmod(dir.path, 0555), 0);
	uid_t me = geteuid();
	if (me == 0)
		assert_int_equal(seteuid(65534), 0);
	h.store = open_store(h.loop);
	wait_down(h.store, "read-only");
	assert_false(sqlite_store_stays_down(h.store));
	if (me == 0)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(chmod(dir.path, 0755), 0);
	assert_int_equal(chmod(db_path, 0600), 0);
	harness_wait_up(h.store);
	assert_true(exists(t.id));
}

static void locked_by_a_program(void **state)
{
	sqlite3 *other;
	start();
	struct core_task t = insert("q");
	assert_int_equal(sqlite3_open(db_path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	struct store_insert o = insert_of("q");
	assert_int_equal(run_any(h.store, &o.op, STORE_INSERT), STORE_UNAVAILABLE);
	assert_non_null(strstr(o.op.text, "locked by another program"));
	wait_down(h.store, "locked by another program");
	assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(other);
	harness_wait_up(h.store);
	run(&o.op, STORE_INSERT);
	assert_int_equal(o.ret_verdict, STORE_INSERT_CREATED);
	assert_true(exists(t.id) && exists(o.task.id));
}

/* Outcomes and logs wait for the store's return; the others are told at once. */
static void kept_while_away(void **state)
{
	sqlite3 *other;
	start();
	struct core_task t = insert("q");
	struct core_attempt at = {t.id, claim(&t, "w", 1)};
	assert_int_equal(sqlite3_open(db_path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	struct store_record r = {.at = at, .worker = "w", .outcome = STORE_SUCCEEDED};
	harness_submit(h.store, &r.op, STORE_RECORD);
	wait_down(h.store, "locked by another program");
	struct store_log_piece piece = {.stream = STORE_STDOUT, .data = h.spec};
	struct store_log_append a = {.at = at, .worker = "w", .pieces = &piece, .n = 1};
	harness_submit(h.store, &a.op, STORE_LOG_APPEND);
	struct store_insert o = insert_of("q");
	struct store_op *told = &o.op;
	told->kind = STORE_INSERT;
	told->done = on_answered;
	answered = false;
	store_submit(h.store, told);
	harness_until(&answered);
	assert_int_equal(told->result, STORE_UNAVAILABLE);
	assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(other);
	harness_drain();
	assert_int_equal(r.op.result, STORE_OK);
	assert_int_equal(r.ret_verdict, CORE_RECORD_RECORDED);
	assert_int_equal(a.op.result, STORE_OK);
	store_op_done_fields(&r.op);
	assert_int_equal(state_of(t.id), STORE_COMPLETED);
}

static void kept_to_the_end(void **state)
{
	start();
	struct core_task t = insert("q");
	struct core_attempt at = {t.id, claim(&t, "w", 1)};
	fault_vfs_full("-wal");
	struct store_record r = {.at = at, .worker = "w", .outcome = STORE_SUCCEEDED};
	harness_submit(h.store, &r.op, STORE_RECORD);
	wait_down(h.store, "no space is left");
	stop();
	assert_int_equal(r.op.result, STORE_UNAVAILABLE);
	assert_false(r.op.maybe_done);
	fault_vfs_full(NULL);
	start();
	assert_int_equal(state_of(t.id), STORE_RUNNING);
}

/* ---- the disk ---- */

static void full_disk(void **state)
{
	enum { N = 50 };
	static struct store_insert in[N];
	start();
	struct core_task t = insert("q");
	fault_vfs_full("reins.db-wal");
	for (int i = 0; i < N; i++) {
		in[i] = insert_of("q");
		harness_submit(h.store, &in[i].op, STORE_INSERT);
	}
	harness_drain();
	for (int i = 0; i < N; i++) {
		assert_int_equal(in[i].op.result, STORE_UNAVAILABLE);
		assert_false(in[i].op.maybe_done);
	}
	wait_down(h.store, "no space is left");
	fault_vfs_full(NULL);
	harness_wait_up(h.store);
	assert_true(exists(t.id));
	for (int i = 0; i < N; i++)
		assert_false(exists(in[i].task.id));
	run_many(in, N, sizeof(in[0]), STORE_INSERT);
	for (int i = 0; i < N; i++)
		assert_int_equal(state_of(in[i].task.id), STORE_PENDING);
}

static void copy_file(const char *from, const char *to)
{
	struct content c = content_of(from);
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, c.at, c.len), c.len);
	close(fd);
	test_free(c.at);
}

/* Would a crash now show the task? */
static bool comes_back(const struct uuid *id)
{
	char from[TMP_PATH_MAX], to[TMP_PATH_MAX];
	sqlite3 *db;
	sqlite3_stmt *q;
	copy_file(db_path, tmp_dir_path(&dir, "copy.db", to));
	copy_file(tmp_dir_path(&dir, "reins.db-wal", from), tmp_dir_path(&dir, "copy.db-wal", to));
	assert_int_equal(sqlite3_open(tmp_dir_path(&dir, "copy.db", to), &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT 1 FROM task WHERE id = ?", -1, &q, NULL), SQLITE_OK);
	sqlite3_bind_blob(q, 1, id->b, 16, SQLITE_STATIC);
	bool found = sqlite3_step(q) == SQLITE_ROW;
	sqlite3_finalize(q);
	sqlite3_close(db);
	return found;
}

/* Nothing is answered that may still come back: the frames of the failed commit are in the write-ahead log. */
static void sync_fails(void **state)
{
	start();
	struct core_task t = insert("q");
	fault_vfs_sync_fails("-wal");
	struct store_insert o = insert_of("q");
	answered = false;
	o.op.kind = STORE_INSERT;
	o.op.done = on_answered;
	store_submit(h.store, &o.op);
	wait_down(h.store, "can't be read or written");
	assert_false(answered);
	assert_true(comes_back(&o.task.id)); /* why it waits */
	fault_vfs_sync_fails(NULL);
	harness_until(&answered);
	assert_int_equal(o.op.result, STORE_UNAVAILABLE);
	assert_false(o.op.maybe_done);
	harness_wait_up(h.store);
	assert_false(exists(o.task.id));
	stop();
	start();
	assert_true(exists(t.id));
	assert_false(exists(o.task.id));
}

static void sync_fails_to_the_end(void **state)
{
	start();
	fault_vfs_sync_fails("-wal");
	struct store_insert o = insert_of("q");
	harness_submit(h.store, &o.op, STORE_INSERT);
	wait_down(h.store, "can't be read or written");
	stop();
	assert_int_equal(o.op.result, STORE_UNAVAILABLE);
	assert_true(o.op.maybe_done);
	fault_vfs_sync_fails(NULL);
	start();
}

static void synced_before_answered(void **state)
{
	start();
	for (int i = 0; i < 20; i++) {
		long before = fault_vfs_wal_syncs();
		struct core_task t = insert("q");
		assert_true(fault_vfs_wal_syncs() > before);
		before = fault_vfs_wal_syncs();
		struct core_attempt at = {t.id, claim(&t, "w", 1)};
		assert_true(fault_vfs_wal_syncs() > before);
		before = fault_vfs_wal_syncs();
		record(at, "w", STORE_SUCCEEDED);
		assert_true(fault_vfs_wal_syncs() > before);
	}
}

static void reading_fails(void **state)
{
	start();
	struct core_task t = insert("q");
	stop();
	start();
	fault_vfs_read_fails("reins.db");
	struct store_get g = {.id = t.id};
	assert_int_equal(run_any(h.store, &g.op, STORE_GET), STORE_UNAVAILABLE);
	fault_vfs_read_fails(NULL);
	assert_true(exists(t.id));
}

/* ---- operations ---- */

static void one_guilty(void **state)
{
	enum { N = 40, BAD = 17 };
	static struct store_insert in[N];
	start();
	struct core_task taken = insert("q");
	for (int i = 0; i < N; i++)
		in[i] = insert_of("q");
	in[BAD].task.id = taken.id;
	run_many(in, N, sizeof(in[0]), STORE_INSERT);
	for (int i = 0; i < N; i++) {
		assert_int_equal(in[i].op.result, i == BAD ? STORE_REFUSED : STORE_OK);
		assert_true(exists(in[i].task.id));
	}
	assert_non_null(strstr(in[BAD].op.text, "UNIQUE"));
	struct store_fill f = {.queue = "q", .from_start = true, .limit = 100};
	run(&f.op, STORE_FILL);
	assert_int_equal(f.ret_n, N);
	store_op_done_fields(&f.op);
}

static void outcome_too_large(void **state)
{
	start();
	struct core_task t = insert("q");
	struct store_record o = {.at = {t.id, claim(&t, "w", 1)}, .worker = "w", .outcome = STORE_SUCCEEDED};
	o.result = blob_new(NULL, 65 << 20);
	memset(o.result->data, 1, o.result->len);
	run(&o.op, STORE_RECORD);
	assert_int_equal(o.ret_verdict, CORE_RECORD_RECORDED);
	store_op_done_fields(&o.op);
	blob_unref(o.result);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.state, STORE_COMPLETED);
	assert_null(g.ret_task.result.data);
	assert_non_null(strstr((const char *)g.ret_task.error.data, "without result"));
	store_op_done_fields(&g.op);
}

/* Of a group that is refused as a whole nothing is told, although its first was changed before. */
static void guilty_changes_nothing(void **state)
{
	char name[CORE_NAME_MAX + 10];
	memset(name, 'q', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	start();
	struct reader r = reader_from_now();
	struct store_insert fine = insert_of("q"), bad[2] = {insert_of("q"), insert_of(name)};
	bad[0].group_n = 2;
	bad[0].group_next = &bad[1];
	harness_submit(h.store, &bad[0].op, STORE_INSERT);
	harness_submit(h.store, &fine.op, STORE_INSERT);
	harness_drain();
	assert_int_equal(bad[0].op.result, STORE_REFUSED);
	assert_int_equal(fine.op.result, STORE_OK);
	struct store_events o = reader_page(&r, 10, 0);
	assert_int_equal(o.ret_n, 1);
	assert_int_equal(store_event_changes(&o.ret_rows[0]), 1);
	struct store_change c = store_event_change(&o.ret_rows[0], 0);
	assert_true(uuid_eq(&c.task, &fine.task.id));
	store_op_done_fields(&o.op);
}

static int on_number(void *arg, int n, char **values, char **names)
{
	*(int *)arg = (int)strtol(values[0], NULL, 10);
	return 0;
}

static int events_kept(void)
{
	int n = -1;
	sqlite3 *db;
	assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "SELECT count(*) FROM event", on_number, &n, NULL), SQLITE_OK);
	sqlite3_close(db);
	return n;
}

/* What is too old goes with later ones; the numbers go on, also over a restart. */
static void events_grow_old(void **state)
{
	event_retention_ns = 1;
	start();
	struct reader first = {.n_at = 0}, r = reader_from_now();
	for (int i = 0; i < 70; i++) /* one in some takes them away */
		insert("q");
	struct store_events o = reader_page(&first, 10, 0);
	assert_true(o.ret_gone);
	assert_int_equal(o.ret_n, 0);
	store_op_done_fields(&o.op);
	o = reader_page(&r, 10, 0);
	assert_true(o.ret_gone);
	store_op_done_fields(&o.op);
	assert_in_range(events_kept(), 1, 16);
	r = reader_from_now();
	stop();
	start();
	insert("q");
	o = reader_page(&r, 10, 0);
	assert_false(o.ret_gone);
	assert_int_equal(o.ret_n, 1);
	store_op_done_fields(&o.op);
}

/* With many too old ones more go than come. */
static void events_shrink(void **state)
{
	start();
	for (int i = 0; i < 70; i++)
		insert("q");
	stop();
	assert_int_equal(events_kept(), 70);
	event_retention_ns = 1;
	start();
	for (int i = 0; i < 32; i++)
		insert("q");
	assert_in_range(events_kept(), 1, 16);
}

static void bounded_queue(void **state)
{
	static struct store_insert in[20];
	max_queued = 10;
	start();
	for (int i = 0; i < 20; i++) {
		in[i] = insert_of("q");
		harness_submit(h.store, &in[i].op, STORE_INSERT);
	}
	harness_drain();
	for (int i = 0; i < 20; i++)
		assert_int_equal(in[i].op.result, i < 10 ? STORE_OK : STORE_UNAVAILABLE);
	insert("q");
}

static void free_answers(void **state)
{
	static struct store_insert in[3000];
	start();
	for (int i = 0; i < 3000; i++) {
		in[i] = insert_of("q");
		in[i].op.result = (enum store_result)77;
		harness_submit(h.store, &in[i].op, STORE_INSERT);
	}
	loop_turn(h.loop, false);
	stop();
	harness_drain(); /* at once: all were answered */
	start();
	for (int i = 0; i < 3000; i += 7) {
		assert_true(in[i].op.result == STORE_OK || in[i].op.result == STORE_UNAVAILABLE);
		assert_int_equal(exists(in[i].task.id), in[i].op.result == STORE_OK);
	}
}

/* ---- logs ---- */

static enum store_result append(struct core_attempt at, int64_t offset, size_t len, bool *ret_fenced)
{
	struct store_log_piece piece = {.stream = STORE_STDOUT, .offset = offset, .data = blob_new(NULL, len)};
	struct store_log_append o = {.at = at, .worker = "w", .pieces = &piece, .n = 1};
	memset(piece.data->data, 'x', len);
	enum store_result r = run_any(h.store, &o.op, STORE_LOG_APPEND);
	*ret_fenced = o.ret_fenced;
	blob_unref(piece.data);
	return r;
}

static size_t log_chunks(struct core_attempt at)
{
	struct store_log_read r = {.at = at, .max_bytes = 1 << 20};
	run(&r.op, STORE_LOG_READ);
	size_t n = r.ret_n;
	store_op_done_fields(&r.op);
	return n;
}

static void logs_are_bounded(void **state)
{
	struct core_attempt at[6];
	bool fenced;
	max_log_bytes = 50000;
	start();
	for (int i = 0; i < 6; i++) {
		struct core_task t = insert("q");
		at[i] = (struct core_attempt){t.id, claim(&t, "w", 1)};
		assert_int_equal(append(at[i], 0, 9000, &fenced), STORE_OK);
		if (i == 1 || i == 2)
			record(at[i], "w", STORE_SUCCEEDED);
	}
	/* The oldest that has ended went; the one that runs and is older didn't. */
	assert_int_equal(log_chunks(at[0]), 1);
	assert_int_equal(log_chunks(at[1]), 0);
	assert_int_equal(log_chunks(at[2]), 1);
	assert_int_equal(log_chunks(at[5]), 1);
	assert_int_equal(append(at[5], 9000, 9000, &fenced), STORE_OK);
	assert_int_equal(log_chunks(at[2]), 0);
	assert_int_equal(append(at[5], 18000, 9000, &fenced), STORE_REFUSED);
	/* That something is missing can be said all the same. */
	struct store_log_piece gap = {.stream = STORE_STDOUT, .offset = 18000, .dropped = 9000};
	struct store_log_append o = {.at = at[4], .worker = "w", .pieces = &gap, .n = 1};
	assert_int_equal(run_any(h.store, &o.op, STORE_LOG_APPEND), STORE_OK);
	record(at[0], "w", STORE_SUCCEEDED);
	stop();
	start(); /* what they take is known again */
	assert_int_equal(append(at[5], 18000, 9000, &fenced), STORE_OK);
	assert_int_equal(log_chunks(at[0]), 0);
	assert_int_equal(log_chunks(at[5]), 3);
}

/* Metrics count as logs do, and go with them. */
static void metrics_are_bounded(void **state)
{
	static uint8_t bytes[9000];
	const struct store_metric item = {1, {bytes, sizeof(bytes)}};
	struct core_attempt at[6];
	max_log_bytes = 50000;
	start();
	for (int i = 0; i < 6; i++) {
		struct core_task t = insert("q");
		at[i] = (struct core_attempt){t.id, claim(&t, "w", 1)};
		struct store_metrics o = {.at = at[i], .worker = "w", .items = &item, .n = 1};
		run(&o.op, STORE_METRICS);
		if (i == 1)
			record(at[i], "w", STORE_SUCCEEDED);
	}
	size_t there[6];
	for (int i = 0; i < 6; i++) {
		struct store_metrics_read r = {.at = at[i], .limit = 10};
		run(&r.op, STORE_METRICS_READ);
		there[i] = r.ret_n;
		store_op_done_fields(&r.op);
	}
	assert_int_equal(there[0], 1);
	assert_int_equal(there[1], 0);
	assert_int_equal(there[5], 1);
	const struct store_metric next = {2, {bytes, sizeof(bytes)}};
	struct store_metrics o = {.at = at[5], .worker = "w", .items = &next, .n = 1};
	assert_int_equal(run_any(h.store, &o.op, STORE_METRICS), STORE_REFUSED);
	/* Said again, it takes nothing. */
	struct store_metrics again = {.at = at[5], .worker = "w", .items = &item, .n = 1};
	for (int i = 0; i < 20; i++)
		run(&again.op, STORE_METRICS);
	record(at[0], "w", STORE_SUCCEEDED);
	stop();
	start();
	run(&o.op, STORE_METRICS);
}

static void logs_gone(void **state)
{
	char logs[TMP_PATH_MAX];
	bool fenced;
	start();
	struct core_task t = insert("q");
	struct core_attempt at = {t.id, claim(&t, "w", 1)};
	append(at, 0, 10, &fenced);
	stop();
	assert_int_equal(unlink(tmp_dir_path(&dir, "reins.db-logs", logs)), 0);
	start();
	assert_int_equal(log_chunks(at), 0);
	assert_int_equal(append(at, 10, 10, &fenced), STORE_OK);
	assert_int_equal(log_chunks(at), 1);
	stop();
	sql(logs, "UPDATE meta SET value = 'another' WHERE key = 'store_id'");
	h.store = open_store(h.loop);
	wait_down(h.store, "logs of another store");
}

static void logs_full(void **state)
{
	bool fenced;
	start();
	struct core_task t = insert("q");
	struct core_attempt at = {t.id, claim(&t, "w", 1)};
	append(at, 0, 10, &fenced);
	fault_vfs_full("-logs-wal");
	struct store_log_piece piece = {.stream = STORE_STDOUT, .offset = 10, .data = h.spec};
	struct store_log_append a = {.at = at, .worker = "w", .pieces = &piece, .n = 1};
	a.op.kind = STORE_LOG_APPEND;
	a.op.done = on_answered;
	answered = false;
	store_submit(h.store, &a.op);
	/* Tasks go on meanwhile, and it is told. */
	struct core_task u = insert("q");
	assert_int_equal(claim(&u, "w", 1), 1);
	harness_until(&warned);
	assert_true(h.store->up);
	assert_false(answered);
	assert_non_null(strstr(said, "-logs can't grow"));
	fault_vfs_full(NULL);
	harness_until(&answered);
	assert_int_equal(a.op.result, STORE_OK);
	assert_int_equal(log_chunks(at), 2);
}

static void wrong_settings(void **state)
{
	struct sqlite_store_config cfg;
	struct store *s;
	char err[200] = "";
	sqlite_store_config_default(&cfg);
	cfg.path = "";
	assert_true(sqlite_store_new(h.loop, &cfg, err, sizeof(err), &s) < 0);
	assert_non_null(strstr(err, "path"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(restart_keeps), T(second_master), T(link_first), T(newer_schema), T(foreign_files), T(no_directory), T(damaged),
		T(damaged_in_the_middle), T(replaced), T(read_only), T(locked_by_a_program), T(kept_while_away),
		T(kept_to_the_end), T(full_disk), T(sync_fails),
		T(sync_fails_to_the_end), T(synced_before_answered), T(reading_fails), T(one_guilty), T(guilty_changes_nothing), T(events_grow_old), T(events_shrink), T(outcome_too_large),
		T(bounded_queue), T(free_answers), T(logs_are_bounded), T(metrics_are_bounded), T(logs_gone), T(logs_full), T(wrong_settings),
	};
	fault_vfs_install();
	return cmocka_run_group_tests_name("store/sqlite/faults", tests, NULL, NULL);
}
