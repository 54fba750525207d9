/* States: idle (stopped) → resolving → connecting → open, and from each of the last three back to
 * `waiting`.  Every change of connection happens in `step`, run by a dirty mark: never inside a callback of
 * the channel that it frees. */
#include "worker/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/auth/token.h"
#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/net/endpoint.h"
#include "common/stream/tls.h"
#include "worker/backoff.h"

#define DEFAULT_PORT 7346
#define CONNECT_NS (2 * NS_PER_S)
#define RESOLVE_NS (5 * NS_PER_S)
#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS NS_PER_S  /* until a Welcome has said what L is */
#define RARELY_MIN_NS NS_PER_S   /* before the next round, if a master has refused us in this one */
#define ELSEWHERE_NS (30 * NS_PER_S) /* between two departures: all the others may be no better */
#define CERT_WARN_US (14 * 86400 * INT64_C(1000000))
#define STREAM_QUEUE (128 * 1024) /* what may be in front of a heartbeat: two pieces of log */

enum link_state { LINK_IDLE, LINK_WAITING, LINK_RESOLVING, LINK_CONNECTING, LINK_OPEN };

struct link {
	struct link_config cfg;
	struct endpoint *servers;
	size_t n_servers, server;   /* index of the one tried */
	struct endpoint_addr addrs[ENDPOINT_MAX_ADDRS];
	size_t n_addrs, addr;
	struct tls_context *tls;    /* NULL: no server asks for it */
	enum link_state state;
	struct grpc_channel *channel;
	struct endpoint_query *query;
	struct backoff backoff;
	struct loop_timer timer;    /* waiting: the next try; resolving, connecting, open without an answer: the limit */
	struct loop_dirty dirty;
	bool drop;                  /* the present try or connection has ended */
	bool welcomed;
	char where[320];
	struct log_repeats repeats;
	char token[TOKEN_SHOWN_MAX + 1]; /* of the file, as it was read last; "": none */
	bool rarely;                /* the end of this one is a refusal that a person has to put right */
	bool refused;               /* so was one of this round */
	int64_t elsewhere_mono_ns;  /* no departure before */
};

static void drop_now(struct link *l)
{
	bool had = l->channel != NULL;
	loop_timer_stop(&l->timer);
	endpoint_query_cancel(l->query);
	l->query = NULL;
	grpc_channel_free(l->channel);
	l->channel = NULL;
	l->drop = false;
	if (had)
		l->cfg.on_lost(l->cfg.arg);
}

static void wait_for_next_round(struct link *l)
{
	l->state = LINK_WAITING;
	l->server = 0;
	l->n_addrs = 0;
	int64_t least = l->refused ? RARELY_MIN_NS : 0;
	l->refused = false;
	loop_timer_set(&l->timer, loop_now_mono_ns(l->cfg.loop) + least + backoff_next(&l->backoff));
}

/* A master that is away for a day is a thousand lines, not a hundred thousand. */
static void say(struct link *l, const char *why)
{
	char text[600];
	int64_t left_out;
	enum log_level level = l->rarely ? LOG_ERROR : LOG_WARN;
	snprintf(text, sizeof(text), "%s: %s", l->where, why);
	if (!log_repeats_pass(&l->repeats, loop_now_mono_ns(l->cfg.loop), 0, text, &left_out))
		return;
	if (left_out)
		log_line(level, "link", NULL, "%s; trying on (%lld times before)", text, (long long)left_out);
	else
		log_line(level, "link", NULL, "%s; trying on", text);
}

/* Ends the present try from wherever we are; `step` does the rest. */
static void fail(struct link *l, const char *why)
{
	if (l->drop || l->state == LINK_IDLE || l->state == LINK_WAITING)
		return;
	say(l, why);
	l->drop = true;
	loop_mark(l->cfg.loop, &l->dirty);
}

static void on_channel_ready(void *arg)
{
	struct link *l = arg;
	l->state = LINK_OPEN;
	l->cfg.on_ready(l->cfg.arg, l->channel);
}

static void on_channel_closed(void *arg, const char *text)
{
	fail(arg, text);
}

