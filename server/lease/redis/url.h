/* redis://[user][:password@]host[:port][/db], or rediss:// for TLS. */
#ifndef REINS_LEASE_REDIS_URL_H
#define REINS_LEASE_REDIS_URL_H

#include "common/base/base.h"

struct redis_url {
	char *host;     /* name or address, without the brackets of IPv6 */
	char *port;     /* "6379" by default */
	char *user;     /* NULL: none */
	char *password; /* NULL: none; percent-decoded like the user */
	int64_t db;
	bool tls;
};

/* -EINVAL with a text for a person, which never holds the password. */
int redis_url_parse(const char *text, struct redis_url *ret, char *ret_err, size_t err_cap) MUST_CHECK;
void redis_url_done(struct redis_url *u);

#endif
