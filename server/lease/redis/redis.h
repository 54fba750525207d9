/* The lease table in Redis: one connection, one pipeline per loop turn. */
#ifndef REINS_LEASE_REDIS_H
#define REINS_LEASE_REDIS_H

#include "common/loop/loop.h"
#include "server/lease/lease.h"

struct tls_context;

struct lease_redis_config {
	const char *url;           /* redis://[user][:password@]host[:port][/db]; rediss:// needs `tls` */
	struct tls_context *tls;   /* outlives the lease table */
	const char *prefix;        /* "reins:"; at most 128 bytes */
	int64_t task_key_ttl_ns;
	int64_t timeout_ns;        /* --redis-timeout */
	size_t max_pending;        /* slots without an answer, and commands without a reply; a slot over it is DOWN, the
	                              rest is dropped. 0: 262,144 */
	size_t max_bytes;          /* of them. 0: 64 MiB; at most 4 GiB */
};

/* Connects by itself, from the loop's next turn on, and again after each loss. -EINVAL with a text for a person.
 * `events` must stay valid. */
int lease_redis_new(struct loop *loop, const struct lease_redis_config *cfg, const struct lease_events *events, void *arg,
		    char *ret_err, size_t err_cap, struct lease **ret) MUST_CHECK;

#endif
