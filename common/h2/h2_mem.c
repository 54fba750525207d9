/* Memory of nghttp2's sessions.
 *
 * Each session has from its start a buffer of 16 KiB for the frame that it sends, of which most never use more than the first
 * few hundred bytes.  From malloc, it is made of pages that others have used before; here it is mapped, and what is never
 * touched takes no memory: 4 KiB instead of 16 for each idle connection. */
#include <string.h>
#include <sys/mman.h>

#include "common/h2/h2_impl.h"

#define LARGE 16384

static bool is_large(const struct h2 *h, const void *p) { return p && p == h->large; }

static void *take_large(struct h2 *h, size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, n, MADV_NOHUGEPAGE); /* neighbours would be joined into huge pages, used as a whole */
	h->large = p;
	h->large_len = n;
	return p;
}

static void give_large(struct h2 *h)
{
	munmap(h->large, h->large_len);
	h->large = NULL;
}

/* Zeroes, where it is mapped. NULL: not here. */
static void *large(struct h2 *h, size_t n) { return n >= LARGE && !h->large ? take_large(h, n) : NULL; }

static void *on_malloc(size_t n, void *user)
{
	void *p = large(user, n);
	return p ? p : malloc(n);
}

static void *on_calloc(size_t n, size_t size, void *user)
{
	void *p = size && n <= SIZE_MAX / size ? large(user, n * size) : NULL;
	return p ? p : calloc(n, size);
}

static void on_free(void *p, void *user)
{
	struct h2 *h = user;
	if (is_large(h, p))
		give_large(h);
	else
		free(p);
}

static void *on_realloc(void *p, size_t n, void *user)
{
	struct h2 *h = user;
	if (!p)
		return on_malloc(n, user);
	if (!is_large(h, p))
		return realloc(p, n);
	void *q = malloc(n);
	if (q) {
		memcpy(q, p, min_sz(n, h->large_len));
		give_large(h);
	}
	return q;
}

void h2_rest(struct h2 *h)
{
	if (h->large && h->rests)
		(void)madvise(h->large, h->large_len, MADV_DONTNEED);
}

nghttp2_mem h2_mem(struct h2 *h)
{
	return (nghttp2_mem){ .mem_user_data = h, .malloc = on_malloc, .free = on_free, .calloc = on_calloc, .realloc = on_realloc };
}
