/* A deadline of the core: all are in one heap, which core_next_deadline looks at. */
#ifndef REINS_CORE_TIMER_H
#define REINS_CORE_TIMER_H

#include "common/base/heap.h"

#define NEVER INT64_MAX

enum timer_kind { TIMER_WORKER, TIMER_JOB, TIMER_RECONCILE, TIMER_DUE, TIMER_EXPIRE, TIMER_PAUSE, TIMER_RECOVERY,
		  TIMER_KEYS };
struct timer {
	struct heap_node node;
	int64_t at;
	enum timer_kind kind;
};

#endif
