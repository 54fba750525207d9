#include "worker/supervisor/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker/supervisor/procs.h"

#define NEXT_STATUS "status.next"
#define BACKLOG 4 /* one agent lives at a time */

static int write_all(int fd, const void *data, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = pwrite(fd, (const char *)data + at, len - at, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		at += (size_t)n;
	}
	return 0;
}

static void read_boot_id(char *ret_id, size_t cap)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, ret_id, cap - 1);
	if (fd >= 0)
		close(fd);
	ret_id[n > 0 ? n : 0] = '\0';
	ret_id[strcspn(ret_id, "\n")] = '\0';
}

int files_identify(int dir_fd, int *ret_fd)
{
	struct sup_identity id = {.size = sizeof(id), .version = SUP_VERSION, .pid = getpid()};
	struct proc self;
	int r = procs_read(getpid(), &self);
	if (r < 0)
		return r;
	id.start_ticks = self.start_ticks;
	read_boot_id(id.boot_id, sizeof(id.boot_id));
	int fd = openat(dir_fd, "supervisor", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	struct stat st;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (!st.st_nlink)
		r = -ENOENT;
	if (r == 0)
		r = write_all(fd, &id, sizeof(id));
	if (r < 0)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}

int files_listen(int dir_fd, int *ret_fd)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	/* So that the length of the directory's path does not matter. */
	snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/socket", dir_fd);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (unlinkat(dir_fd, "socket", 0) < 0 && errno != ENOENT)
		goto fail;
	mode_t before = umask(0177);
	int bound = bind(fd, (struct sockaddr *)&at, sizeof(at));
	int err = errno;
	umask(before);
	errno = err;
	if (bound < 0 || listen(fd, BACKLOG) < 0)
		goto fail;
	*ret_fd = fd;
	return 0;
fail:;
	int r = -errno;
	close(fd);
	return r;
}

static int write_file(int dir_fd, const char *name, const struct sup_status *s)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int r = write_all(fd, s, sizeof(*s));
	close(fd);
	return r;
}

int files_write_status(int dir_fd, const struct sup_status *s)
{
	int r = write_file(dir_fd, NEXT_STATUS, s);
	if (r < 0)
		return r;
	/* The old one becomes the next one's room. */
	if (renameat2(dir_fd, NEXT_STATUS, dir_fd, "status", RENAME_EXCHANGE) == 0)
		return 0;
	if (renameat(dir_fd, NEXT_STATUS, dir_fd, "status") < 0)
		return -errno;
	return write_file(dir_fd, NEXT_STATUS, s);
}

void files_end_status(int dir_fd)
{
	unlinkat(dir_fd, NEXT_STATUS, 0);
}
