/* The Connect protocol's words.  No state. */
#include "common/grpc/connect.h"

#include <errno.h>
#include <string.h>

#include "common/grpc/details.h"
#include "common/grpc/wire.h"
#include "common/pb/utf8.h"

/* A missing code is a hole here, not elsewhere. */
static const struct {
	const char *name, *http;
} CODES[] = {
	[STATUS_CANCELLED] = { "canceled", "499" },
	[STATUS_UNKNOWN] = { "unknown", "500" },
	[STATUS_INVALID_ARGUMENT] = { "invalid_argument", "400" },
	[STATUS_DEADLINE_EXCEEDED] = { "deadline_exceeded", "504" },
	[STATUS_NOT_FOUND] = { "not_found", "404" },
	[STATUS_ALREADY_EXISTS] = { "already_exists", "409" },
	[STATUS_PERMISSION_DENIED] = { "permission_denied", "403" },
	[STATUS_RESOURCE_EXHAUSTED] = { "resource_exhausted", "429" },
	[STATUS_FAILED_PRECONDITION] = { "failed_precondition", "400" },
	[STATUS_ABORTED] = { "aborted", "409" },
	[STATUS_OUT_OF_RANGE] = { "out_of_range", "400" },
	[STATUS_UNIMPLEMENTED] = { "unimplemented", "501" },
	[STATUS_INTERNAL] = { "internal", "500" },
	[STATUS_UNAVAILABLE] = { "unavailable", "503" },
	[STATUS_DATA_LOSS] = { "data_loss", "500" },
	[STATUS_UNAUTHENTICATED] = { "unauthenticated", "401" },
};

static enum status_code known(enum status_code code)
{
	return (size_t)code < ARRAY_LEN(CODES) && CODES[code].name ? code : STATUS_UNKNOWN;
}

const char *connect_code(enum status_code code) { return CODES[known(code)].name; }
const char *connect_http_status(enum status_code code) { return CODES[known(code)].http; }

int connect_parse_timeout(const char *text, int64_t *ret_ns)
{
	int64_t ms = 0;
	size_t n = 0;
	for (; text[n] >= '0' && text[n] <= '9'; n++) {
		if (n == 10)
			return -EINVAL;
		ms = ms * 10 + (text[n] - '0');
	}
	if (!n || text[n])
		return -EINVAL;
	*ret_ns = max_i64(1, ms) * NS_PER_MS;
	return 0;
}

int connect_string(const char *text, struct buf *b)
{
	const uint8_t *s = (const uint8_t *)text;
	size_t left = strlen(text);
	int rc = buf_add(b, "\"", 1);
	while (left && rc == 0) {
		size_t n = utf8_char_len(s, left);
		if (!n)
			rc = buf_add(b, "\xef\xbf\xbd", 3);
		else if (n == 1 && (*s < 0x20 || *s == 0x7f))
			rc = buf_addf(b, "\\u%04x", *s);
		else if (*s == '"' || *s == '\\')
			rc = buf_addf(b, "\\%c", *s);
		else
			rc = buf_add(b, s, n);
		n = max_sz(n, 1);
		s += n;
		left -= n;
	}
	return rc ? rc : buf_add(b, "\"", 1);
}

static int add_details(const struct refusal *r, struct buf *b)
{
	struct details d;
	char text[WIRE_BASE64_CAP(DETAILS_CAP)];
	int rc = 0;
	details_build(&d, r);
	for (size_t i = 0; i < d.n && rc == 0; i++) {
		wire_base64_encode(d.at[i].data, d.at[i].len, text, sizeof(text));
		rc = buf_addf(b, "%s{\"type\":\"%s\",\"value\":\"%s\"}", i ? "," : ",\"details\":[", d.at[i].type, text);
	}
	return rc || !d.n ? rc : buf_add(b, "]", 1);
}

int connect_error(const struct refusal *r, struct buf *b)
{
	int rc = buf_addf(b, "{\"code\":\"%s\",\"message\":", connect_code(r->code));
	if (rc || (rc = connect_string(r->message, b)) || (rc = add_details(r, b)))
		return rc;
	return buf_add(b, "}", 1);
}
