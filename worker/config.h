/* The settings of reins-worker: one row each in config.c. */
#ifndef REINS_WORKER_CONFIG_H
#define REINS_WORKER_CONFIG_H

#include "common/base/base.h"
#include "common/settings/settings.h"

struct worker_config {
	struct setting_list servers;
	char *id;
	int64_t slots;
	struct setting_list queues;
	struct setting_list labels; /* "key=value" */
	char *state_dir;
	bool forget;              /* what is left there is given up, and nothing else is done */
	char *log_level, *log_format;
	char *tls_ca, *tls_cert, *tls_key;
	char *token, *token_file;
	bool insecure;
	int64_t kill_grace_ns, orphan_timeout_ns, launch_failures;
	char *drain;              /* one of worker_drain_names */
	int64_t drain_timeout_ns, detach_for_ns;
	int64_t log_limit, spool_limit, metrics_limit;
	/* What programs may have; see confine.h. */
	int64_t memory, cpus, open_files; /* 0: not given */
	char *pids;                     /* "auto" or a number, from which follow: */
	int64_t pids_limit;             /* 0: none */
	bool pids_given;
	char *cgroup, *gpus, *device_dir;
	struct setting_list resources; /* "name=count" */
	char *run_as;                  /* NULL: as the worker */
	struct setting_list allow, inherit_env;
	bool allow_privileges;
};

/* What --drain takes, by enum worker_drain. */
enum worker_drain { WORKER_DRAIN_WAIT, WORKER_DRAIN_DETACH, WORKER_DRAIN_REQUEUE, WORKER_DRAINS };
extern const char *const worker_drain_names[WORKER_DRAINS];
enum worker_drain worker_config_drain(const struct worker_config *c);

extern const struct settings_program worker_program;

/* Fills in what has no fixed default (id, slots, state_dir) and checks what the table can't. -1 with a sentence. */
int worker_config_finish(struct worker_config *c, char *ret_err, size_t err_cap) MUST_CHECK;

#endif
