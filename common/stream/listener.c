/* Owns a listening socket, a spare file descriptor, and the connections whose TLS handshake is not done.
 * Accepting rests while the owner says so, while handshakes are at their limit, and for 100 ms after
 * the process ran out of file descriptors. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/stream/stream_impl.h"

#define REST_NS (100 * NS_PER_MS)
#define HANDSHAKES_PER_TURN 8

struct listener {
	struct loop *loop;
	int fd;
	int spare; /* given up for a moment to take and drop a connection when there is no other descriptor */
	struct loop_poll *poll;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	struct tls_context *tls;
	int64_t handshake_timeout_ns;
	int max_handshakes;
	int accept_per_turn;
	void (*on_accept)(void *arg, struct stream *s);
	void (*on_refused)(void *arg, const char *address, const char *text);
	void *arg;
	struct listener_stats *stats, own_stats;
	struct list handshakes;
	int n_handshakes;
	struct tls_budget budget;
	struct loop_timer rest;
	bool paused;
	bool freed;
	struct loop_grave grave;
};

struct handshake {
	struct list node;
	struct listener *l;
	struct stream *s;
	struct loop_timer deadline;
	int64_t began_mono_ns;
	struct loop_grave grave;
};

static void update(struct listener *l)
{
	if (l->freed)
		return;
	bool accept = !l->paused && !loop_timer_active(&l->rest) && l->n_handshakes < l->max_handshakes;
	loop_poll_set(l->poll, accept ? LOOP_READ : 0);
}

/* ---- handshakes ---- */

static void on_handshake_burial(struct loop_grave *g)
{
	free(container_of(g, struct handshake, grave));
}

static void handshake_end(struct handshake *h)
{
	struct listener *l = h->l;
	list_remove(&h->node);
	l->n_handshakes--;
	l->stats->handshaking--;
	loop_timer_stop(&h->deadline);
	loop_bury(l->loop, &h->grave, on_handshake_burial);
	update(l);
}

static void deliver(struct listener *l, struct stream *s)
{
	stream_set_events(s, NULL, NULL);
	l->on_accept(l->arg, s);
	assert(s->closed || s->ev.on_ready); /* nobody owns it otherwise */
}

static void on_handshake_open(void *arg)
{
	struct handshake *h = arg;
	struct listener_stats *stats = h->l->stats;
	stats->handshakes++;
	stats->resumed += stream_peer(h->s)->resumed;
	histogram_add(&stats->handshake, clock_mono_ns() - h->began_mono_ns);
	handshake_end(h);
	deliver(h->l, h->s);
}

static void refuse_handshake(struct handshake *h, const char *text)
{
	struct listener *l = h->l;
	handshake_end(h);
	/* The text is the stream's: it is valid until the end of the turn. */
	stream_close(h->s);
	if (l->on_refused)
		l->on_refused(l->arg, stream_peer(h->s)->address, text);
}

static void on_handshake_broken(void *arg, int err, const char *text)
{
	((struct handshake *)arg)->l->stats->failed++;
	refuse_handshake(arg, text);
}

static void on_deadline(struct loop_timer *t)
{
	struct handshake *h = container_of(t, struct handshake, deadline);
	h->l->stats->timed_out++;
	refuse_handshake(h, "TLS handshake timed out");
}

static const struct stream_events handshake_events = {
	.on_open = on_handshake_open,
	.on_broken = on_handshake_broken,
};

static int begin_handshake(struct listener *l, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct handshake *h = xcalloc(1, sizeof(*h));
	h->l = l;
	int rc = stream_tls_accepted(l->loop, fd, addr, len, l->tls, &l->budget, &handshake_events, h, &h->s);
	if (rc < 0) {
		free(h);
		return rc;
	}
	list_push_back(&l->handshakes, &h->node);
	l->n_handshakes++;
	l->stats->handshaking++;
	h->began_mono_ns = clock_mono_ns();
	loop_timer_init(&h->deadline, l->loop, on_deadline);
	loop_timer_set(&h->deadline, loop_now_mono_ns(l->loop) + l->handshake_timeout_ns);
	update(l);
	return 0;
}

/* ---- accepting ---- */

