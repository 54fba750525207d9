/* Follows the metrics file of one attempt and keeps what is to be sent next, encoded.
 *
 * The program appends; what it does else is put up with.  A file that is truncated, or replaced by another, is read from
 * its beginning, and numbers go on.  Nothing that went out is kept: to send again, the file is read again, as far as it
 * is still there (the descriptor stays open, so it may lie in a directory that is removed).
 *
 * Each read takes a bounded part, so that many attempts can take turns. */
#ifndef REINS_WORKER_METRICS_READER_H
#define REINS_WORKER_METRICS_READER_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "worker/metrics.h"

#define METRICS_BATCH_POINTS 1000
#define METRICS_BATCH_BYTES (64 * 1024)

/* Where a file began, to read it again: what was counted in those before it. */
struct metrics_base {
	int64_t number, dropped, malformed, last_step;
};

struct metrics_reader {
	/* To be sent: fields `points` of reins.v1.Metrics, encoded, and the number of the first of them. */
	struct buf points;
	int64_t first_number;
	size_t n_points;
	int64_t dropped; /* points so far over the limit */

	/* private */
	int fd; /* -1: not there yet */
	int64_t offset;
	struct metrics_scan scan;
	struct metrics_base base;
	int64_t number;  /* of the last point read */
	int64_t stored;  /* up to here points need not be sent */
	int64_t said_malformed, said_dropped; /* by this session */
	bool ended;      /* read to the end, and no more comes */
};

enum metrics_read {
	METRICS_NOTHING, /* no more now */
	METRICS_MORE,    /* may have more now */
	METRICS_FULL,    /* what is to be sent has to go out first */
	METRICS_ENDED,   /* only with `last` */
};

void metrics_reader_init(struct metrics_reader *r);
void metrics_reader_done(struct metrics_reader *r);
/* Reads on in dir_fd/name/io/metrics; name "": in what is open already.  `limit`: points of the attempt that are kept.
 * `last`: nobody writes to it any more. */
enum metrics_read metrics_reader_read(struct metrics_reader *r, int dir_fd, const char *name, int64_t limit, bool last);
/* There is something to send: points, or a count that has changed. */
bool metrics_reader_has_news(const struct metrics_reader *r);
/* There is no file any more. */
void metrics_reader_give_up(struct metrics_reader *r);
void metrics_reader_sent(struct metrics_reader *r);
/* A new session, whose store has the points up to `stored`: what comes after is sent again. */
void metrics_reader_rewind(struct metrics_reader *r, int64_t stored);
/* All was read and sent. */
bool metrics_reader_is_done(const struct metrics_reader *r);

#endif
