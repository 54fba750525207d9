/* Strict reading of the URL: what isn't understood is refused, not ignored. */
#include "server/lease/redis/url.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"

/* NULL: a bad escape or a NUL byte. */
static char *decode(const char *s, size_t len)
{
	char *out = xcalloc(len + 1, 1);
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		char c = s[i];
		if (c == '%') {
			bool whole = i + 2 < len;
			int hi = whole ? num_hex_digit(s[i + 1]) : -1, lo = whole ? num_hex_digit(s[i + 2]) : -1;
			if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
				free(out);
				return NULL;
			}
			c = (char)(hi << 4 | lo);
			i += 2;
		}
		out[n++] = c;
	}
	return out;
}

static char *copy(const char *s, size_t len)
{
	char *out = xcalloc(len + 1, 1);
	memcpy(out, s, len);
	return out;
}

static const char *read_user(const char *s, size_t len, struct redis_url *u)
{
	const char *colon = memchr(s, ':', len);
	if (!colon)
		return "a user needs a password: user:password@host, or :password@host";
	size_t user_len = (size_t)(colon - s);
	if (user_len > 0 && !(u->user = decode(s, user_len)))
		return "bad %-escape in the user";
	if (!(u->password = decode(colon + 1, len - user_len - 1)))
		return "bad %-escape in the password";
	return *u->password ? NULL : "the password is empty";
}

static const char *read_host(const char *s, size_t len, struct redis_url *u)
{
	const char *host = s, *end = s + len, *host_end;
	if (len > 0 && *s == '[') {
		host++;
		host_end = memchr(s, ']', len);
		if (!host_end)
			return "no ] after the IPv6 address";
		s = host_end + 1;
	} else {
		host_end = memchr(s, ':', len);
		if (!host_end)
			host_end = end;
		s = host_end;
	}
	if (host_end == host || host_end - host > 255)
		return "no host";
	u->host = copy(host, (size_t)(host_end - host));
	if (s == end) {
		u->port = xstrdup("6379");
		return NULL;
	}
	if (*s != ':')
		return "something stands between the host and the port";
	u->port = copy(s + 1, (size_t)(end - s - 1));
	int64_t port;
	if (num_parse_i64(u->port, &port) < 0 || port < 1 || port > 65535)
		return "the port is not a number from 1 to 65535";
	return NULL;
}

static const char *read_all(const char *text, struct redis_url *u)
{
	if (strncmp(text, "redis://", 8) == 0)
		text += 8;
	else if (strncmp(text, "rediss://", 9) == 0)
		text += 9, u->tls = true;
	else
		return "must begin with redis:// or rediss://";
	if (strpbrk(text, "?#"))
		return "? and # have no meaning here (in a password write %3F and %23)";
	size_t authority = strcspn(text, "/");
	const char *at = memrchr(text, '@', authority), *host = at ? at + 1 : text, *err = NULL;
	if (at)
		err = read_user(text, (size_t)(at - text), u);
	if (!err)
		err = read_host(host, (size_t)(text + authority - host), u);
	if (err)
		return err;
	const char *db = text + authority;
	if (*db && db[1] && (num_parse_i64(db + 1, &u->db) < 0 || u->db < 0 || u->db > INT32_MAX))
		return "what follows the host must be the number of a database";
	return NULL;
}

int redis_url_parse(const char *text, struct redis_url *ret, char *ret_err, size_t err_cap)
{
	struct redis_url u = { 0 };
	const char *err = read_all(text, &u);
	if (err) {
		snprintf(ret_err, err_cap, "Redis URL: %s", err);
		redis_url_done(&u);
		return -EINVAL;
	}
	*ret = u;
	return 0;
}

void redis_url_done(struct redis_url *u)
{
	free(u->host);
	free(u->port);
	free(u->user);
	if (u->password)
		explicit_bzero(u->password, strlen(u->password));
	free(u->password);
	*u = (struct redis_url){ 0 };
}
