/* A master killed at any moment, and a machine whose power fails: what was acknowledged is there, once.
 *
 * A child process drives a store and writes each acknowledgement into a pipe, after done was called.  It is
 * killed with SIGKILL; then the files are opened anew.  For the power cut the tail of the write-ahead log, which was
 * written and not yet synced when the last batch was acknowledged, is cut off or spoiled first. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "server/store/sqlite/sqlite_store.h"
#include "server/store/store_logs.h"
#include "tests/store/fault_vfs.h"
#include "tests/store/harness.h"
#include "tests/store/tmp_dir.h"

#define IN_FLIGHT 150
#define ACKS_MAX 60000
#define WORKER "w"

enum ack_of { ACK_INSERT = 1, ACK_CLAIM, ACK_RECORD, ACK_LOG, ACK_BATCH };

/* 32 bytes, so that a write to the pipe is whole. */
struct ack {
	struct uuid id;
	int64_t synced; /* ACK_BATCH: bytes of the write-ahead log */
	int32_t what, n;
};

static struct tmp_dir dir;
static char db_path[TMP_PATH_MAX];
static struct ack acks[ACKS_MAX];
static size_t n_acks;
static struct rng rng;

static struct store *open_store(struct loop *loop)
{
	struct sqlite_store_config cfg;
	struct store *s;
	char err[200];
	sqlite_store_config_default(&cfg);
	cfg.path = db_path;
	if (sqlite_store_new(loop, &cfg, err, sizeof(err), &s) < 0)
		abort();
	return s;
}

static void nothing(void) {}
static const struct factory sqlite = {"sqlite", open_store, nothing, nothing, .alone = true};
const struct factory *factory = &sqlite;

/* ---- the child ---- */

static int ack_fd;
static struct store *store;
static struct uuid7_maker ids;
static struct blob *spec;

static void say(struct ack a)
{
	if (write(ack_fd, &a, sizeof(a)) != (ssize_t)sizeof(a))
		_exit(1);
}

/* One task's way: inserted, claimed, a chunk of log, ended; then the next one in its place. */
struct slot {
	union {
		struct store_op op;
		struct store_insert insert;
		struct store_claim claim;
		struct store_log_append append;
		struct store_record record;
	};
	struct store_log_piece piece;
	struct core_task task;
	char key[40];
};
static struct slot slots[IN_FLIGHT];
static size_t left; /* ACK_BATCH: of this batch */
static bool in_batches;

static void go(struct slot *s, enum store_kind kind);

static void on_done(struct store_op *op)
{
	struct slot *s = container_of(op, struct slot, op);
	enum store_kind kind = op->kind, next = kind;
	if (op->result != STORE_OK)
		_exit(2);
	switch (kind) {
	case STORE_INSERT:
		s->task.seq = s->insert.ret_seq;
		say((struct ack){.id = s->task.id, .what = ACK_INSERT});
		next = rng_below(&rng, 4) ? STORE_CLAIM : STORE_INSERT;
		break;
	case STORE_CLAIM:
		if (!s->claim.ret_won)
			_exit(3);
		say((struct ack){.id = s->task.id, .what = ACK_CLAIM});
		next = STORE_LOG_APPEND;
		break;
	case STORE_LOG_APPEND:
		if (s->append.ret_fenced)
			_exit(4);
		say((struct ack){.id = s->task.id, .what = ACK_LOG});
		next = STORE_RECORD;
		break;
	default:
		if (s->record.ret_verdict != CORE_RECORD_RECORDED)
			_exit(5);
		say((struct ack){.id = s->task.id, .what = ACK_RECORD});
		next = STORE_INSERT;
	}
	store_op_done_fields(op);
	if (!in_batches)
		go(s, next);
	else if (--left == 0)
		left = SIZE_MAX; /* the loop below says what the batch left on the disk */
}

static void go(struct slot *s, enum store_kind kind)
{
	struct core_attempt at = {s->task.id, 1};
	switch (kind) {
	case STORE_INSERT:
		s->task = (struct core_task){.id = uuid7_make(&ids, clock_wall_us()), .queue = "crash", .max_attempts = 1};
		s->insert = (struct store_insert){.task = s->task, .name = "", .owner = "", .spec = spec};
		if (rng_below(&rng, 3) == 0) {
			uuid_format(&s->task.id, s->key);
			s->insert.idempotency_key = s->key;
		}
		break;
	case STORE_CLAIM:
		s->claim = (struct store_claim){.task = s->task, .to = to_worker(WORKER, 1)};
		break;
	case STORE_LOG_APPEND:
		s->piece = (struct store_log_piece){.stream = STORE_STDOUT, .data = spec};
		s->append = (struct store_log_append){.at = at, .worker = WORKER, .pieces = &s->piece, .n = 1};
		break;
	default:
		s->record = (struct store_record){.at = at, .worker = WORKER, .outcome = STORE_SUCCEEDED, .has_exit_code = true};
	}
	s->op.kind = kind;
	s->op.done = on_done;
	store_submit(store, &s->op);
}

