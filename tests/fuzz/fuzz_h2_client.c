/* A server's bytes into a channel with calls on it: HTTP/2, headers and trailers, statuses with their details, and what is told of
 * them to a person.  The first byte says in what pieces the rest comes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/status_text.h"
#include "common/grpc/client.h"
#include "common/pb/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int open_calls;
static bool channel_over;

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	volatile uint8_t sum = 0;
	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + data[i]);
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct client_error e;
	open_calls--;
	status_text(status, &e);
	if (status->code != STATUS_OK && !e.message[0])
		abort(); /* nothing is told */
	if (!utf8_valid(e.message, strlen(e.message)) || strpbrk(e.message, "\n\033") || !utf8_valid(e.reason, strlen(e.reason)))
		abort();
}

static void on_ready(void *arg) {}
static void on_closed(void *arg, const char *text) { channel_over = true; }
static void on_goaway(void *arg) {}

static void swallow(struct stream *s)
{
	uint8_t bytes[4096];
	while (stream_read(s, bytes, sizeof(bytes)) > 0)
		;
}

static void begin(struct grpc_channel *ch, enum grpc_call_kind kind, int messages)
{
	static const struct grpc_call_events events = { .on_message = on_message, .on_status = on_status };
	struct grpc_client_call *c;
	if (grpc_call_start(ch, "/e/U", kind, GRPC_NO_DEADLINE, &events, NULL, &c) < 0)
		abort();
	open_calls++;
	for (int i = 0; i < messages; i++)
		if (grpc_client_send(c, "x", 1) < 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const size_t pieces[] = { 65536, 1, 9, 100, 1000, 16393, 24, 7 };
	static const struct stream_events none;
	static struct loop *loop;
	if (!loop && loop_new(&loop) < 0)
		abort();
	if (!len)
		return 0;
	struct grpc_channel_config cfg = { .authority = "a", .on_ready = on_ready, .on_closed = on_closed, .on_goaway = on_goaway };
	struct stream *ours, *theirs;
	struct grpc_channel *ch;
	grpc_limits_default(&cfg.limits);
	cfg.limits.max_message = 1000;
	channel_over = false;
	if (stream_pair(loop, 65536, &none, NULL, &none, NULL, &ours, &theirs) < 0 || grpc_channel_adopt(loop, theirs, &cfg, &ch) < 0)
		abort();
	begin(ch, GRPC_CALL_UNARY, 1);
	begin(ch, GRPC_CALL_STREAM, 2);
	begin(ch, GRPC_CALL_UNARY, 1);
	loop_turn(loop, false);
	size_t piece = pieces[data[0] % ARRAY_LEN(pieces)];
	for (size_t at = 1; at < len && !channel_over;) {
		struct iovec iov = { (void *)(uintptr_t)(data + at), min_sz(len - at, piece) };
		ssize_t n = stream_writev(ours, &iov, 1);
		if (n < 0 && n != -EAGAIN)
			break;
		at += n > 0 ? (size_t)n : 0;
		loop_turn(loop, false);
		swallow(ours);
	}
	for (int i = 0; i < 4; i++) {
		loop_turn(loop, false);
		swallow(ours);
	}
	stream_close(ours);
	for (int i = 0; i < 4; i++)
		loop_turn(loop, false);
	grpc_channel_free(ch);
	for (int i = 0; i < 2; i++)
		loop_turn(loop, false);
	if (open_calls)
		abort(); /* a call outlived its channel */
	return 0;
}
