/* The outcome spool and the state directory, on a real disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "tests/unit/work_dir.h"
#include "worker/remove_tree.h"
#include "worker/spool.h"
#include "worker/state_dir.h"

struct replayed {
	size_t n;
	uint64_t ids[1000];
	char texts[1000][32];
};

static void on_outcome(void *arg, uint64_t id, struct blob *outcome)
{
	struct replayed *r = arg;
	assert_true(r->n < 1000);
	r->ids[r->n] = id;
	snprintf(r->texts[r->n++], 32, "%.*s", (int)min_sz(outcome->len, 31), (char *)outcome->data);
	blob_unref(outcome);
}

static struct spool *open_spool(struct replayed *r, int64_t *ret_torn)
{
	static struct replayed nowhere;
	struct spool *s = NULL;
	struct spool_replay replay = {.on_outcome = on_outcome, .arg = r ? r : &nowhere};
	*(r ? r : &nowhere) = (struct replayed){0};
	assert_int_equal(spool_open(dir_fd, "outcomes", 10000, &replay, &s), 0);
	if (ret_torn)
		*ret_torn = replay.torn_bytes;
	else
		assert_int_equal(replay.torn_bytes, 0);
	return s;
}

static uint64_t put(struct spool *s, const char *text, size_t len)
{
	struct blob *b = blob_new(text, len);
	assert_non_null(b);
	uint64_t id = spool_add(s, b);
	blob_unref(b);
	return id;
}

/* All that waits, to the disk. */
static uint64_t write_out(struct spool *s)
{
	uint64_t id = 0;
	for (struct spool_batch *b; (b = spool_begin(s));) {
		spool_batch_run(b);
		assert_int_equal(spool_end(s, b, &id), 0);
	}
	return id;
}

static void spool_keeps_what_is_not_answered(void **state)
{
	struct replayed r;
	struct spool *s = open_spool(&r, NULL);
	assert_int_equal(r.n, 0);
	uint64_t one = put(s, "one", 3), two = put(s, "two", 3), three = put(s, "", 0);
	assert_true(0 < one && one < two && two < three);
	assert_int_equal(write_out(s), three);
	assert_null(spool_begin(s));
	spool_answered(s, two);
	spool_answered(s, two); /* again */
	spool_answered(s, 999); /* never there */
	write_out(s);
	spool_free(s);

	s = open_spool(&r, NULL);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.texts[0], "one");
	assert_string_equal(r.texts[1], "");
	assert_int_equal(r.ids[0], one);
	assert_int_equal(r.ids[1], three);
	assert_true(put(s, "four", 4) > three);
	spool_free(s); /* what was not written is lost */
	s = open_spool(&r, NULL);
	assert_int_equal(r.n, 2);
	spool_free(s);
}

static void spool_goes_on_while_a_batch_is_under_way(void **state)
{
	struct replayed r;
	struct spool *s = open_spool(NULL, NULL);
	uint64_t one = put(s, "one", 3), id;
	struct spool_batch *b = spool_begin(s);
	assert_non_null(b);
	uint64_t two = put(s, "two", 3);
	spool_answered(s, one);
	assert_null(spool_begin(s));
	spool_batch_run(b);
	assert_int_equal(spool_end(s, b, &id), 0);
	assert_int_equal(id, one);
	assert_int_equal(write_out(s), two);
	spool_free(s);
	spool_free(open_spool(&r, NULL));
	assert_int_equal(r.n, 1);
	assert_string_equal(r.texts[0], "two");
}

/* Cut at every length: what was whole is there, the rest is cut off, and the file can be written on. */
static void spool_torn_tail(void **state)
{
	struct replayed r;
	struct spool *s = open_spool(NULL, NULL);
	put(s, "first", 5);
	write_out(s);
	int64_t after_first = spool_file_bytes(s);
	put(s, "second", 6);
	write_out(s);
	int64_t all = spool_file_bytes(s);
	spool_free(s);
	char whole[256];
	int fd = openat(dir_fd, "outcomes", O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, whole, sizeof(whole), 0), all);
	for (int64_t len = 0; len < all; len++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, whole, (size_t)len, 0), len);
		int64_t torn;
		s = open_spool(&r, &torn);
		assert_int_equal(r.n, len >= after_first);
		if (len >= after_first)
			assert_int_equal(torn, len - after_first);
		put(s, "third", 5);
		write_out(s);
		spool_free(s);
		spool_free(open_spool(&r, NULL));
		assert_int_equal(r.n, 1 + (len >= after_first));
		assert_string_equal(r.texts[r.n - 1], "third");
	}
	close(fd);
}

