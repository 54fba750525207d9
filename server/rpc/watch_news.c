/* Which attempts have new points, for those who watch: gathered, and told by one operation a second at most.  The store knows
 * whether somebody watches, at whichever master; where nobody does it writes nothing. */
#include <stdlib.h>
#include <string.h>

#include "server/rpc/rpc.h"
#include "server/store/store_events.h"

#define EVERY_NS (1 * NS_PER_S)
#define WAITING_MAX 65536 /* 20 bytes each; beyond that an attempt's next points tell of these */

struct watch_news {
	struct rpc *rpc;
	struct core_attempt *waiting, *told; /* told: the operation's; NULL: none is on its way */
	size_t n, cap;
	bool squeezed; /* what is there twice was looked for since the last operation */
	int64_t told_mono_ns; /* 0: never */
	struct store_news op;
	struct loop_timer timer;
};

static int by_attempt(const void *a, const void *b)
{
	const struct core_attempt *x = a, *y = b;
	int c = uuid_cmp(&x->task, &y->task);
	return c ? c : (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

static void squeeze(struct watch_news *w)
{
	size_t n = 0;
	qsort(w->waiting, w->n, sizeof(*w->waiting), by_attempt);
	for (size_t i = 0; i < w->n; i++)
		if (!n || by_attempt(&w->waiting[n - 1], &w->waiting[i]) != 0)
			w->waiting[n++] = w->waiting[i];
	w->n = n;
	w->squeezed = true;
}

static void add(struct watch_news *w, const struct core_attempt *at)
{
	if (w->n == WAITING_MAX && !w->squeezed)
		squeeze(w);
	if (w->n == WAITING_MAX)
		return;
	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 64;
		struct core_attempt *more = realloc(w->waiting, cap * sizeof(*more));
		if (!more)
			return;
		w->waiting = more;
		w->cap = cap;
	}
	w->waiting[w->n++] = *at;
}

static void wake(struct watch_news *w)
{
	int64_t now = loop_now_mono_ns(w->rpc->loop);
	if (w->n && !w->told && !loop_timer_active(&w->timer))
		loop_timer_set(&w->timer, w->told_mono_ns ? max_i64(now, w->told_mono_ns + EVERY_NS) : now);
}

static void on_told(struct store_op *op)
{
	struct watch_news *w = container_of(op, struct watch_news, op.op);
	for (size_t i = 0; op->result == STORE_UNAVAILABLE && i < w->op.n; i++)
		add(w, &w->told[i]);
	free(w->told);
	w->told = NULL;
	wake(w);
}

static void on_timer(struct loop_timer *t)
{
	struct watch_news *w = container_of(t, struct watch_news, timer);
	squeeze(w);
	w->told = w->waiting;
	w->op = (struct store_news){.op = {.kind = STORE_NEWS, .done = on_told}, .at = w->told, .n = w->n};
	w->waiting = NULL;
	w->n = w->cap = 0;
	w->squeezed = false;
	w->told_mono_ns = loop_now_mono_ns(w->rpc->loop);
	store_submit(engine_store(w->rpc->engine), &w->op.op);
}

void watch_news(struct rpc *rpc, const struct core_attempt *at)
{
	struct watch_news *w = rpc->news;
	if (!w) {
		w = rpc->news = xcalloc(1, sizeof(*w));
		w->rpc = rpc;
		loop_timer_init(&w->timer, rpc->loop, on_timer);
	}
	add(w, at);
	wake(w);
}

void watch_news_free(struct watch_news *w)
{
	if (!w)
		return;
	loop_timer_stop(&w->timer);
	free(w->waiting);
	free(w->told);
	free(w);
}
