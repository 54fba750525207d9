#include "tests/unit/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static void spawn(struct redis_server *s)
{
	char port[16];
	snprintf(port, sizeof(port), "%d", s->port);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir",
	       s->dir, (char *)NULL);
	_exit(127);
}

/* True once it answers; false when the process has ended (the port was taken after all). */
static bool wait_for(struct redis_server *s)
{
	for (int i = 0; i < 1000; i++) {
		redisContext *c = redisConnect("127.0.0.1", s->port);
		redisReply *r = c && !c->err ? redisCommand(c, "PING") : NULL;
		bool up = r && r->type == REDIS_REPLY_STATUS;
		if (r)
			freeReplyObject(r);
		if (up) {
			s->direct = c;
			return true;
		}
		if (c)
			redisFree(c);
		if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
			s->pid = 0;
			return false;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	return false;
}

void redis_server_start(struct redis_server *s)
{
	*s = (struct redis_server){ 0 };
	snprintf(s->dir, sizeof(s->dir), "/tmp/reins-redis-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	for (int i = 0; i < 5; i++) {
		s->port = free_port();
		spawn(s);
		if (wait_for(s))
			return;
		redis_server_kill(s);
	}
	fail_msg("redis-server did not start");
}

void redis_server_kill(struct redis_server *s)
{
	if (s->direct)
		redisFree(s->direct);
	s->direct = NULL;
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	s->pid = 0;
}

void redis_server_restart(struct redis_server *s)
{
	spawn(s);
	assert_true(wait_for(s));
}

void redis_server_stop(struct redis_server *s)
{
	redis_server_kill(s);
	rmdir(s->dir);
}

static redisReply *vask(struct redis_server *s, const char *fmt, va_list ap)
{
	redisReply *r = redisvCommand(s->direct, fmt, ap);
	assert_non_null(r);
	if (r->type == REDIS_REPLY_ERROR)
		fail_msg("redis-server: %s", r->str);
	return r;
}

redisReply *redis_server_ask(struct redis_server *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	redisReply *r = vask(s, fmt, ap);
	va_end(ap);
	return r;
}

void redis_server_do(struct redis_server *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	freeReplyObject(vask(s, fmt, ap));
	va_end(ap);
}
