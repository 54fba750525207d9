/* reinsd: puts the parts together, and takes them apart again at SIGTERM.
 *
 *   settings ─▶ loop ─▶ store, lease table ─▶ engine (core) ─▶ services ─▶ gRPC and HTTP/1.1 servers ─▶ listeners */
#include <errno.h>
#include <malloc.h>
#include <nghttp2/nghttp2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/grpc/server.h"
#include "common/log/log.h"
#include "common/loop/loop.h"
#include "common/net/endpoint.h"
#include "common/stream/tls.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/lease/memory/memory.h"
#include "server/lease/redis/redis.h"
#include "server/monitor/monitor.h"
#include "server/move/move.h"
#include "server/notify.h"
#include "server/rpc/rpc.h"
#include "server/stores.h"

#define EXIT_USAGE 64
#define EXIT_UNAVAILABLE 69
#define EXIT_FOR_GOOD 78 /* a later reinsd has the store, or the master id: deploy/systemd does not start this one again */
#define CERT_WARN_DAYS 14
#define REPLY_BYTES ((int64_t)512 << 20) /* answers that wait for who asked, on all connections */
#define GIVE_BACK_NS (10 * NS_PER_S)
#define GIVE_BACK_HANDSHAKES 100

struct server {
	struct server_config cfg;
	struct server_room room;
	struct loop *loop;
	struct tls_context *tls;
	struct store *store;
	struct lease *lease;
	struct engine *engine;
	struct auth *auth;
	struct rpc rpc;
	struct grpc_server *grpc;
	struct http1_server *http1;
	struct monitor monitor;
	struct listener **listeners;
	size_t n_listeners;
	struct loop_signal *on_term, *on_int, *on_hup;
	struct loop_timer give_back;
	int64_t handshakes; /* at the last time */
	bool stopping, lost, for_good;
	int drained; /* of the two servers */
};

static void on_store_state(void *arg, bool up, const char *text)
{
	struct server *s = arg;
	engine_on_store_state(s->engine, up, text);
	if (!up && stores_stays_down(s->cfg.store, s->store)) {
		log_error("store", NULL, "%s: leaving", s->store->newer_schema ? text : "waiting would not help");
		s->lost = true;
		s->for_good = s->store->newer_schema;
		loop_stop(s->loop);
	}
}

static void tell_connection(const char *peer, const char *text)
{
	static struct log_repeats repeats;
	const char *port = strrchr(peer, ':');
	char key[512];
	int64_t dropped;
	/* The port is another each time. */
	snprintf(key, sizeof(key), "%.*s %s", (int)(port ? port - peer : 0), peer, text);
	if (!log_repeats_pass(&repeats, clock_mono_ns(), NS_PER_S / 10, key, &dropped))
		return;
	if (dropped)
		log_info("grpc", NULL, "%s: %s (and %lld times before)", peer, text, (long long)dropped);
	else
		log_info("grpc", NULL, "%s: %s", peer, text);
}

static void on_grpc_log(void *app, const char *peer, const char *text) { tell_connection(peer, text); }
static void on_http1_log(void *app, const char *peer, const char *text) { tell_connection(peer, text); }

static int open_store(struct server *s)
{
	char err[200];
	struct stores_options o = {
		.connections = (int32_t)s->cfg.store_connections,
		.timeout_ns = s->cfg.store_timeout_ns,
		.max_queued = s->cfg.store_queue,
		.max_queued_bytes = s->cfg.store_queue_bytes,
		.lost_limit = (int32_t)s->cfg.lost_limit,
		.max_log_sum = s->cfg.max_log_sum,
		.log_retention_ns = s->cfg.log_retention_ns,
		.event_retention_ns = s->cfg.event_retention_ns,
		.ignore_moved = s->cfg.ignore_moved,
		.on_state = on_store_state,
		.on_state_arg = s,
	};
	int rc = stores_open(s->loop, s->cfg.store, &o, err, sizeof(err), &s->store);
	if (rc)
		fprintf(stderr, "reinsd: store: \"%s\": %s\n", s->cfg.store, err);
	return rc;
}

