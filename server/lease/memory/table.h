/* The keys of the lease table in memory, with Redis' semantics and no loop: `now` is a parameter, answers are
 * return values.  The memory lease table stands on it, and so may a simulator with virtual time. */
#ifndef REINS_LEASE_TABLE_H
#define REINS_LEASE_TABLE_H

#include "server/lease/lease.h"

struct lease_table;

/* `max_keys` bounds workers, fields and owner keys together: peers choose worker ids. */
struct lease_table *lease_table_new(int64_t task_key_ttl_ns, size_t max_keys);
void lease_table_free(struct lease_table *t); /* NULL-safe */
/* Forgets everything, as FLUSHALL does. */
void lease_table_clear(struct lease_table *t);
/* Keys that have not run out, as counted by max_keys. */
size_t lease_table_size(struct lease_table *t, int64_t now);

/* LEASE_DOWN only when the table is full. */
enum lease_verdict lease_table_preempt(struct lease_table *t, int64_t now, const struct lease_slot *slot);
/* -ENOSPC when the table is full; what fits has been written. */
int lease_table_own(struct lease_table *t, int64_t now, const struct lease_owner *owner) MUST_CHECK;
void lease_table_release(struct lease_table *t, int64_t now, const struct lease_owner *owner);
/* -ENOSPC like own; -ESTALE when hb names a newer session: nothing is changed then. */
int lease_table_beat(struct lease_table *t, int64_t now, const struct lease_beat *beat) MUST_CHECK;
/* Everything but the cookie. */
void lease_table_hb(struct lease_table *t, int64_t now, const char *worker, struct lease_hb *ret);

/* The owner keys and the workers with a hash and without an hb among the next LEASE_TABLE_PAGE entries, oldest first, behind
 * `from` (0: from the start); where to go on, 0 when that was the last. */
#define LEASE_TABLE_PAGE 256
struct page;
uint64_t lease_table_scan(struct lease_table *t, int64_t now, uint64_t from, struct page *ret);
void lease_table_disown(struct lease_table *t, int64_t now, const struct lease_owner *owner);
void lease_table_drop_hash(struct lease_table *t, int64_t now, const char *worker);

/* Looks of tests. -ENOENT without the key; ret->worker belongs to the table until its next call. */
int lease_table_field(struct lease_table *t, int64_t now, const char *worker, const struct uuid *task,
		      int32_t *ret_attempt, int64_t *ret_ttl_ns) MUST_CHECK;
int lease_table_owner(struct lease_table *t, int64_t now, const struct uuid *task, struct lease_owner *ret,
		      int64_t *ret_ttl_ns) MUST_CHECK;
size_t lease_table_held(struct lease_table *t, int64_t now, const char *worker);

#endif
