/* Owns the process, and the pipe that is both its stdout and its stderr. */
#include "client/dev_child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <uv.h>

#include "client/dev_lines.h"
#include "client/output.h"
#include "common/base/num.h"

#define MAX_WORDS 260
#define READS_PER_TURN 16
#define EXIT_NOT_STARTED 127

struct dev_child {
	struct loop *loop;
	void (*on_exit)(void *arg, int code, int signal);
	void *arg;
	uv_process_t process;
	bool runs;
	int fd;
	struct loop_poll *poll;
	struct dev_lines lines;
	char error[512];
};

static void on_line(void *arg, const char *line, size_t len)
{
	struct dev_child *c = arg;
	out_write(STDERR_FILENO, line, len);
	dev_lines_error(&c->lines, line, len, c->error, sizeof c->error);
}

static void close_pipe(struct dev_child *c)
{
	loop_poll_free(c->poll);
	c->poll = NULL;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* At most so many reads: a child that prints without end must not keep us from our signals. */
static void pass_on(struct dev_child *c, int reads)
{
	char data[16 * 1024];
	while (c->fd >= 0 && reads-- > 0) {
		ssize_t n = read(c->fd, data, sizeof data);
		if (n > 0)
			dev_lines_add(&c->lines, data, (size_t)n, on_line, c);
		else if (n < 0 && errno == EAGAIN)
			return;
		else if (n == 0 || errno != EINTR)
			close_pipe(c);
	}
}

static void on_readable(void *arg, int events)
{
	(void)events;
	pass_on(arg, READS_PER_TURN);
}

static void on_process_exit(uv_process_t *process, int64_t code, int signal)
{
	struct dev_child *c = process->data;
	/* More than a pipe holds; a process it left behind may still write. */
	pass_on(c, READS_PER_TURN);
	close_pipe(c);
	dev_lines_end(&c->lines, on_line, c);
	c->runs = false;
	c->on_exit(c->arg, (int)code, signal);
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static int spawn(struct dev_child *c, char **argv, char **envp, int write_fd)
{
	char self[4096], parent[24];
	char *words[MAX_WORDS + 4] = { (char[]){ "reins" }, (char[]){ DEV_CHILD_WORD }, parent };
	size_t n = 3;
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len <= 0)
		return -errno;
	self[len] = 0;
	snprintf(parent, sizeof parent, "%ld", (long)getpid());
	for (size_t i = 0; argv[i]; i++) {
		if (i == MAX_WORDS)
			return -E2BIG;
		words[n++] = argv[i];
	}
	uv_stdio_container_t stdio[] = {
		{ .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = write_fd },
		{ .flags = UV_INHERIT_FD, .data.fd = write_fd },
	};
	const uv_process_options_t options = { .exit_cb = on_process_exit, .file = self, .args = words, .env = envp,
		.flags = UV_PROCESS_DETACHED, .stdio_count = ARRAY_LEN(stdio), .stdio = stdio };
	return uv_spawn(loop_uv(c->loop), &c->process, &options);
}

int dev_child_start(const struct dev_child_config *cfg, struct dev_child **ret)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	struct dev_child *c = xcalloc(1, sizeof *c);
	*c = (struct dev_child){ .loop = cfg->loop, .on_exit = cfg->on_exit, .arg = cfg->arg, .fd = fds[0] };
	dev_lines_init(&c->lines, cfg->label, cfg->color);
	c->process.data = c;
	int r = fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
	if (r == 0)
		r = loop_poll_new(c->loop, c->fd, on_readable, c, &c->poll);
	if (r < 0) {
		close(fds[0]);
		close(fds[1]);
		free(c);
		return r;
	}
	r = spawn(c, cfg->argv, cfg->envp, fds[1]);
	close(fds[1]);
	if (r < 0) {
		close_pipe(c);
		/* Also after a failure uv_spawn leaves a handle that wants to be closed. */
		uv_close((uv_handle_t *)&c->process, on_closed);
		return r;
	}
	loop_poll_set(c->poll, LOOP_READ);
	c->runs = true;
	*ret = c;
	return 0;
}

bool dev_child_runs(const struct dev_child *c)
{
	return c && c->runs;
}

const char *dev_child_error(const struct dev_child *c)
{
	return c->error;
}

void dev_child_signal(struct dev_child *c, int signo)
{
	if (dev_child_runs(c))
		(void)uv_process_kill(&c->process, signo);
}

void dev_child_free(struct dev_child *c)
{
	if (!c)
		return;
	assert(!c->runs);
	close_pipe(c);
	uv_close((uv_handle_t *)&c->process, on_closed);
}

int dev_child_main(int argc, char **argv)
{
	int64_t parent;
	if (argc < 4 || num_parse_i64(argv[2], &parent) < 0) {
		fprintf(stderr, "reins: %s is for `reins dev` itself\n", DEV_CHILD_WORD);
		return 64;
	}
	/* In this order: a parent that ended before the first call is seen by the second. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != (pid_t)parent)
		return EXIT_NOT_STARTED;
	execv(argv[3], argv + 3);
	fprintf(stderr, "%s can't be run: %s\n", argv[3], strerror(errno));
	return EXIT_NOT_STARTED;
}
