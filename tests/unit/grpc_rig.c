#include "tests/unit/grpc_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/unit/tls_files.h"

bool rig_poll;

/* ---- handlers ---- */

static struct rig *rig_of(struct grpc_call *c) { return grpc_call_app(c); }

static void refuse_text(struct grpc_call *c)
{
	struct refusal r;
	(void)refuse(&r, STATUS_FAILED_PRECONDITION, "a.b", "100%% nö: %s", "why");
	r.retry_after_ms = 1500;
	grpc_call_finish(c, &r);
}

static void free_server(struct rig *r)
{
	grpc_server_free(r->server);
	r->server = NULL;
}

static void unary_request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	struct rig *r = rig_of(c);
	r->requests++;
	if (r->hold) {
		r->held = c;
		return;
	}
	if (len && data[0] == '!') {
		refuse_text(c);
		return;
	}
	if (len && data[0] == '~') {
		free_server(r);
		return;
	}
	int rc = grpc_call_send(c, data, len);
	assert_int_equal(rc, 0);
	grpc_call_finish(c, NULL);
}

static void call_end(struct grpc_call *c, bool finished)
{
	struct rig *r = rig_of(c);
	r->ended++;
	r->finished += finished;
	if (r->held == c)
		r->held = NULL;
	if (r->bidi == c)
		r->bidi = NULL;
}

static void bidi_start(struct grpc_call *c)
{
	rig_of(c)->started++;
	rig_of(c)->bidi = c;
}

static void bidi_message(struct grpc_call *c, const uint8_t *data, size_t len)
{
	struct rig *r = rig_of(c);
	r->messages++;
	if (len && data[0] == '!')
		refuse_text(c);
	else if (len && data[0] == '~')
		free_server(r);
	else if (!r->hold_bidi)
		assert_int_equal(grpc_call_send(c, data, len), 0);
}

static void bidi_half_close(struct grpc_call *c)
{
	rig_of(c)->half_closes++;
	grpc_call_finish(c, NULL);
}

static void fill(struct grpc_call *c)
{
	struct rig *r = rig_of(c);
	char bytes[1000];
	memset(bytes, 'f', sizeof(bytes));
	while (r->fill) {
		int rc = grpc_call_send(c, bytes, sizeof(bytes));
		if (rc == -EAGAIN)
			return;
		assert_int_equal(rc, 0);
		r->fill--;
	}
	grpc_call_finish(c, NULL);
}

static void fill_request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	rig_of(c)->requests++;
	fill(c);
}

static void fill_writable(struct grpc_call *c)
{
	rig_of(c)->writable++;
	fill(c);
}

static const struct grpc_method METHODS[] = {
	{ .path = "/test.Echo/Unary", .shape = GRPC_UNARY, .on_request = unary_request, .on_end = call_end },
	{ .path = "/test.Echo/Safe", .shape = GRPC_UNARY, .safe = true, .on_request = unary_request, .on_end = call_end },
	{ .path = "/test.Echo/Bidi",
	  .shape = GRPC_BIDI,
	  .on_start = bidi_start,
	  .on_message = bidi_message,
	  .on_half_close = bidi_half_close,
	  .on_end = call_end },
	{ .path = "/test.Echo/Session",
	  .shape = GRPC_BIDI,
	  .apart = true,
	  .on_start = bidi_start,
	  .on_message = bidi_message,
	  .on_half_close = bidi_half_close,
	  .on_end = call_end },
	{ .path = "/test.Echo/Fill",
	  .shape = GRPC_SERVER_STREAM,
	  .on_request = fill_request,
	  .on_writable = fill_writable,
	  .on_end = call_end },
};

/* ---- the rig ---- */

static void on_log(void *app, const char *peer, const char *text)
{
	struct rig *r = app;
	snprintf(r->log, sizeof(r->log), "%s", text);
}

static int on_authorize(void *app, const struct grpc_request *rq, void **ret_caller, struct refusal *ret)
{
	struct rig *r = app;
	assert_int_equal(rq->authorization == NULL, rq->n_authorization != 1);
	if (r->locked && (rq->n_authorization != 1 || strcmp(rq->authorization, "Bearer secret") != 0))
		return refuse(ret, STATUS_UNAUTHENTICATED, NULL, "%zu headers are not the word", rq->n_authorization);
	r->let_in++;
	*ret_caller = r;
	return 0;
}

static void on_over(void *app, void *caller, enum status_code code)
{
	struct rig *r = app;
	assert_ptr_equal(caller, app);
	r->over++;
	r->over_code = code;
}

static void on_ready(void *arg) { ((struct rig *)arg)->ready = true; }
static void on_goaway(void *arg) { ((struct rig *)arg)->goaway = true; }

static void on_closed(void *arg, const char *text)
{
	struct rig *r = arg;
	r->closed = true;
	snprintf(r->closed_text, sizeof(r->closed_text), "%s", text);
}

