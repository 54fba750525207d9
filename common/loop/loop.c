/* Owns the libuv loop, the dirty lists, the graves and the heap of timers.
 *
 * A turn straddles libuv's iterations: libuv polls, calls the sockets, goes round, calls the
 * timers, and then our prepare handle, which is the last thing before the next poll.  So prepare is
 * where the flush and the burial happen, and where the one uv timer is armed for the top of our
 * heap.  libuv's clock is coarse and in milliseconds: when its timer fires we look at the real
 * clock and arm again for what is not due yet. */
#include "common/loop/loop.h"

#include <assert.h>
#include <signal.h>
#include <uv.h>

#include "common/base/clock.h"

struct loop {
	uv_loop_t uv;
	uv_prepare_t prepare;
	uv_timer_t timer; /* active exactly while the heap has elements, once armed */
	uv_idle_t idle;   /* active while something is left dirty: no sleep then */
	struct list dirty[LOOP_PHASES];
	struct list graves;
	struct heap timers;
	uint64_t timer_seq;
	uint64_t turn;
	int64_t now;
	bool now_fresh;
	int64_t looked_mono_ns; /* when the last turn ended, and how long it had slept in all by then */
	uint64_t slept_ns;
	struct loop_stats stats;
	bool stopped;
	bool single;    /* inside loop_turn */
	bool had_input; /* and timers have fired before libuv got to its poll: it must not sleep any more */
};

static void read_clock(struct loop *loop)
{
	loop->now = clock_mono_ns();
	loop->now_fresh = true;
}

int64_t loop_now_mono_ns(const struct loop *loop)
{
	if (!loop->now_fresh)
		read_clock((struct loop *)loop);
	return loop->now;
}

uint64_t loop_turn_number(const struct loop *loop)
{
	return loop->turn;
}

struct uv_loop_s *loop_uv(struct loop *loop)
{
	return &loop->uv;
}

/* ---- flush ---- */

void loop_dirty_init(struct loop_dirty *d, enum loop_phase phase, void (*flush)(struct loop_dirty *))
{
	list_init(&d->node);
	d->phase = phase;
	d->flush = flush;
}

void loop_mark(struct loop *loop, struct loop_dirty *d)
{
	if (list_empty(&d->node))
		list_push_back(&loop->dirty[d->phase], &d->node);
}

void loop_unmark(struct loop_dirty *d)
{
	list_remove(&d->node);
}

static bool is_dirty(const struct loop *loop)
{
	for (int phase = 0; phase < LOOP_PHASES; phase++)
		if (!list_empty(&loop->dirty[phase]))
			return true;
	return false;
}

static void flush_phase(struct loop *loop, enum loop_phase phase)
{
	/* Taken off as one, so that what is marked from here on waits for the next round. */
	struct list batch, *n;
	list_init(&batch);
	list_splice_back(&batch, &loop->dirty[phase]);
	while ((n = list_pop_front(&batch))) {
		struct loop_dirty *d = container_of(n, struct loop_dirty, node);
		d->flush(d);
	}
}

static void flush(struct loop *loop)
{
	read_clock(loop);
	for (int round = 0; round < LOOP_MAX_ROUNDS && is_dirty(loop); round++)
		for (int phase = 0; phase < LOOP_PHASES; phase++)
			flush_phase(loop, phase);
}

void loop_bury(struct loop *loop, struct loop_grave *g, void (*free)(struct loop_grave *))
{
	g->free = free;
	list_push_back(&loop->graves, &g->node);
}

static void bury_all(struct loop *loop)
{
	struct list *n;
	while ((n = list_pop_front(&loop->graves))) {
		struct loop_grave *g = container_of(n, struct loop_grave, node);
		g->free(g);
	}
}

/* ---- timers ---- */

static bool due_before(const struct heap_node *na, const struct heap_node *nb)
{
	const struct loop_timer *a = container_of(na, struct loop_timer, heap);
	const struct loop_timer *b = container_of(nb, struct loop_timer, heap);
	return a->due_mono_ns != b->due_mono_ns ? a->due_mono_ns < b->due_mono_ns : a->seq < b->seq;
}

void loop_timer_init(struct loop_timer *t, struct loop *loop, void (*fire)(struct loop_timer *))
{
	*t = (struct loop_timer){ .loop = loop, .fire = fire };
	heap_node_init(&t->heap);
	list_init(&t->firing);
}

void loop_timer_set(struct loop_timer *t, int64_t due_mono_ns)
{
	list_remove(&t->firing);
	t->due_mono_ns = due_mono_ns;
	t->seq = t->loop->timer_seq++;
	if (heap_has(&t->heap))
		heap_update(&t->loop->timers, &t->heap);
	else
		heap_push(&t->loop->timers, &t->heap);
}

void loop_timer_stop(struct loop_timer *t)
{
	list_remove(&t->firing);
	heap_remove(&t->loop->timers, &t->heap);
}

bool loop_timer_active(const struct loop_timer *t)
{
	return heap_has(&t->heap) || !list_empty(&t->firing);
}

static struct loop_timer *next_timer(struct loop *loop)
{
	struct heap_node *top = heap_top(&loop->timers);
	return top ? container_of(top, struct loop_timer, heap) : NULL;
}

