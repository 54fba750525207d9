/* Reading an attempt's log files (log_file.h).  No state: a place is where a record begins. */
#ifndef REINS_WORKER_LOG_READ_H
#define REINS_WORKER_LOG_READ_H

#include "common/base/base.h"
#include "worker/log_file.h"

#define LOG_READ_BUFFER (LOG_RECORD_DATA_MAX + 8192) /* at least one record, and many small ones */

/* The record at byte `pos` of the file that is named by `file` begins with the log's byte `offset`. */
struct log_place {
	int64_t file, pos, offset;
};

/* Some bytes of one stream, or a gap. */
struct log_span {
	int stream;
	int64_t offset;
	const uint8_t *data;
	size_t len;        /* 0: a gap */
	int64_t dropped;
	int64_t at_wall_us;
};

struct log_found {
	int fd;                  /* open at `place`, the caller's to close; -1: nothing is at the offset that was asked for */
	struct log_place place;  /* of the record with the offset */
	size_t len;              /* bytes in the buffer, from place.pos on */
	int64_t gap_to;          /* fd -1: no file has anything before this offset */
};

/* Looks for the byte `want`, below `end`: all before `end` is in the files or lost for good.  `fd` (taken over; -1: none)
 * is of `hint`'s file, `hint` (may be NULL) a place at or before `want`.  Blocks. */
void log_find(int dir_fd, int fd, const struct log_place *hint, int64_t want, int64_t end, uint8_t *buf, struct log_found *ret);

/* The span that begins at `want`, of at most `max` bytes: records of one stream that follow each other are one.  `buf` holds
 * `len` bytes from place->pos on and is changed.  -EAGAIN: the record is not whole in it; -EBADMSG: that is no record. */
int log_take(uint8_t *buf, size_t len, const struct log_place *place, int64_t want, int64_t end, size_t max,
	     struct log_span *ret, struct log_place *ret_next) MUST_CHECK;

/* Where the log ends by its files alone, when nobody is left who could say.  Blocks. */
int64_t log_end_of_files(int dir_fd);

#endif
