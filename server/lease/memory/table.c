/* Owns one entry per worker (hb and hash, on a heap by the later end of the two) and one per owner key
 * (on a list by its end: all have the same TTL); both on one list by age, along which a scan goes.  Every call first
 * drops what has run out, so memory follows the number of live keys without a timer. */
#include "server/lease/memory/table.h"

#include "server/lease/page.h"

#include "common/base/heap.h"
#include "common/base/list.h"
#include "common/base/map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A worker or an owner key: `serial` grows along the list. */
struct aged {
	struct list node;
	uint64_t serial;
	bool is_owner;
};

struct field {
	struct map_node node;
	struct uuid task;
	int32_t attempt;
};

struct worker {
	struct map_node node;
	struct heap_node by_end;
	struct aged aged;
	int64_t end;       /* max of the two below */
	int64_t hb_end;    /* 0: no hb */
	int64_t hash_end;  /* 0: no hash */
	int64_t session;
	char master[LEASE_MASTER_MAX + 1];
	struct map fields;
	char id[];
};

struct owner {
	struct map_node node;
	struct list by_end;
	struct aged aged;
	int64_t end;
	struct uuid task;
	int64_t session;
	int32_t attempt;
	char *worker;
};

struct lease_table {
	int64_t ttl;
	size_t max, size;
	struct map workers, owners;
	struct heap worker_ends;
	struct list owner_ends;
	struct list by_age;
	uint64_t serial;
	struct aged *scanned; /* where the last page ended, while it is there: the next one need not look for it */
};

static bool ends_first(const struct heap_node *a, const struct heap_node *b)
{
	return container_of(a, struct worker, by_end)->end < container_of(b, struct worker, by_end)->end;
}

struct lease_table *lease_table_new(int64_t task_key_ttl_ns, size_t max_keys)
{
	struct lease_table *t = xcalloc(1, sizeof(*t));
	t->ttl = task_key_ttl_ns;
	t->max = max_keys;
	map_init(&t->workers);
	map_init(&t->owners);
	heap_init(&t->worker_ends, ends_first);
	list_init(&t->owner_ends);
	list_init(&t->by_age);
	return t;
}

static void aged_add(struct lease_table *t, struct aged *a, bool is_owner)
{
	a->serial = ++t->serial;
	a->is_owner = is_owner;
	list_push_back(&t->by_age, &a->node);
}

static void aged_remove(struct lease_table *t, struct aged *a)
{
	list_remove(&a->node);
	if (t->scanned == a)
		t->scanned = NULL;
}

static void drop_fields(struct lease_table *t, struct worker *w)
{
	for (struct map_node *n = map_first(&w->fields), *next; n; n = next) {
		next = map_next(&w->fields, n);
		free(container_of(n, struct field, node));
		t->size--;
	}
	map_done(&w->fields);
	w->hash_end = 0;
}

static void drop_worker(struct lease_table *t, struct worker *w)
{
	drop_fields(t, w);
	map_remove(&t->workers, &w->node);
	heap_remove(&t->worker_ends, &w->by_end);
	aged_remove(t, &w->aged);
	free(w);
	t->size--;
}

static void drop_owner(struct lease_table *t, struct owner *o)
{
	map_remove(&t->owners, &o->node);
	list_remove(&o->by_end);
	aged_remove(t, &o->aged);
	free(o->worker);
	free(o);
	t->size--;
}

void lease_table_clear(struct lease_table *t)
{
	struct heap_node *h;
	while ((h = heap_top(&t->worker_ends)))
		drop_worker(t, container_of(h, struct worker, by_end));
	list_each(it, &t->owner_ends)
		drop_owner(t, container_of(it, struct owner, by_end));
}

void lease_table_free(struct lease_table *t)
{
	if (!t)
		return;
	lease_table_clear(t);
	map_done(&t->workers);
	map_done(&t->owners);
	heap_done(&t->worker_ends);
	free(t);
}

static void purge(struct lease_table *t, int64_t now)
{
	struct heap_node *h;
	while ((h = heap_top(&t->worker_ends)) && container_of(h, struct worker, by_end)->end <= now)
		drop_worker(t, container_of(h, struct worker, by_end));
	while (!list_empty(&t->owner_ends) && container_of(t->owner_ends.next, struct owner, by_end)->end <= now)
		drop_owner(t, container_of(t->owner_ends.next, struct owner, by_end));
}

size_t lease_table_size(struct lease_table *t, int64_t now)
{
	purge(t, now);
	return t->size;
}