static void on_uv_timer(uv_timer_t *h)
{
	struct loop *loop = container_of(h, struct loop, timer);
	struct loop_timer *t;
	struct list firing, *n;

	read_clock(loop);
	loop->had_input = loop->single;
	/* All that is due is taken off first: a timer that sets itself to the past again fires once a turn. */
	list_init(&firing);
	while ((t = next_timer(loop)) && t->due_mono_ns <= loop->now) {
		heap_remove(&loop->timers, &t->heap);
		list_push_back(&firing, &t->firing);
	}
	while ((n = list_pop_front(&firing))) {
		t = container_of(n, struct loop_timer, firing);
		if (t->due_mono_ns > 0) /* 0: in the next turn, nobody waited */
			histogram_add(&loop->stats.late, loop->now - t->due_mono_ns);
		t->fire(t);
	}
}

static void arm(struct loop *loop)
{
	struct loop_timer *t = next_timer(loop);
	if (!t) {
		uv_timer_stop(&loop->timer);
		return;
	}
	int64_t left = t->due_mono_ns - clock_mono_ns();
	uint64_t ms = left > 0 ? ((uint64_t)left + NS_PER_MS - 1) / NS_PER_MS : 0;
	uv_update_time(&loop->uv);
	uv_timer_start(&loop->timer, on_uv_timer, ms, 0);
}

/* ---- the turn ---- */

static void on_idle(uv_idle_t *h)
{
}

static void count_turn(struct loop *loop)
{
	int64_t now = clock_mono_ns();
	uint64_t slept = uv_metrics_idle_time(&loop->uv);
	int64_t busy = max_i64(now - loop->looked_mono_ns - (int64_t)(slept - loop->slept_ns), 0);
	loop->looked_mono_ns = now;
	loop->slept_ns = slept;
	loop->stats.busy_ns += busy;
	histogram_add(&loop->stats.turns, busy);
}

void loop_stats(const struct loop *loop, struct loop_stats *ret)
{
	*ret = loop->stats;
}

static void end_turn(struct loop *loop)
{
	flush(loop);
	bury_all(loop);
	if (is_dirty(loop) || loop->had_input)
		uv_idle_start(&loop->idle, on_idle);
	else
		uv_idle_stop(&loop->idle);
	arm(loop);
	count_turn(loop);
	loop->turn++;
	loop->now_fresh = false;
}

static void on_prepare(uv_prepare_t *h)
{
	end_turn(container_of(h, struct loop, prepare));
}

void loop_run(struct loop *loop)
{
	while (!loop->stopped) {
		/* libuv looks at its handles before it calls prepare, so what it can't see is made ready here. */
		end_turn(loop);
		uv_run(&loop->uv, UV_RUN_DEFAULT);
		if (!loop->stopped && !uv_loop_alive(&loop->uv) && !is_dirty(loop) && !next_timer(loop))
			break;
	}
	end_turn(loop);
	loop->stopped = false;
}

void loop_stop(struct loop *loop)
{
	loop->stopped = true;
	uv_stop(&loop->uv);
}

void loop_turn(struct loop *loop, bool wait)
{
	if (is_dirty(loop))
		wait = false;
	end_turn(loop);
	loop->single = true;
	uv_run(&loop->uv, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
	loop->single = loop->had_input = false;
	end_turn(loop);
}

int loop_new(struct loop **ret)
{
	struct loop *loop = xcalloc(1, sizeof(*loop));
	int rc = uv_loop_init(&loop->uv);
	if (rc < 0) {
		free(loop);
		return rc;
	}
	(void)uv_loop_configure(&loop->uv, UV_METRICS_IDLE_TIME); /* without it a turn would count its sleep */
	loop->looked_mono_ns = clock_mono_ns();
	uv_prepare_init(&loop->uv, &loop->prepare);
	uv_prepare_start(&loop->prepare, on_prepare);
	uv_unref((uv_handle_t *)&loop->prepare);
	uv_timer_init(&loop->uv, &loop->timer);
	uv_idle_init(&loop->uv, &loop->idle);
	for (int phase = 0; phase < LOOP_PHASES; phase++)
		list_init(&loop->dirty[phase]);
	list_init(&loop->graves);
	heap_init(&loop->timers, due_before);
	signal(SIGPIPE, SIG_IGN);
	*ret = loop;
	return 0;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	bury_all(loop);
	uv_close((uv_handle_t *)&loop->prepare, NULL);
	uv_close((uv_handle_t *)&loop->timer, NULL);
	uv_close((uv_handle_t *)&loop->idle, NULL);
	/* The closing handles, ours and those of freed polls, are gone after a round; what their callbacks
	 * bury may close more. */
	for (int round = 0; round < 100 && uv_run(&loop->uv, UV_RUN_NOWAIT); round++)
		bury_all(loop);
	assert(list_empty(&loop->graves) && !is_dirty(loop) && !next_timer(loop));
	int rc = uv_loop_close(&loop->uv);
	assert(rc == 0); /* somebody's handle was left open */
	(void)rc;
	heap_done(&loop->timers);
	free(loop);
}