static void child(int fd, bool batches)
{
	struct loop *loop;
	fault_vfs_install();
	ack_fd = fd;
	in_batches = batches;
	/* Large enough that the write-ahead log is copied into the file now and then. */
	spec = blob_new(NULL, batches ? 100 : 3000);
	memset(spec->data, 's', spec->len);
	if (loop_new(&loop) < 0)
		_exit(6);
	store = open_store(loop);
	while (!store->up)
		loop_turn(loop, true);
	left = SIZE_MAX;
	for (size_t i = 0; !batches && i < IN_FLIGHT; i++)
		go(&slots[i], STORE_INSERT);
	for (;;) {
		if (batches && left == SIZE_MAX) {
			say((struct ack){.what = ACK_BATCH, .synced = fault_vfs_wal_synced()});
			left = 1 + rng_below(&rng, IN_FLIGHT);
			for (size_t i = 0, n = left; i < n; i++)
				go(&slots[i], STORE_INSERT);
		}
		loop_turn(loop, true);
	}
}

/* ---- the parent ---- */

/* Reads until the time is over or so many have come, kills, and reads what is left. */
static void run_and_kill(int64_t for_ns, size_t enough, bool batches)
{
	int fds[2], status;
	uint64_t seed = rng_next(&rng);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		rng_seed(&rng, seed);
		child(fds[1], batches);
	}
	close(fds[1]);
	int64_t until = clock_mono_ns() + 20 * NS_PER_S; /* of waiting for the first one */
	size_t first = n_acks;
	bool killed = false;
	for (;;) {
		int64_t now = clock_mono_ns();
		if (!killed && (now >= until || n_acks - first >= enough || n_acks > ACKS_MAX - 2000)) {
			kill(pid, SIGKILL);
			killed = true;
		}
		struct pollfd p = {.fd = fds[0], .events = POLLIN};
		int wait_ms = killed ? -1 : (int)max_i64(0, (until - now) / NS_PER_MS);
		if (poll(&p, 1, wait_ms) <= 0)
			continue;
		assert_true(n_acks < ACKS_MAX);
		ssize_t n = read(fds[0], &acks[n_acks], sizeof(acks[0]));
		if (n == 0)
			break;
		assert_int_equal(n, sizeof(acks[0]));
		if (n_acks++ == first)
			until = clock_mono_ns() + for_ns;
	}
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* It was killed, and had not ended for a reason of its own. */
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(n_acks > first);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *q;
	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	return q;
}

static int64_t ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *q = prepare(db, sql);
	int64_t v = sqlite3_step(q) == SQLITE_ROW ? sqlite3_column_int64(q, 0) : -1;
	sqlite3_finalize(q);
	return v;
}

/* The query gives `wanted` for the task of each acknowledgement of this kind. */
static void check_each(sqlite3 *db, enum ack_of what, const char *sql, int64_t wanted)
{
	sqlite3_stmt *q = prepare(db, sql);
	for (size_t i = 0; i < n_acks; i++) {
		if (acks[i].what != (int32_t)what)
			continue;
		sqlite3_bind_blob(q, 1, acks[i].id.b, sizeof(acks[i].id.b), SQLITE_STATIC);
		assert_int_equal(sqlite3_step(q), SQLITE_ROW);
		assert_int_equal(sqlite3_column_int64(q, 0), wanted);
		sqlite3_reset(q);
	}
	sqlite3_finalize(q);
}

static sqlite3 *open_db(const char *path)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	return db;
}

#define PLACES "(SELECT task_id FROM ready UNION ALL SELECT task_id FROM delayed UNION ALL SELECT task_id FROM running " \
	       "UNION ALL SELECT task_id FROM ended)"

/* As much as was acknowledged, and nothing twice or in two places. */
static void check(const char *path, bool logs)
{
	char name[TMP_PATH_MAX + 8];
	sqlite3 *db = open_db(path);
	sqlite3_stmt *q = prepare(db, "PRAGMA integrity_check");
	assert_int_equal(sqlite3_step(q), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(q, 0), "ok");
	sqlite3_finalize(q);
	int64_t tasks = ask(db, "SELECT count(*) FROM task");
	assert_int_equal(ask(db, "SELECT count(DISTINCT id) FROM task"), tasks);
	assert_int_equal(ask(db, "SELECT count(*) FROM " PLACES), tasks);
	assert_int_equal(ask(db, "SELECT count(DISTINCT task_id) FROM " PLACES), tasks);
	check_each(db, ACK_INSERT, "SELECT count(*) FROM task WHERE id = ?", 1);
	check_each(db, ACK_CLAIM, "SELECT (SELECT count(*) FROM running WHERE task_id = ?1) + (SELECT count(*) FROM ended e JOIN task t "
				  "ON t.seq = e.seq WHERE t.id = ?1)", 1);
	check_each(db, ACK_RECORD, "SELECT e.state FROM task t JOIN ended e ON e.seq = t.seq WHERE t.id = ?", STORE_COMPLETED);
	sqlite3_close(db);
	if (!logs)
		return;
	snprintf(name, sizeof(name), "%s-logs", path);
	db = open_db(name);
	check_each(db, ACK_LOG, "SELECT count(*) FROM log WHERE task_id = ?", 1);
	assert_int_equal(ask(db, "SELECT (SELECT value FROM meta WHERE key = 'bytes') - (SELECT coalesce(sum(bytes), 0) FROM log_task)"), 0);
	sqlite3_close(db);
}

