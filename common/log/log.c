/* The program's log: two process-wide choices (lowest level, format), the count of lines that
 * could not be written, and a line builder on the stack.  Relies on stderr being fd 2. */
#include "common/log/log.h"

#include "common/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define REPEAT_NS (60 * NS_PER_S)

/* Of a line's bytes the message gets at most this many, so that a long one leaves the object its place. */
#define MESSAGE_END 2900
#define OBJECT_END 4000
static const char cut_mark[] = " [cut]";

static enum log_level min_level = LOG_INFO;
static enum log_format line_format = LOG_TEXT;
static unsigned long lost_lines;

static const char *const level_names[] = { "debug", "info", "warn", "error", "silent" };
static const char *const level_labels[] = { "DEBUG", "INFO ", "WARN ", "ERROR" };

struct line {
	char text[LOG_LINE_MAX];
	size_t len;
};

void log_setup(enum log_level min, enum log_format format)
{
	min_level = min;
	line_format = format;
}

bool log_enabled(enum log_level level)
{
	return level >= min_level && level < LOG_SILENT;
}

int log_parse_level(const char *s, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
		if (strcasecmp(s, level_names[i]) == 0) {
			*ret = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* Length of the valid UTF-8 sequence at p, 0 when there is none; *ret_cp its code point. */
static size_t utf8_decode(const unsigned char *p, size_t left, uint32_t *ret_cp)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
	if (n == 0 || n > left)
		return 0;
	uint32_t cp = n == 1 ? p[0] : p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (p[i] & 0x3fu);
	}
	if (cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	*ret_cp = cp;
	return n;
}

static bool must_escape(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 || (cp >= 0x202a && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069);
}

/* Writes the escaped form of the n bytes at p (one code point, or one invalid byte). */
static size_t escape(const unsigned char *p, size_t n, bool valid, uint32_t cp, char out[static 16])
{
	bool json = line_format == LOG_JSON;
	if (!valid)
		return (size_t)snprintf(out, 16, json ? "\\\\x%02x" : "\\x%02x", p[0]);
	if (json && (cp == '"' || cp == '\\'))
		return (size_t)snprintf(out, 16, "\\%c", (char)cp);
	if (cp == '\n' || cp == '\t' || cp == '\r')
		return (size_t)snprintf(out, 16, "\\%c", cp == '\n' ? 'n' : cp == '\t' ? 't' : 'r');
	if (must_escape(cp))
		return (size_t)snprintf(out, 16, json || cp >= 0x100 ? "\\u%04x" : "\\x%02x", (unsigned)cp);
	memcpy(out, p, n);
	return n;
}

/* Adds text escaped, whole code points up to `end`; a cut is marked. */
static void add_text(struct line *l, size_t end, const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	char out[16];
	while (len > 0) {
		uint32_t cp = 0;
		size_t n = utf8_decode(p, len, &cp);
		size_t out_len = escape(p, n, n > 0, cp, out);
		if (n == 0)
			n = 1;
		if (l->len + out_len > end - sizeof(cut_mark)) {
			memcpy(l->text + l->len, cut_mark, sizeof(cut_mark) - 1);
			l->len += sizeof(cut_mark) - 1;
			return;
		}
		memcpy(l->text + l->len, out, out_len);
		l->len += out_len;
		p += n;
		len -= n;
	}
}

/* For text of ours that is known to be short and clean. */
static void add_raw(struct line *l, const char *text)
{
	size_t n = min_sz(strlen(text), sizeof(l->text) - l->len);
	memcpy(l->text + l->len, text, n);
	l->len += n;
}

/* The value of a field runs to the next blank that is followed by "key=". */
static size_t field_len(const char *s)
{
	for (const char *p = strchr(s, ' '); p; p = strchr(p + 1, ' '))
		if (p[1 + strcspn(p + 1, " =")] == '=' && p[1] != '=')
			return (size_t)(p - s);
	return strlen(s);
}

static void add_json_fields(struct line *l, const char *object)
{
	while (*object) {
		size_t len = field_len(object);
		const char *eq = memchr(object, '=', len);
		/* Half a member would break the line: one that may not fit is left out with the rest. */
		if (!eq || l->len + 6 * len + 16 > OBJECT_END)
			return;
		add_raw(l, ",\"");
		add_text(l, OBJECT_END, object, (size_t)(eq - object));
		add_raw(l, "\":\"");
		add_text(l, OBJECT_END, eq + 1, len - (size_t)(eq + 1 - object));
		add_raw(l, "\"");
		object += len + (object[len] == ' ');
	}
}

static void build(struct line *l, enum log_level level, const char *area, const char *object, const char *message,
		  size_t message_len)
{
	char when[CLOCK_TEXT_LEN + 1];
	clock_format_wall(clock_wall_us(), when);
	l->len = 0;
	if (line_format == LOG_JSON) {
		add_raw(l, "{\"time\":\"");
		add_raw(l, when);
		add_raw(l, "\",\"level\":\"");
		add_raw(l, level_names[level]);
		add_raw(l, "\",\"area\":\"");
		add_text(l, 256, area, strlen(area));
		add_raw(l, "\",\"message\":\"");
		add_text(l, MESSAGE_END, message, message_len);
		add_raw(l, "\"");
		if (object)
			add_json_fields(l, object);
		add_raw(l, "}\n");
		return;
	}
	add_raw(l, when);
	add_raw(l, " ");
	add_raw(l, level_labels[level]);
	add_raw(l, " ");
	add_text(l, 256, area, strlen(area));
	add_raw(l, ": ");
	add_text(l, MESSAGE_END, message, message_len);
	if (object && *object) {
		add_raw(l, " ");
		add_text(l, OBJECT_END, object, strlen(object));
	}
	add_raw(l, "\n");
}

static bool write_line(const struct line *l)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	if (poll(&p, 1, 0) <= 0 || (p.revents & (POLLOUT | POLLERR)) != POLLOUT)
		return false;
	ssize_t n;
	do
		n = write(STDERR_FILENO, l->text, l->len);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

void log_line(enum log_level level, const char *area, const char *object, const char *fmt, ...)
{
	int saved_errno = errno;
	if (!log_enabled(level))
		return;
	char message[MESSAGE_END];
	struct line l;
	va_list ap;
	if (lost_lines > 0) {
		int n = snprintf(message, sizeof(message), "%lu lines lost: nobody read stderr", lost_lines);
		build(&l, LOG_WARN, "log", NULL, message, (size_t)n);
		if (write_line(&l))
			lost_lines = 0;
	}
	va_start(ap, fmt);
	errno = saved_errno;
	int n = vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	build(&l, level, area, object, message, n < 0 ? 0 : min_sz((size_t)n, sizeof(message) - 1));
	if (!write_line(&l))
		lost_lines++;
	errno = saved_errno;
}

bool log_limit_pass(struct log_limit *l, int64_t now_mono_ns, int per_s, int64_t *ret_dropped)
{
	if (now_mono_ns < l->next_mono_ns) {
		l->dropped++;
		return false;
	}
	l->next_mono_ns = now_mono_ns + per_s * NS_PER_S;
	*ret_dropped = l->dropped;
	l->dropped = 0;
	return true;
}

bool log_repeats_pass(struct log_repeats *r, int64_t now_mono_ns, int64_t gap_ns, const char *text, int64_t *ret_dropped)
{
	size_t at = 0, len = strnlen(text, sizeof(r->known[0].text) - 1);
	while (at < LOG_REPEATS && (strncmp(r->known[at].text, text, len) != 0 || r->known[at].text[len]))
		at++;
	if (at < LOG_REPEATS && (now_mono_ns < r->known[at].again_mono_ns || now_mono_ns < r->gap_mono_ns)) {
		r->known[at].dropped++;
		return false;
	}
	if (now_mono_ns < r->gap_mono_ns)
		return false;
	if (at == LOG_REPEATS) {
		at = r->next++ % LOG_REPEATS;
		memcpy(r->known[at].text, text, len);
		r->known[at].text[len] = '\0';
		r->known[at].dropped = 0;
	}
	*ret_dropped = r->known[at].dropped;
	r->known[at].dropped = 0;
	r->known[at].again_mono_ns = now_mono_ns + REPEAT_NS;
	r->gap_mono_ns = now_mono_ns + gap_ns;
	return true;
}
