#include "worker/supervisor/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

void control_init(struct control *c, int fd)
{
	*c = (struct control){.fd = fd, .listen_fd = -1};
	fcntl(fd, F_SETFL, O_NONBLOCK);
}

void control_drop(struct control *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->unseen = c->blocked = false;
	c->unanswered = 0;
	c->changed = true; /* the next one is told everything */
}

bool control_accept(struct control *c)
{
	bool any = false;
	for (;;) {
		int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			/* No descriptors for a while: it is not to be tried all the time. */
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				poll(NULL, 0, 10);
			return any;
		}
		struct ucred peer;
		socklen_t len = sizeof(peer);
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid()) {
			close(fd);
			continue;
		}
		control_drop(c);
		c->fd = fd;
		any = true;
	}
}

/* The size that version 1 had; 0: a type that we don't know. */
static size_t least_size(uint32_t type)
{
	switch (type) {
	case SUP_JOB:
		return sizeof(struct sup_job);
	case SUP_DEADLINES:
		return sizeof(struct sup_deadlines);
	case SUP_STOP:
		return sizeof(struct sup_stop);
	case SUP_SEEN:
		return sizeof(struct sup_head);
	default:
		return 0;
	}
}

static void close_fds(struct control_fds *f)
{
	for (int i = 0; i < f->n; i++)
		close(f->fds[i]);
	f->n = 0;
}

static void take_fds(struct msghdr *m, struct control_fds *f)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (f->n < (int)ARRAY_LEN(f->fds))
				f->fds[f->n++] = fd;
			else
				close(fd);
		}
	}
}

int control_read(struct control *c, union control_packet *p, struct control_fds *ret_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 4)]; /* one more than allowed, which is seen so */
	} rights;
	struct control_fds fds = {.fds = {-1, -1, -1}};
	while (c->fd >= 0) {
		struct iovec io = {.iov_base = p, .iov_len = sizeof(*p)};
		struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = rights.bytes, .msg_controllen = sizeof(rights)};
		memset(p, 0, sizeof(*p));
		ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n > 0)
			take_fds(&m, &fds);
		size_t least = n >= (ssize_t)sizeof(p->head) ? least_size(p->head.type) : 0;
		if (n < (ssize_t)sizeof(p->head) || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || p->head.size != (size_t)n ||
		    (size_t)n < least) {
			close_fds(&fds);
			control_drop(c);
			return 0;
		}
		if (least && ret_fds) {
			*ret_fds = fds;
			return 1;
		}
		close_fds(&fds);
		if (least)
			return 1;
	}
	return 0;
}

void control_flush(struct control *c, const struct sup_status *s)
{
	if (c->fd < 0 || !(c->changed || (c->grown && !c->unseen)))
		return;
	ssize_t n = send(c->fd, s, sizeof(*s), MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
		control_drop(c);
		return;
	}
	c->blocked = n < 0;
	if (n < 0)
		return;
	c->changed = c->grown = false;
	c->unseen = true;
	c->unanswered++;
}

void control_seen(struct control *c)
{
	c->unseen = false;
	if (c->unanswered)
		c->unanswered--;
}

void control_close(struct control *c, int64_t until_boot_ns)
{
	static union control_packet p;
	if (c->fd >= 0)
		shutdown(c->fd, SHUT_WR);
	while (c->fd >= 0 && c->unanswered) {
		int64_t left = until_boot_ns - clock_boot_ns();
		struct pollfd pfd = {.fd = c->fd, .events = POLLIN};
		if (left <= 0 || poll(&pfd, 1, (int)(left / NS_PER_MS) + 1) < 1)
			break;
		if (control_read(c, &p, NULL) && p.head.type == SUP_SEEN)
			control_seen(c);
	}
	control_drop(c);
}
