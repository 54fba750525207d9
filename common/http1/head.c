/* Strict check first, then http-parser, whose word counts for what both know.  No state. */
#include "common/http1/head.h"

#include <errno.h>
#include <http_parser.h>
#include <string.h>
#include <strings.h>

ssize_t http1_head_end(const char *data, size_t len, size_t *scanned)
{
	size_t at = *scanned;
	for (; at < len && at < HTTP1_HEAD_MAX; at++) {
		if (data[at] == '\0')
			return -EBADMSG;
		if (data[at] != '\n') {
			if (at && data[at - 1] == '\r')
				return -EBADMSG;
			continue;
		}
		if (!at || data[at - 1] != '\r')
			return -EBADMSG;
		if (at >= 3 && data[at - 3] == '\r' && data[at - 2] == '\n') {
			*scanned = at;
			return (ssize_t)at + 1;
		}
	}
	*scanned = at;
	return len >= HTTP1_HEAD_MAX ? -EMSGSIZE : 0;
}

/* ---- the strict check ---- */

struct span {
	const char *at;
	size_t len;
};

struct fields {
	struct span length, encoding, expect;
	int n, lengths, encodings, hosts;
};

static bool is_token_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!is_token_char(s.at[i]))
			return false;
	return s.len > 0;
}

static bool is(struct span s, const char *word)
{
	return s.len == strlen(word) && strncasecmp(s.at, word, s.len) == 0;
}

/* Up to the next blank; *rest goes on behind it. */
static struct span cut(struct span *rest, char at)
{
	const char *end = memchr(rest->at, at, rest->len);
	struct span head = { rest->at, end ? (size_t)(end - rest->at) : rest->len };
	size_t skip = min_sz(head.len + 1, rest->len);
	*rest = (struct span){ rest->at + skip, rest->len - skip };
	return head;
}

static int check_request_line(struct span line, struct http1_head *ret, const char **why)
{
	struct span method = cut(&line, ' '), target = cut(&line, ' '), version = line;
	ret->verb = method.at;
	ret->verb_len = method.len;
	*why = "the request line is malformed";
	if (!is_token(method) || !target.len)
		return 400;
	for (size_t i = 0; i < target.len; i++)
		if (target.at[i] < 0x21 || target.at[i] > 0x7e)
			return 400;
	if (version.len != 8 || memcmp(version.at, "HTTP/", 5) != 0 || version.at[6] != '.')
		return 400;
	ret->old = memcmp(version.at + 5, "1.0", 3) == 0;
	if (ret->old || memcmp(version.at + 5, "1.1", 3) == 0)
		return 0;
	*why = "HTTP/1.1 and 1.0 are spoken, and HTTP/2 with prior knowledge";
	return 505;
}

