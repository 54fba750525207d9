/* Stores by URL: postgres://… or sqlite:PATH. */
#ifndef REINS_SERVER_STORES_H
#define REINS_SERVER_STORES_H

#include "server/store/store.h"

struct stores_options {
	int32_t connections; /* Postgres */
	int64_t max_queued, max_queued_bytes; /* operations that wait, and what they hold */
	int64_t timeout_ns;  /* Postgres: of a statement */
	int32_t lost_limit;
	int64_t max_log_sum, log_retention_ns; /* SQLite: bytes of all tasks' logs */
	int64_t event_retention_ns;
	bool ignore_moved;   /* SQLite: see sqlite_store_config */
	/* As in struct store. */
	void (*on_state)(void *arg, bool up, const char *text);
	void *on_state_arg;
};

/* Returns at once, not up. -EINVAL: no such URL, with a sentence for a person; or another -errno with one. */
int stores_open(struct loop *loop, const char *url, const struct stores_options *o, char *ret_err, size_t err_cap,
		struct store **ret) MUST_CHECK;
/* Down, and waiting won't help (a damaged file, a newer schema): down_text says what a person has to do. */
bool stores_stays_down(const char *url, const struct store *s);
/* "postgres" or "sqlite", for GetServerInfo; only for a URL that stores_open took. */
const char *stores_kind(const char *url);

#endif
