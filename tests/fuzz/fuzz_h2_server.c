/* A client's bytes into a server with echoing methods: the whole way from the preface to the handlers, or, where it is none, from
 * HTTP/1.1 to them, in every dialect.  The first byte says in what pieces the rest comes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/grpc/server.h"
#include "grpc/health/v1/health.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int live; /* calls whose on_end is due */

static void request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	live++;
	(void)grpc_call_header(c, "authorization");
	int rc = grpc_call_send(c, data, len);
	if (rc < 0 && rc != -EMSGSIZE && rc != -EPIPE) /* an echo that is no JSON of its type ends the call */
		abort();
	grpc_call_finish(c, NULL);
}

static void stream(struct grpc_call *c, const uint8_t *data, size_t len)
{
	live++;
	for (int i = 0; i < 3; i++)
		(void)!grpc_call_send(c, data, len);
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
	/* with types, for JSON */
	{ .path = "/grpc.health.v1.Health/Check", .shape = GRPC_UNARY, .safe = true, .on_request = request, .on_end = end },
	{ .path = "/grpc.health.v1.Health/Watch", .shape = GRPC_SERVER_STREAM, .on_request = stream, .on_end = end },
	{ .path = "/e/B",
	  .shape = GRPC_BIDI,
	  .on_start = start,
	  .on_message = message,
	  .on_half_close = half_close,
	  .on_writable = writable,
	  .on_end = end },
};

static const ProtobufCServiceDescriptor *const SERVICES[] = { &grpc__health__v1__health__descriptor };
static const char *const ORIGINS[] = { "http://a" };

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
	static struct http1_server *http1;
	if (!loop) {
		struct http1_server_config h1 = { .about = "fuzz" };
		http1_limits_default(&h1.limits);
		if (loop_new(&loop) < 0 || http1_server_new(loop, &h1, &http1) < 0)
			abort();
		struct grpc_server_config cfg = { .methods = METHODS, .n_methods = ARRAY_LEN(METHODS), .max_connections = 10,
						  .services = SERVICES, .n_services = 1, .cors_origins = ORIGINS, .n_cors_origins = 1,
						  .http1 = http1 };
		grpc_limits_default(&cfg.limits);
		cfg.limits.max_message = 1000;
		cfg.limits.max_streams = 20;
		cfg.limits.stream_queue = 2000;
		cfg.limits.conn_queue = 4000;
		cfg.limits.conn_recv = 5000;
		cfg.limits.stream_window = 3000;
		if (grpc_server_new(loop, &cfg, &server) < 0)
			abort();
	}
	if (!len)
		return 0;
	struct stream *ours, *theirs;
	if (stream_pair(loop, 65536, &none, NULL, &none, NULL, &ours, &theirs) < 0 || grpc_server_adopt(server, theirs) < 0)
		abort();
	feed(loop, ours, data + 1, len - 1, pieces[data[0] % ARRAY_LEN(pieces)]);
	for (int i = 0; i < 4; i++) {
		loop_turn(loop, false);
		drain_output(ours);
	}
	stream_close(ours);
	struct grpc_server_stats st;
	struct http1_stats h1_st;
	for (int i = 0; i < 20; i++) {
		loop_turn(loop, false);
		grpc_server_stats(server, &st);
		http1_server_stats(http1, &h1_st);
		if (!st.connections && !h1_st.connections && !live)
			return 0;
	}
	abort(); /* a connection or a call outlived its client */
}
