/* Calls over exchanges of HTTP/1.1. */
#include "common/base/num.h"
#include "common/grpc/server_impl.h"

_Static_assert((int)HTTP1_NEWS_HEADERS == (int)H2_NEWS_HEADERS && (int)HTTP1_NEWS_DATA == (int)H2_NEWS_DATA &&
		       (int)HTTP1_NEWS_END == (int)H2_NEWS_END && (int)HTTP1_NEWS_DRAINED == (int)H2_NEWS_DRAINED &&
		       (int)HTTP1_NEWS_CLOSED == (int)H2_NEWS_CLOSED,
	       "news are the same for all transports");

static struct http1_exchange *of(const struct exchange *x) { return x->stream; }

static const char *header(const struct exchange *x, const char *name) { return http1_header(of(x), name); }
static size_t header_count(const struct exchange *x, const char *name) { return http1_header_count(of(x), name); }
static bool oversized(const struct exchange *x) { return false; } /* refused before */
static const uint8_t *data(const struct exchange *x, size_t *ret_len) { return http1_data(of(x), ret_len); }
static void drop(const struct exchange *x, size_t n) { http1_drop(of(x), n); }
static void credit(const struct exchange *x) { http1_credit(of(x)); }
static void discard(const struct exchange *x) { http1_discard(of(x)); }

static void respond(const struct exchange *x, const struct h2_header *h, size_t n, bool end)
{
	struct http1_field f[REPLY_FIELDS_MAX + 8];
	size_t f_n = 0;
	int64_t status;
	if (num_parse_i64(h[0].value, &status) < 0)
		status = 500; /* the first is :status, of our own making */
	for (size_t i = 1; i < n && f_n < ARRAY_LEN(f); i++)
		f[f_n++] = (struct http1_field){ h[i].name, h[i].value, h[i].value_len };
	http1_respond(of(x), (int)status, f, f_n, end);
}

static uint8_t *reserve(const struct exchange *x, size_t n) { return http1_write_reserve(of(x), n); }
static void commit(const struct exchange *x, size_t n) { http1_write_commit(of(x), n); }
static void finish(const struct exchange *x, const struct h2_header *trailers, size_t n) { http1_finish(of(x)); }
static void reset(const struct exchange *x) { http1_reset(of(x)); }
static size_t queued(const struct exchange *x) { return http1_queued(of(x)); }
static void notify_drained(const struct exchange *x, size_t low) { http1_notify_drained(of(x), low); }

/* It is alone on its connection. */
static size_t in_total(const struct exchange *x)
{
	size_t n;
	(void)http1_data(of(x), &n);
	return n;
}

static struct list *calls(const struct exchange *x) { return &((struct grpc_server *)x->conn)->http1_calls; }
static struct list *parked(const struct exchange *x) { return NULL; }
static const struct stream_peer *peer(const struct exchange *x) { return x->stream ? http1_peer(of(x)) : NULL; }
static void set_user(const struct exchange *x, struct grpc_call *call) { http1_set_user(of(x), call); }
static void nothing(const struct exchange *x) {}

static const struct exchange_ops OPS = {
	.header = header,
	.header_count = header_count,
	.oversized = oversized,
	.data = data,
	.drop = drop,
	.credit = credit,
	.discard = discard,
	.read_to_end = discard,
	.respond = respond,
	.reserve = reserve,
	.commit = commit,
	.finish = finish,
	.reset = reset,
	.queued = queued,
	.notify_drained = notify_drained,
	.in_total = in_total,
	.out_total = queued,
	.calls = calls,
	.parked = parked,
	.peer = peer,
	.set_user = set_user,
	.working = nothing,
	.proven = nothing,
};

static void on_news(void *arg, struct http1_exchange *e, unsigned news)
{
	struct grpc_server *srv = arg;
	struct exchange x = { .ops = &OPS, .stream = e, .conn = srv };
	struct grpc_call *c = http1_user(e);
	call_news(srv, &x, c, news);
	if ((news & HTTP1_NEWS_CLOSED) && c)
		call_detach(c);
}

static void on_left(void *arg) { server_conn_left(arg); }

const struct http1_service exchange_http1_service = { .on_news = on_news, .on_left = on_left };
