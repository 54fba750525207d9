/* Which of the worker's own variables programs get.  What an agent was started with is nobody's business but the
 * agent's: it may hold passwords; so programs get what is on a list, and what the operator adds. */
#ifndef REINS_WORKER_ENVIRONMENT_H
#define REINS_WORKER_ENVIRONMENT_H

#include "common/base/base.h"
#include "common/settings/settings.h"

/* "NAME=value" of `from` (like environ) that are on the list or match one of `more`: a NULL-terminated array, to be
 * freed, of pointers into `from`.  Never among them: REINS_… but for REINS_SERVER, what systemd tells a service about
 * itself, TRACEPARENT. */
char **environment_inherit(char *const *from, const struct setting_list *more);
/* -1 with a sentence: one of the patterns can't be the name of a variable. */
int environment_check(const struct setting_list *more, char *ret_err, size_t err_cap) MUST_CHECK;

#endif
