/* A refusal that a user will read: a code and a message, optionally the field at fault.
 * Codes are gRPC's numbers (grpc/doc/statuscodes.md), which every layer shares. */
#ifndef REINS_REFUSAL_H
#define REINS_REFUSAL_H

#include "common/base/base.h"

enum status_code {
	STATUS_OK = 0,
	STATUS_CANCELLED = 1,
	STATUS_UNKNOWN = 2,
	STATUS_INVALID_ARGUMENT = 3,
	STATUS_DEADLINE_EXCEEDED = 4,
	STATUS_NOT_FOUND = 5,
	STATUS_ALREADY_EXISTS = 6,
	STATUS_PERMISSION_DENIED = 7,
	STATUS_RESOURCE_EXHAUSTED = 8,
	STATUS_FAILED_PRECONDITION = 9,
	STATUS_ABORTED = 10,
	STATUS_OUT_OF_RANGE = 11,
	STATUS_UNIMPLEMENTED = 12,
	STATUS_INTERNAL = 13,
	STATUS_UNAVAILABLE = 14,
	STATUS_DATA_LOSS = 15,
	STATUS_UNAUTHENTICATED = 16,
};

struct refusal {
	enum status_code code;   /* STATUS_OK: no refusal */
	char field[128];         /* path of the field at fault, "" when none; goes out as google.rpc.BadRequest */
	char message[512];       /* for a person: what is wrong and what is allowed; valid UTF-8 */
	int64_t retry_after_ms;  /* > 0: google.rpc.RetryInfo */
};

/* Fills *r and returns -1, so that `return refuse(r, …)` reads well.  `field` may be NULL. */
int refuse(struct refusal *r, enum status_code code, const char *field, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "INVALID_ARGUMENT"; never NULL. */
const char *status_code_name(enum status_code code);

#endif
