#include "server/lease/redis/gather.h"

#include <string.h>

#define SPARE_MAX 64

void gather_init(struct gather *g)
{
	map_init(&g->groups);
	for (int k = 0; k < GATHER_KINDS; k++)
		list_init(&g->by_kind[k]);
	list_init(&g->spare);
	g->n_spare = 0;
}

static void group_free(struct gather_group *p)
{
	free(p->at);
	free(p);
}

static void free_all(struct list *l)
{
	struct list *n;
	while ((n = list_pop_front(l)))
		group_free(container_of(n, struct gather_group, node));
}

void gather_done(struct gather *g)
{
	for (int k = 0; k < GATHER_KINDS; k++)
		free_all(&g->by_kind[k]);
	free_all(&g->spare);
	map_done(&g->groups);
}

struct gather_group *gather_open(struct gather *g, enum gather_kind kind, const char *worker, int64_t session)
{
	struct gather_key key;
	memset(&key, 0, offsetof(struct gather_key, worker));
	key.session = session;
	key.kind = (uint8_t)kind;
	size_t len = strlen(worker), key_len = offsetof(struct gather_key, worker) + len;
	memcpy(key.worker, worker, len + 1);
	struct map_node *n = map_get(&g->groups, &key, key_len);
	if (n)
		return container_of(n, struct gather_group, by_key);
	struct list *spare = list_pop_front(&g->spare);
	struct gather_group *p = spare ? container_of(spare, struct gather_group, node) : xcalloc(1, sizeof(*p));
	g->n_spare -= spare != NULL;
	memcpy(&p->key, &key, key_len + 1);
	p->n = 0;
	map_put(&g->groups, &p->by_key, &p->key, key_len);
	list_push_back(&g->by_kind[kind], &p->node);
	return p;
}

void gather_add(struct gather_group *p, const struct uuid *task, int32_t attempt, uint64_t cookie)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 16;
		struct gather_item *at = xcalloc(cap, sizeof(*at));
		if (p->n)
			memcpy(at, p->at, p->n * sizeof(*at));
		free(p->at);
		p->at = at;
		p->cap = cap;
	}
	p->at[p->n++] = (struct gather_item){ *task, attempt, cookie };
}

struct gather_group *gather_first(struct gather *g)
{
	for (int k = 0; k < GATHER_KINDS; k++)
		if (!list_empty(&g->by_kind[k]))
			return container_of(g->by_kind[k].next, struct gather_group, node);
	return NULL;
}

void gather_take(struct gather *g, struct gather_group *p)
{
	map_remove(&g->groups, &p->by_key);
	list_remove(&p->node);
}

void gather_give_back(struct gather *g, struct gather_group *p)
{
	if (g->n_spare >= SPARE_MAX) {
		group_free(p);
		return;
	}
	list_push_front(&g->spare, &p->node);
	g->n_spare++;
}
