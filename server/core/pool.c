/* Pools: workers that serve the same queues, run the same handlers, and do or don't run commands and enforce leases.
 * A pool lives as long as a worker, or a hello on its way, counts in it. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

#define CUSTOM_MAX 256 /* names whose most a pool knows: workers come and go with others */

static int by_address(const void *a, const void *b)
{
	const char *x = *(void *const *)a, *y = *(void *const *)b;
	return x < y ? -1 : x > y;
}

static size_t sort_unique(void **at, size_t n)
{
	size_t m = 0;
	if (n)
		qsort(at, n, sizeof(*at), by_address);
	for (size_t i = 0; i < n; i++)
		if (m == 0 || at[i] != at[m - 1])
			at[m++] = at[i];
	return m;
}

static void withdraw(struct core *c, void **handlers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		name_withdraw(c, handlers[i]);
}

/* Each offered once, in order; -1: too many, and none is offered. */
static int offer(struct core *c, const struct core_event *hello, void **ret, size_t *ret_n)
{
	size_t n = 0;
	for (; n < hello->hello.n_handlers; n++) {
		ret[n] = name_offer(c, hello->hello.handlers[n]);
		if (!ret[n]) {
			withdraw(c, ret, n);
			return -1;
		}
	}
	*ret_n = n;
	if (n)
		qsort(ret, n, sizeof(*ret), by_address);
	for (size_t i = 1; i < *ret_n;) {
		if (ret[i] != ret[i - 1]) {
			i++;
			continue;
		}
		name_withdraw(c, ret[i]);
		memmove(&ret[i], &ret[i + 1], (--*ret_n - i) * sizeof(*ret));
	}
	return 0;
}

static void link_queues(struct core *c, struct pool *p)
{
	if (p->n_queues == 0)
		list_push_back(&c->pools_all, &p->link_all);
	else
		p->links = xcalloc(p->n_queues, sizeof(*p->links));
	for (size_t i = 0; i < p->n_queues; i++) {
		struct queue *q = p->key[1 + i];
		p->links[i].pool = p;
		list_push_back(&q->pools, &p->links[i].at_queue);
	}
}

struct pool *pool_get(struct core *c, const struct core_event *hello)
{
	size_t n_queues = hello->hello.n_queues, n_handlers;
	void **key = calloc(n_queues + hello->hello.n_handlers + 1, sizeof(*key));
	if (!key)
		return NULL;
	for (size_t i = 0; i < n_queues; i++) {
		key[1 + i] = queue_get(c, hello->hello.queues[i]);
		if (!key[1 + i]) {
			free(key);
			return NULL;
		}
	}
	n_queues = sort_unique(key + 1, n_queues);
	if (offer(c, hello, key + 1 + n_queues, &n_handlers) < 0) {
		free(key);
		return NULL;
	}
	uintptr_t flags = (uintptr_t)hello->hello.enforces_lease | (uintptr_t)hello->hello.runs_commands << 1;
	memcpy(&key[0], &flags, sizeof(flags));
	/* A queue and a name never have one address: where the one ends and the other begins needs no mark. */
	size_t len = (1 + n_queues + n_handlers) * sizeof(*key);
	struct map_node *found = map_get(&c->pools, key, len);
	if (found) {
		withdraw(c, key + 1 + n_queues, n_handlers);
		free(key);
		struct pool *p = container_of(found, struct pool, node);
		p->n_workers++;
		return p;
	}
	struct pool *p = xcalloc(1, sizeof(*p));
	p->key = key;
	p->n_queues = n_queues;
	p->n_handlers = n_handlers;
	p->enforces = hello->hello.enforces_lease;
	p->runs_commands = hello->hello.runs_commands;
	p->n_workers = 1;
	heap_init(&p->free, worker_free_less);
	list_init(&p->link_all);
	link_queues(c, p);
	map_put(&c->pools, &p->node, p->key, len);
	return p;
}

void pool_put(struct core *c, struct pool *p)
{
	if (--p->n_workers)
		return;
	assert(!p->free.len);
	map_remove(&c->pools, &p->node);
	list_remove(&p->link_all);
	for (size_t i = 0; i < p->n_queues; i++)
		list_remove(&p->links[i].at_queue);
	withdraw(c, p->key + 1 + p->n_queues, p->n_handlers);
	for (size_t i = 0; i < p->n_custom; i++)
		name_withdraw(c, p->max_custom[i].name);
	heap_done(&p->free);
	free(p->max_custom);
	free(p->links);
	free(p->key);
	free(p);
}

/* ---- what its workers have ---- */

static void widen_custom(struct core *c, struct pool *p, const struct stock *s)
{
	size_t i = 0;
	while (i < p->n_custom && p->max_custom[i].name < s->name)
		i++;
	if (i < p->n_custom && p->max_custom[i].name == s->name) {
		p->max_custom[i].n = max_i64(p->max_custom[i].n, s->have);
		return;
	}
	if (p->n_custom == CUSTOM_MAX) {
		p->more_custom = true;
		return;
	}
	struct name *name = name_offer(c, s->name->text);
	struct count *more = realloc(p->max_custom, (p->n_custom + 1) * sizeof(*more));
	if (!more)
		abort();
	p->max_custom = more;
	memmove(&more[i + 1], &more[i], (p->n_custom++ - i) * sizeof(*more));
	more[i] = (struct count){ name, s->have };
}

void pool_widen(struct core *c, struct pool *p, const struct worker *w)
{
	const struct core_need *have = &w->capacity.have;
	struct core_need *max = &p->max;
	max->gpus = have->gpus > max->gpus ? have->gpus : max->gpus;
	if (have->cpu_millis == 0 || have->cpu_millis > max->cpu_millis)
		max->cpu_millis = have->cpu_millis ? have->cpu_millis : INT32_MAX;
	max->memory_bytes = max_i64(max->memory_bytes, have->memory_bytes);
	for (size_t i = 0; i < w->n_stock; i++)
		widen_custom(c, p, &w->stock[i]);
}

bool pool_serves(const struct pool *p, const struct queue *q)
{
	for (size_t i = 0; i < p->n_queues; i++)
		if (p->key[1 + i] == q)
			return true;
	return p->n_queues == 0;
}

bool pool_runs(const struct pool *p, const struct want *want)
{
#ifdef REINS_MUTATION_NO_HANDLER_MATCH /* tests/sim proves that it would notice */
	return p->enforces || !want->exclusive;
#else
	struct name *handler = want->asks ? want->asks->handler : NULL;
	if (want->exclusive && !p->enforces)
		return false;
	if (!handler)
		return p->runs_commands;
	return p->n_handlers && bsearch(&handler, p->key + 1 + p->n_queues, p->n_handlers, sizeof(*p->key), by_address);
#endif
}

bool pool_could(const struct pool *p, const struct want *want)
{
	const struct core_need *max = &p->max, *need = &want->need;
	if (need->gpus > max->gpus || need->cpu_millis > max->cpu_millis || need->memory_bytes > max->memory_bytes)
		return false;
	size_t k = 0;
	for (size_t i = 0; want->asks && i < want->asks->n_counts; i++) {
		const struct count *ask = &want->asks->counts[i];
		while (k < p->n_custom && p->max_custom[k].name < ask->name)
			k++;
		if (k < p->n_custom && p->max_custom[k].name == ask->name ? ask->n > p->max_custom[k].n : !p->more_custom)
			return false;
	}
	return true;
}
