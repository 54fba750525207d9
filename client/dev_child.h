/* A program that `reins dev` runs: started, its output passed on to our stderr line by line, its end told.
 *
 * It is in a session of its own, so that Ctrl-C reaches us alone and the order of the ends is ours; and it gets
 * SIGTERM from the kernel when we are gone, however we ended. */
#ifndef REINS_CLIENT_DEV_CHILD_H
#define REINS_CLIENT_DEV_CHILD_H

#include "common/loop/loop.h"

struct dev_child;

struct dev_child_config {
	struct loop *loop;
	const char *label;  /* before each line; copied */
	int color;          /* as dev_lines_init's */
	char **argv, **envp; /* argv[0]: path of the program; read in the call only */
	/* Once, after the last line was passed on. Only one of code and signal is not 0. */
	void (*on_exit)(void *arg, int code, int signal);
	void *arg;
};

/* 0 or -errno. A program that can't be executed is seen at its exit: a line on stderr, and code 127. */
int dev_child_start(const struct dev_child_config *cfg, struct dev_child **ret) MUST_CHECK;
/* True until on_exit was called; NULL: false. */
bool dev_child_runs(const struct dev_child *c);
/* What its last log line of level ERROR said, without time and level; "" if there was none. Until dev_child_free. */
const char *dev_child_error(const struct dev_child *c);
/* No-op unless it runs. NULL-safe. */
void dev_child_signal(struct dev_child *c, int signo);
/* Only when it has ended. NULL-safe. */
void dev_child_free(struct dev_child *c);

/* First argument of `reins` in which it stands between us and the child:
 * reins --dev-child PARENT PROGRAM [ARGUMENT…] */
#define DEV_CHILD_WORD "--dev-child"
int dev_child_main(int argc, char **argv);

#endif
