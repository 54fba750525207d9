/* What the kernel says of this process. */
#ifndef REINS_PROCESS_H
#define REINS_PROCESS_H

#include "common/base/base.h"

struct process_stats {
	int64_t cpu_ns;
	int64_t resident_bytes, virtual_bytes; /* -1: not known */
	int64_t max_fds;                       /* -1: without a limit */
	/* -1: not known: the kernel is older than 6.2, so that they have to be counted, and there are many. */
	int64_t open_fds;
};
void process_stats_read(struct process_stats *ret);

#endif
