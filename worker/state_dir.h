/* The worker's directory: who it is, and what its attempts leave behind.
 *
 *   lock               locked by the process that uses the directory
 *   identity           instance, worker id and machine id, one `name = value` a line
 *   store-id           id of the store that the attempts held belong to
 *   process            when the newest process that used it began to count its hellos
 *   outcomes           see spool.h
 *   attempts/ID.N/     of one attempt, from before its start until its outcome is answered:
 *                      work/ (its directory if the task names none), io/ with result and metrics; attempt
 *                      (attempt_file.h); and what its supervisor writes (supervisor/wire.h, log_file.h)
 *
 * All of it is the agent's alone (0700), but for work/ and io/ where programs run as another user: these two belong to
 * that user then, and the way to them can be gone but not looked around in (0711).
 *
 * The directory belongs to one worker on one machine: a copy of it would report outcomes twice and
 * would claim attempts that run elsewhere, so another id or machine is refused. */
#ifndef REINS_WORKER_STATE_DIR_H
#define REINS_WORKER_STATE_DIR_H

#include "common/base/base.h"

#include <sys/stat.h>

#define STATE_INSTANCE_LEN 32
#define STATE_STORE_ID_MAX 128

struct state_dir {
	char *path;     /* absolute */
	int fd;         /* of the directory */
	int lock_fd;
	int attempts_fd;
	bool other_user; /* programs run as this one: */
	unsigned uid, gid;
	char instance[STATE_INSTANCE_LEN + 1];
	char store_id[STATE_STORE_ID_MAX]; /* "": none yet */
	int64_t hellos; /* see state_dir_next_hello */
};

/* $XDG_STATE_HOME/reins/ID or ~/.local/state/reins/ID ('/' in the id becomes '+'); malloc'ed, NULL without a home. */
char *state_dir_default_path(const char *worker_id);

/* Makes what is missing, locks, reads. -1 with a sentence in ret_err: another process has it, or it is another's. */
int state_dir_open(struct state_dir *d, const char *path, const char *worker_id, char *ret_err, size_t err_cap) MUST_CHECK;
void state_dir_close(struct state_dir *d);
/* Durable when it returns 0. */
int state_dir_set_store_id(struct state_dir *d, const char *store_id) MUST_CHECK;

/* Hello.hello_number: one more than the last of this process, and more than all of earlier ones.  `refused`: the last one
 * opened no session, perhaps for its number: not below the wall clock then. */
int64_t state_dir_next_hello(struct state_dir *d, bool refused);

/* Programs will run as this user: it may pass through to attempts/ID.N/work and io, which will be its own. */
int state_dir_open_to(struct state_dir *d, unsigned uid, unsigned gid) MUST_CHECK;

/* In an attempt's directory; REINS_RESULT and REINS_METRICS name them. */
#define STATE_RESULT "io/result"
#define STATE_METRICS "io/metrics"

/* Opens one of the two for reading, if it is a regular file: the program chose what is there, so no link is followed and
 * no device or FIFO waited for; and where programs run as another user, if it is that user's, not one of ours that it
 * has linked to.  `attempts_fd` and the attempt's name. -1: there is none. */
int state_dir_open_theirs(int attempts_fd, const char *name, const char *file, struct stat *ret) MUST_CHECK;

/* "ID.N", the name below attempts/. */
#define STATE_ATTEMPT_NAME_MAX 64
void state_dir_attempt_name(const char *task_id, int32_t attempt, char ret_name[static STATE_ATTEMPT_NAME_MAX]);
/* Makes attempts/ID.N/ with its work/ and io/. An empty one that is there already is taken. */
int state_dir_make_attempt(struct state_dir *d, const char *name) MUST_CHECK;
/* Renames it to a name (which begins with STATE_ASIDE) for remove_tree, which takes its time. */
#define STATE_ASIDE "old."
int state_dir_put_aside(struct state_dir *d, const char *name, char ret_rest[static STATE_ATTEMPT_NAME_MAX]) MUST_CHECK;
/* For what an earlier process left there: whether it is a directory. One that its owner may not enter is opened to it. */
bool state_dir_mend_attempt(struct state_dir *d, const char *name) MUST_CHECK;
/* Calls on_name for each entry of attempts/. */
int state_dir_list_attempts(struct state_dir *d, void (*on_name)(void *arg, const char *name), void *arg) MUST_CHECK;

#endif