static void warn_of_end(const struct link *l)
{
	int64_t ends_us = tls_context_ends_wall_us(l->tls), left_us = ends_us - clock_wall_us();
	if (ends_us && left_us <= 0)
		log_error("tls", NULL, "%s has expired: masters refuse it; renew it", l->cfg.tls_cert);
	else if (ends_us && left_us < CERT_WARN_US)
		log_warn("tls", NULL, "%s ends in %lld hours: renew it", l->cfg.tls_cert, (long long)(left_us / 3600000000));
}

/* What is to be shown, NULL: nothing. A file that can't be read now may have said something good before. */
static const char *token_of(struct link *l)
{
	char err[512];
	if (!l->cfg.token_file)
		return l->cfg.token;
	if (token_read_file(l->cfg.token_file, l->token, err, sizeof(err)))
		log_error("link", NULL, "the token of before stays in use: %s", err);
	return l->token;
}

static void connect_to(struct link *l)
{
	if (l->servers[l->server].tls)
		link_reload(l);
	const struct endpoint *e = &l->servers[l->server];
	const struct endpoint_addr *a = &l->addrs[l->addr];
	char authority[sizeof(e->host) + 16];
	if (e->is_unix)
		snprintf(authority, sizeof(authority), "localhost");
	else
		snprintf(authority, sizeof(authority), strchr(e->host, ':') ? "[%s]:%u" : "%s:%u", e->host, e->port);
	struct grpc_channel_config cfg = {.authority = authority,
		.user_agent = "reins-worker/" REINS_VERSION, .bearer_token = token_of(l),
		.on_ready = on_channel_ready, .on_closed = on_channel_closed, .arg = l};
	int64_t deadline = loop_now_mono_ns(l->cfg.loop) + CONNECT_NS;
	grpc_limits_default(&cfg.limits);
	cfg.limits.stream_queue = STREAM_QUEUE;
	cfg.limits.max_message = GRPC_MESSAGE_MAX;
	l->state = LINK_CONNECTING;
	loop_timer_set(&l->timer, deadline);
	int r = grpc_channel_connect(l->cfg.loop, (const struct sockaddr *)&a->addr, a->len, e->tls ? l->tls : NULL,
				     e->tls ? e->host : NULL, deadline, &cfg, &l->channel);
	if (r < 0)
		fail(l, strerror(-r));
}

static void on_resolved(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n)
{
	struct link *l = arg;
	l->query = NULL;
	if (err < 0) {
		fail(l, text);
		return;
	}
	l->n_addrs = min_sz(n, ENDPOINT_MAX_ADDRS);
	memcpy(l->addrs, addrs, l->n_addrs * sizeof(*addrs));
	l->addr = 0;
	connect_to(l);
}

/* The present server from its beginning. */
static void begin(struct link *l)
{
	const struct endpoint *e = &l->servers[l->server];
	endpoint_format(e, l->where, sizeof(l->where));
	l->n_addrs = 1;
	l->addr = 0;
	if (endpoint_literal(e, &l->addrs[0]) == 0) {
		connect_to(l);
		return;
	}
	l->n_addrs = 0;
	l->state = LINK_RESOLVING;
	loop_timer_set(&l->timer, loop_now_mono_ns(l->cfg.loop) + RESOLVE_NS);
	int r = endpoint_resolve(l->cfg.loop, e, on_resolved, l, &l->query);
	if (r < 0)
		fail(l, strerror(-r));
}

static void step(struct loop_dirty *d)
{
	struct link *l = container_of(d, struct link, dirty);
	if (!l->drop)
		return;
	drop_now(l);
	if (l->state == LINK_IDLE)
		return;
	if (l->welcomed) {
		l->welcomed = false;
		wait_for_next_round(l);
	} else if (l->addr + 1 < l->n_addrs) {
		l->addr++;
		connect_to(l);
	} else if (l->server + 1 < l->n_servers) {
		l->server++;
		begin(l);
	} else {
		wait_for_next_round(l);
	}
}

static void on_timer(struct loop_timer *t)
{
	struct link *l = container_of(t, struct link, timer);
	switch (l->state) {
	case LINK_IDLE:
		break;
	case LINK_WAITING:
		begin(l);
		break;
	case LINK_RESOLVING:
		fail(l, "the name was not resolved in time");
		break;
	case LINK_CONNECTING:
		fail(l, "no connection in time");
		break;
	case LINK_OPEN:
		fail(l, "no answer in time");
		break;
	}
}

