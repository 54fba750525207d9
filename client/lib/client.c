/* Owns the connection (a channel, or the look-up and the attempts that lead to one) and the one call in
 * progress.  Callbacks only take notes; wait_until turns the loop until the notes say that all is done, and
 * only then is anything freed.
 *
 * Connection: NONE -> (look-up) -> CONNECTING, address by address -> READY -> CLOSED, which counts as NONE. */
#include "client/lib/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/status_text.h"
#include "common/grpc/client.h"
#include "common/net/endpoint.h"
#include "common/pb/pb.h"
#include "common/stream/tls.h"

#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
/* While another address is left to try. */
#define ADDRESS_TIMEOUT_NS (3 * NS_PER_S)
/* A server or a network that is gone is noticed by this much silence. */
#define KEEPALIVE_NS (30 * NS_PER_S)

enum link_state { LINK_NONE, LINK_CONNECTING, LINK_READY, LINK_CLOSED };

struct client {
	struct loop *loop;
	struct endpoint endpoint;
	struct tls_context *tls;
	char server[300];
	char authority[300];
	char *token, *user_agent;
	int64_t connect_timeout_ns, keepalive_ns;
	struct loop_timer timer;
	bool interrupted;

	struct grpc_channel *channel;
	enum link_state link;
	bool going_away;
	char link_text[512];

	struct endpoint_query *query;
	int query_err;
	struct endpoint_addr addrs[ENDPOINT_MAX_ADDRS];
	size_t n_addrs;
};

/* The call in progress; lives on the stack of run_call. */
struct call {
	struct client *c;
	const struct client_method *m;
	struct grpc_client_call *handle;
	bool (*on_message)(void *arg, const void *message);
	void *arg;
	void *reply;   /* unary */
	bool stopped;  /* by the callback */
	bool got_message;
	bool bad_reply;
	bool done;
	bool unprocessed;
	struct client_error error;
};

static int fail(struct client_error *e, enum status_code code, bool connection, const char *fmt, ...) PRINTF_LIKE(4, 5);

static int fail(struct client_error *e, enum status_code code, bool connection, const char *fmt, ...)
{
	char text[sizeof e->message];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	*e = (struct client_error){ .code = code, .connection = connection };
	status_text_clean(text, e->message, sizeof e->message);
	return -1;
}

static int fail_interrupted(struct client_error *e)
{
	fail(e, STATUS_CANCELLED, false, "interrupted");
	e->interrupted = true;
	return -1;
}

/* The timer only wakes the loop; deadlines are read off the clock. */
static void on_timer(struct loop_timer *t)
{
	(void)t;
}

static void wake_at(struct client *c, int64_t deadline_mono_ns)
{
	if (deadline_mono_ns == CLIENT_NO_DEADLINE)
		loop_timer_stop(&c->timer);
	else
		loop_timer_set(&c->timer, deadline_mono_ns);
}

static bool expired(const struct client *c, int64_t deadline_mono_ns)
{
	return deadline_mono_ns != CLIENT_NO_DEADLINE && loop_now_mono_ns(c->loop) >= deadline_mono_ns;
}

/* ---- making and ending a client ---- */

static int make_tls(struct client *c, const struct client_config *cfg, struct client_error *ret_err)
{
	static const char *const alpn[] = { "h2" };
	char err[256];
	if (!c->endpoint.tls) {
		if (cfg->ca_file || cfg->cert_file || cfg->key_file)
			return fail(ret_err, STATUS_INVALID_ARGUMENT, false,
				    "certificates are given but %s is a clear-text address; write https://HOST:PORT",
				    c->server);
		return 0;
	}
	const struct tls_config tls = { .cert_file = cfg->cert_file,
					.key_file = cfg->key_file,
					.ca_file = cfg->ca_file,
					.alpn = alpn,
					.n_alpn = ARRAY_LEN(alpn) };
	if (tls_context_new(&tls, err, sizeof err, &c->tls) < 0)
		return fail(ret_err, STATUS_INVALID_ARGUMENT, false, "%s", err);
	return 0;
}