/* Any single byte that differs behind the header: nothing is invented, and what stands before it is kept. */
static void spool_damage(void **state)
{
	struct replayed r;
	struct spool *s = open_spool(NULL, NULL);
	put(s, "first", 5);
	write_out(s);
	int64_t after_first = spool_file_bytes(s);
	put(s, "second", 6);
	write_out(s);
	int64_t all = spool_file_bytes(s);
	spool_free(s);
	char whole[256];
	int fd = openat(dir_fd, "outcomes", O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, whole, sizeof(whole), 0), all);
	for (int64_t at = 14; at < all; at++) {
		char bad = (char)(whole[at] ^ 0x10);
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, whole, (size_t)all, 0), all);
		assert_int_equal(pwrite(fd, &bad, 1, at), 1);
		int64_t torn;
		s = open_spool(&r, &torn);
		assert_int_equal(r.n, at >= after_first);
		assert_int_equal(torn, at >= after_first ? all - after_first : all - 14);
		spool_free(s);
	}
	close(fd);
}

static void spool_refuses_what_is_none(void **state)
{
	int fd = openat(dir_fd, "outcomes", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "precious data of somebody", 25), 25);
	close(fd);
	struct spool *s = NULL;
	struct spool_replay replay = {.on_outcome = on_outcome};
	assert_int_equal(spool_open(dir_fd, "outcomes", 10000, &replay, &s), -EBADMSG);
	struct stat st;
	assert_int_equal(fstatat(dir_fd, "outcomes", &st, 0), 0);
	assert_int_equal(st.st_size, 25);
}

static void spool_limit(void **state)
{
	static char kb[1000];
	struct spool *s = open_spool(NULL, NULL);
	uint64_t first = put(s, kb, sizeof(kb));
	for (int i = 0; i < 8; i++) {
		put(s, kb, sizeof(kb));
		assert_false(spool_full(s));
	}
	put(s, kb, sizeof(kb));
	assert_true(spool_full(s));
	assert_true(put(s, kb, sizeof(kb)) > first); /* never refused */
	spool_answered(s, first);
	spool_answered(s, first + 1);
	assert_false(spool_full(s));
	spool_free(s);
}

/* The file stays near what is alive, however much went through. */
static void spool_is_rewritten(void **state)
{
	static char body[5000];
	struct replayed r;
	struct spool *s = open_spool(NULL, NULL);
	uint64_t oldest = put(s, "oldest", 6), last = 0;
	for (int i = 0; i < 500; i++) {
		last = put(s, body, sizeof(body));
		write_out(s);
		spool_answered(s, last);
		assert_true(spool_file_bytes(s) < 600000);
	}
	write_out(s);
	struct stat st;
	assert_int_equal(fstatat(dir_fd, "outcomes", &st, 0), 0);
	assert_int_equal(st.st_size, spool_file_bytes(s));
	spool_free(s);
	s = open_spool(&r, NULL);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.ids[0], oldest);
	assert_true(put(s, "next", 4) > last); /* no id is used again */
	spool_free(s);
}

/* A batch that can't be written: everything alive is in the next. */
static void spool_after_a_failed_write(void **state)
{
	struct replayed r;
	struct spool *s = open_spool(NULL, NULL);
	uint64_t one = put(s, "one", 3), id = 0;
	write_out(s);
	/* A directory where the new file is to stand makes a rewrite fail. */
	static char body[300000];
	assert_int_equal(mkdirat(dir_fd, "outcomes.new", 0700), 0);
	uint64_t big = put(s, body, sizeof(body));
	write_out(s);
	spool_answered(s, big);
	uint64_t two = put(s, "two", 3);
	struct spool_batch *b = spool_begin(s);
	spool_batch_run(b);
	assert_true(spool_end(s, b, &id) < 0);
	assert_int_equal(id, 0);
	assert_int_equal(unlinkat(dir_fd, "outcomes.new", AT_REMOVEDIR), 0);
	assert_true(write_out(s) >= two);
	spool_free(s);
	spool_free(open_spool(&r, NULL));
	assert_int_equal(r.n, 2);
	assert_int_equal(r.ids[0], one);
	assert_string_equal(r.texts[1], "two");
}

