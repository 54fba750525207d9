/* For tests on a real loop: turns until a condition holds, with a deadline against hanging. */
#ifndef REINS_TEST_TURNS_H
#define REINS_TEST_TURNS_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/loop/loop.h"

struct turns_guard {
	struct loop_timer timer;
	bool expired;
};

void turns_guard_start(struct turns_guard *g, struct loop *loop);
void turns_guard_stop(struct turns_guard *g);

/* Fails the test when `cond` doesn't hold within 30 s. */
#define TURNS_UNTIL(loop, cond)                         \
	do {                                            \
		struct turns_guard guard_;              \
		turns_guard_start(&guard_, (loop));     \
		while (!(cond) && !guard_.expired)      \
			loop_turn((loop), true);        \
		turns_guard_stop(&guard_);              \
		assert_true(cond);                      \
	} while (0)

/* Turns until `ns` have gone by: for what must not happen. */
void turns_for(struct loop *loop, int64_t ns);

#endif
