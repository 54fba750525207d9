/* What blocks on the disk, off the loop's thread (libuv's pool): the spool's batches, one at a time and as many
 * outcomes in each as came meanwhile, and the removal of what programs left in their directories. A disk
 * that stands still holds back outcomes, never heartbeats. */
#ifndef REINS_WORKER_DISK_H
#define REINS_WORKER_DISK_H

#include "common/base/base.h"
#include "common/loop/loop.h"
#include "worker/spool.h"

struct disk;

/* on_spooled: err 0: outcomes up to `id` are on disk.  err < 0: the batch could not be written; it is tried again
 * every second while there is something to write. */
int disk_new(struct loop *loop, struct spool *spool, void (*on_spooled)(void *arg, int err, uint64_t id), void *arg,
	     struct disk **ret) MUST_CHECK;
/* There is something new in the spool: written at the end of this turn, or after the batch under way. */
void disk_spool_dirty(struct disk *d);
/* remove_tree; nobody waits for it. */
void disk_remove_tree(struct disk *d, int attempts_fd, const char *name);
/* Nothing is under way and nothing waits to be written. */
bool disk_idle(const struct disk *d);
/* Only when idle; NULL-safe. */
void disk_free(struct disk *d);

#endif