static int begin(void **state)
{
	tmp_dir_make(&dir);
	tmp_dir_path(&dir, "reins.db", db_path);
	n_acks = 0;
	return 0;
}

static int end(void **state)
{
	tmp_dir_remove(&dir);
	return 0;
}

static void killed(void **state)
{
	for (int round = 0; round < 12; round++) {
		run_and_kill((int64_t)rng_below(&rng, 120) * NS_PER_MS, SIZE_MAX, false);
		check(db_path, true);
	}
	assert_true(n_acks > 1000);
}

static void copy_file(const char *from, const char *to, off_t len)
{
	char block[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(in >= 0 && out >= 0);
	while (len > 0) {
		ssize_t n = read(in, block, len < (off_t)sizeof(block) ? (size_t)len : sizeof(block));
		if (n <= 0)
			break;
		assert_int_equal(write(out, block, (size_t)n), n);
		len -= n;
	}
	close(in);
	close(out);
}

/* Sectors beyond the last sync may hold anything: the new bytes, nothing, or what was there. */
static void spoil(const char *path, int64_t from)
{
	char junk[512];
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (int64_t at = from; at < (int64_t)st.st_size; at += (int64_t)sizeof(junk)) {
		uint64_t way = rng_below(&rng, 3);
		memset(junk, way == 1 ? 0 : 0xa5, sizeof(junk));
		size_t n = min_sz(sizeof(junk), (size_t)(st.st_size - at));
		if (way)
			assert_int_equal(pwrite(fd, junk, n, at), n);
	}
	close(fd);
}

static void power_cut(void **state)
{
	char wal[TMP_PATH_MAX], copy[TMP_PATH_MAX], copy_wal[TMP_PATH_MAX];
	int with_tail = 0;
	tmp_dir_path(&dir, "reins.db-wal", wal);
	tmp_dir_path(&dir, "copy.db", copy);
	tmp_dir_path(&dir, "copy.db-wal", copy_wal);
	for (int round = 0; round < 60 && with_tail < 4; round++) {
		char logs[TMP_PATH_MAX];
		n_acks = 0;
		/* A new store each time: its log is never copied into the file, so that all is in one place. */
		unlink(db_path);
		unlink(wal);
		unlink(tmp_dir_path(&dir, "reins.db-shm", logs));
		unlink(tmp_dir_path(&dir, "reins.db-logs", logs));
		run_and_kill(NS_PER_S, 200 + rng_below(&rng, 3000), true);
		/* The last batch that was acknowledged whole; what came after is not asked for. */
		while (n_acks && acks[n_acks - 1].what != ACK_BATCH)
			n_acks--;
		assert_true(n_acks > 0);
		struct stat st;
		int64_t synced = acks[n_acks - 1].synced;
		assert_int_equal(stat(wal, &st), 0);
		int64_t tail = (int64_t)st.st_size - synced;
		assert_true(tail >= 0);
		with_tail += tail > 0;
		for (int cut = 0; cut < 6; cut++) {
			int64_t at = synced + (cut ? (int64_t)rng_below(&rng, (uint64_t)tail + 1) : 0);
			bool spoils = cut > 3;
			copy_file(db_path, copy, INT64_MAX);
			copy_file(wal, copy_wal, spoils ? INT64_MAX : (off_t)at);
			if (spoils)
				spoil(copy_wal, at);
			check(copy, false);
		}
	}
	assert_true(with_tail > 0);
}

int main(void)
{
	uint64_t seed = rng_process_seed();
	const char *given = getenv("REINS_TEST_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(killed, begin, end),
		cmocka_unit_test_setup_teardown(power_cut, begin, end),
	};
	if (given)
		seed = strtoull(given, NULL, 10);
	printf("# REINS_TEST_SEED=%llu\n", (unsigned long long)seed);
	rng_seed(&rng, seed);
	return cmocka_run_group_tests_name("store/sqlite/crash", tests, NULL, NULL);
}
