/* By what name a request over HTTP/1.1 means to reach us.  Where callers need not be known, a page that a browser on this machine
 * shows could have its own name point here (DNS rebinding) and would then be of the same origin, which neither CORS nor the content
 * type keeps out: but its requests carry its name. */
#ifndef REINS_AUTH_HOST_H
#define REINS_AUTH_HOST_H

#include "common/base/base.h"

/* An address, localhost, a name below it, this machine's name, or one of `allowed` (case does not matter); `host` as in the
 * header, with or without a port. */
bool host_is_ours(const char *host, const char *const *allowed, size_t n_allowed);

#endif
