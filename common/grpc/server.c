/* Owns the connections and listeners of a server, its method table, and draining. */
#include "common/grpc/server.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/grpc/server_impl.h"

/* The real bounds are the messages' limits: each buffer holds one. */
#define MESSAGE_BUF_MAX (SIZE_MAX / 4)

void grpc_limits_default(struct grpc_limits *l)
{
	*l = (struct grpc_limits){
		.max_message = 4 * 1024 * 1024,
		.max_header_list = 16 * 1024,
		.max_header_fields = 100,
		.max_streams = 1000,
		.stream_window = 256 * 1024,
		.conn_window = 1024 * 1024,
		.stream_queue = 256 * 1024,
		.conn_queue = 8 * 1024 * 1024,
		.conn_recv = 32 * 1024 * 1024,
		.all_recv = 256 * 1024 * 1024,
		.keepalive_ns = 30 * NS_PER_S,
		.keepalive_timeout_ns = 20 * NS_PER_S,
		.ping_min_ns = 10 * NS_PER_S,
		.max_age_grace_ns = 30 * NS_PER_S,
		.blocked_output_ns = 60 * NS_PER_S,
		.first_headers_ns = 10 * NS_PER_S,
		.body_ns = 30 * NS_PER_S,
		.idle_ns = 600 * NS_PER_S,
		.unproven_idle_ns = 30 * NS_PER_S,
	};
}

void grpc_limits_set_keepalive(struct grpc_limits *l, int64_t ns)
{
	l->keepalive_ns = ns;
	l->keepalive_timeout_ns = min_i64(l->keepalive_timeout_ns, ns);
}

static void log_line(struct grpc_server *srv, const char *peer, const char *text)
{
	if (srv->cfg.on_log)
		srv->cfg.on_log(srv->cfg.app, peer, text);
}

/* ---- a connection ---- */

static void check_drained(struct grpc_server *srv)
{
	if (!srv->draining || !list_empty(&srv->conns) || !list_empty(&srv->marked) || !srv->on_drained)
		return;
	void (*on_drained)(void *) = srv->on_drained;
	srv->on_drained = NULL;
	loop_timer_stop(&srv->drain_timer);
	on_drained(srv->cfg.app);
}

static void conn_free(struct loop_grave *g)
{
	struct server_conn *sc = container_of(g, struct server_conn, grave);
	conn_done(&sc->base);
	free(sc);
}

/* Off every list; freed at the end of the turn. */
static void conn_bury(struct server_conn *sc)
{
	struct grpc_server *srv = sc->srv;
	list_remove(&sc->node);
	srv->stats.connections--;
	srv->stats.bytes_in += sc->base.bytes_in;
	srv->stats.bytes_out += sc->base.bytes_out;
	loop_bury(srv->loop, &sc->grave, conn_free);
}

static void pause_listeners(struct grpc_server *srv, bool paused);

static void on_stream(struct conn *c, struct h2_stream *s, unsigned news)
{
	exchange_h2_news(container_of(c, struct server_conn, base), s, news);
}

static void on_flushed(struct conn *c)
{
	call_unpark(container_of(c, struct server_conn, base));
}

static int64_t connections(const struct grpc_server *srv)
{
	struct http1_stats s = { .connections = 0 };
	if (srv->cfg.http1)
		http1_server_stats(srv->cfg.http1, &s);
	return srv->stats.connections + s.connections;
}

static bool is_full(const struct grpc_server *srv)
{
	return srv->cfg.max_connections > 0 && connections(srv) >= srv->cfg.max_connections;
}

void server_conn_left(struct grpc_server *srv)
{
	if (!is_full(srv))
		pause_listeners(srv, false);
}

static void detach_calls(struct list *calls)
{
	list_each(it, calls) {
		struct grpc_call *call = container_of(it, struct grpc_call, node);
		call_cut(call);
		call_detach(call);
	}
}

static void on_closed(struct conn *c, const char *text)
{
	struct server_conn *sc = container_of(c, struct server_conn, base);
	struct grpc_server *srv = sc->srv;
	detach_calls(&sc->calls);
	conn_bury(sc);
	server_conn_left(srv);
	loop_mark(srv->loop, &srv->dirty); /* drained, perhaps, once on_end was called */
	if (text)
		log_line(srv, c->peer, text);
}

