/* One table of settings per program; it serves flags (`--lease-ttl 10s`, `--lease-ttl=10s`), environment
 * (REINS_LEASE_TTL), a `--config` file (lines `lease-ttl = 10s`, # comments) and `--help`.
 * Order of strength: flag, environment, file, default.  An unknown name, a repeated single
 * flag, or a value out of range is an error that names the setting, where it came from, the value and what is allowed.
 *
 * --config, --help and --version belong to every program and have no rows.  A list given by a
 * stronger source replaces the weaker one whole.  An empty environment variable counts as not given; unknown
 * ones are left alone (a task's own environment holds REINS_… too).  In the file `#` begins a comment only at
 * the start of a line, since values may hold it; a file has at most 1 MiB.  Only the value that wins is checked. */
#ifndef REINS_SETTINGS_H
#define REINS_SETTINGS_H

#include "common/base/base.h"

enum setting_type {
	SETTING_BOOL,     /* bool; a flag alone means true; also =true, =false */
	SETTING_INT,      /* int64_t */
	SETTING_DURATION, /* int64_t, ns */
	SETTING_SIZE,     /* int64_t, bytes */
	SETTING_STRING,   /* char *, owned by the table's user: settings_done frees */
	SETTING_LIST,     /* struct setting_list; the flag may be repeated, and a value split at commas when `split` */
};

struct setting_list {
	char **at;
	size_t len;
};

struct setting {
	const char *name;         /* "lease-ttl" */
	enum setting_type type;
	size_t offset;            /* of the field in the program's struct */
	const char *value_name;   /* for --help: "DURATION", "URL"; NULL: by type */
	const char *default_text; /* parsed like a given value; NULL: zero / NULL / empty */
	int64_t min, max;         /* for INT, DURATION, SIZE; both 0: any value not below 0 */
	bool split;
	bool secret;              /* value never printed in errors or logs */
	const char *help;         /* one or two sentences */
	const char *group;        /* heading in --help; NULL: as the row above */
};

struct settings_program {
	const char *name;      /* "reinsd" */
	const char *summary;   /* first lines of --help */
	const char *usage;     /* "reinsd [flags]" */
	const struct setting *table;
	size_t n;
	bool env;              /* read REINS_… (not by tools whose flags make no sense there) */
	const char *examples;  /* lines for --help, printed as they are; NULL: none */
};

enum settings_outcome { SETTINGS_RUN, SETTINGS_EXIT_0, SETTINGS_EXIT_64 };

/* Fills `conf` (zeroed by the caller).  `--help` and `--version` print to stdout: SETTINGS_EXIT_0.  Errors
 * print one line to stderr: SETTINGS_EXIT_64.  Arguments that are not flags, and all after `--`, go to *ret_rest
 * (pointers into argv, array owned by the caller) when ret_rest is given, else they are an error.
 * Unless SETTINGS_RUN nothing is left to free. */
enum settings_outcome settings_load(const struct settings_program *prog, int argc, char **argv, void *conf,
				    char ***ret_rest, int *ret_n_rest) MUST_CHECK;
/* Frees strings and lists; may be called twice. */
void settings_done(const struct settings_program *prog, void *conf);
/* The text of --help, malloc'ed. */
char *settings_help(const struct settings_program *prog);

#endif
