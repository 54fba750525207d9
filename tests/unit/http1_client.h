/* A client that says bytes of HTTP/1.1 over an in-memory pair, and keeps what comes. */
#ifndef REINS_TEST_HTTP1_CLIENT_H
#define REINS_TEST_HTTP1_CLIENT_H

#include "common/http1/http1.h"
#include "tests/unit/turns.h"

struct client {
	struct loop *loop;
	struct stream *s;
	char got[4 << 20]; /* ends in NUL */
	size_t n;
	bool over; /* the server has ended it */
};

/* Says the bytes, and lets one turn go by. `cap`: of the pair, each way. */
struct client *client_new(struct loop *loop, struct http1_server *server, const void *first, size_t len, size_t cap);
void client_free(struct client *c);

#endif
