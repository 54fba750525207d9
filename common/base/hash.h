/* FNV-1a (Fowler, Noll, Vo), 64 bits: small, and good enough for tables whose keys nobody gains by choosing. */
#ifndef REINS_HASH_H
#define REINS_HASH_H

#include "common/base/base.h"

#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_add(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

#endif
