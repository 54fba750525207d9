/* Pausing a queue: stored, told to the core, and done when the core says that nothing of it is on its way any more. */
#include <string.h>

#include "server/engine/engine_impl.h"

static void finish(struct engine_pause *p)
{
	list_remove(&p->node);
	p->done(p);
}

static void on_stored(struct store_op *op)
{
	struct engine_pause *p = container_of(op, struct engine_pause, op.op);
	struct engine *e = p->engine;
	if (op->result != STORE_OK || (p->op.on && !p->op.ret_done)) {
		finish(p);
		return;
	}
	const char *reason = p->op.on && p->op.reason ? p->op.reason : "";
	size_t name_size = strlen(p->op.queue) + 1, reason_size = strlen(reason) + 1;
	struct core_event *ev = engine_event(e, CORE_EV_PAUSE);
	ev->pause.queue.queue = memcpy(engine_scratch(e, name_size), p->op.queue, name_size);
	ev->pause.queue.reason = memcpy(engine_scratch(e, reason_size), reason, reason_size);
	ev->pause.on = p->op.on;
	p->told = true;
}

void engine_pause(struct engine *e, struct engine_pause *p)
{
	p->engine = e;
	p->told = false;
	list_push_back(&e->pausing, &p->node);
	p->op.op.kind = STORE_PAUSE;
	p->op.op.done = on_stored;
	store_submit(e->store, &p->op.op);
}

void engine_paused(struct engine *e, const char *queue)
{
	list_each(it, &e->pausing) {
		struct engine_pause *p = container_of(it, struct engine_pause, node);
		if (p->told && strcmp(p->op.queue, queue) == 0)
			finish(p);
	}
}

void engine_pause_end(struct engine *e)
{
	struct list *n;
	while ((n = list_pop_front(&e->pausing))) {
		struct engine_pause *p = container_of(n, struct engine_pause, node);
		p->done(p);
	}
}
