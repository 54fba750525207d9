/* A refusal that a user will read: a code and a message, optionally the field at fault.
 * Codes are gRPC's numbers (grpc/doc/statuscodes.md), which every layer shares. */
#ifndef REINS_REFUSAL_H
#define REINS_REFUSAL_H

#include <stdarg.h>

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

/* Causes that a program can tell from others: they go out by name as google.rpc.ErrorInfo, with the domain "reins.dev".
 * docs/errors.md says what each means, and a test sees to it that it has them all.  The first ones are what refuse() takes
 * for a code when nobody says more. */
enum reason {
	REASON_NONE,
	REASON_FIELD_INVALID,
	REASON_MESSAGE_INVALID,
	REASON_NOT_FOUND,
	REASON_EXISTS,
	REASON_LIMIT_REACHED,
	REASON_STATE_CONFLICT,
	REASON_CHANGED_MEANWHILE,
	REASON_OUT_OF_RANGE,
	REASON_NOT_IMPLEMENTED,
	REASON_UNAVAILABLE,
	REASON_DEADLINE_PASSED,
	REASON_NOT_AUTHENTICATED,
	REASON_NOT_PERMITTED,
	REASON_FAULT,
	REASON_DATA_LOST,

	REASON_TASK_NOT_FOUND,
	REASON_ATTEMPT_NOT_FOUND,
	REASON_WORKER_NOT_FOUND,
	REASON_SERVICE_NOT_FOUND,
	REASON_IDEMPOTENCY_KEY_REUSED,
	REASON_TASK_TERMINAL,
	REASON_TASK_NOT_TERMINAL,
	REASON_MESSAGE_TOO_LARGE,
	REASON_REPLY_TOO_LARGE,
	REASON_TOO_MUCH_IN_FLIGHT,
	REASON_OUT_OF_MEMORY,
	REASON_READER_TOO_SLOW,
	REASON_TOO_MANY_STREAMS,
	REASON_STORE_AWAY,
	REASON_STORE_BUSY,
	REASON_STORE_REFUSED,
	REASON_MASTER_STOPPING,
	REASON_CONNECTION_TOO_OLD,
	REASONS
};

#define REFUSAL_MORE_MAX 4
struct refusal {
	enum status_code code;   /* STATUS_OK: no refusal */
	enum reason reason;      /* NONE: no google.rpc.ErrorInfo */
	char field[128];         /* path of the field at fault, "" when none; goes out as google.rpc.BadRequest */
	char message[512];       /* for a person: what is wrong and what is allowed; valid UTF-8 */
	int64_t retry_after_ms;  /* > 0: google.rpc.RetryInfo */
	/* What it is about ("task", its id), google.rpc.ResourceInfo; type NULL: nothing. The type is static text. */
	const char *resource_type;
	char resource_name[256];
	/* The metadata of ErrorInfo. Keys are static texts in lowerCamelCase. */
	size_t n_more;
	struct {
		const char *key;
		char value[96];
	} more[REFUSAL_MORE_MAX];
};

/* Fills *r and returns -1, so that `return refuse(r, …)` reads well.  `field` may be NULL.  The reason is the one that goes
 * with the code, FIELD_INVALID with a field.  A text that has no room is cut between characters. */
int refuse(struct refusal *r, enum status_code code, const char *field, const char *fmt, ...) PRINTF_LIKE(4, 5);
int refuse_v(struct refusal *r, enum status_code code, const char *field, const char *fmt, va_list ap)
	__attribute__((format(printf, 4, 0)));
/* RESOURCE_EXHAUSTED, OUT_OF_MEMORY, to be tried again in a second. */
int refuse_no_memory(struct refusal *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* To be called after refuse; all return -1 too. */
int refuse_reason(struct refusal *r, enum reason reason);
int refuse_resource(struct refusal *r, const char *type, const char *name);
/* One more piece of metadata; what is over REFUSAL_MORE_MAX is left out. */
int refuse_more(struct refusal *r, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "TASK_NOT_FOUND"; "" for NONE. */
const char *reason_name(enum reason reason);
/* "INVALID_ARGUMENT"; never NULL. */
const char *status_code_name(enum status_code code);

#endif
