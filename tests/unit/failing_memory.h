/* Allocations that fail on purpose: the n-th since M.n was set to 0, and (for_good) all after it, while M.armed.  Linked with
 * failing_malloc_dep and kept_malloc_dep.  Under a sanitizer only our own code's calls are seen, else all of the process. */
#ifndef REINS_TESTS_FAILING_MEMORY_H
#define REINS_TESTS_FAILING_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct failing_memory {
	_Atomic bool armed;
	bool for_good;
	int64_t at;
	_Atomic int64_t n, live; /* live: allocated and not freed, where memory_is_counted */
};
extern struct failing_memory M;
extern const bool memory_is_counted;

/* What this thread does is left alone: the test's own, and what ends the process by design (common/base/base.h). */
extern _Thread_local int memory_exempt;

struct buf;
struct stream;
/* Adds what has come of a test's own end of a stream. True: that was the last. */
bool memory_apart_read(struct stream *s, struct buf *to);

/* Neither counted nor failing: for libraries' own. */
void *memory_apart(size_t size);
void *memory_apart_resized(void *p, size_t size);
void memory_apart_free(void *p);

#endif
