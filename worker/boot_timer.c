/* A timerfd in the loop. */
#include "worker/boot_timer.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct boot_timer {
	int fd;
	int64_t due_boot_ns;
	struct loop_poll *poll;
	void (*fire)(void *arg);
	void *arg;
};

static void on_ready(void *arg, int events)
{
	struct boot_timer *t = arg;
	uint64_t times;
	if (read(t->fd, &times, sizeof(times)) != sizeof(times))
		return;
	t->due_boot_ns = INT64_MAX;
	t->fire(t->arg);
}

int boot_timer_new(struct loop *loop, void (*fire)(void *arg), void *arg, struct boot_timer **ret)
{
	struct boot_timer *t = xcalloc(1, sizeof(*t));
	*t = (struct boot_timer){.due_boot_ns = INT64_MAX, .fire = fire, .arg = arg};
	t->fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	int r = t->fd < 0 ? -errno : loop_poll_new(loop, t->fd, on_ready, t, &t->poll);
	if (r < 0) {
		boot_timer_free(t);
		return r;
	}
	loop_poll_set(t->poll, LOOP_READ);
	*ret = t;
	return 0;
}

void boot_timer_set(struct boot_timer *t, int64_t due_boot_ns)
{
	if (t->due_boot_ns == due_boot_ns)
		return;
	t->due_boot_ns = due_boot_ns;
	struct itimerspec spec = {0};
	if (due_boot_ns != INT64_MAX) {
		due_boot_ns = max_i64(due_boot_ns, 1); /* zero would disarm it */
		spec.it_value = (struct timespec){.tv_sec = due_boot_ns / NS_PER_S, .tv_nsec = due_boot_ns % NS_PER_S};
	}
	if (timerfd_settime(t->fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0)
		abort(); /* only for arguments that are wrong */
}

void boot_timer_free(struct boot_timer *t)
{
	if (!t)
		return;
	loop_poll_free(t->poll);
	if (t->fd >= 0)
		close(t->fd);
	free(t);
}
