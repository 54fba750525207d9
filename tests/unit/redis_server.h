/* A private redis-server of one test: its own port and folder, dies with the test. */
#ifndef REINS_TEST_REDIS_SERVER_H
#define REINS_TEST_REDIS_SERVER_H

#include <hiredis/hiredis.h>
#include <sys/types.h>

struct redis_server {
	pid_t pid;
	int port;
	char dir[64];
	redisContext *direct; /* a second, plain connection, to look and to disturb */
};

/* Fails the test when it can't be had. */
void redis_server_start(struct redis_server *s);
/* kill -9. */
void redis_server_kill(struct redis_server *s);
/* After a kill, on the same port. */
void redis_server_restart(struct redis_server *s);
void redis_server_stop(struct redis_server *s);
/* A command on the direct connection; the caller frees the reply. Fails the test without one. */
redisReply *redis_server_ask(struct redis_server *s, const char *fmt, ...);
/* The same for commands whose reply is of no interest beyond "not an error". */
void redis_server_do(struct redis_server *s, const char *fmt, ...);

#endif
