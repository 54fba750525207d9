/* Looks through /proc on a thread of libuv's pool, one look at a time for all targets. */
#include "worker/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#define ENVIRON_MAX (512 * 1024) /* the kernel's own limit is of this order */
#define TARGETS_MAX 256          /* of one look; the others wait for the next */
#define AGAIN_NS (10 * NS_PER_MS)
#define STUCK_AGAIN_NS NS_PER_S
#define STUCK_NS (10 * NS_PER_S)
/* A process that forks while it is killed may have a child that the first look has passed already. */
#define CLEAN_LOOKS 2

struct sweeper {
	struct loop *loop;
	char *worker_id;
	int (*end_cgroups)(void *arg, const char *name);
	void *arg;
	struct list targets;
	struct loop_timer timer;
	uv_work_t work;
	bool looking;
	/* Of the look under way. */
	size_t n;
	struct sweep_target *at[TARGETS_MAX]; /* NULL: removed meanwhile */
	char names[TARGETS_MAX][STATE_ATTEMPT_NAME_MAX];
	int found[TARGETS_MAX];
};

/* ---- one look ---- */

/* The value of a variable in a block of NUL-terminated strings, or NULL. */
static const char *find_variable(const char *block, size_t len, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = block, *end = block + len; p < end; p += strlen(p) + 1)
		if (!strncmp(p, name, n) && p[n] == '=')
			return p + n + 1;
	return NULL;
}

/* To exactly the process whose environment was read: its id may be another's by now.  True: it was there. */
static bool kill_exactly(pid_t pid, int pidfd)
{
	if (pidfd < 0)
		return kill(pid, SIGKILL) == 0; /* a kernel without them */
	return syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
}

static size_t read_environ(pid_t pid, char *out, size_t cap)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	size_t len = 0;
	for (ssize_t n; len < cap - 1 && (n = read(fd, out + len, cap - 1 - len)) > 0;)
		len += (size_t)n;
	close(fd);
	out[len] = '\0';
	return len;
}

/* Index into names, or -1. */
static ptrdiff_t whose(const char *block, size_t len, const char *worker_id, const char (*names)[STATE_ATTEMPT_NAME_MAX], size_t n)
{
	const char *worker = find_variable(block, len, "REINS_WORKER_ID");
	const char *task = find_variable(block, len, "REINS_TASK_ID");
	const char *attempt = find_variable(block, len, "REINS_ATTEMPT");
	char name[2 * STATE_ATTEMPT_NAME_MAX];
	if (!worker || !task || !attempt || strcmp(worker, worker_id) != 0)
		return -1;
	snprintf(name, sizeof(name), "%s.%s", task, attempt);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return (ptrdiff_t)i;
	return -1;
}

void sweep_processes(const char *worker_id, const char (*names)[STATE_ATTEMPT_NAME_MAX], size_t n, int *found)
{
	memset(found, 0, n * sizeof(*found));
	DIR *proc = n ? opendir("/proc") : NULL;
	if (!proc)
		return;
	_cleanup_free_ char *block = xcalloc(1, ENVIRON_MAX);
	for (struct dirent *e; (e = readdir(proc));) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid == getpid())
			continue;
		int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
		if (pidfd < 0 && errno != ENOSYS)
			continue; /* gone */
		size_t len = read_environ(pid, block, ENVIRON_MAX);
		ptrdiff_t i = len ? whose(block, len, worker_id, names, n) : -1;
		if (i >= 0 && kill_exactly(pid, pidfd))
			found[i]++;
		if (pidfd >= 0)
			close(pidfd);
	}
	closedir(proc);
}

/* ---- the sweeper ---- */

static void look(uv_work_t *w)
{
	struct sweeper *s = w->data;
	sweep_processes(s->worker_id, (const char (*)[STATE_ATTEMPT_NAME_MAX])s->names, s->n, s->found);
}

static bool judge(struct sweeper *s, struct sweep_target *t, int found, int64_t now)
{
	if (s->end_cgroups && s->end_cgroups(s->arg, t->name) < 0 && found == 0)
		found = 1;
	t->clean = found ? 0 : t->clean + 1;
	if (t->clean >= CLEAN_LOOKS) {
		list_remove(&t->node);
		t->on_swept(t);
		return false;
	}
	bool stuck = found && now - t->since_mono_ns > STUCK_NS;
	if (stuck && found != t->said) {
		t->said = found;
		t->on_stuck(t, found);
	}
	return !stuck;
}

static void on_looked(uv_work_t *w, int status)
{
	struct sweeper *s = w->data;
	int64_t now = loop_now_mono_ns(s->loop);
	bool soon = false;
	s->looking = false;
	for (size_t i = 0; i < s->n; i++) {
		struct sweep_target *t = s->at[i];
		if (!t)
			continue;
		/* To the end: where there are more than one look takes, they take turns. */
		list_remove(&t->node);
		list_push_back(&s->targets, &t->node);
		soon |= judge(s, t, s->found[i], now);
	}
	if (!list_empty(&s->targets))
		loop_timer_set(&s->timer, now + (soon ? AGAIN_NS : STUCK_AGAIN_NS));
}

static void on_timer(struct loop_timer *timer)
{
	struct sweeper *s = container_of(timer, struct sweeper, timer);
	if (s->looking || list_empty(&s->targets))
		return;
	s->n = 0;
	list_each(node, &s->targets) {
		if (s->n == TARGETS_MAX)
			break;
		s->at[s->n] = container_of(node, struct sweep_target, node);
		memcpy(s->names[s->n], s->at[s->n]->name, sizeof(s->names[0]));
		s->n++;
	}
	s->looking = true;
	s->work.data = s;
	if (uv_queue_work(loop_uv(s->loop), &s->work, look, on_looked) < 0)
		abort(); /* only for arguments that are wrong */
}

struct sweeper *sweeper_new(struct loop *loop, const char *worker_id, int (*end_cgroups)(void *arg, const char *name), void *arg)
{
	struct sweeper *s = xcalloc(1, sizeof(*s));
	s->loop = loop;
	s->worker_id = xstrdup(worker_id);
	s->end_cgroups = end_cgroups;
	s->arg = arg;
	list_init(&s->targets);
	loop_timer_init(&s->timer, loop, on_timer);
	return s;
}

void sweeper_free(struct sweeper *s)
{
	if (!s)
		return;
	loop_timer_stop(&s->timer);
	free(s->worker_id);
	free(s);
}

bool sweeper_idle(const struct sweeper *s)
{
	return !s->looking;
}

void sweep_target_init(struct sweep_target *t, void (*on_swept)(struct sweep_target *), void (*on_stuck)(struct sweep_target *, int))
{
	*t = (struct sweep_target){.on_swept = on_swept, .on_stuck = on_stuck};
	list_init(&t->node);
}

void sweeper_add(struct sweeper *s, struct sweep_target *t, const char *name)
{
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->since_mono_ns = loop_now_mono_ns(s->loop);
	t->clean = t->said = 0;
	list_push_back(&s->targets, &t->node);
	if (!s->looking)
		loop_timer_set(&s->timer, t->since_mono_ns);
}

void sweeper_remove(struct sweeper *s, struct sweep_target *t)
{
	list_remove(&t->node);
	for (size_t i = 0; s->looking && i < s->n; i++)
		if (s->at[i] == t)
			s->at[i] = NULL;
}
