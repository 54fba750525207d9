/* Logs in the store: pieces of an attempt's output, by their offset over both streams. */
#ifndef REINS_STORE_LOGS_H
#define REINS_STORE_LOGS_H

#include "server/store/store.h"

enum store_log_stream { STORE_STDOUT = 1, STORE_STDERR = 2 };

/* So many bytes of one stream from `offset` on, which counts over both; or a gap: so many that are not kept. */
struct store_log_piece {
	int64_t offset;
	enum store_log_stream stream;
	struct blob *data; /* at most STORE_LOG_PIECE_MAX bytes, at least 1; NULL: a gap */
	int64_t dropped;   /* of a gap, at least 1; else 0 */
};
#define STORE_LOG_PIECE_MAX (64 * 1024)

/* All pieces or none.  Those that are stored already are OK and change nothing; of two that begin at one offset the
 * longer stays.  Committed in the order of submission: who submits an attempt's next pieces when the ones before were
 * OK may be sure that nothing is missing before the last byte that is stored. */
struct store_log_append {
	struct store_op op;
	struct core_attempt at;
	const char *worker;
	const struct store_log_piece *pieces;
	size_t n;           /* at least 1 */
	bool ret_fenced;    /* the row names another worker's attempt, or none */
};

struct store_log_chunk {
	int64_t offset;
	enum store_log_stream stream;
	struct store_bytes data;
	int64_t dropped; /* > 0: a gap, without data */
};

/* From an offset on, in order, nothing twice.  An offset that is left out between two chunks was stored once and has been
 * removed since, or was never sent. */
struct store_log_read {
	struct store_op op;
	struct core_attempt at;
	int64_t offset;
	int64_t tail;      /* > 0: from so many bytes before the end of what is stored, instead */
	int32_t max_bytes; /* at least one chunk is returned when there is one */
	int64_t ret_offset; /* where the read began */
	struct store_log_chunk *ret_chunks;
	size_t ret_n;
	void *ret_memory;
};

/* Takes off what lies before `at`; false: nothing is left. */
bool store_log_trim(struct store_log_chunk *c, int64_t at);

#endif
