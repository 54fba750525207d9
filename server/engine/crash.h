/* Named crash points of the dispatch sequence, for tests: built with -Dcrash_points=true, the process kills itself
 * (SIGKILL) the N-th time that it comes to the point named by REINS_CRASH_POINT ("after-claim", "after-claim:3").
 * Nothing in a normal build. */
#ifndef REINS_CRASH_H
#define REINS_CRASH_H

#ifdef REINS_CRASH_POINTS
/* True the time that it is to happen; for points that lie behind a flush. */
int crash_point_due(const char *name);
void crash_now(void);
#define CRASH_POINT(name) do { if (crash_point_due(name)) crash_now(); } while (0)
#else
#define crash_point_due(name) 0
#define crash_now() ((void)0)
#define CRASH_POINT(name) ((void)0)
#endif

#endif
