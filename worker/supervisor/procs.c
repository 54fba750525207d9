#include "worker/supervisor/procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_CAP 2048
#define STAT_MAX 1024

int procs_read(int pid, struct proc *ret_proc)
{
	char path[64], text[STAT_MAX];
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -ESRCH;
	ssize_t len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return -ESRCH;
	text[len] = '\0';
	/* The name may hold anything; after the last bracket there are only numbers. */
	const char *p = strrchr(text, ')');
	struct proc r = {.pid = pid};
	if (!p || sscanf(p + 1, " %c %" SCNd32 " %" SCNd32 " %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
	               &r.state, &r.ppid, &r.pgrp, &r.start_ticks) != 4)
		return -EIO;
	*ret_proc = r;
	return 0;
}

static bool grow(struct procs *ps)
{
	size_t cap = ps->cap ? 2 * ps->cap : FIRST_CAP, item = sizeof(*ps->all);
	void *p = ps->cap ? mremap(ps->all, ps->cap * item, cap * item, MREMAP_MAYMOVE)
			  : mmap(NULL, cap * item, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return false;
	ps->all = p;
	ps->cap = cap;
	return true;
}

void procs_done(struct procs *ps)
{
	if (ps->cap)
		munmap(ps->all, ps->cap * sizeof(*ps->all));
	*ps = (struct procs){0};
}

static struct proc *find(const struct procs *ps, int32_t pid)
{
	size_t low = 0, high = ps->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (ps->all[mid].pid < pid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < ps->n && ps->all[low].pid == pid ? &ps->all[low] : NULL;
}

/* Parents mostly come before their children, so this ends after a pass or two. */
static void mark(struct procs *ps)
{
	int self = getpid();
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < ps->n; i++) {
			struct proc *p = &ps->all[i], *parent;
			if (p->descendant)
				continue;
			parent = p->ppid == self ? NULL : find(ps, p->ppid);
			if (p->ppid == self || (parent && parent->descendant))
				p->descendant = more = true;
		}
	}
}

/* The kernel lists them in order; this is for the case that one day it doesn't. */
static void insert(struct procs *ps, const struct proc *p)
{
	size_t at = ps->n++;
	while (at > 0 && ps->all[at - 1].pid > p->pid) {
		ps->all[at] = ps->all[at - 1];
		at--;
	}
	ps->all[at] = *p;
}

void procs_look(struct procs *ps)
{
	DIR *dir = opendir("/proc");
	ps->n = 0;
	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));) {
		struct proc p;
		char *end;
		long pid = strtol(e->d_name, &end, 10);
		if (*end || pid < 1 || pid > INT32_MAX || procs_read((int)pid, &p) < 0)
			continue;
		if (ps->n == ps->cap && !grow(ps))
			break;
		insert(ps, &p);
	}
	closedir(dir);
	mark(ps);
}

bool procs_signal(const struct proc *p, int signo)
{
	struct proc now;
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (fd < 0)
		return errno == ENOSYS && kill(p->pid, signo) == 0;
	bool same = procs_read(p->pid, &now) == 0 && now.start_ticks == p->start_ticks;
	bool sent = same && syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) == 0;
	close(fd);
	return sent;
}

bool procs_is_dead(const struct proc *p)
{
	return p->state == 'Z' || p->state == 'X' || p->state == 'x';
}
