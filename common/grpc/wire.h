/* The small encodings of gRPC's headers and trailers. */
#ifndef REINS_GRPC_WIRE_H
#define REINS_GRPC_WIRE_H

#include "common/base/base.h"
#include "common/grpc/grpc.h"

/* grpc-timeout: one to eight digits and one of H M S m u n. Below 1 ms, 0 too, it is 1 ms; too large is clamped to
 * a hundred years. -EINVAL for anything else. */
int wire_parse_timeout(const char *text, int64_t *ret_ns) MUST_CHECK;
/* The largest unit that holds it in eight digits without losing more than a thousandth; at least "1n". */
#define WIRE_TIMEOUT_CAP 16
void wire_format_timeout(int64_t ns, char ret_text[static WIRE_TIMEOUT_CAP]);

/* grpc-message: percent-encoding of UTF-8, cut at a code point when the result would pass WIRE_MESSAGE_CAP.
 * Returns the length; NUL-terminated. */
#define WIRE_MESSAGE_CAP 1024
size_t wire_encode_message(const char *text, char ret_text[static WIRE_MESSAGE_CAP + 1]);
/* Into at most cap - 1 bytes and a NUL; what is no percent-encoding stays as it is, control characters and bad
 * UTF-8 become '?'. */
void wire_decode_message(const char *text, char *ret_text, size_t cap);

/* Base64 without padding, NUL-terminated; cap must be at least WIRE_BASE64_CAP(len). */
#define WIRE_BASE64_CAP(n) (((n) + 2) / 3 * 4 + 1)
size_t wire_base64_encode(const uint8_t *data, size_t len, char *ret_text, size_t cap);
/* With or without padding. -EINVAL: bad characters or length; -ENOBUFS: more than cap. */
int wire_base64_decode(const char *text, size_t len, uint8_t *ret_data, size_t cap, size_t *ret_len) MUST_CHECK;

/* What a client makes of a response without grpc-status, and of a reset stream. */
enum status_code wire_status_of_http(int http_status);
enum status_code wire_status_of_reset(uint32_t h2_code);

#endif
