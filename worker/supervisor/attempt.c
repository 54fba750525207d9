/* One thread, one poll.  Each turn: what has ended is reaped first, so that an end before a stop counts as it is; then
 * the agent is heard, deadlines are looked at, output is read (one buffer of each stream, so that no printer holds up the
 * rest), the tree's emptiness is tested, and the agent is told. */
#include "worker/supervisor/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/supervisor/child.h"
#include "worker/supervisor/ending.h"
#include "worker/supervisor/files.h"
#include "worker/supervisor/guard.h"
#include "worker/supervisor/log_writer.h"
#include "worker/supervisor/tree.h"

#define READ_SIZE LOG_RECORD_DATA_MAX
#define PACKETS_PER_TURN 32
#define ROUND_FIRST_NS (1 * NS_PER_MS)
#define ROUND_LAST_NS (100 * NS_PER_MS)
#define ROUND_STUCK_NS (1 * NS_PER_S)
#define LINGER_NS (1 * NS_PER_S)         /* for the agent to take the last status, for cgroups to go */
#define STATUS_AGAIN_NS (1 * NS_PER_S)

struct attempt {
	struct control *control;
	int dir_fd, lock_fd, signal_fd, timer_fd;
	struct child child;            /* pid 0: never was; descriptors -1: at their end */
	struct tree tree;
	struct ending ending;
	struct guard guard;
	struct log_writer log;
	struct sup_status status;
	char text[SUP_TEXT_MAX];       /* what status.text says while nothing is stuck */
	int64_t timeout_ns, stuck_after_ns;
	int64_t kill_began_boot_ns, round_boot_ns, round_wait_ns; /* round_boot_ns: of the next tree_kill; SUP_NEVER: none */
	bool identified;               /* the directory is ours to write to */
	bool unsaved;                  /* the status file does not have it yet */
	int64_t save_boot_ns;
};

static char buffer[READ_SIZE];

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void changed(struct attempt *a)
{
	a->control->changed = true;
}

static void save(struct attempt *a)
{
	if (!a->identified)
		return;
	int r = files_write_status(a->dir_fd, &a->status);
	/* The directory was removed under us: nobody will ever read it. */
	a->unsaved = r < 0 && r != -ENOENT;
	a->save_boot_ns = clock_boot_ns() + STATUS_AGAIN_NS;
}

static void set_phase(struct attempt *a, enum sup_phase phase)
{
	a->status.phase = phase;
	changed(a);
}

static void set_text(struct attempt *a, const char *text)
{
	snprintf(a->text, sizeof(a->text), "%.*s", SUP_TEXT_MAX - 1, text);
	if (!a->status.stuck)
		memcpy(a->status.text, a->text, sizeof(a->text));
}

static void launch_failed(struct attempt *a, const struct child_failure *f)
{
	a->status.launch_errno = f->err ? f->err : EINVAL;
	a->status.launch_own = f->own;
	set_text(a, f->text);
	set_phase(a, SUP_LAUNCH_FAILED);
}

static void refused(struct attempt *a, int err, const char *what)
{
	struct child_failure f = {.err = err < 0 ? -err : err, .own = 1};
	snprintf(f.text, sizeof(f.text), "%.*s", SUP_TEXT_MAX - 1, what);
	launch_failed(a, &f);
}

static void act(struct attempt *a, enum ending_action action)
{
	int64_t now = clock_boot_ns();
	if (a->status.stopped_by != (int32_t)a->ending.stopped_by) {
		a->status.stopped_by = (int32_t)a->ending.stopped_by;
		changed(a);
	}
	if (action == ENDING_SEND_TERM)
		tree_term(&a->tree);
	if (action == ENDING_SEND_KILL) {
		a->kill_began_boot_ns = a->round_boot_ns = now;
		a->round_wait_ns = ROUND_FIRST_NS;
	}
}

static void step(struct attempt *a, enum ending_event event, int64_t grace_ns)
{
	act(a, ending_step(&a->ending, event, grace_ns, clock_boot_ns()));
}

