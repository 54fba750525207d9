/* The head of an HTTP/1.1 request: request line and header fields.  No I/O: bytes in, a head or a status out.
 *
 * A strict check stands before http-parser, which takes more than a server next to others may: what two parsers could
 * read in two ways is refused (RFC 9112, 11.2).  Refused are: bare CR and LF, NUL and other control characters, folded
 * lines, blanks around a field's name or before its colon, Content-Length more than once or beside Transfer-Encoding or
 * not of digits alone, Transfer-Encoding in HTTP/1.0, Host missing in HTTP/1.1 or there twice. */
#ifndef REINS_HTTP1_HEAD_H
#define REINS_HTTP1_HEAD_H

#include <sys/types.h>

#include "common/base/buf.h"

#define HTTP1_HEAD_MAX ((size_t)16 << 10)
#define HTTP1_FIELDS_MAX 100

enum http1_method { HTTP1_GET = 1, HTTP1_HEAD = 2, HTTP1_OTHER = 4 };

struct http1_head {
	enum http1_method method;
	const char *verb; /* in the bytes that were parsed, as the next ones */
	size_t verb_len;
	const char *path; /* as it came, not decoded. "/…", or "*" */
	size_t path_len;
	size_t target_len; /* of the path and the query behind it */
	bool old;          /* HTTP/1.0 */
	bool keep_alive;   /* the peer wants, or its version says, that the connection goes on */
	bool has_body;     /* bytes follow that belong to the request: */
	bool chunked;
	uint64_t length;   /* of them, unless chunked */
	bool expects;      /* 100-continue, before it sends them */
};

/* Looks for the end of a head in what has come; *scanned (0 at first) says how much of it was looked at before.
 * > 0: the head's length, its blank line included.  0: not whole yet.  -EBADMSG: it can't become one.  -EMSGSIZE: no
 * end within HTTP1_HEAD_MAX bytes. */
ssize_t http1_head_end(const char *data, size_t len, size_t *scanned) MUST_CHECK;

/* A whole head.  0, or the status to refuse it with (400, 417, 501, 505) and why, for the answer and a log line; the
 * connection can't go on then. */
int http1_head_parse(const char *data, size_t len, struct http1_head *ret, const char **ret_why) MUST_CHECK;

/* The fields of a head that was parsed, each as NAME NUL VALUE NUL with the name in lower case. -ENOBUFS, -ENOMEM. */
int http1_head_fields(const char *data, size_t len, struct buf *ret) MUST_CHECK;
/* How many fields have that name; *ret_value: the last one's. */
size_t http1_fields_find(const struct buf *fields, const char *name, const char **ret_value);

#endif
