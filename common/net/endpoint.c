/* Owns nothing: text to struct endpoint and back, and to a socket address where no name is to be resolved. */
#include "common/net/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/num.h"

#define UNIX_PATH_MAX_LEN (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)

static int complain(char *err, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);

static int complain(char *err, size_t cap, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (cap)
		vsnprintf(err, cap, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static const struct {
	const char *prefix;
	bool tls;
} schemes[] = {
	{ "http://", false },
	{ "https://", true },
	{ "tls://", true },
};

static bool host_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
	       c == '_';
}

static bool port_parse(const char *s, uint16_t *ret)
{
	int64_t v;
	/* A sign would pass num_parse_i64. */
	if (s[0] < '0' || s[0] > '9' || num_parse_i64(s, &v) < 0 || v > 65535)
		return false;
	*ret = (uint16_t)v;
	return true;
}

static int parse_unix(const char *path, struct endpoint *ret, char *err, size_t cap)
{
	struct endpoint e = { .is_unix = true };
	if (path[0] == '/' && path[1] == '/' && path[2] == '/')
		path += 2; /* unix:///run/x, as some tools write it */
	size_t n = strlen(path);
	if (!n)
		return complain(err, cap, "a path must follow \"unix:\"");
	if (n > UNIX_PATH_MAX_LEN)
		return complain(err, cap, "the socket's path has %zu bytes; at most %zu are possible", n,
				UNIX_PATH_MAX_LEN);
	memcpy(e.host, path, n + 1);
	*ret = e;
	return 0;
}

/* Address inside brackets, with an optional %interface. */
static bool valid_ip6(const char *s)
{
	char addr[INET6_ADDRSTRLEN];
	const char *percent = strchr(s, '%');
	size_t n = percent ? (size_t)(percent - s) : strlen(s);
	struct in6_addr bin;
	if (n >= sizeof addr || (percent && (!percent[1] || strlen(percent + 1) >= IF_NAMESIZE)))
		return false;
	memcpy(addr, s, n);
	addr[n] = 0;
	return inet_pton(AF_INET6, addr, &bin) == 1;
}

/* Splits s[0..n) into the host and the text of the port (NULL: none). */
static int split(const char *s, size_t n, struct endpoint *e, const char **ret_port, char *err, size_t cap)
{
	const char *host = s, *rest;
	size_t host_len;
	bool ip6 = s[0] == '[';
	if (ip6) {
		const char *end = memchr(s, ']', n);
		if (!end)
			return complain(err, cap, "\"]\" is missing");
		host++;
		host_len = (size_t)(end - host);
		rest = end + 1;
	} else {
		const char *colon = memchr(s, ':', n);
		host_len = colon ? (size_t)(colon - s) : n;
		rest = s + host_len;
		if (colon && memchr(colon + 1, ':', n - host_len - 1))
			return complain(err, cap, "an IPv6 address is written in brackets: [::1]:7346");
	}
	if (!host_len)
		return complain(err, cap, "the host's name is missing");
	if (host_len >= sizeof e->host)
		return complain(err, cap, "the host's name has %zu bytes; at most %zu are allowed", host_len,
				sizeof e->host - 1);
	memcpy(e->host, host, host_len);
	e->host[host_len] = 0;
	if (ip6 && !valid_ip6(e->host))
		return complain(err, cap, "\"%s\" is no IPv6 address", e->host);
	for (size_t i = 0; !ip6 && i < host_len; i++)
		if (!host_char(host[i]))
			return complain(err, cap, "a host's name may hold letters, digits, '.', '-' and '_' only");
	if (rest == s + n) {
		*ret_port = NULL;
		return 0;
	}
	if (*rest != ':')
		return complain(err, cap, "after \"]\" only a port may follow");
	*ret_port = rest + 1;
	return 0;
}

int endpoint_parse(const char *text, uint16_t default_port, struct endpoint *ret, char *ret_err, size_t err_cap)
{
	struct endpoint e = { .port = default_port };
	const char *s = text, *port_text = NULL;
	if (!strncmp(s, "unix:", 5))
		return parse_unix(s + 5, ret, ret_err, err_cap);
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
		size_t n = strlen(schemes[i].prefix);
		if (strncasecmp(s, schemes[i].prefix, n))
			continue;
		e.tls = schemes[i].tls;
		s += n;
		break;
	}
	if (strchr(s, ','))
		return complain(ret_err, err_cap, "one address is wanted, not several");
	if (strstr(s, "://"))
		return complain(ret_err, err_cap, "unknown scheme; http, https, tls and unix are known");
	size_t n = strlen(s);
	if (s != text && n && s[n - 1] == '/')
		n--; /* https://host:7347/ */
	if (memchr(s, '/', n))
		return complain(ret_err, err_cap, "an address has no path; write host:port");
	int err = split(s, n, &e, &port_text, ret_err, err_cap);
	if (err)
		return err;
	if (port_text) {
		char port[8];
		size_t len = n - (size_t)(port_text - s);
		if (len < sizeof port) {
			memcpy(port, port_text, len);
			port[len] = 0;
		}
		if (len >= sizeof port || !port_parse(port, &e.port))
			return complain(ret_err, err_cap, "the port must be a number from 0 to 65535");
	}
	*ret = e;
	return 0;
}

