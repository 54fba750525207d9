/* Plays the agent to a real reins-supervisor: a directory, a job, packets, and what is left on the disk. */
#ifndef REINS_TESTS_SUPERVISOR_RIG_H
#define REINS_TESTS_SUPERVISOR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "worker/log_file.h"
#include "worker/supervisor/wire.h"

#define RIG_LIST_MAX 16
#define RIG_WAIT_NS (60 * NS_PER_S) /* for what has to come; a machine with other work is slow */

struct rig {
	char dir[96];            /* the attempt's directory */
	int dir_fd;
	int fd;                  /* to the supervisor; -1: none */
	int pid;                 /* the supervisor's; 0: reaped */
	char mark[64];           /* in the environment of everything that the job starts */
	struct sup_status last;  /* the newest that has come */
	bool deaf;               /* says no SUP_SEEN */

	/* What rig_launch sends; rig_new fills in what is usual. */
	struct sup_job_file file;
	struct sup_deadlines deadlines;
	const char *directory, *search_path, *user;
	const char *join[RIG_LIST_MAX], *argv[RIG_LIST_MAX], *env[RIG_LIST_MAX];
	const char *payload;
};

/* A directory and a spare. */
void rig_new(struct rig *r);
/* The same, in a directory that exists. */
void rig_new_in(struct rig *r, const char *dir);
/* For each test, also one that failed halfway: ends everything that its rigs have started. */
int rig_clean(void **state);
#define rig_test(fn) cmocka_unit_test_teardown(fn, rig_clean)
/* Ends what is left of it, and fails the test if that is not nothing. */
void rig_done(struct rig *r);

/* Ends with NULL. */
void rig_argv(struct rig *r, const char *first, ...);
void rig_shell(struct rig *r, const char *script);
/* The program of this folder that misbehaves: `mode` and its argument. */
void rig_victim(struct rig *r, const char *mode, const char *argument);

void rig_launch(struct rig *r);
void rig_stop(struct rig *r, int reason, int64_t grace_ns, const char *text);
void rig_send(struct rig *r, const void *packet);
/* The next status; false: the connection has ended. */
bool rig_next(struct rig *r);
/* Until this phase, or a later one. Fails when the connection ends before. */
void rig_until(struct rig *r, enum sup_phase phase);
/* Until SUP_EMPTY and the supervisor's end; the status file must say what the packet said. */
void rig_until_end(struct rig *r);
/* The supervisor's end, told by nobody: reads the status file into `last`. */
void rig_until_dead(struct rig *r);
/* Only its end. */
void rig_until_gone(struct rig *r);
void rig_disconnect(struct rig *r);
/* As the next agent does it. */
void rig_connect(struct rig *r);
bool rig_read_status(struct rig *r, struct sup_status *ret_status);
bool rig_is_locked(struct rig *r);
/* Waits until the program has made this file in the attempt's directory. */
void rig_wait_file(struct rig *r, const char *name);
/* rm -r of the attempt's directory. */
void rig_remove_directory(struct rig *r);
/* Processes that live and have the mark in their environment. */
int rig_marked(const struct rig *r);

/* All of the log's files, checked; one file's bounds must fit the next's unless a segment was removed. */
struct rig_log {
	char *out[2];          /* without what was dropped */
	size_t len[2];
	int64_t end;           /* after the last record */
	int64_t dropped;
	int64_t head_end;      /* of the first file */
	int64_t kept_from;     /* start of the oldest file after the head; -1: none */
	int files;
	int64_t bytes_on_disk;
};
void rig_read_log(struct rig *r, struct rig_log *ret_log);
void rig_log_done(struct rig_log *log);

#endif