/* The live entry, its own run-out half dropped; NULL when there is none. */
static struct worker *find_worker(struct lease_table *t, int64_t now, const char *id)
{
	struct map_node *n = map_get(&t->workers, id, strlen(id));
	if (!n)
		return NULL;
	struct worker *w = container_of(n, struct worker, node);
	if (w->hb_end <= now)
		w->hb_end = 0;
	if (w->hash_end && w->hash_end <= now)
		drop_fields(t, w);
	return w;
}

static struct worker *get_worker(struct lease_table *t, int64_t now, const char *id)
{
	struct worker *w = find_worker(t, now, id);
	if (w || t->size >= t->max)
		return w;
	size_t len = strlen(id);
	w = xcalloc(1, sizeof(*w) + len + 1);
	memcpy(w->id, id, len);
	map_init(&w->fields);
	heap_node_init(&w->by_end);
	map_put(&t->workers, &w->node, w->id, len);
	heap_push(&t->worker_ends, &w->by_end);
	aged_add(t, &w->aged, false);
	t->size++;
	return w;
}

static void moved(struct lease_table *t, struct worker *w)
{
	w->end = max_i64(w->hb_end, w->hash_end);
	heap_update(&t->worker_ends, &w->by_end);
}

static void set_hb(struct worker *w, int64_t now, const char *master, int64_t session, int64_t ttl_ns)
{
	snprintf(w->master, sizeof(w->master), "%s", master);
	w->session = session;
	w->hb_end = now + ttl_ns;
}

static struct field *find_field(const struct worker *w, const struct uuid *task)
{
	struct map_node *n = map_get(&w->fields, task, sizeof(*task));
	return n ? container_of(n, struct field, node) : NULL;
}

static int set_field(struct lease_table *t, struct worker *w, int64_t now, const struct uuid *task, int32_t attempt)
{
	struct field *f = find_field(w, task);
	if (!f) {
		if (t->size >= t->max)
			return -ENOSPC;
		f = xcalloc(1, sizeof(*f));
		f->task = *task;
		map_put(&w->fields, &f->node, &f->task, sizeof(f->task));
		t->size++;
	}
	f->attempt = attempt;
	w->hash_end = now + t->ttl;
	return 0;
}

enum lease_verdict lease_table_preempt(struct lease_table *t, int64_t now, const struct lease_slot *slot)
{
	purge(t, now);
	struct worker *w = get_worker(t, now, slot->worker);
	if (!w)
		return LEASE_DOWN;
	if (w->hb_end && w->session > slot->session)
		return LEASE_NEWER_SESSION;
	if (!w->hb_end || w->session < slot->session) {
		drop_fields(t, w);
		set_hb(w, now, slot->master, slot->session, slot->lease_ttl_ns);
	} else if (!find_field(w, &slot->task) && (int64_t)w->fields.len >= slot->slots) {
		return LEASE_FULL;
	}
	int r = set_field(t, w, now, &slot->task, slot->attempt);
	moved(t, w);
	return r < 0 ? LEASE_DOWN : LEASE_OK;
}

static struct owner *find_owner(const struct lease_table *t, const struct uuid *task)
{
	struct map_node *n = map_get(&t->owners, task, sizeof(*task));
	return n ? container_of(n, struct owner, node) : NULL;
}

static int set_owner(struct lease_table *t, int64_t now, const struct lease_owner *owner)
{
	struct owner *o = find_owner(t, &owner->task);
	if (!o) {
		if (t->size >= t->max)
			return -ENOSPC;
		o = xcalloc(1, sizeof(*o));
		o->task = owner->task;
		list_init(&o->by_end);
		map_put(&t->owners, &o->node, &o->task, sizeof(o->task));
		aged_add(t, &o->aged, true);
		t->size++;
	}
	if (!o->worker || strcmp(o->worker, owner->worker) != 0) {
		free(o->worker);
		o->worker = xstrdup(owner->worker);
	}
	o->session = owner->session;
	o->attempt = owner->attempt;
	o->end = now + t->ttl;
	list_remove(&o->by_end);
	list_push_back(&t->owner_ends, &o->by_end);
	return 0;
}

int lease_table_own(struct lease_table *t, int64_t now, const struct lease_owner *owner)
{
	purge(t, now);
	int r = set_owner(t, now, owner);
	if (r < 0)
		return r;
	struct worker *w = get_worker(t, now, owner->worker);
	if (!w)
		return -ENOSPC;
	/* The hash of a newer session is not ours to write. */
	if (!w->hb_end || w->session <= owner->session)
		r = set_field(t, w, now, &owner->task, owner->attempt);
	moved(t, w);
	return r;
}

