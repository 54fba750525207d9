/* What programs leave behind: trees of any depth, directories that nobody may enter, mounts. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/skip.h"
#include "worker/remove_tree.h"

#define NOBODY 65534

static char top[64];
static int top_fd;

static int set_up(void **state)
{
	snprintf(top, sizeof(top), "/tmp/reins-remove-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return top_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	close(top_fd);
	return remove_tree(AT_FDCWD, top);
}

static void make(int dir_fd, const char *name)
{
	assert_int_equal(mkdirat(dir_fd, name, 0700), 0);
}

static void make_file(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static bool is_there(const char *name)
{
	struct stat st;
	return fstatat(top_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void files_and_links(void **state)
{
	assert_int_equal(remove_tree(top_fd, "none"), 0);
	make_file(top_fd, "file");
	assert_int_equal(remove_tree(top_fd, "file"), 0);
	make(top_fd, "keep");
	make_file(top_fd, "keep/file");
	assert_int_equal(symlinkat("keep", top_fd, "link"), 0);
	assert_int_equal(remove_tree(top_fd, "link"), 0);
	make(top_fd, "d");
	assert_int_equal(symlinkat("../keep", top_fd, "d/link"), 0);
	assert_int_equal(remove_tree(top_fd, "d"), 0);
	assert_false(is_there("d"));
	assert_true(is_there("keep/file"));
}

static void any_depth(void **state)
{
	make(top_fd, "deep");
	int fd = openat(top_fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 1000; i++) {
		make(fd, "d");
		make_file(fd, "f");
		int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	make_file(fd, "f");
	close(fd);
	assert_int_equal(remove_tree(top_fd, "deep"), 0);
	assert_false(is_there("deep"));
}

/* In a child, since rights and mounts are a process's. Its exit status, 0: as wanted. */
static int in_child(int (*what)(void))
{
	pid_t pid = fork();
	int status = -1;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(what());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int without_rights(void)
{
	if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
		return 1;
	/* A directory that is read-only, as caches of packages are; one that can't be entered; the top itself. */
	if (mkdirat(top_fd, "t", 0700) < 0 || mkdirat(top_fd, "t/a", 0700) < 0 || mkdirat(top_fd, "t/a/b", 0700) < 0 ||
	    mkdirat(top_fd, "t/a/b/c", 0700) < 0 || mkdirat(top_fd, "t/a/b/c/d", 0700) < 0)
		return 2;
	if (fchmodat(top_fd, "t/a/b/c", 0, 0) < 0 || fchmodat(top_fd, "t/a/b", 0, 0) < 0 || fchmodat(top_fd, "t/a", 0500, 0) < 0 ||
	    fchmodat(top_fd, "t", 0, 0) < 0)
		return 3;
	return remove_tree(top_fd, "t") == 0 && !is_there("t") ? 0 : 4;
}

static void modes(void **state)
{
	assert_int_equal(fchmod(top_fd, 0777), 0);
	assert_int_equal(in_child(without_rights), 0);
}

enum { CANT_MOUNT = 77 };

static int with_mounts(void)
{
	char from[96], to[96];
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return CANT_MOUNT;
	/* A descriptor stays in the namespace that it was opened in. */
	close(top_fd);
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(from, sizeof(from), "%s/keep", top);
	snprintf(to, sizeof(to), "%s/t/m", top);
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return CANT_MOUNT;
	if (remove_tree(top_fd, "t") != -EXDEV || !is_there("keep/file") || !is_there("t/m/file") || is_there("t/other"))
		return 1;
	if (umount(to) < 0)
		return 2;
	/* The top itself. */
	snprintf(to, sizeof(to), "%s/t", top);
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return CANT_MOUNT;
	if (remove_tree(top_fd, "t") != -EXDEV || !is_there("keep/file") || umount(to) < 0)
		return 3;
	return remove_tree(top_fd, "t") == 0 && !is_there("t") ? 0 : 4;
}

static void mounts(void **state)
{
	make(top_fd, "keep");
	make_file(top_fd, "keep/file");
	make(top_fd, "t");
	make(top_fd, "t/m");
	make_file(top_fd, "t/other");
	int r = in_child(with_mounts);
	if (r == CANT_MOUNT)
		SKIP("nothing can be mounted here");
	assert_int_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_and_links, set_up, tear_down),
		cmocka_unit_test_setup_teardown(any_depth, set_up, tear_down),
		cmocka_unit_test_setup_teardown(modes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(mounts, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
