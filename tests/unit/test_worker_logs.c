/* The reader of an attempt's log files, on files that the supervisor's writer made, or that are damaged by hand. */
#include "turns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/rng.h"
#include "worker/logs.h"
#include "worker/remove_tree.h"
#include "worker/state_dir.h"
#include "worker/supervisor/log_writer.h"

static struct {
	struct loop *loop;
	char path[64];
	int dir_fd;
	struct logs_reader reader;
	int readies;
	struct log_writer w;
	struct attempt_log l;
} T;

static void on_ready(struct attempt_log *l)
{
	T.readies++;
}

static int set_up(void **state)
{
	memset(&T, 0, sizeof(T));
	snprintf(T.path, sizeof(T.path), "/tmp/reins-test-XXXXXX");
	if (!mkdtemp(T.path) || loop_new(&T.loop))
		return -1;
	T.dir_fd = open(T.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	logs_reader_init(&T.reader, T.loop, on_ready);
	logs_init(&T.l, &T.reader);
	logs_open(&T.l, T.dir_fd);
	log_writer_init(&T.w, T.dir_fd, 1 << 20, 1 << 20);
	return T.dir_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	logs_done(&T.l);
	log_writer_done(&T.w);
	TURNS_UNTIL(T.loop, logs_reader_idle(&T.reader));
	assert_int_equal(T.reader.in_flight, 0);
	assert_int_equal(T.reader.n_open, 0);
	logs_reader_done(&T.reader);
	loop_free(T.loop);
	(void)!remove_tree(AT_FDCWD, T.path);
	close(T.dir_fd);
	return 0;
}

/* False: nothing, also after what is being read has come. */
static bool next_of(struct attempt_log *l, struct logs_piece *ret)
{
	for (;;) {
		int seen = T.readies;
		if (logs_next(l, ret))
			return true;
		if (!l->head.job && !l->live.job && list_empty(&l->waiting))
			return false;
		if (!list_empty(&l->waiting) && T.reader.jobs == 0)
			return false;
		TURNS_UNTIL(T.loop, T.readies != seen);
	}
}

static void write_text(int stream, const char *text)
{
	log_writer_add(&T.w, (uint32_t)stream, text, strlen(text), 7);
	logs_grown(&T.l, log_writer_told(&T.w), T.w.dropped);
}

static void expect_piece(int stream, int64_t offset, const char *text)
{
	struct logs_piece p;
	assert_true(next_of(&T.l, &p));
	assert_false(p.live);
	assert_int_equal(p.stream, stream);
	assert_int_equal(p.offset, offset);
	assert_int_equal(p.dropped, 0);
	assert_int_equal(p.len, strlen(text));
	assert_memory_equal(p.data, text, p.len);
	assert_int_equal(p.at_wall_us, 7);
	logs_sent(&T.l, &p);
}

static void expect_gap(int64_t offset, int64_t dropped)
{
	struct logs_piece p;
	assert_true(next_of(&T.l, &p));
	assert_int_equal(p.offset, offset);
	assert_int_equal(p.len, 0);
	assert_int_equal(p.dropped, dropped);
	logs_sent(&T.l, &p);
}

static void expect_nothing(void)
{
	struct logs_piece p;
	assert_false(next_of(&T.l, &p));
}

static void one_count_over_both_streams(void **state)
{
	expect_nothing();
	write_text(1, "one");
	write_text(1, "two");
	write_text(2, "three");
	write_text(1, "four");
	expect_piece(1, 0, "onetwo");
	expect_piece(2, 6, "three");
	expect_piece(1, 11, "four");
	expect_nothing();
	write_text(1, "five");
	expect_piece(1, 15, "five");
	assert_false(logs_all_sent(&T.l));
	logs_close(&T.l, T.w.end);
	assert_true(logs_all_sent(&T.l));
}

static void again_from_any_offset(void **state)
{
	write_text(1, "abcdef");
	write_text(2, "ghi");
	expect_piece(1, 0, "abcdef");
	logs_rewind(&T.l, 4); /* in the middle of a record */
	expect_piece(1, 4, "ef");
	logs_stored(&T.l, 6);
	logs_rewind(&T.l, 6);
	expect_piece(2, 6, "ghi");
	logs_rewind(&T.l, 2); /* a master that lost what it had */
	expect_piece(1, 2, "cdef");
	expect_piece(2, 6, "ghi");
	logs_stored(&T.l, 1 << 30); /* more than there is */
	assert_int_equal(T.l.stored, 9);
	write_text(1, "x");
	expect_piece(1, 9, "x");
	/* Another agent: nothing is known but the files. */
	logs_done(&T.l);
	logs_init(&T.l, &T.reader);
	logs_open(&T.l, T.dir_fd);
	logs_rewind(&T.l, 5); /* before the end is known */
	logs_grown(&T.l, 10, 0);
	logs_rewind(&T.l, 5);
	expect_piece(1, 5, "f");
	expect_piece(2, 6, "ghi");
	expect_piece(1, 9, "x");
	expect_nothing();
}

/* What is behind the end that the supervisor told is not looked at. */
static void behind_the_end(void **state)
{
	write_text(1, "told");
	log_writer_add(&T.w, 1, " not told", 9, 7);
	expect_piece(1, 0, "told");
	expect_nothing();
	logs_grown(&T.l, 13, 0);
	expect_piece(1, 4, " not told");
}

static void head_then_gap_then_ring(void **state)
{
	log_writer_init(&T.w, T.dir_fd, 10, 20);
	write_text(1, "0123456789");
	expect_piece(1, 0, "0123456789");
	write_text(1, "abcdefghij");
	write_text(2, "ABCDEFGHIJ");
	expect_nothing(); /* while it runs only the head */
	write_text(1, "klmnopqrst");
	write_text(2, "KLM");
	expect_nothing();
	logs_close(&T.l, T.w.end);
	expect_gap(10, 20);
	expect_piece(1, 30, "klmnopqrst");
	expect_piece(2, 40, "KLM");
	assert_true(logs_all_sent(&T.l));
	/* The connection is lost in the gap. */
	logs_rewind(&T.l, 17);
	expect_gap(17, 13);
	logs_rewind(&T.l, 33);
	expect_piece(1, 33, "nopqrst");
	expect_piece(2, 40, "KLM");
	assert_true(logs_all_sent(&T.l));
	/* It ends before anything was sent. */
	logs_rewind(&T.l, 0);
	expect_piece(1, 0, "0123456789");
	expect_gap(10, 20);
}

static void ring_without_a_gap(void **state)
{
	log_writer_init(&T.w, T.dir_fd, 4, 20);
	write_text(1, "0123456789");
	logs_close(&T.l, T.w.end);
	expect_piece(1, 0, "0123");
	expect_piece(1, 4, "456789");
	assert_true(logs_all_sent(&T.l));
}

/* The disk was full: a record says so in the middle, the end alone at the end. */
static void missing_bytes(void **state)
{
	write_text(1, "abc");
	T.w.missing = T.w.dropped = 5;
	T.w.missing_stream = 1;
	T.w.end += 5;
	logs_grown(&T.l, log_writer_told(&T.w), T.w.dropped);
	expect_piece(1, 0, "abc");
	expect_nothing();
	write_text(2, "def");
	expect_gap(3, 5);
	expect_piece(2, 8, "def");
	logs_rewind(&T.l, 5);
	expect_gap(5, 3);
	logs_close(&T.l, 100);
	expect_piece(2, 8, "def");
	expect_gap(11, 89);
	assert_true(logs_all_sent(&T.l));
}

static void no_files(void **state)
{
	logs_close(&T.l, 50);
	logs_rewind(&T.l, 20);
	expect_gap(20, 30);
	assert_true(logs_all_sent(&T.l));
	struct attempt_log lost;
	struct logs_piece p;
	logs_init(&lost, &T.reader);
	logs_close(&lost, 9);
	assert_true(next_of(&lost, &p));
	assert_int_equal(p.dropped, 9);
	logs_sent(&lost, &p);
	assert_true(logs_all_sent(&lost));
	logs_done(&lost);
	logs_init(&lost, &T.reader);
	logs_close(&lost, 0);
	assert_true(logs_all_sent(&lost));
	logs_done(&lost);
}

static void damage(const char *name, int64_t pos, const void *data, size_t len)
{
	int fd = openat(T.dir_fd, name, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, pos), len);
	close(fd);
}

