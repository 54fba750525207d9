/* Owns the rows of a table until they are printed.  Everything goes out by write(2), not stdio: what a program
 * printed is passed on byte by byte, and an error shows at once. */
#include "client/output.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/pb/json_out.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"

#define LINE_MAX_BYTES (16 * 1024)
#define JSON_MAX_BYTES ((size_t)64 << 20) /* a 4 MiB message of which every byte is written as \u00XX */
#define CELL_MAX_BYTES 1024
#define US_PER_S INT64_C(1000000)

NORETURN static void give_up(int fd, int err)
{
	if (err == EPIPE) {
		sigset_t set;
		signal(SIGPIPE, SIG_DFL);
		sigemptyset(&set);
		sigaddset(&set, SIGPIPE);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		raise(SIGPIPE);
	}
	if (fd != STDERR_FILENO)
		fprintf(stderr, "reins: cannot write the output: %s\n", strerror(err));
	_exit(1);
}

void out_write(int fd, const void *data, size_t len)
{
	const char *p = data;
	while (len) {
		ssize_t n = write(fd, p, len);
		if (n >= 0) {
			p += n;
			len -= (size_t)n;
		} else if (errno == EAGAIN) {
			struct pollfd ready = { .fd = fd, .events = POLLOUT };
			(void)poll(&ready, 1, -1);
		} else if (errno != EINTR) {
			give_up(fd, errno);
		}
	}
}

void out_line(const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, ap);
	va_end(ap);
	size_t len = n < 0 ? 0 : min_sz((size_t)n, sizeof line - 2);
	line[len] = '\n';
	out_write(STDOUT_FILENO, line, len + 1);
}

void out_json(const void *message, bool compact)
{
	struct buf b;
	buf_init(&b, JSON_MAX_BYTES);
	int err = pb_json_write(message, PB_JSON_EMIT_DEFAULTS | (compact ? 0U : (unsigned)PB_JSON_PRETTY), &b);
	if (!err)
		err = buf_add(&b, "\n", 1);
	if (err)
		fprintf(stderr, "reins: the answer cannot be written as JSON: %s\n", strerror(-err));
	else
		out_write(STDOUT_FILENO, buf_head(&b), buf_len(&b));
	buf_done(&b);
}

/* ---- times ---- */

void out_format_span(int64_t us, char *ret_text, size_t cap)
{
	int64_t s = us > 0 ? us / US_PER_S : 0;
	if (us > 0 && us < US_PER_S)
		snprintf(ret_text, cap, "%dms", (int)(us / 1000));
	else if (s < 60)
		snprintf(ret_text, cap, "%ds", (int)s);
	else if (s < 3600)
		snprintf(ret_text, cap, "%dm%02ds", (int)(s / 60), (int)(s % 60));
	else if (s < 48 * 3600)
		snprintf(ret_text, cap, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
	else
		snprintf(ret_text, cap, "%lldd", (long long)(s / 86400));
}

void out_format_age(const Google__Protobuf__Timestamp *t, int64_t now_wall_us, char *ret_text, size_t cap)
{
	int64_t us;
	ret_text[0] = 0;
	if (t && !pb_timestamp_us(t, &us))
		out_format_span(now_wall_us - us, ret_text, cap);
}

void out_format_instant(const Google__Protobuf__Timestamp *t, char *ret_text, size_t cap)
{
	int64_t us;
	struct tm tm;
	char day[64];
	ret_text[0] = 0;
	if (!t || pb_timestamp_us(t, &us))
		return;
	time_t s = (time_t)(us >= 0 ? us / US_PER_S : -((US_PER_S - 1 - us) / US_PER_S));
	if (gmtime_r(&s, &tm) && strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm))
		snprintf(ret_text, cap, "%s.%03dZ", day, (int)((us - s * US_PER_S) / 1000));
}

void out_format_time(const Google__Protobuf__Timestamp *t, int64_t now_wall_us, char *ret_text, size_t cap)
{
	int64_t us;
	struct tm tm;
	char day[64], span[32];
	ret_text[0] = 0;
	if (!t || pb_timestamp_us(t, &us))
		return;
	time_t s = (time_t)(us / US_PER_S);
	if (!gmtime_r(&s, &tm) || !strftime(day, sizeof day, "%Y-%m-%d %H:%M:%SZ", &tm))
		return;
	bool past = us <= now_wall_us;
	out_format_span(past ? now_wall_us - us : us - now_wall_us, span, sizeof span);
	snprintf(ret_text, cap, past ? "%s (%s ago)" : "%s (in %s)", day, span);
}

