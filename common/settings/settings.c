/* Who gives which value: flags, then the environment, then the file, then the defaults; then each
 * row's winner is parsed into the program's struct.  Owns the notes (setting_state) of one load. */
#include "common/settings/settings_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int settings_fail(struct settings_run *run, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(run->error, sizeof(run->error), fmt, ap);
	va_end(ap);
	return -1;
}

const struct setting *settings_row(const struct settings_program *prog, const char *name, size_t len)
{
	for (size_t i = 0; i < prog->n; i++)
		if (strlen(prog->table[i].name) == len && memcmp(prog->table[i].name, name, len) == 0)
			return &prog->table[i];
	return NULL;
}

/* Levenshtein's distance; names longer than the row of numbers are never near. */
static size_t distance(const char *a, size_t a_len, const char *b)
{
	size_t row[65], b_len = strlen(b);
	if (a_len >= ARRAY_LEN(row) || b_len >= ARRAY_LEN(row))
		return SIZE_MAX;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t best = min_sz(min_sz(row[j], row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[b_len];
}

const char *settings_nearest(const struct settings_program *prog, const char *name, size_t len)
{
	static const char *const common[] = { "config", "help", "version" };
	const char *best = NULL, *beginning = NULL;
	size_t n_beginning = 0;
	size_t best_distance = len / 3 + 2; /* one slip in three letters, and a short name may still have one */
	for (size_t i = 0; i < prog->n + ARRAY_LEN(common); i++) {
		const char *known = i < prog->n ? prog->table[i].name : common[i - prog->n];
		size_t d = distance(name, len, known);
		if (d < best_distance) {
			best = known;
			best_distance = d;
		}
		if (len >= 3 && !strncmp(known, name, len)) {
			beginning = known;
			n_beginning++;
		}
	}
	return !best && n_beginning == 1 ? beginning : best;
}

void settings_env_name(const char *name, char *ret_text, size_t cap)
{
	int n = snprintf(ret_text, cap, "REINS_%s", name);
	for (int i = 0; i < n && (size_t)i + 1 < cap; i++) {
		char c = ret_text[i];
		ret_text[i] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
	}
}

void settings_describe(const struct settings_run *run, const struct setting *row, const struct setting_given *given,
		       enum setting_source source, char *ret_text, size_t cap)
{
	const char *value = row->secret ? "(hidden)" : given->value;
	char env[128];
	switch (source) {
	case SOURCE_FILE:
		snprintf(ret_text, cap, "%s:%d: %s = %.200s", run->config_path, given->line, row->name, value);
		break;
	case SOURCE_ENV:
		settings_env_name(row->name, env, sizeof(env));
		snprintf(ret_text, cap, "%s=%.200s", env, value);
		break;
	case SOURCE_FLAG:
		if (row->type == SETTING_BOOL && !strcmp(given->value, "true")) /* nobody writes it out */
			snprintf(ret_text, cap, "--%s", row->name);
		else
			snprintf(ret_text, cap, "--%s %.200s", row->name, value);
		break;
	default:
		snprintf(ret_text, cap, "default of --%s, %.200s", row->name, value);
	}
}

static void forget(struct setting_state *st)
{
	for (size_t i = 0; i < st->len; i++)
		free(st->at[i].value);
	free(st->at);
	*st = (struct setting_state){ 0 };
}

int settings_give(struct settings_run *run, const struct setting *row, enum setting_source source, const char *value,
		  int line)
{
	struct setting_state *st = &run->states[row - run->prog->table];
	struct setting_given given = { .line = line };
	if (st->source > source)
		return 0;
	if (st->source == source && row->type != SETTING_LIST) {
		char what[512];
		given.value = (char *)(uintptr_t)value;
		settings_describe(run, row, &given, source, what, sizeof(what));
		return settings_fail(run, "%s: given twice", what);
	}
	if (st->source < source)
		forget(st);
	struct setting_given *at = xcalloc(st->len + 1, sizeof(*at));
	if (st->len)
		memcpy(at, st->at, st->len * sizeof(*at));
	given.value = xstrdup(value);
	at[st->len] = given;
	free(st->at);
	st->at = at;
	st->len++;
	st->source = source;
	return 0;
}

/* ---- flags ---- */

struct args {
	int argc;
	char **argv;
	int next;
	char **rest; /* NULL: none wanted */
	int n_rest;
	enum { WANT_RUN, WANT_HELP, WANT_VERSION } want;
};

/* A value after the flag itself. */
static int take_value(struct settings_run *run, struct args *a, const char *flag, const char **ret)
{
	const char *v = a->next < a->argc ? a->argv[a->next] : NULL;
	if (!v)
		return settings_fail(run, "%s: needs a value", flag);
	if (strncmp(v, "--", 2) == 0)
		return settings_fail(run, "%s: needs a value; if it begins with dashes write %s=VALUE", flag, flag);
	a->next++;
	*ret = v;
	return 0;
}

static int unknown_flag(struct settings_run *run, const char *arg, const char *name, size_t len)
{
	/* Without what follows `=`: a mistyped --token=… is still a secret. */
	const char *near = settings_nearest(run->prog, name, len);
	int flag_len = (int)min_sz(strcspn(arg, "="), 100);
	return settings_fail(run, "unknown flag %.*s%s%s%s", flag_len, arg, near ? "; did you mean --" : "; see --help",
			     near ? near : "", near ? "?" : "");
}

/* The file is read before anything stronger is noted, so a first walk over the flags looks for --config only. */
static int read_flag(struct settings_run *run, struct args *a, bool config_pass)
{
	const char *arg = a->argv[a->next++];
	const char *name = arg + 2, *value = strchr(name, '=');
	size_t len = value ? (size_t)(value - name) : strlen(name);
	bool config = len == 6 && memcmp(name, "config", 6) == 0;
	if (value)
		value++;
	if (!value && (strcmp(name, "help") == 0 || strcmp(name, "version") == 0)) {
		if (a->want == WANT_RUN)
			a->want = *name == 'h' ? WANT_HELP : WANT_VERSION;
		return 0;
	}
	const struct setting *row = config ? NULL : settings_row(run->prog, name, len);
	if (!row && !config)
		return unknown_flag(run, arg, name, len);
	if (!value && row && row->type == SETTING_BOOL)
		value = "true";
	if (!value && take_value(run, a, arg, &value) < 0)
		return -1;
	if (!config)
		return config_pass ? 0 : settings_give(run, row, SOURCE_FLAG, value, 0);
	if (!config_pass)
		return 0;
	if (run->config_source == SOURCE_FLAG)
		return settings_fail(run, "--config %s: given twice", value);
	free(run->config_path);
	run->config_path = xstrdup(value);
	run->config_source = SOURCE_FLAG;
	return 0;
}

static int walk_flags(struct settings_run *run, struct args *a, bool config_pass)
{
	bool only_rest = false;
	a->n_rest = 0;
	for (a->next = 1; a->next < a->argc;) {
		char *arg = a->argv[a->next];
		bool flag = !only_rest && arg[0] == '-' && arg[1];
		if (flag && strcmp(arg, "--") == 0) {
			only_rest = true;
			a->next++;
		} else if (flag && strcmp(arg, "-h") == 0) {
			a->want = WANT_HELP;
			a->next++;
		} else if (flag && arg[1] != '-') {
			return settings_fail(run, "unknown flag %.100s; flags are written out, see --help", arg);
		} else if (flag) {
			if (read_flag(run, a, config_pass) < 0)
				return -1;
		} else {
			if (!a->rest)
				return settings_fail(run, "unexpected argument \"%.100s\"; see --help", arg);
			a->rest[a->n_rest++] = arg;
			a->next++;
		}
	}
	return 0;
}

/* ---- the whole ---- */

static int read_environment(struct settings_run *run)
{
	char env[128];
	for (size_t i = 0; i < run->prog->n; i++) {
		settings_env_name(run->prog->table[i].name, env, sizeof(env));
		const char *value = getenv(env);
		if (value && *value && settings_give(run, &run->prog->table[i], SOURCE_ENV, value, 0) < 0)
			return -1;
	}
	return 0;
}

/* From the weakest source to the strongest, so that each sees its own repetitions. */
static int gather(struct settings_run *run, struct args *a)
{
	for (size_t i = 0; i < run->prog->n; i++) {
		const struct setting *row = &run->prog->table[i];
		if (row->default_text && settings_give(run, row, SOURCE_DEFAULT, row->default_text, 0) < 0)
			return -1;
	}
	const char *config = run->prog->env ? getenv("REINS_CONFIG") : NULL;
	if (config && *config) {
		run->config_path = xstrdup(config);
		run->config_source = SOURCE_ENV;
	}
	if (walk_flags(run, a, true) < 0)
		return -1;
	if (a->want != WANT_RUN)
		return 0;
	if (run->config_path && settings_read_file(run) < 0)
		return -1;
	if (run->prog->env && read_environment(run) < 0)
		return -1;
	return walk_flags(run, a, false);
}

static int set_all(struct settings_run *run, void *conf)
{
	for (size_t i = 0; i < run->prog->n; i++)
		if (settings_set(run, &run->prog->table[i], conf) < 0)
			return -1;
	return 0;
}

static enum settings_outcome print_and_exit(const struct settings_program *prog, bool help)
{
	_cleanup_free_ char *text = help ? settings_help(prog) : NULL;
	if (help && !text)
		return SETTINGS_EXIT_64;
	if (help)
		fputs(text, stdout);
	else
		printf("%s %s\n", prog->name, REINS_VERSION);
	fflush(stdout);
	return SETTINGS_EXIT_0;
}

enum settings_outcome settings_load(const struct settings_program *prog, int argc, char **argv, void *conf,
				    char ***ret_rest, int *ret_n_rest)
{
	struct settings_run run = { .prog = prog };
	run.states = xcalloc(prog->n + 1, sizeof(*run.states));
	struct args a = { .argc = argc, .argv = argv };
	if (ret_rest)
		a.rest = xcalloc((size_t)argc + 1, sizeof(*a.rest));
	enum settings_outcome out = SETTINGS_RUN;
	if (gather(&run, &a) < 0 || (a.want == WANT_RUN && set_all(&run, conf) < 0)) {
		fprintf(stderr, "%s: %s\n", prog->name, run.error);
		out = SETTINGS_EXIT_64;
	} else if (a.want != WANT_RUN) {
		out = print_and_exit(prog, a.want == WANT_HELP);
	}
	for (size_t i = 0; i < prog->n; i++)
		forget(&run.states[i]);
	free(run.states);
	free(run.config_path);
	if (out == SETTINGS_RUN && ret_rest) {
		*ret_rest = a.rest;
		*ret_n_rest = a.n_rest;
	} else {
		free(a.rest);
	}
	if (out != SETTINGS_RUN)
		settings_done(prog, conf);
	return out;
}

void settings_done(const struct settings_program *prog, void *conf)
{
	for (size_t i = 0; i < prog->n; i++) {
		void *field = (char *)conf + prog->table[i].offset;
		if (prog->table[i].type == SETTING_STRING) {
			free(*(char **)field);
			*(char **)field = NULL;
		} else if (prog->table[i].type == SETTING_LIST) {
			struct setting_list *list = field;
			for (size_t j = 0; j < list->len; j++)
				free(list->at[j]);
			free(list->at);
			*list = (struct setting_list){ 0 };
		}
	}
}
