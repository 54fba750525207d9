/* The record of an attempt's end, as it goes to the spool and to the master. */
#ifndef REINS_WORKER_OUTCOME_H
#define REINS_WORKER_OUTCOME_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "reins/v1/worker_service.pb-c.h"

struct outcome_facts {
	const char *task_id;
	int32_t attempt;
	bool launch_failed;
	bool lost;        /* nobody knows how it ended */
	/* KIND_UNSPECIFIED: no stop was begun before the first process ended. */
	Reins__V1__Outcome__Kind stop_kind;
	Reins__V1__Stop__Reason stop_reason;
	bool exited;      /* there was a process, and it ended so: */
	int code, signal; /* signal > 0: by that */
	const char *oom_text; /* its cgroup counted processes ended for want of memory; NULL: it did not */
	const char *text; /* for launch_failed or a stop; may be NULL */
	int64_t started_wall_us, finished_wall_us; /* started: 0 for never */
	int64_t log_end;
};

/* Reads REINS_RESULT of the attempt's directory (dir_fd/name/io/result): a regular file of at most result_max bytes, else
 * only its size is told. NULL without memory. */
struct blob *outcome_pack(const struct outcome_facts *f, int dir_fd, const char *name, int64_t result_max,
			  int64_t error_max) MUST_CHECK;
Reins__V1__Outcome__Kind outcome_kind(const struct outcome_facts *f);

#endif
