/* Reads a query in a copy, in place: what is unescaped only gets shorter. */
#include "common/grpc/query.h"

#include <string.h>

#include "common/base/num.h"
#include "common/grpc/gzip.h"
#include "common/grpc/wire.h"

struct parameters {
	const char *message, *base64, *encoding, *compression, *connect;
	size_t message_len;
};

/* In place: it only gets shorter. A '%' that begins nothing: false. */
static bool unescape(char *s, size_t *len)
{
	size_t out = 0;
	for (size_t i = 0; i < *len; i++) {
		char c = s[i] == '+' ? ' ' : s[i];
		if (c == '%') {
			int hi = i + 2 < *len ? num_hex_digit(s[i + 1]) : -1, lo = i + 2 < *len ? num_hex_digit(s[i + 2]) : -1;
			if (hi < 0 || lo < 0)
				return false;
			c = (char)(hi << 4 | lo);
			i += 2;
		}
		s[out++] = c;
	}
	*len = out;
	s[out] = 0;
	return true;
}

static const char *word(char *value, size_t len) { return strlen(value) == len ? value : ""; }

static bool split(char *s, struct parameters *p)
{
	for (char *next; s; s = next) {
		next = strchr(s, '&');
		if (next)
			*next++ = 0;
		char *value = strchr(s, '=');
		if (!value)
			continue;
		*value++ = 0;
		size_t len = strlen(value);
		if (!unescape(value, &len))
			return false;
		if (strcmp(s, "message") == 0) {
			p->message = value;
			p->message_len = len;
		} else if (strcmp(s, "base64") == 0) {
			p->base64 = word(value, len);
		} else if (strcmp(s, "encoding") == 0) {
			p->encoding = word(value, len);
		} else if (strcmp(s, "compression") == 0) {
			p->compression = word(value, len);
		} else if (strcmp(s, "connect") == 0) {
			p->connect = word(value, len);
		}
	}
	return true;
}

/* Either alphabet, padded or not. */
static int add_base64(const char *text, size_t len, struct buf *b)
{
	char *copy = malloc(len + 1);
	uint8_t *at = copy ? buf_reserve(b, len + 1) : NULL;
	size_t n = 0;
	int rc = -1;
	for (size_t i = 0; at && i < len; i++)
		copy[i] = (char)(text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i]);
	if (at && wire_base64_decode(copy, len, at, len + 1, &n) == 0) {
		buf_commit(b, n);
		rc = 0;
	}
	free(copy);
	return rc;
}

static int read_parameters(const struct parameters *p, struct query *ret, struct buf *b, struct refusal *r)
{
	ret->dialect = !p->encoding ? NULL : strcmp(p->encoding, "json") == 0 ? &dialect_connect_json
				     : strcmp(p->encoding, "proto") == 0 ? &dialect_connect_proto : NULL;
	if (!ret->dialect)
		return refuse(r, STATUS_INVALID_ARGUMENT, NULL, "encoding must be json or proto");
	if (p->connect && strcmp(p->connect, "v1") != 0)
		return refuse(r, STATUS_INVALID_ARGUMENT, NULL, "connect must be v1");
	ret->gzip = p->compression && strcmp(p->compression, "gzip") == 0;
	if (p->compression && !ret->gzip && *p->compression && strcmp(p->compression, "identity") != 0)
		return refuse(r, STATUS_UNIMPLEMENTED, NULL, "unknown compression; " GZIP_ENCODINGS " are known");
	if (!p->message)
		return refuse(r, STATUS_INVALID_ARGUMENT, NULL, "message is missing");
	bool base64 = p->base64 && strcmp(p->base64, "1") == 0;
	if (base64 ? add_base64(p->message, p->message_len, b) : p->message_len && buf_add(b, p->message, p->message_len))
		return refuse(r, STATUS_INVALID_ARGUMENT, NULL, "message is no base64");
	return 0;
}

int query_parse(const char *query, struct query *ret, struct buf *ret_message, struct refusal *ret_refusal)
{
	struct parameters p = { .message = NULL };
	char *copy = strdup(query);
	ret->dialect = &dialect_connect_json;
	if (!copy)
		return refuse_no_memory(ret_refusal, "out of memory");
	int rc = split(copy, &p) ? read_parameters(&p, ret, ret_message, ret_refusal)
				 : refuse(ret_refusal, STATUS_INVALID_ARGUMENT, NULL, "the query is malformed");
	free(copy);
	return rc;
}
