/* --allow: which programs this worker runs. */
#ifndef REINS_WORKER_ALLOW_H
#define REINS_WORKER_ALLOW_H

#include "common/base/base.h"
#include "common/settings/settings.h"

/* -1 with a sentence: a pattern is no absolute path. */
int allow_check(const struct setting_list *patterns, char *ret_err, size_t err_cap) MUST_CHECK;
/* May the program that these words name be run?  Searched as the supervisor will: in `search_path`, or from `directory` if
 * it has a '/'.  Patterns are matched on what the search finds; `*` does not match '/'.  *ret_search (malloc'ed): the only
 * directory left to search, so that nothing else can be found in the meantime; NULL when the name has a '/'.
 * -errno with a sentence that names the flag: it is not allowed, or not found. */
int allow_program(const struct setting_list *patterns, const char *program, const char *search_path, const char *directory,
		  char *ret_err, size_t err_cap, char **ret_search) MUST_CHECK;

#endif
