/* The log of one attempt on its way to the master: pieces of stdout and stderr in the order in which they were
 * read, with one count of bytes over both.  No I/O.
 *
 * Kept until the master says that they are stored, so that a new session can send them again. What
 * can't be kept is counted in its place, as a gap.  Beyond `limit` bytes nothing is kept; that last gap
 * is open, and goes out when the log is closed. */
#ifndef REINS_WORKER_LOGS_H
#define REINS_WORKER_LOGS_H

#include "common/base/base.h"
#include "common/base/list.h"

#define LOGS_PIECE_MAX (64 * 1024)

/* Memory of all logs of a worker. */
struct logs_budget {
	size_t held, max;
};

struct logs_config {
	int64_t limit;             /* bytes of log kept of one attempt: --log-limit */
	size_t bound;              /* memory of one attempt: a fast printer waits above it */
	struct logs_budget *budget; /* and above this one */
};

struct attempt_log {
	const struct logs_config *config;
	struct list chunks;
	size_t held;    /* memory of the chunks */
	int64_t end;    /* offset after the last byte read */
	int64_t sent;   /* offset up to which this session has got it */
	int64_t stored; /* offset up to which the master has stored it */
	int64_t kept;   /* bytes that were not dropped */
	int64_t dropped;
	bool closed;
};

/* What to send next. `data` points into the log and is valid until the next call that changes it. */
struct logs_piece {
	int stream;       /* as given to log_add */
	int64_t offset;
	const uint8_t *data;
	size_t len;       /* 0: a gap */
	int64_t dropped;
	int64_t at_wall_us;
};

void logs_init(struct attempt_log *l, const struct logs_config *config);
void logs_done(struct attempt_log *l);
/* Takes all of it, one read of the program's output: above the bounds (logs_full) it is counted as dropped when
 * `may_drop`, and kept otherwise, which the caller may ask for only as far as a pipe's contents, or when it
 * stops reading right after.  Returns the bytes kept. */
size_t logs_add(struct attempt_log *l, int stream, const void *data, size_t len, int64_t at_wall_us, bool may_drop);
/* The producer is to wait. Never once the limit is reached: then nothing more is kept. */
bool logs_full(const struct attempt_log *l);
/* No more bytes come. */
void logs_close(struct attempt_log *l);
/* A log of which only its length survived (agent restarted): all of it is a gap. */
void logs_lost(struct attempt_log *l, int64_t end);
/* The master has all bytes before `offset`. */
void logs_stored(struct attempt_log *l, int64_t offset);
/* A new session: send again from `offset` on (what is no longer kept there becomes a gap). */
void logs_rewind(struct attempt_log *l, int64_t offset);
/* False when there is nothing to send now. */
bool logs_next(const struct attempt_log *l, struct logs_piece *ret);
/* `p` went out. */
void logs_sent(struct attempt_log *l, const struct logs_piece *p);
/* Closed, and this session has got it up to its end. */
bool logs_all_sent(const struct attempt_log *l);

#endif
