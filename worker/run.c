/* States of a run:
 *   LIVE      there is a connection
 *   LOOKING   there is none: the supervisor's lock says whether it lives.  If it does it is connected to; one that can't be
 *             for LOOK_NS is killed, since nobody else could tell it anything either
 *   SWEEPING  it is dead, and its tree is being ended
 *   OVER      RUN_EMPTY or RUN_SWEPT was said, or the owner has left
 *
 * What is to be said waits in flags, not in a queue: only the newest deadlines and the strictest stop matter, so a
 * supervisor that stands still holds up nobody. */
#include "worker/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "worker/state_dir.h"

#define READS_PER_TURN 16
#define TAKES 3 /* spares that may turn out dead before it counts as a failure */
#define LOOK_FIRST_NS (2 * NS_PER_MS)
#define LOOK_MAX_NS (100 * NS_PER_MS)
#define LOOK_NS (3 * NS_PER_S)

enum run_state { RUN_LIVE, RUN_LOOKING, RUN_SWEEPING, RUN_OVER };

struct run {
	struct run_host host;
	run_on_event *on_event;
	void *arg;
	char name[STATE_ATTEMPT_NAME_MAX];
	enum run_state state;
	int fd, dir_fd, lock_fd;
	struct loop_poll *poll;
	struct sup_status status;      /* the newest */
	int64_t told_log_end, told_log_dropped;
	int told_stuck;
	unsigned told;                 /* bits of enum run_event */
	bool unusable, settled;
	struct sup_stop *stop;         /* NULL: none was asked for */
	struct sup_deadlines deadlines;
	bool say_stop, say_deadlines, say_seen;
	struct loop_timer look_timer;
	int64_t look_wait_ns, look_since_mono_ns;
	struct sweep_target target;
	struct loop_grave grave;
};

#define log_run(level, r, ...) \
	do { \
		char object_[STATE_ATTEMPT_NAME_MAX + 16]; \
		snprintf(object_, sizeof(object_), "dir=%s", (r)->name); \
		log_line(level, "attempt", object_, __VA_ARGS__); \
	} while (0)

/* ---- events ---- */

static void say(struct run *r, enum run_event event)
{
	if (r->state == RUN_OVER)
		return;
	r->told |= 1u << event;
	if (event == RUN_EMPTY || event == RUN_SWEPT)
		r->state = RUN_OVER;
	r->on_event(r->arg, event, &r->status);
}

static void say_once(struct run *r, enum run_event event, bool holds)
{
	if (holds && !(r->told & 1u << event))
		say(r, event);
}

/* What the newest status has that the owner was not told. */
static void tell(struct run *r)
{
	const struct sup_status *s = &r->status;
	bool failed = s->launch_errno != 0 || s->phase == SUP_LAUNCH_FAILED;
	say_once(r, RUN_EXEC, s->started_wall_us != 0 && !failed);
	say_once(r, RUN_LAUNCH_FAILED, failed);
	if (s->log_end != r->told_log_end || s->log_dropped != r->told_log_dropped) {
		r->told_log_end = s->log_end;
		r->told_log_dropped = s->log_dropped;
		say(r, RUN_LOG);
	}
	say_once(r, RUN_STOPPING, s->stopped_by != SUP_NOT_STOPPED);
	if (s->stuck != r->told_stuck) {
		r->told_stuck = s->stuck;
		say(r, RUN_STUCK);
	}
	say_once(r, RUN_EXIT, s->phase == SUP_EXITED || s->phase == SUP_EMPTY);
	say_once(r, RUN_EMPTY, s->phase == SUP_EMPTY);
}

/* Takes what we know of a struct that may be shorter or longer; false: it is none. */
static bool parse_status(const void *data, size_t len, struct sup_status *ret)
{
	struct sup_head head;
	if (len < offsetof(struct sup_status, text))
		return false;
	memcpy(&head, data, sizeof(head));
	if (head.type != SUP_STATUS || head.size > len)
		return false;
	struct sup_status s = {0};
	memcpy(&s, data, min_sz(head.size, sizeof(s)));
	if (s.phase < SUP_STARTING || s.phase > SUP_EMPTY || s.log_end < 0 || s.log_dropped < 0)
		return false;
	s.text[sizeof(s.text) - 1] = '\0';
	*ret = s;
	return true;
}

/* ---- the connection ---- */

static void look(struct run *r);

