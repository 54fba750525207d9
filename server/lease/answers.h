/* What a lease table has to tell its owner, gathered until the loop's flush: calls never call back. */
#ifndef REINS_LEASE_ANSWERS_H
#define REINS_LEASE_ANSWERS_H

#include "server/lease/page.h"

struct answers {
	const struct lease_events *events;
	void *arg;
	bool closed; /* set by the owner's free: delivery stops at once, also between two callbacks */
	struct lease_answer *at, *spare;
	size_t len, cap, spare_cap;
	struct lease_hb *hbs, *spare_hbs;
	size_t n_hbs, hbs_cap, spare_hbs_cap;
	/* One page at a time: its arrays are the table's. */
	struct lease_page page;
	bool has_page;
};

void answers_init(struct answers *a, const struct lease_events *events, void *arg);
void answers_done(struct answers *a);
void answers_add(struct answers *a, uint64_t cookie, enum lease_verdict verdict);
void answers_add_hb(struct answers *a, const struct lease_hb *hb);
/* `p` NULL: the table is down. */
void answers_set_page(struct answers *a, const struct page *p, uint64_t cookie, uint64_t next);
/* From the loop only. What the callbacks add waits for the next delivery. */
void answers_deliver(struct answers *a);
static inline bool answers_waiting(const struct answers *a) { return a->len || a->n_hbs || a->has_page; }

#endif