int client_new(struct loop *loop, const struct client_config *cfg, struct client_error *ret_err, struct client **ret)
{
	struct client *c = xcalloc(1, sizeof *c);
	char err[256];
	c->loop = loop;
	loop_timer_init(&c->timer, loop, on_timer);
	if (endpoint_parse(cfg->server, CLIENT_DEFAULT_PORT, &c->endpoint, err, sizeof err) < 0) {
		fail(ret_err, STATUS_INVALID_ARGUMENT, false, "server address \"%.200s\": %s", cfg->server, err);
		client_free(c);
		return -1;
	}
	endpoint_format(&c->endpoint, c->server, sizeof c->server);
	if (cfg->token && !cfg->insecure && !c->endpoint.tls && !endpoint_is_loopback(&c->endpoint)) {
		fail(ret_err, STATUS_INVALID_ARGUMENT, false, "%s is clear text, and whoever is on the way could read the token: use "
		     "https://, or say --insecure", c->server);
		client_free(c);
		return -1;
	}
	if (c->endpoint.is_unix)
		snprintf(c->authority, sizeof c->authority, "localhost");
	else
		snprintf(c->authority, sizeof c->authority, "%s", c->server + (c->endpoint.tls ? strlen("tls://") : 0));
	if (make_tls(c, cfg, ret_err) < 0) {
		client_free(c);
		return -1;
	}
	c->token = cfg->token ? xstrdup(cfg->token) : NULL;
	c->user_agent = xstrdup(cfg->user_agent ? cfg->user_agent : "reins-client/" REINS_VERSION);
	c->keepalive_ns = cfg->keepalive_ns ? cfg->keepalive_ns : KEEPALIVE_NS;
	c->connect_timeout_ns = cfg->connect_timeout_ns ? cfg->connect_timeout_ns : CONNECT_TIMEOUT_NS;
	*ret = c;
	return 0;
}

static void drop_channel(struct client *c)
{
	grpc_channel_free(c->channel);
	c->channel = NULL;
	c->link = LINK_NONE;
	c->going_away = false;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	drop_channel(c);
	endpoint_query_cancel(c->query);
	loop_timer_stop(&c->timer);
	tls_context_free(c->tls);
	free(c->token);
	free(c->user_agent);
	free(c);
}

const char *client_server(const struct client *c)
{
	return c->server;
}

void client_interrupt(struct client *c)
{
	c->interrupted = true;
	loop_timer_set(&c->timer, 0);
}

int client_sleep(struct client *c, int64_t ns)
{
	int64_t until = loop_now_mono_ns(c->loop) + ns;
	wake_at(c, until);
	while (!c->interrupted && !expired(c, until))
		loop_turn(c->loop, true);
	loop_timer_stop(&c->timer);
	return c->interrupted ? -1 : 0;
}

/* ---- connecting ---- */

static void on_resolved(void *arg, int err, const char *text, const struct endpoint_addr *addrs, size_t n)
{
	struct client *c = arg;
	c->query = NULL;
	c->query_err = err;
	c->n_addrs = n;
	if (err)
		snprintf(c->link_text, sizeof c->link_text, "%s", text);
	else
		memcpy(c->addrs, addrs, n * sizeof *addrs);
}

static int resolve(struct client *c, int64_t deadline, struct client_error *ret_err)
{
	int err = endpoint_resolve(c->loop, &c->endpoint, on_resolved, c, &c->query);
	if (err)
		return fail(ret_err, STATUS_UNAVAILABLE, true, "%s: %s", c->server, strerror(-err));
	wake_at(c, deadline);
	while (c->query && !c->interrupted && !expired(c, deadline))
		loop_turn(c->loop, true);
	if (c->query) {
		endpoint_query_cancel(c->query);
		c->query = NULL;
		if (c->interrupted)
			return fail_interrupted(ret_err);
		return fail(ret_err, STATUS_UNAVAILABLE, true, "%s: no answer from the name server", c->server);
	}
	if (c->query_err)
		return fail(ret_err, STATUS_UNAVAILABLE, true, "%s", c->link_text);
	return 0;
}