#define HEAD_FILE "log.0000000000000000"

static void torn_and_damaged_records(void **state)
{
	log_writer_init(&T.w, T.dir_fd, 10, 20);
	write_text(1, "01234");
	write_text(2, "56789");
	write_text(1, "ring");
	assert_int_equal(log_end_of_files(T.dir_fd), 14);
	/* Killed while it wrote: the torn record is not part of the log. */
	char path[96];
	snprintf(path, sizeof(path), "%s/log.000000000000000a", T.path);
	assert_int_equal(truncate(path, (off_t)sizeof(struct log_record) + 2), 0);
	assert_int_equal(log_end_of_files(T.dir_fd), 10);
	assert_int_equal(truncate(path, 3), 0);
	assert_int_equal(log_end_of_files(T.dir_fd), 10);
	/* What no longer makes sense is lost up to the next file, and told. */
	damage(HEAD_FILE, (int64_t)sizeof(struct log_record) + 5, "XXXX", 4);
	logs_close(&T.l, 14);
	expect_piece(1, 0, "01234");
	expect_gap(5, 5);
	expect_gap(10, 4);
	assert_true(logs_all_sent(&T.l));
	assert_int_equal(log_end_of_files(T.dir_fd), 10);
}

static void strange_records(void **state)
{
	static const struct log_record bad[] = {
		{.magic = LOG_RECORD_MAGIC, .stream = 3, .len = 1}, {.magic = LOG_RECORD_MAGIC, .stream = 1},
		{.magic = LOG_RECORD_MAGIC, .stream = 1, .len = LOG_RECORD_DATA_MAX + 1},
		{.magic = LOG_RECORD_MAGIC, .stream = 1, .dropped = -1}, {.magic = LOG_RECORD_MAGIC, .stream = 1, .dropped = INT64_MAX},
		{.magic = LOG_RECORD_MAGIC, .stream = 1, .len = 1, .offset = 1}, {.magic = LOG_RECORD_MAGIC, .stream = 1, .len = 1, .dropped = 1},
		{.magic = 1, .stream = 1, .len = 1},
	};
	write_text(1, "abc");
	logs_close(&T.l, 3);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		damage(HEAD_FILE, 0, &bad[i], sizeof(bad[i]));
		logs_rewind(&T.l, 0);
		expect_gap(0, 3);
	}
	/* Not a file, or not ours: passed over. */
	assert_int_equal(unlinkat(T.dir_fd, HEAD_FILE, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", T.dir_fd, HEAD_FILE), 0);
	assert_int_equal(mkdirat(T.dir_fd, "log.0000000000000001", 0700), 0);
	assert_int_equal(mkdirat(T.dir_fd, "log.ffffffffffffffff", 0700), 0);
	assert_int_equal(mkdirat(T.dir_fd, "log.000000000000000A", 0700), 0);
	logs_rewind(&T.l, 0);
	expect_gap(0, 1);
	expect_gap(1, 2);
	assert_true(logs_all_sent(&T.l));
}

/* ---- bounds ---- */

static void add_bytes(int64_t n)
{
	static char block[LOG_RECORD_DATA_MAX];
	for (; n > 0; n -= (int64_t)sizeof(block))
		log_writer_add(&T.w, 1, block, (size_t)min_i64(n, (int64_t)sizeof(block)), 7);
	logs_grown(&T.l, log_writer_told(&T.w), 0);
}

static int64_t send_all(void)
{
	struct logs_piece p;
	int64_t n = 0;
	for (; next_of(&T.l, &p); n += (int64_t)p.len)
		logs_sent(&T.l, &p);
	return n;
}

static void window(void **state)
{
	T.reader.window = 4 * LOGS_PIECE_MAX;
	add_bytes(1 << 20);
	assert_int_equal(send_all(), 4 * LOGS_PIECE_MAX);
	logs_stored(&T.l, LOGS_PIECE_MAX);
	logs_stored(&T.l, 4 * LOGS_PIECE_MAX);
	assert_int_equal(T.reader.in_flight, 0);
	assert_int_equal(send_all(), 4 * LOGS_PIECE_MAX);
	/* A new session has nothing in flight. */
	logs_rewind(&T.l, T.l.stored);
	assert_int_equal(T.reader.in_flight, 0);
	int64_t n = 0;
	for (int64_t more; (more = send_all()); n += more)
		logs_stored(&T.l, T.l.sent);
	assert_int_equal(n, (1 << 20) - 4 * LOGS_PIECE_MAX);
	/* Small pieces count more than they hold. */
	logs_stored(&T.l, T.l.sent);
	log_writer_init(&T.w, T.dir_fd, 1 << 20, 1 << 20);
	logs_done(&T.l);
	logs_init(&T.l, &T.reader);
	logs_open(&T.l, T.dir_fd);
	for (int i = 0; i < 1000; i++)
		write_text(1 + i % 2, "x");
	assert_in_range(send_all(), 3 * LOGS_PIECE_MAX / LOGS_PIECE_COST_MIN, 4 * LOGS_PIECE_MAX / LOGS_PIECE_COST_MIN);
}

/* The room that all logs share goes round. */
static void window_of_all(void **state)
{
	enum { N = 5 };
	struct attempt_log l[N];
	int64_t got[N] = {0};
	T.reader.window = 2 * LOGS_PIECE_MAX;
	T.reader.window_sum = 3 * LOGS_PIECE_MAX;
	add_bytes(500000);
	for (int i = 0; i < N; i++) {
		logs_init(&l[i], &T.reader);
		logs_open(&l[i], T.dir_fd);
		logs_close(&l[i], T.w.end);
	}
	for (int left = N; left > 0;) {
		left = 0;
		for (int i = 0; i < N; i++) {
			struct logs_piece p;
			while (next_of(&l[i], &p)) {
				logs_sent(&l[i], &p);
				got[i] += (int64_t)p.len;
			}
			assert_in_range(T.reader.in_flight, 0, 3 * LOGS_PIECE_MAX);
			left += !logs_all_sent(&l[i]);
		}
		for (int i = 0; i < N; i++)
			logs_stored(&l[i], l[i].sent);
		assert_int_equal(T.reader.in_flight, 0);
		assert_true(list_empty(&T.reader.want_room));
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(got[i], 500000);
		logs_done(&l[i]);
	}
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Many logs at once: few files stay open, and few reads are under way. */
static void many_logs(void **state)
{
	enum { N = 300 };
	static struct attempt_log l[N];
	int before = count_fds();
	write_text(1, "hello");
	for (int i = 0; i < N; i++) {
		logs_init(&l[i], &T.reader);
		logs_open(&l[i], T.dir_fd);
		logs_grown(&l[i], 5, 0);
	}
	for (int left = N; left > 0;) {
		int seen = T.readies;
		left = 0;
		for (int i = 0; i < N; i++) {
			struct logs_piece p;
			if (logs_next(&l[i], &p)) {
				assert_int_equal(p.len, 5);
				logs_sent(&l[i], &p);
			}
			left += l[i].sent < 5;
		}
		assert_in_range(count_fds() - before, 0, 32 + 2 * 16 + 8);
		if (left)
			TURNS_UNTIL(T.loop, T.readies != seen);
	}
	for (int i = 0; i < N; i++)
		logs_done(&l[i]);
}

/* Without descriptors it is tried again, and nothing is called lost. */
static void no_descriptors(void **state)
{
	struct rlimit old, none;
	struct logs_piece p;
	write_text(1, "hello");
	getrlimit(RLIMIT_NOFILE, &old);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	assert_false(logs_next(&T.l, &p));
	assert_null(T.l.head.job);
	setrlimit(RLIMIT_NOFILE, &old);
	TURNS_UNTIL(T.loop, T.readies > 0);
	expect_piece(1, 0, "hello");
}

/* ---- reading along ---- */

static void live(void **state)
{
	struct logs_piece p;
	log_writer_init(&T.w, T.dir_fd, 4, 20);
	write_text(1, "head");
	logs_follow(&T.l, true);
	expect_piece(1, 0, "head");
	write_text(1, "more");
	expect_nothing(); /* not before the master has stored the head */
	logs_stored(&T.l, 4);
	assert_true(next_of(&T.l, &p));
	assert_true(p.live && p.offset == 4 && p.len == 4 && !memcmp(p.data, "more", 4));
	logs_sent(&T.l, &p);
	expect_nothing();
	write_text(2, "err");
	assert_true(next_of(&T.l, &p));
	assert_true(p.live && p.stream == 2 && p.offset == 8 && p.len == 3);
	logs_sent(&T.l, &p);
	logs_follow(&T.l, false);
	write_text(1, "unseen");
	expect_nothing();
	logs_follow(&T.l, true);
	assert_true(next_of(&T.l, &p));
	assert_true(p.live);
	/* The end: what was live comes again to be stored. */
	logs_close(&T.l, T.w.end);
	expect_piece(1, 4, "more");
	expect_piece(2, 8, "err");
	expect_piece(1, 11, "uns"); /* to the segment's end */
	expect_piece(1, 14, "een");
	assert_true(logs_all_sent(&T.l));
}

/* One that lags behind the ring goes on with what there is. */
static void live_lags(void **state)
{
	struct logs_piece p;
	log_writer_init(&T.w, T.dir_fd, 4, 20);
	write_text(1, "head");
	expect_piece(1, 0, "head");
	logs_stored(&T.l, 4);
	logs_follow(&T.l, true);
	write_text(1, "0123456789");
	assert_true(next_of(&T.l, &p));
	logs_sent(&T.l, &p);
	write_text(1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
	assert_true(next_of(&T.l, &p));
	assert_true(p.live);
	assert_int_equal(p.offset, 54);
	logs_rewind(&T.l, 4);
	expect_nothing(); /* the next session is to ask anew */
}

/* ---- at random ---- */

/* Writing, sending, lost sessions, other agents: who stores by offset gets exactly what was written, but for gaps that were
 * told and are behind the head. */
static void random_walk(uint64_t seed)
{
	enum { MOST = 1 << 20 };
	static uint8_t written[MOST + 70000], got[MOST + 70000];
	static bool lost[MOST + 70000];
	struct rng rng;
	int64_t received = 0, total = 100000 + (int64_t)(seed % 4) * 250000, head = seed % 3 ? 200000 : 1 << 30;
	bool tiny = seed % 5 == 0; /* records larger than what they hold: the files end sooner */
	int64_t least = tiny ? head / 8 : head;
	rng_seed(&rng, seed);
	log_writer_init(&T.w, T.dir_fd, head, 150000);
	T.reader.window = seed % 2 ? 3 * LOGS_PIECE_MAX : 0;
	memset(lost, 0, sizeof(lost));
	memset(got, 0, sizeof(got));
	while (!logs_all_sent(&T.l)) {
		struct logs_piece p;
		size_t n = 1 + (size_t)rng_below(&rng, tiny ? 40 : 70000);
		switch (rng_below(&rng, 10)) {
		case 0: case 1: case 2:
			if (T.w.end >= total) {
				logs_close(&T.l, T.w.end);
				break;
			}
			for (size_t k = 0; k < (tiny ? 50 : 1); k++) {
				for (size_t i = 0; i < n; i++)
					written[T.w.end + (int64_t)i] = (uint8_t)rng_next(&rng);
				log_writer_add(&T.w, 1 + (uint32_t)rng_below(&rng, 2), written + T.w.end, n, 7);
			}
			if (rng_below(&rng, 4))
				logs_grown(&T.l, log_writer_told(&T.w), 0);
			break;
		case 3:
			logs_rewind(&T.l, max_i64(T.l.stored, (int64_t)rng_below(&rng, (uint64_t)received + 1)));
			break;
		case 4:
			if (rng_below(&rng, 4))
				break;
			bool closed = T.l.closed;
			int64_t end = T.l.end, stored = T.l.stored;
			logs_done(&T.l);
			logs_init(&T.l, &T.reader);
			logs_open(&T.l, T.dir_fd);
			logs_grown(&T.l, end, 0);
			if (closed)
				logs_close(&T.l, end);
			logs_rewind(&T.l, stored);
			break;
		case 5:
			logs_stored(&T.l, received);
			break;
		case 6:
			logs_follow(&T.l, rng_below(&rng, 2));
			break;
		default:
			if (!next_of(&T.l, &p))
				break;
			assert_true(p.len <= LOGS_PIECE_MAX);
			assert_true((p.len == 0) == (p.dropped > 0));
			assert_memory_equal(p.data, written + p.offset, p.len);
			if (rng_below(&rng, 10) == 0)
				break; /* the stream took nothing */
			logs_sent(&T.l, &p);
			if (p.live) {
				assert_true(p.offset >= least && !T.l.closed);
				break;
			}
			assert_true(p.offset <= received);
			memcpy(got + p.offset, written + p.offset, p.len);
			for (int64_t i = 0; i < p.dropped; i++)
				lost[p.offset + i] = true;
			assert_true(!p.dropped || p.offset >= least);
			received = max_i64(received, p.offset + (int64_t)p.len + p.dropped);
		}
	}
	assert_int_equal(received, T.w.end);
	int64_t n_lost = 0;
	for (int64_t i = 0; i < received; i++) {
		n_lost += lost[i];
		if (!lost[i] && got[i] != written[i])
			fail_msg("seed %d: byte %d differs", (int)seed, (int)i);
	}
	if (received - n_lost < min_i64(received, least + (tiny ? 8000 : 75000)))
		fail_msg("seed %d: %ld of %ld bytes are lost", (int)seed, (long)n_lost, (long)received);
}

static void at_random(void **state)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		random_walk(seed);
		if (seed < 40) {
			tear_down(NULL);
			set_up(NULL);
		}
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_count_over_both_streams), T(again_from_any_offset), T(behind_the_end), T(head_then_gap_then_ring),
		T(ring_without_a_gap), T(missing_bytes), T(no_files), T(torn_and_damaged_records), T(strange_records),
		T(window), T(window_of_all), T(many_logs), T(no_descriptors), T(live), T(live_lags), T(at_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
