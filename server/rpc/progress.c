/* Owns a sorted array for each worker; the workers whose streams ended first are forgotten when there are too many. */
#include "server/rpc/progress.h"

#include <string.h>

#define ATTEMPTS_MAX 200000 /* of all workers together; 48 bytes each */

struct left {
	struct map_node node;
	struct list age;
	struct progress_of *at;
	size_t n;
	char worker[];
};

static int by_attempt(const void *a, const void *b)
{
	const struct progress_of *x = a, *y = b;
	int c = uuid_cmp(&x->at.task, &y->at.task);
	return c ? c : (x->at.attempt > y->at.attempt) - (x->at.attempt < y->at.attempt);
}

static struct left *find(const struct progress *p, const char *worker)
{
	struct map_node *n = map_get(&p->by_worker, worker, strlen(worker));
	return n ? container_of(n, struct left, node) : NULL;
}

static void forget(struct progress *p, struct left *l)
{
	map_remove(&p->by_worker, &l->node);
	list_remove(&l->age);
	p->n -= l->n;
	free(l->at);
	free(l);
}

void progress_drop(struct progress *p, const char *worker)
{
	struct left *l = find(p, worker);
	if (l)
		forget(p, l);
}

void progress_keep(struct progress *p, const char *worker, struct progress_of *at, size_t n)
{
	progress_drop(p, worker);
	if (!n) { /* what is kept is bounded by the attempts: a name alone would stay for ever */
		free(at);
		return;
	}
	size_t size = strlen(worker) + 1;
	struct left *l = xcalloc(1, sizeof(*l) + size);
	memcpy(l->worker, worker, size);
	qsort(at, n, sizeof(*at), by_attempt);
	l->at = at;
	l->n = n;
	map_put(&p->by_worker, &l->node, l->worker, size - 1);
	list_push_back(&p->oldest, &l->age);
	p->n += n;
	while (p->n > ATTEMPTS_MAX)
		forget(p, container_of(p->oldest.next, struct left, age));
}

void progress_fill(const struct progress *p, const char *worker, struct core_adopted *adopted, size_t n)
{
	const struct left *l = find(p, worker);
	for (size_t i = 0; l && i < n; i++) {
		struct progress_of key = { .at = { adopted[i].task.id, adopted[i].task.attempt } };
		const struct progress_of *found = bsearch(&key, l->at, l->n, sizeof(key), by_attempt);
		if (!found)
			continue;
		adopted[i].log_stored = found->log_stored;
		adopted[i].log_dropped = found->log_dropped;
		adopted[i].metrics_stored = found->metrics_stored;
	}
}

void progress_init(struct progress *p)
{
	map_init(&p->by_worker);
	list_init(&p->oldest);
	p->n = 0;
}

void progress_done(struct progress *p)
{
	while (!list_empty(&p->oldest))
		forget(p, container_of(p->oldest.next, struct left, age));
	map_done(&p->by_worker);
}
