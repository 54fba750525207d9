/* The log's files: exact bytes, bounds, a full disk, and who else holds the pipes; what all that costs. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/skip.h"

#define PRIVATE_MAX_KIB 1024

static void make(struct rig *r, const char *name)
{
	int fd = openat(r->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* What follows a file that was removed begins anew; here nothing was. */
static void whole(const struct rig *r, const struct rig_log *l)
{
	assert_int_equal(l->end, r->last.log_end);
	assert_int_equal(l->dropped, r->last.log_dropped);
	assert_int_equal((int64_t)(l->len[0] + l->len[1]) + l->dropped, l->end);
}

static void every_line_of_both_streams(void **state)
{
	enum { LINES = 200000 };
	struct rig r;
	struct rig_log l;
	rig_new(&r);
	r.file.log_head_bytes = 64 << 20;
	rig_victim(&r, "lines", "200000");
	rig_launch(&r);
	rig_until_end(&r);
	rig_read_log(&r, &l);
	whole(&r, &l);
	assert_int_equal(l.dropped, 0);
	for (int s = 0; s < 2; s++) {
		const char *p = l.out[s];
		for (int i = 0; i < LINES; i++) {
			char want[32];
			size_t n = (size_t)snprintf(want, sizeof(want), "%s %d\n", s ? "err" : "out", i);
			if (strncmp(p, want, n) != 0)
				fail_msg("stream %d: not \"%.*s\" but \"%.20s\"", s, (int)n - 1, want, p);
			p += n;
		}
		assert_int_equal(*p, 0);
	}
	rig_log_done(&l);
	rig_done(&r);
}

static void any_byte(void **state)
{
	struct rig r;
	struct rig_log l;
	rig_new(&r);
	rig_victim(&r, "binary", "3000");
	rig_launch(&r);
	rig_until_end(&r);
	rig_read_log(&r, &l);
	whole(&r, &l);
	assert_int_equal(l.len[0], 3000 * 256);
	for (size_t i = 0; i < l.len[0]; i++)
		if ((unsigned char)l.out[0][i] != i % 256)
			fail_msg("byte %zu is %d", i, (unsigned char)l.out[0][i]);
	rig_log_done(&l);
	rig_done(&r);
}

static void head_and_ring(void **state)
{
	enum { HEAD = 1000, RING = 5000, TIMES = 3000 };
	struct rig r;
	struct rig_log l;
	rig_new(&r);
	r.file.log_head_bytes = HEAD;
	r.file.log_ring_bytes = RING;
	rig_victim(&r, "binary", "3000");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.log_end, TIMES * 256);
	rig_read_log(&r, &l);
	assert_int_equal(l.files, 3);
	assert_int_equal(l.head_end, HEAD);
	assert_int_equal(l.end, TIMES * 256);
	assert_true(l.end - l.kept_from >= RING / 2 && l.end - l.kept_from <= RING);
	for (size_t i = 0; i < l.len[0]; i++) {
		int64_t at = i < HEAD ? (int64_t)i : l.kept_from + (int64_t)i - HEAD;
		if ((unsigned char)l.out[0][i] != at % 256)
			fail_msg("byte at offset %lld is %d", (long long)at, (unsigned char)l.out[0][i]);
	}
	rig_log_done(&l);
	rig_done(&r);
}

/* Each byte is a record of its own: the files are bounded all the same. */
static void single_bytes(void **state)
{
	enum { HEAD = 20000, RING = 20000 };
	struct rig r;
	struct rig_log l;
	rig_new(&r);
	r.file.log_head_bytes = HEAD;
	r.file.log_ring_bytes = RING;
	rig_victim(&r, "bytes", "60000");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.log_end, 60000);
	rig_read_log(&r, &l);
	assert_int_equal(l.end, 60000);
	assert_true(l.bytes_on_disk <= 2 * (HEAD + RING) + 3 * (4096 + 64 + (int64_t)sizeof(struct log_record)));
	rig_log_done(&l);
	rig_done(&r);
}

/* Somebody outside the tree holds stdout and goes on holding it. */
static void a_stranger_holds_stdout(void **state)
{
	struct rig r;
	struct rig_log l;
	char path[64];
	rig_new(&r);
	rig_shell(&r, "echo ours; touch ready; while [ ! -e go ]; do sleep 0.01; done");
	rig_launch(&r);
	rig_wait_file(&r, "ready");
	rig_until(&r, SUP_RUNNING);
	snprintf(path, sizeof(path), "/proc/%d/fd/1", r.last.pid);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "theirs\n", 7), 7);
	make(&r, "go");
	rig_until_end(&r);
	rig_read_log(&r, &l);
	assert_string_equal(l.out[0], "ours\ntheirs\n");
	close(fd);
	rig_log_done(&l);
	rig_done(&r);
}

static int private_kib(int pid)
{
	char path[64], line[256];
	int sum = 0, n;
	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Private_Clean: %d", &n) == 1 || sscanf(line, "Private_Dirty: %d", &n) == 1)
			sum += n;
	fclose(f);
	return sum;
}

