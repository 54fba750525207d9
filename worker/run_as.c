/* The user's entry, and whether the user can get to where programs are to work: tried by a child that has become that
 * user, since modes alone don't tell (access control lists, mounts). */
#include "worker/run_as.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRY_MAX (64 * 1024)

int run_as_init(struct run_as *r, const char *name, char *err, size_t cap)
{
	*r = (struct run_as){0};
	if (!name)
		return 0;
	if (geteuid() != 0) {
		snprintf(err, cap, "--run-as %.100s: only a worker that root started can run programs as another user", name);
		return -1;
	}
	struct passwd entry, *found = NULL;
	_cleanup_free_ char *space = xcalloc(1, ENTRY_MAX);
	int e = getpwnam_r(name, &entry, space, ENTRY_MAX, &found);
	if (!found) {
		snprintf(err, cap, "--run-as %.100s: %s", name, e ? strerror(e) : "there is no such user");
		return -1;
	}
	*r = (struct run_as){.name = xstrdup(entry.pw_name), .uid = entry.pw_uid, .gid = entry.pw_gid,
		.home = xstrdup(entry.pw_dir && *entry.pw_dir ? entry.pw_dir : "/"),
		.shell = xstrdup(entry.pw_shell && *entry.pw_shell ? entry.pw_shell : "/bin/sh")};
	return 0;
}

void run_as_done(struct run_as *r)
{
	free(r->name);
	free(r->home);
	free(r->shell);
	*r = (struct run_as){0};
}

/* In the child: the length of the first part of the path that can't be entered; 0: all can. -1: not even tried. */
static int try_path(const struct run_as *r, const char *path)
{
	char part[PATH_MAX];
	if (initgroups(r->name, r->gid) < 0 || setresgid(r->gid, r->gid, r->gid) < 0 || setresuid(r->uid, r->uid, r->uid) < 0)
		return -1;
	for (size_t n = 1; n <= strlen(path); n++) {
		if (path[n] != '/' && path[n] != '\0' && n != 1)
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		if (access(part, X_OK) < 0)
			return (int)n;
	}
	return 0;
}

int run_as_reach(const struct run_as *r, const char *path, char *err, size_t cap)
{
	int ends[2], n = -1;
	if (!r->name)
		return 0;
	if (strlen(path) >= PATH_MAX || pipe2(ends, O_CLOEXEC) < 0) {
		snprintf(err, cap, "--run-as %.100s: it could not be tried: %s", r->name, strerror(errno));
		return -1;
	}
	pid_t pid = fork();
	if (pid == 0) {
		n = try_path(r, path);
		_exit(write(ends[1], &n, sizeof(n)) == (ssize_t)sizeof(n) ? 0 : 1);
	}
	close(ends[1]);
	if (pid < 0 || read(ends[0], &n, sizeof(n)) != (ssize_t)sizeof(n))
		n = -1;
	close(ends[0]);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (n < 0)
		snprintf(err, cap, "--run-as %.100s: the worker could not become that user to look at %.500s", r->name, path);
	else if (n > 0)
		snprintf(err, cap, "--run-as %.100s: that user can't enter %.*s, and programs work below %.500s: give another --state-dir",
			 r->name, n > 500 ? 500 : n, path, path);
	return n == 0 ? 0 : -1;
}
