/* A table of fields drives writing and reading alike. */
#include "worker/attempt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/num.h"

#define VERSION 1
#define HEAD "reins-attempt "

enum field_type { FIELD_TEXT, FIELD_INT32, FIELD_INT64, FIELD_BOOL, FIELD_LIST };

#define AT(f) offsetof(struct attempt_record, f)
static const struct field {
	const char *name;
	enum field_type type;
	size_t at, more; /* `more`: the size of a text; where a list counts */
	int64_t min;
} fields[] = {
	{"task", FIELD_TEXT, AT(task_id), sizeof(((struct attempt_record *)0)->task_id), 0},
	{"number", FIELD_INT32, AT(number), 0, 1},
	{"exclusive", FIELD_BOOL, AT(exclusive), 0, 0},
	{"lease-ns", FIELD_INT64, AT(lease_ns), 0, 0},
	{"timeout-ns", FIELD_INT64, AT(timeout_ns), 0, 0},
	{"kill-grace-ns", FIELD_INT64, AT(kill_grace_ns), 0, 0},
	{"store", FIELD_TEXT, AT(store_id), sizeof(((struct attempt_record *)0)->store_id), 0},
	{"device", FIELD_LIST, AT(devices), AT(n_devices), 0},
	{"holds", FIELD_LIST, AT(holds), AT(n_holds), 0},
};

#define FIELD_PTR(r, offset, type) ((type *)(void *)((char *)(r) + (offset)))
#define FIELD_OF(r, offset, type) (*(type const *)(const void *)((const char *)(r) + (offset)))

void attempt_record_done(struct attempt_record *r)
{
	for (size_t i = 0; i < r->n_devices; i++)
		free(r->devices[i]);
	free(r->devices);
	for (size_t i = 0; i < r->n_holds; i++)
		free(r->holds[i]);
	free(r->holds);
	*r = (struct attempt_record){0};
}

/* ---- writing ---- */

static int add_line(struct buf *b, const char *name, const char *value)
{
	int r = buf_addf(b, "%s = ", name);
	for (const char *p = value; *p && r == 0; p++) {
		unsigned char c = (unsigned char)*p;
		r = c < 0x20 || c == 0x7f || c == '%' ? buf_addf(b, "%%%02X", c) : buf_add(b, p, 1);
	}
	return r == 0 ? buf_add(b, "\n", 1) : r;
}

static int add_field(struct buf *b, const struct attempt_record *r, const struct field *f)
{
	char number[32];
	int err = 0;
	switch (f->type) {
	case FIELD_TEXT:
		return add_line(b, f->name, (const char *)r + f->at);
	case FIELD_LIST:
		for (size_t i = 0; i < FIELD_OF(r, f->more, size_t) && err == 0; i++)
			err = add_line(b, f->name, FIELD_OF(r, f->at, char **)[i]);
		return err;
	case FIELD_INT32:
		snprintf(number, sizeof(number), "%d", (int)FIELD_OF(r, f->at, int32_t));
		break;
	case FIELD_INT64:
		snprintf(number, sizeof(number), "%" PRId64, FIELD_OF(r, f->at, int64_t));
		break;
	case FIELD_BOOL:
		snprintf(number, sizeof(number), "%d", FIELD_OF(r, f->at, bool) ? 1 : 0);
		break;
	}
	return add_line(b, f->name, number);
}

int attempt_file_write(int dir_fd, const struct attempt_record *rec)
{
	struct buf b;
	buf_init(&b, ATTEMPT_FILE_MAX);
	int r = buf_addf(&b, HEAD "%d\n", VERSION);
	for (size_t i = 0; i < ARRAY_LEN(fields) && r == 0; i++)
		r = add_field(&b, rec, &fields[i]);
	if (r == 0)
		r = buf_addf(&b, "end\n");
	int fd = r < 0 ? -1 : openat(dir_fd, ATTEMPT_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r == 0 && fd < 0)
		r = -errno;
	while (r == 0 && buf_len(&b)) {
		ssize_t n = write(fd, buf_head(&b), buf_len(&b));
		if (n > 0)
			buf_consume(&b, (size_t)n);
		else if (n == 0 || errno != EINTR)
			r = n == 0 ? -ENOSPC : -errno;
	}
	if (fd >= 0)
		close(fd);
	buf_done(&b);
	return r;
}

/* ---- reading ---- */

/* In place; false for an escape that is none. */
static bool unescape(char *s)
{
	char *out = s;
	for (; *s; s++) {
		if (*s != '%') {
			*out++ = *s;
			continue;
		}
		int high = num_hex_digit(s[1]), low = high < 0 ? -1 : num_hex_digit(s[2]);
		if (low < 0 || !(high | low))
			return false;
		*out++ = (char)(high << 4 | low);
		s += 2;
	}
	*out = '\0';
	return true;
}