/* After much output; while running, and as a spare. */
static void memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
	SKIP("the sanitizer's memory is not ours");
#endif
	struct rig r;
	rig_new(&r);
	int64_t until = clock_boot_ns() + RIG_WAIT_NS;
	char target[32] = "";
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd/0", r.pid);
	while (readlink(path, target, sizeof(target) - 1) < 0 || strcmp(target, "/dev/null") != 0)
		if (clock_boot_ns() > until)
			fail_msg("the spare does not come up");
	int spare = private_kib(r.pid);
	rig_shell(&r, "head -c 30000000 /dev/zero; touch ready; while [ ! -e go ]; do sleep 0.01; done");
	rig_launch(&r);
	rig_wait_file(&r, "ready");
	int after = private_kib(r.pid);
	print_message("private memory: spare %d KiB, after 30 MB of output %d KiB\n", spare, after);
	assert_true(spare < PRIVATE_MAX_KIB && after < PRIVATE_MAX_KIB);
	make(&r, "go");
	rig_until_end(&r);
	rig_done(&r);
}

/* A disk of 512 KiB.  False: it can't be made. */
static bool small_disk(char *dir, size_t cap)
{
	char made[] = "/tmp/reins-sup-XXXXXX";
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return false;
	assert_non_null(mkdtemp(made));
	snprintf(dir, cap, "%s", made);
	if (mount("tmpfs", dir, "tmpfs", 0, "size=512k,mode=0700") == 0)
		return true;
	rmdir(dir);
	return false;
}

static void fill(struct rig *r, const char *name, size_t len)
{
	static const char zeros[4096];
	int fd = openat(r->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (size_t n = 0; n < len; n += sizeof(zeros))
		assert_int_equal(write(fd, zeros, sizeof(zeros)), sizeof(zeros));
	close(fd);
}

static void disk_done(struct rig *r)
{
	char dir[sizeof(r->dir)];
	memcpy(dir, r->dir, sizeof(dir));
	rig_done(r);
	assert_int_equal(umount(dir), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* False: there can be none here. */
static bool on_full_disk(struct rig *r)
{
	char dir[sizeof(r->dir)];
	if (!small_disk(dir, sizeof(dir))) {
		return false;
	}
	rig_new_in(r, dir);
	fill(r, "ballast", 256 * 1024);
	r->file.log_head_bytes = r->file.log_ring_bytes = 1 << 30;
	rig_shell(r, "head -c 1000000 /dev/zero; touch printed; while [ ! -e go ]; do sleep 0.01; done; echo after");
	rig_launch(r);
	rig_wait_file(r, "printed");
	while (r->last.log_dropped + r->last.log_end < 1000000)
		assert_true(rig_next(r));
	assert_true(r->last.log_dropped > 0);
	return true;
}

static void disk_that_was_full(void **state)
{
	struct rig r;
	struct rig_log l;
	if (!on_full_disk(&r))
		SKIP("a small disk can't be mounted here");
	assert_int_equal(unlinkat(r.dir_fd, "ballast", 0), 0);
	make(&r, "go");
	rig_until_end(&r);
	assert_int_equal(r.last.log_end, 1000006);
	rig_read_log(&r, &l);
	whole(&r, &l);
	assert_true(l.dropped > 0 && l.len[0] > 100000);
	assert_string_equal(l.out[0] + l.len[0] - 6, "after\n");
	rig_log_done(&l);
	disk_done(&r);
}

/* Nothing can be written, but how it ended. */
static void disk_that_stays_full(void **state)
{
	struct rig r;
	struct rig_log l;
	if (!on_full_disk(&r))
		SKIP("a small disk can't be mounted here");
	make(&r, "go");
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 0);
	assert_int_equal(r.last.log_end, 1000006);
	rig_read_log(&r, &l);
	assert_int_equal((int64_t)l.len[0] + r.last.log_dropped, r.last.log_end);
	rig_log_done(&l);
	disk_done(&r);
}

static void disk_full_at_the_start(void **state)
{
	struct rig r;
	char dir[sizeof(r.dir)];
	if (!small_disk(dir, sizeof(dir))) {
		SKIP("a small disk can't be mounted here");
	}
	rig_new_in(&r, dir);
	fill(&r, "ballast", 512 * 1024);
	rig_argv(&r, "true", NULL);
	rig_launch(&r);
	rig_until(&r, SUP_EMPTY);
	assert_int_equal(r.last.launch_errno, ENOSPC);
	assert_int_equal(r.last.launch_own, 1);
	rig_until_gone(&r);
	disk_done(&r);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		rig_test(every_line_of_both_streams),
		rig_test(any_byte),
		rig_test(head_and_ring),
		rig_test(single_bytes),
		rig_test(a_stranger_holds_stdout),
		rig_test(memory),
		rig_test(disk_that_was_full),
		rig_test(disk_that_stays_full),
		rig_test(disk_full_at_the_start),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
