/* UTF-8, by the table of well-formed sequences in the Unicode standard.  No state. */
#include "common/pb/utf8.h"

#include <string.h>

#define HIGH_BITS UINT64_C(0x8080808080808080)
#define LOW_BITS UINT64_C(0x0101010101010101)

size_t utf8_char_len(const uint8_t *s, size_t len)
{
	uint8_t c = s[0];
	if (c < 0x80)
		return c != 0;
	/* Bounds of the second byte; all later ones are 80..BF. */
	uint8_t lo = 0x80, hi = 0xbf;
	size_t n;
	if (c >= 0xc2 && c <= 0xdf) {
		n = 2;
	} else if (c >= 0xe0 && c <= 0xef) {
		n = 3;
		if (c == 0xe0)
			lo = 0xa0;
		if (c == 0xed)
			hi = 0x9f;
	} else if (c >= 0xf0 && c <= 0xf4) {
		n = 4;
		if (c == 0xf0)
			lo = 0x90;
		if (c == 0xf4)
			hi = 0x8f;
	} else {
		return 0;
	}
	if (len < n || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

bool utf8_valid(const void *text, size_t len)
{
	const uint8_t *s = text;
	while (len) {
		if (len >= 8) {
			uint64_t v;
			memcpy(&v, s, 8);
			/* Eight bytes of ASCII, none of them 0. */
			if (!(v & HIGH_BITS) && !((v - LOW_BITS) & ~v & HIGH_BITS)) {
				s += 8;
				len -= 8;
				continue;
			}
		}
		size_t n = utf8_char_len(s, len);
		if (!n)
			return false;
		s += n;
		len -= n;
	}
	return true;
}

size_t utf8_make_valid(const void *text, size_t len, char *ret_text, size_t cap, bool *ret_changed)
{
	static const char replacement[] = "\xef\xbf\xbd";
	const uint8_t *s = text;
	size_t out = 0;
	bool changed = false;
	while (len) {
		size_t n = utf8_char_len(s, len);
		const void *from = n ? (const void *)s : replacement;
		size_t put = n ? n : sizeof(replacement) - 1;
		if (put > cap - 1 - out) {
			changed = true;
			break;
		}
		memcpy(ret_text + out, from, put);
		out += put;
		changed |= n == 0;
		n = n ? n : 1;
		s += n;
		len -= n;
	}
	ret_text[out] = '\0';
	if (ret_changed)
		*ret_changed = changed;
	return out;
}
