#include "common/base/map.h"

#include "common/base/rng.h"

#include <assert.h>
#include <string.h>

void map_init(struct map *m)
{
	*m = (struct map){ .seed = rng_process_seed() };
}

void map_done(struct map *m)
{
	free(m->buckets);
	*m = (struct map){ .seed = m->seed };
}

static uint64_t hash_bytes(uint64_t seed, const void *key, size_t len)
{
	const unsigned char *p = key;
	uint64_t h = seed ^ UINT64_C(0xcbf29ce484222325);
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word;
		memcpy(&word, p, 8);
		h = (h ^ word) * UINT64_C(0x100000001b3);
		h ^= h >> 29;
	}
	for (; len > 0; len--, p++)
		h = (h ^ *p) * UINT64_C(0x100000001b3);
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ (h >> 33);
}

/* One that is full without memory goes on with longer chains, and tries again with the next. */
static void grow(struct map *m)
{
	size_t n = m->buckets ? (m->mask + 1) * 2 : 16;
	struct map_node **buckets = m->buckets ? calloc(n, sizeof(*buckets)) : xcalloc(n, sizeof(*buckets));
	if (!buckets)
		return;
	for (size_t i = 0; m->buckets && i <= m->mask; i++) {
		for (struct map_node *e = m->buckets[i], *next; e; e = next) {
			next = e->next;
			e->next = buckets[e->hash & (n - 1)];
			buckets[e->hash & (n - 1)] = e;
		}
	}
	free(m->buckets);
	m->buckets = buckets;
	m->mask = n - 1;
}

void map_put(struct map *m, struct map_node *n, const void *key, size_t key_len)
{
	if (!m->buckets || m->len > m->mask)
		grow(m);
	n->key = key;
	n->key_len = key_len;
	n->hash = hash_bytes(m->seed, key, key_len);
	n->next = m->buckets[n->hash & m->mask];
	m->buckets[n->hash & m->mask] = n;
	m->len++;
}

struct map_node *map_get(const struct map *m, const void *key, size_t key_len)
{
	if (!m->buckets)
		return NULL;
	uint64_t h = hash_bytes(m->seed, key, key_len);
	for (struct map_node *e = m->buckets[h & m->mask]; e; e = e->next)
		if (e->hash == h && e->key_len == key_len && memcmp(e->key, key, key_len) == 0)
			return e;
	return NULL;
}

void map_remove(struct map *m, struct map_node *n)
{
	struct map_node **at = &m->buckets[n->hash & m->mask];
	while (*at && *at != n)
		at = &(*at)->next;
	assert(*at == n);
	*at = n->next;
	n->next = NULL;
	m->len--;
}

static struct map_node *first_from(const struct map *m, size_t i)
{
	for (; m->buckets && i <= m->mask; i++)
		if (m->buckets[i])
			return m->buckets[i];
	return NULL;
}

struct map_node *map_first(const struct map *m)
{
	return first_from(m, 0);
}

struct map_node *map_next(const struct map *m, const struct map_node *n)
{
	return n->next ? n->next : first_from(m, (n->hash & m->mask) + 1);
}
