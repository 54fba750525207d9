/* Memory behind the answer of one operation: many small pieces, freed at once (ret_memory). */
#ifndef REINS_STORE_MEM_H
#define REINS_STORE_MEM_H

#include "common/base/base.h"

struct store_mem;

/* Zeroed and aligned for any type; *m is NULL before the first piece.  Pieces stay where they are. */
void *store_mem_get(struct store_mem **m, size_t size) __attribute__((returns_nonnull));
/* A copy of len bytes with a NUL behind it. */
char *store_mem_copy(struct store_mem **m, const void *data, size_t len) __attribute__((returns_nonnull));
void store_mem_free(struct store_mem *m); /* NULL-safe */

#endif
