/* The store or the lease table, as something that comes and goes: its state, and the log's lines about it.
 *
 * One line when it goes and one when it is back; what becomes of it in between (other reasons, tries) is said nowhere but in
 * the state.  What comes and goes all the time has a line every DEPENDENCY_LINES_EVERY at the most, after the first few; what
 * was left out is counted, and the last state is always told in the end. */
#ifndef REINS_DEPENDENCY_H
#define REINS_DEPENDENCY_H

#include "common/base/availability.h"

#define DEPENDENCY_LINES_EVERY (10 * NS_PER_S)
#define DEPENDENCY_LINES_AT_ONCE 10

struct dependency {
	struct availability state;
	const char *area, *consequence; /* "store", ", going on without" */
	bool told, told_up;
	int64_t told_mono_ns;  /* of the change that was told last */
	int64_t credit_mono_ns; /* lines not written since then may be */
	int64_t changes;       /* since a line was written */
};

void dependency_init(struct dependency *d, const char *area, const char *consequence, int64_t now_mono_ns);
/* Notes, and writes a line if there is one to write. */
void dependency_set(struct dependency *d, bool up, const char *text, int64_t now_mono_ns);
/* To be called now and then: writes what had to wait. */
void dependency_tell(struct dependency *d, int64_t now_mono_ns);

#endif
