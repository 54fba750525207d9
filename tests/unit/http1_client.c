#include "tests/unit/http1_client.h"

#include <errno.h>
#include <stdlib.h>

static void on_ready(void *arg, int events)
{
	struct client *c = arg;
	ssize_t n;
	while ((n = stream_read(c->s, c->got + c->n, sizeof(c->got) - 1 - c->n)) > 0)
		c->n += (size_t)n;
	c->got[c->n] = '\0';
	if (n != -EAGAIN) {
		c->over = true;
		stream_want(c->s, 0);
	}
}

static void on_broken(void *arg, int err, const char *text) { ((struct client *)arg)->over = true; }

struct client *client_new(struct loop *loop, struct http1_server *server, const void *first, size_t len, size_t cap)
{
	static const struct stream_events events = { .on_ready = on_ready, .on_broken = on_broken }, none;
	struct client *c = calloc(1, sizeof(*c));
	struct stream *theirs;
	assert_non_null(c);
	c->loop = loop;
	assert_int_equal(stream_pair(loop, cap, &events, c, &none, NULL, &c->s, &theirs), 0);
	http1_server_adopt(server, theirs, first, len);
	stream_want(c->s, LOOP_READ);
	loop_turn(loop, false);
	return c;
}

void client_free(struct client *c)
{
	stream_close(c->s);
	loop_turn(c->loop, false);
	free(c);
}