static struct tls_context *tls_of(const struct tls_config *cfg)
{
	char err[256] = "";
	struct tls_context *ctx = NULL;
	if (tls_context_new(cfg, err, sizeof(err), &ctx) < 0)
		fail_msg("%s", err);
	return ctx;
}

static void make_tls(struct rig *r)
{
	static const char *const h2[] = { "h2" };
	struct tls_files f;
	tls_files_init(&f);
	tls_files_issue(&f, "server", "ca", "DNS:server.test", "serverAuth", 10);
	char *cert = tls_files_path(&f, "server.pem"), *key = tls_files_path(&f, "server.key"), *ca = tls_files_path(&f, "ca.pem");
	struct tls_config server = { .server = true, .cert_file = cert, .key_file = key, .alpn = h2, .n_alpn = 1 };
	struct tls_config client = { .ca_file = ca, .alpn = h2, .n_alpn = 1 };
	r->server_tls = tls_of(&server);
	r->client_tls = tls_of(&client);
	free(cert);
	free(key);
	free(ca);
	tls_files_done(&f);
}

static void connect_tcp(struct rig *r, const struct grpc_channel_config *cc)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct listener_config lc = { .addr = (struct sockaddr *)&addr, .addr_len = sizeof(addr), .tls = r->server_tls };
	struct sockaddr_storage bound;
	socklen_t len;
	assert_int_equal(grpc_server_listen(r->server, &lc, &r->listener), 0);
	listener_address(r->listener, &bound, &len);
	assert_int_equal(grpc_channel_connect(r->loop, (struct sockaddr *)&bound, len, r->client_tls, "server.test",
					      loop_now_mono_ns(r->loop) + 10 * NS_PER_S, cc, &r->channel), 0);
}

void rig_init(struct rig *r, const struct grpc_limits *server_limits, const struct grpc_limits *client_limits, enum over over)
{
	static const struct stream_events none;
	memset(r, 0, sizeof(*r));
	grpc_limits_default(&r->limits);
	assert_int_equal(loop_new(&r->loop), 0);
	struct grpc_server_config sc = {
		.limits = server_limits ? *server_limits : r->limits,
		.methods = METHODS,
		.n_methods = ARRAY_LEN(METHODS),
		.app = r,
		.max_connections = 100,
		.on_log = on_log,
		.on_authorize = on_authorize,
		.on_over = on_over,
	};
	assert_int_equal(grpc_server_new(r->loop, &sc, &r->server), 0);
	struct grpc_channel_config cc = {
		.limits = client_limits ? *client_limits : r->limits,
		.authority = "test",
		.user_agent = "test/1",
		.bearer_token = "secret",
		.on_ready = on_ready,
		.on_closed = on_closed,
		.on_goaway = on_goaway,
		.arg = r,
	};
	if (over == OVER_TLS)
		make_tls(r);
	if (over != OVER_PAIR) {
		connect_tcp(r, &cc);
	} else {
		struct stream *a, *b;
		assert_int_equal(stream_pair(r->loop, 4096, &none, NULL, &none, NULL, &a, &b), 0);
		assert_int_equal(grpc_server_adopt(r->server, a), 0);
		assert_int_equal(grpc_channel_adopt(r->loop, b, &cc, &r->channel), 0);
	}
	until(r, r->ready);
}

void rig_done(struct rig *r)
{
	grpc_channel_free(r->channel);
	grpc_server_free(r->server);
	loop_turn(r->loop, false);
	loop_turn(r->loop, false);
	loop_free(r->loop);
	tls_context_free(r->server_tls);
	tls_context_free(r->client_tls);
}

/* ---- a client call ---- */

void seen_init(struct seen *s, struct rig *r)
{
	*s = (struct seen){ .rig = r };
	buf_init(&s->bytes, 64 * 1024 * 1024);
}

void seen_done(struct seen *s) { buf_done(&s->bytes); }

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct seen *s = arg;
	assert_false(s->done);
	s->messages++;
	assert_int_equal(buf_add(&s->bytes, data, len), 0);
}

static void on_writable(void *arg) { ((struct seen *)arg)->writable++; }

static void on_status(void *arg, const struct grpc_status *status)
{
	struct seen *s = arg;
	assert_false(s->done);
	s->done = true;
	s->status = *status;
	s->status.details = NULL;
	s->call = NULL;
	if (status->details_len)
		memcpy(s->details, status->details, min_sz(sizeof(s->details), status->details_len));
}

void start(struct seen *s, const char *path, enum grpc_call_kind kind, int64_t deadline_mono_ns)
{
	static const struct grpc_call_events ev = { .on_message = on_message, .on_writable = on_writable, .on_status = on_status };
	assert_int_equal(grpc_call_start(s->rig->channel, path, kind, deadline_mono_ns, &ev, s, &s->call), 0);
}
