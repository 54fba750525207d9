/* The worker's directory: who it is, and what its attempts leave behind.
 *
 *   lock               locked by the process that uses the directory
 *   identity           instance, worker id and machine id, one `name = value` a line
 *   store-id           id of the store that the attempts held belong to
 *   outcomes           see spool.h
 *   attempts/ID.N/     of one attempt, from before its start until its outcome is answered:
 *                      work/ (its directory if the task names none), result, metrics; attempt (attempt_file.h); and
 *                      what its supervisor writes (supervisor/wire.h, log_file.h)
 *
 * The directory belongs to one worker on one machine: a copy of it would report outcomes twice and
 * would claim attempts that run elsewhere, so another id or machine is refused. */
#ifndef REINS_WORKER_STATE_DIR_H
#define REINS_WORKER_STATE_DIR_H

#include "common/base/base.h"

#define STATE_INSTANCE_LEN 32
#define STATE_STORE_ID_MAX 128

struct state_dir {
	char *path;     /* absolute */
	int fd;         /* of the directory */
	int lock_fd;
	int attempts_fd;
	char instance[STATE_INSTANCE_LEN + 1];
	char store_id[STATE_STORE_ID_MAX]; /* "": none yet */
};

/* $XDG_STATE_HOME/reins/ID or ~/.local/state/reins/ID ('/' in the id becomes '+'); malloc'ed, NULL without a home. */
char *state_dir_default_path(const char *worker_id);

/* Makes what is missing, locks, reads. -1 with a sentence in ret_err: another process has it, or it is another's. */
int state_dir_open(struct state_dir *d, const char *path, const char *worker_id, char *ret_err, size_t err_cap) MUST_CHECK;
void state_dir_close(struct state_dir *d);
/* Durable when it returns 0. */
int state_dir_set_store_id(struct state_dir *d, const char *store_id) MUST_CHECK;

/* "ID.N", the name below attempts/. */
#define STATE_ATTEMPT_NAME_MAX 64
void state_dir_attempt_name(const char *task_id, int32_t attempt, char ret_name[static STATE_ATTEMPT_NAME_MAX]);
/* Makes attempts/ID.N/ and its work/. An empty one that is there already is taken. */
int state_dir_make_attempt(struct state_dir *d, const char *name) MUST_CHECK;
/* Renames it to a name (which begins with STATE_ASIDE) for state_dir_remove_tree, which takes its time. */
#define STATE_ASIDE "old."
int state_dir_put_aside(struct state_dir *d, const char *name, char ret_rest[static STATE_ATTEMPT_NAME_MAX]) MUST_CHECK;
/* Everything below attempts/`name`; symbolic links are not followed. May be called on another thread. */
void state_dir_remove_tree(int attempts_fd, const char *name);
/* Calls on_name for each entry of attempts/. */
int state_dir_list_attempts(struct state_dir *d, void (*on_name)(void *arg, const char *name), void *arg) MUST_CHECK;

#endif