static void on_other(struct conn *c, struct stream *s, const uint8_t *data, size_t len)
{
	struct grpc_server *srv = container_of(c, struct server_conn, base)->srv;
	http1_server_adopt(srv->cfg.http1, s, data, len);
}

/* The grace of a connection that is too old is over. */
static void on_aged(struct conn *c)
{
	struct server_conn *sc = container_of(c, struct server_conn, base);
	struct refusal r;
	(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "the connection is older than --max-connection-age and its grace; connect again");
	(void)refuse_reason(&r, REASON_CONNECTION_TOO_OLD);
	r.retry_after_ms = 1;
	list_each(call, &sc->calls)
		call_end(container_of(call, struct grpc_call, node), &r, false);
}

static const struct conn_ops CONN_OPS = {
	.on_stream = on_stream,
	.on_flushed = on_flushed,
	.on_aged = on_aged,
	.on_closed = on_closed,
};
/* With a place for who speaks HTTP/1.1. */
static const struct conn_ops CONN_OPS_HTTP1 = {
	.on_stream = on_stream,
	.on_other = on_other,
	.on_flushed = on_flushed,
	.on_aged = on_aged,
	.on_closed = on_closed,
};

int grpc_server_adopt(struct grpc_server *srv, struct stream *stream)
{
	struct server_conn *sc = calloc(1, sizeof(*sc));
	if (!sc)
		return -ENOMEM;
	int rc = conn_init(&sc->base, srv->loop, H2_SERVER, &srv->cfg.limits,
			   srv->cfg.http1 ? &CONN_OPS_HTTP1 : &CONN_OPS);
	if (rc < 0) {
		free(sc);
		return rc;
	}
	sc->srv = srv;
	list_init(&sc->calls);
	list_init(&sc->parked);
	list_push_back(&srv->conns, &sc->node);
	srv->stats.connections++;
	conn_attach(&sc->base, stream, true);
	if (srv->draining)
		conn_drain(&sc->base, NULL);
	return 0;
}

/* ---- listeners ---- */

struct server_listener {
	struct list node;
	struct listener *l;
};

static void pause_listeners(struct grpc_server *srv, bool paused)
{
	list_each(it, &srv->listeners)
		listener_pause(container_of(it, struct server_listener, node)->l, paused);
}

/* The address without its port. */
static size_t host_len(const char *address)
{
	const char *colon = strrchr(address, ':');
	return colon ? (size_t)(colon - address) : strlen(address);
}

static bool is_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0;
}

/* Connections from the same address, of HTTP/1.1 too; counted by going through all, which only those with such a limit pay. */
static int count_from(const struct grpc_server *srv, const char *address)
{
	size_t n = host_len(address);
	int count = srv->cfg.http1 ? http1_server_count_from(srv->cfg.http1, address, n) : 0;
	for (const struct list *it = srv->conns.next; it != &srv->conns; it = it->next) {
		const char *peer = container_of(it, struct server_conn, node)->base.peer;
		count += host_len(peer) == n && memcmp(peer, address, n) == 0;
	}
	return count;
}

static void on_accept(void *arg, struct stream *stream)
{
	struct grpc_server *srv = arg;
	const char *peer = stream_peer(stream)->address;
	int per_addr = srv->cfg.max_connections_per_addr;
	static const char *const words[] = {
		[GRPC_REFUSED_LIMIT] = "refused: too many connections",
		[GRPC_REFUSED_ADDRESS] = "refused: too many connections from this address",
		[GRPC_REFUSED_MEMORY] = "refused: no memory",
	};
	int refusal = -1;
	if (is_full(srv))
		refusal = GRPC_REFUSED_LIMIT;
	else if (per_addr > 0 && !is_loopback(peer) && count_from(srv, peer) >= per_addr)
		refusal = GRPC_REFUSED_ADDRESS;
	else if (grpc_server_adopt(srv, stream) < 0)
		refusal = GRPC_REFUSED_MEMORY;
	if (refusal >= 0) {
		srv->stats.refused_connections[refusal]++;
		log_line(srv, peer, words[refusal]);
		stream_close(stream);
	}
	if (is_full(srv))
		pause_listeners(srv, true);
}

