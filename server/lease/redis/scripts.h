/* The Lua scripts.  Each touches keys of one slot only.  Those that take several tasks of one worker do so because a
 * script's start costs Redis more than what it does for a task. */
#ifndef REINS_LEASE_REDIS_SCRIPTS_H
#define REINS_LEASE_REDIS_SCRIPTS_H

/* Tasks given to one script: Lua's unpack puts its values on a stack that holds about 8,000. */
#define SCRIPT_TASKS_MAX 500

enum redis_script {
	SCRIPT_PREEMPT,       /* hb, hash; master, session, lease ms, slots, hash ms, then task and attempt of each → one
	                         digit for each: 0 taken, 1 newer session, 2 full */
	SCRIPT_OWN_FIELDS,    /* hb, hash; session, hash ms, then task and attempt of each */
	SCRIPT_RELEASE_OWNER, /* owner; worker, attempt */
	SCRIPT_DISOWN,        /* owner; all that it says */
	SCRIPT_RELEASE_FIELDS, /* hash; task and attempt of each */
	SCRIPT_BEAT,          /* hb, hash; master, session, lease ms, hash ms, then task and attempt of each held */
	SCRIPT_HB,            /* hb → nil, or its value and what PTTL says */
	SCRIPT_DROP_HASH,     /* hb, hash: the latter goes if the former is not there */
	SCRIPTS
};

extern const char *const redis_scripts[SCRIPTS];

#endif
