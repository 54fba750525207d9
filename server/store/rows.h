/* What the store knows of a task and its attempts, as people see it: what GET and LIST answer with. */
#ifndef REINS_STORE_ROWS_H
#define REINS_STORE_ROWS_H

#include "common/base/buf.h"
#include "server/core/core.h"

enum store_state { STORE_PENDING = 1, STORE_RUNNING, STORE_COMPLETED, STORE_FAILED, STORE_CANCELLED };

/* The cause of what a worker gave back by leaving it out of its list. */
#define STORE_WORDS_NOT_LISTED "not on the list of its worker"

enum store_outcome {
	STORE_SUCCEEDED = 1,
	STORE_PROGRAM_FAILED,
	STORE_LAUNCH_FAILED,
	STORE_STOPPED,     /* after a stop: CANCELLED where the row has a wish, else as a failure not counted */
	STORE_TIMED_OUT,
	STORE_WORKER_LOST, /* by take-back, or reported by a worker that can't know the end; counted against the lost-limit */
	STORE_GIVEN_BACK,  /* recalled, drained, never sent; not counted */
	STORE_NOT_TAKEN,   /* refused by the worker; not counted */
	STORE_EXPIRED,     /* never given out; of no attempt */
};

/* The error of a task that ended so; "2.5 s" follows. */
#define STORE_EXPIRED_TEXT "not started within its expiry of "

struct store_bytes {
	const uint8_t *data;
	size_t len;
};

/* How an operator wants a worker to leave.  Holds over sessions until it is taken back. */
struct store_drain_wish {
	int32_t mode;       /* number of a reins.v1.DrainMode; 0: no wish */
	int64_t within_ns;  /* -1: not said */
	const char *reason; /* "" or NULL: none; in answers never NULL */
};

struct store_attempt_row {
	int32_t attempt;
	char *worker;
	enum store_outcome outcome; /* 0: still running */
	int64_t dispatched_wall_us, started_wall_us, finished_wall_us;
	bool has_exit_code, has_signal;
	int32_t exit_code, signal;
	struct store_bytes error;
	int64_t log_end, log_dropped;
	bool has_instance; /* of the worker; false in rows of an older version */
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session, lease_ns; /* 0: not known */
	char *devices;     /* separated by spaces; NULL: none */
	char *cause;       /* in words, where outcome does not say it all; NULL: none */
	bool oom_killed;
	bool open; /* taken back, and its worker may still end it well */
};

/* A task as people see it. */
struct store_task {
	struct core_task core;
	enum store_state state;
	struct blob *spec; /* GET and full view: whole; LIST: without payload and env where the store keeps that */
	char *worker;      /* running or last */
	char *owner;
	int64_t created_wall_us, run_at_wall_us, started_wall_us, finished_wall_us;
	int64_t cancel_requested_wall_us; /* 0: nobody asked */
	enum store_outcome outcome;
	bool has_exit_code, has_signal;
	int32_t exit_code, signal;
	struct store_bytes error;
	struct store_bytes result;
	int64_t result_len; /* also where the result itself was not asked for */
	int64_t result_too_large;
	int32_t losses;
	char *cause; /* of the end, or of the cancel wish, as in the attempt; NULL: none */
	struct store_attempt_row *attempts; /* GET and full view: oldest first, the newest at the end */
	size_t n_attempts;
};

#endif