static void on_lease_answers(void *arg, const struct lease_answer *answers, size_t n)
{
	engine_lease_events.on_preempted(((struct server *)arg)->engine, answers, n);
}

static void on_lease_hb(void *arg, const struct lease_hb *hb)
{
	engine_lease_events.on_hb(((struct server *)arg)->engine, hb);
}

static void on_lease_state(void *arg, bool up, const char *text)
{
	engine_on_lease_state(((struct server *)arg)->engine, up, text);
}

static void on_lease_page(void *arg, const struct lease_page *page)
{
	engine_lease_events.on_page(((struct server *)arg)->engine, page);
}

static const struct lease_events lease_events = { .on_preempted = on_lease_answers, .on_hb = on_lease_hb, .on_page = on_lease_page,
						  .on_state = on_lease_state };

static int open_lease(struct server *s)
{
	if (strcmp(s->cfg.lease, "memory") == 0) {
		struct lease_memory_config mc = { .task_key_ttl_ns = s->cfg.task_key_ttl_ns };
		s->lease = lease_memory_new(s->loop, &mc, &lease_events, s);
		return s->lease ? 0 : -ENOMEM;
	}
	char err[200];
	struct lease_redis_config rc = {
		.url = s->cfg.lease,
		.prefix = s->cfg.redis_prefix,
		.task_key_ttl_ns = s->cfg.task_key_ttl_ns,
		.timeout_ns = s->cfg.redis_timeout_ns,
	};
	int r = lease_redis_new(s->loop, &rc, &lease_events, s, err, sizeof(err), &s->lease);
	if (r)
		fprintf(stderr, "reinsd: lease: %s\n", err);
	return r;
}

static void default_master_id(struct server *s)
{
	if (s->cfg.master_id)
		return;
	char host[LEASE_MASTER_MAX + 1] = "";
	if (gethostname(host, sizeof(host) - 1) || !*host)
		snprintf(host, sizeof(host), "master");
	s->cfg.master_id = xstrdup(host);
}

static void on_replaced(void *arg)
{
	struct server *s = arg;
	log_error("master", NULL, "leaving: masters that share a store need a --master-id each");
	s->lost = true;
	s->for_good = true; /* or two of one id, started again each time, would end each other for ever */
	loop_stop(s->loop);
}

static int open_engine(struct server *s)
{
	struct engine_config ec = {
		.loop = s->loop,
		.master_id = s->cfg.master_id,
		.lost_limit = (int32_t)s->cfg.lost_limit,
		.store = s->store,
		.lease = s->lease,
		.on_replaced = on_replaced,
		.arg = s,
	};
	core_config_default(&ec.core);
	ec.core.heartbeat_ns = s->cfg.heartbeat_interval_ns;
	ec.core.lease_ttl_ns = s->cfg.lease_ttl_ns;
	ec.core.heartbeat_rate = s->cfg.heartbeat_rate;
	ec.core.accept_timeout_ns = s->cfg.accept_timeout_ns;
	ec.core.disconnect_grace_ns = s->cfg.disconnect_grace_ns;
	ec.core.reconcile_ns = s->cfg.reconcile_interval_ns;
	ec.core.recovery_ns = s->cfg.recovery_interval_ns;
	ec.core.master_ttl_ns = s->cfg.master_ttl_ns;
	ec.core.master_ttl_exclusive_ns = s->cfg.master_ttl_exclusive_ns;
	ec.core.alone = s->store->alone;
	ec.core.max_workers = (int32_t)s->cfg.max_workers;
	ec.core.max_queues = (int32_t)s->cfg.max_queues;
	ec.core.window = (int32_t)s->cfg.window;
	int rc = engine_new(&ec, &s->engine);
	if (rc == 0 && lease_is_up(s->lease))
		engine_on_lease_state(s->engine, true, "in memory");
	return rc;
}

