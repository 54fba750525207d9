/* Each message has a zlib stream of its own, made and freed here: what one holds is no affair of the next. */
#include "common/grpc/gzip.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* 32 KiB, with gzip's head and sum */
#define STEP ((size_t)16 << 10)

/* Room grows with what comes out, never by what a head promises. */
static int inflate_all(z_stream *z, size_t max, struct buf *ret)
{
	size_t had = buf_len(ret);
	for (;;) {
		uint8_t *at = buf_reserve(ret, STEP);
		if (!at)
			return -ENOMEM;
		z->next_out = at;
		z->avail_out = STEP;
		int rc = inflate(z, Z_NO_FLUSH);
		buf_commit(ret, STEP - z->avail_out);
		if (buf_len(ret) - had > max)
			return -EMSGSIZE;
		if (rc == Z_STREAM_END)
			return z->avail_in ? -EBADMSG : 0;
		if (rc == Z_MEM_ERROR)
			return -ENOMEM;
		if (rc != Z_OK || (!z->avail_in && z->avail_out))
			return -EBADMSG;
	}
}

int gzip_inflate(const void *data, size_t len, size_t max, struct buf *ret)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len };
	if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
		return -ENOMEM;
	int rc = inflate_all(&z, max, ret);
	inflateEnd(&z);
	return rc;
}

int gzip_deflate(const void *data, size_t len, struct buf *ret)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len };
	if (len < 32)
		return -ENOBUFS;
	if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	size_t cap = len - len / 16; /* below that it is not worth the reader's work */
	uint8_t *at = buf_reserve(ret, min_sz(cap, buf_room(ret)));
	int rc = at ? 0 : -ENOMEM;
	if (at) {
		z.next_out = at;
		z.avail_out = (uInt)min_sz(cap, buf_room(ret));
		rc = deflate(&z, Z_FINISH) == Z_STREAM_END ? 0 : -ENOBUFS;
		if (rc == 0)
			buf_commit(ret, z.total_out);
	}
	deflateEnd(&z);
	return rc;
}

bool gzip_listed(const char *list)
{
	while (list && *list) {
		list += strspn(list, ", \t");
		size_t n = strcspn(list, ",; \t"), item = strcspn(list, ",");
		if (n == 4 && strncasecmp(list, "gzip", 4) == 0) {
			const char *q = memmem(list, item, "q=", 2);
			return !q || strtod(q + 2, NULL) > 0;
		}
		list += item;
	}
	return false;
}
