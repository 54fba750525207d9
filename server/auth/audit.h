/* The audit log: a JSON object a line for each call that changes something, when it has ended:
 *
 *   {"time":"…Z","principal":"alice","peer":"10.0.0.5:4711","method":"reins.v1.TaskService/CancelTask","target":"task=…",
 *    "code":"OK","request_id":"…"}
 *
 * What was written in a turn of the loop goes to the file together.  Bounded: AUDIT_BUFFER; what there is no room for is
 * counted, and the next line that there is room for says how many were lost.  No secret is ever part of a line. */
#ifndef REINS_AUDIT_H
#define REINS_AUDIT_H

#include "common/base/base.h"
#include "common/loop/loop.h"

#define AUDIT_BUFFER ((size_t)1 << 20)

struct audit;

struct audit_line {
	const char *principal, *peer, *method, *target, *code, *request_id;
};

/* `path` NULL: the program's log, area "audit". -EINVAL with a text: the file can't be opened. */
int audit_new(struct loop *loop, const char *path, char *ret_err, size_t cap, struct audit **ret) MUST_CHECK;
void audit_free(struct audit *a); /* writes what it has; NULL-safe */
void audit_add(struct audit *a, const struct audit_line *line);
/* The file is opened anew, for who rotates it; if that fails the old one stays. */
int audit_reopen(struct audit *a, char *ret_err, size_t cap) MUST_CHECK;

struct audit_stats {
	int64_t lines, lost;
};
struct audit_stats audit_stats(const struct audit *a);

#endif
