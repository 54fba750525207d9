/* Ids are signalled as procs.h says it, never by number alone; the first process's group only while the first process has
 * not been reaped, since its id may belong to others after. */
#include "worker/supervisor/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/supervisor/procs.h"

#define STOP_PASSES 32
#define CGROUP_DEPTH 16 /* of cgroups that the program made in its own */
#define CGROUP_TEXT 4096

int tree_init(struct tree *t, char *const *cgroups, int kill_index, int oom_index)
{
	size_t n = 0;
	while (cgroups[n])
		n++;
	*t = (struct tree){.cgroups = calloc(n + 1, sizeof(*t->cgroups))};
	if (!t->cgroups)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (!(t->cgroups[i] = strdup(cgroups[i])))
			return -ENOMEM;
	t->kill_cgroup = kill_index < 0 ? NULL : t->cgroups[kill_index];
	t->oom_cgroup = oom_index < 0 ? NULL : t->cgroups[oom_index];
	return 0;
}

void tree_done(struct tree *t)
{
	for (char **p = t->cgroups; p && *p; p++)
		free(*p);
	free(t->cgroups);
	*t = (struct tree){0};
}

static int open_in(const char *dir, const char *name, int flags)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
	return n > 0 && (size_t)n < sizeof(path) ? open(path, flags | O_CLOEXEC) : -1;
}

/* The number after `key` in one of a cgroup's small files; -1: none. */
static long long number_in(const char *dir, const char *name, const char *key)
{
	char text[CGROUP_TEXT];
	int fd = open_in(dir, name, O_RDONLY);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (len < 0)
		return -1;
	text[len] = '\0';
	size_t n = strlen(key);
	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
		if (!strncmp(p, key, n) && p[n] == ' ')
			return strtoll(p + n, NULL, 10);
	return -1;
}

void tree_reap(struct tree *t)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
		if (pid < 0 && errno == EINTR)
			continue;
		t->childless = pid < 0 && errno == ECHILD;
		if (pid <= 0)
			return;
		if (pid == t->first) {
			t->first = 0;
			t->first_reaped = true;
			t->first_status = status;
		}
	}
}

void tree_term(struct tree *t)
{
	static const int signals[] = {SIGTERM, SIGCONT};
	int group = t->first && getpgid(t->first) == t->first ? t->first : 0;
	struct procs ps = {0};
	procs_look(&ps);
	for (size_t s = 0; s < ARRAY_LEN(signals); s++) {
		/* A group at once, so that none of it is forked past us. */
		if (group)
			kill(-group, signals[s]);
		for (size_t i = 0; i < ps.n; i++)
			if (ps.all[i].descendant && (!group || ps.all[i].pgrp != group))
				procs_signal(&ps.all[i], signals[s]);
	}
	procs_done(&ps);
}

/* Stops all that run, until a look finds none that does: a process with a signal waiting can't fork.  One that sleeps in
 * the kernel (D) may stop late, but does not fork before. */
static void stop_all(struct procs *ps)
{
	for (int pass = 0; pass < STOP_PASSES; pass++) {
		bool found = false;
		procs_look(ps);
		for (size_t i = 0; i < ps->n; i++) {
			const struct proc *p = &ps->all[i];
			if (p->descendant && !procs_is_dead(p) && p->state != 'T' && p->state != 't')
				found |= procs_signal(p, SIGSTOP) && p->state != 'D';
		}
		if (!found)
			return;
	}
}

static void kill_descendants(bool stop_first)
{
	struct procs ps = {0};
	if (stop_first)
		stop_all(&ps);
	else
		procs_look(&ps);
	for (size_t i = 0; i < ps.n; i++)
		if (ps.all[i].descendant && !procs_is_dead(&ps.all[i]))
			procs_signal(&ps.all[i], SIGKILL);
	procs_done(&ps);
}

void tree_kill(struct tree *t)
{
	bool by_cgroup = false;
	if (t->kill_cgroup) {
		int fd = open_in(t->kill_cgroup, "cgroup.kill", O_WRONLY);
		by_cgroup = fd >= 0 && write(fd, "1", 1) == 1;
		if (fd >= 0)
			close(fd);
	}
	/* What the cgroup's kill did not reach has left it, or has not joined it yet. Few trees need to be stopped first. */
	if (!t->childless && (!by_cgroup || t->rounds > 0))
		kill_descendants(t->rounds > 0);
	t->rounds++;
}

bool tree_is_empty(const struct tree *t)
{
	/* A cgroup that is gone, or a file that can't be read, holds nobody that we could find. */
	return t->childless && (!t->kill_cgroup || number_in(t->kill_cgroup, "cgroup.events", "populated") < 1);
}

static void name_one(const struct proc *p, char *text, size_t cap, int n)
{
	char comm[32] = "";
	char dir[32];
	size_t at = strlen(text);
	snprintf(dir, sizeof(dir), "/proc/%d", (int)p->pid);
	int fd = open_in(dir, "comm", O_RDONLY);
	ssize_t len = fd < 0 ? 0 : read(fd, comm, sizeof(comm) - 1);
	if (fd >= 0)
		close(fd);
	comm[len > 0 ? strcspn(comm, "\n") : 0] = '\0';
	snprintf(text + at, cap - at, "%s%d (%s, state %c)", n ? ", " : "", (int)p->pid, comm, p->state);
}

int tree_left(const struct tree *t, char *ret_text, size_t cap)
{
	int n = 0;
	struct procs ps = {0};
	*ret_text = '\0';
	procs_look(&ps);
	for (size_t i = 0; i < ps.n; i++)
		if (ps.all[i].descendant && !procs_is_dead(&ps.all[i]))
			name_one(&ps.all[i], ret_text, cap, n++);
	procs_done(&ps);
	if (n == 0) {
		snprintf(ret_text, cap, "%s%s", t->kill_cgroup ? "processes in " : "threads of processes that have ended",
		         t->kill_cgroup ? t->kill_cgroup : "");
		n = 1;
	}
	return n;
}

int tree_oom_kills(const struct tree *t)
{
	if (!t->oom_cgroup)
		return 0;
	long long n = number_in(t->oom_cgroup, "memory.events", "oom_kill");
	if (n < 0)
		n = number_in(t->oom_cgroup, "memory.oom_control", "oom_kill");
	return n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : (int)n;
}

/* Only directories can be removed in a cgroup's. */
static void remove_below(int parent, const char *name, int depth)
{
	int fd = depth ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		if (e->d_type != DT_DIR || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		remove_below(fd, e->d_name, depth - 1);
		unlinkat(fd, e->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

bool tree_remove_cgroups(struct tree *t)
{
	bool gone = true;
	for (char **p = t->cgroups; p && *p; p++) {
		if (rmdir(*p) == 0 || errno == ENOENT)
			continue;
		remove_below(AT_FDCWD, *p, CGROUP_DEPTH);
		if (rmdir(*p) < 0 && errno != ENOENT)
			gone = false;
	}
	return gone;
}
