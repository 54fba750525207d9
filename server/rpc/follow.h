/* Logs that are read along: what lies behind the head of a log is not stored while its attempt runs, but goes from the
 * worker's stream straight to those who follow.
 *
 * Nobody waits for a slow follower: what it does not take in time is left out for it alone, and by the offsets it sees
 * what is missing. */
#ifndef REINS_RPC_FOLLOW_H
#define REINS_RPC_FOLLOW_H

#include "server/rpc/rpc.h"
#include "server/store/store_logs.h"

struct follow;
struct session;

struct follow_piece {
	struct list node;
	int64_t offset;
	enum store_log_stream stream;
	struct blob *data;
};

struct follower {
	/* There are pieces. Only takes a note: no follower may leave in it. */
	void (*on_pieces)(struct follower *f);
	struct list pieces; /* struct follow_piece, in order; to be freed with follow_piece_free */
	size_t bytes;
	/* private */
	struct follow *of; /* NULL: none */
	struct list node;
};

void follower_init(struct follower *f, void (*on_pieces)(struct follower *f));
/* The attempt runs at this worker, whose master may be another: then no pieces come. */
void follow_begin(struct rpc *rpc, struct follower *f, const struct core_attempt *at, const char *worker);
/* Drops the pieces too. No-op for one that doesn't follow. */
void follow_end(struct follower *f);
void follow_piece_free(struct follower *f, struct follow_piece *p);

/* ---- for the workers' streams ---- */

/* A live piece has come. */
void follow_piece(struct rpc *rpc, const struct core_attempt *at, enum store_log_stream stream, int64_t offset,
		  const uint8_t *data, size_t len);
/* The worker has the attempt, in a session that may be new: asks for its log if somebody follows. */
void follow_session(struct session *s, const struct core_attempt *at);

#endif