static void disconnect(struct run *r)
{
	loop_poll_free(r->poll);
	r->poll = NULL;
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

static void begin_looking(struct run *r)
{
	disconnect(r);
	r->state = RUN_LOOKING;
	r->look_wait_ns = LOOK_FIRST_NS;
	r->look_since_mono_ns = loop_now_mono_ns(r->host.loop);
	loop_timer_set(&r->look_timer, r->look_since_mono_ns);
}

/* 1: sent; 0: not now; -1: the connection is gone. */
static int send_packet(struct run *r, const void *packet, size_t len)
{
	ssize_t n = send(r->fd, packet, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0)
		return 1;
	return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? 0 : -1;
}

/* Says what there is to say.  Never ends the connection: what is still to be read comes first, and the end with it. */
static void flush(struct run *r)
{
	const struct sup_head seen = {.type = SUP_SEEN, .size = sizeof(seen)};
	if (r->state != RUN_LIVE)
		return;
	int sent = 1;
	if (r->say_stop && (sent = send_packet(r, r->stop, sizeof(*r->stop))) == 1)
		r->say_stop = false;
	if (sent == 1 && r->say_deadlines && (sent = send_packet(r, &r->deadlines, sizeof(r->deadlines))) == 1)
		r->say_deadlines = false;
	if (sent == 1 && r->say_seen && (sent = send_packet(r, &seen, sizeof(seen))) == 1)
		r->say_seen = false;
	loop_poll_set(r->poll, LOOP_READ | (sent == 0 ? LOOP_WRITE_READY : 0));
}

static void on_ready(void *arg, int events)
{
	struct run *r = arg;
	static uint8_t packet[SUP_PACKET_MAX];
	for (int n = 0; n < READS_PER_TURN && r->state == RUN_LIVE; n++) {
		ssize_t len = recv(r->fd, packet, sizeof(packet), MSG_DONTWAIT);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && errno == EAGAIN)
			break;
		/* At its end; or it says what no supervisor says, which a new connection may mend. */
		if (len <= 0 || !parse_status(packet, (size_t)len, &r->status)) {
			if (len > 0)
				log_run(LOG_WARN, r, "the supervisor said something that is no status");
			begin_looking(r);
			return;
		}
		r->settled = true;
		r->say_seen = true;
		tell(r);
	}
	flush(r);
}

static int watch(struct run *r, int fd)
{
	int err = loop_poll_new(r->host.loop, fd, on_ready, r, &r->poll);
	if (err < 0)
		return err;
	r->fd = fd;
	r->state = RUN_LIVE;
	loop_poll_set(r->poll, LOOP_READ);
	return 0;
}

/* ---- does it live? ---- */

static ssize_t read_file(int dir_fd, const char *name, void *out, size_t cap)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	ssize_t n = pread(fd, out, cap, 0);
	int err = errno;
	close(fd);
	return n < 0 ? -err : n;
}

static void read_status_file(struct run *r)
{
	uint8_t data[SUP_PACKET_MAX];
	struct sup_status s;
	ssize_t n = read_file(r->dir_fd, "status", data, sizeof(data));
	if (n < 0)
		return;
	if (!parse_status(data, (size_t)n, &s)) {
		log_run(LOG_WARN, r, "its file `status` is damaged");
		if (!r->status.phase)
			r->status.phase = SUP_STARTING; /* that it is there says so much */
	} else if (s.phase >= r->status.phase && s.log_end >= r->status.log_end)
		r->status = s; /* else it is older than what we heard */
}

static bool same_process(const struct sup_identity *id)
{
	char path[64], stat[1024];
	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)id->pid);
	ssize_t n = read_file(AT_FDCWD, path, stat, sizeof(stat) - 1);
	if (n <= 0)
		return false;
	stat[n] = '\0';
	const char *p = strrchr(stat, ')'); /* the name before it may hold anything */
	unsigned long long start;
	return p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start) == 1 &&
	       start == id->start_ticks;
}

/* Who wrote the file `supervisor`, if that process lives. */
static bool read_identity(struct run *r, struct sup_identity *ret)
{
	char boot[40] = "";
	struct sup_identity id;
	ssize_t n = read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot) - 1);
	boot[n > 0 ? strcspn(boot, "\n") : 0] = '\0';
	if (read_file(r->dir_fd, "supervisor", &id, sizeof(id)) != (ssize_t)sizeof(id) || id.size < sizeof(id) || id.pid <= 1)
		return false;
	id.boot_id[sizeof(id.boot_id) - 1] = '\0';
	if (strcmp(id.boot_id, boot) != 0 || !same_process(&id))
		return false;
	*ret = id;
	return true;
}

