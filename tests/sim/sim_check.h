/* What is checked.
 *
 * Always:
 *   each attempt's outcome is recorded at most once, and not after a retry has closed it
 *   a task is COMPLETED only if its worker really finished that attempt with success
 *   what a worker was told is recorded the store has; what it was told is not its own is not
 *   what a client was told is accepted the store has
 *   an exclusive task never runs twice at a time, whatever the clocks' rates
 *   who takes an attempt back for its lease's end has listened and reached its store all through it
 *   nobody takes one back from another master's session while the lease table shows him that this session lives, nor
 *   sooner than a whole lease after that master was taken over
 *   a cancel reaches whoever holds the worker (looked at once, a while after the last fault)
 *   a worker that an operator drains is given nothing
 *   nothing is dispatched from a paused queue after the master that paused it has answered, nor by one that began later, nor
 *   by any that had long enough to find out
 *   who left its programs running loses none of them before the time that it asked for, exclusive ones excepted
 *   no worker holds more than it has slots and counted resources for, or what it can't run; nor one attempt twice
 *   no row of a session that stands runs nowhere, for longer than RunningTaskRecovery takes to find out
 *   the core's own bookkeeping (core_check), after every step
 *
 * At the end:
 *   each accepted task gets exactly one terminal record, and none is lost
 *   no worker holds anything any more
 *   no key of the lease table is without its running row, a recovery interval and a lease after all has ended
 *   and all of that came within HEALED_END of the last fault */
#ifndef REINS_SIM_CHECK_H
#define REINS_SIM_CHECK_H

struct drains_before {
	bool was[SIM_WORKERS], off[SIM_WORKERS];
};
/* Around a step of the core: what it was told, and what it wants done. */
void check_before(struct sim *s, struct master *m, const struct core_event *ev, int n, struct drains_before *ret);
void check_after(struct sim *s, struct master *m, const struct core_event *ev, int n, const struct drains_before *before);
void check_starts(struct sim *s, const struct sim_worker *w, const struct run *r);
void check_given(struct sim *s, const struct sim_worker *w, const struct run *fresh);
void check_told(struct sim *s, const struct sim_worker *w, const struct core_effect *f);
void check_accepted(struct sim *s, int row);
/* After a client's retry no attempt from before may change anything. */
void check_open(struct sim *s, const struct row *r, const char *what);
void check_wishes(struct sim *s);
void check_nowhere(struct sim *s);
bool check_ended(const struct sim *s);
void check_end(struct sim *s);

#endif
