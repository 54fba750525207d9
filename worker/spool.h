/* The outcome spool: one append-only file of outcomes that no master has answered yet.
 *
 *   file    "reins-spool 1\n", then records
 *   record  length (4 bytes, little endian), CRC-32C of what follows the CRC (4), kind (1), id (8), body
 *   kinds   1: an outcome, body = the packed message;  2: the outcome of that id was answered, no body
 *
 * An outcome is on disk (spool_begin, spool_batch_run, spool_end) before it is sent; a batch of answers alone is
 * written but not synced, since an outcome sent once too often is answered DUPLICATE.  The file is rewritten with
 * what is alive when most of it is not.
 *
 * Blocking calls are only spool_open and spool_batch_run; the latter may run on another thread while
 * the owner goes on calling spool_add and spool_answered. */
#ifndef REINS_WORKER_SPOOL_H
#define REINS_WORKER_SPOOL_H

#include "common/base/base.h"
#include "common/base/buf.h"

#define SPOOL_RECORD_MAX (16u << 20) /* an outcome; none is larger than a message may be (GRPC_MESSAGE_MAX) */

struct spool;
struct spool_batch;

struct spool_replay {
	/* An outcome of an earlier process; `outcome` belongs to the callee (blob_unref). */
	void (*on_outcome)(void *arg, uint64_t id, struct blob *outcome);
	void *arg;
	int64_t torn_bytes; /* out: bytes at the end that were no whole record, and were cut off */
};

/* Opens or makes `name` in the directory and replays it.  `limit`: bytes of unanswered outcomes from which spool_full
 * says so.  -EBADMSG: the file is no spool (it is left as it is); other -errno of the system. */
int spool_open(int dir_fd, const char *name, int64_t limit, struct spool_replay *replay, struct spool **ret) MUST_CHECK;
/* No batch may be under way. What was not written is lost. NULL-safe. */
void spool_free(struct spool *s);

/* Never refuses: see spool_full. The id counts up, never 0. Keeps a reference. */
uint64_t spool_add(struct spool *s, struct blob *outcome);
void spool_answered(struct spool *s, uint64_t id);
/* Take no more tasks. What runs may still add: at most one outcome for each slot. */
bool spool_full(const struct spool *s);
int64_t spool_file_bytes(const struct spool *s);

/* What is to be written, or NULL: nothing, or a batch is under way. */
struct spool_batch *spool_begin(struct spool *s);
/* Writes and syncs. Touches nothing of the spool. */
void spool_batch_run(struct spool_batch *b);
/* Back on the owner's thread; frees the batch. 0: *ret_id and all before it are on disk. -errno: nothing of the batch
 * is certain; it will be part of the next one. */
int spool_end(struct spool *s, struct spool_batch *b, uint64_t *ret_id) MUST_CHECK;

/* CRC-32C (Castagnoli). */
uint32_t spool_crc(const void *data, size_t len);

#endif
