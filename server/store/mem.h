/* Memory behind the answer of one operation: many small pieces, freed at once (ret_memory). */
#ifndef REINS_STORE_MEM_H
#define REINS_STORE_MEM_H

#include "common/base/base.h"

struct store_mem;

/* Zeroed and aligned for any type; *m is NULL before the first piece.  Pieces stay where they are.  This and the next are for
 * small things and what the scheduler reads for itself: no memory ends the process (common/base/base.h). */
void *store_mem_get(struct store_mem **m, size_t size) __attribute__((returns_nonnull));
/* A copy of len bytes with a NUL behind it. */
char *store_mem_copy(struct store_mem **m, const void *data, size_t len) __attribute__((returns_nonnull));
/* For what may be large, as a request asks for it: the same, or NULL without memory. */
void *store_mem_try(struct store_mem **m, size_t size) MUST_CHECK;
char *store_mem_try_copy(struct store_mem **m, const void *data, size_t len) MUST_CHECK;
/* Copies the task's texts and lets it point to them; those that are "" become NULL, but for the queue. */
struct core_task;
void store_mem_texts(struct store_mem **m, struct core_task *t);
/* The same in one block that is freed by free(). */
char *store_texts(struct core_task *t) __attribute__((returns_nonnull));
void store_mem_free(struct store_mem *m); /* NULL-safe */

#endif
