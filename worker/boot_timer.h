/* A timer on CLOCK_BOOTTIME: it runs on while the machine is suspended, and fires at once when it wakes. */
#ifndef REINS_WORKER_BOOT_TIMER_H
#define REINS_WORKER_BOOT_TIMER_H

#include "common/base/base.h"
#include "common/loop/loop.h"

struct boot_timer;

int boot_timer_new(struct loop *loop, void (*fire)(void *arg), void *arg, struct boot_timer **ret) MUST_CHECK;
/* INT64_MAX stops it. One in the past fires in the next turn. */
void boot_timer_set(struct boot_timer *t, int64_t due_boot_ns);
void boot_timer_free(struct boot_timer *t); /* NULL-safe */

#endif
