/* Addresses as people write them, and their resolution off the loop's thread (libuv's pool).
 *
 *   127.0.0.1:7346   [::1]:7346   gpu-1   http://gpu-1:7346   https://gpu-1:7347   tls://0.0.0.0:7347   unix:/run/reins.sock
 *
 * Without a scheme: clear text.  Without a port: the default given. */
#ifndef REINS_ENDPOINT_H
#define REINS_ENDPOINT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/base.h"
#include "common/loop/loop.h"

struct endpoint {
	bool tls;
	bool is_unix;
	char host[254]; /* name or address, without brackets; the path when is_unix (at most 107 bytes) */
	uint16_t port;
};

struct endpoint_addr {
	struct sockaddr_storage addr;
	socklen_t len;
};
#define ENDPOINT_MAX_ADDRS 16

/* -EINVAL with a sentence for a person in ret_err. */
int endpoint_parse(const char *text, uint16_t default_port, struct endpoint *ret, char *ret_err, size_t err_cap) MUST_CHECK;
/* "127.0.0.1:7346", "tls://host:7347", "unix:/path": what endpoint_parse reads back. */
void endpoint_format(const struct endpoint *e, char *ret_text, size_t cap);
/* True for 127.0.0.0/8, ::1, "localhost" and Unix sockets. */
bool endpoint_is_loopback(const struct endpoint *e);
/* Only for address literals and Unix sockets, at once; -EAGAIN when the name must be resolved. */
int endpoint_literal(const struct endpoint *e, struct endpoint_addr *ret) MUST_CHECK;

struct endpoint_query;
/* on_done is called once from the loop: err 0 with 1…ENDPOINT_MAX_ADDRS addresses, or err < 0 with text. */
int endpoint_resolve(struct loop *loop, const struct endpoint *e,
		     void (*on_done)(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n),
		     void *arg, struct endpoint_query **ret) MUST_CHECK;
/* No callback follows. Only before on_done; NULL-safe. */
void endpoint_query_cancel(struct endpoint_query *q);

#endif
