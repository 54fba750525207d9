/* The spool of spool.h.
 *
 * In memory: a map id -> live record (a reference to its blob), and `pending`, the bytes that no batch has taken yet.  A
 * batch either appends `pending` or, when more than half of a large file is dead or after a failed
 * write, replaces the whole file by what is alive (written beside it, synced, renamed). */
#include "worker/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/list.h"
#include "common/base/map.h"

#define HEADER "reins-spool 1\n"
#define HEADER_LEN (sizeof(HEADER) - 1)
#define FRAME_LEN 17u /* length, crc, kind, id */
#define REWRITE_MIN (256 * 1024)

enum { KIND_OUTCOME = 1, KIND_ANSWERED = 2 };

struct record {
	struct map_node by_id;
	struct list node; /* oldest first */
	uint64_t id;
	struct blob *outcome;
};

struct spool {
	int dir_fd, fd;
	char name[64];
	int64_t limit;
	uint64_t last_id;
	struct map records;
	struct list order;
	int64_t live_bytes;  /* frames and bodies of the records */
	int64_t file_bytes;
	struct buf pending;
	bool pending_outcome; /* some of it is to be synced */
	bool must_rewrite;   /* the file's end is uncertain */
	bool busy;
};

struct spool_batch {
	struct buf bytes;
	bool rewrite, sync;
	int dir_fd, fd;
	char name[64];
	int64_t at;          /* append: offset */
	uint64_t last_id;
	int new_fd, err;
};

uint32_t spool_crc(const void *data, size_t len)
{
	static uint32_t table[256];
	if (!table[1]) {
		for (uint32_t i = 1; i < 256; i++) {
			uint32_t c = i;
			for (int k = 0; k < 8; k++)
				c = c & 1 ? c >> 1 ^ UINT32_C(0x82f63b78) : c >> 1;
			table[i] = c;
		}
	}
	uint32_t crc = UINT32_MAX;
	for (const uint8_t *p = data, *end = p + len; p < end; p++)
		crc = table[(crc ^ *p) & 0xff] ^ crc >> 8;
	return ~crc;
}

