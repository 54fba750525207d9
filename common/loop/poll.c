/* Watched sockets and signals: thin owners of a uv_poll_t and a uv_signal_t, whose memory libuv
 * needs until its close callback. */
#include <uv.h>

#include "common/loop/loop.h"

struct loop_poll {
	uv_poll_t uv;
	void (*on_ready)(void *arg, int events);
	void *arg;
	int want; /* what the owner asked for */
};

static void on_poll(uv_poll_t *h, int status, int uv_events);

static void start(struct loop_poll *p)
{
	int uv_events = (p->want & LOOP_READ ? UV_READABLE : 0) | (p->want & LOOP_WRITE_READY ? UV_WRITABLE : 0);
	/* Fails only on a closing handle, which is not asked again. */
	uv_poll_start(&p->uv, uv_events, on_poll);
}

static void on_poll(uv_poll_t *h, int status, int uv_events)
{
	struct loop_poll *p = container_of(h, struct loop_poll, uv);
	if (status >= 0) {
		int events = (uv_events & UV_READABLE ? LOOP_READ : 0) |
			     (uv_events & UV_WRITABLE ? LOOP_WRITE_READY : 0);
		p->on_ready(p->arg, events);
		return;
	}
	p->on_ready(p->arg, LOOP_READ | LOOP_WRITE_READY);
	/* libuv stopped watching; an owner that goes on must not be left without events. */
	if (!uv_is_closing((uv_handle_t *)h) && !uv_is_active((uv_handle_t *)h) && p->want)
		start(p);
}

int loop_poll_new(struct loop *loop, int fd, void (*on_ready)(void *arg, int events), void *arg,
		  struct loop_poll **ret)
{
	struct loop_poll *p = xcalloc(1, sizeof(*p));
	int rc = uv_poll_init(loop_uv(loop), &p->uv, fd);
	if (rc < 0) {
		free(p);
		return rc;
	}
	p->on_ready = on_ready;
	p->arg = arg;
	*ret = p;
	return 0;
}

void loop_poll_set(struct loop_poll *p, int events)
{
	if (events == p->want && (!events || uv_is_active((uv_handle_t *)&p->uv)))
		return;
	p->want = events;
	if (events)
		start(p);
	else
		uv_poll_stop(&p->uv);
}

static void on_poll_closed(uv_handle_t *h)
{
	free(container_of((uv_poll_t *)h, struct loop_poll, uv));
}

void loop_poll_free(struct loop_poll *p)
{
	if (!p)
		return;
	p->want = 0;
	uv_close((uv_handle_t *)&p->uv, on_poll_closed);
}

struct loop_signal {
	uv_signal_t uv;
	void (*on_signal)(void *arg, int signo);
	void *arg;
};

static void on_uv_signal(uv_signal_t *h, int signo)
{
	struct loop_signal *s = container_of(h, struct loop_signal, uv);
	s->on_signal(s->arg, signo);
}

static void on_signal_closed(uv_handle_t *h)
{
	free(container_of((uv_signal_t *)h, struct loop_signal, uv));
}

int loop_signal_new(struct loop *loop, int signo, void (*on_signal)(void *arg, int signo), void *arg,
		    struct loop_signal **ret)
{
	struct loop_signal *s = xcalloc(1, sizeof(*s));
	int rc = uv_signal_init(loop_uv(loop), &s->uv);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->on_signal = on_signal;
	s->arg = arg;
	rc = uv_signal_start(&s->uv, on_uv_signal, signo);
	if (rc < 0) {
		loop_signal_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void loop_signal_free(struct loop_signal *s)
{
	if (s)
		uv_close((uv_handle_t *)&s->uv, on_signal_closed);
}
