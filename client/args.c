/* Owns the copy of the argument vector that is handed on. */
#include "client/args.h"

#include <stdio.h>
#include <string.h>

#include "common/settings/settings.h"

static const struct setting common_table[] = { COMMON_SETTINGS };

/* Each for the first of its flags that the command has: `submit -l` is --label. */
static const struct {
	const char *letter, *flag;
} letters[] = {
	{ "-o", "--output" },
	{ "-f", "--follow" },
	{ "-l", "--label-selector" },
	{ "-l", "--label" },
};

static const struct {
	const char *flag, *env;
} from_env[] = {
	{ "--server", "REINS_SERVER" }, { "--token", "REINS_TOKEN" },     { "--token-file", "REINS_TOKEN_FILE" }, { "--tls-ca", "REINS_TLS_CA" },
	{ "--tls-cert", "REINS_TLS_CERT" }, { "--tls-key", "REINS_TLS_KEY" },
};

/* Does this flag take the next word as its value? */
static bool takes_value(const char *arg, const struct setting *table, size_t n)
{
	if (!strcmp(arg, "-o") || !strcmp(arg, "-l") || !strcmp(arg, "--config"))
		return true;
	for (size_t i = 0; i < n; i++)
		if (!strncmp(arg, "--", 2) && !strcmp(arg + 2, table[i].name))
			return table[i].type != SETTING_BOOL;
	return false;
}

int args_command(int argc, char **argv)
{
	int i = 1;
	while (i < argc && argv[i][0] == '-' && argv[i][1])
		i += takes_value(argv[i], common_table, ARRAY_LEN(common_table)) ? 2 : 1;
	return i < argc ? i : argc;
}

static void add(struct args *a, const char *text)
{
	a->argv[a->argc++] = xstrdup(text);
}

static void add_joined(struct args *a, const char *name, const char *value)
{
	size_t n = strlen(name) + strlen(value) + 2;
	char *text = xcalloc(n, 1);
	snprintf(text, n, "%s=%s", name, value);
	a->argv[a->argc++] = text;
}

static bool has_flag(const struct settings_program *prog, const char *flag)
{
	for (size_t i = 0; i < prog->n; i++)
		if (!strcmp(flag + 2, prog->table[i].name))
			return true;
	return false;
}

/* -o json, -ojson, -f: written out. False: not one of this command's, which is then told as it was typed. */
static bool add_letter(struct args *a, const char *arg, const struct settings_program *prog)
{
	for (size_t i = 0; i < ARRAY_LEN(letters); i++) {
		if (strncmp(arg, letters[i].letter, 2) || !has_flag(prog, letters[i].flag))
			continue;
		if (arg[2])
			add_joined(a, letters[i].flag, arg + 2);
		else
			add(a, letters[i].flag);
		return true;
	}
	return false;
}

static bool is_flag(const char *arg, const char *flag)
{
	size_t n = strlen(flag);
	return !strncmp(arg, flag, n) && (!arg[n] || arg[n] == '=');
}

/* Once: all count as given afterwards. */
static void add_from_env(struct args *a, bool *given)
{
	for (size_t k = 0; k < ARRAY_LEN(from_env); k++) {
		const char *env = getenv(from_env[k].env);
		if (!given[k] && env && *env)
			add_joined(a, from_env[k].flag, env);
		given[k] = true;
	}
}

void args_make(int argc, char **argv, int at, const struct settings_program *prog, struct args *ret)
{
	struct args a = { 0 };
	bool given[ARRAY_LEN(from_env)] = { false };
	for (size_t k = 0; k < ARRAY_LEN(from_env); k++)
		given[k] = !takes_value(from_env[k].flag, prog->table, prog->n); /* not a flag of this command */
	bool value = false, dashes = false;
	a.argv = xcalloc((size_t)argc + ARRAY_LEN(from_env) + 1, sizeof *a.argv);
	add(&a, prog->name);
	for (int i = 1; i < argc; i++) {
		if (i == at)
			continue;
		const char *arg = argv[i];
		if (dashes || value) {
			add(&a, arg);
			value = false;
			continue;
		}
		if (!strcmp(arg, "--")) {
			/* What comes from the environment is a flag, so it must stand before. */
			add_from_env(&a, given);
			dashes = true;
			add(&a, arg);
			continue;
		}
		for (size_t k = 0; k < ARRAY_LEN(from_env); k++)
			given[k] = given[k] || is_flag(arg, from_env[k].flag);
		value = takes_value(arg, prog->table, prog->n);
		if (!add_letter(&a, arg, prog))
			add(&a, arg);
		a.n_before += arg[0] != '-' || !arg[1];
	}
	add_from_env(&a, given);
	*ret = a;
}

void args_done(struct args *a)
{
	for (int i = 0; i < a->argc; i++)
		free(a->argv[i]);
	free(a->argv);
	*a = (struct args){ 0 };
}

/* Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][33];
	size_t na = strlen(a), nb = strlen(b);
	if (na > 32 || nb > 32)
		return SIZE_MAX;
	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			bool same = a[i - 1] == b[j - 1];
			row[j] = min_sz(min_sz(row[j - 1], above[j]) + 1, above[j - 1] + !same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = min_sz(row[j], above2[j - 2] + 1);
		}
	}
	return rows[na % 3][nb];
}

const char *args_nearest(const char *typed, const struct command *const *commands, size_t n)
{
	const char *best = NULL;
	size_t best_distance = strlen(typed) / 3 + 2;
	for (size_t i = 0; i < n; i++) {
		const char *name = commands[i]->name;
		size_t d = distance(typed, name);
		/* The beginning of a name is near whatever its length. */
		if (strlen(typed) >= 2 && !strncmp(typed, name, strlen(typed)))
			d = min_sz(d, 1);
		if (d < best_distance) {
			best = name;
			best_distance = d;
		}
	}
	return best;
}