void out_fact(const char *name, const char *text)
{
	char clean[4096];
	if (!text || !*text)
		return;
	out_clean(text, 0, clean, sizeof clean);
	out_line("%-10s %s", name, clean);
}

void out_fact_time(const char *name, const Google__Protobuf__Timestamp *t, int64_t now_wall_us)
{
	char text[96];
	out_format_time(t, now_wall_us, text, sizeof text);
	out_fact(name, text);
}

/* ---- text ---- */

/* Bytes of the control character at s, 0 if it is none (C0, DEL, C1, and marks that turn the direction of text). */
static size_t control_len(const char *s)
{
	const unsigned char *u = (const unsigned char *)s;
	if (u[0] < 0x20 || u[0] == 0x7f)
		return 1;
	if (u[0] == 0xc2 && u[1] < 0xa0)
		return 2;
	if (u[0] == 0xe2 && ((u[1] == 0x80 && u[2] >= 0xaa && u[2] <= 0xae) || (u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9)))
		return 3;
	return 0;
}

void out_clean(const char *s, size_t columns, char *ret_text, size_t cap)
{
	size_t at = 0, characters = 0, before_last = 0;
	_cleanup_free_ char *valid = xcalloc(cap, 1);
	utf8_make_valid(s, strlen(s), valid, cap, NULL);
	for (const char *p = valid; *p; characters++) {
		size_t n = control_len(p), len = n ? 1 : utf8_char_len((const uint8_t *)p, strlen(p));
		if (columns && characters == columns) {
			at = before_last;
			if (cap - at > 3) {
				memcpy(ret_text + at, "…", 3);
				at += 3;
			}
			break;
		}
		before_last = at;
		memcpy(ret_text + at, n ? " " : p, len);
		at += len;
		p += n ? n : len;
	}
	ret_text[at] = 0;
}

/* ---- tables ---- */

struct table {
	const char *const *heads; /* the caller's, lives as long */
	size_t n_columns;
	size_t *widths;
	char **cells;
	size_t n_cells, cap;
	bool heads_done;
};

static size_t text_columns(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

struct table *table_new(const char *const *heads, size_t n_columns)
{
	struct table *t = xcalloc(1, sizeof *t);
	t->heads = heads;
	t->n_columns = n_columns;
	t->widths = xcalloc(n_columns, sizeof *t->widths);
	for (size_t i = 0; i < n_columns; i++)
		t->widths[i] = text_columns(heads[i]);
	return t;
}

void table_cell(struct table *t, const char *text)
{
	char clean[CELL_MAX_BYTES];
	if (t->n_cells == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 256;
		char **cells = xcalloc(cap, sizeof *cells);
		if (t->n_cells)
			memcpy(cells, t->cells, t->n_cells * sizeof *cells);
		free(t->cells);
		t->cells = cells;
		t->cap = cap;
	}
	out_clean(*text ? text : "-", 0, clean, sizeof clean);
	size_t column = t->n_cells % t->n_columns;
	t->widths[column] = max_sz(t->widths[column], text_columns(clean));
	t->cells[t->n_cells++] = xstrdup(clean);
}

void table_cellf(struct table *t, const char *fmt, ...)
{
	char text[CELL_MAX_BYTES];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	table_cell(t, text);
}

static void put_row(const struct table *t, FILE *f, char *const *cells, const char *const *heads)
{
	for (size_t i = 0; i < t->n_columns; i++) {
		const char *text = cells ? cells[i] : heads[i];
		fputs(text, f);
		if (i + 1 < t->n_columns)
			fprintf(f, "%*s", (int)(t->widths[i] - text_columns(text) + 2), "");
	}
	fputc('\n', f);
}

char *table_text(struct table *t)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	if (!f)
		give_up(STDOUT_FILENO, ENOMEM);
	if (!t->heads_done)
		put_row(t, f, NULL, t->heads);
	t->heads_done = true;
	for (size_t i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns)
		put_row(t, f, t->cells + i, NULL);
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	t->n_cells = 0;
	if (fclose(f))
		give_up(STDOUT_FILENO, ENOMEM);
	return text;
}

void table_print(struct table *t)
{
	_cleanup_free_ char *text = table_text(t);
	out_write(STDOUT_FILENO, text, strlen(text));
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t->widths);
	free(t);
}
