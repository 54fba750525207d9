/* Length-prefixed messages, as of gRPC, gRPC-Web and Connect's streams: one byte of flags, four of length, then the message. */
#ifndef REINS_GRPC_FRAMING_H
#define REINS_GRPC_FRAMING_H

#include "common/base/base.h"

#define FRAMING_PREFIX 5

struct framing_message {
	bool compressed;
	uint32_t declared; /* the length in the prefix; set with -EMSGSIZE too */
	const uint8_t *data;
	size_t len;
};

/* Looks at the front of what arrived so far: the caller keeps the bytes and asks again when there are more, so a
 * prefix or message may be split anywhere. 1: a whole message, FRAMING_PREFIX + len bytes are done with.
 * 0: more bytes needed. -EMSGSIZE: declared longer than max, known from the prefix alone.
 * -EBADMSG: flags other than 0 and 1. */
int framing_next(const uint8_t *data, size_t len, size_t max, struct framing_message *ret) MUST_CHECK;
#define FRAMING_COMPRESSED 1
/* Bytes as the message of a send that reserves room and has it filled. */
struct framing_span {
	const void *data;
	size_t len;
};
size_t framing_pack_span(const void *span, uint8_t *out);
void framing_prefix(uint8_t ret_prefix[static FRAMING_PREFIX], uint8_t flags, uint32_t len);

#endif