static int parse_servers(struct link *l, char *err, size_t cap)
{
	bool tls = false;
	l->n_servers = l->cfg.servers->len;
	l->servers = xcalloc(l->n_servers, sizeof(*l->servers));
	for (size_t i = 0; i < l->n_servers; i++) {
		char text[256];
		if (endpoint_parse(l->cfg.servers->at[i], DEFAULT_PORT, &l->servers[i], text, sizeof(text)) < 0) {
			snprintf(err, cap, "--server: %s", text);
			return -1;
		}
		tls |= l->servers[i].tls;
		if ((l->cfg.token || l->cfg.token_file) && !l->cfg.insecure && !l->servers[i].tls && !endpoint_is_loopback(&l->servers[i])) {
			snprintf(err, cap, "--server: %.200s is clear text, and whoever is on the way could read the token: use https://, or "
				 "say --insecure", l->cfg.servers->at[i]);
			return -1;
		}
	}
	if (!tls)
		return 0;
	static const char *const alpn[] = {"h2"};
	const struct tls_config cfg = {.cert_file = l->cfg.tls_cert, .key_file = l->cfg.tls_key,
		.ca_file = l->cfg.tls_ca, .alpn = alpn, .n_alpn = ARRAY_LEN(alpn)};
	if (tls_context_new(&cfg, err, cap, &l->tls) < 0)
		return -1;
	warn_of_end(l);
	return 0;
}

void link_reload(struct link *l)
{
	char err[512];
	int r = l->tls ? tls_context_refresh(l->tls, err, sizeof(err)) : 0;
	if (r < 0) {
		log_error("tls", NULL, "the old certificates stay in use: %s", err);
	} else if (r > 0) {
		log_info("tls", NULL, "certificates read again");
		warn_of_end(l);
	}
}

int link_new(const struct link_config *cfg, char *err, size_t cap, struct link **ret)
{
	struct link *l = xcalloc(1, sizeof(*l));
	l->cfg = *cfg;
	backoff_init(&l->backoff, BACKOFF_FIRST_NS, BACKOFF_MAX_NS, rng_process_next());
	loop_timer_init(&l->timer, cfg->loop, on_timer);
	loop_dirty_init(&l->dirty, LOOP_WORK, step);
	if (parse_servers(l, err, cap) < 0 ||
	    (cfg->token_file && token_read_file(cfg->token_file, l->token, err, cap) < 0)) {
		link_free(l);
		return -1;
	}
	*ret = l;
	return 0;
}

void link_free(struct link *l)
{
	if (!l)
		return;
	explicit_bzero(l->token, sizeof(l->token));
	loop_timer_stop(&l->timer);
	loop_unmark(&l->dirty);
	endpoint_query_cancel(l->query);
	grpc_channel_free(l->channel);
	tls_context_free(l->tls);
	free(l->servers);
	free(l);
}

void link_start(struct link *l)
{
	l->server = 0;
	begin(l);
}

void link_answered(struct link *l)
{
	if (l->state == LINK_OPEN)
		loop_timer_stop(&l->timer);
}

void link_welcomed(struct link *l, int64_t lease_ns)
{
	l->welcomed = true;
	backoff_set_max(&l->backoff, lease_ns / 10);
	backoff_reset(&l->backoff);
	memset(&l->repeats, 0, sizeof(l->repeats));
}

void link_drop(struct link *l, enum link_retry retry, const char *why)
{
	if (retry == LINK_RARELY) {
		backoff_to_max(&l->backoff);
		l->refused = true;
	}
	l->rarely = retry == LINK_RARELY;
	fail(l, why);
	l->rarely = false;
}

void link_elsewhere(struct link *l, const char *why)
{
	int64_t now = loop_now_mono_ns(l->cfg.loop);
	if (l->state != LINK_OPEN || l->drop || (l->n_servers == 1 && l->n_addrs <= 1) || now < l->elsewhere_mono_ns)
		return;
	l->elsewhere_mono_ns = now + ELSEWHERE_NS;
	l->welcomed = false; /* as if it had not taken us: the round goes on */
	fail(l, why);
}

void link_stop(struct link *l)
{
	l->state = LINK_IDLE;
	l->drop = true;
	loop_timer_stop(&l->timer);
	loop_mark(l->cfg.loop, &l->dirty);
}
