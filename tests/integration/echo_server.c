/* Echoes bytes over gRPC, for clients that we did not write: echo_server [--port N] [--max-message N] [--max-streams N]
 *   /test.Echo/Unary   the request's bytes; "sleep" is never answered; "fail" is refused with details
 *   /test.Echo/Bidi    each message as it comes; OK after the client's half-close
 * Prints "listening PORT"; SIGTERM drains, then it prints "drained" and ends. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "common/grpc/server.h"

struct echo {
	struct loop *loop;
	struct grpc_server *server;
	struct loop_signal *term;
	int64_t live; /* calls whose on_end is due */
};

static void unary_request(struct grpc_call *c, const uint8_t *data, size_t len)
{
	struct echo *e = grpc_call_app(c);
	e->live++;
	if (len == 5 && memcmp(data, "sleep", 5) == 0)
		return;
	if (len == 4 && memcmp(data, "fail", 4) == 0) {
		struct refusal r;
		(void)refuse(&r, STATUS_INVALID_ARGUMENT, "spec.argv", "%s", "100% wröng\n");
		grpc_call_finish(c, &r);
		return;
	}
	if (grpc_call_send(c, data, len) < 0)
		fprintf(stderr, "send failed\n");
	grpc_call_finish(c, NULL);
}

static void unary_end(struct grpc_call *c, bool finished)
{
	((struct echo *)grpc_call_app(c))->live--;
}

static void bidi_start(struct grpc_call *c) { ((struct echo *)grpc_call_app(c))->live++; }

static void bidi_message(struct grpc_call *c, const uint8_t *data, size_t len)
{
	struct refusal r;
	/* A client that sends and never reads is told so rather than waited for. */
	if (grpc_call_send(c, data, len) == 0)
		return;
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "the echo's queue is full");
	grpc_call_finish(c, &r);
}

static void bidi_half_close(struct grpc_call *c) { grpc_call_finish(c, NULL); }

static const struct grpc_method METHODS[] = {
	{ .path = "/test.Echo/Unary", .shape = GRPC_UNARY, .on_request = unary_request, .on_end = unary_end },
	{ .path = "/test.Echo/Bidi",
	  .shape = GRPC_BIDI,
	  .on_start = bidi_start,
	  .on_message = bidi_message,
	  .on_half_close = bidi_half_close,
	  .on_end = unary_end },
};

static void on_drained(void *app)
{
	struct echo *e = app;
	grpc_server_free(e->server);
	printf("drained, %lld calls left\n", (long long)e->live);
	loop_signal_free(e->term);
	loop_stop(e->loop);
}

static void on_term(void *arg, int signo)
{
	struct echo *e = arg;
	grpc_server_drain(e->server, loop_now_mono_ns(e->loop) + 2 * NS_PER_S, on_drained);
}

static void on_log(void *app, const char *peer, const char *text) { fprintf(stderr, "%s: %s\n", peer, text); }

static int64_t option(int argc, char **argv, const char *name, int64_t value)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], name) == 0 && num_parse_i64(argv[i + 1], &value) < 0)
			fprintf(stderr, "%s: not a number\n", name);
	return value;
}

int main(int argc, char **argv)
{
	struct echo e = { 0 };
	struct grpc_server_config cfg = { .methods = METHODS, .n_methods = ARRAY_LEN(METHODS), .app = &e, .on_log = on_log };
	grpc_limits_default(&cfg.limits);
	cfg.max_connections = 1000;
	cfg.limits.max_message = (size_t)option(argc, argv, "--max-message", (int64_t)cfg.limits.max_message);
	cfg.limits.max_streams = (uint32_t)option(argc, argv, "--max-streams", cfg.limits.max_streams);
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	addr.sin_port = htons((uint16_t)option(argc, argv, "--port", 0));
	struct listener_config lc = { .addr = (struct sockaddr *)&addr, .addr_len = sizeof(addr) };
	struct listener *listener;
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	if (loop_new(&e.loop) < 0 || grpc_server_new(e.loop, &cfg, &e.server) < 0 ||
	    grpc_server_listen(e.server, &lc, &listener) < 0 || loop_signal_new(e.loop, SIGTERM, on_term, &e, &e.term) < 0) {
		fprintf(stderr, "can't listen\n");
		return 1;
	}
	listener_address(listener, &bound, &len);
	printf("listening %d\n", ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port));
	fflush(stdout);
	loop_run(e.loop);
	loop_turn(e.loop, false);
	loop_free(e.loop);
	return 0;
}
