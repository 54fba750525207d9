/* What a supervisor leaves in the attempt's directory, but for the log: `supervisor`, `socket`, `status` (wire.h). */
#ifndef REINS_SUPERVISOR_FILES_H
#define REINS_SUPERVISOR_FILES_H

#include "common/base/base.h"
#include "worker/supervisor/wire.h"

/* Locks `supervisor`, which the agent has made, and writes it; the descriptor holds the lock.  -EWOULDBLOCK: another one
 * lives, or an agent looks after the attempt; -ENOENT: an agent has given it up. */
int files_identify(int dir_fd, int *ret_fd) MUST_CHECK;
/* Listens on `socket`, in place of one that a dead supervisor left. */
int files_listen(int dir_fd, int *ret_fd) MUST_CHECK;
/* Replaces `status`.  Once it has succeeded it succeeds on a full disk as well: the room for the next one is kept. */
int files_write_status(int dir_fd, const struct sup_status *s) MUST_CHECK;
/* Gives that room back; after the last status. */
void files_end_status(int dir_fd);

#endif