static void spool_crc_is_castagnoli(void **state)
{
	assert_int_equal(spool_crc("123456789", 9), UINT32_C(0xe3069283));
	assert_int_equal(spool_crc("", 0), 0);
}

/* ---- state directory ---- */

static void state_dir_identity(void **state)
{
	struct state_dir d, e;
	char err[512], path[128], instance[STATE_INSTANCE_LEN + 1];
	snprintf(path, sizeof(path), "%s/a/b", dir_path);
	assert_int_equal(state_dir_open(&d, path, "w/1", err, sizeof(err)), 0);
	assert_int_equal(strlen(d.instance), STATE_INSTANCE_LEN);
	assert_string_equal(d.store_id, "");
	memcpy(instance, d.instance, sizeof(instance));
	assert_int_equal(state_dir_open(&e, path, "w/1", err, sizeof(err)), -1);
	assert_non_null(strstr(err, "in use"));
	assert_int_equal(state_dir_set_store_id(&d, "store one"), 0);
	assert_int_equal(state_dir_set_store_id(&d, "a\nb"), -EINVAL);
	state_dir_close(&d);
	assert_int_equal(state_dir_open(&d, path, "w/2", err, sizeof(err)), -1);
	assert_non_null(strstr(err, "belongs to the worker \"w/1\""));
	assert_int_equal(state_dir_open(&d, path, "w/1", err, sizeof(err)), 0);
	assert_string_equal(d.instance, instance);
	assert_string_equal(d.store_id, "store one");
	state_dir_close(&d);
}

/* A later process counts on from a larger number, whatever became of the wall clock or of the file. */
static void state_dir_hellos(void **state)
{
	static const char *const left[] = {NULL, "4000000000000000\n", "no number\n", "", "9223372036854775807\n", "-5\n"};
	struct state_dir d;
	char err[512], path[128], file[160];
	int64_t last = 0;
	snprintf(path, sizeof(path), "%s/h", dir_path);
	snprintf(file, sizeof(file), "%s/process", path);
	for (size_t i = 0; i < ARRAY_LEN(left); i++) {
		if (left[i]) {
			FILE *f = fopen(file, "w");
			assert_non_null(f);
			fputs(left[i], f);
			fclose(f);
			last = i == 1 ? last : 0;
		}
		for (int n = 0; n < 3; n++) {
			assert_int_equal(state_dir_open(&d, path, "w", err, sizeof(err)), 0);
			int64_t first = state_dir_next_hello(&d, false);
			assert_true(first > last);
			last = state_dir_next_hello(&d, false);
			assert_true(last == first + 1);
			state_dir_close(&d);
		}
		assert_true(i != 1 || last > INT64_C(4000000000000000));
	}
}

/* A machine whose clock is behind is heard in the end: once that is beyond what another said. */
static void state_dir_hello_refused(void **state)
{
	struct state_dir d;
	char err[512], path[128];
	snprintf(path, sizeof(path), "%s/r", dir_path);
	assert_int_equal(state_dir_open(&d, path, "w", err, sizeof(err)), 0);
	d.hellos -= INT64_C(60000000);
	int64_t first = state_dir_next_hello(&d, false), now = clock_wall_us();
	assert_true(first < now);
	int64_t next = state_dir_next_hello(&d, true);
	assert_true(next >= now);
	assert_int_equal(state_dir_next_hello(&d, false), next + 1);
	d.hellos = INT64_MAX / 2; /* the clock was set back since */
	assert_true(state_dir_next_hello(&d, true) == INT64_MAX / 2 + 1);
	state_dir_close(&d);
}

static void count_name(void *arg, const char *name)
{
	(*(int *)arg)++;
}

