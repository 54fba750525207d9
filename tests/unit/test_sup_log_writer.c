/* The log's files, with a disk that takes only so much: a limit of file size stands for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "worker/supervisor/log_writer.h"

#define OUTPUT_MAX 200000

static char dir_path[64];
static int dir_fd;

static int set_up(void **state)
{
	snprintf(dir_path, sizeof(dir_path), "/tmp/reins-test-XXXXXX");
	signal(SIGXFSZ, SIG_IGN);
	if (!mkdtemp(dir_path))
		return -1;
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0 ? -1 : 0;
}

static void limit(int64_t bytes)
{
	struct rlimit r;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
	r.rlim_cur = bytes < 0 ? r.rlim_max : (rlim_t)bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static int each_name(void (*fn)(const char *name, void *arg), void *arg)
{
	struct dirent **names;
	int n = scandir(dir_path, &names, NULL, alphasort), found = 0;
	for (int i = 0; i < n; i++) {
		if (!strncmp(names[i]->d_name, LOG_FILE_PREFIX, 4) && ++found)
			fn(names[i]->d_name, arg);
		free(names[i]);
	}
	free(names);
	return found;
}

static void remove_file(const char *name, void *arg)
{
	unlinkat(dir_fd, name, 0);
}

static int tear_down(void **state)
{
	each_name(remove_file, NULL);
	close(dir_fd);
	return rmdir(dir_path);
}

/* What was printed: byte and stream by offset. And what of it the files have. */
static unsigned char printed[OUTPUT_MAX], stream_of[OUTPUT_MAX], found[OUTPUT_MAX];

struct sums {
	int64_t at, kept, dropped;
};

static void check_file(const char *name, void *arg)
{
	static char data[LOG_RECORD_DATA_MAX];
	struct sums *s = arg;
	struct log_record h;
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	int64_t start = (int64_t)strtoull(name + 4, NULL, 16);
	assert_true(start >= s->at);
	s->at = start;
	for (ssize_t n; (n = read(fd, &h, sizeof(h))) != 0;) {
		assert_int_equal(n, sizeof(h));
		assert_int_equal(h.magic, LOG_RECORD_MAGIC);
		assert_int_equal(h.offset, s->at);
		assert_int_equal(h.stream, stream_of[s->at]);
		assert_int_equal(read(fd, data, h.len), h.len);
		for (uint32_t i = 0; i < h.len; i++, s->at++) {
			assert_int_equal((unsigned char)data[i], printed[s->at]);
			assert_int_equal(h.stream, stream_of[s->at]);
			found[s->at] = 1;
		}
		s->kept += h.len;
		s->dropped += h.dropped;
		s->at += h.dropped;
	}
	close(fd);
}

static void add(struct log_writer *w, struct rng *rng, size_t len)
{
	uint32_t stream = 1 + (uint32_t)rng_below(rng, 2);
	int64_t at = w->end;
	for (size_t i = 0; i < len; i++) {
		printed[at + (int64_t)i] = (unsigned char)rng_below(rng, 256);
		stream_of[at + (int64_t)i] = (unsigned char)stream;
	}
	log_writer_add(w, stream, printed + at, len, 1);
	assert_int_equal(w->end, at + (int64_t)len);
	assert_true(log_writer_told(w) <= w->end);
}

/* A disk that fills up and is emptied at random moments, in the middle of records too. */
static void random_disk(void **state)
{
	struct rng rng;
	uint64_t seed = (uint64_t)clock_wall_us();
	print_message("# seed %llu\n", (unsigned long long)seed);
	rng_seed(&rng, seed);
	for (int round = 0; round < 200; round++) {
		struct log_writer w;
		struct sums s = {0};
		int64_t head = 1 + (int64_t)rng_below(&rng, 4000), ring = round % 2 ? 2 * OUTPUT_MAX : 2 + (int64_t)rng_below(&rng, 8000);
		each_name(remove_file, NULL);
		log_writer_init(&w, dir_fd, head, ring);
		for (int i = 0; i < 40; i++) {
			if (rng_below(&rng, 3) == 0)
				limit(rng_below(&rng, 2) ? -1 : (int64_t)rng_below(&rng, 6000));
			add(&w, &rng, 1 + rng_below(&rng, rng_below(&rng, 2) ? 3000 : 20));
		}
		limit(-1);
		log_writer_finish(&w, 1);
		assert_int_equal(log_writer_told(&w), w.end);
		memset(found, 0, sizeof(found));
		int files = each_name(check_file, &s);
		assert_true(files <= 3);
		assert_int_equal(s.at, w.end);
		if (round % 2) /* the ring lost nothing: every byte is there or told as dropped */
			assert_int_equal(s.kept + s.dropped, w.end);
		if (round % 2)
			assert_int_equal(s.dropped, w.dropped);
		log_writer_done(&w);
	}
}

static void ring_keeps_its_share(void **state)
{
	struct rng rng;
	struct log_writer w;
	struct sums s = {0};
	rng_seed(&rng, 1);
	log_writer_init(&w, dir_fd, 100, 1000);
	while (w.end < OUTPUT_MAX - 4000) {
		add(&w, &rng, 1 + rng_below(&rng, 1500));
		memset(&s, 0, sizeof(s));
		int files = each_name(check_file, &s);
		assert_int_equal(s.at, w.end);
		assert_true(files <= 3 && s.kept <= 100 + 1000);
		if (w.end > 2000)
			assert_true(files == 3 && s.kept >= 100 + 500);
	}
	log_writer_done(&w);
}

/* As if by a program that flushes each byte. */
static void records_larger_than_their_data(void **state)
{
	struct rng rng;
	struct log_writer w;
	struct stat st;
	rng_seed(&rng, 1);
	log_writer_init(&w, dir_fd, 20000, 40000);
	for (int i = 0; i < 20000; i++)
		add(&w, &rng, 1);
	assert_int_equal(fstatat(dir_fd, "log.0000000000000000", &st, 0), 0);
	assert_true(st.st_size > 40000 && st.st_size <= 2 * 20000 + 4096 + 64);
	log_writer_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(random_disk, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ring_keeps_its_share, set_up, tear_down),
		cmocka_unit_test_setup_teardown(records_larger_than_their_data, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
