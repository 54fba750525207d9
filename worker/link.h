/* The way to a master: one connection at a time to the first of several servers that answers.
 *
 * Servers are tried in their order, all addresses of a name one after the other, each for 2 s at most from
 * connect to the first answer; after a round without success, and after a session that was lost, there is a wait
 * (backoff.h) from 100 ms to a tenth of the lease.  The same failure is logged once a minute. */
#ifndef REINS_WORKER_LINK_H
#define REINS_WORKER_LINK_H

#include "common/base/base.h"
#include "common/grpc/client.h"
#include "common/loop/loop.h"
#include "common/settings/settings.h"

struct link;

struct link_config {
	struct loop *loop;
	const struct setting_list *servers;
	const char *tls_ca, *tls_cert, *tls_key; /* may be NULL */
	const char *token, *token_file;          /* may be NULL; the file is read before each connection */
	bool insecure;                           /* a token may go over a network in clear text */
	/* A connection stands. The callee starts its call, and says link_answered when the peer has answered. */
	void (*on_ready)(void *arg, struct grpc_channel *ch);
	/* The channel is gone (its calls got their status before); the next try is on its way. */
	void (*on_lost)(void *arg);
	void *arg;
};

enum link_retry {
	LINK_NEXT,       /* another address at once, then with backoff */
	LINK_RARELY,     /* a second at the least, then with the longest wait: what this master said won't change soon */
};

/* -1 with a sentence: a server's address or the TLS files. */
int link_new(const struct link_config *cfg, char *ret_err, size_t err_cap, struct link **ret) MUST_CHECK;
void link_free(struct link *l); /* NULL-safe; no callback follows */
void link_start(struct link *l);
/* The peer's first answer came: the 2 s are over. */
void link_answered(struct link *l);
/* The session stands. */
void link_welcomed(struct link *l, int64_t lease_ns);
/* Leaves a session that stands, at the end of this turn, for the servers and addresses behind this one: these first, without a
 * wait. Does nothing where there is no other, and for a while after the last time. */
void link_elsewhere(struct link *l, const char *why);
/* Leaves the connection, at the end of this turn. `why` is for the log. */
void link_drop(struct link *l, enum link_retry retry, const char *why);
/* The TLS files are read again, if they have changed, for the next connection; it is done before each one anyway. */
void link_reload(struct link *l);
/* No more tries. */
void link_stop(struct link *l);

#endif
