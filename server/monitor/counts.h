/* How many tasks there are, by queue and state, for /metrics.
 *
 * Only the store knows.  It is asked in pages, each bounded (server/store/queues.h), while somebody scrapes, at most every
 * COUNTS_EVERY_NS and with ten times the rest that a round took.  So the numbers are those of a moment ago.  They are absent
 * while unknown: at the start, and when the store is away or too slow for COUNTS_OLD_NS. */
#ifndef REINS_COUNTS_H
#define REINS_COUNTS_H

#include "server/monitor/exposition.h"
#include "server/store/queues.h"

#define COUNTS_EVERY_NS (10 * NS_PER_S)
#define COUNTS_OLD_NS (120 * NS_PER_S)
#define COUNTS_QUEUES_MAX 500 /* of --metrics-queues: six lines each, of 400 bytes at most */
#define COUNTS_PAGE 1000

struct counted {
	char *name; /* NULL: all others */
	int64_t ready, delayed, running, oldest_wall_us, paused;
};

struct counts_round {
	struct counted *at; /* max_queues + 1, the last for the others */
	size_t n;           /* of them with a name */
	int64_t queues;
	int64_t began_mono_ns, done_mono_ns; /* done 0: not yet */
};

struct counts {
	size_t max_queues; /* so many have series of their own, the first by name; 0: nothing is counted */
	struct counts_round now, next;
	struct store_queue_list op;
	char after[CORE_NAME_MAX + 1];
	bool asking;
	int64_t next_mono_ns;
	struct store *store;
};

void counts_init(struct counts *c, size_t max_queues);
/* The store is freed, or was never asked. */
void counts_done(struct counts *c);
/* Begins a round if it is time and `store` answers. */
void counts_want(struct counts *c, struct store *store, int64_t now_mono_ns);
/* What is known, if it is not too old. */
void counts_show(const struct counts *c, struct exposition *x, int64_t now_mono_ns);

#endif
