/* When a tree is to be ended, and why: deadlines and wishes as a state × event table.  No I/O, reads no clock.
 *
 *   ENDING_RUN   the program runs, nobody has asked for its end
 *   ENDING_TERM  SIGTERM was sent; kill_boot_ns says when SIGKILL follows
 *   ENDING_KILL  SIGKILL, again and again until the tree is empty
 *   ENDING_DONE  the tree is empty
 *
 * A state never goes back. */
#ifndef REINS_SUPERVISOR_ENDING_H
#define REINS_SUPERVISOR_ENDING_H

#include "common/base/base.h"
#include "worker/supervisor/wire.h"

enum ending_state { ENDING_RUN, ENDING_TERM, ENDING_KILL, ENDING_DONE, ENDING_STATES };

enum ending_event {
	ENDING_STOP,       /* the agent's SUP_STOP */
	ENDING_SIGNAL,     /* SIGTERM to the supervisor */
	ENDING_TIMEOUT,
	ENDING_ORPHAN,
	ENDING_LEASE_TERM,
	ENDING_LEASE_KILL,
	ENDING_GRACE_OVER,
	ENDING_FIRST_EXIT, /* the first process has ended, or never was. The rest keeps the grace of a stop that has begun */
	ENDING_EMPTY,      /* proof that nothing of the tree is left */
	ENDING_EVENTS,
};

enum ending_action { ENDING_NOTHING, ENDING_SEND_TERM, ENDING_SEND_KILL, ENDING_FINISH };

struct ending {
	enum ending_state state;
	enum sup_stopped_by stopped_by;
	struct sup_deadlines deadlines;
	bool connected;        /* to an agent */
	bool lease_stop;       /* SIGTERM for the lease was due: the kill moves no more, but to earlier */
	int64_t kill_boot_ns;  /* in ENDING_TERM */
	int64_t timeout_boot_ns;
	int64_t kill_grace_ns; /* the job's */
};

/* No deadline, connected. */
void ending_init(struct ending *e, int64_t kill_grace_ns);
/* A renewal.  What has begun goes on. */
void ending_renew(struct ending *e, const struct sup_deadlines *d);
/* `grace_ns` counts for events that begin a stop; below 0: the job's. */
enum ending_action ending_step(struct ending *e, enum ending_event event, int64_t grace_ns, int64_t now_boot_ns);
/* The next moment at which ending_due will have something to say; SUP_NEVER: none. */
int64_t ending_next(const struct ending *e);
/* When the lease wants SIGKILL at the latest, by what has come so far; SUP_NEVER once the tree is empty. */
int64_t ending_lease_kill(const struct ending *e);
/* Which deadline has passed; ENDING_EVENTS: none.  To be given to ending_step, then asked again. */
enum ending_event ending_due(const struct ending *e, int64_t now_boot_ns);

#endif