static void state_dir_attempts(void **state)
{
	struct state_dir d;
	char err[512], path[128], name[STATE_ATTEMPT_NAME_MAX], rest[STATE_ATTEMPT_NAME_MAX];
	snprintf(path, sizeof(path), "%s/s", dir_path);
	assert_int_equal(state_dir_open(&d, path, "w", err, sizeof(err)), 0);
	state_dir_attempt_name("0195f3a0-0000-7000-8000-000000000000", 12, name);
	assert_string_equal(name, "0195f3a0-0000-7000-8000-000000000000.12");
	assert_int_equal(state_dir_make_attempt(&d, name), 0);
	assert_int_equal(state_dir_make_attempt(&d, name), 0);
	char deep[STATE_ATTEMPT_NAME_MAX + 32];
	snprintf(deep, sizeof(deep), "%s/work/sub", name);
	assert_int_equal(mkdirat(d.attempts_fd, deep, 0700), 0);
	snprintf(deep, sizeof(deep), "%s/work/sub/link", name);
	assert_int_equal(symlinkat("/etc", d.attempts_fd, deep), 0);
	assert_int_equal(state_dir_put_aside(&d, name, rest), 0);
	assert_int_equal(strncmp(rest, STATE_ASIDE, strlen(STATE_ASIDE)), 0);
	char again[STATE_ATTEMPT_NAME_MAX];
	assert_int_equal(state_dir_put_aside(&d, name, again), -ENOENT);
	int n = 0;
	assert_int_equal(state_dir_list_attempts(&d, count_name, &n), 0);
	assert_int_equal(n, 1);
	(void)!remove_tree(d.attempts_fd, rest);
	n = 0;
	assert_int_equal(state_dir_list_attempts(&d, count_name, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
	state_dir_close(&d);
}

/* As a user who is not root: rights that are not there count. */
static void in_child(void (*f)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (fchown(dir_fd, 65534, 65534) < 0 || setgid(65534) < 0 || setuid(65534) < 0))
			_exit(1);
		f();
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void remove_without_rights(void)
{
	bool made = mkdirat(dir_fd, "t", 0700) == 0 && mkdirat(dir_fd, "t/read", 0700) == 0 && mkdirat(dir_fd, "t/read/a", 0700) == 0 &&
		    mkdirat(dir_fd, "t/none", 0700) == 0 && mkdirat(dir_fd, "t/none/b", 0700) == 0 &&
		    fchmodat(dir_fd, "t/read", 0500, 0) == 0 && fchmodat(dir_fd, "t/none", 0, 0) == 0;
	(void)!remove_tree(dir_fd, "t"); /* looked for below */
	if (!made || faccessat(dir_fd, "t", F_OK, 0) == 0)
		_exit(2);
}

static void remove_deep(void)
{
	enum { DEPTH = 1500 };
	int fd = mkdirat(dir_fd, "t", 0700) == 0 ? openat(dir_fd, "t", O_RDONLY | O_DIRECTORY) : -1;
	for (int i = 0; i < DEPTH && fd >= 0; i++) {
		int below = mkdirat(fd, "d", 0700) == 0 && mkdirat(fd, "e", 0700) == 0 ? openat(fd, "d", O_RDONLY | O_DIRECTORY) : -1;
		close(fd);
		fd = below;
	}
	(void)!remove_tree(dir_fd, "t"); /* looked for below */
	if (fd < 0 || faccessat(dir_fd, "t", F_OK, 0) == 0)
		_exit(2);
}

static void trees_are_removed_whole(void **state)
{
	in_child(remove_without_rights);
	in_child(remove_deep);
}

static void state_dir_default(void **state)
{
	setenv("XDG_STATE_HOME", "/x", 1);
	char *p = state_dir_default_path("a/b");
	assert_string_equal(p, "/x/reins/a+b");
	free(p);
	p = state_dir_default_path("..");
	assert_string_equal(p, "/x/reins/+..");
	free(p);
	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/h", 1);
	p = state_dir_default_path("w");
	assert_string_equal(p, "/h/.local/state/reins/w");
	free(p);
	unsetenv("HOME");
	assert_null(state_dir_default_path("w"));
}

#define ON_DISK(f) cmocka_unit_test_setup_teardown(f, work_dir_make, work_dir_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(spool_keeps_what_is_not_answered),
		ON_DISK(spool_goes_on_while_a_batch_is_under_way),
		ON_DISK(spool_torn_tail),
		ON_DISK(spool_damage),
		ON_DISK(spool_refuses_what_is_none),
		ON_DISK(spool_limit),
		ON_DISK(spool_is_rewritten),
		ON_DISK(spool_after_a_failed_write),
		cmocka_unit_test(spool_crc_is_castagnoli),
		ON_DISK(state_dir_identity), ON_DISK(state_dir_hellos), ON_DISK(state_dir_hello_refused),
		ON_DISK(state_dir_attempts),
		ON_DISK(trees_are_removed_whole),
		cmocka_unit_test(state_dir_default),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
