/* What unfinished requests of all connections hold, and who goes when it is too much.
 *
 * A request counts while its rest is waited for, and while it waits for its connection's output; one that came whole is handed
 * over at once and dropped, so small requests are answered however full it is.  When the sum is over the limit the requests go
 * whose last byte is the oldest, whatever their size: who sends in drops can't keep others out, with few large ones or many small.
 *
 * Sessions of workers have an account of their own, of the same size: what callers send never ends one, also where a proxy has one
 * connection for both. */
#include "common/grpc/server_impl.h"

#define RETRY_MS 1000

void bodies_init(struct grpc_server *srv)
{
	for (size_t i = 0; i < GRPC_BODIES; i++)
		list_init(&srv->bodies[i].calls);
}

void bodies_release(struct grpc_call *c)
{
	c->bodies->held -= c->held;
	c->held = 0;
	list_remove(&c->counted);
}

void bodies_refuse(struct grpc_call *c, enum grpc_refused_body cause, size_t limit, const char *whose)
{
	struct refusal r;
	c->srv->stats.refused_bodies[cause]++;
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "too many unfinished requests: %s may hold %zu bytes together; send it again later",
		     whose, limit);
	(void)refuse_reason(&r, REASON_TOO_MUCH_IN_FLIGHT);
	(void)refuse_more(&r, "limit", "%zu", limit);
	r.retry_after_ms = RETRY_MS;
	call_end(c, &r, false);
	if (call_alive(c))
		exchange_drop_all(&c->reply.x); /* at once: the next one is measured by what is left */
}

struct grpc_call *bodies_in_the_way(struct grpc_call *c)
{
	struct grpc_call *most = c;
	if (!c->method->apart)
		return c;
	list_each(it, c->reply.x.ops->calls(&c->reply.x)) {
		struct grpc_call *other = container_of(it, struct grpc_call, node);
		if (!other->method->apart && other->held > (most == c ? 0 : most->held))
			most = other;
	}
	return most;
}

static void count(struct grpc_call *c, size_t n)
{
	c->bodies->held += n - c->held;
	c->held = n;
	list_remove(&c->counted);
	if (n)
		list_push_back(&c->bodies->calls, &c->counted);
}

bool bodies_hold(struct grpc_call *c, size_t n)
{
	struct bodies *b = c->bodies;
	size_t limit = c->srv->cfg.limits.all_recv;
	count(c, n);
	while (limit && b->held > limit && !c->over) {
		struct grpc_call *goes = container_of(b->calls.next, struct grpc_call, counted);
		if (b == &c->srv->bodies[GRPC_BODIES_SESSIONS])
			bodies_refuse(goes, GRPC_BODY_SESSIONS, limit, "the streams of all workers");
		else
			bodies_refuse(goes, GRPC_BODY_SERVER, limit, "those of all connections");
	}
	return !c->over;
}
