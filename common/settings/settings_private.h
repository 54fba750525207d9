/* Shared by the files of the settings table; not for programs. */
#ifndef REINS_SETTINGS_PRIVATE_H
#define REINS_SETTINGS_PRIVATE_H

#include "common/settings/settings.h"

enum setting_source { SOURCE_NONE, SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENV, SOURCE_FLAG };

/* One value as given, and where: enough to name it in an error. */
struct setting_given {
	char *value;
	int line; /* SOURCE_FILE */
};

/* What one row was given by its strongest source so far. */
struct setting_state {
	enum setting_source source;
	struct setting_given *at;
	size_t len;
};

struct settings_run {
	const struct settings_program *prog;
	struct setting_state *states; /* one per row */
	char *config_path;
	enum setting_source config_source;
	char error[1024];             /* set by whatever returned -1 */
};

/* Sets run->error ("…") and returns -1. */
int settings_fail(struct settings_run *run, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Row by name, NULL when unknown. */
const struct setting *settings_row(const struct settings_program *prog, const char *name, size_t len);
/* The known name nearest to a mistyped one, or the only one that begins as it does (three letters at least); NULL when
 * there is none. */
const char *settings_nearest(const struct settings_program *prog, const char *name, size_t len);
/* REINS_LEASE_TTL for "lease-ttl"; into ret_text, cut at cap. */
void settings_env_name(const char *name, char *ret_text, size_t cap);
/* Notes a value.  A stronger source replaces what a weaker one gave, a weaker one is ignored; a second value from
 * the same source is refused except for lists. */
int settings_give(struct settings_run *run, const struct setting *row, enum setting_source source, const char *value,
		  int line) MUST_CHECK;
/* "--lease-ttl 5x", "REINS_LEASE_TTL=5x", "/etc/reins.conf:3: lease-ttl = 5x", without the value of a secret. */
void settings_describe(const struct settings_run *run, const struct setting *row, const struct setting_given *given,
		       enum setting_source source, char *ret_text, size_t cap);

/* Reads run->config_path. */
int settings_read_file(struct settings_run *run) MUST_CHECK;
/* Parses what the row was given into conf. */
int settings_set(struct settings_run *run, const struct setting *row, void *conf) MUST_CHECK;
/* "a duration such as 2s or 150ms, from 1s to 1h". */
void settings_allowed(const struct setting *row, char *ret_text, size_t cap);
/* " from 1s to 1h"-like; empty for a row without limits. */
void settings_range(const struct setting *row, char *ret_text, size_t cap);

#endif
