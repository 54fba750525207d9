/* Standard base64, three bytes at a time: whoever writes it pads, or does not. */
#ifndef REINS_BASE64_H
#define REINS_BASE64_H

#include "common/base/base.h"

/* The digits of the first three bytes (or of one or two, where there are no more; len > 0): how many they are, 2 to 4. */
static inline size_t base64_quad(const uint8_t *p, size_t len, char ret[static 4])
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = min_sz(len, 3);
	uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
	for (size_t i = 0; i <= n; i++)
		ret[i] = digits[v >> (18 - 6 * i) & 63];
	return n + 1;
}

#endif
