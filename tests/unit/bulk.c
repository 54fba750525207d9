#include "tests/unit/bulk.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/turns.h"

#define PIECES 4

static uint8_t pattern(uint64_t seed, size_t at)
{
	uint64_t x = (at + seed) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint8_t)(x >> 56);
}

static void fail_with(struct bulk *b, int err, const char *text)
{
	if (b->err)
		return;
	b->err = err;
	snprintf(b->text, sizeof(b->text), "%s", text);
	if (b->s)
		stream_want(b->s, 0);
}

static void want(struct bulk *b)
{
	int events = (b->ended ? 0 : LOOP_READ) | (b->sent < b->to_send ? LOOP_WRITE_READY : 0);
	if (!b->err)
		stream_want(b->s, b->mute ? 0 : events);
}

/* False: no more now. */
static bool send_piece(struct bulk *b)
{
	static uint8_t data[PIECES][40000];
	struct iovec iov[PIECES];
	size_t offered = 0;
	if (b->sent == b->to_send)
		return false;
	for (int i = 0; i < PIECES; i++) {
		size_t len = rng_below(&b->rng, 8) ? rng_below(&b->rng, 300) : rng_below(&b->rng, sizeof(data[i]) + 1);
		len = min_sz(len, b->to_send - b->sent - offered);
		for (size_t k = 0; k < len; k++)
			data[i][k] = pattern(b->seed, b->sent + offered + k);
		iov[i] = (struct iovec){ data[i], len };
		offered += len;
	}
	ssize_t n = stream_writev(b->s, iov, PIECES);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		fail_with(b, (int)n, stream_error(b->s));
		return false;
	}
	if ((size_t)n < offered)
		b->partial_writes++;
	b->sent += (size_t)n;
	if (b->sent == b->to_send)
		stream_shutdown(b->s);
	return true;
}

static void send_some(struct bulk *b)
{
	int rounds = 1 + (int)rng_below(&b->rng, 30);
	while (rounds-- && send_piece(b))
		;
}

static void read_some(struct bulk *b)
{
	static uint8_t data[50000];
	int rounds = 1 + (int)rng_below(&b->rng, 6);
	while (rounds--) {
		size_t len = 1 + rng_below(&b->rng, rng_below(&b->rng, 4) ? sizeof(data) : 100);
		ssize_t n = stream_read(b->s, data, len);
		if (n == -EAGAIN)
			return;
		if (n < 0) {
			fail_with(b, (int)n, stream_error(b->s));
			return;
		}
		if (n == 0) {
			b->ended = true;
			return;
		}
		for (size_t k = 0; k < (size_t)n; k++)
			b->wrong |= data[k] != pattern(b->expected_seed, b->received + k);
		b->received += (size_t)n;
	}
}

static void on_ready(void *arg, int events)
{
	struct bulk *b = arg;
	if (events & LOOP_READ)
		read_some(b);
	if ((events & LOOP_WRITE_READY) && !b->err)
		send_some(b);
	want(b);
}

static void on_open(void *arg)
{
	struct bulk *b = arg;
	b->opened = true;
	if (b->on_opened)
		b->on_opened(b);
	else
		want(b);
}

static void on_broken(void *arg, int err, const char *text)
{
	fail_with(arg, err, text);
}

const struct stream_events bulk_events = { .on_open = on_open, .on_ready = on_ready, .on_broken = on_broken };

void bulk_init(struct bulk *b, uint64_t seed, uint64_t expected_seed, size_t to_send)
{
	*b = (struct bulk){ .seed = seed, .expected_seed = expected_seed, .to_send = to_send };
	rng_seed(&b->rng, seed);
}

void bulk_start(struct bulk *b, struct stream *s)
{
	b->s = s;
	b->opened = true;
	stream_set_events(s, &bulk_events, b);
	want(b);
}

bool bulk_done(const struct bulk *b)
{
	return b->err || (b->ended && b->sent == b->to_send);
}

static void on_accept(void *arg, struct stream *s)
{
	struct bulk_server *v = arg;
	struct bulk *b = v->next;
	v->accepted++;
	v->next = NULL;
	if (b)
		bulk_start(b, s);
	else
		stream_close(s);
}

static void on_refused(void *arg, const char *address, const char *text)
{
	struct bulk_server *v = arg;
	v->refused++;
	snprintf(v->refused_text, sizeof(v->refused_text), "%s", text);
}

void bulk_server_start(struct bulk_server *v, struct loop *loop, struct listener_config cfg)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	*v = (struct bulk_server){ .loop = loop };
	if (!cfg.addr) {
		cfg.addr = (struct sockaddr *)&in;
		cfg.addr_len = sizeof(in);
	}
	cfg.on_refused = on_refused;
	assert_int_equal(listener_new(loop, &cfg, on_accept, v, &v->l), 0);
	listener_address(v->l, &v->addr, &v->addr_len);
}

void bulk_server_connect(struct bulk_server *v, struct bulk *b, struct tls_context *tls, const char *name)
{
	assert_int_equal(stream_connect(v->loop, (struct sockaddr *)&v->addr, v->addr_len, tls, name, &bulk_events, b,
					&b->s), 0);
}
