#include "common/base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KEEP_CAP (64 * 1024)

/* Threads of stores have buffers too. */
static _Atomic int64_t held;

static void hold(size_t more, size_t less)
{
	atomic_fetch_add_explicit(&held, (int64_t)more - (int64_t)less, memory_order_relaxed);
}

int64_t buf_held_bytes(void) { return atomic_load_explicit(&held, memory_order_relaxed); }

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (!p)
		abort();
	return p;
}

void *xgrow(void *old, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return old;
	size_t more = *cap ? *cap * 2 : 64;
	void *at = xcalloc(more, size);
	if (n)
		memcpy(at, old, n * size);
	free(old);
	*cap = more;
	return at;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);
	if (!p)
		abort();
	return p;
}

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

void buf_done(struct buf *b)
{
	hold(0, b->cap);
	free(b->data);
	*b = (struct buf){ .max = b->max };
}

void buf_clear(struct buf *b)
{
	b->start = b->len = 0;
	if (b->cap > KEEP_CAP) {
		hold(0, b->cap);
		free(b->data);
		b->data = NULL;
		b->cap = 0;
	}
}

uint8_t *buf_reserve(struct buf *b, size_t n)
{
	if (n > b->max - b->len)
		return NULL;
	size_t need = b->len + n;
	if (b->start + need > b->cap) {
		/* Move to the front when that is enough and cheap, else grow. */
		if (need <= b->cap && b->start >= b->cap / 2) {
			memmove(b->data, b->data + b->start, b->len);
			b->start = 0;
		} else {
			size_t cap = b->cap ? b->cap : 256;
			while (cap < need)
				cap *= 2;
			uint8_t *data = malloc(cap);
			if (!data)
				return NULL;
			if (b->len)
				memcpy(data, b->data + b->start, b->len);
			free(b->data);
			hold(cap, b->cap);
			b->data = data;
			b->cap = cap;
			b->start = 0;
		}
	} else if (!b->data) {
		b->data = malloc(256); /* n == 0 on a fresh buffer: a pointer all the same */
		if (!b->data)
			return NULL;
		hold(256, 0);
		b->cap = 256;
	}
	return b->data + b->start + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
	assert(b->start + b->len + n <= b->cap);
	b->len += n;
}

int buf_add(struct buf *b, const void *data, size_t n)
{
	if (n > b->max - b->len)
		return -ENOBUFS;
	uint8_t *at = buf_reserve(b, n);
	if (!at)
		return -ENOMEM;
	if (n)
		memcpy(at, data, n);
	buf_commit(b, n);
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	int rc = -EINVAL;
	if (n >= 0) {
		/* vsnprintf writes the NUL as well: reserve one more, keep n. */
		if ((size_t)n >= b->max - b->len) {
			rc = -ENOBUFS;
		} else {
			uint8_t *at = buf_reserve(b, (size_t)n + 1);
			rc = at ? 0 : -ENOMEM;
			if (at) {
				vsnprintf((char *)at, (size_t)n + 1, fmt, again);
				buf_commit(b, (size_t)n);
			}
		}
	}
	va_end(again);
	return rc;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	b->start += n;
	b->len -= n;
	if (b->len == 0)
		buf_clear(b);
}

void buf_trim(struct buf *b)
{
	if (!b->len)
		buf_done(b);
}

struct blob *blob_new(const void *data, size_t len)
{
	if (len > UINT32_MAX - sizeof(struct blob))
		return NULL;
	struct blob *b = malloc(sizeof(*b) + len);
	if (!b)
		return NULL;
	b->refs = 1;
	b->len = (uint32_t)len;
	if (data && len)
		memcpy(b->data, data, len);
	return b;
}

struct blob *blob_ref(struct blob *b)
{
	if (b)
		b->refs++;
	return b;
}

void blob_unref(struct blob *b)
{
	if (b && --b->refs == 0)
		free(b);
}
