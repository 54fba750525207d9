/* What a program is started with: words, environment, directory, stdin, limits; and its packing for a supervisor. */
#ifndef REINS_WORKER_LAUNCH_H
#define REINS_WORKER_LAUNCH_H

#include "common/base/base.h"
#include "reins/v1/worker_service.pb-c.h"

/* What is the same for all attempts of this process. */
struct launch_base {
	const char *worker_id;
	const char *search_path;  /* the worker's PATH */
	long open_files;          /* soft limit for programs; 0: as it is */
	char **inherited;         /* the worker's own environment, without what is the worker's business */
	size_t n_inherited;
};

/* `environ` of this process minus REINS_… (its token is among them; REINS_SERVER stays, so that a task can submit
 * tasks) and minus what systemd tells a service about itself. Keeps pointers into environ. */
void launch_base_init(struct launch_base *b, const char *worker_id, long open_files);
void launch_base_done(struct launch_base *b);

/* The fields are those of struct sup_job_file (worker/supervisor/wire.h), where their meaning is. */
struct launch {
	char **argv, **envp;      /* NULL-terminated */
	const char *directory, *search_path;
	int stdin_fd;             /* -1: /dev/null */
	const char *user;         /* NULL: as the worker */
	char **join;              /* directories of cgroups */
	size_t n_join;
	int kill_index, oom_index; /* -1: none */
	bool no_new_privs;
	int64_t open_files, core_bytes, processes;
	char **owned;             /* private */
	size_t n_owned;
};

/* `dir`: the attempt's own directory, absolute.  Keeps pointers into `task` and `b`.  -ENOMEM, or -errno when
 * stdin could not be made. */
int launch_make(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *task, const char *dir) MUST_CHECK;
void launch_done(struct launch *l);

/* What a supervisor is to know beside that. */
struct launch_times {
	int64_t timeout_ns, kill_grace_ns, stuck_after_ns;
	int64_t log_head_bytes, log_ring_bytes;
};
/* The job as a supervisor reads it: a file in memory, the caller's to close; or -errno. */
int launch_pack(const struct launch *l, const struct launch_times *t) MUST_CHECK;

#endif
