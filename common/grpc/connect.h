/* What the two halves of the Connect protocol share: codes, errors as JSON, the deadline. */
#ifndef REINS_GRPC_CONNECT_H
#define REINS_GRPC_CONNECT_H

#include "common/base/buf.h"
#include "common/base/refusal.h"

/* "invalid_argument", and the HTTP status of a unary call that ends so. */
const char *connect_code(enum status_code code);
const char *connect_http_status(enum status_code code);
/* connect-timeout-ms: 1 to 10 digits. -EINVAL. */
int connect_parse_timeout(const char *text, int64_t *ret_ns) MUST_CHECK;
#define CONNECT_BAD_TIMEOUT "connect-timeout-ms must be 1 to 10 digits"
/* Appends {"code":…,"message":…,"details":[…]}. -ENOMEM. */
#define CONNECT_ERROR_MAX 16384
int connect_error(const struct refusal *r, struct buf *b) MUST_CHECK;
/* Appends a JSON string; what is no UTF-8 becomes U+FFFD. -ENOBUFS, -ENOMEM. */
int connect_string(const char *text, struct buf *b) MUST_CHECK;

#endif
