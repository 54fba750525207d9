/* The three clocks.  Names of times say which one: _mono_ns, _boot_ns, _wall_us. */
#ifndef REINS_CLOCK_H
#define REINS_CLOCK_H

#include "common/base/base.h"

/* Deadlines on masters; stands still while the machine is suspended. */
int64_t clock_mono_ns(void);
/* Deadlines on workers: a suspended machine's lease has run out too. */
int64_t clock_boot_ns(void);
/* For people and for storage only: microseconds since 1970. */
int64_t clock_wall_us(void);

/* RFC 3339 with milliseconds, UTC: 2026-11-29T12:00:00.000Z */
#define CLOCK_TEXT_LEN 24
void clock_format_wall(int64_t wall_us, char ret_text[static CLOCK_TEXT_LEN + 1]);

#endif
