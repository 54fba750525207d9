/* The paths of HTTP/1.1's table over HTTP/2: the same answers for whoever speaks the newer version. */
#include <stdio.h>
#include <string.h>

#include "common/grpc/server_impl.h"

static void answer(struct reply *r, const struct http1_reply *a, bool head)
{
	char status[8], len[24];
	const struct h2_header h[] = { /* the last one only with a challenge */
		{ ":status", status, (size_t)snprintf(status, sizeof(status), "%d", a->status), 0 },
		{ "content-type", a->type, strlen(a->type), 0 },
		reply_length(buf_len(&a->body), len),
		H2_HEADER("cache-control", "no-store"),
		{ "www-authenticate", a->challenge ? a->challenge : "", a->challenge ? strlen(a->challenge) : 0, 0 },
	};
	bool body = !head && buf_len(&a->body);
	exchange_ignore(&r->x, true);
	reply_respond(r, h, ARRAY_LEN(h) - !a->challenge, !body);
	if (body && reply_write(r, buf_head(&a->body), buf_len(&a->body)))
		r->x.ops->finish(&r->x, NULL, 0);
}

bool route_answer(struct grpc_server *srv, struct reply *r)
{
	static const struct h2_header allow = H2_HEADER("allow", "GET, HEAD");
	const char *path = r->x.ops->header(&r->x, ":path"), *verb = r->x.ops->header(&r->x, ":method");
	const struct http1_route *route =
		srv->cfg.http1 && path ? http1_server_route(srv->cfg.http1, path, strcspn(path, "?")) : NULL;
	if (!route)
		return false;
	bool head = verb && strcmp(verb, "HEAD") == 0;
	if (!verb || (!head && strcmp(verb, "GET") != 0)) {
		reply_plain(r, "405", &allow, "only GET and HEAD are answered here");
		return true;
	}
	const struct exchange *x = &r->x;
	const struct http1_asker asker = {
		.peer = x->ops->peer(x),
		.authorization = x->ops->header(x, "authorization"),
		.n_authorization = x->ops->header_count(x, "authorization"),
	};
	struct http1_reply a;
	http1_server_ask(srv->cfg.http1, route, &asker, &a);
	answer(r, &a, head);
	buf_done(&a.body);
	return true;
}
