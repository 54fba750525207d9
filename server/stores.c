#include "server/stores.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg_store.h"
#include "server/store/sqlite/sqlite_store.h"

#define SQLITE_SCHEME "sqlite:"

static bool begins(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

static int open_postgres(struct loop *loop, const char *url, const struct stores_options *o, char *err, size_t cap,
			 struct store **ret)
{
	struct pg_store_config c;
	pg_store_config_default(&c);
	c.url = url;
	c.connections = o->connections;
	c.statement_timeout_ns = o->timeout_ns;
	c.lost_limit = o->lost_limit;
	c.max_queued = (int32_t)o->max_queued;
	c.max_queued_bytes = o->max_queued_bytes;
	c.log_retention_ns = o->log_retention_ns;
	c.event_retention_ns = o->event_retention_ns;
	c.on_state = o->on_state;
	c.on_state_arg = o->on_state_arg;
	int rc = pg_store_new(loop, &c, ret);
	if (rc == -EINVAL)
		snprintf(err, cap, "the URL can't be read; postgres://USER@HOST:PORT/DATABASE is wanted");
	else if (rc)
		snprintf(err, cap, "%s", strerror(-rc));
	return rc;
}

static int open_sqlite(struct loop *loop, const char *url, const struct stores_options *o, char *err, size_t cap,
		       struct store **ret)
{
	struct sqlite_store_config c;
	sqlite_store_config_default(&c);
	c.path = url + strlen(SQLITE_SCHEME);
	c.lost_limit = o->lost_limit;
	c.max_queued = (int32_t)o->max_queued;
	c.max_queued_bytes = o->max_queued_bytes;
	c.max_log_bytes = o->max_log_sum;
	c.event_retention_ns = o->event_retention_ns;
	c.ignore_moved = o->ignore_moved;
	c.on_state = o->on_state;
	c.on_state_arg = o->on_state_arg;
	return sqlite_store_new(loop, &c, err, cap, ret);
}

int stores_open(struct loop *loop, const char *url, const struct stores_options *o, char *ret_err, size_t err_cap,
		struct store **ret)
{
	if (begins(url, "postgres://") || begins(url, "postgresql://"))
		return open_postgres(loop, url, o, ret_err, err_cap, ret);
	if (begins(url, SQLITE_SCHEME))
		return open_sqlite(loop, url, o, ret_err, err_cap, ret);
	snprintf(ret_err, err_cap, "no such kind of store; postgres://USER@HOST:PORT/DATABASE and sqlite:PATH are known");
	return -EINVAL;
}

bool stores_stays_down(const char *url, const struct store *s)
{
	return s->newer_schema || (begins(url, SQLITE_SCHEME) && sqlite_store_stays_down(s));
}

const char *stores_kind(const char *url)
{
	return begins(url, SQLITE_SCHEME) ? "sqlite" : "postgres";
}
