/* Writes an attempt's log files (worker/log_file.h).  A disk that takes nothing more costs output, told by a record as
 * soon as it takes some again; it never fails the caller. */
#ifndef REINS_SUPERVISOR_LOG_WRITER_H
#define REINS_SUPERVISOR_LOG_WRITER_H

#include "common/base/base.h"
#include "worker/log_file.h"

struct log_writer {
	int dir_fd;                  /* the caller's */
	int fd;                      /* the newest file; -1: none yet */
	int64_t head_bytes, segment_bytes;
	int64_t share;               /* output that the newest file may hold */
	int64_t file_start, file_size;
	int64_t older_start;         /* the segment before the newest file; -1: none */
	int64_t end;                 /* of all output */
	int64_t missing;             /* bytes before `end` that no record tells of yet */
	uint32_t missing_stream;
	int64_t dropped;             /* all bytes that could not be written */
};

void log_writer_init(struct log_writer *w, int dir_fd, int64_t head_bytes, int64_t ring_bytes);
/* Any length. */
void log_writer_add(struct log_writer *w, uint32_t stream, const void *data, size_t len, int64_t wall_us);
/* After the last byte: tells what is missing, when the disk lets it. */
void log_writer_finish(struct log_writer *w, int64_t wall_us);
/* As sup_status.log_end, while more may come. */
int64_t log_writer_told(const struct log_writer *w);
void log_writer_done(struct log_writer *w);

#endif
