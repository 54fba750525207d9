/* One program and its process group: started through reins-exec, watched, its output read, ended as a whole.
 *
 * Order of events: on_exec at most once, on_output any number of times, on_exit once, then, after
 * run_clear, on_output for what the pipes still held, and on_empty.  None comes from inside a call into this module. */
#ifndef REINS_WORKER_RUN_H
#define REINS_WORKER_RUN_H

#include "common/base/base.h"
#include "common/loop/loop.h"
#include "worker/launch.h"

struct run;

struct run_events {
	/* The program runs (failure NULL), or could not be started and says why; on_exit follows in both cases. */
	void (*on_exec)(void *arg, const char *failure);
	/* stream 1: stdout, 2: stderr. At most 64 KiB; valid in the call only. */
	void (*on_output)(void *arg, int stream, const uint8_t *data, size_t len);
	/* The first process has ended: with a code, or by a signal (signal > 0). */
	void (*on_exit)(void *arg, int code, int signal);
	/* No process of the group is left and no pipe is open. */
	void (*on_empty)(void *arg);
};

/* -errno: there is no process. */
int run_start(struct loop *loop, const struct launch *l, const struct run_events *ev, void *arg, struct run **ret) MUST_CHECK;
/* To the whole group. Between on_exit and run_clear too; not after on_empty. */
void run_signal(struct run *r, int signo);
/* While paused the program's writes block once its pipe is full. */
void run_pause_output(struct run *r, bool paused);
/* After on_exit: SIGKILL for what is left of the group, again until nothing is. */
void run_clear(struct run *r);
/* After on_empty; NULL-safe. */
void run_free(struct run *r);

#endif
