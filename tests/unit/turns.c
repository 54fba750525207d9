#include "tests/unit/turns.h"

#include "common/base/clock.h"

static void on_guard(struct loop_timer *t)
{
	container_of(t, struct turns_guard, timer)->expired = true;
}

static void start(struct turns_guard *g, struct loop *loop, int64_t ns)
{
	g->expired = false;
	loop_timer_init(&g->timer, loop, on_guard);
	loop_timer_set(&g->timer, clock_mono_ns() + ns);
}

void turns_guard_start(struct turns_guard *g, struct loop *loop)
{
	start(g, loop, 30 * NS_PER_S);
}

void turns_guard_stop(struct turns_guard *g)
{
	loop_timer_stop(&g->timer);
}

void turns_for(struct loop *loop, int64_t ns)
{
	struct turns_guard g;
	start(&g, loop, ns);
	while (!g.expired)
		loop_turn(loop, true);
}
