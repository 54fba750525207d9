#include "common/base/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(struct refusal *r, enum status_code code, const char *field, const char *fmt, ...)
{
	va_list ap;
	r->code = code;
	r->retry_after_ms = 0;
	snprintf(r->field, sizeof(r->field), "%s", field ? field : "");
	va_start(ap, fmt);
	vsnprintf(r->message, sizeof(r->message), fmt, ap);
	va_end(ap);
	return -1;
}

static const char *const names[] = {
	"OK",
	"CANCELLED",
	"UNKNOWN",
	"INVALID_ARGUMENT",
	"DEADLINE_EXCEEDED",
	"NOT_FOUND",
	"ALREADY_EXISTS",
	"PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION",
	"ABORTED",
	"OUT_OF_RANGE",
	"UNIMPLEMENTED",
	"INTERNAL",
	"UNAVAILABLE",
	"DATA_LOSS",
	"UNAUTHENTICATED",
};

const char *status_code_name(enum status_code code)
{
	return (size_t)code < ARRAY_LEN(names) ? names[code] : "UNKNOWN";
}
