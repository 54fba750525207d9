/* A process, three pipes from it (stdout, stderr, the word of reins-exec), and its end.
 *
 * The group's id stays taken in the kernel while a member lives, so a signal to it can't hit a stranger as
 * long as there is one; when there is none, kill says ESRCH, and that is the proof of emptiness. */
#include "worker/run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define READ_SIZE (64 * 1024)
#define FAILURE_MAX 1024
#define LAST_READS 17 /* of READ_SIZE: more than the largest pipe holds; a stranger may still write to it */
#define CLEAR_FIRST_NS (1 * NS_PER_MS)
#define CLEAR_MAX_NS (100 * NS_PER_MS)

struct pipe_end {
	struct run *run;
	int stream;
	int fd;
	struct loop_poll *poll;
};

struct run {
	struct loop *loop;
	const struct run_events *ev;
	void *arg;
	uv_process_t process;
	int pid;
	struct pipe_end out[2];
	struct pipe_end status;
	char failure[FAILURE_MAX + 1];
	size_t failure_len;
	bool exited, paused, clearing;
	struct loop_timer clear_timer;
	struct loop_dirty clear_dirty;
	int64_t clear_wait_ns;
};

/* One thread, and never in use across a callback's return. */
static uint8_t scratch[READ_SIZE];

