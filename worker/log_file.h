/* The files of an attempt's log: written by its supervisor, read by the agent.  libc only.
 *
 *   log.0000000000000000   the head: the first log_head_bytes of output. Only grows.
 *   log.<offset in hex>    after the head, segments of log_ring_bytes / 2 each.  When a third one begins, the oldest is
 *                          removed: of what follows the head, the last log_ring_bytes / 2 to log_ring_bytes are kept.
 *
 * A program that writes single bytes makes records that are larger than their data: a file, the head too, ends as well
 * when its size on disk exceeds twice its share and 4 KiB.  A reader goes by names and records, never by shares.
 *
 * A file is named by the offset of its first byte and is a sequence of records, each a header and `len` bytes of
 * output, in the order in which they were read from the pipes.  Offsets count over both streams, without holes within a
 * file.  A record with `dropped` > 0 has no data: so many bytes from `offset` on are missing, since the disk was full.  A
 * torn record at the end of the newest file (supervisor killed) is not part of the log; one that a live supervisor is
 * writing lies behind sup_status.log_end. */
#ifndef REINS_WORKER_LOG_FILE_H
#define REINS_WORKER_LOG_FILE_H

#include <stdint.h>

#define LOG_FILE_PREFIX "log."
#define LOG_FILE_NAME_LEN 20        /* "log." and 16 digits */
#define LOG_RECORD_MAGIC 0x676f4c52u /* "RLog" */
#define LOG_RECORD_DATA_MAX (64 * 1024)

struct log_record {
	uint32_t magic;
	uint32_t stream;  /* 1: stdout, 2: stderr; of the first missing byte where `dropped` > 0 */
	int64_t offset;
	int64_t wall_us;  /* when it was read */
	int64_t dropped;
	uint32_t len;     /* at most LOG_RECORD_DATA_MAX */
	uint32_t pad;
};

#endif
