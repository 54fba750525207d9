/* The store on SQLite, for one machine: a file, its write-ahead log, and a second file for the tasks' logs.
 *
 *   PATH        the tasks.  One thread owns the connection that writes; all operations that wait when it is free
 *               are one transaction, answered after its commit was synced to the disk.
 *   PATH-logs   the logs of tasks, written by a thread of its own, so that no log holds up a claim.  Their sum is
 *               bounded: the logs of the oldest ended tasks make room.
 *   PATH-lock   locked while the store is open: a second master on the same file is refused.
 *
 * What SQLite can do wrong is told by on_state and down_text: where waiting may help (locked by somebody, no space,
 * read-only, an I/O error) the store comes back by itself; where it can't (a newer schema, a damaged file, a file
 * that isn't a store, one that was replaced while open) it stays down, and nothing is written to the file. */
#ifndef REINS_SQLITE_STORE_H
#define REINS_SQLITE_STORE_H

#include "server/store/store.h"

#define SQLITE_EVENTS_MAX 500000

struct sqlite_store_config {
	const char *path;         /* the directory must exist; the files are made with mode 0600 */
	int32_t max_queued;       /* operations accepted and not answered; over it: UNAVAILABLE */
	int64_t max_queued_bytes; /* of what they hold; the same */
	int32_t lost_limit;       /* for the rows that SESSION_OPEN takes back */
	/* Opens a file whose tasks were moved to another store, which is refused otherwise, and takes that mark away. */
	bool ignore_moved;
	int64_t max_log_bytes;    /* of all logs together; an append for which no ended task's log can make room is REFUSED */
	int64_t event_retention_ns; /* events are kept so long, if they are no more than SQLITE_EVENTS_MAX rows */
	/* As in struct store; may be NULL.  `text` when down: why.  When up: "". */
	void (*on_state)(void *arg, bool up, const char *text);
	void *on_state_arg;
};
void sqlite_store_config_default(struct sqlite_store_config *c);

/* Returns at once, not up: the file is opened by the store's thread.  The configuration is copied.
 * -EINVAL, with the reason in ret_err: the configuration can't be used; -errno: no thread or no eventfd.
 * store_free waits for the transaction on its way, and must not be called from an operation's done or from on_state. */
int sqlite_store_new(struct loop *loop, const struct sqlite_store_config *cfg, char *ret_err, size_t err_cap,
		     struct store **ret) MUST_CHECK;
/* Down, and waiting won't help: down_text says what a person has to do. */
bool sqlite_store_stays_down(const struct store *s);

#endif