/* By a descriptor of the process, so that it can't be a stranger who got its number. */
static void signal_supervisor(struct run *r, int signo)
{
	struct sup_identity id;
	int fd = read_identity(r, &id) ? (int)syscall(SYS_pidfd_open, (pid_t)id.pid, 0) : -1;
	if (fd < 0)
		return;
	if (same_process(&id))
		syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
	close(fd);
}

/* True: nobody has the lock, and nobody will get it. */
static bool is_dead(struct run *r)
{
	if (r->lock_fd < 0) {
		r->lock_fd = openat(r->dir_fd, "supervisor", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (r->lock_fd < 0)
			return false;
	}
	if (flock(r->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return true;
	close(r->lock_fd);
	r->lock_fd = -1;
	return false;
}

static int connect_again(struct run *r)
{
	struct sup_identity id;
	if (!read_identity(r, &id))
		return -ESRCH;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	/* So that the length of the directory's path does not matter. */
	snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/socket", r->dir_fd);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ? -errno : 0;
	if (err == 0)
		err = watch(r, fd);
	if (err < 0) {
		if (fd >= 0)
			close(fd);
		return err;
	}
	/* It may not have got what we said on the connection before. */
	r->say_stop = r->stop != NULL;
	r->say_deadlines = r->deadlines.head.size != 0;
	return 0;
}

static void on_swept(struct sweep_target *t)
{
	struct run *r = container_of(t, struct run, target);
	say(r, RUN_SWEPT);
}

static void on_sweep_stuck(struct sweep_target *t, int n)
{
	struct run *r = container_of(t, struct run, target);
	r->status.stuck = r->told_stuck = n;
	snprintf(r->status.text, sizeof(r->status.text), "%d processes of a supervisor that died do not end after SIGKILL", n);
	say(r, RUN_STUCK);
}

static void found_dead(struct run *r)
{
	r->settled = true;
	if (!r->unusable)
		read_status_file(r);
	/* It had its job from an agent that is gone, perhaps, and comes to it only now. */
	if (r->lock_fd >= 0 && !r->status.phase)
		unlinkat(r->dir_fd, "supervisor", 0);
	if (!r->unusable && r->status.phase == SUP_EMPTY) {
		tell(r);
		return;
	}
	r->state = RUN_SWEEPING;
	if (!r->unusable)
		tell(r);
	say_once(r, RUN_DIED, true);
	if (r->state == RUN_SWEEPING)
		sweeper_add(r->host.sweeper, &r->target, r->name);
}

static void look(struct run *r)
{
	int64_t now = loop_now_mono_ns(r->host.loop);
	bool in_vain = now - r->look_since_mono_ns >= LOOK_NS;
	if (is_dead(r)) {
		found_dead(r);
		return;
	}
	if (r->unusable || in_vain)
		signal_supervisor(r, SIGKILL);
	else if (connect_again(r) == 0) {
		r->settled = true;
		read_status_file(r); /* what it had said when it last wrote: it may be standing still */
		tell(r);
		flush(r);
		return;
	}
	/* Held by one that is not who the file says, or that does not die: its tree is ended all the same. */
	if (in_vain && now - r->look_since_mono_ns >= 2 * LOOK_NS) {
		log_run(LOG_ERROR, r, "the supervisor can't be reached, and can't be ended: its program is ended without it");
		r->unusable = true;
		found_dead(r);
		return;
	}
	loop_timer_set(&r->look_timer, now + r->look_wait_ns);
	r->look_wait_ns = min_i64(2 * r->look_wait_ns, LOOK_MAX_NS);
}

static void on_look_timer(struct loop_timer *t)
{
	struct run *r = container_of(t, struct run, look_timer);
	if (r->state == RUN_LOOKING)
		look(r);
}

/* ---- the owner ---- */

static struct run *run_new(const struct run_host *host, const char *name, int dir_fd, run_on_event *on_event, void *arg)
{
	struct run *r = xcalloc(1, sizeof(*r));
	r->host = *host;
	r->on_event = on_event;
	r->arg = arg;
	r->fd = r->lock_fd = -1;
	r->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	snprintf(r->name, sizeof(r->name), "%s", name);
	loop_timer_init(&r->look_timer, host->loop, on_look_timer);
	sweep_target_init(&r->target, on_swept, on_sweep_stuck);
	return r;
}

static int send_job(int fd, const struct run_job *job)
{
	struct sup_job packet = {.head = {SUP_JOB, sizeof(packet)}, .deadlines = job->deadlines, .has_stdin = job->stdin_fd >= 0};
	const int fds[3] = {job->dir_fd, job->job_fd, job->stdin_fd};
	size_t size = sizeof(int) * (job->stdin_fd >= 0 ? 3 : 2);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} rights = {0};
	packet.deadlines.head = (struct sup_head){SUP_DEADLINES, sizeof(packet.deadlines)};
	struct iovec io = {.iov_base = &packet, .iov_len = sizeof(packet)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = rights.bytes, .msg_controllen = CMSG_SPACE(size)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(c), fds, size);
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The file that the supervisor is to lock. */
static int make_lock(const struct run *r)
{
	int fd = openat(r->dir_fd, "supervisor", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int run_start(const struct run_host *host, const char *name, const struct run_job *job, run_on_event *on_event, void *arg,
	      struct run **ret)
{
	struct run *r = run_new(host, name, job->dir_fd, on_event, arg);
	int err = r->dir_fd < 0 ? -EMFILE : make_lock(r), fd = -1;
	for (int i = 0; err == 0 && i < TAKES; i++) {
		fd = spares_take(host->spares);
		int sent = fd < 0 ? fd : send_job(fd, job);
		if (sent == 0)
			break;
		if (fd >= 0)
			close(fd); /* it ended a moment ago */
		if (fd < 0 || i == TAKES - 1)
			err = sent;
	}
	if (err < 0) {
		run_free(r);
		return err;
	}
	r->settled = true;
	/* From here on it has its job, whatever happens. */
	if (watch(r, fd) < 0) {
		close(fd);
		begin_looking(r);
	}
	*ret = r;
	return 0;
}

int run_adopt(const struct run_host *host, const char *name, int dir_fd, bool usable, run_on_event *on_event, void *arg,
	      struct run **ret)
{
	struct run *r = run_new(host, name, dir_fd, on_event, arg);
	if (r->dir_fd < 0) {
		run_free(r);
		return -EMFILE;
	}
	r->unusable = !usable;
	begin_looking(r);
	*ret = r;
	return 0;
}

bool run_settled(const struct run *r)
{
	return r->settled && r->state != RUN_SWEEPING;
}

void run_stop(struct run *r, int reason, int64_t grace_ns, const char *text)
{
	if (!r->stop) {
		r->stop = xcalloc(1, sizeof(*r->stop));
		*r->stop = (struct sup_stop){.head = {SUP_STOP, sizeof(*r->stop)}, .reason = reason, .grace_ns = grace_ns};
		snprintf(r->stop->text, sizeof(r->stop->text), "%s", text ? text : "");
	} else if (grace_ns < r->stop->grace_ns) {
		r->stop->grace_ns = grace_ns;
	} else {
		return;
	}
	r->say_stop = true;
	/* The program may have stopped it, so as not to be ended. */
	if (r->state == RUN_LIVE)
		signal_supervisor(r, SIGCONT);
	flush(r);
}

void run_deadlines(struct run *r, int64_t term_boot_ns, int64_t kill_boot_ns, int64_t orphan_boot_ns)
{
	r->deadlines = (struct sup_deadlines){.head = {SUP_DEADLINES, sizeof(r->deadlines)}, .term_boot_ns = term_boot_ns,
		.kill_boot_ns = kill_boot_ns, .orphan_boot_ns = orphan_boot_ns};
	r->say_deadlines = true;
	flush(r);
}

const struct sup_status *run_status(const struct run *r)
{
	return &r->status;
}

static void free_run(struct loop_grave *g)
{
	struct run *r = container_of(g, struct run, grave);
	free(r->stop);
	free(r);
}

void run_free(struct run *r)
{
	if (!r)
		return;
	r->state = RUN_OVER;
	disconnect(r);
	loop_timer_stop(&r->look_timer);
	sweeper_remove(r->host.sweeper, &r->target);
	if (r->lock_fd >= 0)
		close(r->lock_fd);
	if (r->dir_fd >= 0)
		close(r->dir_fd);
	loop_bury(r->host.loop, &r->grave, free_run);
}
