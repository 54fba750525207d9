/* A client made of bare frames in front of a gRPC server: what clients see on the wire, and clients that misbehave. */
#ifndef REINS_TESTS_GRPC_PEER_H
#define REINS_TESTS_GRPC_PEER_H

#include "tests/unit/grpc_rig.h"
#include "tests/unit/h2_raw.h"

struct peer {
	struct rig rig; /* its own channel is idle */
	struct stream *s;
	struct raw raw;
	struct buf got;
	bool ended;
};

/* What a stream got, all its header blocks together. */
struct answer {
	char http[8], status[8], type[64], message[1200], accept[64], server[32], details[5000], pushback[16], encoding[16];
	char odd[64];  /* the last name that is none of these */
	size_t data, blocks;
	size_t list; /* bytes of the last block, as SETTINGS_MAX_HEADER_LIST_SIZE counts them */
	bool status_first; /* grpc-status in the first block */
	bool ended, reset;
	uint32_t reset_code;
};


#define UNARY "/test.Echo/Unary"
#define BIDI "/test.Echo/Bidi"
#define FILL "/test.Echo/Fill"

void peer_init(struct peer *p, const struct grpc_limits *l, bool preface);
void peer_done(struct peer *p);
/* Gives the server what was said, and it some turns to answer. */
void talk(struct peer *p);
struct answer answer(struct peer *p, int32_t id);
void send_bytes(struct peer *p, int32_t id, bool end, const void *data, size_t len);

#endif
