/* The details of a refusal, for google.rpc.Status and for errors in JSON. */
#ifndef REINS_GRPC_DETAILS_H
#define REINS_GRPC_DETAILS_H

#include "common/base/base.h"
#include "common/base/refusal.h"

/* BadRequest, RetryInfo, ErrorInfo, ResourceInfo, in this order and each only if there is something to say. */
#define DETAILS_MAX 4
#define DETAILS_CAP 2048

struct detail {
	const char *type; /* "google.rpc.BadRequest"; static */
	const uint8_t *data;
	size_t len;
};

struct details {
	size_t n;
	struct detail at[DETAILS_MAX]; /* point into bytes */
	uint8_t bytes[DETAILS_CAP];
};

/* What is over the cap (nothing of today's) is left out whole. */
void details_build(struct details *d, const struct refusal *r);

/* google.rpc.Status with all of them: its bytes; 0 when there are none. */
#define DETAILS_STATUS_CAP 3072
size_t details_status(const struct refusal *r, uint8_t ret_data[static DETAILS_STATUS_CAP]);
/* The retry delay in a google.rpc.Status; 0 when there is none or the bytes are no such message. */
int64_t details_retry_ms(const uint8_t *data, size_t len);

#endif
