/* Intrusive hash map with chaining; keys are bytes that live in the element.
 * Hash: SipHash-like keyed mixing is not needed for UUIDs made by us, but peers choose worker
 * and queue names, so the map hashes with a random seed per process (FNV-1a, then the
 * finaliser of MurmurHash3, both in the public domain). */
#ifndef REINS_MAP_H
#define REINS_MAP_H

#include "common/base/base.h"

struct map_node {
	struct map_node *next;
	uint64_t hash;
	const void *key;
	size_t key_len;
};

struct map {
	struct map_node **buckets;
	size_t mask; /* bucket count - 1; 0 buckets until the first put */
	size_t len;
	uint64_t seed;
};

void map_init(struct map *m);
void map_done(struct map *m); /* frees the buckets, not the elements */

/* `key` must stay valid and unchanged while the node is in the map, and not be in it yet. */
void map_put(struct map *m, struct map_node *n, const void *key, size_t key_len);
struct map_node *map_get(const struct map *m, const void *key, size_t key_len);
/* The node must be in the map. */
void map_remove(struct map *m, struct map_node *n);

/* Iteration: map_first, then map_next; the current node may be removed after map_next was read. */
struct map_node *map_first(const struct map *m);
struct map_node *map_next(const struct map *m, const struct map_node *n);

#endif