static void on_ready(void *arg)
{
	struct client *c = arg;
	c->link = LINK_READY;
}

static void on_closed(void *arg, const char *text)
{
	struct client *c = arg;
	c->link = LINK_CLOSED;
	snprintf(c->link_text, sizeof c->link_text, "%s", text ? text : "connection closed");
}

static void on_goaway(void *arg)
{
	struct client *c = arg;
	c->going_away = true;
}

static int connect_to(struct client *c, const struct endpoint_addr *addr, int64_t deadline, struct client_error *ret_err)
{
	struct grpc_channel_config cfg = {
		.authority = c->authority,
		.user_agent = c->user_agent,
		.bearer_token = c->token,
		.on_ready = on_ready,
		.on_closed = on_closed,
		.on_goaway = on_goaway,
		.arg = c,
	};
	grpc_limits_default(&cfg.limits);
	grpc_limits_set_keepalive(&cfg.limits, c->keepalive_ns);
	cfg.limits.idle_ns = 0;
	cfg.limits.max_message = GRPC_MESSAGE_MAX;
	c->link = LINK_CONNECTING;
	int err = grpc_channel_connect(c->loop, (const struct sockaddr *)&addr->addr, addr->len, c->tls,
				       c->tls ? c->endpoint.host : NULL, deadline, &cfg, &c->channel);
	if (err) {
		c->channel = NULL;
		c->link = LINK_NONE;
		return fail(ret_err, STATUS_UNAVAILABLE, true, "%s: %s", c->server, strerror(-err));
	}
	wake_at(c, deadline);
	while (c->link == LINK_CONNECTING && !c->interrupted && !expired(c, deadline))
		loop_turn(c->loop, true);
	if (c->link == LINK_READY)
		return 0;
	if (c->interrupted)
		fail_interrupted(ret_err);
	else if (c->link == LINK_CLOSED)
		/* Which of the addresses it was may be said there already. */
		fail(ret_err, STATUS_UNAVAILABLE, true, "%s%s%s", strstr(c->link_text, c->server) ? "" : c->server,
		     strstr(c->link_text, c->server) ? "" : ": ", c->link_text);
	else
		fail(ret_err, STATUS_UNAVAILABLE, true, "%s: no answer in time", c->server);
	drop_channel(c);
	return -1;
}

static int connect_any(struct client *c, int64_t deadline, struct client_error *ret_err)
{
	int64_t last = min_i64(deadline, loop_now_mono_ns(c->loop) + c->connect_timeout_ns);
	if (resolve(c, last, ret_err) < 0)
		return -1;
	for (size_t i = 0; i < c->n_addrs; i++) {
		int64_t until = last;
		if (i + 1 < c->n_addrs)
			until = min_i64(last, loop_now_mono_ns(c->loop) + ADDRESS_TIMEOUT_NS);
		if (connect_to(c, &c->addrs[i], until, ret_err) == 0)
			return 0;
		if (ret_err->interrupted || expired(c, last))
			break;
	}
	return -1;
}

static int ensure_connected(struct client *c, int64_t deadline, struct client_error *ret_err)
{
	/* Reads what came meanwhile (an end of the connection), and the clock, which stands while nobody turns the loop. */
	loop_turn(c->loop, false);
	if (c->interrupted)
		return fail_interrupted(ret_err);
	if (c->channel && c->link == LINK_READY && !c->going_away)
		return 0;
	drop_channel(c);
	if (connect_any(c, deadline, ret_err) == 0)
		return 0;
	if (ret_err->code == STATUS_UNAVAILABLE && expired(c, deadline))
		ret_err->code = STATUS_DEADLINE_EXCEEDED;
	return -1;
}

/* ---- calls ---- */

