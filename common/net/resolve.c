/* Owns one look-up: a getaddrinfo on libuv's thread pool, or for literals a timer that fires at once, so that
 * on_done never comes from inside endpoint_resolve.  A cancelled look-up lives on until libuv gives it back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "common/net/endpoint.h"

struct endpoint_query {
	uv_getaddrinfo_t req;
	struct loop_timer timer; /* for literals */
	bool literal;
	bool cancelled;
	struct endpoint e;
	struct endpoint_addr addrs[ENDPOINT_MAX_ADDRS];
	size_t n;
	void (*on_done)(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n);
	void *arg;
};

static int errno_of(int status)
{
	switch (status) {
	case UV_EAI_NONAME:
	case UV_EAI_NODATA:
		return -ENOENT;
	case UV_EAI_AGAIN:
		return -EAGAIN;
	case UV_EAI_MEMORY:
	case UV_ENOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

static void finish(struct endpoint_query *q, int err, const char *why)
{
	char text[384] = "";
	if (err)
		snprintf(text, sizeof text, "%s: %s", q->e.host, why);
	q->on_done(q->arg, err, text, err ? NULL : q->addrs, err ? 0 : q->n);
	free(q);
}

static void add_address(struct endpoint_query *q, const struct addrinfo *ai)
{
	struct endpoint_addr a;
	if (q->n == ENDPOINT_MAX_ADDRS || (ai->ai_family != AF_INET && ai->ai_family != AF_INET6) ||
	    ai->ai_addrlen > sizeof a.addr)
		return;
	memset(&a, 0, sizeof a);
	memcpy(&a.addr, ai->ai_addr, ai->ai_addrlen);
	a.len = ai->ai_addrlen;
	for (size_t i = 0; i < q->n; i++)
		if (q->addrs[i].len == a.len && !memcmp(&q->addrs[i].addr, &a.addr, a.len))
			return;
	q->addrs[q->n++] = a;
}

static void on_addrinfo(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct endpoint_query *q = container_of(req, struct endpoint_query, req);
	if (!status)
		for (const struct addrinfo *ai = res; ai; ai = ai->ai_next)
			add_address(q, ai);
	uv_freeaddrinfo(res);
	if (q->cancelled)
		free(q);
	else if (status)
		finish(q, errno_of(status), uv_strerror(status));
	else if (!q->n)
		finish(q, -ENOENT, "the name has no IPv4 or IPv6 address");
	else
		finish(q, 0, "");
}

static void on_literal(struct loop_timer *t)
{
	finish(container_of(t, struct endpoint_query, timer), 0, "");
}

int endpoint_resolve(struct loop *loop, const struct endpoint *e,
		     void (*on_done)(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n),
		     void *arg, struct endpoint_query **ret)
{
	struct endpoint_query *q = xcalloc(1, sizeof *q);
	char port[8];
	q->e = *e;
	q->on_done = on_done;
	q->arg = arg;
	int err = endpoint_literal(e, &q->addrs[0]);
	if (!err) {
		q->literal = true;
		q->n = 1;
		loop_timer_init(&q->timer, loop, on_literal);
		loop_timer_set(&q->timer, 0);
		*ret = q;
		return 0;
	}
	if (err != -EAGAIN) {
		free(q);
		return err;
	}
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	snprintf(port, sizeof port, "%u", (unsigned)e->port);
	err = uv_getaddrinfo(loop_uv(loop), &q->req, on_addrinfo, e->host, port, &hints);
	if (err) {
		free(q);
		return errno_of(err);
	}
	*ret = q;
	return 0;
}

void endpoint_query_cancel(struct endpoint_query *q)
{
	if (!q)
		return;
	if (q->literal) {
		loop_timer_stop(&q->timer);
		free(q);
		return;
	}
	q->cancelled = true;
	/* Fails when a thread has begun: on_addrinfo then comes with a result, and frees. */
	(void)uv_cancel((uv_req_t *)&q->req);
}
