/* Answers that are whole at once, from memory. */
#include <stdio.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/http1/impl.h"

#define ANSWER_MAX ((size_t)2048)
#define FIELDS_BYTES_MAX (2 * HTTP1_HEAD_MAX)

const char *http1_reason(int status)
{
	static const struct {
		int status;
		const char *words;
	} rows[] = {
		{ 200, "OK" }, { 204, "No Content" }, { 400, "Bad Request" }, { 401, "Unauthorized" }, { 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" },
		{ 408, "Request Timeout" }, { 409, "Conflict" }, { 413, "Content Too Large" }, { 415, "Unsupported Media Type" }, { 417, "Expectation Failed" },
		{ 429, "Too Many Requests" }, { 431, "Request Header Fields Too Large" }, { 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 499, "Client Closed Request" }, { 503, "Service Unavailable" }, { 504, "Gateway Timeout" }, { 505, "HTTP Version Not Supported" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].words;
	return "";
}

void http1_format_date(char *ret, size_t cap)
{
	static const char days[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char months[][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	time_t now = (time_t)(clock_wall_us() / 1000000);
	struct tm t;
	*ret = '\0';
	/* strftime would use the locale's names. */
	if (gmtime_r(&now, &t))
		snprintf(ret, cap, "date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday,
			 months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

/* `more`: "" or a whole field. */
static void answer(struct http1_conn *c, const struct http1_reply *r, const char *more, bool head)
{
	char date[64];
	size_t len = buf_len(&r->body);
	http1_format_date(date, sizeof(date));
	/* Room for both was made sure of by `out`'s maximum. */
	int rc = buf_addf(&c->out,
			  "HTTP/1.1 %d %s\r\n%sserver: reins/" REINS_VERSION "\r\ncontent-type: %s\r\ncontent-length: %zu\r\n"
			  "cache-control: no-store\r\n%s%s\r\n",
			  r->status, http1_reason(r->status), date, r->type, len, more, c->closing ? "connection: close\r\n" : "");
	if (rc == 0 && !head)
		rc = buf_add(&c->out, buf_head(&r->body), len);
	if (rc) { /* no memory: half an answer must not be taken for one */
		buf_clear(&c->out);
		c->closing = true;
	}
}

void http1_answer_text(struct http1_conn *c, int status, const char *allow, const char *text, bool head)
{
	struct http1_reply r = { .status = status, .type = "text/plain; charset=utf-8" };
	buf_init(&r.body, ANSWER_MAX);
	if (buf_addf(&r.body, "%s\n", text) == 0)
		answer(c, &r, allow, head);
	else
		c->closing = true;
	buf_done(&r.body);
}

void http1_refuse(struct http1_conn *c, int status, const char *why)
{
	c->srv->stats.refused_requests++;
	c->closing = true;
	http1_conn_log(c, why);
	http1_answer_text(c, status, "", why, false);
}

void http1_answer_route(struct http1_conn *c, const struct http1_route *route, size_t head_len, bool head)
{
	struct http1_reply r;
	struct buf fields;
	struct http1_asker asker = { .peer = stream_peer(c->stream) };
	const char *value;
	char challenge[64] = "";
	buf_init(&fields, FIELDS_BYTES_MAX);
	if (http1_head_fields((const char *)buf_head(&c->in), head_len, &fields)) {
		buf_done(&fields);
		http1_refuse(c, 431, "the request's headers are too large");
		return;
	}
	asker.n_authorization = http1_fields_find(&fields, "authorization", &value);
	if (asker.n_authorization == 1)
		asker.authorization = value;
	if (http1_fields_find(&fields, "host", &value) == 1)
		asker.host = value;
	http1_server_ask(c->srv, route, &asker, &r);
	if (r.challenge)
		snprintf(challenge, sizeof(challenge), "www-authenticate: %s\r\n", r.challenge);
	answer(c, &r, challenge, head);
	buf_done(&r.body);
	buf_done(&fields);
}