static void on_call_message(void *arg, const uint8_t *data, size_t len)
{
	struct call *call = arg;
	struct refusal r;
	if (call->stopped || call->bad_reply)
		return;
	void *message = pb_unpack(call->m->reply, data, len, NULL, &r);
	call->got_message = true;
	if (!message) {
		call->bad_reply = true;
		fail(&call->error, STATUS_INTERNAL, false, "the server's answer cannot be read: %s", r.message);
	} else if (!call->on_message) {
		pb_free(call->reply);
		call->reply = message;
		return;
	} else {
		call->stopped = !call->on_message(call->arg, message);
		pb_free(message);
	}
	if (call->stopped || call->bad_reply)
		grpc_client_cancel(call->handle);
}

static void on_call_status(void *arg, const struct grpc_status *status)
{
	struct call *call = arg;
	call->handle = NULL;
	call->done = true;
	call->unprocessed = status->unprocessed;
	if (call->stopped || call->bad_reply)
		return;
	status_text(status, &call->error);
	call->error.connection = status->code == STATUS_UNAVAILABLE && status->unprocessed;
}

static size_t pack(const void *msg, uint8_t *out)
{
	return protobuf_c_message_pack(msg, out);
}

/* One try over the connection as it is. */
static int run_call(struct call *call, const void *request, int64_t deadline, struct client_error *ret_err)
{
	static const struct grpc_call_events events = { .on_message = on_call_message, .on_status = on_call_status };
	struct client *c = call->c;
	int err = grpc_call_start(c->channel, call->m->path, call->on_message ? GRPC_CALL_STREAM : GRPC_CALL_UNARY, deadline,
				  &events, call, &call->handle);
	if (err) {
		call->unprocessed = true;
		return fail(ret_err, STATUS_UNAVAILABLE, true, "%s: the connection ended", c->server);
	}
	err = grpc_client_send_packed(call->handle, protobuf_c_message_get_packed_size(request), pack, request);
	if (err)
		grpc_client_cancel(call->handle);
	else
		grpc_client_half_close(call->handle);
	bool cancelled = err != 0;
	loop_timer_stop(&c->timer);
	while (!call->done) {
		if (c->interrupted && !cancelled) {
			cancelled = true;
			grpc_client_cancel(call->handle);
		}
		loop_turn(c->loop, true);
	}
	if (err && !call->unprocessed)
		return fail(ret_err, STATUS_RESOURCE_EXHAUSTED, false, "the request cannot be sent: %s", strerror(-err));
	if (c->interrupted)
		return fail_interrupted(ret_err);
	*ret_err = call->error;
	return call->stopped || call->error.code == STATUS_OK ? 0 : -1;
}

static int call_with_retry(struct call *call, const void *request, int64_t deadline, struct client_error *ret_err)
{
	for (int tries = 0;; tries++) {
		if (ensure_connected(call->c, deadline, ret_err) < 0)
			return -1;
		call->done = call->unprocessed = false;
		call->error = (struct client_error){ 0 };
		if (run_call(call, request, deadline, ret_err) == 0)
			return 0;
		bool lost = call->c->link == LINK_CLOSED || call->c->going_away || call->unprocessed;
		if (lost)
			drop_channel(call->c);
		bool again = call->unprocessed || (lost && call->m->repeatable && !call->got_message);
		if (tries || ret_err->code != STATUS_UNAVAILABLE || !again)
			return -1;
	}
}

int client_call(struct client *c, const struct client_method *m, const void *request, int64_t deadline_mono_ns,
		void **ret_reply, struct client_error *ret_err)
{
	struct call call = { .c = c, .m = m };
	if (call_with_retry(&call, request, deadline_mono_ns, ret_err) < 0) {
		pb_free(call.reply);
		return -1;
	}
	if (!call.reply)
		return fail(ret_err, STATUS_INTERNAL, false, "the server sent no answer");
	*ret_reply = call.reply;
	return 0;
}

int client_stream(struct client *c, const struct client_method *m, const void *request, int64_t deadline_mono_ns,
		  bool (*on_message)(void *arg, const void *message), void *arg, struct client_error *ret_err)
{
	struct call call = { .c = c, .m = m, .on_message = on_message, .arg = arg };
	return call_with_retry(&call, request, deadline_mono_ns, ret_err);
}
