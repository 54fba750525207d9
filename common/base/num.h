/* Strict parsing of what people type: no leading blanks, no trailing garbage, no overflow.
 * All return 0, or -EINVAL (not of the form) or -ERANGE; the output is untouched then. */
#ifndef REINS_NUM_H
#define REINS_NUM_H

#include "common/base/base.h"

int num_parse_i64(const char *s, int64_t *ret) MUST_CHECK;
/* "2s", "150ms", "1.5m", "2h", "7d", "10us", "0"; a plain number other than 0 is refused. */
int num_parse_duration(const char *s, int64_t *ret_ns) MUST_CHECK;
/* "65536", "64KiB", "4MiB", "1GiB" (also K, M, G, T as the same powers of 1024). */
int num_parse_size(const char *s, int64_t *ret_bytes) MUST_CHECK;
/* The shortest exact form that num_parse_duration reads back. */
void num_format_duration(int64_t ns, char *ret_text, size_t cap);
/* The same for num_parse_size. */
void num_format_size(int64_t bytes, char *ret_text, size_t cap);

/* 0 to 15, in either case; -1: not one. */
static inline int num_hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