static int open_spare(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Without a descriptor the connection would stay in the queue and the socket readable: a busy loop. */
static void drop_one(struct listener *l)
{
	l->stats->no_descriptor++;
	if (l->spare >= 0) {
		close(l->spare);
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		l->spare = open_spare();
	}
	loop_timer_set(&l->rest, loop_now_mono_ns(l->loop) + REST_NS);
	update(l);
}

static void on_rested(struct loop_timer *t)
{
	struct listener *l = container_of(t, struct listener, rest);
	if (l->spare < 0)
		l->spare = open_spare();
	update(l);
}

/* False: nothing more to take now. */
static bool accept_one(struct listener *l)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);
	int fd = accept4(l->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno == EAGAIN)
			return false;
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			drop_one(l);
			return false;
		}
		return true; /* that connection's own error, met before we took it */
	}
	l->stats->accepted++;
	if (!len)
		addr.ss_family = l->addr.ss_family;
	if (l->tls) {
		(void)begin_handshake(l, fd, (struct sockaddr *)&addr, len);
		return true;
	}
	struct stream *s;
	if (stream_tcp_accepted(l->loop, fd, (struct sockaddr *)&addr, len, &s) == 0)
		deliver(l, s);
	return true;
}

static void on_listen_ready(void *arg, int events)
{
	struct listener *l = arg;
	for (int i = 0; i < l->accept_per_turn; i++) {
		if (l->paused || l->n_handshakes >= l->max_handshakes || !accept_one(l) || l->freed)
			return;
	}
}

/* ---- making one ---- */

/* The file of a Unix socket outlives its process; one that nobody answers on is in the way. */
static void remove_stale(const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)addr;
	struct stat st;
	if (addr->sa_family != AF_UNIX || !un->sun_path[0] || lstat(un->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (connect(fd, addr, len) < 0 && errno == ECONNREFUSED)
		unlink(un->sun_path);
	close(fd);
}

static int open_socket(const struct listener_config *cfg)
{
	int family = cfg->addr->sa_family;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int on = 1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	remove_stale(cfg->addr, cfg->addr_len);
	if (bind(fd, cfg->addr, cfg->addr_len) < 0 || listen(fd, cfg->backlog > 0 ? cfg->backlog : 511) < 0) {
		int err = errno;
		close(fd);
		return -err;
	}
	return fd;
}

static void on_burial(struct loop_grave *g)
{
	free(container_of(g, struct listener, grave));
}

int listener_new(struct loop *loop, const struct listener_config *cfg, void (*on_accept)(void *arg, struct stream *s),
		 void *arg, struct listener **ret)
{
	int fd = open_socket(cfg);
	if (fd < 0)
		return fd;
	struct listener *l = xcalloc(1, sizeof(*l));
	int rc = loop_poll_new(loop, fd, on_listen_ready, l, &l->poll);
	if (rc < 0) {
		close(fd);
		free(l);
		return rc;
	}
	l->loop = loop;
	l->fd = fd;
	l->spare = open_spare();
	l->addr_len = sizeof(l->addr);
	(void)getsockname(fd, (struct sockaddr *)&l->addr, &l->addr_len);
	l->tls = tls_context_ref(cfg->tls);
	l->handshake_timeout_ns = cfg->handshake_timeout_ns > 0 ? cfg->handshake_timeout_ns : 10 * NS_PER_S;
	l->max_handshakes = cfg->max_handshakes > 0 ? cfg->max_handshakes : 256;
	l->accept_per_turn = cfg->accept_per_turn > 0 ? cfg->accept_per_turn : 32;
	l->on_accept = on_accept;
	l->on_refused = cfg->on_refused;
	l->arg = arg;
	l->stats = cfg->stats ? cfg->stats : &l->own_stats;
	l->budget.per_turn = HANDSHAKES_PER_TURN;
	list_init(&l->handshakes);
	loop_timer_init(&l->rest, loop, on_rested);
	update(l);
	*ret = l;
	return 0;
}

void listener_address(const struct listener *l, struct sockaddr_storage *ret_addr, socklen_t *ret_len)
{
	*ret_addr = l->addr;
	*ret_len = l->addr_len;
}

void listener_pause(struct listener *l, bool paused)
{
	l->paused = paused;
	update(l);
}

void listener_free(struct listener *l)
{
	struct list *n;
	if (!l)
		return;
	l->freed = true;
	while ((n = l->handshakes.next) != &l->handshakes) {
		struct handshake *h = container_of(n, struct handshake, node);
		handshake_end(h);
		stream_close(h->s);
	}
	loop_timer_stop(&l->rest);
	loop_poll_free(l->poll);
	close(l->fd);
	if (l->spare >= 0)
		close(l->spare);
	const struct sockaddr_un *un = (const struct sockaddr_un *)&l->addr;
	if (l->addr.ss_family == AF_UNIX && un->sun_path[0])
		unlink(un->sun_path);
	tls_context_free(l->tls);
	loop_bury(l->loop, &l->grave, on_burial);
}
