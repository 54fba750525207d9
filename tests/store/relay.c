#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/rng.h"
#include "tests/store/relay.h"

#define PAIRS 32

struct pair {
	int fds[2]; /* -1: free */
	int64_t left;
};

static int local_socket(int port, int *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ret_port && (bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 16) < 0 ||
			 getsockname(fd, (struct sockaddr *)&a, &len) < 0)) {
		perror("relay");
		exit(99);
	}
	if (ret_port)
		*ret_port = ntohs(a.sin_port);
	else if (connect(fd, (struct sockaddr *)&a, len) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void cut(struct pair *p)
{
	close(p->fds[0]);
	close(p->fds[1]);
	p->fds[0] = p->fds[1] = -1;
}

static void accept_one(struct relay *r, struct pair *pairs, struct rng *rng)
{
	int in = accept(r->listener, NULL, NULL), out = in < 0 ? -1 : local_socket(r->target_port, NULL);
	struct pair *free_pair = NULL;
	for (int i = 0; i < PAIRS; i++)
		if (pairs[i].fds[0] < 0)
			free_pair = &pairs[i];
	if (out < 0 || !free_pair) {
		close(in);
		close(out);
		return;
	}
	int max = atomic_load(&r->max_bytes);
	*free_pair = (struct pair){{in, out}, max ? (int64_t)rng_below(rng, (uint64_t)max) : INT64_MAX};
}

/* ReadyForQuery, outside of a transaction: what went before it is committed. */
static bool ends_ready(const char *buf, size_t n)
{
	static const char ready[] = {'Z', 0, 0, 0, 5, 'I'};
	return n >= sizeof(ready) && memcmp(buf + n - sizeof(ready), ready, sizeof(ready)) == 0;
}

static bool loses(struct relay *r, int from, const char *buf, size_t n)
{
	int what = atomic_load(&r->loses);
	if (what != (from ? RELAY_ANSWERS : RELAY_REQUESTS))
		return false;
	if (!from || ends_ready(buf, n))
		atomic_fetch_add(&r->lost, 1);
	return true;
}

/* One read and the write of it; true: cut, or ended by a side. */
static bool pass(struct relay *r, struct pair *p, int from)
{
	char buf[65536];
	ssize_t n = read(p->fds[from], buf, sizeof(buf));
	if (n <= 0)
		return true;
	if (loses(r, from, buf, (size_t)n))
		return false;
	if (n > p->left)
		n = (ssize_t)p->left;
	for (ssize_t at = 0; at < n;) {
		ssize_t w = write(p->fds[!from], buf + at, (size_t)(n - at));
		if (w <= 0)
			return true;
		at += w;
	}
	p->left -= n;
	if (p->left <= 0)
		atomic_fetch_add(&r->cuts, 1);
	return p->left <= 0;
}

static void *work(void *arg)
{
	struct relay *r = arg;
	struct pair pairs[PAIRS];
	struct rng rng;
	rng_seed(&rng, r->seed);
	for (int i = 0; i < PAIRS; i++)
		pairs[i].fds[0] = pairs[i].fds[1] = -1;
	while (!atomic_load(&r->stop)) {
		struct pollfd pf[1 + 2 * PAIRS];
		pf[0] = (struct pollfd){r->listener, POLLIN, 0};
		for (int i = 0; i < 2 * PAIRS; i++)
			pf[1 + i] = (struct pollfd){pairs[i / 2].fds[i % 2], POLLIN, 0};
		poll(pf, 1 + 2 * PAIRS, 20);
		for (int i = 0; i < 2 * PAIRS; i++)
			if (pf[1 + i].fd >= 0 && pf[1 + i].revents && pairs[i / 2].fds[0] >= 0 && pass(r, &pairs[i / 2], i % 2))
				cut(&pairs[i / 2]);
		if (atomic_load(&r->cut_all)) {
			for (int i = 0; i < PAIRS; i++)
				if (pairs[i].fds[0] >= 0)
					cut(&pairs[i]);
			atomic_store(&r->loses, RELAY_NOTHING);
			atomic_store(&r->cut_all, 0);
			continue;
		}
		if (pf[0].revents)
			accept_one(r, pairs, &rng);
	}
	for (int i = 0; i < PAIRS; i++)
		if (pairs[i].fds[0] >= 0)
			cut(&pairs[i]);
	return NULL;
}

void relay_start(struct relay *r, int target_port, int max_bytes)
{
	*r = (struct relay){.target_port = target_port, .seed = rng_process_next()};
	atomic_store(&r->max_bytes, max_bytes);
	r->listener = local_socket(0, &r->port);
	if (pthread_create(&r->thread, NULL, work, r) != 0)
		exit(99);
}

void relay_lose(struct relay *r, enum relay_loses what)
{
	atomic_store(&r->lost, 0);
	atomic_store(&r->loses, what);
}

void relay_cut(struct relay *r)
{
	atomic_store(&r->cut_all, 1);
	while (atomic_load(&r->cut_all))
		poll(NULL, 0, 1);
}

void relay_stop(struct relay *r)
{
	atomic_store(&r->stop, 1);
	pthread_join(r->thread, NULL);
	close(r->listener);
}
