/* The first process: from fork to exec. */
#ifndef REINS_SUPERVISOR_CHILD_H
#define REINS_SUPERVISOR_CHILD_H

#include "worker/supervisor/job.h"

struct child_failure {
	int32_t err;
	int32_t own;   /* the worker's: as sup_status.launch_own */
	char text[SUP_TEXT_MAX];
};

struct child {
	int pid;
	int out[2];    /* stdout and stderr, to be read without blocking */
	int failure;   /* a struct child_failure, or nothing: the program has begun */
};

/* `stdin_fd` below 0: /dev/null.  Expects that descriptors 0, 1 and 2 are taken and those above are close-on-exec.  On
 * failure there is no process. */
int child_start(const struct job *j, int stdin_fd, struct child *ret_child, struct child_failure *ret_failure) MUST_CHECK;

#endif
