/* What a program is started with: words, environment, stdin. */
#ifndef REINS_WORKER_LAUNCH_H
#define REINS_WORKER_LAUNCH_H

#include "common/base/base.h"
#include "reins/v1/worker_service.pb-c.h"

/* What is the same for all attempts of this process. */
struct launch_base {
	const char *worker_id;
	const char *exec_path;    /* of reins-exec */
	const char *search_path;  /* the worker's PATH */
	long open_files;          /* soft limit for programs */
	char **inherited;         /* the worker's own environment, without what is the worker's business */
	size_t n_inherited;
};

/* `environ` of this process minus REINS_… (its token is among them; REINS_SERVER stays, so that a task can submit
 * tasks) and minus what systemd tells a service about itself. Keeps pointers into environ. */
void launch_base_init(struct launch_base *b, const char *worker_id, const char *exec_path, long open_files);
void launch_base_done(struct launch_base *b);

struct launch {
	char **argv, **envp;
	int stdin_fd;       /* -1: /dev/null */
	char **owned;       /* private */
	size_t n_owned;
};

/* `dir`: the attempt's own directory, absolute.  Keeps pointers into `task` and `b`.  -ENOMEM, or -errno when
 * stdin could not be made. */
int launch_make(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *task, const char *dir) MUST_CHECK;
void launch_done(struct launch *l);

#endif