static int open_auth(struct server *s)
{
	char err[600];
	const struct auth_config ac = {
		.loop = s->loop,
		.tokens_file = s->cfg.tokens_file,
		.certificates = s->cfg.client_ca != NULL,
		.both = s->cfg.require_both,
		.open_reflection = s->cfg.open_reflection,
		.hosts = (const char *const *)s->cfg.hosts.at,
		.n_hosts = s->cfg.hosts.len,
		.audit_file = s->cfg.audit_log,
	};
	int rc = auth_new(&ac, err, sizeof(err), &s->auth);
	if (rc)
		fprintf(stderr, "reinsd: %s\n", err);
	return rc;
}

static void open_rpc(struct server *s)
{
	s->rpc = (struct rpc){
		.engine = s->engine,
		.loop = s->loop,
		.store_wait_ns = 2 * s->cfg.store_timeout_ns,
		.started_wall_us = clock_wall_us(),
		.auth = s->auth,
		.store_kind = stores_kind(s->cfg.store),
		.lease_kind = strcmp(s->cfg.lease, "memory") == 0 ? "memory" : "redis",
		.limits = {
			.message_bytes = s->cfg.max_message,
			.payload_bytes = s->cfg.max_payload,
			.result_bytes = s->cfg.max_result,
			.error_bytes = s->cfg.max_error,
			.command_env_bytes = s->cfg.max_command_env,
			.params_bytes = s->cfg.max_params,
			.log_bytes = s->cfg.max_log,
			.metrics_points = s->cfg.max_metrics,
			.tasks_per_submit = s->cfg.max_submit,
			.held_bytes = s->cfg.worker_queue_bytes,
			.buffer_bytes = s->cfg.worker_queue_bytes + s->cfg.store_queue_bytes + REPLY_BYTES,
			.max_watchers = s->cfg.max_watchers,
			.watch_patience_ns = s->cfg.watch_patience_ns,
		},
	};
	rpc_init(&s->rpc);
}

static int open_http1(struct server *s)
{
	struct http1_server_config hc = {
		.routes = monitor_routes,
		.n_routes = monitor_n_routes,
		.about = "Methods are called by POST /package.Service/Method, as reins.v1.TaskService/SubmitTask; besides there are /healthz, "
			 "/readyz and /metrics.",
		.app = &s->monitor,
		.on_log = on_http1_log,
	};
	http1_limits_default(&hc.limits);
	return http1_server_new(s->loop, &hc, &s->http1);
}

static int open_grpc(struct server *s)
{
	struct grpc_server_config gc = {
		.methods = rpc_methods,
		.n_methods = rpc_n_methods,
		.services = rpc_services,
		.n_services = rpc_n_services,
		.app = &s->rpc,
		.max_connections = s->room.connections,
		.max_connections_per_addr = (int)s->cfg.max_connections_per_addr,
		.on_log = on_grpc_log,
		.on_authorize = rpc_authorize,
		.on_over = rpc_over,
		.cors_origins = (const char *const *)s->cfg.cors_origins.at,
		.n_cors_origins = s->cfg.cors_origins.len,
		.http1 = s->http1,
	};
	grpc_limits_default(&gc.limits);
	gc.limits.max_message = (size_t)s->cfg.max_message;
	gc.limits.all_recv = (size_t)s->cfg.max_body_bytes;
	grpc_limits_set_keepalive(&gc.limits, s->cfg.keepalive_ns);
	gc.limits.ping_min_ns = s->cfg.ping_min_ns;
	gc.limits.max_age_ns = s->cfg.conn_age_ns;
	gc.limits.max_age_grace_ns = s->cfg.conn_age_grace_ns;
	gc.limits.idle_ns = s->cfg.conn_idle_ns;
	int rc = grpc_server_new(s->loop, &gc, &s->grpc);
	s->rpc.grpc = s->grpc;
	return rc;
}

