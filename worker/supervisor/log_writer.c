/* A record is written whole or taken back.  What could not be written is added up in `missing` and told by one
 * record without data, which comes before the next one with data. */
#include "worker/supervisor/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLACK_BYTES 4096

static void file_name(char name[static LOG_FILE_NAME_LEN + 1], int64_t start)
{
	snprintf(name, LOG_FILE_NAME_LEN + 1, LOG_FILE_PREFIX "%016" PRIx64, (uint64_t)start);
}

void log_writer_init(struct log_writer *w, int dir_fd, int64_t head_bytes, int64_t ring_bytes)
{
	*w = (struct log_writer){.dir_fd = dir_fd, .fd = -1, .head_bytes = head_bytes, .segment_bytes = ring_bytes / 2,
		.file_start = -1, .older_start = -1};
}

static bool is_full(const struct log_writer *w, int64_t at)
{
	int64_t most = w->share > INT64_MAX / 4 ? INT64_MAX : 2 * w->share + SLACK_BYTES;
	return at - w->file_start >= w->share || w->file_size >= most;
}

/* Makes the file that begins at `at`, and room for it. False: the disk does not let us. */
static bool next_file(struct log_writer *w, int64_t at)
{
	char name[LOG_FILE_NAME_LEN + 1];
	if (w->older_start > 0) {
		file_name(name, w->older_start);
		if (unlinkat(w->dir_fd, name, 0) < 0 && errno != ENOENT)
			return false;
		w->older_start = -1;
	}
	file_name(name, at);
	int fd = openat(w->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	if (w->fd >= 0)
		close(w->fd);
	w->fd = fd;
	/* The head stays: its start is never the older segment's. */
	w->older_start = w->file_start > 0 ? w->file_start : -1;
	w->share = w->file_start < 0 ? w->head_bytes : w->segment_bytes;
	w->file_start = at;
	w->file_size = 0;
	return true;
}

/* 0, or what the disk says; then nothing of it is in the file. */
static int append(struct log_writer *w, const struct log_record *r, const void *data)
{
	size_t total = sizeof(*r) + r->len, done = 0;
	while (done < total) {
		size_t from = done < sizeof(*r) ? 0 : done - sizeof(*r);
		struct iovec io[2] = {
			{.iov_base = (char *)(uintptr_t)r + done, .iov_len = done < sizeof(*r) ? sizeof(*r) - done : 0},
			{.iov_base = (char *)(uintptr_t)data + from, .iov_len = r->len - from},
		};
		ssize_t n = writev(w->fd, io, r->len ? 2 : 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int err = n < 0 ? errno : ENOSPC;
			if (done && ftruncate(w->fd, w->file_size) < 0)
				w->share = 0; /* a torn record: nothing more goes into this file */
			return err;
		}
		done += (size_t)n;
	}
	w->file_size += (int64_t)total;
	return 0;
}

static bool tell_missing(struct log_writer *w, int64_t wall_us)
{
	if (!w->missing)
		return true;
	int64_t at = w->end - w->missing;
	if ((w->fd < 0 || is_full(w, at)) && !next_file(w, at))
		return false;
	struct log_record r = {.magic = LOG_RECORD_MAGIC, .stream = w->missing_stream, .offset = at, .wall_us = wall_us,
		.dropped = w->missing};
	if (append(w, &r, NULL) != 0)
		return false;
	w->missing = 0;
	return true;
}

/* The bytes that were taken; 0: the disk takes none. */
static size_t add_some(struct log_writer *w, uint32_t stream, const char *data, size_t len, int64_t wall_us)
{
	if (!tell_missing(w, wall_us))
		return 0;
	if ((w->fd < 0 || is_full(w, w->end)) && !next_file(w, w->end))
		return 0;
	len = min_sz(len, LOG_RECORD_DATA_MAX);
	len = min_sz(len, (size_t)(w->share - (w->end - w->file_start)));
	struct log_record r = {.magic = LOG_RECORD_MAGIC, .stream = stream, .offset = w->end, .wall_us = wall_us,
		.len = (uint32_t)len};
	return append(w, &r, data) == 0 ? len : 0;
}

void log_writer_add(struct log_writer *w, uint32_t stream, const void *data, size_t len, int64_t wall_us)
{
	for (const char *p = data; len > 0;) {
		size_t n = add_some(w, stream, p, len, wall_us);
		if (n == 0) {
			if (!w->missing)
				w->missing_stream = stream;
			w->missing += (int64_t)len;
			w->dropped += (int64_t)len;
			n = len;
		}
		w->end += (int64_t)n;
		p += n;
		len -= n;
	}
}

void log_writer_finish(struct log_writer *w, int64_t wall_us)
{
	if (!tell_missing(w, wall_us))
		return; /* log_end tells it */
}

int64_t log_writer_told(const struct log_writer *w)
{
	return w->end - w->missing;
}

void log_writer_done(struct log_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}
