#include "common/base/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define N(word) [REASON_##word] = #word

static const char *const reasons[REASONS] = {
	[REASON_NONE] = "",
	N(FIELD_INVALID), N(MESSAGE_INVALID), N(NOT_FOUND), N(EXISTS), N(LIMIT_REACHED), N(STATE_CONFLICT), N(CHANGED_MEANWHILE),
	N(OUT_OF_RANGE), N(NOT_IMPLEMENTED), N(UNAVAILABLE), N(DEADLINE_PASSED), N(NOT_AUTHENTICATED), N(NOT_PERMITTED), N(FAULT),
	N(DATA_LOST), N(TASK_NOT_FOUND), N(ATTEMPT_NOT_FOUND), N(WORKER_NOT_FOUND), N(SERVICE_NOT_FOUND),
	N(IDEMPOTENCY_KEY_REUSED), N(TASK_TERMINAL), N(TASK_NOT_TERMINAL), N(MESSAGE_TOO_LARGE), N(REPLY_TOO_LARGE), N(TOO_MUCH_IN_FLIGHT),
	N(OUT_OF_MEMORY), N(READER_TOO_SLOW), N(TOO_MANY_STREAMS), N(STORE_AWAY), N(STORE_BUSY), N(STORE_REFUSED),
	N(MASTER_STOPPING), N(CONNECTION_TOO_OLD),
};

static const enum reason of_code[] = {
	[STATUS_INVALID_ARGUMENT] = REASON_MESSAGE_INVALID,
	[STATUS_DEADLINE_EXCEEDED] = REASON_DEADLINE_PASSED,
	[STATUS_NOT_FOUND] = REASON_NOT_FOUND,
	[STATUS_ALREADY_EXISTS] = REASON_EXISTS,
	[STATUS_PERMISSION_DENIED] = REASON_NOT_PERMITTED,
	[STATUS_RESOURCE_EXHAUSTED] = REASON_LIMIT_REACHED,
	[STATUS_FAILED_PRECONDITION] = REASON_STATE_CONFLICT,
	[STATUS_ABORTED] = REASON_CHANGED_MEANWHILE,
	[STATUS_OUT_OF_RANGE] = REASON_OUT_OF_RANGE,
	[STATUS_UNIMPLEMENTED] = REASON_NOT_IMPLEMENTED,
	[STATUS_INTERNAL] = REASON_FAULT,
	[STATUS_UNAVAILABLE] = REASON_UNAVAILABLE,
	[STATUS_DATA_LOSS] = REASON_DATA_LOST,
	[STATUS_UNAUTHENTICATED] = REASON_NOT_AUTHENTICATED,
};

static void print(char *to, size_t cap, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* Without half a character at a cut: clients refuse a google.rpc.Status that is not UTF-8. */
static void print(char *to, size_t cap, const char *fmt, va_list ap)
{
	int n = vsnprintf(to, cap, fmt, ap);
	if (n < 0)
		to[0] = 0;
	if (n < 0 || (size_t)n < cap)
		return;
	size_t len = cap - 1, start = len;
	while (start > 0 && len - start < 3 && ((unsigned char)to[start - 1] & 0xc0) == 0x80)
		start--;
	if (start == 0 || (unsigned char)to[start - 1] < 0xc0)
		return;
	unsigned char lead = (unsigned char)to[start - 1];
	size_t wanted = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	if (len - (start - 1) < wanted)
		to[start - 1] = 0;
}

static void copy(char *to, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void copy(char *to, size_t cap, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print(to, cap, fmt, ap);
	va_end(ap);
}

int refuse_v(struct refusal *r, enum status_code code, const char *field, const char *fmt, va_list ap)
{
	r->code = code;
	r->reason = (size_t)code < ARRAY_LEN(of_code) ? of_code[code] : REASON_NONE;
	if (code == STATUS_INVALID_ARGUMENT && field && *field)
		r->reason = REASON_FIELD_INVALID;
	r->retry_after_ms = 0;
	r->resource_type = NULL;
	r->resource_name[0] = 0;
	r->n_more = 0;
	copy(r->field, sizeof(r->field), "%s", field ? field : "");
	print(r->message, sizeof(r->message), fmt, ap);
	return -1;
}

int refuse(struct refusal *r, enum status_code code, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)refuse_v(r, code, field, fmt, ap);
	va_end(ap);
	return -1;
}

int refuse_no_memory(struct refusal *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)refuse_v(r, STATUS_RESOURCE_EXHAUSTED, NULL, fmt, ap);
	va_end(ap);
	r->retry_after_ms = 1000;
	return refuse_reason(r, REASON_OUT_OF_MEMORY);
}

int refuse_reason(struct refusal *r, enum reason reason)
{
	r->reason = reason;
	return -1;
}

int refuse_resource(struct refusal *r, const char *type, const char *name)
{
	r->resource_type = type;
	copy(r->resource_name, sizeof(r->resource_name), "%s", name);
	return -1;
}

int refuse_more(struct refusal *r, const char *key, const char *fmt, ...)
{
	if (r->n_more == REFUSAL_MORE_MAX)
		return -1;
	va_list ap;
	r->more[r->n_more].key = key;
	va_start(ap, fmt);
	print(r->more[r->n_more].value, sizeof(r->more[0].value), fmt, ap);
	va_end(ap);
	r->n_more++;
	return -1;
}

const char *reason_name(enum reason reason) { return (size_t)reason < REASONS ? reasons[reason] : ""; }

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
