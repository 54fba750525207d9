/* Intrusive doubly linked list with a sentinel.  Membership is state: a node that is on no
 * list points at itself (list_init) and may be removed again without harm. */
#ifndef REINS_LIST_H
#define REINS_LIST_H

#include "common/base/base.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }

static inline void list_push_back(struct list *l, struct list *n)
{
	n->prev = l->prev;
	n->next = l;
	l->prev->next = n;
	l->prev = n;
}

static inline void list_push_front(struct list *l, struct list *n)
{
	list_push_back(l->next, n);
}

static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* First node taken off, or NULL. */
static inline struct list *list_pop_front(struct list *l)
{
	struct list *n = l->next;
	if (n == l)
		return NULL;
	list_remove(n);
	return n;
}

/* All of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice_back(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

/* `it` may be removed inside the loop; no other node may. */
#define list_each(it, l) \
	for (struct list *it = (l)->next, *it##_next = it->next; it != (l); it = it##_next, it##_next = it->next)

#endif
