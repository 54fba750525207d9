#include "server/monitor/monitor.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "server/monitor/exposition.h"

#define TEXT_MAX ((size_t)1 << 20)

void monitor_init(struct monitor *m, size_t max_queues)
{
	buf_init(&m->text, TEXT_MAX);
	counts_init(&m->counts, max_queues);
}

void monitor_done(struct monitor *m)
{
	buf_done(&m->text);
	counts_done(&m->counts);
}

static void say(struct http1_reply *r, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void say(struct http1_reply *r, int status, const char *fmt, ...)
{
	char text[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->status = buf_addf(&r->body, "%s\n", text) == 0 ? status : 500;
}

static void on_healthz(void *app, struct http1_reply *r) { say(r, 200, "ok"); }

static void on_readyz(void *app, struct http1_reply *r)
{
	const struct monitor *m = app;
	const struct engine *e = m->rpc->engine;
	const struct availability *lease = engine_lease_state(e);
	const char *why = engine_not_ready(e);
	char since[CLOCK_TEXT_LEN + 1];
	if (m->rpc->draining) {
		say(r, 503, "not ready: the master stops");
	} else if (why) {
		clock_format_wall(engine_store_state(e)->since_wall_us, since);
		say(r, 503, "not ready: store %s since %s: %s", engine_store_state(e)->up ? "up" : "down", since, why);
	} else if (!lease->up) {
		clock_format_wall(lease->since_wall_us, since);
		say(r, 200, "ready\ndegraded: lease table down since %s: %s", since, lease->text);
	} else {
		say(r, 200, "ready");
	}
}

/* False: refused. */
static bool may_see_metrics(const struct monitor *m, struct http1_reply *r)
{
	static const struct grpc_method metrics = { .path = "/metrics" };
	const struct grpc_request rq = { .method = &metrics, .peer = r->asker->peer, .authorization = r->asker->authorization,
					 .n_authorization = r->asker->n_authorization, .host = r->asker->host };
	struct refusal refusal = { .code = STATUS_OK };
	if (!m->rpc->auth || m->open_metrics || auth_may(m->rpc->auth, &rq, ROLE_READER | ROLE_OPERATOR, &refusal) == 0)
		return true;
	say(r, refusal.code == STATUS_UNAUTHENTICATED ? 401 : refusal.code == STATUS_PERMISSION_DENIED ? 403 : 429, "%s", refusal.message);
	if (r->status == 401)
		r->challenge = "Bearer";
	return false;
}

static void on_metrics(void *app, struct http1_reply *r)
{
	struct monitor *m = app;
	int64_t now = loop_now_mono_ns(m->rpc->loop);
	if (!may_see_metrics(m, r))
		return;
	if (!buf_len(&m->text) || now - m->text_mono_ns >= MONITOR_FRESH_NS) {
		buf_clear(&m->text);
		m->text_mono_ns = now;
		if (monitor_metrics(m, &m->text))
			buf_clear(&m->text);
	}
	r->type = EXPOSITION_TYPE;
	if (!buf_len(&m->text) || buf_add(&r->body, buf_head(&m->text), buf_len(&m->text)))
		r->status = 500;
}

const struct http1_route monitor_routes[] = {
	{ "/healthz", HTTP1_GET | HTTP1_HEAD, on_healthz },
	{ "/readyz", HTTP1_GET | HTTP1_HEAD, on_readyz },
	{ "/metrics", HTTP1_GET | HTTP1_HEAD, on_metrics },
};
const size_t monitor_n_routes = ARRAY_LEN(monitor_routes);