static int open_services(struct server *s)
{
	open_rpc(s);
	int rc = open_http1(s);
	if (rc == 0)
		rc = open_grpc(s);
	if (rc)
		return rc;
	s->monitor = (struct monitor){ .rpc = &s->rpc, .lease = s->lease, .grpc = s->grpc, .http1 = s->http1,
					 .open_metrics = s->cfg.open_metrics, .body_limit = s->cfg.max_body_bytes };
	monitor_init(&s->monitor, (size_t)s->cfg.metrics_queues);
	return 0;
}

/* What everybody forgets is that certificates end. */
static void tell_own_end(const struct server *s)
{
	int64_t left_us = tls_context_ends_wall_us(s->tls) - clock_wall_us();
	int64_t days = left_us / (86400 * INT64_C(1000000));
	if (left_us <= 0)
		log_error("tls", NULL, "%s has expired: clients refuse it; renew it, then SIGHUP", s->cfg.tls_cert);
	else if (days < CERT_WARN_DAYS)
		log_warn("tls", NULL, "%s ends in %lld days: renew it, then SIGHUP", s->cfg.tls_cert, (long long)days);
	else
		log_info("tls", NULL, "%s is good for %lld days", s->cfg.tls_cert, (long long)days);
}

static int listen_on(struct server *s, const char *text)
{
	struct endpoint e;
	struct endpoint_addr addr;
	char err[200];
	if (endpoint_parse(text, 7346, &e, err, sizeof(err)))
		return -EINVAL; /* server_config_check has said so */
	int rc = endpoint_literal(&e, &addr);
	if (rc) {
		fprintf(stderr, "reinsd: listen: %s: an address is wanted, not a name\n", text);
		return -EINVAL;
	}
	if (e.tls && !s->tls) {
		static const char *const alpn[] = { "h2", "http/1.1" };
		struct tls_config tc = {
			.server = true,
			.cert_file = s->cfg.tls_cert,
			.key_file = s->cfg.tls_key,
			.ca_file = s->cfg.client_ca,
			.require_client_cert = s->cfg.client_ca && (!s->cfg.tokens_file || s->cfg.require_both),
			.alpn = alpn,
			.n_alpn = ARRAY_LEN(alpn),
		};
		if (tls_context_new(&tc, err, sizeof(err), &s->tls)) {
			fprintf(stderr, "reinsd: listen: %s: %s\n", text, err);
			return -EINVAL;
		}
		tell_own_end(s);
	}
	struct listener_config lc = {
		.addr = (const struct sockaddr *)&addr.addr,
		.addr_len = addr.len,
		.tls = e.tls ? s->tls : NULL,
		.backlog = 1024,
		.handshake_timeout_ns = 10 * NS_PER_S,
		.max_handshakes = s->room.handshakes,
		.accept_per_turn = 64,
	};
	struct listener *l;
	rc = grpc_server_listen(s->grpc, &lc, &l);
	if (rc) {
		fprintf(stderr, "reinsd: listen: %s: %s\n", text, strerror(-rc));
		return rc;
	}
	struct sockaddr_storage bound;
	socklen_t len;
	listener_address(l, &bound, &len);
	uint16_t port = bound.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)&bound)->sin6_port)
		      : bound.ss_family == AF_INET  ? ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port)
						    : 0;
	if (port)
		e.port = port;
	char shown[300];
	endpoint_format(&e, shown, sizeof(shown));
	log_info("master", NULL, "listening on %s", shown);
	return 0;
}

/* ---- ends ---- */

static void drained_one(struct server *s)
{
	if (++s->drained == 2)
		loop_stop(s->loop);
}

static void on_grpc_drained(void *app) { drained_one(container_of(app, struct server, rpc)); }
static void on_http1_drained(void *app) { drained_one(container_of(app, struct server, monitor)); }

