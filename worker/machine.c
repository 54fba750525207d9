/* The table of machine.h.  A pair that is not written down is ACTION_ILLEGAL. */
#include "worker/machine.h"

#include <assert.h>

static const struct attempt_step table[ATTEMPT_STATES][ATTEMPT_EVENTS] = {
	[ATTEMPT_DISPATCHED] = {
		[EVENT_START] = {ATTEMPT_STARTING, ACTION_SPAWN},
		[EVENT_ADOPT] = {ATTEMPT_STARTING, ACTION_NONE},
		[EVENT_STOP] = {ATTEMPT_GONE, ACTION_REFUSE},
		[EVENT_RECALL] = {ATTEMPT_GONE, ACTION_REFUSE},
		[EVENT_FENCED] = {ATTEMPT_GONE, ACTION_FORGET},
	},
	[ATTEMPT_STARTING] = {
		[EVENT_SPAWN_FAILED] = {ATTEMPT_GONE, ACTION_REFUSE},
		[EVENT_EXEC_OK] = {ATTEMPT_RUNNING, ACTION_STARTED},
		[EVENT_EXEC_FAILED] = {ATTEMPT_STARTING, ACTION_LAUNCH_FAILED},
		[EVENT_STOP] = {ATTEMPT_STOPPING, ACTION_TERM},
		[EVENT_RECALL] = {ATTEMPT_STARTING, ACTION_NONE},
		[EVENT_STOPPING] = {ATTEMPT_STOPPING, ACTION_NONE},
		[EVENT_FENCED] = {ATTEMPT_STOPPING, ACTION_KILL},
		[EVENT_EXIT] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_DIED] = {ATTEMPT_CLEARING, ACTION_LOST},
	},
	[ATTEMPT_RUNNING] = {
		[EVENT_STOP] = {ATTEMPT_STOPPING, ACTION_TERM},
		[EVENT_RECALL] = {ATTEMPT_RUNNING, ACTION_NONE},
		[EVENT_STOPPING] = {ATTEMPT_STOPPING, ACTION_NONE},
		[EVENT_FENCED] = {ATTEMPT_STOPPING, ACTION_KILL},
		[EVENT_EXIT] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_DIED] = {ATTEMPT_CLEARING, ACTION_LOST},
	},
	[ATTEMPT_STOPPING] = {
		[EVENT_EXEC_OK] = {ATTEMPT_STOPPING, ACTION_STARTED},
		[EVENT_EXEC_FAILED] = {ATTEMPT_STOPPING, ACTION_LAUNCH_FAILED},
		[EVENT_STOP] = {ATTEMPT_STOPPING, ACTION_NONE},
		[EVENT_RECALL] = {ATTEMPT_STOPPING, ACTION_NONE},
		[EVENT_STOPPING] = {ATTEMPT_STOPPING, ACTION_NONE},
		[EVENT_KILL] = {ATTEMPT_STOPPING, ACTION_KILL},
		[EVENT_FENCED] = {ATTEMPT_STOPPING, ACTION_KILL},
		[EVENT_EXIT] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_DIED] = {ATTEMPT_CLEARING, ACTION_LOST},
	},
	[ATTEMPT_CLEARING] = {
		[EVENT_STOP] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_RECALL] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_KILL] = {ATTEMPT_CLEARING, ACTION_KILL},
		[EVENT_FENCED] = {ATTEMPT_CLEARING, ACTION_KILL},
		/* It saw the first process end: that is what the outcome tells. */
		[EVENT_DIED] = {ATTEMPT_CLEARING, ACTION_NONE},
		[EVENT_EMPTY] = {ATTEMPT_ENDED, ACTION_REPORT},
		[EVENT_EMPTY_FENCED] = {ATTEMPT_GONE, ACTION_FORGET},
		[EVENT_EMPTY_OWN] = {ATTEMPT_GONE, ACTION_REFUSE},
	},
	[ATTEMPT_ENDED] = {
		[EVENT_STOP] = {ATTEMPT_ENDED, ACTION_NONE},
		[EVENT_RECALL] = {ATTEMPT_ENDED, ACTION_NONE},
		[EVENT_FENCED] = {ATTEMPT_GONE, ACTION_FORGET},
		[EVENT_VERDICT] = {ATTEMPT_GONE, ACTION_FORGET},
	},
};

struct attempt_step attempt_step(enum attempt_state state, enum attempt_event event)
{
	assert(state < ATTEMPT_STATES && event < ATTEMPT_EVENTS);
	struct attempt_step step = table[state][event];
	if (step.action == ACTION_ILLEGAL)
		step.next = state;
	return step;
}

const char *attempt_state_name(enum attempt_state state)
{
	static const char *const names[ATTEMPT_STATES] = {
		"dispatched", "starting", "running", "stopping", "clearing", "ended", "gone",
	};
	return names[state];
}

const char *attempt_event_name(enum attempt_event event)
{
	static const char *const names[ATTEMPT_EVENTS] = {
		"start", "adopt", "spawn-failed", "exec-ok", "exec-failed", "stop", "recall", "stopping",
		"kill", "fenced", "exit", "died", "empty", "empty-fenced", "empty-own", "verdict",
	};
	return names[event];
}
