/* Binary heap over pointers; grows by doubling, never shrinks. */
#include "common/base/heap.h"

#include <assert.h>

void heap_init(struct heap *h, bool (*less)(const struct heap_node *, const struct heap_node *))
{
	*h = (struct heap){ .less = less };
}

void heap_done(struct heap *h)
{
	free(h->at);
	h->at = NULL;
	h->len = h->cap = 0;
}

static void put(struct heap *h, size_t i, struct heap_node *n)
{
	h->at[i] = n;
	n->index = i;
}

static void sift_up(struct heap *h, size_t i, struct heap_node *n)
{
	while (i > 0) {
		size_t up = (i - 1) / 2;
		if (!h->less(n, h->at[up]))
			break;
		put(h, i, h->at[up]);
		i = up;
	}
	put(h, i, n);
}

static void sift_down(struct heap *h, size_t i, struct heap_node *n)
{
	for (;;) {
		size_t kid = 2 * i + 1;
		if (kid >= h->len)
			break;
		if (kid + 1 < h->len && h->less(h->at[kid + 1], h->at[kid]))
			kid++;
		if (!h->less(h->at[kid], n))
			break;
		put(h, i, h->at[kid]);
		i = kid;
	}
	put(h, i, n);
}

void heap_push(struct heap *h, struct heap_node *n)
{
	assert(!heap_has(n));
	h->at = xgrow(h->at, h->len++, &h->cap, sizeof(*h->at));
	sift_up(h, h->len - 1, n);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
	if (!heap_has(n))
		return;
	size_t i = n->index;
	assert(i < h->len && h->at[i] == n);
	n->index = HEAP_OUT;
	struct heap_node *last = h->at[--h->len];
	if (last == n)
		return;
	if (i > 0 && h->less(last, h->at[(i - 1) / 2]))
		sift_up(h, i, last);
	else
		sift_down(h, i, last);
}

void heap_update(struct heap *h, struct heap_node *n)
{
	size_t i = n->index;
	assert(i < h->len && h->at[i] == n);
	if (i > 0 && h->less(n, h->at[(i - 1) / 2]))
		sift_up(h, i, n);
	else
		sift_down(h, i, n);
}
