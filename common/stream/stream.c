/* The part of a stream that is the same for all kinds: the owner's callbacks, the states open, broken
 * and closed, and the calls through the table of its kind. */
#include "common/stream/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/stream/stream_impl.h"

void stream_init(struct stream *s, const struct stream_ops *ops, struct loop *loop, const struct stream_events *ev,
		 void *arg)
{
	s->ops = ops;
	s->loop = loop;
	stream_set_events(s, ev, arg);
	s->peer.alpn = "";
}

void stream_set_events(struct stream *s, const struct stream_events *ev, void *arg)
{
	s->ev = ev ? *ev : (struct stream_events){ 0 };
	s->arg = arg;
}

void stream_emit_open(struct stream *s)
{
	assert(!s->open && !s->broken && !s->closed);
	s->open = true;
	if (s->ev.on_open)
		s->ev.on_open(s->arg);
}

void stream_emit_ready(struct stream *s, int events)
{
	assert(s->open && !s->broken && !s->closed);
	if (s->ev.on_ready)
		s->ev.on_ready(s->arg, events);
}

void stream_emit_broken(struct stream *s, int err)
{
	assert(!s->broken && !s->closed && err < 0);
	s->broken = true;
	if (s->ev.on_broken)
		s->ev.on_broken(s->arg, err, s->error);
}

int stream_fail(struct stream *s, int err, const char *fmt, ...)
{
	if (!s->error[0]) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(s->error, sizeof(s->error), fmt, ap);
		va_end(ap);
	}
	return err;
}

ssize_t stream_read(struct stream *s, void *data, size_t len)
{
	assert(!s->closed && len > 0);
	if (s->broken)
		return -ECONNRESET;
	return s->open ? s->ops->read(s, data, len) : -EAGAIN;
}

ssize_t stream_writev(struct stream *s, const struct iovec *iov, int n)
{
	assert(!s->closed);
	if (s->broken)
		return -ECONNRESET;
	return s->open ? s->ops->writev(s, iov, n) : -EAGAIN;
}

void stream_want(struct stream *s, int events)
{
	assert(!s->closed);
	s->want = events;
	if (s->open && !s->broken)
		s->ops->want(s);
}

void stream_shutdown(struct stream *s)
{
	assert(!s->closed);
	if (s->open && !s->broken)
		s->ops->shutdown(s);
}

static void on_burial(struct loop_grave *g)
{
	struct stream *s = container_of(g, struct stream, grave);
	s->ops->free(s);
}

void stream_close(struct stream *s)
{
	if (!s || s->closed)
		return;
	s->closed = true;
	s->ops->close(s);
	loop_bury(s->loop, &s->grave, on_burial);
}

const struct stream_peer *stream_peer(const struct stream *s)
{
	return &s->peer;
}

const char *stream_error(const struct stream *s)
{
	return s->error;
}

int stream_connect(struct loop *loop, const struct sockaddr *addr, socklen_t addr_len, struct tls_context *tls,
		   const char *server_name, const struct stream_events *ev, void *arg, struct stream **ret)
{
	if (!tls)
		return stream_tcp_connect(loop, addr, addr_len, ev, arg, ret);
	if (!server_name)
		return -EINVAL;
	return stream_tls_connect(loop, addr, addr_len, tls, server_name, ev, arg, ret);
}
