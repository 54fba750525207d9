/* Where a submission comes from: user, host, directory, git commit. */
#ifndef REINS_CLIENT_ORIGIN_H
#define REINS_CLIENT_ORIGIN_H

#include "common/base/base.h"
#include "common/base/id.h"

struct origin {
	char user[256], host[256], directory[4097];
	char git_commit[65]; /* "" outside a work tree, or if git is missing or too slow */
	char traceparent[TRACEPARENT_LEN + 1]; /* of our environment */
	bool git_dirty;      /* tracked files differ, or it could not be found out in time */
};

/* What can't be found out stays empty.  `git` is run without a shell, `timeout_ns` for all of it; then it is killed. */
void origin_find(int64_t timeout_ns, struct origin *ret);

/* Runs argv (looked up in PATH) with stdin and stderr at /dev/null and what it printed in `ret_out`, cut at cap - 1.
 * The exit code, or -ETIMEDOUT (killed), or another -errno when it could not be started or died by a signal. */
int origin_run(const char *const *argv, int64_t deadline_mono_ns, char *ret_out, size_t cap) MUST_CHECK;

#endif
