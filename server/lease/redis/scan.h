/* A page of keys: what SCAN named, then what each of these holds.  Pure: redis.c puts the commands.
 *
 * Owner keys are read whole; of a worker's hash only whether an hb stands beside it, since with one the next beat sets it
 * right.  Names and values that are not of the table's own form are nobody's here: left alone.  Of a cluster SCAN names the
 * keys of the node that answers, which are all that this connection can touch. */
#ifndef REINS_LEASE_REDIS_SCAN_H
#define REINS_LEASE_REDIS_SCAN_H

#include "server/lease/page.h"

struct redisReply;

/* Keys that Redis looks at for one page, ours or not: well under a millisecond of its time, their reading included. */
#define SCAN_COUNT "256"
/* SCAN may give more than COUNT, while Redis makes its table smaller even much more; what is beyond this is left for
 * another round. */
#define SCAN_NAMES_MAX 4096
/* Longest value read: a worker's name and two numbers. */
#define SCAN_VALUE_END "319"

struct redis_scan_item {
	struct uuid task;
	char *worker; /* NULL: the owner key of the task; else the worker's hash */
};

struct redis_scan {
	bool busy, failed;
	uint64_t cookie, next;
	struct redis_scan_item *items; /* named by SCAN */
	size_t n, cap;
	bool asked;                    /* what they hold */
	size_t n_answered;
	struct page page;
};

void redis_scan_init(struct redis_scan *s);
void redis_scan_done(struct redis_scan *s);
void redis_scan_begin(struct redis_scan *s, uint64_t cookie);
/* For MATCH: every key under the prefix that may be an owner key or a hash.  At most 2 × prefix_len + 8 bytes with the NUL. */
void redis_scan_pattern(const char *prefix, size_t prefix_len, char *ret);
/* SCAN's reply; false: it was none. */
bool redis_scan_names(struct redis_scan *s, const char *prefix, size_t prefix_len, const struct redisReply *reply);
/* The reply to what was asked of an item; NULL or an error: not known. */
void redis_scan_item_reply(struct redis_scan *s, size_t item, const struct redisReply *reply);

#endif
