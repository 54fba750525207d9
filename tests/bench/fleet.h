/* In-process workers whose tasks are over at once: each holds one session on a connection of its own, accepts what it
 * is given and reports SUCCEEDED in the same turn, all of a turn in one message. */
#ifndef REINS_BENCH_FLEET_H
#define REINS_BENCH_FLEET_H

#include "tests/bench/rig.h"

struct fleet_sums {
	int64_t dispatched, recorded, duplicate, fenced;
	int64_t messages_in;
	int64_t heartbeats, acks;
	int64_t first_dispatch_mono_ns, last_ack_mono_ns;
};

struct fleet;

/* `name`: beginning of the workers' ids. */
struct fleet *fleet_new(struct rig *r, const char *name, size_t workers, size_t slots);
/* Connects and says Hello. */
void fleet_start(struct fleet *f);
/* Every worker got its Welcome. */
bool fleet_ready(const struct fleet *f);
const struct fleet_sums *fleet_sums(const struct fleet *f);
/* Told of each task at its receipt; NULL: nobody. */
void fleet_on_receipt(struct fleet *f, void (*on_receipt)(void *arg, struct idset_entry *e), void *arg);
/* Ends the streams. */
void fleet_free(struct fleet *f);

#endif
