/* Two ends in memory.  An end owns its inbox, which the other end writes into; readiness is level-triggered and
 * told by a timer that is due at once, so that it comes from the loop, one turn later. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/stream/stream_impl.h"

struct end {
	struct stream s;
	struct end *other; /* NULL once that end was closed */
	struct buf inbox;
	bool inbox_ended;  /* nothing more will be written into it */
	bool shut;         /* we said that we write no more */
	struct loop_timer soon;
};

static struct end *end(struct stream *s)
{
	return container_of(s, struct end, s);
}

static int readiness(const struct end *e)
{
	int events = 0;
	if (buf_len(&e->inbox) || e->inbox_ended)
		events |= LOOP_READ;
	if (!e->other || e->shut || buf_room(&e->other->inbox))
		events |= LOOP_WRITE_READY;
	return events & e->s.want;
}

static void update(struct end *e)
{
	if (e->s.open && readiness(e) && !loop_timer_active(&e->soon))
		loop_timer_set(&e->soon, 0);
}

static void on_soon(struct loop_timer *t)
{
	struct end *e = container_of(t, struct end, soon);
	if (!e->s.open) {
		stream_emit_open(&e->s);
	} else {
		int events = readiness(e);
		if (events)
			stream_emit_ready(&e->s, events);
	}
	if (!e->s.closed)
		update(e);
}

static ssize_t pair_read(struct stream *s, void *data, size_t len)
{
	struct end *e = end(s);
	size_t n = min_sz(len, buf_len(&e->inbox));
	if (!n)
		return e->inbox_ended ? 0 : -EAGAIN;
	memcpy(data, buf_head(&e->inbox), n);
	buf_consume(&e->inbox, n);
	if (e->other)
		update(e->other);
	return (ssize_t)n;
}

static ssize_t pair_writev(struct stream *s, const struct iovec *iov, int n)
{
	struct end *e = end(s);
	if (!e->other || e->shut)
		return stream_fail(s, -EPIPE, "write to %s: closed", s->peer.address);
	struct buf *to = &e->other->inbox;
	size_t taken = 0, asked = 0;
	for (int i = 0; i < n; i++) {
		size_t part = min_sz(iov[i].iov_len, buf_room(to));
		asked += iov[i].iov_len;
		if (buf_add(to, iov[i].iov_base, part) < 0)
			return stream_fail(s, -ENOMEM, "write to %s: out of memory", s->peer.address);
		taken += part;
	}
	if (!taken && asked)
		return -EAGAIN;
	update(e->other);
	return (ssize_t)taken;
}

static void pair_want(struct stream *s)
{
	update(end(s));
}

static void pair_shutdown(struct stream *s)
{
	struct end *e = end(s);
	e->shut = true;
	if (e->other) {
		e->other->inbox_ended = true;
		update(e->other);
	}
}

static void pair_close(struct stream *s)
{
	struct end *e = end(s);
	loop_timer_stop(&e->soon);
	pair_shutdown(s);
	if (e->other) {
		e->other->other = NULL;
		update(e->other);
		e->other = NULL;
	}
}

static void pair_free(struct stream *s)
{
	struct end *e = end(s);
	buf_done(&e->inbox);
	free(e);
}

static const struct stream_ops pair_ops = {
	.read = pair_read,
	.writev = pair_writev,
	.want = pair_want,
	.shutdown = pair_shutdown,
	.close = pair_close,
	.free = pair_free,
};

static struct end *end_new(struct loop *loop, size_t cap, const struct stream_events *ev, void *arg)
{
	struct end *e = xcalloc(1, sizeof(*e));
	stream_init(&e->s, &pair_ops, loop, ev, arg);
	snprintf(e->s.peer.address, sizeof(e->s.peer.address), "pair");
	buf_init(&e->inbox, cap);
	loop_timer_init(&e->soon, loop, on_soon);
	loop_timer_set(&e->soon, 0);
	return e;
}

int stream_pair(struct loop *loop, size_t cap, const struct stream_events *ev_a, void *arg_a,
		const struct stream_events *ev_b, void *arg_b, struct stream **ret_a, struct stream **ret_b)
{
	if (!cap)
		return -EINVAL;
	struct end *a = end_new(loop, cap, ev_a, arg_a);
	struct end *b = end_new(loop, cap, ev_b, arg_b);
	a->other = b;
	b->other = a;
	*ret_a = &a->s;
	*ret_b = &b->s;
	return 0;
}