void lease_table_release(struct lease_table *t, int64_t now, const struct lease_owner *owner)
{
	purge(t, now);
	struct owner *o = find_owner(t, &owner->task);
	if (o && o->attempt == owner->attempt && strcmp(o->worker, owner->worker) == 0)
		drop_owner(t, o);
	struct worker *w = find_worker(t, now, owner->worker);
	struct field *f = w ? find_field(w, &owner->task) : NULL;
	if (!f || f->attempt != owner->attempt)
		return;
	map_remove(&w->fields, &f->node);
	free(f);
	t->size--;
	if (w->fields.len == 0)
		w->hash_end = 0;
	moved(t, w);
}

int lease_table_beat(struct lease_table *t, int64_t now, const struct lease_beat *beat)
{
	purge(t, now);
	struct worker *w = get_worker(t, now, beat->worker);
	if (!w)
		return -ENOSPC;
	if (w->hb_end && w->session > beat->session)
		return -ESTALE;
	set_hb(w, now, beat->master, beat->session, beat->lease_ttl_ns);
	drop_fields(t, w);
	int r = 0;
	for (size_t i = 0; i < beat->n_held && r == 0; i++) {
		const struct lease_held *h = &beat->held[i];
		struct lease_owner o = { .task = h->task, .attempt = h->attempt, .worker = beat->worker, .session = beat->session };
		r = set_field(t, w, now, &h->task, h->attempt);
		if (r == 0 && !h->slot_only)
			r = set_owner(t, now, &o);
	}
	moved(t, w);
	return r;
}

/* ---- sweeping ---- */

static struct list *behind(const struct lease_table *t, uint64_t from)
{
	if (t->scanned && t->scanned->serial == from)
		return t->scanned->node.next;
	struct list *n = t->by_age.next;
	while (n != &t->by_age && container_of(n, struct aged, node)->serial <= from)
		n = n->next;
	return n;
}

uint64_t lease_table_scan(struct lease_table *t, int64_t now, uint64_t from, struct page *ret)
{
	purge(t, now);
	struct list *n = behind(t, from);
	for (size_t i = 0; n != &t->by_age && i < LEASE_TABLE_PAGE; i++, n = n->next) {
		t->scanned = container_of(n, struct aged, node);
		if (t->scanned->is_owner) {
			const struct owner *o = container_of(t->scanned, struct owner, aged);
			page_add_owner(ret, &o->task, o->attempt, o->session, o->worker, strlen(o->worker));
		} else {
			const struct worker *w = container_of(t->scanned, struct worker, aged);
			if (w->hb_end <= now && w->hash_end > now)
				page_add_hash(ret, w->id, strlen(w->id));
		}
	}
	return n == &t->by_age ? 0 : t->scanned->serial;
}

void lease_table_disown(struct lease_table *t, int64_t now, const struct lease_owner *owner)
{
	purge(t, now);
	struct owner *o = find_owner(t, &owner->task);
	if (o && o->attempt == owner->attempt && o->session == owner->session && strcmp(o->worker, owner->worker) == 0)
		drop_owner(t, o);
}

void lease_table_drop_hash(struct lease_table *t, int64_t now, const char *worker)
{
	purge(t, now);
	struct worker *w = find_worker(t, now, worker);
	if (w && !w->hb_end)
		drop_worker(t, w);
}

void lease_table_hb(struct lease_table *t, int64_t now, const char *worker, struct lease_hb *ret)
{
	purge(t, now);
	const struct worker *w = find_worker(t, now, worker);
	bool present = w && w->hb_end;
	ret->presence = present ? LEASE_PRESENT : LEASE_ABSENT;
	ret->session = present ? w->session : 0;
	ret->ttl_ns = present ? w->hb_end - now : 0;
	snprintf(ret->master, sizeof(ret->master), "%s", present ? w->master : "");
}

int lease_table_field(struct lease_table *t, int64_t now, const char *worker, const struct uuid *task,
		      int32_t *ret_attempt, int64_t *ret_ttl_ns)
{
	purge(t, now);
	const struct worker *w = find_worker(t, now, worker);
	const struct field *f = w ? find_field(w, task) : NULL;
	if (!f)
		return -ENOENT;
	*ret_attempt = f->attempt;
	*ret_ttl_ns = w->hash_end - now;
	return 0;
}

int lease_table_owner(struct lease_table *t, int64_t now, const struct uuid *task, struct lease_owner *ret,
		      int64_t *ret_ttl_ns)
{
	purge(t, now);
	const struct owner *o = find_owner(t, task);
	if (!o)
		return -ENOENT;
	*ret = (struct lease_owner){ .task = o->task, .attempt = o->attempt, .worker = o->worker, .session = o->session };
	*ret_ttl_ns = o->end - now;
	return 0;
}

size_t lease_table_held(struct lease_table *t, int64_t now, const char *worker)
{
	purge(t, now);
	const struct worker *w = find_worker(t, now, worker);
	return w ? w->fields.len : 0;
}
