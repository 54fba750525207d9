/* What unfinished requests of all connections hold, and who goes when it is too much.
 *
 * A request counts while its rest is waited for, and while it waits for its connection's output; one that came whole is handed
 * over at once and dropped, so small requests are answered however full it is.  When the sum is over the limit the request goes
 * whose last byte is the oldest: who sends in drops can't keep others out.  Requests of SMALL bytes and less stay: so many
 * would have to go for one large one.
 *
 * Sessions of workers have an account of their own, of the same size: what callers send never ends one. */
#include "common/grpc/server_impl.h"

#define SMALL ((size_t)64 << 10)
#define RETRY_MS 1000

void bodies_init(struct grpc_server *srv)
{
	for (size_t i = 0; i < GRPC_BODIES; i++)
		list_init(&srv->bodies[i].large);
}

void bodies_release(struct grpc_call *c)
{
	c->bodies->held -= c->held;
	c->held = 0;
	list_remove(&c->large);
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

static void count(struct grpc_call *c, size_t n)
{
	c->bodies->held += n - c->held;
	c->held = n;
	list_remove(&c->large);
	if (n > SMALL)
		list_push_back(&c->bodies->large, &c->large);
}

bool bodies_hold(struct grpc_call *c, size_t n)
{
	struct bodies *b = c->bodies;
	size_t limit = c->srv->cfg.limits.all_recv;
	count(c, n);
	while (limit && b->held > limit && !c->over) {
		struct grpc_call *goes = list_empty(&b->large) ? c : container_of(b->large.next, struct grpc_call, large);
		if (b == &c->srv->bodies[GRPC_BODIES_SESSIONS])
			bodies_refuse(goes, GRPC_BODY_SESSIONS, limit, "the streams of all workers");
		else
			bodies_refuse(goes, GRPC_BODY_SERVER, limit, "those of all connections");
	}
	return !c->over;
}
