/* Directories are opened one below the other, each by the one above it, so that nobody can lead us astray by a rename.
 * One that lies too deep for that is moved to the top first, and its turn comes in the next pass. */
#include "worker/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH_MAX 128     /* directories open at a time */
#define PASSES_MAX 65536  /* somebody may go on making directories */

struct removal {
	int top_fd;
	unsigned n_moved; /* in this pass */
	unsigned number;
	int err;          /* the first; 0: none */
};

static void fail(struct removal *r, int err)
{
	if (!r->err)
		r->err = -err;
}

static int open_once(int parent_fd, const char *name)
{
	const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_NO_XDEV};
	struct stat parent, st;
	if (*name == '/')
		return open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int fd = (int)syscall(SYS_openat2, parent_fd, name, &how, sizeof(how));
	if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
		return fd;
	/* An older kernel: of mounts it says at least those of other devices. */
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || (fstat(parent_fd, &parent) == 0 && fstat(fd, &st) == 0 && parent.st_dev == st.st_dev))
		return fd;
	close(fd);
	errno = EXDEV;
	return -1;
}

/* With the rights to look into it and to change it, which its owner may have taken from himself. */
static int open_dir(int parent_fd, const char *name)
{
	struct stat st;
	int fd = open_once(parent_fd, name);
	if (fd < 0 && errno == EACCES && fchmodat(parent_fd, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
		fd = open_once(parent_fd, name);
	else if (fd < 0)
		return -1;
	if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700 && st.st_uid == geteuid())
		(void)!fchmod(fd, 0700); /* what it would have been good for fails then, and says why */
	return fd;
}

static void move_to_top(struct removal *r, int dir_fd, const char *name)
{
	char to[64];
	snprintf(to, sizeof(to), "deep.%lld.%u", (long long)getpid(), r->number++);
	/* A directory can only be moved by who may change its entry for the one above. */
	int fd = open_dir(dir_fd, name);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && renameat(dir_fd, name, r->top_fd, to) == 0)
		r->n_moved++;
	else
		fail(r, errno);
}

static void remove_below(struct removal *r, int dir_fd, int depth);

static void remove_entry(struct removal *r, int dir_fd, const char *name, int depth)
{
	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return;
	/* EPERM: a directory, by the words of other systems. */
	if (errno != EISDIR && errno != EPERM) {
		fail(r, errno);
		return;
	}
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return;
	if (depth == DEPTH_MAX) {
		move_to_top(r, dir_fd, name);
		return;
	}
	int fd = open_dir(dir_fd, name);
	if (fd < 0) {
		fail(r, errno);
		return;
	}
	remove_below(r, fd, depth + 1);
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		fail(r, errno);
}

/* Closes dir_fd. */
static void remove_below(struct removal *r, int dir_fd, int depth)
{
	DIR *dir = fdopendir(dir_fd);
	if (!dir) {
		fail(r, errno);
		close(dir_fd);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_entry(r, dir_fd, e->d_name, depth);
	closedir(dir);
}

int remove_tree(int parent_fd, const char *name)
{
	struct removal r = {.top_fd = -1};
	if (unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	r.top_fd = open_dir(parent_fd, name);
	if (r.top_fd < 0)
		return -errno;
	for (int pass = 0; pass < PASSES_MAX && (pass == 0 || r.n_moved); pass++) {
		int fd = openat(r.top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r.n_moved = 0;
		r.err = 0;
		if (fd < 0)
			fail(&r, errno);
		else
			remove_below(&r, fd, 0);
	}
	close(r.top_fd);
	/* What a pass could not do for what it had to move first does not matter if in the end nothing is left. */
	if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return r.err ? r.err : -errno;
}