static void on_refused(void *arg, const char *address, const char *text)
{
	struct grpc_server *srv = arg;
	srv->stats.refused_connections[GRPC_REFUSED_HANDSHAKE]++;
	log_line(srv, address, text);
}

int grpc_server_listen(struct grpc_server *srv, const struct listener_config *lc, struct listener **ret)
{
	struct server_listener *sl = calloc(1, sizeof(*sl));
	if (!sl)
		return -ENOMEM;
	struct listener_config cfg = *lc;
	cfg.on_refused = on_refused;
	cfg.stats = &srv->stats.listeners;
	int rc = listener_new(srv->loop, &cfg, on_accept, srv, &sl->l);
	if (rc < 0) {
		free(sl);
		return rc;
	}
	list_push_back(&srv->listeners, &sl->node);
	*ret = sl->l;
	return 0;
}

static void close_listeners(struct grpc_server *srv)
{
	struct list *it;
	while ((it = list_pop_front(&srv->listeners))) {
		struct server_listener *sl = container_of(it, struct server_listener, node);
		listener_free(sl->l);
		free(sl);
	}
}

/* ---- the server ---- */

static void on_work(struct loop_dirty *d)
{
	struct grpc_server *srv = container_of(d, struct grpc_server, dirty);
	call_work(srv);
	if (!srv->freed)
		check_drained(srv);
}

static void end_calls(struct list *calls, const struct refusal *r)
{
	list_each(it, calls)
		call_end(container_of(it, struct grpc_call, node), r, false);
}

/* First the calls end with UNAVAILABLE; a second later what could not leave is cut. */
static void on_drain_deadline(struct loop_timer *t)
{
	struct grpc_server *srv = container_of(t, struct grpc_server, drain_timer);
	if (srv->drain_cut) {
		while (!list_empty(&srv->conns))
			conn_fail(&container_of(srv->conns.next, struct server_conn, node)->base, "cut: the grace of the drain is over");
		loop_mark(srv->loop, &srv->dirty);
		return;
	}
	srv->drain_cut = true;
	loop_timer_set(t, loop_now_mono_ns(srv->loop) + NS_PER_S);
	struct refusal r;
	(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "the server is shutting down");
	(void)refuse_reason(&r, REASON_MASTER_STOPPING);
	r.retry_after_ms = 1000;
	end_calls(&srv->http1_calls, &r);
	list_each(it, &srv->conns) {
		struct server_conn *sc = container_of(it, struct server_conn, node);
		end_calls(&sc->calls, &r);
		h2_drain_finish(sc->base.h2);
		conn_mark(&sc->base);
	}
}

/* "/package.Service/Method" in cfg->services. */
static const ProtobufCMethodDescriptor *types_of(const struct grpc_server_config *cfg, const char *path)
{
	for (size_t i = 0; i < cfg->n_services; i++) {
		const ProtobufCServiceDescriptor *s = cfg->services[i];
		size_t n = strlen(s->name);
		if (strncmp(path + 1, s->name, n) != 0 || path[1 + n] != '/')
			continue;
		for (unsigned k = 0; k < s->n_methods; k++)
			if (strcmp(s->methods[k].name, path + n + 2) == 0)
				return &s->methods[k];
	}
	return NULL;
}

