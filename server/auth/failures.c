/* A leaky bucket for each address, in a table of fixed size: an address has FAILURES_WAYS places, and takes that of the one heard of
 * least. */
#include "server/auth/failures.h"
#include "common/base/hash.h"

#include <string.h>

#define STEP_NS (NS_PER_S / FAILURES_PER_S)

void failures_init(struct failures *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	f->seed = seed;
}

/* FNV-1a over what stands before the port, finished as common/base/map.c does; never 0. */
static uint64_t hash_of(const struct failures *f, const char *peer)
{
	const char *port = strrchr(peer, ':');
	size_t n = port ? (size_t)(port - peer) : strlen(peer);
	uint64_t h = hash_add(HASH_START ^ f->seed, peer, n);
	h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
	h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
	return (h ^ (h >> 33)) | 1;
}

bool failures_add(struct failures *f, const char *peer, int64_t now)
{
	uint64_t h = hash_of(f, peer);
	size_t first = (size_t)(h >> 8) % (FAILURES_ADDRESSES / FAILURES_WAYS) * FAILURES_WAYS, at = first;
	for (size_t i = first; i < first + FAILURES_WAYS; i++) {
		if (f->of[i].address == h) {
			at = i;
			break;
		}
		if (f->of[i].full_mono_ns < f->of[at].full_mono_ns)
			at = i;
	}
	if (f->of[at].address != h) {
		f->of[at].address = h;
		f->of[at].full_mono_ns = now;
	}
	int64_t full = max_i64(f->of[at].full_mono_ns, now) + STEP_NS;
	if (full > now + FAILURES_PER_S * STEP_NS)
		return false;
	f->of[at].full_mono_ns = full;
	return true;
}
