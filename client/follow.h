/* A task's log as it grows, and its end. Lives through restarts of the server. */
#ifndef REINS_CLIENT_FOLLOW_H
#define REINS_CLIENT_FOLLOW_H

#include "client/cli.h"
#include "reins/v1/task_service.pb-c.h"

enum follow_log {
	FOLLOW_NO_LOG,
	FOLLOW_BYTES, /* what the program wrote to stdout to our stdout, likewise stderr */
	FOLLOW_JSON,  /* LogChunk by LogChunk */
};

struct follow {
	struct cli *cli;
	const char *task_id;
	enum follow_log log;
	/* Where the log goes on: attempt 0 is "not seen yet". */
	int32_t attempt;
	int64_t offset;
	Reins__V1__LogStream stream; /* only this one */
	/* private */
	int32_t shown;               /* attempt of the last piece written */
	bool told;                   /* that the connection was lost */
	bool no_logs;                /* the server does not offer them */
	int64_t lost_since_mono_ns;  /* 0: not lost */
	bool looked;                 /* whether it waits for something */
	char waits[256];             /* what was last told about that */
};

/* Until the task is terminal and the last byte of its last attempt is written.  If it does not start soon, what it
 * waits for is told on stderr, and again when that changes.  0 with the whole task, for
 * pb_free; or -1: *ret_err, where DEADLINE_EXCEEDED means that --deadline came first. */
int follow_to_end(struct follow *f, Reins__V1__Task **ret_task, struct client_error *ret_err) MUST_CHECK;
/* The log of one attempt (f->attempt; 0: the newest) from f->offset; with `wait` until it has ended. `tail_bytes` > 0: only
 * these. */
int follow_attempt(struct follow *f, bool wait, int64_t tail_bytes, struct client_error *ret_err) MUST_CHECK;

#endif