/* Whether exec has succeeded, as soon as it is known. */
static void read_launch(struct attempt *a)
{
	struct child_failure f;
	if (a->child.failure < 0)
		return;
	ssize_t n = read(a->child.failure, &f, sizeof(f));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close_fd(&a->child.failure);
	if (n == (ssize_t)sizeof(f)) {
		f.text[sizeof(f.text) - 1] = '\0';
		launch_failed(a, &f);
		return;
	}
	a->status.started_wall_us = clock_wall_us();
	if (a->timeout_ns)
		a->ending.timeout_boot_ns = clock_boot_ns() + min_i64(a->timeout_ns, SUP_NEVER / 2);
	set_phase(a, SUP_RUNNING);
	save(a);
}

static void reap(struct attempt *a)
{
	bool before = a->tree.first_reaped;
	tree_reap(&a->tree);
	if (before || !a->tree.first_reaped)
		return;
	int status = a->tree.first_status;
	read_launch(a);
	a->status.exited_wall_us = clock_wall_us();
	if (a->status.phase != SUP_LAUNCH_FAILED) {
		a->status.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
		a->status.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		set_phase(a, SUP_EXITED);
	}
	save(a);
	step(a, ENDING_FIRST_EXIT, 0);
}

static void hear_signals(struct attempt *a)
{
	struct signalfd_siginfo info;
	while (read(a->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGTERM)
			step(a, ENDING_SIGNAL, -1);
}

static void hear_stop(struct attempt *a, const struct sup_stop *s)
{
	if (a->ending.state == ENDING_RUN && !a->status.launch_errno) {
		char text[SUP_TEXT_MAX];
		memcpy(text, s->text, sizeof(text));
		text[sizeof(text) - 1] = '\0';
		a->status.stop_reason = s->reason;
		set_text(a, text);
	}
	step(a, ENDING_STOP, s->grace_ns);
}

static void hear_agent(struct attempt *a)
{
	union control_packet p;
	for (int n = 0; n < PACKETS_PER_TURN && control_read(a->control, &p, NULL); n++) {
		switch (p.head.type) {
		case SUP_DEADLINES:
			ending_renew(&a->ending, &p.deadlines);
			/* At once: what comes next may hang. */
			guard_arm(&a->guard, &a->tree, ending_lease_kill(&a->ending));
			break;
		case SUP_STOP:
			hear_stop(a, &p.stop);
			break;
		case SUP_SEEN:
			control_seen(a->control);
			break;
		default: /* a second job */
			control_drop(a->control);
		}
	}
	a->ending.connected = a->control->fd >= 0;
}

/* True: there may be more. */
static bool read_output(struct attempt *a, int i, size_t most)
{
	int *fd = &a->child.out[i];
	ssize_t n = *fd < 0 ? 0 : read(*fd, buffer, min_sz(sizeof(buffer), most));
	if (n > 0) {
		log_writer_add(&a->log, (uint32_t)i + 1, buffer, (size_t)n, clock_wall_us());
		a->status.log_end = log_writer_told(&a->log);
		a->status.log_dropped = a->log.dropped;
		a->control->grown = true;
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_fd(fd);
	return false;
}

/* When no process of ours is left: what lies in the pipes by now. Others may hold them, and write on. */
static void read_rest(struct attempt *a)
{
	size_t left[2];
	for (int i = 0; i < 2; i++) {
		int n = 0;
		left[i] = a->child.out[i] >= 0 && ioctl(a->child.out[i], FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
	}
	while (left[0] || left[1])
		for (int i = 0; i < 2; i++) {
			int64_t before = a->log.end;
			if (left[i] && !read_output(a, i, left[i]))
				left[i] = 0;
			left[i] -= (size_t)(a->log.end - before);
		}
	close_fd(&a->child.out[0]);
	close_fd(&a->child.out[1]);
	close_fd(&a->child.failure);
}

static void say_stuck(struct attempt *a, int64_t now)
{
	char which[SUP_TEXT_MAX - 64];
	int n = tree_left(&a->tree, which, sizeof(which));
	if (n == a->status.stuck)
		return;
	a->status.stuck = n;
	snprintf(a->status.text, sizeof(a->status.text), "not ended %lld s after SIGKILL: %s",
	         (long long)((now - a->kill_began_boot_ns) / NS_PER_S), which);
	changed(a);
	save(a);
}

static void kill_round(struct attempt *a)
{
	int64_t now = clock_boot_ns();
	if (a->ending.state != ENDING_KILL || now < a->round_boot_ns || tree_is_empty(&a->tree))
		return;
	bool stuck = now - a->kill_began_boot_ns >= a->stuck_after_ns;
	tree_kill(&a->tree);
	reap(a);
	if (stuck && !tree_is_empty(&a->tree))
		say_stuck(a, now);
	a->round_boot_ns = clock_boot_ns() + a->round_wait_ns;
	a->round_wait_ns = min_i64(2 * a->round_wait_ns, stuck ? ROUND_STUCK_NS : ROUND_LAST_NS);
}

static void look_at_deadlines(struct attempt *a)
{
	for (enum ending_event e; (e = ending_due(&a->ending, clock_boot_ns())) != ENDING_EVENTS;)
		step(a, e, -1);
}

static void arm(struct attempt *a)
{
	int64_t at = ending_next(&a->ending);
	if (a->ending.state == ENDING_KILL)
		at = min_i64(at, a->round_boot_ns);
	if (a->unsaved)
		at = min_i64(at, a->save_boot_ns);
	guard_arm(&a->guard, &a->tree, ending_lease_kill(&a->ending));
	struct itimerspec t = {0};
	if (at != SUP_NEVER) {
		at = max_i64(at, 1); /* 0 would mean never */
		t.it_value = (struct timespec){.tv_sec = at / NS_PER_S, .tv_nsec = at % NS_PER_S};
	}
	timerfd_settime(a->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void wait_and_hear(struct attempt *a)
{
	enum { SIGNALS, TIMER, LISTEN, AGENT, OUT, ERR, LAUNCH, N };
	struct pollfd p[N] = {
		[SIGNALS] = {.fd = a->signal_fd, .events = POLLIN},
		[TIMER] = {.fd = a->timer_fd, .events = POLLIN},
		[LISTEN] = {.fd = a->control->listen_fd, .events = POLLIN},
		[AGENT] = {.fd = a->control->fd, .events = (short)(POLLIN | (a->control->blocked ? POLLOUT : 0))},
		[OUT] = {.fd = a->child.out[0], .events = POLLIN},
		[ERR] = {.fd = a->child.out[1], .events = POLLIN},
		[LAUNCH] = {.fd = a->child.failure, .events = POLLIN},
	};
	arm(a);
	if (poll(p, N, -1) < 0)
		return;
	/* The timer needs no reading: it is set anew each turn. */
	read_launch(a);
	reap(a);
	if (p[LISTEN].revents)
		control_accept(a->control);
	hear_agent(a);
	if (p[SIGNALS].revents)
		hear_signals(a);
	look_at_deadlines(a);
	for (int i = 0; i < 2; i++)
		if (p[OUT + i].revents)
			read_output(a, i, READ_SIZE);
	if (a->unsaved && clock_boot_ns() >= a->save_boot_ns)
		save(a);
}

static void start(struct attempt *a, const struct job *j, int stdin_fd)
{
	struct child_failure f;
	if (ending_due(&a->ending, clock_boot_ns()) != ENDING_EVENTS) {
		a->ending.stopped_by = SUP_BY_LEASE;
		refused(a, ETIME, "the lease leaves no time to run");
		return;
	}
	if (child_start(j, stdin_fd, &a->child, &f) < 0) {
		a->child = (struct child){.out = {-1, -1}, .failure = -1};
		launch_failed(a, &f);
		return;
	}
	a->status.pid = a->tree.first = a->child.pid;
	changed(a);
}

/* False: refused, and there is nothing to run. */
static bool prepare(struct attempt *a, const struct sup_job *packet, const struct control_fds *fds, struct job *j)
{
	char text[SUP_TEXT_MAX];
	if (fds->n != (packet->has_stdin ? 3 : 2)) {
		refused(a, EINVAL, "the job is malformed: it comes with directory, job and, where has_stdin says so, stdin");
		return false;
	}
	int r = files_identify(a->dir_fd, &a->lock_fd);
	if (r < 0) {
		snprintf(text, sizeof(text), "the attempt's directory: %s",
		         r == -EWOULDBLOCK ? "another supervisor is in it" : r == -ENOENT ? "it was given up" : strerror(-r));
		refused(a, r, text);
		return false;
	}
	a->identified = true;
	r = job_read(j, fds->fds[1], text);
	if (r < 0) {
		refused(a, r, text);
		return false;
	}
	ending_init(&a->ending, j->f.kill_grace_ns);
	a->ending.deadlines = packet->deadlines;
	a->timeout_ns = j->f.timeout_ns;
	a->stuck_after_ns = j->f.stuck_after_ns;
	log_writer_init(&a->log, a->dir_fd, j->f.log_head_bytes, j->f.log_ring_bytes);
	r = tree_init(&a->tree, j->join, j->f.kill_index, j->f.oom_index);
	if (r == 0)
		r = files_listen(a->dir_fd, &a->control->listen_fd);
	if (r == 0)
		r = files_write_status(a->dir_fd, &a->status);
	if (r < 0) {
		snprintf(text, sizeof(text), "the attempt's directory: %s", strerror(-r));
		refused(a, r, text);
		return false;
	}
	return true;
}

/* Until the agent has taken the last status, or the file has it: one of both must know how it ended. */
static void tell_end(struct attempt *a)
{
	int64_t until = clock_boot_ns() + LINGER_NS;
	for (;;) {
		if (a->control->listen_fd >= 0)
			control_accept(a->control);
		control_flush(a->control, &a->status);
		bool told = a->control->fd >= 0 && !a->control->changed;
		if (told || (!a->unsaved && (a->control->fd < 0 || clock_boot_ns() >= until)))
			return;
		struct pollfd p[2] = {
			{.fd = a->control->fd, .events = POLLOUT},
			{.fd = a->control->listen_fd, .events = POLLIN},
		};
		poll(p, 2, (int)(STATUS_AGAIN_NS / NS_PER_MS));
		if (p[0].revents & (POLLHUP | POLLERR))
			control_drop(a->control);
		if (a->unsaved)
			save(a);
	}
}

static void finish(struct attempt *a)
{
	int64_t until = clock_boot_ns() + LINGER_NS;
	read_rest(a);
	log_writer_finish(&a->log, clock_wall_us());
	a->status.log_end = a->log.end;
	a->status.log_dropped = a->log.dropped;
	a->status.oom_kills = tree_oom_kills(&a->tree);
	a->status.stuck = 0;
	memcpy(a->status.text, a->text, sizeof(a->text));
	/* A cgroup may be busy for a moment after its last process. */
	while (!tree_remove_cgroups(&a->tree) && clock_boot_ns() < until)
		poll(NULL, 0, (int)(ROUND_FIRST_NS / NS_PER_MS));
	set_phase(a, SUP_EMPTY);
	save(a);
	tell_end(a);
	control_close(a->control, clock_boot_ns() + LINGER_NS);
	if (a->identified)
		files_end_status(a->dir_fd);
}

void attempt_run(struct control *control, int signal_fd, const struct sup_job *packet, const struct control_fds *fds)
{
	static struct attempt a; /* too large for comfort on a stack */
	struct job j = {0};
	a = (struct attempt){.control = control, .dir_fd = fds->fds[0], .lock_fd = -1, .signal_fd = signal_fd,
		.child = {.out = {-1, -1}, .failure = -1}, .round_boot_ns = SUP_NEVER,
		.status = {.head = {.type = SUP_STATUS, .size = sizeof(a.status)}, .version = SUP_VERSION, .phase = SUP_STARTING}};
	ending_init(&a.ending, 0);
	guard_init(&a.guard);
	log_writer_init(&a.log, a.dir_fd, 1, 2);
	a.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	changed(&a);
	if (a.timer_fd < 0)
		refused(&a, errno, "timerfd_create");
	else if (prepare(&a, packet, fds, &j))
		start(&a, &j, fds->n > 2 ? fds->fds[2] : -1);
	job_done(&j);
	for (int i = 1; i < fds->n; i++)
		close(fds->fds[i]);
	reap(&a);
	if (!a.tree.first)
		step(&a, ENDING_FIRST_EXIT, 0);
	control_flush(control, &a.status);
	while (a.tree.first || !a.tree.childless || !tree_is_empty(&a.tree)) {
		wait_and_hear(&a);
		/* Whom only the cgroup knows would not be missed by waiting for the grace's end. */
		if (!a.tree.first && a.tree.childless && !tree_is_empty(&a.tree))
			step(&a, ENDING_GRACE_OVER, 0);
		kill_round(&a);
		control_flush(control, &a.status);
	}
	step(&a, ENDING_EMPTY, 0);
	guard_arm(&a.guard, &a.tree, SUP_NEVER);
	finish(&a);
	log_writer_done(&a.log);
	tree_done(&a.tree);
}
