/* The text of --help from the table: a heading per group, a flag per entry, wrapped at 80 columns. */
#include "common/base/buf.h"
#include "common/settings/settings_private.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 80
#define INDENT 6
#define HELP_MAX ((size_t)1 << 20)

struct help {
	struct buf text;
	size_t column;
	bool failed;
};

static void put(struct help *h, const char *s, size_t len)
{
	if (buf_add(&h->text, s, len) < 0)
		h->failed = true;
}

static size_t columns(const char *s, size_t len)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)s[i] & 0xc0) != 0x80;
	return n;
}

/* Words of s, from the present column on. */
static void wrap(struct help *h, size_t indent, const char *s)
{
	while (*(s += strspn(s, " \n"))) {
		size_t len = strcspn(s, " \n"), cols = columns(s, len);
		if (h->column > indent && h->column + 1 + cols > WIDTH) {
			put(h, "\n", 1);
			h->column = 0;
		}
		if (h->column == 0) {
			for (; h->column < indent; h->column++)
				put(h, " ", 1);
		} else if (h->column > indent) {
			put(h, " ", 1);
			h->column++;
		}
		put(h, s, len);
		h->column += cols;
		s += len;
	}
}

static void end_line(struct help *h)
{
	put(h, "\n", 1);
	h->column = 0;
}

static const char *value_name(const struct setting *row)
{
	static const char *const by_type[] = {
		[SETTING_BOOL] = NULL,   [SETTING_INT] = "N",       [SETTING_DURATION] = "DURATION",
		[SETTING_SIZE] = "SIZE", [SETTING_STRING] = "TEXT", [SETTING_LIST] = "TEXT",
	};
	return row->value_name ? row->value_name : by_type[row->type];
}

static void entry(struct help *h, const char *flag, const char *value, const char *help)
{
	put(h, "  --", 4);
	put(h, flag, strlen(flag));
	if (value) {
		put(h, " ", 1);
		put(h, value, strlen(value));
	}
	end_line(h);
	if (help) {
		wrap(h, INDENT, help);
		end_line(h);
	}
}

static void row_entry(struct help *h, const struct setting *row)
{
	char range[96], note[512];
	settings_range(row, range, sizeof(range));
	entry(h, row->name, value_name(row), row->help);
	int n = 0;
	note[0] = '\0';
	if (row->type == SETTING_LIST)
		n = snprintf(note, sizeof(note), "May be repeated%s. ", row->split ? ", or split by commas" : "");
	if (*range)
		n += snprintf(note + n, sizeof(note) - (size_t)n, "Allowed: %s. ", range);
	if (row->default_text && !row->secret)
		snprintf(note + n, sizeof(note) - (size_t)n, "Default: %.200s", row->default_text);
	if (*note) {
		wrap(h, INDENT, note);
		end_line(h);
	}
}

static void common_entries(struct help *h, const struct settings_program *prog)
{
	end_line(h);
	put(h, "General:\n", 9);
	entry(h, "config", "FILE", "Read settings from this file: lines `name = value`, names as the flags without dashes; "
				   "a line that begins with # is a comment.");
	entry(h, "help", NULL, "Print this text.");
	entry(h, "version", NULL, "Print the version.");
	end_line(h);
	char last[256] = "Each setting may be given as a flag or in the file; the flag wins.", env[64];
	if (prog->env && prog->n) {
		settings_env_name(prog->table[0].name, env, sizeof(env));
		snprintf(last, sizeof(last), "Each setting may be given as a flag, as an environment variable (%s for --%s), or in "
			 "the file; the first of these wins.", env, prog->table[0].name);
	}
	wrap(h, 0, last);
	end_line(h);
}

/* A line for each way to call it. */
static void usage(struct help *h, const char *lines)
{
	put(h, "Usage: ", 7);
	h->column = 7;
	_cleanup_free_ char *copy = xstrdup(lines);
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		wrap(h, 7, line);
		end_line(h);
	}
}

char *settings_help(const struct settings_program *prog)
{
	struct help h = { 0 };
	buf_init(&h.text, HELP_MAX);
	wrap(&h, 0, prog->summary);
	end_line(&h);
	end_line(&h);
	usage(&h, prog->usage);
	if (prog->examples) {
		end_line(&h);
		put(&h, prog->examples, strlen(prog->examples));
	}
	const char *group = NULL;
	for (size_t i = 0; i < prog->n; i++) {
		const char *own = prog->table[i].group ? prog->table[i].group : group ? group : "Flags";
		if (!group || strcmp(own, group) != 0) {
			end_line(&h);
			put(&h, own, strlen(own));
			put(&h, ":\n", 2);
			group = own;
		}
		row_entry(&h, &prog->table[i]);
	}
	common_entries(&h, prog);
	char *text = NULL;
	if (!h.failed) {
		text = xcalloc(buf_len(&h.text) + 1, 1);
		memcpy(text, buf_head(&h.text), buf_len(&h.text));
	}
	buf_done(&h.text);
	return text;
}
