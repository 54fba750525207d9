/* Owns the processes' handles of libuv, which reap them: an idle one has its socket here, one that was taken has not. */
#include "worker/spares.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/log/log.h"
#include "worker/supervisor/wire.h"

#define REFILL_NS (5 * NS_PER_MS)
#define AGAIN_NS NS_PER_S /* after one that could not be started, or ended by itself */

struct child {
	uv_process_t process;
	struct spares *spares;
	struct list node;
	int fd; /* -1: taken */
};

struct spares {
	struct loop *loop;
	char *program;
	unsigned ahead, n_idle;
	struct list idle, taken;
	struct loop_timer refill;
	bool said;
};

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void forget(struct child *c)
{
	if (c->fd >= 0) {
		close(c->fd);
		c->spares->n_idle--;
	}
	list_remove(&c->node);
	uv_close((uv_handle_t *)&c->process, on_closed);
}

static void refill_at(struct spares *s, int64_t wait_ns)
{
	if (s->n_idle < s->ahead && !loop_timer_active(&s->refill))
		loop_timer_set(&s->refill, loop_now_mono_ns(s->loop) + wait_ns);
}

static void on_exit_of(uv_process_t *process, int64_t code, int signal)
{
	struct child *c = process->data;
	struct spares *s = c->spares;
	bool idle = c->fd >= 0;
	forget(c);
	if (!idle)
		return;
	log_warn("worker", NULL, "a supervisor without a job ended (code %d, signal %d)", (int)code, signal);
	refill_at(s, AGAIN_NS);
}

static int spawn(struct spares *s, struct child *c, int end)
{
	/* No environment: the agent's holds its token. */
	char *args[] = {s->program, NULL}, *env[] = {NULL};
	uv_stdio_container_t stdio[SUP_FD + 1] = {
		{.flags = UV_IGNORE}, {.flags = UV_IGNORE}, {.flags = UV_IGNORE},
		[SUP_FD] = {.flags = UV_INHERIT_FD, .data.fd = end},
	};
	uv_process_options_t options = {
		.exit_cb = on_exit_of, .file = s->program, .args = args, .env = env,
		.flags = UV_PROCESS_DETACHED, .stdio_count = SUP_FD + 1, .stdio = stdio,
	};
	return uv_spawn(loop_uv(s->loop), &c->process, &options);
}

static int start_one(struct spares *s)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	struct child *c = xcalloc(1, sizeof(*c));
	c->process.data = c;
	c->spares = s;
	c->fd = ends[0];
	int r = spawn(s, c, ends[1]);
	close(ends[1]);
	s->n_idle++;
	list_push_back(&s->idle, &c->node);
	if (r < 0) {
		if (c->process.loop) {
			forget(c);
		} else {
			close(c->fd);
			s->n_idle--;
			list_remove(&c->node);
			free(c);
		}
	}
	return r;
}

static void on_refill(struct loop_timer *t)
{
	struct spares *s = container_of(t, struct spares, refill);
	if (s->n_idle >= s->ahead)
		return;
	int r = start_one(s);
	if (r < 0 && !s->said)
		log_warn("worker", NULL, "%s can't be started: %s; trying on", s->program, strerror(-r));
	s->said = r < 0;
	refill_at(s, r < 0 ? AGAIN_NS : 0); /* one a turn */
}

struct spares *spares_new(struct loop *loop, const char *program, unsigned ahead)
{
	struct spares *s = xcalloc(1, sizeof(*s));
	s->loop = loop;
	s->program = xstrdup(program);
	s->ahead = ahead;
	list_init(&s->idle);
	list_init(&s->taken);
	loop_timer_init(&s->refill, loop, on_refill);
	refill_at(s, 0);
	return s;
}

int spares_take(struct spares *s)
{
	if (list_empty(&s->idle)) {
		int r = start_one(s);
		if (r < 0)
			return r;
	}
	struct child *c = container_of(list_pop_front(&s->idle), struct child, node);
	int fd = c->fd;
	c->fd = -1;
	s->n_idle--;
	list_push_back(&s->taken, &c->node);
	refill_at(s, REFILL_NS);
	return fd;
}

void spares_free(struct spares *s)
{
	if (!s)
		return;
	loop_timer_stop(&s->refill);
	while (!list_empty(&s->idle))
		forget(container_of(s->idle.next, struct child, node));
	while (!list_empty(&s->taken))
		forget(container_of(s->taken.next, struct child, node));
	free(s->program);
	free(s);
}
