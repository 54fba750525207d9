/* A chain of chunks, the newest first; each doubles the one before up to 64 KiB, a larger piece gets
 * a chunk of its own. */
#include <string.h>

#include "server/store/mem.h"

#define CHUNK_MIN 512
#define CHUNK_MAX 65536
#define ALIGN 16

struct store_mem {
	struct store_mem *older;
	size_t used, cap;
	_Alignas(ALIGN) uint8_t data[];
};

void *store_mem_get(struct store_mem **m, size_t size)
{
	size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	struct store_mem *c = *m;
	if (!c || c->cap - c->used < size) {
		size_t cap = max_sz(c ? min_sz(c->cap * 2, CHUNK_MAX) : CHUNK_MIN, size);
		struct store_mem *fresh = xcalloc(1, sizeof(*fresh) + cap);
		fresh->cap = cap;
		fresh->older = c;
		*m = c = fresh;
	}
	void *piece = c->data + c->used;
	c->used += size;
	return piece;
}

char *store_mem_copy(struct store_mem **m, const void *data, size_t len)
{
	char *piece = store_mem_get(m, len + 1);
	if (len)
		memcpy(piece, data, len);
	piece[len] = '\0';
	return piece;
}

void store_mem_free(struct store_mem *m)
{
	while (m) {
		struct store_mem *older = m->older;
		free(m);
		m = older;
	}
}