static void on_stop(void *arg, int signo)
{
	struct server *s = arg;
	if (s->stopping) {
		log_warn("master", NULL, "second signal: leaving at once");
		loop_stop(s->loop);
		return;
	}
	s->stopping = true;
	log_info("master", NULL, "signal %d: finishing what is in flight; workers go on and find another master, or this one again",
		 signo);
	notify_stopping();
	int64_t deadline = loop_now_mono_ns(s->loop) + s->cfg.drain_timeout_ns;
	/* Before answers are sent that are to be its connections' last. Its calls end at the deadline with the others, and have the
	 * same second to say so. */
	http1_server_drain(s->http1, deadline + NS_PER_S, on_http1_drained);
	rpc_drain(&s->rpc);
	grpc_server_drain(s->grpc, deadline, on_grpc_drained);
}

static void reload_auth(struct server *s)
{
	char err[600];
	if (auth_reopen_audit(s->auth, err, sizeof(err)))
		log_error("master", NULL, "SIGHUP: the audit log of before stays in use: %s", err);
	if (auth_reload(s->auth, err, sizeof(err))) {
		log_error("master", NULL, "SIGHUP: the old tokens stay in use: %s", err);
		return;
	}
	if (s->cfg.tokens_file)
		log_info("master", NULL, "SIGHUP: tokens read again; open streams whose right is gone end");
	rpc_check_rights(&s->rpc);
}

/* Each by itself: a fault in the one does not keep the other from its change. */
static void on_reload(void *arg, int signo)
{
	struct server *s = arg;
	char err[200];
	reload_auth(s);
	if (!s->tls) {
		log_info("master", NULL, "SIGHUP: no certificates are in use");
	} else if (tls_context_reload(s->tls, err, sizeof(err))) {
		log_error("master", NULL, "SIGHUP: the old certificates stay in use: %s", err);
	} else {
		log_info("master", NULL, "SIGHUP: certificates read again, for new connections");
		tell_own_end(s);
	}
}

static int setup_log(const struct server_config *cfg)
{
	enum log_level level;
	if (log_parse_level(cfg->log_level, &level)) {
		fprintf(stderr, "reinsd: log-level: \"%s\" is not debug, info, warn or error\n", cfg->log_level);
		return -EINVAL;
	}
	bool json = strcmp(cfg->log_format, "json") == 0;
	if (!json && strcmp(cfg->log_format, "text") != 0) {
		fprintf(stderr, "reinsd: log-format: \"%s\" is not text or json\n", cfg->log_format);
		return -EINVAL;
	}
	log_setup(level, json ? LOG_JSON : LOG_TEXT);
	return 0;
}

/* Ten thousand workers need ten thousand sockets. How many there may be now. */
static int64_t raise_fd_limit(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return INT64_MAX;
	if (r.rlim_cur < r.rlim_max) {
		rlim_t before = r.rlim_cur;
		r.rlim_cur = r.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &r) < 0)
			r.rlim_cur = before;
	}
	return r.rlim_cur >= (rlim_t)INT64_MAX ? INT64_MAX : (int64_t)r.rlim_cur; /* RLIM_INFINITY too */
}

static void make_room(struct server *s)
{
	int64_t descriptors = raise_fd_limit();
	s->room = server_config_room(&s->cfg, descriptors);
	if (s->room.connections < s->cfg.max_connections)
		log_warn("master", NULL, "max-connections: %d instead of %lld, since this process may have %lld file descriptors only "
			 "(LimitNOFILE, ulimit -n)", s->room.connections, (long long)s->cfg.max_connections, (long long)descriptors);
}

/* A handshake takes 50 KiB for a moment, many at once take what is then full of holes.  The whole pages among these go back to
 * the system: after many, since to look for them takes milliseconds. */