static void put_le(uint8_t *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_le(const uint8_t *p, int n)
{
	uint64_t v = 0;
	for (int i = n; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* Memory for a spool that holds what ran is not refused: half a worker is worse than a restarted one. */
static void put_record(struct buf *b, int kind, uint64_t id, const void *body, size_t len)
{
	uint8_t *p = buf_reserve(b, FRAME_LEN + len);
	if (!p)
		abort();
	put_le(p, len, 4);
	p[8] = (uint8_t)kind;
	put_le(p + 9, id, 8);
	if (len)
		memcpy(p + FRAME_LEN, body, len);
	put_le(p + 4, spool_crc(p + 8, FRAME_LEN - 8 + len), 4);
	buf_commit(b, FRAME_LEN + len);
}

static int64_t record_size(const struct record *r)
{
	return FRAME_LEN + (int64_t)r->outcome->len;
}

static void drop_record(struct spool *s, struct record *r)
{
	s->live_bytes -= record_size(r);
	map_remove(&s->records, &r->by_id);
	list_remove(&r->node);
	blob_unref(r->outcome);
	free(r);
}

/* Takes over the reference. */
static void keep_record(struct spool *s, uint64_t id, struct blob *outcome)
{
	struct record *r = xcalloc(1, sizeof(*r));
	r->id = id;
	r->outcome = outcome;
	map_put(&s->records, &r->by_id, &r->id, sizeof(r->id));
	list_push_back(&s->order, &r->node);
	s->live_bytes += record_size(r);
	if (id > s->last_id)
		s->last_id = id;
}

static struct record *find_record(const struct spool *s, uint64_t id)
{
	struct map_node *n = map_get(&s->records, &id, sizeof(id));
	return n ? container_of(n, struct record, by_id) : NULL;
}

static int read_full(int fd, void *data, size_t len, int64_t at)
{
	uint8_t *p = data;
	while (len) {
		ssize_t n = pread(fd, p, len, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_full(int fd, const void *data, size_t len, int64_t at)
{
	const uint8_t *p = data;
	while (len) {
		ssize_t n = pwrite(fd, p, len, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* One record at `at` into the set. 1: taken, *ret_size long; 0: no whole record here. */
static int replay_record(struct spool *s, int64_t at, int64_t size, int64_t *ret_size)
{
	uint8_t frame[FRAME_LEN];
	if (size - at < (int64_t)FRAME_LEN)
		return 0;
	int r = read_full(s->fd, frame, FRAME_LEN, at);
	if (r < 0)
		return r;
	uint64_t len = get_le(frame, 4), id = get_le(frame + 9, 8);
	if (len > SPOOL_RECORD_MAX || size - at - (int64_t)FRAME_LEN < (int64_t)len)
		return 0;
	uint8_t *body = malloc(FRAME_LEN + len);
	if (!body)
		return -ENOMEM;
	memcpy(body, frame, FRAME_LEN);
	r = read_full(s->fd, body + FRAME_LEN, len, at + FRAME_LEN);
	bool whole = r == 0 && spool_crc(body + 8, FRAME_LEN - 8 + len) == get_le(frame + 4, 4);
	struct record *old = whole ? find_record(s, id) : NULL;
	struct blob *b = NULL;
	if (whole && frame[8] == KIND_ANSWERED) {
		if (old)
			drop_record(s, old);
		if (id > s->last_id)
			s->last_id = id;
	} else if (whole && frame[8] == KIND_OUTCOME && !old) {
		b = blob_new(body + FRAME_LEN, len);
		if (b)
			keep_record(s, id, b);
		else
			r = -ENOMEM;
	} else {
		whole = false;
	}
	free(body);
	*ret_size = (int64_t)(FRAME_LEN + len);
	return r < 0 ? r : whole;
}

static int replay_file(struct spool *s, struct spool_replay *replay)
{
	struct stat st;
	if (fstat(s->fd, &st) < 0)
		return -errno;
	char header[HEADER_LEN];
	int64_t at = (int64_t)HEADER_LEN;
	size_t have = (size_t)min_i64(st.st_size, at);
	int r = read_full(s->fd, header, have, 0);
	if (r < 0)
		return r;
	if (memcmp(header, HEADER, have) != 0)
		return -EBADMSG;
	if (st.st_size < at) {
		replay->torn_bytes = st.st_size;
		r = write_full(s->fd, HEADER, HEADER_LEN, 0);
		if (r < 0)
			return r;
		s->file_bytes = at;
		return fsync(s->fd) < 0 || fsync(s->dir_fd) < 0 ? -errno : 0;
	}
	for (int64_t size; (r = replay_record(s, at, st.st_size, &size)) > 0;)
		at += size;
	if (r < 0)
		return r;
	replay->torn_bytes = st.st_size - at;
	if (replay->torn_bytes && (ftruncate(s->fd, at) < 0 || fdatasync(s->fd) < 0))
		return -errno;
	s->file_bytes = at;
	list_each(node, &s->order) {
		struct record *rec = container_of(node, struct record, node);
		replay->on_outcome(replay->arg, rec->id, blob_ref(rec->outcome));
	}
	return 0;
}

int spool_open(int dir_fd, const char *name, int64_t limit, struct spool_replay *replay, struct spool **ret)
{
	struct spool *s = xcalloc(1, sizeof(*s));
	s->fd = -1;
	s->limit = limit;
	map_init(&s->records);
	list_init(&s->order);
	buf_init(&s->pending, SIZE_MAX / 2);
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->dir_fd = dir_fd;
	s->fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = s->fd < 0 ? -errno : replay_file(s, replay);
	if (r < 0) {
		spool_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void spool_free(struct spool *s)
{
	if (!s)
		return;
	list_each(node, &s->order)
		drop_record(s, container_of(node, struct record, node));
	map_done(&s->records);
	buf_done(&s->pending);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

uint64_t spool_add(struct spool *s, struct blob *outcome)
{
	uint64_t id = s->last_id + 1;
	keep_record(s, id, blob_ref(outcome));
	put_record(&s->pending, KIND_OUTCOME, id, outcome->data, outcome->len);
	s->pending_outcome = true;
	return id;
}

void spool_answered(struct spool *s, uint64_t id)
{
	struct record *r = find_record(s, id);
	if (!r)
		return;
	drop_record(s, r);
	put_record(&s->pending, KIND_ANSWERED, id, NULL, 0);
}

bool spool_full(const struct spool *s)
{
	return s->live_bytes >= s->limit;
}

int64_t spool_file_bytes(const struct spool *s)
{
	return s->file_bytes;
}

struct spool_batch *spool_begin(struct spool *s)
{
	if (s->busy || (!buf_len(&s->pending) && !s->must_rewrite))
		return NULL;
	struct spool_batch *b = xcalloc(1, sizeof(*b));
	int64_t after = s->file_bytes + (int64_t)buf_len(&s->pending);
	b->rewrite = s->must_rewrite || (after > REWRITE_MIN && s->live_bytes < after / 2);
	b->sync = s->pending_outcome;
	s->pending_outcome = false;
	b->dir_fd = s->dir_fd;
	b->fd = s->fd;
	b->at = s->file_bytes;
	b->last_id = s->last_id;
	b->new_fd = -1;
	snprintf(b->name, sizeof(b->name), "%s", s->name);
	if (b->rewrite) {
		buf_init(&b->bytes, SIZE_MAX / 2);
		if (buf_add(&b->bytes, HEADER, HEADER_LEN) < 0)
			abort();
		list_each(node, &s->order) {
			struct record *r = container_of(node, struct record, node);
			put_record(&b->bytes, KIND_OUTCOME, r->id, r->outcome->data, r->outcome->len);
		}
		/* Ids are not used again: the newest stands in the file even if nothing is alive. */
		put_record(&b->bytes, KIND_ANSWERED, s->last_id + 1, NULL, 0);
		s->last_id++;
		buf_clear(&s->pending);
	} else {
		b->bytes = s->pending;
		buf_init(&s->pending, SIZE_MAX / 2);
	}
	s->busy = true;
	return b;
}

static int run_rewrite(struct spool_batch *b)
{
	char name[80];
	snprintf(name, sizeof(name), "%s.new", b->name);
	b->new_fd = openat(b->dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (b->new_fd < 0)
		return -errno;
	int r = write_full(b->new_fd, buf_head(&b->bytes), buf_len(&b->bytes), 0);
	if (r < 0)
		return r;
	if (fdatasync(b->new_fd) < 0 || renameat(b->dir_fd, name, b->dir_fd, b->name) < 0 || fsync(b->dir_fd) < 0)
		return -errno;
	return 0;
}

void spool_batch_run(struct spool_batch *b)
{
	if (b->rewrite) {
		b->err = run_rewrite(b);
		return;
	}
	b->err = write_full(b->fd, buf_head(&b->bytes), buf_len(&b->bytes), b->at);
	if (b->err == 0 && b->sync && fdatasync(b->fd) < 0)
		b->err = -errno;
}

int spool_end(struct spool *s, struct spool_batch *b, uint64_t *ret_id)
{
	int r = b->err;
	s->busy = false;
	if (r < 0) {
		/* A failed sync may have lost pages that look written: only a new file is certain. */
		s->must_rewrite = true;
		if (b->new_fd >= 0)
			close(b->new_fd);
	} else {
		if (b->rewrite) {
			close(s->fd);
			s->fd = b->new_fd;
			s->file_bytes = 0;
			s->must_rewrite = false;
		}
		s->file_bytes += (int64_t)buf_len(&b->bytes);
		*ret_id = b->last_id;
	}
	buf_done(&b->bytes);
	free(b);
	return r;
}
