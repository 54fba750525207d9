/* --run-as: the user that programs run as, where the worker is root. */
#ifndef REINS_WORKER_RUN_AS_H
#define REINS_WORKER_RUN_AS_H

#include "common/base/base.h"

#include <sys/types.h>

struct run_as {
	char *name; /* NULL: programs run as the worker does */
	uid_t uid;
	gid_t gid;
	char *home, *shell;
};

/* `name`: a user, or NULL. Looks into the system's user database (blocks). -1 with a sentence: no such user, or we are
 * not root. */
int run_as_init(struct run_as *r, const char *name, char *ret_err, size_t err_cap) MUST_CHECK;
void run_as_done(struct run_as *r);
/* Can that user get to this directory? -1 with a sentence that names the directory which is in the way. Forks. */
int run_as_reach(const struct run_as *r, const char *path, char *ret_err, size_t err_cap) MUST_CHECK;

#endif
