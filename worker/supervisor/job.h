/* A job as the agent wrote it (struct sup_job_file and strings, wire.h), checked and taken apart. */
#ifndef REINS_SUPERVISOR_JOB_H
#define REINS_SUPERVISOR_JOB_H

#include "common/base/base.h"
#include "worker/supervisor/wire.h"

#define JOB_BYTES_MAX (8 * 1024 * 1024) /* words and environment; the kernel takes less */
#define JOB_JOIN_MAX 16                 /* cgroups; there are about a dozen controllers */

struct job {
	struct sup_job_file f;
	char *block;                      /* what the strings below lie in */
	char **pointers;                  /* what the lists below lie in */
	const char *directory, *search_path, *user;
	char **join, **argv, **envp;      /* NULL ends each */
};

/* Takes `block`, allocated with malloc, `len` bytes.  -EINVAL or -ENOMEM with the reason in words; then nothing is to be
 * freed but what job_done frees, and that may be called. */
int job_parse(struct job *j, char *block, size_t len, char ret_text[static SUP_TEXT_MAX]) MUST_CHECK;
/* The same, of all that the descriptor's file holds. */
int job_read(struct job *j, int fd, char ret_text[static SUP_TEXT_MAX]) MUST_CHECK;
void job_done(struct job *j);

#endif
