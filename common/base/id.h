/* Task ids: UUID version 7 (RFC 9562, 5.7), made by the master.  The first 48 bits are the
 * wall clock in ms, the next 74 a counter and randomness, so that ids of one maker grow
 * strictly even when the clock stands still or steps back. */
#ifndef REINS_ID_H
#define REINS_ID_H

#include "common/base/base.h"

#define UUID_TEXT_LEN 36

struct uuid {
	uint8_t b[16];
};

struct uuid7_maker {
	uint64_t last_ms;
	uint32_t counter; /* 26 bits, random start in each new millisecond */
};

/* Strictly greater than every earlier id of the same maker. */
struct uuid uuid7_make(struct uuid7_maker *m, int64_t wall_us);

/* Writes 36 characters and a NUL. */
void uuid_format(const struct uuid *u, char ret_text[static UUID_TEXT_LEN + 1]);
/* Exactly the 36-character form, either case.  -EINVAL otherwise; *ret untouched. */
int uuid_parse(const char *text, size_t len, struct uuid *ret) MUST_CHECK;
int uuid_cmp(const struct uuid *a, const struct uuid *b);
static inline bool uuid_eq(const struct uuid *a, const struct uuid *b) { return uuid_cmp(a, b) == 0; }
bool uuid_is_zero(const struct uuid *u);
/* The wall clock in an id of version 7, in microseconds. */
int64_t uuid7_wall_us(const struct uuid *u);

/* W3C trace context: "00-", 32 hex digits of the trace, "-", 16 of the span, "-", 2 of flags; lower case, neither all
 * zero. */
#define TRACEPARENT_LEN 55
#define TRACEPARENT_ID_AT 3
#define TRACEPARENT_ID_LEN 32
bool traceparent_ok(const char *text);

#endif
