#include "tests/bench/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/num.h"

int procs_add(struct procs *p, const char *text)
{
	const char *eq = strchr(text, '=');
	char number[24];
	int64_t pid;
	size_t name_len = eq ? (size_t)(eq - text) : 0;
	if (p->n == PROCS_MAX)
		return -ENOSPC;
	struct procs_watch *w = &p->at[p->n];
	if (name_len == 0 || name_len >= sizeof(w->name) || strlen(eq + 1) >= sizeof(number))
		return -EINVAL;
	snprintf(number, sizeof(number), "%s", eq + 1);
	size_t len = strlen(number);
	w->tree = len && number[len - 1] == '+';
	if (w->tree)
		number[len - 1] = '\0';
	if (num_parse_i64(number, &pid) || pid < 1 || pid > INT32_MAX)
		return -EINVAL;
	memcpy(w->name, text, name_len);
	w->name[name_len] = '\0';
	w->pid = (pid_t)pid;
	p->n++;
	return 0;
}

void procs_add_self(struct procs *p)
{
	if (p->n < PROCS_MAX)
		p->at[p->n++] = (struct procs_watch){ .name = "load", .pid = getpid() };
}

struct stat_line {
	pid_t parent;
	int64_t ticks, dead_children_ticks;
	int64_t rss_pages;
};

static int read_stat(pid_t pid, struct stat_line *ret)
{
	char path[64], line[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return -errno;
	size_t n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = '\0';
	/* The command's name may hold anything; the fields begin after its last bracket. */
	char *rest = strrchr(line, ')');
	long long parent, utime, stime, cutime, cstime, rss;
	if (!rest || sscanf(rest + 1, " %*c %lld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld %*d %*d %*d %*d %*u %*u %lld",
			    &parent, &utime, &stime, &cutime, &cstime, &rss) != 6)
		return -EINVAL;
	*ret = (struct stat_line){ (pid_t)parent, utime + stime, cutime + cstime, rss };
	return 0;
}

static int64_t read_pss(pid_t pid)
{
	char path[64], line[256];
	long long kb = 0;
	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %lld kB", &kb) == 1)
			break;
	fclose(f);
	return kb * 1024;
}

int64_t procs_rss(pid_t pid)
{
	struct stat_line l;
	return read_stat(pid, &l) ? 0 : l.rss_pages * sysconf(_SC_PAGESIZE);
}

static void add_children(pid_t parent, int64_t *ticks, int64_t *bytes)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	if (!d)
		return;
	while ((e = readdir(d))) {
		int64_t pid;
		struct stat_line l;
		if (!isdigit((unsigned char)e->d_name[0]) || num_parse_i64(e->d_name, &pid) || read_stat((pid_t)pid, &l) ||
		    l.parent != parent)
			continue;
		*ticks += l.ticks;
		*bytes += read_pss((pid_t)pid);
	}
	closedir(d);
}

void procs_read(const struct procs_watch *w, struct procs_reading *ret)
{
	struct stat_line l;
	*ret = (struct procs_reading){ 0 };
	if (read_stat(w->pid, &l))
		return;
	int64_t ticks = l.ticks, bytes = l.rss_pages * sysconf(_SC_PAGESIZE);
	if (w->tree) {
		ticks += l.dead_children_ticks;
		bytes = read_pss(w->pid);
		add_children(w->pid, &ticks, &bytes);
	}
	ret->cpu_s = (double)ticks / (double)sysconf(_SC_CLK_TCK);
	ret->rss_bytes = bytes;
}
