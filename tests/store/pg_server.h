/* A private Postgres for tests: own directory, socket and port, ended with the test. */
#ifndef TESTS_PG_SERVER_H
#define TESTS_PG_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct pg_server {
	char dir[64];  /* owned by the user that Postgres runs as */
	char url[256]; /* over the socket */
	char tcp_url[256];
	int port;
	pid_t pid;
	bool durable;
};

/* Makes a cluster and starts it; ends the test program when it can't. `durable`: with fsync. */
void pg_server_start(struct pg_server *s, bool durable);
void pg_server_kill(struct pg_server *s); /* all of it at once, as a crash of the machine does */
void pg_server_signal(struct pg_server *s, int signo); /* to all of it */
void pg_server_begin(struct pg_server *s); /* again, after a kill; returns when it accepts connections */
void pg_server_stop(struct pg_server *s); /* and removes the directory */
/* One statement on a connection of its own; prints and ends the test on an error.  Returns the first value, which
 * the next call overwrites, or "". */
const char *pg_server_sql(struct pg_server *s, const char *sql);

#endif
