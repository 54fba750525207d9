/* Inside common/pb only: the texts that ProtoJSON has for numbers, bytes and times.  `s` need not end with a NUL.
 * All return 0, or -EINVAL (not of the form), -ERANGE; outputs are untouched then. */
#ifndef REINS_PB_JSON_VALUE_H
#define REINS_PB_JSON_VALUE_H

#include "common/base/base.h"

#define JSON_REAL_CHARS_MAX 1000

/* Exactly, also "1e2" and "1.0".  -EDOM: not whole; -ERANGE: its magnitude is beyond uint64. */
int json_read_whole(const char *s, size_t len, bool *ret_negative, uint64_t *ret_magnitude) MUST_CHECK;
/* The nearest double, or float if `single`.  Also "NaN", "Infinity", "-Infinity" where `names`.  -E2BIG:
 * longer than JSON_REAL_CHARS_MAX. */
int json_read_real(const char *s, size_t len, bool single, bool names, double *ret) MUST_CHECK;

/* Bytes that the base64 text stands for, in either alphabet, padded or not. -1: it is none. */
ptrdiff_t json_base64_len(const char *s, size_t len);
/* Only after json_base64_len, whose result is the room needed. */
void json_base64_read(const char *s, size_t len, uint8_t *ret_data);

/* RFC 3339 with Z or an offset, years 1 to 9999, at most 9 digits of a second. */
int json_read_timestamp(const char *s, size_t len, int64_t *ret_seconds, int32_t *ret_nanos) MUST_CHECK;
/* "-1.5s": at most 9 digits behind the point, 315,576,000,000 s either way. */
int json_read_duration(const char *s, size_t len, int64_t *ret_seconds, int32_t *ret_nanos) MUST_CHECK;

#endif
