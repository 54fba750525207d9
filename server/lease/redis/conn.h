/* One connection to Redis: resolved, connected, pipelined, watched, and made anew when it breaks.
 *
 *   WAITING ─▶ RESOLVING ─▶ CONNECTING ─▶ GREETING ─▶ UP
 *      ▲                                              │ broken, no reply in time, a reply that wasn't asked for
 *      └──────────────── backoff 100 ms … 2 s ────────┘
 *
 * Of hiredis this uses the reply parser only: its asynchronous context (0.14) has no timeouts, an
 * unbounded output buffer, an assert on a reply without a command, and frees itself under its owner. */
#ifndef REINS_LEASE_REDIS_CONN_H
#define REINS_LEASE_REDIS_CONN_H

#include "common/loop/loop.h"
#include "server/lease/redis/url.h"
#include "server/lease/redis/wire.h"

struct redis_conn;
struct redisReply;
struct tls_context;

struct redis_conn_config {
	const struct redis_url *url; /* copied */
	struct tls_context *tls;     /* for rediss://; outlives the connection */
	const char *probe_key;       /* deleted in the greeting: shows that Redis takes writes */
	int64_t timeout_ns;          /* from the flush, or the last reply to others, to the reply; over it, or over ten
	                                times it after the flush, the connection is dropped */
	int64_t connect_timeout_ns;  /* connect, TLS and greeting together */
	size_t max_pending;          /* commands without a reply */
	size_t max_bytes;            /* of them */
};

/* All from the loop's input or LOOP_LEASE; none may call back into the connection. */
struct redis_conn_events {
	/* In the order of the commands; a NULL reply: lost or too late, the outcome is unknown. True: drop
	 * this connection, Redis is of no use behind it. */
	bool (*on_reply)(void *arg, const struct redis_op *op, const struct redisReply *reply);
	/* Every change of "usable", and every failed try (up false) with its reason. */
	void (*on_state)(void *arg, bool up, bool timed_out, const char *text);
};

struct redis_conn *redis_conn_new(struct loop *loop, const struct redis_conn_config *cfg, const struct redis_conn_events *events,
				  void *arg);
/* Closes at once; the memory goes at the end of the turn. No callback follows. */
void redis_conn_free(struct redis_conn *c);
bool redis_conn_up(const struct redis_conn *c);

/* Where commands are put while the connection is up; then redis_conn_kick sends them in this turn's LOOP_LEASE. */
struct redis_wire *redis_conn_wire(struct redis_conn *c);
void redis_conn_kick(struct redis_conn *c);

#endif
