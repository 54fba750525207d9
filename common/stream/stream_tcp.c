/* Owns a connected or connecting socket and its poll; the plain stream, and the socket part of the TLS one.
 * States: connecting, then open; a failed connect() is told in the next turn. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/stream/stream_impl.h"

#define NOTSENT_LOWAT (128 * 1024)
#define USER_TIMEOUT_MS 30000
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_COUNT 3

/* ---- sockets ---- */

static void set_option(int fd, int level, int option, int value)
{
	/* Each is an improvement, none is needed to work: a kernel without one is fine. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

void socket_options(int fd, int family)
{
	if (family != AF_INET && family != AF_INET6)
		return;
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

void socket_address_text(const struct sockaddr *addr, socklen_t len, char *ret_text, size_t cap)
{
	char ip[INET6_ADDRSTRLEN];
	if (addr->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
		struct sockaddr_in in;
		memcpy(&in, addr, sizeof(in));
		inet_ntop(AF_INET, &in.sin_addr, ip, sizeof(ip));
		snprintf(ret_text, cap, "%s:%u", ip, ntohs(in.sin_port));
	} else if (addr->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
		struct sockaddr_in6 in6;
		memcpy(&in6, addr, sizeof(in6));
		inet_ntop(AF_INET6, &in6.sin6_addr, ip, sizeof(ip));
		snprintf(ret_text, cap, "[%s]:%u", ip, ntohs(in6.sin6_port));
	} else {
		snprintf(ret_text, cap, "%s", addr->sa_family == AF_UNIX ? "unix" : "?");
	}
}

static void finish_connect(struct socket_stream *k)
{
	int err = k->connect_err;
	if (!err) {
		socklen_t len = sizeof(err);
		if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
	}
	k->connecting = false;
	loop_poll_set(k->poll, 0);
	if (err) {
		stream_fail(&k->s, -err, "connect to %s: %s", k->s.peer.address, strerror(err));
		stream_emit_broken(&k->s, -err);
	} else {
		k->s.ops->connected(&k->s);
	}
}

static void on_socket(void *arg, int events)
{
	struct socket_stream *k = arg;
	if (k->s.closed || k->s.broken)
		return;
	if (k->connecting)
		finish_connect(k);
	else
		k->s.ops->ready(&k->s, events);
}

bool socket_stream_soon(struct socket_stream *k)
{
	if (!k->connecting)
		return false;
	finish_connect(k);
	return true;
}

int socket_stream_init(struct socket_stream *k, int fd, void (*soon)(struct loop_timer *))
{
	int rc = loop_poll_new(k->s.loop, fd, on_socket, k, &k->poll);
	if (rc < 0) {
		close(fd);
		k->fd = -1;
		return rc;
	}
	k->fd = fd;
	loop_timer_init(&k->soon, k->s.loop, soon);
	return 0;
}

int socket_stream_connect(struct socket_stream *k, const struct sockaddr *addr, socklen_t len,
			  void (*soon)(struct loop_timer *))
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	socket_options(fd, addr->sa_family);
	socket_address_text(addr, len, k->s.peer.address, sizeof(k->s.peer.address));
	int rc = socket_stream_init(k, fd, soon);
	if (rc < 0)
		return rc;
	k->connecting = true;
	if (connect(fd, addr, len) == 0) {
		loop_poll_set(k->poll, LOOP_WRITE_READY);
	} else if (errno == EINPROGRESS || errno == EINTR) {
		loop_poll_set(k->poll, LOOP_WRITE_READY);
	} else {
		k->connect_err = errno;
		loop_timer_set(&k->soon, 0);
	}
	return 0;
}

void socket_stream_close(struct socket_stream *k)
{
	loop_timer_stop(&k->soon);
	loop_poll_free(k->poll);
	k->poll = NULL;
	close(k->fd);
	k->fd = -1;
}

void stream_set_user_timeout(struct stream *s, int ms)
{
	if (!s->ops->connected || s->closed)
		return;
	struct socket_stream *k = container_of(s, struct socket_stream, s);
	set_option(k->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
}

/* ---- the plain stream ---- */

static struct socket_stream *plain(struct stream *s)
{
	return container_of(s, struct socket_stream, s);
}

static ssize_t plain_read(struct stream *s, void *data, size_t len)
{
	ssize_t n;
	do
		n = recv(plain(s)->fd, data, len, 0);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN)
		return -EAGAIN;
	int err = errno;
	return stream_fail(s, -err, "read from %s: %s", s->peer.address, strerror(err));
}

static ssize_t plain_writev(struct stream *s, const struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)(n > IOV_MAX ? IOV_MAX : n) };
	ssize_t done;
	do
		done = sendmsg(plain(s)->fd, &msg, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	if (done >= 0)
		return done;
	if (errno == EAGAIN)
		return -EAGAIN;
	int err = errno;
	return stream_fail(s, -err, "write to %s: %s", s->peer.address, strerror(err));
}

static void plain_want(struct stream *s)
{
	loop_poll_set(plain(s)->poll, s->want);
}

static void plain_shutdown(struct stream *s)
{
	shutdown(plain(s)->fd, SHUT_WR);
}

static void plain_close(struct stream *s)
{
	socket_stream_close(plain(s));
}

static void plain_free(struct stream *s)
{
	free(plain(s));
}

static void plain_connected(struct stream *s)
{
	stream_emit_open(s);
	if (!s->closed)
		plain_want(s);
}

static void plain_ready(struct stream *s, int events)
{
	/* An error is given as both: the owner meets it in whichever call it makes. */
	if (events & s->want)
		stream_emit_ready(s, events & s->want);
}

static void plain_soon(struct loop_timer *t)
{
	(void)socket_stream_soon(container_of(t, struct socket_stream, soon));
}

static const struct stream_ops plain_ops = {
	.read = plain_read,
	.writev = plain_writev,
	.want = plain_want,
	.shutdown = plain_shutdown,
	.close = plain_close,
	.free = plain_free,
	.connected = plain_connected,
	.ready = plain_ready,
};

int stream_tcp_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, const struct stream_events *ev,
		       void *arg, struct stream **ret)
{
	struct socket_stream *k = xcalloc(1, sizeof(*k));
	stream_init(&k->s, &plain_ops, loop, ev, arg);
	int rc = socket_stream_connect(k, addr, len, plain_soon);
	if (rc < 0) {
		free(k);
		return rc;
	}
	*ret = &k->s;
	return 0;
}

int stream_tcp_accepted(struct loop *loop, int fd, const struct sockaddr *addr, socklen_t len, struct stream **ret)
{
	struct socket_stream *k = xcalloc(1, sizeof(*k));
	stream_init(&k->s, &plain_ops, loop, NULL, NULL);
	socket_options(fd, addr->sa_family);
	socket_address_text(addr, len, k->s.peer.address, sizeof(k->s.peer.address));
	int rc = socket_stream_init(k, fd, plain_soon);
	if (rc < 0) {
		free(k);
		return rc;
	}
	k->s.open = true;
	*ret = &k->s;
	return 0;
}
