/* Timeouts, messages and base64 as they stand in fields.  No state. */
#include "common/grpc/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/base64.h"
#include "common/base/num.h"
#include "common/h2/h2.h"

#define TIMEOUT_MAX_NS (INT64_C(100) * 365 * 24 * 3600 * NS_PER_S)

static const struct {
	char unit;
	int64_t ns;
} UNITS[] = {
	{ 'H', 3600 * NS_PER_S }, { 'M', 60 * NS_PER_S }, { 'S', NS_PER_S }, { 'm', NS_PER_MS }, { 'u', NS_PER_US }, { 'n', 1 },
};

int wire_parse_timeout(const char *text, int64_t *ret_ns)
{
	int64_t value = 0;
	size_t n = 0;
	for (; text[n] >= '0' && text[n] <= '9'; n++) {
		if (n == 8)
			return -EINVAL;
		value = value * 10 + (text[n] - '0');
	}
	if (n == 0 || !text[n] || text[n + 1])
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(UNITS); i++) {
		if (UNITS[i].unit != text[n])
			continue;
		int64_t ns = value > TIMEOUT_MAX_NS / UNITS[i].ns ? TIMEOUT_MAX_NS : value * UNITS[i].ns;
		*ret_ns = max_i64(ns, NS_PER_MS);
		return 0;
	}
	return -EINVAL;
}

void wire_format_timeout(int64_t ns, char ret_text[static WIRE_TIMEOUT_CAP])
{
	ns = max_i64(1, min_i64(ns, TIMEOUT_MAX_NS));
	/* From small units to large ones: the first that fits has the best precision. */
	for (size_t i = ARRAY_LEN(UNITS); i-- > 0;) {
		int64_t value = (ns + UNITS[i].ns - 1) / UNITS[i].ns;
		if (value > 99999999 && i > 0)
			continue;
		snprintf(ret_text, WIRE_TIMEOUT_CAP, "%d%c", (int)min_i64(value, 99999999), UNITS[i].unit);
		return;
	}
}

/* ---- grpc-message ---- */

/* Length of the UTF-8 sequence at s, 1 for a byte that begins none. */
static size_t sequence_len(const unsigned char *s)
{
	size_t n = s[0] < 0xc2 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 1;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 1;
	return n;
}

size_t wire_encode_message(const char *text, char ret_text[static WIRE_MESSAGE_CAP + 1])
{
	static const char hex[] = "0123456789ABCDEF";
	const unsigned char *s = (const unsigned char *)text;
	size_t out = 0;
	while (*s) {
		size_t seq = sequence_len(s);
		bool plain = seq == 1 && s[0] >= 0x20 && s[0] <= 0x7e && s[0] != '%';
		/* A blank at either end would be taken for padding of the field. */
		if (s[0] == ' ' && (out == 0 || !s[1]))
			plain = false;
		if (out + (plain ? 1 : 3 * seq) > WIRE_MESSAGE_CAP)
			break;
		if (plain) {
			ret_text[out++] = (char)*s++;
			continue;
		}
		for (size_t i = 0; i < seq; i++, s++) {
			ret_text[out++] = '%';
			ret_text[out++] = hex[*s >> 4];
			ret_text[out++] = hex[*s & 15];
		}
	}
	ret_text[out] = 0;
	return out;
}

void wire_decode_message(const char *text, char *ret_text, size_t cap)
{
	size_t out = 0;
	for (const char *s = text; *s && out + 1 < cap; s++) {
		int hi = *s == '%' ? num_hex_digit(s[1]) : -1;
		int lo = hi >= 0 ? num_hex_digit(s[2]) : -1;
		unsigned char c = (unsigned char)*s;
		if (lo >= 0) {
			c = (unsigned char)(hi << 4 | lo);
			s += 2;
		}
		ret_text[out++] = (char)(c < 0x20 || c == 0x7f ? (c == '\n' || c == '\t' ? c : '?') : c);
	}
	ret_text[out] = 0;
	/* Broken sequences, also one cut at the end. */
	for (size_t i = 0; i < out;) {
		size_t seq = sequence_len((unsigned char *)ret_text + i);
		if (seq == 1 && (unsigned char)ret_text[i] >= 0x80)
			ret_text[i] = '?';
		i += seq;
	}
}

/* ---- base64 ---- */

size_t wire_base64_encode(const uint8_t *data, size_t len, char *ret_text, size_t cap)
{
	size_t out = 0;
	if (cap < WIRE_BASE64_CAP(len)) {
		if (cap)
			ret_text[0] = 0;
		return 0;
	}
	for (size_t i = 0; i < len; i += 3) {
		char quad[4];
		size_t n = base64_quad(data + i, len - i, quad);
		memcpy(ret_text + out, quad, n);
		out += n;
	}
	ret_text[out] = 0;
	return out;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int wire_base64_decode(const char *text, size_t len, uint8_t *ret_data, size_t cap, size_t *ret_len)
{
	for (int pad = 0; pad < 2 && len && len % 4 == (pad ? 3 : 0) && text[len - 1] == '='; pad++)
		len--;
	if (len % 4 == 1)
		return -EINVAL;
	size_t out = 0;
	uint32_t v = 0;
	for (size_t i = 0; i < len; i++) {
		int d = base64_digit(text[i]);
		if (d < 0)
			return -EINVAL;
		v = v << 6 | (uint32_t)d;
		if (i % 4 == 0)
			continue;
		if (out == cap)
			return -ENOBUFS;
		ret_data[out++] = (uint8_t)(v >> (6 - 2 * (i % 4)));
	}
	*ret_len = out;
	return 0;
}

/* ---- status of what has none ---- */

enum status_code wire_status_of_http(int http_status)
{
	switch (http_status) {
	case 400:
	case 431:
		return STATUS_INTERNAL;
	case 401:
		return STATUS_UNAUTHENTICATED;
	case 403:
		return STATUS_PERMISSION_DENIED;
	case 404:
		return STATUS_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return STATUS_UNAVAILABLE;
	default:
		return STATUS_UNKNOWN;
	}
}

enum status_code wire_status_of_reset(uint32_t h2_code)
{
	switch (h2_code) {
	case H2_REFUSED_STREAM:
		return STATUS_UNAVAILABLE;
	case H2_CANCEL:
		return STATUS_CANCELLED;
	case H2_ENHANCE_YOUR_CALM:
		return STATUS_RESOURCE_EXHAUSTED;
	case H2_INADEQUATE_SECURITY:
		return STATUS_PERMISSION_DENIED;
	default:
		return STATUS_INTERNAL;
	}
}