void endpoint_format(const struct endpoint *e, char *ret_text, size_t cap)
{
	bool ip6 = strchr(e->host, ':') != NULL;
	if (e->is_unix)
		snprintf(ret_text, cap, "unix:%s", e->host);
	else
		snprintf(ret_text, cap, "%s%s%s%s:%u", e->tls ? "tls://" : "", ip6 ? "[" : "", e->host, ip6 ? "]" : "",
			 (unsigned)e->port);
}

int endpoint_literal(const struct endpoint *e, struct endpoint_addr *ret)
{
	struct endpoint_addr a;
	struct in_addr ip4;
	memset(&a, 0, sizeof a);
	if (e->is_unix) {
		struct sockaddr_un *un = (struct sockaddr_un *)&a.addr;
		size_t n = strlen(e->host);
		if (n > UNIX_PATH_MAX_LEN)
			return -EINVAL;
		un->sun_family = AF_UNIX;
		memcpy(un->sun_path, e->host, n + 1);
		a.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
	} else if (inet_pton(AF_INET, e->host, &ip4) == 1) {
		struct sockaddr_in *in = (struct sockaddr_in *)&a.addr;
		in->sin_family = AF_INET;
		in->sin_addr = ip4;
		in->sin_port = htons(e->port);
		a.len = sizeof *in;
	} else if (strchr(e->host, ':')) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a.addr;
		char host[INET6_ADDRSTRLEN + 1];
		const char *percent = strchr(e->host, '%');
		size_t n = percent ? (size_t)(percent - e->host) : strlen(e->host);
		if (n >= sizeof host)
			return -EINVAL;
		memcpy(host, e->host, n);
		host[n] = 0;
		if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1)
			return -EINVAL;
		if (percent && !(in6->sin6_scope_id = if_nametoindex(percent + 1)))
			return -ENODEV;
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(e->port);
		a.len = sizeof *in6;
	} else {
		return -EAGAIN;
	}
	*ret = a;
	return 0;
}

bool endpoint_is_loopback(const struct endpoint *e)
{
	struct endpoint_addr a;
	if (e->is_unix || !strcasecmp(e->host, "localhost"))
		return true;
	if (endpoint_literal(e, &a))
		return false;
	if (a.addr.ss_family == AF_INET)
		return ntohl(((struct sockaddr_in *)&a.addr)->sin_addr.s_addr) >> 24 == 127;
	const struct in6_addr *ip6 = &((struct sockaddr_in6 *)&a.addr)->sin6_addr;
	if (IN6_IS_ADDR_V4MAPPED(ip6))
		return ip6->s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(ip6);
}
