/* One row's text into its field: parsing, limits, and the words for what is allowed. */
#include "common/base/num.h"
#include "common/settings/settings_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void format_number(const struct setting *row, int64_t v, char *text, size_t cap)
{
	if (row->type == SETTING_DURATION)
		num_format_duration(v, text, cap);
	else if (row->type == SETTING_SIZE)
		num_format_size(v, text, cap);
	else
		snprintf(text, cap, "%" PRId64, v);
}

static bool has_range(const struct setting *row)
{
	bool number = row->type == SETTING_INT || row->type == SETTING_DURATION || row->type == SETTING_SIZE;
	return number && (row->min != 0 || row->max != 0);
}

void settings_range(const struct setting *row, char *ret_text, size_t cap)
{
	char min[40], max[40];
	ret_text[0] = '\0';
	if (!has_range(row))
		return;
	format_number(row, row->min, min, sizeof(min));
	format_number(row, row->max, max, sizeof(max));
	snprintf(ret_text, cap, "from %s to %s", min, max);
}

void settings_allowed(const struct setting *row, char *ret_text, size_t cap)
{
	static const char *const forms[] = {
		[SETTING_BOOL] = "true or false",
		[SETTING_INT] = "a whole number",
		[SETTING_DURATION] = "a duration such as 2s, 150ms or 1.5m",
		[SETTING_SIZE] = "a size such as 65536, 64KiB or 4MiB",
		[SETTING_STRING] = "text",
		[SETTING_LIST] = "a list without empty items",
	};
	char range[96];
	settings_range(row, range, sizeof(range));
	if (*range)
		snprintf(ret_text, cap, "%s, %s", forms[row->type], range);
	else if (row->type == SETTING_INT || row->type == SETTING_DURATION || row->type == SETTING_SIZE)
		snprintf(ret_text, cap, "%s, not below 0", forms[row->type]);
	else
		snprintf(ret_text, cap, "%s", forms[row->type]);
}

static int parse_bool(const char *s, bool *ret)
{
	if (strcmp(s, "true") != 0 && strcmp(s, "false") != 0)
		return -EINVAL;
	*ret = *s == 't';
	return 0;
}

static int parse_number(const struct setting *row, const char *s, int64_t *ret)
{
	int64_t v;
	int r = row->type == SETTING_DURATION ? num_parse_duration(s, &v) :
		row->type == SETTING_SIZE     ? num_parse_size(s, &v) :
						num_parse_i64(s, &v);
	if (r < 0)
		return r;
	if (has_range(row) ? (v < row->min || v > row->max) : v < 0)
		return -ERANGE;
	*ret = v;
	return 0;
}

static void list_add(struct setting_list *list, const char *s, size_t len)
{
	char **at = xcalloc(list->len + 1, sizeof(*at));
	if (list->len)
		memcpy(at, list->at, list->len * sizeof(*at));
	at[list->len] = xcalloc(len + 1, 1);
	memcpy(at[list->len], s, len);
	free(list->at);
	list->at = at;
	list->len++;
}

static int parse_list(const struct setting *row, const char *s, struct setting_list *list)
{
	for (;;) {
		const char *comma = row->split ? strchr(s, ',') : NULL;
		size_t len = comma ? (size_t)(comma - s) : strlen(s);
		if (len == 0)
			return -EINVAL;
		list_add(list, s, len);
		if (!comma)
			return 0;
		s = comma + 1;
	}
}

static int parse(const struct setting *row, const char *s, void *field)
{
	switch (row->type) {
	case SETTING_BOOL:
		return parse_bool(s, field);
	case SETTING_INT:
	case SETTING_DURATION:
	case SETTING_SIZE:
		return parse_number(row, s, field);
	case SETTING_STRING:
		*(char **)field = xstrdup(s);
		return 0;
	case SETTING_LIST:
		return parse_list(row, s, field);
	}
	return -EINVAL;
}

int settings_set(struct settings_run *run, const struct setting *row, void *conf)
{
	const struct setting_state *st = &run->states[row - run->prog->table];
	for (size_t i = 0; i < st->len; i++) {
		int r = parse(row, st->at[i].value, (char *)conf + row->offset);
		if (r == 0)
			continue;
		char what[512], allowed[160];
		settings_describe(run, row, &st->at[i], st->source, what, sizeof(what));
		settings_allowed(row, allowed, sizeof(allowed));
		return settings_fail(run, "%s: %s; allowed: %s", what,
				     r == -ERANGE ? "out of range" : "not of the right form", allowed);
	}
	return 0;
}