static void on_give_back(struct loop_timer *t)
{
	struct server *s = container_of(t, struct server, give_back);
	struct grpc_server_stats stats;
	grpc_server_stats(s->grpc, &stats);
	const struct listener_stats *l = &stats.listeners;
	if (l->handshaking == 0 && l->handshakes + l->failed - s->handshakes >= GIVE_BACK_HANDSHAKES) {
		int64_t began = clock_mono_ns();
		malloc_trim(0);
		s->handshakes = l->handshakes + l->failed;
		log_debug("master", NULL, "memory was given back in %lld us", (long long)((clock_mono_ns() - began) / NS_PER_US));
	}
	loop_timer_set(t, loop_now_mono_ns(s->loop) + GIVE_BACK_NS);
}

static int start(struct server *s)
{
	int rc;
	make_room(s);
	default_master_id(s);
	if ((rc = loop_new(&s->loop)) || (rc = open_store(s)) || (rc = open_lease(s)) || (rc = open_engine(s)) ||
	    (rc = open_auth(s)) || (rc = open_services(s)))
		return rc;
	if ((rc = loop_signal_new(s->loop, SIGTERM, on_stop, s, &s->on_term)) ||
	    (rc = loop_signal_new(s->loop, SIGINT, on_stop, s, &s->on_int)) ||
	    (rc = loop_signal_new(s->loop, SIGHUP, on_reload, s, &s->on_hup)))
		return rc;
	log_info("master", NULL, "reinsd %s (nghttp2 %s) master=%s", REINS_VERSION, nghttp2_version(0)->version_str,
		 s->cfg.master_id);
	for (size_t i = 0; i < s->cfg.listen.len; i++)
		if ((rc = listen_on(s, s->cfg.listen.at[i])))
			return rc;
	loop_timer_init(&s->give_back, s->loop, on_give_back);
	loop_timer_set(&s->give_back, loop_now_mono_ns(s->loop) + GIVE_BACK_NS);
	notify_ready();
	return 0;
}

static void stop(struct server *s)
{
	if (s->give_back.loop)
		loop_timer_stop(&s->give_back);
	grpc_server_free(s->grpc);
	http1_server_free(s->http1);
	store_free(s->store);
	monitor_done(&s->monitor);
	lease_free(s->lease);
	engine_free(s->engine);
	if (s->rpc.engine)
		rpc_done(&s->rpc);
	auth_free(s->auth);
	loop_signal_free(s->on_term);
	loop_signal_free(s->on_int);
	loop_signal_free(s->on_hup);
	tls_context_free(s->tls);
	if (s->loop) {
		loop_turn(s->loop, false);
		loop_free(s->loop);
	}
	settings_done(&server_settings, &s->cfg);
}

/* False: it has said why. */
static bool config_good(const struct server_config *cfg)
{
	char err[300];
	if (server_config_check(cfg, err, sizeof(err))) {
		fprintf(stderr, "reinsd: %s\n", err);
		return false;
	}
	return setup_log(cfg) == 0;
}

int main(int argc, char **argv)
{
	struct server s = { .loop = NULL };
	switch (settings_load(&server_settings, argc, argv, &s.cfg, NULL, NULL)) {
	case SETTINGS_EXIT_0: return 0;
	case SETTINGS_EXIT_64: return EXIT_USAGE;
	case SETTINGS_RUN: break;
	}
	bool good = config_good(&s.cfg);
	if (!good || s.cfg.move_from) {
		int code = good ? move_run(s.cfg.move_from, s.cfg.store) : EXIT_USAGE;
		settings_done(&server_settings, &s.cfg);
		return code;
	}
	int rc = start(&s);
	if (rc == 0)
		loop_run(s.loop);
	stop(&s);
	if (rc == 0)
		log_info("master", NULL, "stopped");
	if (rc == 0)
		return s.for_good ? EXIT_FOR_GOOD : s.lost ? EXIT_UNAVAILABLE : 0;
	return rc == -EINVAL ? EXIT_USAGE : EXIT_UNAVAILABLE;
}
