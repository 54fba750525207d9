/* Calls over streams of HTTP/2. */
#include "common/grpc/server_impl.h"

static struct h2_stream *stream_of(const struct exchange *x) { return x->stream; }
static struct server_conn *conn_of(const struct exchange *x) { return x->conn; }
static void mark(const struct exchange *x) { conn_mark(&conn_of(x)->base); }

static const char *header(const struct exchange *x, const char *name) { return h2_header(stream_of(x), name); }
static size_t header_count(const struct exchange *x, const char *name) { return h2_header_count(stream_of(x), name); }
static bool oversized(const struct exchange *x) { return h2_oversized(stream_of(x)); }
static const uint8_t *data(const struct exchange *x, size_t *ret_len) { return h2_data(stream_of(x), ret_len); }
static void drop(const struct exchange *x, size_t n) { h2_drop(stream_of(x), n); }
static void credit(const struct exchange *x) { h2_credit(stream_of(x)); }
static void discard(const struct exchange *x) { h2_discard(stream_of(x)); }
static void read_to_end(const struct exchange *x) { h2_read_to_end(stream_of(x)); }

static void respond(const struct exchange *x, const struct h2_header *h, size_t n, bool end)
{
	h2_respond(stream_of(x), h, n, end);
	mark(x);
}

static uint8_t *reserve(const struct exchange *x, size_t n) { return h2_write_reserve(stream_of(x), n); }

static void commit(const struct exchange *x, size_t n)
{
	h2_write_commit(stream_of(x), n);
	mark(x);
}

static void finish(const struct exchange *x, const struct h2_header *trailers, size_t n)
{
	h2_finish(stream_of(x), trailers, n);
	mark(x);
}

static void reset(const struct exchange *x)
{
	h2_reset(stream_of(x), H2_CANCEL);
	mark(x);
}

static size_t queued(const struct exchange *x) { return h2_queued(stream_of(x)); }
static void notify_drained(const struct exchange *x, size_t low) { h2_notify_drained(stream_of(x), low); }
static size_t in_total(const struct exchange *x) { return h2_in_total(conn_of(x)->base.h2); }
static size_t out_total(const struct exchange *x) { return h2_out_total(conn_of(x)->base.h2); }
static struct list *calls(const struct exchange *x) { return &conn_of(x)->calls; }
static struct list *parked(const struct exchange *x) { return &conn_of(x)->parked; }

static const struct stream_peer *peer(const struct exchange *x)
{
	const struct server_conn *sc = x->conn;
	return sc->base.stream ? stream_peer(sc->base.stream) : NULL;
}

static void set_user(const struct exchange *x, struct grpc_call *call) { h2_set_user(stream_of(x), call); }
static void working(const struct exchange *x) { h2_mark_started(stream_of(x)); }
static void proven(const struct exchange *x) { conn_of(x)->base.proven = true; }

static const struct exchange_ops OPS = {
	.http2 = true,
	.header = header,
	.header_count = header_count,
	.oversized = oversized,
	.data = data,
	.drop = drop,
	.credit = credit,
	.discard = discard,
	.read_to_end = read_to_end,
	.respond = respond,
	.reserve = reserve,
	.commit = commit,
	.finish = finish,
	.reset = reset,
	.queued = queued,
	.notify_drained = notify_drained,
	.in_total = in_total,
	.out_total = out_total,
	.calls = calls,
	.parked = parked,
	.peer = peer,
	.set_user = set_user,
	.working = working,
	.proven = proven,
};

void exchange_h2_news(struct server_conn *sc, struct h2_stream *s, unsigned news)
{
	struct exchange x = { .ops = &OPS, .stream = s, .conn = sc };
	call_news(sc->srv, &x, h2_user(s), news);
	if (news & H2_NEWS_CLOSED)
		h2_release(s);
}
