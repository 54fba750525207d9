/* Owns the list of connections: their limit, draining, the end. */
#include "common/http1/http1.h"

#include <errno.h>
#include <string.h>

#include "common/http1/impl.h"

void http1_limits_default(struct http1_limits *l)
{
	*l = (struct http1_limits){
		.max_connections = 1000,
		.max_body = (size_t)1 << 20,
		.requests_per_turn = 4,
		.max_requests = 1000,
		.head_ns = 5 * NS_PER_S,
		.idle_ns = 90 * NS_PER_S,
		.blocked_output_ns = 30 * NS_PER_S,
	};
}

/* Who is idle longest goes, else who has had us wait longest for the rest of a head: a probe, whose head comes at once, gets
 * through however many send theirs in drops. */
static void make_room(struct http1_server *s)
{
	if (s->stats.connections < s->cfg.limits.max_connections)
		return;
	if (!list_empty(&s->idle)) {
		http1_conn_close(container_of(s->idle.next, struct http1_conn, node));
		return;
	}
	list_each(it, &s->busy) {
		struct http1_conn *c = container_of(it, struct http1_conn, node);
		if (!http1_conn_incomplete(c))
			continue;
		if (s->cfg.on_log)
			s->cfg.on_log(s->cfg.app, c->peer, "ended for another: its request is not whole, and there are too many connections");
		http1_conn_close(c);
		return;
	}
}

void http1_server_adopt(struct http1_server *s, struct stream *stream, const void *data, size_t len)
{
	make_room(s);
	bool full = s->stats.connections >= s->cfg.limits.max_connections;
	if (!full && http1_conn_new(s, stream, data, len))
		return;
	s->stats.refused_connections++;
	if (s->cfg.on_log)
		s->cfg.on_log(s->cfg.app, stream_peer(stream)->address, "refused: too many connections of HTTP/1.1");
	stream_close(stream);
}

static void close_all(struct list *conns)
{
	list_each(it, conns)
		http1_conn_close(container_of(it, struct http1_conn, node));
}

static void on_drain_deadline(struct loop_timer *t) { close_all(&container_of(t, struct http1_server, deadline)->busy); }

static void on_all_gone(struct loop_dirty *d)
{
	struct http1_server *s = container_of(d, struct http1_server, drained);
	if (s->stats.connections || !s->on_drained)
		return;
	loop_timer_stop(&s->deadline);
	void (*on_drained)(void *) = s->on_drained;
	s->on_drained = NULL;
	on_drained(s->cfg.app);
}

int http1_server_new(struct loop *loop, const struct http1_server_config *cfg, struct http1_server **ret)
{
	struct http1_server *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->loop = loop;
	s->cfg = *cfg;
	list_init(&s->idle);
	list_init(&s->busy);
	loop_dirty_init(&s->drained, LOOP_WORK, on_all_gone);
	loop_timer_init(&s->deadline, loop, on_drain_deadline);
	*ret = s;
	return 0;
}

void http1_server_set_service(struct http1_server *s, const struct http1_service *service, void *arg)
{
	s->service = service;
	s->service_arg = arg;
	list_each(it, &s->busy) {
		struct http1_conn *c = container_of(it, struct http1_conn, node);
		if (c->x.active)
			http1_conn_close(c);
	}
}

void http1_server_drain(struct http1_server *s, int64_t deadline_mono_ns, void (*on_drained)(void *app))
{
	s->draining = true;
	s->on_drained = on_drained;
	close_all(&s->idle);
	loop_timer_set(&s->deadline, deadline_mono_ns);
	loop_mark(s->loop, &s->drained);
}

static void server_bury(struct loop_grave *g) { free(container_of(g, struct http1_server, grave)); }

void http1_server_free(struct http1_server *s)
{
	if (!s)
		return;
	s->draining = false;
	s->service = NULL;
	close_all(&s->idle);
	close_all(&s->busy);
	loop_timer_stop(&s->deadline);
	loop_unmark(&s->drained);
	loop_bury(s->loop, &s->grave, server_bury);
}

const struct http1_route *http1_server_route(const struct http1_server *s, const char *path, size_t len)
{
	for (size_t i = 0; i < s->cfg.n_routes; i++)
		if (strlen(s->cfg.routes[i].path) == len && memcmp(s->cfg.routes[i].path, path, len) == 0)
			return &s->cfg.routes[i];
	return NULL;
}

void http1_server_ask(struct http1_server *s, const struct http1_route *route, const struct http1_asker *asker, struct http1_reply *ret)
{
	*ret = (struct http1_reply){ .asker = asker, .status = 200, .type = "text/plain; charset=utf-8" };
	buf_init(&ret->body, s->cfg.limits.max_body);
	route->on_request(s->cfg.app, ret);
}

const char *http1_server_about(const struct http1_server *s) { return s->cfg.about; }
void http1_server_stats(const struct http1_server *s, struct http1_stats *ret) { *ret = s->stats; }

static int count_in(const struct list *conns, const char *address, size_t n)
{
	int count = 0;
	for (const struct list *it = conns->next; it != conns; it = it->next) {
		const char *peer = container_of(it, struct http1_conn, node)->peer;
		count += strncmp(peer, address, n) == 0 && (peer[n] == ':' || !peer[n]);
	}
	return count;
}

int http1_server_count_from(const struct http1_server *s, const char *address, size_t n)
{
	return count_in(&s->idle, address, n) + count_in(&s->busy, address, n);
}
