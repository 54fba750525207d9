/* Intrusive binary min-heap.  An element knows its place, so that removing it is O(log n).
 * Used for deadlines and for ready tasks. */
#ifndef REINS_HEAP_H
#define REINS_HEAP_H

#include "common/base/base.h"

struct heap_node {
	size_t index; /* place in the array; HEAP_OUT when in no heap */
};
#define HEAP_OUT SIZE_MAX

struct heap {
	struct heap_node **at;
	size_t len, cap;
	bool (*less)(const struct heap_node *a, const struct heap_node *b);
};

void heap_init(struct heap *h, bool (*less)(const struct heap_node *, const struct heap_node *));
void heap_done(struct heap *h);

static inline void heap_node_init(struct heap_node *n) { n->index = HEAP_OUT; }
static inline bool heap_has(const struct heap_node *n) { return n->index != HEAP_OUT; }
static inline struct heap_node *heap_top(const struct heap *h) { return h->len ? h->at[0] : NULL; }

/* `n` must be in no heap. */
void heap_push(struct heap *h, struct heap_node *n);
/* No-op for a node that is in no heap. */
void heap_remove(struct heap *h, struct heap_node *n);
/* After the key of a node inside the heap changed. */
void heap_update(struct heap *h, struct heap_node *n);

#endif
