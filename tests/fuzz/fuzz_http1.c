/* A client's bytes into an HTTP/1.1 server, in pieces whose size the first byte says.  Checked besides memory: no request is
 * answered that the strict check would have a second parser read otherwise, and no connection outlives its client. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/http1/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void page(void *app, struct http1_reply *r)
{
	if (buf_add(&r->body, "page", 4) < 0)
		abort();
}

static const struct http1_route ROUTES[] = { { "/p", HTTP1_GET | HTTP1_HEAD, page } };
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

/* A head that passes has nothing in it that may be read in two ways. */
static void check_head(const uint8_t *data, size_t len)
{
	struct http1_head h;
	const char *why;
	size_t scanned = 0;
	ssize_t n = http1_head_end((const char *)data, len, &scanned);
	if (n <= 0 || http1_head_parse((const char *)data, (size_t)n, &h, &why))
		return;
	const char *head = (const char *)data;
	if (h.path < head || h.path + h.path_len > head + n)
		if (h.path_len != 1 || *h.path != '/')
			abort();
	for (ssize_t i = 0; i < n; i++) {
		if (head[i] == '\0' || (head[i] == '\n' && (!i || head[i - 1] != '\r')))
			abort();
		if (i && head[i - 1] == '\n' && (head[i] == ' ' || head[i] == '\t'))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const size_t pieces[] = { 65536, 1, 9, 100, 1000, 16385, 2, 7 };
	static struct loop *loop;
	static struct http1_server *server;
	if (!loop) {
		struct http1_server_config cfg = { .routes = ROUTES, .n_routes = ARRAY_LEN(ROUTES), .about = "fuzz" };
		http1_limits_default(&cfg.limits);
		if (loop_new(&loop) < 0 || http1_server_new(loop, &cfg, &server) < 0)
			abort();
	}
	if (!len)
		return 0;
	check_head(data + 1, len - 1);
	struct stream *ours, *theirs;
	if (stream_pair(loop, 65536, &none, NULL, &none, NULL, &ours, &theirs) < 0)
		abort();
	size_t first = min_sz(len - 1, pieces[data[0] % ARRAY_LEN(pieces)]);
	http1_server_adopt(server, theirs, data + 1, first);
	feed(loop, ours, data + 1 + first, len - 1 - first, pieces[data[0] % ARRAY_LEN(pieces)]);
	for (int i = 0; i < 4; i++) {
		loop_turn(loop, false);
		drain_output(ours);
	}
	stream_close(ours);
	struct http1_stats st;
	for (int i = 0; i < 200; i++) {
		loop_turn(loop, false);
		http1_server_stats(server, &st);
		if (!st.connections)
			return 0;
	}
	abort(); /* a connection outlived its client */
}
