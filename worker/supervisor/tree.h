/* The processes of an attempt: all descendants of this process, which is their subreaper, and those in the attempt's
 * cgroup.  Ends them and proves them gone.
 *
 * A descendant whose parent has ended becomes our child, whatever sessions and groups it made: so when there is no child
 * left (ECHILD) there is no descendant left.  Fork bombs lose because all are stopped before any is killed. */
#ifndef REINS_SUPERVISOR_TREE_H
#define REINS_SUPERVISOR_TREE_H

#include "common/base/base.h"

struct tree {
	int first;        /* its first process; 0: none, or it was reaped */
	int first_status; /* of waitpid, once first_reaped */
	bool first_reaped;
	bool childless;   /* waitpid said ECHILD */
	char **cgroups;   /* all, owned; NULL ends them */
	const char *kill_cgroup, *oom_cgroup; /* of these, or NULL */
	unsigned rounds;  /* of tree_kill */
};

/* Copies the paths; may be called once. -ENOMEM. */
int tree_init(struct tree *t, char *const *cgroups, int kill_index, int oom_index) MUST_CHECK;
void tree_done(struct tree *t);

/* Reaps what has ended. */
void tree_reap(struct tree *t);
/* Each process gets SIGTERM once, and then SIGCONT. */
void tree_term(struct tree *t);
/* One round of SIGKILL. */
void tree_kill(struct tree *t);
/* The proof, as of the last tree_reap. */
bool tree_is_empty(const struct tree *t);
/* How many processes are left, not counting those that have ended; `ret_text` names some. */
int tree_left(const struct tree *t, char *ret_text, size_t cap);

/* The oom_kill counter; 0 without one. */
int tree_oom_kills(const struct tree *t);
/* Removes the cgroups, and those that were made in them. False: one is still there. */
bool tree_remove_cgroups(struct tree *t);

#endif
