/* Owns nothing that outlives a call but the lock on the data directory, which the caller closes. */
#include "client/dev_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/net/endpoint.h"

/* ---- programs ---- */

static char *if_program(const char *folder, size_t len, const char *rest, const char *program)
{
	_cleanup_free_ char *path = NULL;
	struct stat st;
	if (asprintf(&path, "%.*s/%s%s", (int)len, folder, rest, program) < 0)
		return NULL;
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return NULL;
	return realpath(path, NULL);
}

char *dev_find_in(const char *self, const char *program, const char *build_folder, const char *search_path)
{
	const char *slash = strrchr(self, '/');
	char beside[64];
	if (slash) {
		size_t len = (size_t)(slash - self);
		snprintf(beside, sizeof beside, "../%.50s/", build_folder);
		char *path = if_program(self, len, "", program);
		if (!path)
			path = if_program(self, len, beside, program);
		if (path)
			return path;
	}
	for (const char *p = search_path; p;) {
		size_t len = strcspn(p, ":");
		char *path = len ? if_program(p, len, "", program) : NULL;
		if (path)
			return path;
		p = p[len] ? p + len + 1 : NULL;
	}
	return NULL;
}

char *dev_find(const char *program, const char *build_folder)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	return dev_find_in(self, program, build_folder, getenv("PATH"));
}

/* ---- the data directory ---- */

/* POSIX locks name their holder, and children do not inherit them. */
static int lock(const char *folder, int *ret_fd, char *err, size_t cap)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	_cleanup_free_ char *path = NULL;
	if (asprintf(&path, "%s/lock", folder) < 0)
		return -ENOMEM;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		int r = -errno;
		snprintf(err, cap, "can't write in %s: %s; give another directory with --data", folder, strerror(-r));
		return r;
	}
	if (fcntl(fd, F_SETLK, &whole) == 0) {
		*ret_fd = fd;
		return 0;
	}
	int r = -errno;
	char holder[48] = "";
	if ((r == -EAGAIN || r == -EACCES) && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK && whole.l_pid > 0)
		snprintf(holder, sizeof holder, " (process %ld)", (long)whole.l_pid);
	if (r == -EAGAIN || r == -EACCES)
		snprintf(err, cap, "%s is in use by another reins dev%s; use that one, or give another directory with --data", folder,
			 holder);
	else
		snprintf(err, cap, "%s can't be locked: %s", path, strerror(-r));
	close(fd);
	return r;
}

int dev_data_open(const char *path, char **ret_path, int *ret_lock_fd, char *err, size_t cap)
{
	err[0] = 0;
	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		int r = -errno;
		snprintf(err, cap, "the data directory %s can't be made: %s; give another one with --data", path, strerror(-r));
		return r;
	}
	char *absolute = realpath(path, NULL);
	struct stat st;
	if (!absolute || stat(absolute, &st) < 0 || !S_ISDIR(st.st_mode)) {
		int r = !absolute ? -errno : -ENOTDIR;
		snprintf(err, cap, "%s can't be the data directory: %s; give another one with --data", path, strerror(-r));
		free(absolute);
		return r;
	}
	int r = lock(absolute, ret_lock_fd, err, cap);
	if (r < 0) {
		free(absolute);
		return r;
	}
	*ret_path = absolute;
	return 0;
}

/* ---- the address ---- */

/* A port that is free for us, into the address if it names none. */
static int probe(struct endpoint_addr *addr, uint16_t *ret_port)
{
	int on = 1, r = 0;
	int fd = socket(addr->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* As reinsd does it: what a former one left in TIME_WAIT is no obstacle. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	struct sockaddr_storage bound;
	socklen_t len = sizeof bound;
	if (bind(fd, (struct sockaddr *)&addr->addr, addr->len) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
		r = -errno;
	close(fd);
	if (r == 0)
		*ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
							      : ((struct sockaddr_in *)(void *)&bound)->sin_port);
	return r;
}

int dev_address_choose(const char *listen_text, struct dev_address *ret, char *err, size_t cap)
{
	struct endpoint e;
	struct endpoint_addr addr;
	char why[160];
	if (endpoint_parse(listen_text, 7346, &e, why, sizeof why) < 0) {
		snprintf(err, cap, "--listen %.100s: %s", listen_text, why);
		return -EINVAL;
	}
	if (e.tls) {
		snprintf(err, cap, "--listen %.100s: reins dev speaks clear text on this machine; for TLS start reinsd and reins-worker "
			 "themselves", listen_text);
		return -EINVAL;
	}
	if (!e.is_unix && !strcmp(e.host, "localhost"))
		snprintf(e.host, sizeof e.host, "127.0.0.1");
	if (endpoint_literal(&e, &addr) < 0) {
		snprintf(err, cap, "--listen %.100s: write ADDRESS:PORT, such as 127.0.0.1:7346", listen_text);
		return -EINVAL;
	}
	if (!e.is_unix) {
		int r = probe(&addr, &e.port);
		if (r == -EADDRINUSE)
			snprintf(err, cap, "port %d is in use on this machine: by a Reins that runs already (`reins ping` asks it), or by another "
				 "program.\n  Another port: --listen 127.0.0.1:%d; one that is free: --listen 127.0.0.1:0", e.port,
				 e.port < 65535 ? e.port + 1 : e.port - 1);
		else if (r < 0)
			snprintf(err, cap, "can't listen on %.100s: %s", listen_text, strerror(-r));
		if (r < 0)
			return r;
	}
	ret->loopback = endpoint_is_loopback(&e);
	endpoint_format(&e, ret->listen, sizeof ret->listen);
	/* From this machine the wildcard is reached as loopback. */
	if (!e.is_unix && !strcmp(e.host, "0.0.0.0"))
		snprintf(e.host, sizeof e.host, "127.0.0.1");
	if (!e.is_unix && !strcmp(e.host, "::"))
		snprintf(e.host, sizeof e.host, "::1");
	char plain[300];
	endpoint_format(&e, plain, sizeof plain);
	snprintf(ret->url, sizeof ret->url, "%s%s", e.is_unix ? "" : "http://", plain);
	return 0;
}

/* ---- the environment ---- */

static bool leads_elsewhere(const char *variable)
{
	static const char *const names[] = { "REINS_SERVER=", "REINS_TOKEN", "REINS_TLS_", "REINS_CLIENT_CA=" };
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strncmp(variable, names[i], strlen(names[i])))
			return true;
	return false;
}

static bool is_given(const char *variable, char *const *with, size_t n_with)
{
	size_t name = strcspn(variable, "=") + 1;
	for (size_t i = 0; i < n_with; i++)
		if (with[i] && !strncmp(variable, with[i], name))
			return true;
	return false;
}

char **dev_env(char *const *from, char *const *with, size_t n_with)
{
	size_t n = 0, made = 0;
	while (from[n])
		n++;
	char **env = xcalloc(n + n_with + 1, sizeof *env);
	for (size_t i = 0; i < n; i++)
		if (!leads_elsewhere(from[i]) && !is_given(from[i], with, n_with))
			env[made++] = from[i];
	for (size_t i = 0; i < n_with; i++)
		if (with[i])
			env[made++] = with[i];
	return env;
}
