/* The header fields that carry a status. */
#ifndef REINS_GRPC_TRAILERS_H
#define REINS_GRPC_TRAILERS_H

#include "common/grpc/details.h"
#include "common/grpc/wire.h"
#include "common/h2/h2.h"

#define TRAILERS_MAX 4

struct trailers {
	struct h2_header h[TRAILERS_MAX];
	size_t n;
	char code[4], pushback[24];
	char message[WIRE_MESSAGE_CAP + 1];
	char details[WIRE_BASE64_CAP(DETAILS_STATUS_CAP)];
};

/* With a time to retry, also as grpc-retry-pushback-ms, which the retry policy of stock clients goes by.
 * r NULL or STATUS_OK: just grpc-status 0. The fields point into *t. */
void trailers_build(struct trailers *t, const struct refusal *r);

#endif
