#include "server/engine/crash.h"

#ifdef REINS_CRASH_POINTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int crash_point_due(const char *name)
{
	static int seen;
	const char *want = getenv("REINS_CRASH_POINT");
	size_t len = strlen(name);
	if (!want || strncmp(want, name, len) != 0 || (want[len] && want[len] != ':'))
		return 0;
	long nth = want[len] ? strtol(want + len + 1, NULL, 10) : 1;
	return ++seen == nth;
}

void crash_now(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}
#else
/* ISO C wants a translation unit to hold something. */
extern int crash_points_are_off;
#endif
