/* The agent: holds the parts together and decides when the process ends. */
#ifndef REINS_WORKER_AGENT_H
#define REINS_WORKER_AGENT_H

#include "common/base/base.h"
#include "common/loop/loop.h"
#include "worker/config.h"

struct agent;

/* -1 with a sentence. `supervisor`: the path of reins-supervisor. */
int agent_new(struct loop *loop, const struct worker_config *cfg, const char *supervisor, long open_files, char *ret_err,
	      size_t err_cap, struct agent **ret) MUST_CHECK;
void agent_start(struct agent *a);
/* SIGTERM or SIGINT: the first begins to drain, the second applies --drain at once. */
void agent_signal(struct agent *a);
/* SIGHUP: the TLS files are read again. */
void agent_reload(struct agent *a);
/* After loop_run: the exit code of the process. */
int agent_exit_code(const struct agent *a);
void agent_free(struct agent *a); /* NULL-safe */

#endif
