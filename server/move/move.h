/* reinsd --move-from: the tasks of one store go into another, while no master uses either.  Blocks; runs instead of
 * the loop.
 *
 * Everything that a master needs goes along: tasks in every state with their order, attempts, logs, idempotency keys,
 * the workers' sessions, and last the source's store id, by which workers know whose attempts they hold.  Until then
 * a mark in the target keeps masters out of it.  The source is only read, until all is done: then it gets a mark that names
 * the target and keeps masters out of the source.
 *
 * Killed at any moment, the same command goes on where the last transaction ended. */
#ifndef REINS_MOVE_H
#define REINS_MOVE_H

#include "common/base/base.h"

/* The exit code: 0 done, 64 refused, 69 one of the two can't be reached or used now.  Prints progress and a table to
 * stdout, and the reason for anything else than 0 to stderr. */
int move_run(const char *from_url, const char *to_url) MUST_CHECK;

#endif
