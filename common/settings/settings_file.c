/* The --config file: read whole, bounded, then line by line `name = value`. */
#include "common/settings/settings_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX ((size_t)1 << 20) /* a wrong path (a disk, a log) must not be read into memory */

static int read_all(struct settings_run *run, char **ret_text, size_t *ret_len)
{
	int fd = open(run->config_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return settings_fail(run, "--config %s: %s", run->config_path, strerror(errno));
	char *text = xcalloc(FILE_MAX + 2, 1);
	size_t len = 0;
	ssize_t n = 0;
	while (len <= FILE_MAX) {
		n = read(fd, text + len, FILE_MAX + 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	int err = n < 0 ? errno : 0;
	close(fd);
	if (err || len > FILE_MAX) {
		free(text);
		return settings_fail(run, "--config %s: %s", run->config_path, err ? strerror(err) : "larger than 1 MiB");
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *trim(char *s)
{
	while (blank(*s))
		s++;
	size_t len = strlen(s);
	while (len > 0 && blank(s[len - 1]))
		len--;
	s[len] = '\0';
	return s;
}

static int read_line(struct settings_run *run, char *line, int number)
{
	line = trim(line);
	if (!*line || *line == '#')
		return 0;
	char *eq = strchr(line, '=');
	if (!eq) /* without the text: it may be half of a secret */
		return settings_fail(run, "%s:%d: not of the form `name = value`", run->config_path, number);
	*eq = '\0';
	char *name = trim(line), *value = trim(eq + 1);
	const struct setting *row = settings_row(run->prog, name, strlen(name));
	if (!row) {
		const char *near = settings_nearest(run->prog, name, strlen(name));
		return settings_fail(run, "%s:%d: unknown setting \"%.100s\"%s%s%s", run->config_path, number, name,
				     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	}
	return settings_give(run, row, SOURCE_FILE, value, number);
}

int settings_read_file(struct settings_run *run)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	if (read_all(run, &text, &len) < 0)
		return -1;
	int number = 0;
	for (char *line = text, *next; line < text + len; line = next) {
		char *end = memchr(line, '\n', (size_t)(text + len - line));
		next = end ? end + 1 : text + len;
		number++;
		if (memchr(line, '\0', (size_t)((end ? end : text + len) - line)))
			return settings_fail(run, "%s:%d: holds a NUL byte", run->config_path, number);
		if (end)
			*end = '\0';
		if (read_line(run, line, number) < 0)
			return -1;
	}
	return 0;
}