int grpc_server_new(struct loop *loop, const struct grpc_server_config *cfg, struct grpc_server **ret)
{
	struct grpc_server *srv = calloc(1, sizeof(*srv));
	if (!srv)
		return -ENOMEM;
	srv->entries = calloc(cfg->n_methods + 1, sizeof(*srv->entries));
	if (!srv->entries) {
		free(srv);
		return -ENOMEM;
	}
	srv->loop = loop;
	srv->cfg = *cfg;
	map_init(&srv->methods);
	list_init(&srv->conns);
	list_init(&srv->http1_calls);
	list_init(&srv->listeners);
	list_init(&srv->marked);
	list_init(&srv->spare);
	bodies_init(srv);
	buf_init(&srv->plain_in, MESSAGE_BUF_MAX);
	buf_init(&srv->wire_in, MESSAGE_BUF_MAX);
	buf_init(&srv->wire_out, MESSAGE_BUF_MAX);
	buf_init(&srv->json_out, 2 * GRPC_MESSAGE_MAX);
	buf_init(&srv->gzip_out, MESSAGE_BUF_MAX);
	for (size_t i = 0; i < cfg->n_methods; i++) {
		struct method_entry *e = &srv->entries[i];
		e->method = &cfg->methods[i];
		e->types = types_of(cfg, e->method->path);
		map_put(&srv->methods, &e->node, e->method->path, strlen(e->method->path));
	}
	loop_dirty_init(&srv->dirty, LOOP_WORK, on_work);
	loop_timer_init(&srv->drain_timer, loop, on_drain_deadline);
	if (cfg->http1)
		http1_server_set_service(cfg->http1, &exchange_http1_service, srv);
	*ret = srv;
	return 0;
}

void grpc_server_drain(struct grpc_server *srv, int64_t deadline_mono_ns, void (*on_drained)(void *app))
{
	if (srv->draining)
		return;
	srv->draining = true;
	srv->on_drained = on_drained;
	close_listeners(srv);
	list_each(it, &srv->conns)
		conn_drain(&container_of(it, struct server_conn, node)->base, NULL);
	if (deadline_mono_ns != GRPC_NO_DEADLINE)
		loop_timer_set(&srv->drain_timer, deadline_mono_ns);
	loop_mark(srv->loop, &srv->dirty);
}

static void server_bury(struct loop_grave *g)
{
	struct grpc_server *srv = container_of(g, struct grpc_server, grave);
	call_free_spares(srv);
	buf_done(&srv->plain_in);
	buf_done(&srv->wire_in);
	buf_done(&srv->wire_out);
	buf_done(&srv->json_out);
	buf_done(&srv->gzip_out);
	map_done(&srv->methods);
	free(srv->entries);
	free(srv);
}

void grpc_server_free(struct grpc_server *srv)
{
	if (!srv || srv->freed)
		return;
	srv->freed = true;
	close_listeners(srv);
	loop_timer_stop(&srv->drain_timer);
	while (!list_empty(&srv->conns)) {
		struct server_conn *sc = container_of(srv->conns.next, struct server_conn, node);
		conn_shut(&sc->base);
		detach_calls(&sc->calls);
		conn_bury(sc);
	}
	if (srv->cfg.http1)
		http1_server_set_service(srv->cfg.http1, NULL, NULL);
	detach_calls(&srv->http1_calls);
	call_work(srv);
	loop_unmark(&srv->dirty);
	loop_bury(srv->loop, &srv->grave, server_bury);
}

void grpc_server_stats(const struct grpc_server *srv, struct grpc_server_stats *ret)
{
	*ret = srv->stats;
	for (size_t i = 0; i < GRPC_BODIES; i++)
		ret->body_bytes[i] = (int64_t)srv->bodies[i].held;
	for (const struct list *it = srv->conns.next; it != &srv->conns; it = it->next) {
		const struct conn *c = &container_of(it, struct server_conn, node)->base;
		ret->bytes_in += c->bytes_in;
		ret->bytes_out += c->bytes_out;
	}
}

static void visit_calls(struct list *calls, void (*visit)(void *arg, struct grpc_call *call, void *caller), void *arg)
{
	list_each(it, calls) {
		struct grpc_call *c = container_of(it, struct grpc_call, node);
		if (c->caller && !c->over)
			visit(arg, c, c->caller);
	}
}

void grpc_server_each_call(struct grpc_server *srv, void (*visit)(void *arg, struct grpc_call *call, void *caller), void *arg)
{
	list_each(conn, &srv->conns)
		visit_calls(&container_of(conn, struct server_conn, node)->calls, visit, arg);
	visit_calls(&srv->http1_calls, visit, arg);
}

const struct grpc_method_stats *grpc_server_method_stats(const struct grpc_server *srv, size_t method)
{
	return &srv->entries[method].stats;
}
