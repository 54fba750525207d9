/* All that both threads touch is the timer, which the kernel keeps. No process is forked after the thread was made. */
#include "worker/supervisor/guard.h"

#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "worker/supervisor/wire.h"

#define STACK_BYTES (128 * 1024)  /* a path or two, and what libc needs to read a directory */
#define CHANCE_NS (100 * NS_PER_MS)
#define ROUND_MS 100

static void *run(void *arg)
{
	struct guard *g = arg;
	for (;;) {
		struct pollfd p = {.fd = g->timer_fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 1)
			continue;
		/* It is not read: it stays due until it is set anew. */
		tree_kill(&g->tree);
		poll(NULL, 0, ROUND_MS);
	}
	return NULL;
}

void guard_init(struct guard *g)
{
	*g = (struct guard){.timer_fd = -1, .kill_boot_ns = SUP_NEVER};
}

static bool start(struct guard *g, const struct tree *t)
{
	pthread_attr_t attr;
	pthread_t thread;
	g->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (g->timer_fd < 0)
		return false;
	g->tree = (struct tree){.kill_cgroup = t->kill_cgroup};
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	bool ok = pthread_create(&thread, &attr, run, g) == 0;
	pthread_attr_destroy(&attr);
	if (!ok) {
		close(g->timer_fd);
		g->timer_fd = -1;
	}
	return ok;
}

void guard_arm(struct guard *g, const struct tree *t, int64_t kill_boot_ns)
{
	if (kill_boot_ns == g->kill_boot_ns || (g->timer_fd < 0 && !start(g, t)))
		return;
	struct itimerspec at = {0};
	if (kill_boot_ns < SUP_NEVER - CHANCE_NS) {
		int64_t due = max_i64(kill_boot_ns, 0) + CHANCE_NS; /* one that has long passed is due at once */
		at.it_value = (struct timespec){.tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S};
	}
	if (timerfd_settime(g->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
		g->kill_boot_ns = kill_boot_ns;
}
