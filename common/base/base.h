/* The words that every file may use: attributes, container_of, cleanup.  No state, no I/O. */
#ifndef REINS_BASE_H
#define REINS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define NORETURN __attribute__((noreturn))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

static inline void free_p(void *pp) { free(*(void **)pp); }
/* A local that is freed when it goes out of scope: `_cleanup_free_ char *s = …`. */
#define _cleanup_free_ CLEANUP(free_p)

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Saturates: an int64 holds 292 years of nanoseconds, and a run_at may be thousands of years away. */
static inline int64_t us_to_ns(int64_t us)
{
	return us > INT64_MAX / NS_PER_US ? INT64_MAX : us < INT64_MIN / NS_PER_US ? INT64_MIN : us * NS_PER_US;
}

/* A number that is a macro, as text to be joined with other text. */
#define NUMBER_TEXT_OF(n) #n
#define NUMBER_TEXT(n) NUMBER_TEXT_OF(n)

static inline size_t min_sz(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max_sz(size_t a, size_t b) { return a > b ? a : b; }

/* These three end the process when there is no memory: half a scheduler is worse than a restarted one, and every accepted task is
 * in the store.  So they are only for
 *   - small things: of a fixed size, or names, reasons and ids, which have limits; at most XALLOC_SMALL bytes whatever a peer
 *     says (a task's counted resources, 4.3 KiB, are the longest text);
 *   - what the process makes for itself at its start and of its own files;
 *   - xgrow: arrays of the scheduler's own work (events, effects and answers of a turn, heaps of timers and of what waits),
 *     which can't be half done.
 * What a request can make large is allocated with calloc, malloc, realloc, buf_… or store_mem_try, and to fail is to answer
 * RESOURCE_EXHAUSTED, or to close the connection.  The exception: what a worker's session lists as running, and what the
 * scheduler itself reads of the store.
 * tests/unit/test_rpc_memory.c and test_handlers_memory.c let each allocation fail, larger ones through xcalloc too. */
#define XALLOC_SMALL 8192
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
/* Room for one element more behind `n`: `old`, or a larger array with the same n, zeroed behind them (*cap elements). */
void *xgrow(void *old, size_t n, size_t *cap, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));

#endif
