/* What programs of this worker may have and do, in one place: resources and GPUs (resources.h), cgroups (cgroup.h), the
 * user, the allow list and the environment.
 *
 *   at the start        confine_new; then confine_adopt for each attempt that lives on; then confine_sweep
 *   a task comes        resources_take(&c->resources, …); its holding goes with the attempt
 *   it is started       confine_launch, after launch_make
 *   its tree is empty   resources_give_back
 *   its supervisor died confine_end until it returns 0
 */
#ifndef REINS_WORKER_CONFINE_H
#define REINS_WORKER_CONFINE_H

#include "common/base/base.h"
#include "worker/cgroup.h"
#include "worker/config.h"
#include "worker/launch.h"
#include "worker/resources.h"
#include "worker/run_as.h"
#include "worker/state_dir.h"

struct confine {
	const struct worker_config *cfg;
	struct resources resources;
	struct cgroups *cgroups;
	struct run_as run_as;
};

/* Looks for GPUs and cgroups (blocks; the agent may move into another cgroup, so before it starts anything), and gives
 * the state directory to the user of --run-as as far as programs need it. -1 with a sentence. */
int confine_new(const struct worker_config *cfg, struct state_dir *state, char *ret_err, size_t err_cap,
		struct confine **ret) MUST_CHECK;
void confine_free(struct confine *c); /* NULL-safe */
/* Lines for the log at the start; each is a few hundred bytes at most. */
void confine_describe(const struct confine *c, void (*say)(void *arg, const char *line), void *arg);

/* "NAME=value" that programs get of the worker's environment: an array, NULL at its end, to be freed; its strings belong
 * to environ or are in *ret_own, to be freed with that array. */
char **confine_environment(const struct confine *c, char ***ret_own) MUST_CHECK;

/* Fills in what the supervisor is to do: cgroups (made here), user, limits, what may be searched for the program; and
 * CUDA_VISIBLE_DEVICES.  `name`: of the attempt's directory.  -errno with a sentence for the outcome; *ret_own: it is
 * this worker's own fault, not the task's.  Nothing is left behind then. */
int confine_launch(struct confine *c, const char *name, const struct holding *h, struct launch *l, char *ret_err,
		   size_t err_cap, bool *ret_own) MUST_CHECK;
/* An attempt that was not started after all, or whose supervisor is dead: ends what is in its cgroups and removes them.
 * 0: gone (or there never were any); -EBUSY: again in a moment. */
int confine_end(struct confine *c, const char *name) MUST_CHECK;
/* Ends what attempts that nobody knows left in their cgroups. Blocks. Returns how many can't be ended. */
int confine_sweep(struct confine *c, bool (*is_known)(void *arg, const char *name), void *arg, int64_t limit_ns) MUST_CHECK;

/* For the outcome of an attempt whose cgroup counted processes killed for want of memory. `limit`: 0 for none. */
void confine_oom_text(int64_t limit, char *ret_text, size_t cap);

#endif
