#include "tests/unit/failing_memory.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/stream/stream.h"

struct failing_memory M;
_Thread_local int memory_exempt;

bool memory_apart_read(struct stream *s, struct buf *to)
{
	static uint8_t bytes[16384];
	ssize_t n;
	memory_exempt++;
	while ((n = stream_read(s, bytes, sizeof(bytes))) > 0)
		if (buf_add(to, bytes, (size_t)n))
			abort();
	if (n != -EAGAIN)
		stream_want(s, 0);
	memory_exempt--;
	return n != -EAGAIN;
}

static bool fails(void)
{
	if (!M.armed || memory_exempt)
		return false;
	int64_t n = ++M.n;
	return M.for_good ? n >= M.at : n == M.at;
}

void *__real_xcalloc(size_t n, size_t size);
void *__real_xgrow(void *old, size_t n, size_t *cap, size_t size);
char *__real_xstrdup(const char *s);
void *__wrap_xcalloc(size_t n, size_t size);
void *__wrap_xgrow(void *old, size_t n, size_t *cap, size_t size);
char *__wrap_xstrdup(const char *s);

/* Not what is too large for it. */
void *__wrap_xcalloc(size_t n, size_t size)
{
	bool small = n * size <= XALLOC_SMALL;
	memory_exempt += small;
	void *p = __real_xcalloc(n, size);
	memory_exempt -= small;
	return p;
}

void *__wrap_xgrow(void *old, size_t n, size_t *cap, size_t size)
{
	memory_exempt++;
	void *p = __real_xgrow(old, n, cap, size);
	memory_exempt--;
	return p;
}

char *__wrap_xstrdup(const char *s)
{
	memory_exempt++;
	char *p = __real_xstrdup(s);
	memory_exempt--;
	return p;
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SANITIZED)
/* The sanitizer has malloc for itself: only our own code's calls are seen, and it looks for leaks. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return fails() ? NULL : __real_realloc(p, size); }
void *memory_apart(size_t size) { return __real_malloc(size); }
void *memory_apart_resized(void *p, size_t size) { return __real_realloc(p, size); }
void memory_apart_free(void *p) { free(p); }
const bool memory_is_counted = false;
#else
/* All of the process, nghttp2, zlib and protobuf-c included. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size) { return malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return realloc(p, size); }

static void *count(void *p)
{
	M.live += p != NULL;
	return p;
}

void *malloc(size_t size)
{
	if (!fails())
		return count(__libc_malloc(size));
	errno = ENOMEM;
	return NULL;
}

void *calloc(size_t n, size_t size)
{
	if (!fails())
		return count(__libc_calloc(n, size));
	errno = ENOMEM;
	return NULL;
}

void *realloc(void *p, size_t size)
{
	if (fails()) {
		errno = ENOMEM;
		return NULL;
	}
	void *at = __libc_realloc(p, size);
	M.live += at && !p;
	return at;
}

void free(void *p)
{
	M.live -= p != NULL;
	__libc_free(p);
}

void *memory_apart(size_t size) { return __libc_malloc(size); }
void *memory_apart_resized(void *p, size_t size) { return __libc_realloc(p, size); }
void memory_apart_free(void *p) { __libc_free(p); }
const bool memory_is_counted = true;
#endif
