/* What is found in a file is checked record by record: each has to begin where the one before ends.  From the first that
 * does not, the rest of its file counts as lost. */
#include "worker/log_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES 8 /* a running supervisor removes segments under us */

static void file_name(char name[static LOG_FILE_NAME_LEN + 1], int64_t start)
{
	snprintf(name, LOG_FILE_NAME_LEN + 1, LOG_FILE_PREFIX "%016" PRIx64, (uint64_t)start);
}

/* -1: not the name of such a file. */
static int64_t start_of(const char *name)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t v = 0;
	if (strlen(name) != LOG_FILE_NAME_LEN || strncmp(name, LOG_FILE_PREFIX, strlen(LOG_FILE_PREFIX)) != 0)
		return -1;
	for (const char *p = name + strlen(LOG_FILE_PREFIX); *p; p++) {
		const char *d = strchr(digits, *p);
		if (!d)
			return -1;
		v = v << 4 | (uint64_t)(d - digits);
	}
	return v > INT64_MAX ? -1 : (int64_t)v;
}

/* The last file that begins at or before `want`, or -1, and the first behind it, or INT64_MAX. */
static int look_around(int dir_fd, int64_t want, int64_t *ret_at, int64_t *ret_next)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	int64_t at = -1, next = INT64_MAX;
	for (struct dirent *e; (e = readdir(d));) {
		int64_t start = start_of(e->d_name);
		if (start > want)
			next = min_i64(next, start);
		else
			at = max_i64(at, start);
	}
	closedir(d);
	*ret_at = at;
	*ret_next = next;
	return 0;
}

static bool is_record(const struct log_record *r, int64_t offset)
{
	return r->magic == LOG_RECORD_MAGIC && (r->stream == 1 || r->stream == 2) && r->offset == offset &&
	       r->len <= LOG_RECORD_DATA_MAX && r->dropped >= 0 && r->dropped <= INT64_MAX / 2 - offset &&
	       (r->len > 0) != (r->dropped > 0);
}

static int64_t end_of(const struct log_record *r)
{
	return r->offset + r->len + r->dropped;
}

static size_t read_at(int fd, uint8_t *buf, int64_t pos)
{
	size_t len = 0;
	while (len < LOG_READ_BUFFER) {
		ssize_t n = pread(fd, buf + len, LOG_READ_BUFFER - len, pos + (int64_t)len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	return len;
}

/* Moves *at to the record with `want` and reads from there; 0: the file has none, and *at is where it ends. */
static size_t scan(int fd, struct log_place *at, int64_t want, int64_t end, uint8_t *buf)
{
	for (;;) {
		size_t n = read_at(fd, buf, at->pos), p = 0;
		struct log_record r;
		while (p + sizeof(r) <= n) {
			memcpy(&r, buf + p, sizeof(r));
			if (!is_record(&r, at->offset) || end_of(&r) > end)
				return 0;
			if (end_of(&r) > want)
				break;
			p += sizeof(r) + r.len;
			at->offset = end_of(&r);
		}
		bool found = p + sizeof(r) <= n;
		if (found && p == 0)
			return sizeof(r) + r.len <= n ? n : 0;
		if (p == 0)
			return 0;
		at->pos += (int64_t)p;
	}
}

void log_find(int dir_fd, int fd, const struct log_place *hint, int64_t want, int64_t end, uint8_t *buf, struct log_found *ret)
{
	*ret = (struct log_found){.fd = -1, .gap_to = end};
	if (fd >= 0) {
		ret->place = *hint;
		ret->len = scan(fd, &ret->place, want, end, buf);
		if (ret->len) {
			ret->fd = fd;
			return;
		}
		close(fd);
	}
	for (int i = 0; i < TRIES; i++) {
		char name[LOG_FILE_NAME_LEN + 1];
		int64_t at, next;
		if (look_around(dir_fd, want, &at, &next) < 0)
			return;
		ret->gap_to = min_i64(next, end);
		if (at < 0)
			return;
		file_name(name, at);
		fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return;
		bool hinted = hint && hint->file == at && hint->offset <= want;
		ret->place = hinted ? *hint : (struct log_place){.file = at, .offset = at};
		ret->len = scan(fd, &ret->place, want, end, buf);
		if (ret->len)
			ret->fd = fd;
		else
			close(fd);
		return;
	}
}

int log_take(uint8_t *buf, size_t len, const struct log_place *place, int64_t want, int64_t end, size_t max,
	     struct log_span *ret, struct log_place *ret_next)
{
	struct log_place at = *place;
	struct log_span s = {0};
	uint8_t *to = NULL;
	size_t p = 0;
	for (struct log_record r; p + sizeof(r) <= len; p += sizeof(r) + r.len) {
		memcpy(&r, buf + p, sizeof(r));
		bool bad = !is_record(&r, at.offset) || end_of(&r) > end;
		if (bad && !s.stream)
			return -EBADMSG;
		if (bad || p + sizeof(r) + r.len > len)
			break;
		if (end_of(&r) > want && !s.stream) {
			size_t skip = (size_t)(r.dropped ? 0 : want - r.offset);
			s = (struct log_span){.stream = (int)r.stream, .offset = want, .at_wall_us = r.wall_us};
			s.dropped = r.dropped ? end_of(&r) - want : 0;
			s.data = to = buf + p + sizeof(r) + skip;
			s.len = min_sz(r.len - (r.dropped ? 0 : skip), max);
			if (s.dropped || s.len < r.len - skip) {
				/* A part of it: the rest is looked for from here again. */
				if (s.dropped) {
					at.pos += (int64_t)sizeof(r);
					at.offset = end_of(&r);
				}
				break;
			}
		} else if (s.stream) {
			if (r.dropped || (int)r.stream != s.stream || s.len + r.len > max)
				break;
			memmove(to + s.len, buf + p + sizeof(r), r.len);
			s.len += r.len;
		}
		at.pos += (int64_t)(sizeof(r) + r.len);
		at.offset = end_of(&r);
	}
	if (!s.stream)
		return -EAGAIN;
	*ret = s;
	*ret_next = at;
	return 0;
}

int64_t log_end_of_files(int dir_fd)
{
	char name[LOG_FILE_NAME_LEN + 1];
	int64_t at, next;
	if (look_around(dir_fd, INT64_MAX, &at, &next) < 0 || at < 0)
		return 0;
	file_name(name, at);
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return at;
	uint8_t *buf = xcalloc(1, LOG_READ_BUFFER);
	int64_t pos = 0, end = at;
	for (;;) {
		size_t n = read_at(fd, buf, pos), p = 0;
		struct log_record r;
		while (p + sizeof(r) <= n) {
			memcpy(&r, buf + p, sizeof(r));
			if (!is_record(&r, end) || p + sizeof(r) + r.len > n)
				break;
			end = end_of(&r);
			p += sizeof(r) + r.len;
		}
		if (p == 0)
			break;
		pos += (int64_t)p;
	}
	free(buf);
	close(fd);
	return end;
}
