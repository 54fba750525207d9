/* Owns the line that has not ended yet. */
#include "client/dev_lines.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

void dev_lines_init(struct dev_lines *l, const char *name, int color)
{
	l->len = 0;
	if (color)
		snprintf(l->prefix, sizeof l->prefix, "\033[%dm%.40s |\033[0m ", color, name);
	else
		snprintf(l->prefix, sizeof l->prefix, "%.40s | ", name);
}

static void emit(struct dev_lines *l, void (*on_line)(void *arg, const char *line, size_t len), void *arg)
{
	char line[sizeof l->prefix + DEV_LINE_MAX + 1];
	size_t n = strlen(l->prefix);
	memcpy(line, l->prefix, n);
	memcpy(line + n, l->text, l->len);
	n += l->len;
	line[n++] = '\n';
	l->len = 0;
	on_line(arg, line, n);
}

void dev_lines_add(struct dev_lines *l, const char *data, size_t len, void (*on_line)(void *arg, const char *line, size_t len),
		   void *arg)
{
	while (len) {
		const char *newline = memchr(data, '\n', len);
		size_t n = newline ? (size_t)(newline - data) : len;
		size_t taken = min_sz(n, DEV_LINE_MAX - l->len);
		memcpy(l->text + l->len, data, taken);
		l->len += taken;
		data += taken;
		len -= taken;
		if (newline && taken == n) {
			data++;
			len--;
			emit(l, on_line, arg);
		} else if (len) {
			emit(l, on_line, arg);
		}
	}
}

void dev_lines_end(struct dev_lines *l, void (*on_line)(void *arg, const char *line, size_t len), void *arg)
{
	if (l->len)
		emit(l, on_line, arg);
}

void dev_lines_error(const struct dev_lines *l, const char *line, size_t len, char *ret_text, size_t cap)
{
	static const char level[] = "Z ERROR ";
	size_t at = strlen(l->prefix) + CLOCK_TEXT_LEN - 1, head = at + sizeof level - 1;
	if (len > head && memcmp(line + at, level, sizeof level - 1) == 0)
		snprintf(ret_text, cap, "%.*s", (int)(len - head - 1), line + head);
}
