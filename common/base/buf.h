/* A growable byte buffer with a maximum given at creation: what a peer can make us hold is
 * bounded where the buffer is made, not where it is used.  Consumed from the front. */
#ifndef REINS_BUF_H
#define REINS_BUF_H

#include "common/base/base.h"

struct buf {
	uint8_t *data;
	size_t start; /* first unread byte */
	size_t len;   /* unread bytes */
	size_t cap;
	size_t max;   /* len never exceeds it */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);
/* Keeps the memory unless it grew past 64 KiB. */
void buf_clear(struct buf *b);

/* NULL only while nothing was ever added. */
static inline const uint8_t *buf_head(const struct buf *b) { return b->start ? b->data + b->start : b->data; }
static inline size_t buf_len(const struct buf *b) { return b->len; }
static inline size_t buf_room(const struct buf *b) { return b->max - b->len; }

/* Room for n more bytes at the end, to be written and then committed.
 * NULL: over max, or no memory. */
uint8_t *buf_reserve(struct buf *b, size_t n) MUST_CHECK;
void buf_commit(struct buf *b, size_t n);
/* -ENOBUFS over max, -ENOMEM. Nothing is added then. */
int buf_add(struct buf *b, const void *data, size_t n) MUST_CHECK;
int buf_addf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
void buf_consume(struct buf *b, size_t n);
/* Gives the memory back while nothing is in it. */
void buf_trim(struct buf *b);
/* What all buffers of this process hold now, used or kept for later; for metrics. */
int64_t buf_held_bytes(void);

/* Shared immutable bytes (an encoded spec, a result): reference counted, one allocation. */
struct blob {
	uint32_t refs;
	uint32_t len;
	uint8_t data[];
};

/* NULL without memory. `data` may be NULL to fill in later. */
struct blob *blob_new(const void *data, size_t len) MUST_CHECK;
struct blob *blob_ref(struct blob *b); /* NULL-safe, returns b */
void blob_unref(struct blob *b);       /* NULL-safe */

#endif
