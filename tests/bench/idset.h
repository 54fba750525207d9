/* What became of each task of a run, by id: the proof that every submitted task ended once. */
#ifndef REINS_BENCH_IDSET_H
#define REINS_BENCH_IDSET_H

#include "common/base/id.h"

struct idset_entry {
	struct uuid id;
	int64_t submitted_mono_ns, received_mono_ns; /* 0: not yet */
	uint16_t submits, dispatches, recorded;
	bool used;
};

struct idset {
	struct idset_entry *at;
	size_t cap, len;
};

struct idset_sums {
	int64_t submitted, recorded;
	int64_t unfinished;  /* submitted, never recorded */
	int64_t twice;       /* recorded more than once */
	int64_t again;       /* dispatched more than once */
	int64_t unknown;     /* dispatched or recorded, never submitted by this process */
};

/* `expected` ids fit without growing. */
void idset_init(struct idset *s, size_t expected);
void idset_done(struct idset *s);
/* The entry of this id, made where it is new.  Valid until the next call. */
struct idset_entry *idset_get(struct idset *s, const struct uuid *id);
void idset_sum(const struct idset *s, struct idset_sums *ret);

#endif
