/* A client's bytes into a gRPC server with echoing methods: the whole way from the preface to the handlers.
 * The first byte says in what pieces the rest comes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/grpc/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int live; /* calls whose on_end is due */

static void request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	live++;
	(void)grpc_call_header(c, "authorization");
	int rc = grpc_call_send(c, data, len);
	if (rc < 0 && rc != -EMSGSIZE)
		abort();
	grpc_call_finish(c, NULL);
}

static void start(struct grpc_call *c) { live++; }

static void message(struct grpc_call *c, const uint8_t *data, size_t len)
{
	if (grpc_call_send(c, data, len) == -EAGAIN)
		grpc_call_pause(c, true);
}

static void writable(struct grpc_call *c) { grpc_call_pause(c, false); }
static void half_close(struct grpc_call *c) { grpc_call_finish(c, NULL); }
static void end(struct grpc_call *c, bool finished) { live--; }

static const struct grpc_method METHODS[] = {
	{ .path = "/e/U", .shape = GRPC_UNARY, .on_request = request, .on_end = end },
	{ .path = "/e/B",
	  .shape = GRPC_BIDI,
	  .on_start = start,
	  .on_message = message,
	  .on_half_close = half_close,
	  .on_writable = writable,
	  .on_end = end },
};

/* What is no HTTP/2 comes with all that was read of it, from its first byte on. */
static const uint8_t *sent;
static size_t n_sent;
static void other(void *app, struct stream *s, const void *data, size_t len)
{
	if (!len || len > n_sent || memcmp(data, sent, len) != 0)
		abort();
	stream_close(s);
}

static const struct stream_events none;

static void drain_output(struct stream *s)
{
	uint8_t bytes[4096];
	while (stream_read(s, bytes, sizeof(bytes)) > 0)
		;
}

static void feed(struct loop *loop, struct stream *s, const uint8_t *data, size_t len, size_t piece)
{
	while (len) {
		struct iovec iov = { (void *)(uintptr_t)data, min_sz(len, piece) };
		ssize_t n = stream_writev(s, &iov, 1);
		if (n < 0 && n != -EAGAIN)
			return;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
		loop_turn(loop, false);
		drain_output(s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const size_t pieces[] = { 65536, 1, 9, 100, 1000, 16393, 24, 7 };
	static struct loop *loop;
	static struct grpc_server *server;
	if (!loop) {
		struct grpc_server_config cfg = { .methods = METHODS, .n_methods = ARRAY_LEN(METHODS), .max_connections = 10,
						  .on_http1 = other };
		grpc_limits_default(&cfg.limits);
		cfg.limits.max_message = 1000;
		cfg.limits.max_streams = 20;
		cfg.limits.stream_queue = 2000;
		cfg.limits.conn_queue = 4000;
		cfg.limits.conn_recv = 5000;
		cfg.limits.stream_window = 3000;
		if (loop_new(&loop) < 0 || grpc_server_new(loop, &cfg, &server) < 0)
			abort();
	}
	if (!len)
		return 0;
	struct stream *ours, *theirs;
	if (stream_pair(loop, 65536, &none, NULL, &none, NULL, &ours, &theirs) < 0 || grpc_server_adopt(server, theirs) < 0)
		abort();
	sent = data + 1;
	n_sent = len - 1;
	feed(loop, ours, data + 1, len - 1, pieces[data[0] % ARRAY_LEN(pieces)]);
	for (int i = 0; i < 4; i++) {
		loop_turn(loop, false);
		drain_output(ours);
	}
	stream_close(ours);
	struct grpc_server_stats st;
	for (int i = 0; i < 20; i++) {
		loop_turn(loop, false);
		grpc_server_stats(server, &st);
		if (!st.connections && !live)
			return 0;
	}
	abort(); /* a connection or a call outlived its client */
}
