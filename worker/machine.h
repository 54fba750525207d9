/* The life of an attempt at the worker, as a table: state × event -> next state, action.
 *
 *   DISPATCHED  accepted; waits for its turn to start, or for a lease that allows it
 *   STARTING    its first process exists and has not become the program yet
 *   RUNNING     the program runs
 *   STOPPING    a stop has begun and goes on whatever arrives: SIGTERM, grace, SIGKILL
 *   CLEARING    the first process has ended; what is left of its group is killed, pipes are read out
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
	EVENT_SPAWN_FAILED, /* there is no process */
	EVENT_EXEC_OK,
	EVENT_EXEC_FAILED,  /* the first process says so and is about to exit */
	EVENT_STOP,         /* asked for by a master, by a person, by a drain */
	EVENT_RECALL,       /* a stop for what was not started */
	EVENT_TIMEOUT,      /* spec.timeout */
	EVENT_LEASE,        /* the exclusive lease is about to end */
	EVENT_KILL,         /* grace is over */
	EVENT_FENCED,       /* no longer ours; nobody waits for an outcome */
	EVENT_EXIT,         /* the first process has ended */
	EVENT_EMPTY,        /* nothing is left of the group, pipes are read out */
	EVENT_EMPTY_FENCED, /* likewise, of an attempt that was fenced */
	EVENT_VERDICT,      /* a master has answered the outcome */
	ATTEMPT_EVENTS
};

enum attempt_action {
	ACTION_ILLEGAL, /* the hole in the table: this event can't come in this state */
	ACTION_NONE,
	ACTION_SPAWN,
	ACTION_REFUSE,  /* answer Refused{STOPPED} and forget */
	ACTION_FORGET,
	ACTION_STARTED,
	ACTION_LAUNCH_FAILED,
	ACTION_TERM,    /* SIGTERM to the group; EVENT_KILL follows when grace is over */
	ACTION_KILL,    /* SIGKILL to the group */
	ACTION_CLEAR,
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