static void close_pipe(struct pipe_end *p)
{
	loop_poll_free(p->poll);
	p->poll = NULL;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

/* False when there is nothing more now. */
static bool read_output(struct pipe_end *p)
{
	ssize_t n = read(p->fd, scratch, sizeof(scratch));
	if (n > 0) {
		p->run->ev->on_output(p->run->arg, p->stream, scratch, (size_t)n);
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_pipe(p);
	return false;
}

static void on_output_ready(void *arg, int events)
{
	struct pipe_end *p = arg;
	if (p->fd >= 0 && !p->run->paused)
		read_output(p);
}

/* Reads the word of reins-exec as far as it is there; at its end tells the owner. */
static void read_status(struct run *r)
{
	while (r->status.fd >= 0) {
		ssize_t n = read(r->status.fd, r->failure + r->failure_len, FAILURE_MAX - r->failure_len);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0) {
			r->failure_len += (size_t)n;
			continue;
		}
		close_pipe(&r->status);
		r->failure[r->failure_len] = '\0';
		r->ev->on_exec(r->arg, r->failure_len ? r->failure : NULL);
	}
}

static void on_status_ready(void *arg, int events)
{
	read_status(((struct pipe_end *)arg)->run);
}

static void on_process_exit(uv_process_t *process, int64_t code, int signal)
{
	struct run *r = process->data;
	r->exited = true;
	read_status(r);
	r->ev->on_exit(r->arg, (int)code, signal);
}

static void finish_clear(struct run *r)
{
	for (size_t i = 0; i < ARRAY_LEN(r->out); i++) {
		for (int k = 0; k < LAST_READS && r->out[i].fd >= 0 && read_output(&r->out[i]); k++)
			;
		close_pipe(&r->out[i]);
	}
	close_pipe(&r->status);
	r->ev->on_empty(r->arg);
}

static void try_clear(struct run *r)
{
	if (kill(-r->pid, SIGKILL) < 0 && errno == ESRCH) {
		finish_clear(r);
		return;
	}
	/* EPERM too: a member that changed its user. The slot is not free before it has ended. */
	loop_timer_set(&r->clear_timer, loop_now_mono_ns(r->loop) + r->clear_wait_ns);
	r->clear_wait_ns = min_i64(r->clear_wait_ns * 2, CLEAR_MAX_NS);
}

static void on_clear_timer(struct loop_timer *t)
{
	try_clear(container_of(t, struct run, clear_timer));
}

static void on_clear_dirty(struct loop_dirty *d)
{
	try_clear(container_of(d, struct run, clear_dirty));
}

static void on_process_closed(uv_handle_t *h)
{
	free(h->data);
}

static int watch(struct run *r, struct pipe_end *p, int stream, int fd, void (*on_ready)(void *, int))
{
	*p = (struct pipe_end){.run = r, .stream = stream, .fd = fd};
	int err = loop_poll_new(r->loop, fd, on_ready, p, &p->poll);
	if (err == 0)
		loop_poll_set(p->poll, LOOP_READ);
	return err;
}

static int spawn(struct run *r, const struct launch *l, int ends[3][2])
{
	for (int i = 0; i < 3; i++) {
		if (pipe2(ends[i], O_CLOEXEC) < 0)
			return -errno;
		/* Only our end: a program does not expect its stdout to be non-blocking. */
		if (fcntl(ends[i][0], F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	}
	uv_stdio_container_t stdio[4] = {
		{.flags = l->stdin_fd < 0 ? UV_IGNORE : UV_INHERIT_FD, .data.fd = l->stdin_fd},
		{.flags = UV_INHERIT_FD, .data.fd = ends[0][1]},
		{.flags = UV_INHERIT_FD, .data.fd = ends[1][1]},
		{.flags = UV_INHERIT_FD, .data.fd = ends[2][1]},
	};
	uv_process_options_t options = {
		.exit_cb = on_process_exit, .file = l->argv[0], .args = l->argv, .env = l->envp,
		.flags = UV_PROCESS_DETACHED, .stdio_count = ARRAY_LEN(stdio), .stdio = stdio,
	};
	return uv_spawn(loop_uv(r->loop), &r->process, &options);
}

int run_start(struct loop *loop, const struct launch *l, const struct run_events *ev, void *arg, struct run **ret)
{
	struct run *r = xcalloc(1, sizeof(*r));
	int ends[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	r->loop = loop;
	r->ev = ev;
	r->arg = arg;
	r->process.data = r;
	r->clear_wait_ns = CLEAR_FIRST_NS;
	r->out[0].fd = r->out[1].fd = r->status.fd = -1;
	loop_timer_init(&r->clear_timer, loop, on_clear_timer);
	loop_dirty_init(&r->clear_dirty, LOOP_WORK, on_clear_dirty);
	int err = spawn(r, l, ends);
	for (int i = 0; i < 3; i++)
		if (ends[i][1] >= 0)
			close(ends[i][1]);
	if (err < 0) {
		for (int i = 0; i < 3; i++)
			if (ends[i][0] >= 0)
				close(ends[i][0]);
		if (r->process.loop)
			uv_close((uv_handle_t *)&r->process, on_process_closed);
		else
			free(r);
		return err;
	}
	r->pid = r->process.pid;
	if (watch(r, &r->out[0], 1, ends[0][0], on_output_ready) < 0 ||
	    watch(r, &r->out[1], 2, ends[1][0], on_output_ready) < 0 ||
	    watch(r, &r->status, 0, ends[2][0], on_status_ready) < 0)
		abort(); /* a fresh pipe can always be watched */
	*ret = r;
	return 0;
}

void run_signal(struct run *r, int signo)
{
	if (kill(-r->pid, signo) < 0 && errno == ESRCH && !r->exited)
		kill(r->pid, signo); /* it has not made its session yet */
}

void run_pause_output(struct run *r, bool paused)
{
	if (r->paused == paused)
		return;
	r->paused = paused;
	for (size_t i = 0; i < ARRAY_LEN(r->out); i++)
		if (r->out[i].poll)
			loop_poll_set(r->out[i].poll, paused ? 0 : LOOP_READ);
}

void run_clear(struct run *r)
{
	assert(r->exited && !r->clearing);
	r->clearing = true;
	loop_mark(r->loop, &r->clear_dirty);
}

void run_free(struct run *r)
{
	if (!r)
		return;
	loop_timer_stop(&r->clear_timer);
	loop_unmark(&r->clear_dirty);
	close_pipe(&r->out[0]);
	close_pipe(&r->out[1]);
	close_pipe(&r->status);
	uv_close((uv_handle_t *)&r->process, on_process_closed);
}
