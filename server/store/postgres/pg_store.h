/* The store on Postgres (>= 14): libpq in pipeline mode on a few connections, one statement (or a
 * few in one transaction) per kind of operation and turn.
 *
 * It makes and upgrades its schema `reins` by itself.  It connects anew for ever, with a backoff; nothing in it blocks. */
#ifndef REINS_PG_STORE_H
#define REINS_PG_STORE_H

#include "server/store/store.h"

struct pg_store_config {
	const char *url;               /* postgres://… or any conninfo; several hosts are tried in turn */
	int32_t connections;           /* 1 … 16; of two or more the last is for GET, LIST, LOG_READ: a long list can't hold up a claim */
	int32_t max_batch;             /* operations per statement; a group may be larger */
	int32_t max_in_flight;         /* batches of one kind on the way, before operations gather */
	int32_t max_queued;            /* operations accepted and not answered; over it: UNAVAILABLE */
	int64_t max_queued_bytes;      /* of what they hold; the same */
	int64_t statement_timeout_ns;  /* in the server; after half as long again without an answer the connection is given up */
	int64_t connect_timeout_ns;    /* name, connect, set-up, for one address */
	int32_t lost_limit;            /* for the rows that SESSION_OPEN takes back */
	int64_t log_retention_ns;      /* logs and metrics of tasks submitted longer ago are dropped, a week at a time; 0: never */
	int64_t event_retention_ns;    /* events are kept so long, if they are no more than some 650,000 rows */
	int64_t max_batch_bytes;       /* of parameters; one larger operation goes alone */
	/* As in struct store; may be NULL.  `text` when down: why.  When up: a warning, or "". */
	void (*on_state)(void *arg, bool up, const char *text);
	void *on_state_arg;
};
void pg_store_config_default(struct pg_store_config *c);

/* Returns at once, not up; connects from the loop.  Strings are copied.  -EINVAL: the url can't be read.
 * store_free must not be called from an operation's done or from on_state. */
int pg_store_new(struct loop *loop, const struct pg_store_config *cfg, struct store **ret) MUST_CHECK;

#endif