static int add_to_list(struct attempt_record *r, const struct field *f, const char *value)
{
	char ***at = FIELD_PTR(r, f->at, char **);
	size_t *n = FIELD_PTR(r, f->more, size_t);
	if (*n == ATTEMPT_FILE_LIST_MAX)
		return -EBADMSG;
	char **more = realloc(*at, (*n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	*at = more;
	more[*n] = strdup(value);
	if (!more[*n])
		return -ENOMEM;
	++*n;
	return 0;
}

static int set_field(struct attempt_record *r, const struct field *f, char *value)
{
	int64_t n;
	if (!unescape(value))
		return -EBADMSG;
	if (f->type == FIELD_LIST)
		return add_to_list(r, f, value);
	if (f->type == FIELD_TEXT) {
		if (strlen(value) >= f->more)
			return -EBADMSG;
		memcpy((char *)r + f->at, value, strlen(value) + 1);
		return 0;
	}
	if (num_parse_i64(value, &n) < 0 || n < f->min || (f->type == FIELD_INT32 && n > INT32_MAX) ||
	    (f->type == FIELD_BOOL && n > 1))
		return -EBADMSG;
	if (f->type == FIELD_INT32)
		*FIELD_PTR(r, f->at, int32_t) = (int32_t)n;
	else if (f->type == FIELD_INT64)
		*FIELD_PTR(r, f->at, int64_t) = n;
	else
		*FIELD_PTR(r, f->at, bool) = n != 0;
	return 0;
}

/* The next line of *at, without its end; NULL: there is none. */
static char *next_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');
	if (!end)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return line;
}

static int parse_line(struct attempt_record *r, char *line, bool newer, unsigned *seen, const char **ret_what)
{
	char *value = strstr(line, " = ");
	*ret_what = line;
	if (!value)
		return newer ? 0 : -EBADMSG;
	*value = '\0';
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (strcmp(line, fields[i].name) != 0)
			continue;
		if ((*seen & 1u << i) && fields[i].type != FIELD_LIST)
			return -EBADMSG;
		*seen |= 1u << i;
		return set_field(r, &fields[i], value + 3);
	}
	return newer ? 0 : -EBADMSG;
}

static int parse_lines(char *text, struct attempt_record *r, const char **ret_what)
{
	unsigned seen = 0;
	int64_t version;
	char *at = text, *line = next_line(&at);
	*ret_what = "the first line";
	if (!line || strncmp(line, HEAD, strlen(HEAD)) != 0 || num_parse_i64(line + strlen(HEAD), &version) < 0 || version < VERSION)
		return -EBADMSG;
	for (;;) {
		line = next_line(&at);
		*ret_what = "its end";
		if (!line)
			return -EBADMSG;
		if (!strcmp(line, "end"))
			break;
		int err = parse_line(r, line, version > VERSION, &seen, ret_what);
		if (err < 0)
			return err;
	}
	if (*at)
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		*ret_what = fields[i].name;
		if (!(seen & 1u << i) && fields[i].type != FIELD_LIST)
			return -EBADMSG;
	}
	return 0;
}

int attempt_file_parse(const char *text, size_t len, struct attempt_record *ret, char *err, size_t cap)
{
	struct attempt_record rec = {0};
	const char *what = "NUL bytes";
	_cleanup_free_ char *copy = malloc(len + 1);
	if (!copy) {
		snprintf(err, cap, "no memory");
		return -ENOMEM;
	}
	if (len)
		memcpy(copy, text, len);
	copy[len] = '\0';
	int r = len > ATTEMPT_FILE_MAX || strlen(copy) != len ? -EBADMSG : parse_lines(copy, &rec, &what);
	if (r < 0) {
		snprintf(err, cap, "it is damaged at: %.64s", what);
		attempt_record_done(&rec);
		return r;
	}
	*ret = rec;
	return 0;
}

int attempt_file_read(int dir_fd, const char *task_id, int32_t number, struct attempt_record *ret, char *err, size_t cap)
{
	struct attempt_record rec;
	int fd = openat(dir_fd, ATTEMPT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		int failed = -errno;
		snprintf(err, cap, "%s", strerror(-failed));
		return failed;
	}
	_cleanup_free_ char *text = xcalloc(1, ATTEMPT_FILE_MAX + 2);
	size_t len = 0;
	ssize_t n;
	while ((n = read(fd, text + len, ATTEMPT_FILE_MAX + 1 - len)) > 0)
		len += (size_t)n;
	int r = n < 0 ? -errno : 0;
	close(fd);
	if (r < 0) {
		snprintf(err, cap, "%s", strerror(-r));
		return r;
	}
	r = attempt_file_parse(text, len, &rec, err, cap);
	if (r < 0)
		return r;
	if (strcmp(rec.task_id, task_id) != 0 || rec.number != number) {
		snprintf(err, cap, "it is of another attempt: %s.%d", rec.task_id, (int)rec.number);
		attempt_record_done(&rec);
		return -EBADMSG;
	}
	*ret = rec;
	return 0;
}
