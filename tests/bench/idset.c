/* Open addressing, never more than half full.  The last bytes of an id are random, so they are the hash. */
#include "tests/bench/idset.h"

#include <string.h>

static void alloc(struct idset *s, size_t cap)
{
	s->at = xcalloc(cap, sizeof(*s->at));
	s->cap = cap;
	s->len = 0;
}

void idset_init(struct idset *s, size_t expected)
{
	size_t cap = 1024;
	while (cap < 2 * expected)
		cap *= 2;
	alloc(s, cap);
}

void idset_done(struct idset *s)
{
	free(s->at);
	*s = (struct idset){ 0 };
}

static struct idset_entry *place(struct idset *s, const struct uuid *id)
{
	uint64_t hash;
	memcpy(&hash, id->b + 8, sizeof(hash));
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (size_t)(hash >> 20) & (s->cap - 1);
	while (s->at[i].used && !uuid_eq(&s->at[i].id, id))
		i = (i + 1) & (s->cap - 1);
	return &s->at[i];
}

static void grow(struct idset *s)
{
	struct idset old = *s;
	alloc(s, old.cap * 2);
	for (size_t i = 0; i < old.cap; i++)
		if (old.at[i].used) {
			*place(s, &old.at[i].id) = old.at[i];
			s->len++;
		}
	free(old.at);
}

struct idset_entry *idset_get(struct idset *s, const struct uuid *id)
{
	struct idset_entry *e = place(s, id);
	if (e->used)
		return e;
	if (2 * (s->len + 1) > s->cap) {
		grow(s);
		e = place(s, id);
	}
	e->id = *id;
	e->used = true;
	s->len++;
	return e;
}

void idset_sum(const struct idset *s, struct idset_sums *ret)
{
	*ret = (struct idset_sums){ 0 };
	for (size_t i = 0; i < s->cap; i++) {
		const struct idset_entry *e = &s->at[i];
		if (!e->used)
			continue;
		ret->submitted += e->submits > 0;
		ret->recorded += e->recorded > 0;
		ret->unfinished += e->submits && !e->recorded;
		ret->twice += e->recorded > 1;
		ret->again += e->dispatches > 1;
		ret->unknown += !e->submits && (e->dispatches || e->recorded);
	}
}
