/* The Lua scripts.  Each touches keys of one slot only. */
#ifndef REINS_LEASE_REDIS_SCRIPTS_H
#define REINS_LEASE_REDIS_SCRIPTS_H

enum redis_script {
	SCRIPT_PREEMPT,       /* hb, hash; master, session, lease ms, slots, task, attempt, hash ms → 0 taken, 1 newer session, 2 full */
	SCRIPT_OWN_FIELD,     /* hb, hash; session, task, attempt, hash ms */
	SCRIPT_RELEASE_OWNER, /* owner; attempt */
	SCRIPT_RELEASE_FIELD, /* hash; task, attempt */
	SCRIPT_BEAT,          /* hb, hash; master, session, lease ms, hash ms, then task and attempt of each held */
	SCRIPT_HB,            /* hb → nil, or its value and what PTTL says */
	SCRIPTS
};

extern const char *const redis_scripts[SCRIPTS];

#endif
