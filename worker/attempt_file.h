/* attempts/ID.N/attempt: what the next agent must know to go on with an attempt that this one started.  Written before
 * its supervisor gets the job, never changed.
 *
 *   reins-attempt 1
 *   task = 0190…                 one `name = value` a line; in values, bytes below 0x20, 0x7f and '%' stand as %XX
 *   …
 *   end                          so that a file that was cut off is seen
 *
 * A file of our version is read strictly: a name that is unknown, missing or there twice makes it damaged.  Of a newer
 * version what we know is taken, and only that must be there. */
#ifndef REINS_WORKER_ATTEMPT_FILE_H
#define REINS_WORKER_ATTEMPT_FILE_H

#include "common/base/base.h"
#include "common/base/id.h"

#define ATTEMPT_FILE "attempt"
#define ATTEMPT_FILE_MAX (64 * 1024)
#define ATTEMPT_FILE_LIST_MAX 1024 /* lines of one name that may be there several times */

struct attempt_record {
	char task_id[UUID_TEXT_LEN + 1];
	int32_t number;
	bool exclusive;
	int64_t lease_ns, timeout_ns, kill_grace_ns; /* timeout 0: none */
	char store_id[128];   /* of the master's store; "": not known */
	char **devices;       /* malloc'ed, with their array */
	size_t n_devices;
	char **holds;         /* of the worker's other resources (resources_words); likewise */
	size_t n_holds;
};

void attempt_record_done(struct attempt_record *r);
/* In the attempt's directory. -errno; the file may be there in part. */
int attempt_file_write(int dir_fd, const struct attempt_record *r) MUST_CHECK;
/* -ENOENT: there is none.  -EBADMSG with a sentence: it is damaged, or of another attempt than `task_id` and `number`.
 * Other -errno with a sentence. */
int attempt_file_read(int dir_fd, const char *task_id, int32_t number, struct attempt_record *ret, char *ret_err,
		      size_t err_cap) MUST_CHECK;
/* The parser itself. `len` bytes, any bytes. */
int attempt_file_parse(const char *text, size_t len, struct attempt_record *ret, char *ret_err, size_t err_cap) MUST_CHECK;

#endif
