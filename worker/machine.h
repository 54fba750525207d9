/* The life of an attempt at the worker, as a table: state × event -> next state, action.
 *
 *   DISPATCHED  accepted; waits for its turn to start, or for a lease that allows it
 *   STARTING    its supervisor has the job; the program does not run yet, or we have not heard of it
 *   RUNNING     the program runs
 *   STOPPING    a stop has begun, asked for by us or by the supervisor's own decision, and goes on whatever arrives
 *   CLEARING    the first process has ended, or the supervisor is dead: what is left of the tree is being ended
 *   ENDED       nothing of it runs; its outcome waits for a master's verdict
 *   GONE        forgotten
 *
 * It holds a slot up to CLEARING, and is listed in heartbeats up to ENDED. */
#ifndef REINS_WORKER_MACHINE_H
#define REINS_WORKER_MACHINE_H

#include "common/base/base.h"

enum attempt_state {
	ATTEMPT_DISPATCHED,
	ATTEMPT_STARTING,
	ATTEMPT_RUNNING,
	ATTEMPT_STOPPING,
	ATTEMPT_CLEARING,
	ATTEMPT_ENDED,
	ATTEMPT_GONE,
	ATTEMPT_STATES
};

enum attempt_event {
	EVENT_START,        /* its turn has come */
	EVENT_ADOPT,        /* an earlier agent has started it */
	EVENT_SPAWN_FAILED, /* no supervisor has it */
	EVENT_EXEC_OK,
	EVENT_EXEC_FAILED,  /* the program can't be started; EVENT_EXIT follows */
	EVENT_STOP,         /* asked for by a master, by a person, by a drain */
	EVENT_RECALL,       /* a stop for what was not started */
	EVENT_STOPPING,     /* the supervisor has begun a stop: time limit, lease, orphan, a signal to it */
	EVENT_KILL,         /* no more grace */
	EVENT_FENCED,       /* no longer ours; nobody waits for an outcome */
	EVENT_EXIT,         /* the first process has ended */
	EVENT_DIED,         /* the supervisor is dead, and has not said that the tree is empty */
	EVENT_EMPTY,        /* nothing is left of the tree */
	EVENT_EMPTY_FENCED, /* likewise, of an attempt that was fenced */
	EVENT_EMPTY_OWN,    /* likewise, of one that never ran, by the worker's fault */
	EVENT_VERDICT,      /* a master has answered the outcome */
	ATTEMPT_EVENTS
};

enum attempt_action {
	ACTION_ILLEGAL, /* the hole in the table: this event can't come in this state */
	ACTION_NONE,
	ACTION_SPAWN,
	ACTION_REFUSE,  /* answer Refused and forget: the program never ran */
	ACTION_FORGET,
	ACTION_STARTED,
	ACTION_LAUNCH_FAILED,
	ACTION_TERM,    /* tell the supervisor: SIGTERM, grace, SIGKILL */
	ACTION_KILL,    /* tell it: SIGKILL */
	ACTION_LOST,    /* how it ended can't be known */
	ACTION_REPORT,  /* write the outcome */
};

struct attempt_step {
	enum attempt_state next;
	enum attempt_action action;
};

struct attempt_step attempt_step(enum attempt_state state, enum attempt_event event);
const char *attempt_state_name(enum attempt_state state);
const char *attempt_event_name(enum attempt_event event);

static inline bool attempt_state_holds_slot(enum attempt_state s) { return s <= ATTEMPT_CLEARING; }

#endif
