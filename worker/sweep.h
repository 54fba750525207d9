/* Ends what is left of attempts whose supervisors are dead: they are found by what their environment says, and by their
 * cgroups where they have any. */
#ifndef REINS_WORKER_SWEEP_H
#define REINS_WORKER_SWEEP_H

#include "common/base/base.h"
#include "common/base/list.h"
#include "common/loop/loop.h"
#include "worker/state_dir.h"

/* Sends SIGKILL to every process of ours whose environment names this worker and one of the attempts ("ID.N"), once.
 * Counts those of each into found[]. May be called on any thread. */
void sweep_processes(const char *worker_id, const char (*names)[STATE_ATTEMPT_NAME_MAX], size_t n, int *found);

struct sweeper;

struct sweep_target {
	/* Two looks after each other found nothing. Not from inside a call. */
	void (*on_swept)(struct sweep_target *t);
	/* `n` processes live on though they were sent SIGKILL for some seconds; it goes on. */
	void (*on_stuck)(struct sweep_target *t, int n);
	/* private */
	struct list node;
	char name[STATE_ATTEMPT_NAME_MAX];
	int64_t since_mono_ns;
	int clean; /* looks that found nothing */
	int said;
};

/* `end_cgroups` (may be NULL): 0: gone; -EBUSY: something lives; called on the loop. */
struct sweeper *sweeper_new(struct loop *loop, const char *worker_id, int (*end_cgroups)(void *arg, const char *name), void *arg);
/* No look may be under way: sweeper_idle. NULL-safe. */
void sweeper_free(struct sweeper *s);
bool sweeper_idle(const struct sweeper *s);
void sweep_target_init(struct sweep_target *t, void (*on_swept)(struct sweep_target *), void (*on_stuck)(struct sweep_target *, int));
void sweeper_add(struct sweeper *s, struct sweep_target *t, const char *name);
/* No-op for one that was not added. */
void sweeper_remove(struct sweeper *s, struct sweep_target *t);

#endif
