/* Paused queues: nothing of them is given out.
 *
 * The store keeps which they are.  Each answer to QUEUES names all of them, so a pause reaches every master within its reconcile
 * interval, and a new process before it gives out anything.  The master that was asked to pause one hears of it at once, and
 * says (CORE_DO_PAUSED) when nothing of the queue is on its way to a worker any more: what was being claimed is sent first.
 *
 * An answer may be older than what this master was told meanwhile: of two, the question's number decides. */
#include "server/core/internal.h"

#include <string.h>

static struct queue *from_paused(struct list *n) { return container_of(n, struct queue, link_paused); }

static void set(struct core *c, struct queue *q, bool on, const char *reason)
{
	if (!q->paused && !on)
		return;
	free(q->paused_reason);
	q->paused_reason = on && *reason ? xstrdup(reason) : NULL;
	if (q->paused == on)
		return;
	q->paused = on;
	if (on)
		list_push_back(&c->paused, &q->link_paused);
	else
		list_remove(&q->link_paused);
	window_order(c, q);
	queue_check(c, q);
}

void pause_on_pause(struct core *c, const struct core_event *ev)
{
	struct queue *q = queue_get(c, ev->pause.queue.queue);
	if (!q) {
		/* A queue too many: nothing of it was ever given out. */
		emit(c, CORE_DO_PAUSED)->queue = emit_text(c, ev->pause.queue.queue);
		return;
	}
	set(c, q, ev->pause.on, ev->pause.queue.reason ? ev->pause.queue.reason : "");
	q->pause_told = c->asked;
	if (list_empty(&q->link_pausing))
		list_push_back(&c->pausing, &q->link_pausing);
}

void pause_on_queues(struct core *c, const struct core_event *ev)
{
	for (size_t i = 0; i < ev->queues.n_paused; i++) {
		struct queue *q = queue_get(c, ev->queues.paused[i].queue);
		if (!q || q->pause_told >= c->asked)
			continue;
		q->pause_named = c->asked;
		set(c, q, true, ev->queues.paused[i].reason);
	}
	list_each(it, &c->paused) {
		struct queue *q = from_paused(it);
		if (q->pause_named != c->asked && q->pause_told < c->asked)
			set(c, q, false, "");
	}
}

void pause_tell(struct core *c)
{
	list_each(it, &c->pausing) {
		struct queue *q = container_of(it, struct queue, link_pausing);
#ifndef REINS_MUTATION_NO_PAUSE_WAIT /* tests/sim proves that it would notice */
		if (q->paused && q->n_in_flight)
			continue;
#endif
		list_remove(it);
		emit(c, CORE_DO_PAUSED)->queue = q->name;
	}
}
