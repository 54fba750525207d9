/* One page of a lease table's keys while it is gathered and until its owner has heard of it. */
#ifndef REINS_LEASE_PAGE_H
#define REINS_LEASE_PAGE_H

#include "server/lease/lease.h"

struct page {
	struct lease_owner *owners;
	char **hashes;
	size_t n_owners, owners_cap, n_hashes, hashes_cap;
};

void page_init(struct page *p);
/* Empties; keeps the arrays. */
void page_clear(struct page *p);
void page_done(struct page *p);
/* Both copy the name, which is `len` bytes. */
void page_add_owner(struct page *p, const struct uuid *task, int32_t attempt, int64_t session, const char *worker, size_t len);
void page_add_hash(struct page *p, const char *worker, size_t len);

#endif