static bool value_ok(struct span v)
{
	for (size_t i = 0; i < v.len; i++) {
		unsigned char c = (unsigned char)v.at[i];
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static struct span trim(struct span s)
{
	while (s.len && (*s.at == ' ' || *s.at == '\t')) {
		s.at++;
		s.len--;
	}
	while (s.len && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t'))
		s.len--;
	return s;
}

static const char *check_field(struct span line, struct fields *f)
{
	const char *colon = memchr(line.at, ':', line.len);
	if (*line.at == ' ' || *line.at == '\t')
		return "a header field is folded";
	if (!colon)
		return "a header field has no colon";
	struct span name = cut(&line, ':'), value = trim(line);
	if (!is_token(name))
		return "the name of a header field is malformed";
	if (!value_ok(value))
		return "a header field holds a control character";
	if (++f->n > HTTP1_FIELDS_MAX)
		return "too many header fields";
	if (is(name, "host")) {
		f->hosts++;
	} else if (is(name, "content-length")) {
		f->lengths++;
		f->length = value;
	} else if (is(name, "transfer-encoding")) {
		f->encodings++;
		f->encoding = value;
	} else if (is(name, "expect")) {
		f->expect = value;
	}
	return NULL;
}

static bool is_digits(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.at[i] < '0' || s.at[i] > '9')
			return false;
	return s.len > 0 && s.len <= 18;
}

/* Where two parsers could differ about where the request ends. */
static int check_framing(const struct fields *f, bool old, const char **why)
{
	*why = "Host is missing, or there more than once";
	if (f->hosts > 1 || (!old && !f->hosts))
		return 400;
	*why = "Content-Length and Transfer-Encoding together";
	if (f->lengths && f->encodings)
		return 400;
	*why = "Content-Length is there more than once, or no number";
	if (f->lengths > 1 || (f->lengths && !is_digits(f->length)))
		return 400;
	*why = "Transfer-Encoding is there more than once, or in HTTP/1.0";
	if (f->encodings > 1 || (f->encodings && old))
		return 400;
	*why = "of the transfer codings only chunked is known";
	if (f->encodings && !is(f->encoding, "chunked"))
		return 501;
	*why = "of expectations only 100-continue is known";
	if (f->expect.at && !is(f->expect, "100-continue"))
		return 417;
	return 0;
}

static struct span next_line(struct span *rest)
{
	struct span line = cut(rest, '\n');
	line.len--; /* the CR: http1_head_end has seen to it */
	return line;
}

/* ---- the parser ---- */

struct parsed {
	struct span target;
	bool whole;
};

static int on_url(http_parser *p, const char *at, size_t len)
{
	struct parsed *d = p->data;
	d->target = (struct span){ at, len };
	return 0;
}

static int on_headers(http_parser *p)
{
	((struct parsed *)p->data)->whole = true;
	return 0;
}

static int path_of(struct span target, bool connect, struct http1_head *ret, const char **why)
{
	struct http_parser_url u;
	*why = "the request's target is malformed";
	if (target.len == 1 && *target.at == '*') {
		ret->path = target.at;
		ret->path_len = ret->target_len = 1;
		return 0;
	}
	http_parser_url_init(&u);
	if (http_parser_parse_url(target.at, target.len, connect, &u) != 0)
		return 400;
	ret->path = "/";
	ret->path_len = ret->target_len = 1;
	if (u.field_set & 1u << UF_PATH) {
		ret->path = target.at + u.field_data[UF_PATH].off;
		ret->path_len = ret->target_len = u.field_data[UF_PATH].len;
		if (u.field_set & 1u << UF_QUERY)
			ret->target_len = (size_t)u.field_data[UF_QUERY].off + u.field_data[UF_QUERY].len - u.field_data[UF_PATH].off;
	}
	return 0;
}

static int parse(const char *data, size_t len, struct http1_head *ret, const char **why)
{
	static const http_parser_settings settings = { .on_url = on_url, .on_headers_complete = on_headers };
	struct parsed d = { .whole = false };
	http_parser p;
	http_parser_init(&p, HTTP_REQUEST);
	p.data = &d;
	size_t n = http_parser_execute(&p, &settings, data, len);
	enum http_errno err = HTTP_PARSER_ERRNO(&p);
	if (err == HPE_INVALID_METHOD) {
		*why = "no such method";
		return 501;
	}
	*why = "the request is malformed";
	if (err != HPE_OK || n != len || !d.whole)
		return 400;
	ret->method = p.method == HTTP_GET ? HTTP1_GET : p.method == HTTP_HEAD ? HTTP1_HEAD : HTTP1_OTHER;
	ret->keep_alive = http_should_keep_alive(&p);
	return path_of(d.target, p.method == HTTP_CONNECT, ret, why);
}

int http1_head_parse(const char *data, size_t len, struct http1_head *ret, const char **ret_why)
{
	struct span rest = { data, len - 2 }; /* without the blank line */
	struct http1_head h = { .path_len = 0 };
	struct fields f = { .n = 0 };
	int status = check_request_line(next_line(&rest), &h, ret_why);
	if (status)
		return status;
	while (rest.len) {
		*ret_why = check_field(next_line(&rest), &f);
		if (*ret_why)
			return 400;
	}
	if ((status = check_framing(&f, h.old, ret_why)) || (status = parse(data, len, &h, ret_why)))
		return status;
	for (size_t i = 0; i < f.length.len; i++)
		h.length = h.length * 10 + (uint64_t)(f.length.at[i] - '0'); /* 18 digits at most */
	h.chunked = f.encodings;
	h.has_body = h.length || h.chunked;
	h.expects = f.expect.at && !h.old;
	*ret = h;
	return 0;
}

int http1_head_fields(const char *data, size_t len, struct buf *ret)
{
	struct span rest = { data, len - 2 };
	(void)next_line(&rest);
	while (rest.len) {
		struct span line = next_line(&rest), name = cut(&line, ':'), value = trim(line);
		uint8_t *at = buf_reserve(ret, name.len + value.len + 2);
		if (!at)
			return name.len + value.len + 2 > buf_room(ret) ? -ENOBUFS : -ENOMEM;
		for (size_t i = 0; i < name.len; i++)
			at[i] = (uint8_t)(name.at[i] >= 'A' && name.at[i] <= 'Z' ? name.at[i] + ('a' - 'A') : name.at[i]);
		at[name.len] = 0;
		if (value.len)
			memcpy(at + name.len + 1, value.at, value.len);
		at[name.len + 1 + value.len] = 0;
		buf_commit(ret, name.len + value.len + 2);
	}
	return 0;
}

size_t http1_fields_find(const struct buf *fields, const char *name, const char **ret_value)
{
	size_t count = 0;
	if (!buf_len(fields))
		return 0; /* there may be no memory at all */
	const char *p = (const char *)buf_head(fields), *end = p + buf_len(fields);
	while (p < end) {
		const char *value = p + strlen(p) + 1;
		if (strcmp(p, name) == 0) {
			*ret_value = value;
			count++;
		}
		p = value + strlen(value) + 1;
	}
	return count;
}
