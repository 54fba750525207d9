/* Owns the descriptor of an attempt's metrics file and the points that are to be sent. */
#include "worker/metrics_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/worker_service.pb-c.h"
#include "worker/state_dir.h"

#define POINTS_TAG (3 << 3 | 2)
#define COUNT_MAX (INT64_C(1) << 50) /* what a program may have written there must not overflow */
#define POINT_MAX 8192 /* encoded: 64 values of at most 78 bytes, a step and a time */

void metrics_reader_init(struct metrics_reader *r)
{
	*r = (struct metrics_reader){.fd = -1};
	buf_init(&r->points, METRICS_BATCH_BYTES + POINT_MAX);
}

void metrics_reader_done(struct metrics_reader *r)
{
	buf_done(&r->points);
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

/* ---- points ---- */

static size_t put_length(uint8_t *p, size_t v)
{
	size_t n = 0;
	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static void keep(struct metrics_reader *r, const struct metrics_point *p)
{
	Reins__V1__MetricPoint m = REINS__V1__METRIC_POINT__INIT;
	Reins__V1__MetricPoint__ValuesEntry entries[METRICS_VALUES_MAX], *at[METRICS_VALUES_MAX];
	Google__Protobuf__Timestamp now;
	for (size_t i = 0; i < p->n; i++) {
		reins__v1__metric_point__values_entry__init(&entries[i]);
		entries[i].key = (char *)(uintptr_t)p->values[i].key;
		entries[i].value = p->values[i].value;
		at[i] = &entries[i];
	}
	pb_timestamp_set(&now, clock_wall_us());
	m.step = p->step;
	m.values = at;
	m.n_values = p->n;
	m.at = &now;
	size_t len = reins__v1__metric_point__get_packed_size(&m), head = 1;
	uint8_t *out = buf_reserve(&r->points, len + 8);
	if (!out)
		abort(); /* 72 KiB: as xcalloc */
	out[0] = POINTS_TAG;
	head += put_length(out + 1, len);
	buf_commit(&r->points, head + reins__v1__metric_point__pack(&m, out + head));
	if (!r->n_points++)
		r->first_number = r->number;
}

static bool is_full(const struct metrics_reader *r)
{
	return r->n_points >= METRICS_BATCH_POINTS || buf_len(&r->points) >= METRICS_BATCH_BYTES;
}

struct taking {
	struct metrics_reader *r;
	int64_t limit;
};

static bool on_point(void *arg, const struct metrics_point *p)
{
	const struct taking *t = arg;
	struct metrics_reader *r = t->r;
	if (r->number >= t->limit) {
		r->dropped++;
		return true;
	}
	r->number++;
	if (r->number > r->stored)
		keep(r, p);
	return !is_full(r);
}

/* ---- the file ---- */

static void to_base(struct metrics_reader *r)
{
	r->offset = 0;
	r->number = r->base.number;
	r->dropped = r->base.dropped;
	r->scan = (struct metrics_scan){.malformed = r->base.malformed, .last_step = r->base.last_step};
}

/* What was read so far lies in a file that is gone.  Noted beside the new one for the next process. */
static void new_base(struct metrics_reader *r, int dir_fd, const char *name)
{
	char path[STATE_ATTEMPT_NAME_MAX + 16], text[128];
	r->base = (struct metrics_base){r->number, r->dropped, r->scan.malformed, r->scan.last_step};
	to_base(r);
	if (!*name)
		return;
	snprintf(path, sizeof(path), "%s/metrics-base", name);
	int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return;
	int n = snprintf(text, sizeof(text), "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", r->base.number, r->base.dropped,
			 r->base.malformed, r->base.last_step);
	(void)!write(fd, text, (size_t)n); /* only an agent that starts anew would want it */
	close(fd);
}

/* Of an earlier process. */
static void read_base(struct metrics_reader *r, int dir_fd, const char *name)
{
	char path[STATE_ATTEMPT_NAME_MAX + 16], text[128];
	struct metrics_base b;
	snprintf(path, sizeof(path), "%s/metrics-base", name);
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
	char *p = text;
	int64_t *const fields[] = {&b.number, &b.dropped, &b.malformed, &b.last_step};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		char *end;
		errno = 0;
		*fields[i] = strtoll(p, &end, 10);
		if (end == p || errno || (i < 3 && (*fields[i] < 0 || *fields[i] > COUNT_MAX)))
			return;
		p = end;
	}
	if (r->number == 0 && r->offset == 0) {
		r->base = b;
		to_base(r);
	}
}

static int open_file(int dir_fd, const char *name, struct stat *ret)
{
	return *name ? state_dir_open_theirs(dir_fd, name, STATE_METRICS, ret) : -1;
}

/* Another file that stands at the path now, or -1. */
static int other_file(int dir_fd, const char *name, const struct stat *mine)
{
	struct stat st;
	int fd = open_file(dir_fd, name, &st);
	if (fd >= 0 && st.st_dev == mine->st_dev && st.st_ino == mine->st_ino) {
		close(fd);
		return -1;
	}
	return fd;
}

static enum metrics_read at_end(struct metrics_reader *r, bool last)
{
	if (!last)
		return METRICS_NOTHING;
	r->ended = true;
	return METRICS_ENDED;
}

enum metrics_read metrics_reader_read(struct metrics_reader *r, int dir_fd, const char *name, int64_t limit, bool last)
{
	static char chunk[METRICS_LINE_MAX + 1]; /* a line, or the proof that it is too long */
	struct taking taking = {r, limit};
	struct stat st;
	if (r->ended)
		return METRICS_ENDED;
	if (is_full(r))
		return METRICS_FULL;
	if (r->fd < 0) {
		r->fd = open_file(dir_fd, name, &st);
		if (r->fd < 0)
			return at_end(r, last);
		read_base(r, dir_fd, name);
	} else if (fstat(r->fd, &st) < 0) {
		return at_end(r, last);
	}
	if (st.st_size < r->offset)
		new_base(r, dir_fd, name);
	ssize_t n = pread(r->fd, chunk, sizeof(chunk), r->offset);
	if (n < 0)
		return errno == EINTR ? METRICS_MORE : at_end(r, last);
	bool whole = (size_t)n < sizeof(chunk); /* all that is there now */
	size_t taken = metrics_scan(&r->scan, chunk, (size_t)n, false, on_point, &taking);
	r->offset += (int64_t)taken;
	if (is_full(r))
		return METRICS_FULL;
	if (!whole)
		return METRICS_MORE;
	/* The end.  Behind the last line's end nothing follows in a file that nobody finds at its name any more. */
	int other = other_file(dir_fd, name, &st);
	if (other < 0 && !last)
		return METRICS_NOTHING;
	r->offset += (int64_t)metrics_scan(&r->scan, chunk + taken, (size_t)n - taken, true, on_point, &taking);
	if (other < 0)
		return at_end(r, true);
	close(r->fd);
	r->fd = other;
	new_base(r, dir_fd, name);
	return METRICS_MORE;
}

/* ---- sending ---- */

bool metrics_reader_has_news(const struct metrics_reader *r)
{
	return r->n_points || r->said_malformed != r->scan.malformed || r->said_dropped != r->dropped;
}

void metrics_reader_give_up(struct metrics_reader *r)
{
	r->ended = true;
}

void metrics_reader_sent(struct metrics_reader *r)
{
	buf_clear(&r->points);
	r->n_points = 0;
	r->said_malformed = r->scan.malformed;
	r->said_dropped = r->dropped;
}

void metrics_reader_rewind(struct metrics_reader *r, int64_t stored)
{
	buf_clear(&r->points);
	r->n_points = 0;
	r->said_malformed = r->said_dropped = 0;
	r->stored = max_i64(stored, 0);
	r->ended = r->ended && r->fd < 0; /* none was there, and none will be */
	to_base(r);
}

bool metrics_reader_is_done(const struct metrics_reader *r)
{
	return r->ended && !metrics_reader_has_news(r);
}
