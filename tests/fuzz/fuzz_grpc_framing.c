/* The message parser fed in pieces against the same bytes at once, and the small decoders of headers. */
#include <stdlib.h>
#include <string.h>

#include "common/grpc/details.h"
#include "common/grpc/framing.h"
#include "common/grpc/wire.h"

#define MAX_MESSAGE 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A sum of what was parsed; stops at the first error. `step`: bytes that become visible at a time. */
static uint64_t parse(const uint8_t *data, size_t len, size_t step)
{
	uint64_t sum = 1;
	size_t at = 0;
	for (size_t seen = 0; seen <= len; seen = seen == len ? len + 1 : min_sz(len, seen + step)) {
		struct framing_message m;
		int rc;
		while ((rc = framing_next(data + at, seen - at, MAX_MESSAGE, &m)) == 1) {
			if (m.len > MAX_MESSAGE || m.data + m.len > data + seen)
				abort();
			for (size_t i = 0; i < m.len; i++)
				sum = sum * 31 + m.data[i];
			sum = sum * 31 + m.len + m.compressed;
			at += FRAMING_PREFIX + m.len;
		}
		if (rc < 0)
			return sum * 31 + (uint64_t)-rc;
	}
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (!len)
		return 0;
	if (parse(data, len, len) != parse(data, len, 1) || parse(data, len, 3) != parse(data, len, 1 + data[0] % 64u))
		abort();
	char *text = malloc(len + 1);
	uint8_t *out = malloc(len + 1);
	if (!text || !out)
		abort();
	memcpy(text, data, len);
	text[len] = 0;
	int64_t ns;
	if (wire_parse_timeout(text, &ns) == 0 && ns < 0)
		abort();
	size_t n;
	if (wire_base64_decode(text, strlen(text), out, len, &n) == 0) {
		char again[4096];
		if (n < 3000 && wire_base64_encode(out, n, again, sizeof(again)) != (n * 4 + 2) / 3)
			abort();
	}
	char encoded[WIRE_MESSAGE_CAP + 1], *decoded = malloc(len + 1);
	if (!decoded)
		abort();
	wire_decode_message(text, decoded, len + 1);
	wire_encode_message(text, encoded);
	for (const char *p = encoded; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			abort();
	(void)details_retry_ms(data, len);
	free(decoded);
	free(out);
	free(text);
	return 0;
}
