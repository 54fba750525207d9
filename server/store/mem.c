/* A chain of chunks, the newest first; each doubles the one before up to 64 KiB, a larger piece gets
 * a chunk of its own. */
#include <string.h>

#include "server/core/core.h"
#include "server/store/mem.h"

#define CHUNK_MIN 512
#define CHUNK_MAX 65536
#define ALIGN 16

struct store_mem {
	struct store_mem *older;
	size_t used, cap;
	_Alignas(ALIGN) uint8_t data[];
};

static size_t aligned(size_t size) { return (size + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

static bool has_room(const struct store_mem *c, size_t size) { return c && c->cap - c->used >= size; }

/* False: no memory. Where there is none for what may come too, it is as large as what is wanted now. */
static bool add_chunk(struct store_mem **m, size_t size, bool must)
{
	size_t cap = max_sz(*m ? min_sz((*m)->cap * 2, CHUNK_MAX) : CHUNK_MIN, size);
	struct store_mem *fresh = calloc(1, sizeof(*fresh) + cap);
	if (!fresh) {
		cap = size;
		fresh = must ? xcalloc(1, sizeof(*fresh) + cap) : calloc(1, sizeof(*fresh) + cap);
	}
	if (!fresh)
		return false;
	fresh->cap = cap;
	fresh->older = *m;
	*m = fresh;
	return true;
}

static void *piece_of(struct store_mem *c, size_t size)
{
	void *piece = c->data + c->used;
	c->used += size;
	return piece;
}

void *store_mem_get(struct store_mem **m, size_t size)
{
	size = aligned(size);
	if (!has_room(*m, size))
		(void)add_chunk(m, size, true);
	return piece_of(*m, size);
}

void *store_mem_try(struct store_mem **m, size_t size)
{
	size = aligned(size);
	return has_room(*m, size) || add_chunk(m, size, false) ? piece_of(*m, size) : NULL;
}

static char *fill(char *piece, const void *data, size_t len)
{
	if (!piece)
		return NULL;
	if (len)
		memcpy(piece, data, len);
	piece[len] = '\0';
	return piece;
}

char *store_mem_copy(struct store_mem **m, const void *data, size_t len) { return fill(store_mem_get(m, len + 1), data, len); }
char *store_mem_try_copy(struct store_mem **m, const void *data, size_t len) { return fill(store_mem_try(m, len + 1), data, len); }

static const char *place(char **at, const char *text)
{
	size_t len = text ? strlen(text) : 0;
	if (!len)
		return NULL;
	const char *here = memcpy(*at, text, len + 1);
	*at += len + 1;
	return here;
}

static size_t texts_size(const struct core_task *t)
{
	return 3 + strlen(t->queue) + (t->handler ? strlen(t->handler) : 0) + (t->custom ? strlen(t->custom) : 0);
}

static void texts_into(char *block, struct core_task *t)
{
	char *at = block;
	size_t len = strlen(t->queue);
	t->queue = memcpy(at, t->queue, len + 1);
	at += len + 1;
	t->handler = place(&at, t->handler);
	t->custom = place(&at, t->custom);
}

void store_mem_texts(struct store_mem **m, struct core_task *t)
{
	texts_into(store_mem_get(m, texts_size(t)), t);
}

char *store_texts(struct core_task *t)
{
	char *block = xcalloc(1, texts_size(t));
	texts_into(block, t);
	return block;
}

void store_mem_free(struct store_mem *m)
{
	while (m) {
		struct store_mem *older = m->older;
		free(m);
		m = older;
	}
}
