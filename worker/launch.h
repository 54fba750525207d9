/* What a program is started with: words, environment, directory, stdin, limits; and its packing for a supervisor. */
#ifndef REINS_WORKER_LAUNCH_H
#define REINS_WORKER_LAUNCH_H

#include "common/base/base.h"
#include "reins/v1/worker_service.pb-c.h"
#include "worker/cgroup.h"

struct confine;

/* What is the same for all attempts of this process. */
struct launch_base {
	const char *worker_id;
	const char *search_path;  /* the worker's PATH */
	long open_files;          /* soft limit for programs; 0: as it is */
	char **inherited;         /* what programs get of the worker's own environment */
	size_t n_inherited;
	char **own_inherited;     /* private: of these, what is not in environ */
};

/* Keeps pointers into environ. */
void launch_base_init(struct launch_base *b, const char *worker_id, long open_files, const struct confine *confine);
void launch_base_done(struct launch_base *b);

/* The fields are those of struct sup_job_file (worker/supervisor/wire.h), where their meaning is. */
struct launch {
	char **argv, **envp;      /* NULL-terminated */
	const char *directory, *search_path;
	int stdin_fd;             /* -1: /dev/null */
	const char *user;         /* NULL: as the worker */
	struct cgroup_dirs cgroups; /* to join; owned */
	bool no_new_privs;
	int64_t open_files, core_bytes, processes;
	char **owned;             /* private */
	size_t n_owned;
};

/* `dir`: the attempt's own directory, absolute.  Keeps pointers into `task` and `b`.  -ENOMEM, or -errno when
 * stdin could not be made. */
int launch_make(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *task, const char *dir) MUST_CHECK;
void launch_done(struct launch *l);

/* A variable of ours, instead of what the task says. At most three. -ENOMEM. */
int launch_set(struct launch *l, const char *name, const char *value) MUST_CHECK;
/* Where the program is searched instead of in the worker's PATH; malloc'ed, taken over. At most once. */
void launch_own_search(struct launch *l, char *search_path);

/* What a supervisor is to know beside that. */
struct launch_times {
	int64_t timeout_ns, kill_grace_ns, stuck_after_ns;
	int64_t log_head_bytes, log_ring_bytes;
};
/* The job as a supervisor reads it: a file in memory, the caller's to close; or -errno. */
int launch_pack(const struct launch *l, const struct launch_times *t) MUST_CHECK;

#endif
