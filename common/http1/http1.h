/* HTTP/1.1: a table of paths, each answered at once from memory, for probes and monitoring; and exchanges (exchange.h) for
 * whoever serves the rest, the calls.
 *
 * The server has no listener of its own: who accepted a connection and found that its first bytes are no HTTP/2 hands
 * it over.  One request at a time is worked on per connection; those that were sent ahead wait in the input, which is
 * bounded, as is the output: a peer that does not read is not served on.  A path of the table takes no
 * body. */
#ifndef REINS_HTTP1_H
#define REINS_HTTP1_H

#include "common/base/buf.h"
#include "common/http1/exchange.h"
#include "common/http1/head.h"
#include "common/loop/loop.h"
#include "common/stream/stream.h"

struct http1_server;

/* Who asks. */
struct http1_asker {
	const struct stream_peer *peer;
	const char *authorization; /* NULL: none, or several */
	size_t n_authorization;
	const char *host;          /* NULL: none, or it came over HTTP/2 */
};

struct http1_reply {
	const struct http1_asker *asker; /* in on_request */
	int status;       /* 200 unless set */
	const char *challenge; /* static; www-authenticate. NULL: none */
	const char *type; /* static; "text/plain; charset=utf-8" unless set */
	struct buf body;  /* at most http1_limits.max_body */
};

struct http1_route {
	const char *path;
	unsigned methods; /* enum http1_method, ored; HEAD is answered as GET, without the body */
	void (*on_request)(void *app, struct http1_reply *reply);
};

/* Each with the attack or mistake that it is for. */
struct http1_limits {
	int max_connections;      /* 1000; over it one that is idle or whose head is not whole makes room, the oldest, if there is one */
	size_t max_body;          /* 1 MiB of an answer */
	int requests_per_turn;    /* 4 of one connection: fairness between connections */
	int64_t max_requests;     /* 1000, then the connection is closed: none is held for ever */
	int64_t head_ns;          /* 5 s from a request's first byte to the end of its head: slowloris */
	int64_t idle_ns;          /* 90 s between requests: longer than usual scrape intervals */
	int64_t blocked_output_ns; /* 30 s in which the peer takes nothing */
};
void http1_limits_default(struct http1_limits *l);

struct http1_server_config {
	struct http1_limits limits;
	const struct http1_route *routes;
	size_t n_routes;
	const char *about; /* the text of a 404: what is here */
	void *app;
	/* A line of text per connection that was refused or ended for what it sent. May be NULL. */
	void (*on_log)(void *app, const char *peer, const char *text);
};

int http1_server_new(struct loop *loop, const struct http1_server_config *cfg, struct http1_server **ret) MUST_CHECK;
/* Who is told of exchanges; at first nobody. NULL: nobody any more; connections with an exchange end, without a word to it. */
void http1_server_set_service(struct http1_server *s, const struct http1_service *service, void *arg);
/* Takes an open stream over, with what was read of it already (64 KiB at most).  Always: one that can't be kept is closed. */
void http1_server_adopt(struct http1_server *s, struct stream *stream, const void *data, size_t len);
/* Idle connections are closed, the others after their present answer, or at the deadline: a peer may be slow to send or to
 * read.  on_drained once, when all are gone, from the loop. */
void http1_server_drain(struct http1_server *s, int64_t deadline_mono_ns, void (*on_drained)(void *app));
/* Closes everything at once. The memory goes at the end of the turn. NULL-safe. */
void http1_server_free(struct http1_server *s);

/* For who serves the same paths in another way: the one at that path, without a query; NULL. */
const struct http1_route *http1_server_route(const struct http1_server *s, const char *path, size_t len);
/* Its answer; the caller frees ret->body. */
void http1_server_ask(struct http1_server *s, const struct http1_route *route, const struct http1_asker *asker, struct http1_reply *ret);
/* What is here, for who asks for what is not. */
const char *http1_server_about(const struct http1_server *s);

struct http1_stats {
	int64_t connections, requests;
	int64_t refused_connections; /* at the limit */
	int64_t refused_requests;    /* malformed, too large, too slow */
};
void http1_server_stats(const struct http1_server *s, struct http1_stats *ret);
/* Those of one address: the first n bytes of `address`, without the port. Looks at each. */
int http1_server_count_from(const struct http1_server *s, const char *address, size_t n);

#endif
