#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/store/pg_server.h"

static void die(const char *what)
{
	fprintf(stderr, "pg_server: %s: %s\n", what, strerror(errno));
	exit(99);
}

/* Postgres refuses to run as root. */
static const struct passwd *user(void)
{
	const struct passwd *pw = getpwnam("postgres");
	if (!pw)
		pw = getpwnam("nobody");
	if (!pw)
		die("no user to run as");
	return pw;
}

static const char *program(const char *name, char path[static 128])
{
	for (int v = 18; v >= 14; v--) {
		snprintf(path, 128, "/usr/lib/postgresql/%d/bin/%s", v, name);
		if (access(path, X_OK) == 0)
			return path;
	}
	snprintf(path, 128, "%s", name);
	return path;
}

static pid_t spawn(const struct pg_server *s, char *const argv[])
{
	pid_t parent = getpid(), pid = fork();
	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	if (geteuid() == 0) {
		const struct passwd *pw = user();
		if (initgroups(pw->pw_name, pw->pw_gid) || setgid(pw->pw_gid) || setuid(pw->pw_uid))
			_exit(98);
	}
	prctl(PR_SET_PDEATHSIG, SIGQUIT);
	if (getppid() != parent || chdir(s->dir) < 0)
		_exit(98);
	int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 1);
	dup2(log, 2);
	execvp(argv[0], argv);
	_exit(97);
}

static void run(const struct pg_server *s, char *const argv[])
{
	int status;
	pid_t pid = spawn(s, argv);
	if (waitpid(pid, &status, 0) != pid || status != 0) {
		fprintf(stderr, "pg_server: %s ended with %#x, see %s/log\n", argv[0], status, s->dir);
		exit(99);
	}
}

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		die("no port");
	close(fd);
	return ntohs(a.sin_port);
}

void pg_server_begin(struct pg_server *s)
{
	char path[128], port[16], data[96];
	snprintf(port, sizeof(port), "%d", s->port);
	snprintf(data, sizeof(data), "%s/data", s->dir);
	char *argv[] = {(char *)program("postgres", path), "-D", data, "-p", port, "-k", s->dir, "-c", "listen_addresses=127.0.0.1",
			"-c", s->durable ? "fsync=on" : "fsync=off", "-c", "shared_buffers=64MB", "-c", "max_connections=60",
			"-c", "logging_collector=off", NULL};
	s->pid = spawn(s, argv);
	for (int i = 0; i < 600; i++) {
		PGPing p = PQping(s->url);
		if (p == PQPING_OK)
			return;
		if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
			break;
		poll(NULL, 0, 50);
	}
	fprintf(stderr, "pg_server: it doesn't start, see %s/log\n", s->dir);
	exit(99);
}

void pg_server_start(struct pg_server *s, bool durable)
{
	char path[128], data[96];
	snprintf(s->dir, sizeof(s->dir), "/tmp/reins-pg-XXXXXX");
	if (!mkdtemp(s->dir))
		die("mkdtemp");
	if (geteuid() == 0 && chown(s->dir, user()->pw_uid, user()->pw_gid) < 0)
		die("chown");
	s->durable = durable;
	s->port = free_port();
	snprintf(s->url, sizeof(s->url), "postgres://reins@/postgres?host=%s&port=%d", s->dir, s->port);
	snprintf(s->tcp_url, sizeof(s->tcp_url), "postgres://reins@localhost:%d/postgres", s->port);
	snprintf(data, sizeof(data), "%s/data", s->dir);
	char *argv[] = {(char *)program("initdb", path), "-D", data, "-U", "reins", "-A", "trust", "-E", "UTF8", "--locale=C",
			"--no-sync", "--no-instructions", NULL};
	run(s, argv);
	pg_server_begin(s);
}

/* Backends are session leaders of their own: found by their parent. */
static size_t children(pid_t parent, pid_t *ret, size_t cap)
{
	size_t n = 0;
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		char path[300], line[256] = "";
		int ppid = 0;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		FILE *f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		char *end = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		if (end && sscanf(end, ") %*c %d", &ppid) == 1 && ppid == parent && n < cap)
			ret[n++] = (pid_t)strtol(e->d_name, NULL, 10);
		fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

void pg_server_signal(struct pg_server *s, int signo)
{
	pid_t all[200];
	size_t n = children(s->pid, all, 200);
	kill(s->pid, signo);
	for (size_t i = 0; i < n; i++)
		kill(all[i], signo);
}

void pg_server_kill(struct pg_server *s)
{
	pg_server_signal(s, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

void pg_server_stop(struct pg_server *s)
{
	if (s->pid) {
		kill(s->pid, SIGQUIT);
		waitpid(s->pid, NULL, 0);
	}
	char *argv[] = {"rm", "-rf", s->dir, NULL};
	pid_t pid = fork();
	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(97);
	}
	waitpid(pid, NULL, 0);
}

const char *pg_server_sql(struct pg_server *s, const char *sql)
{
	static char value[256];
	PGconn *c = PQconnectdb(s->url);
	PGresult *r = PQexec(c, sql);
	ExecStatusType st = PQresultStatus(r);
	if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK) {
		fprintf(stderr, "pg_server: %s: %s", sql, PQerrorMessage(c));
		exit(99);
	}
	snprintf(value, sizeof(value), "%s", st == PGRES_TUPLES_OK && PQntuples(r) ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	PQfinish(c);
	return value;
}
