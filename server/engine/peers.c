/* Workers' streams, and what they say, as events for the core: texts and lists are copied, since the core looks at them in
 * its next step. */
#include <stdio.h>
#include <string.h>

#include "server/engine/engine_impl.h"

struct engine_peer *engine_peer_find(struct engine *e, uint64_t id)
{
	struct map_node *n = id ? map_get(&e->peers, &id, sizeof(id)) : NULL;
	return n ? container_of(n, struct engine_peer, by_id) : NULL;
}

void engine_peer_add(struct engine *e, struct engine_peer *p, const struct engine_peer_ops *ops)
{
	*p = (struct engine_peer){ .ops = ops, .id = ++e->next_peer };
	list_init(&p->dirty);
	map_put(&e->peers, &p->by_id, &p->id, sizeof(p->id));
}

void engine_peer_gone(struct engine *e, struct engine_peer *p)
{
	if (!p->id)
		return;
	list_remove(&p->dirty);
	map_remove(&e->peers, &p->by_id);
	engine_event(e, CORE_EV_PEER_GONE)->peer = p->id;
	free(p->adopted);
	p->adopted = NULL;
	engine_drain_forget(p);
	blob_unref(p->hello);
	p->hello = NULL;
	p->id = 0;
}

static struct core_attempt *copy_attempts(struct engine *e, const struct core_attempt *at, size_t n)
{
	struct core_attempt *copy = engine_scratch(e, n * sizeof(*copy));
	if (n)
		memcpy(copy, at, n * sizeof(*copy));
	return copy;
}

static const char *copy_text(struct engine *e, const char *s)
{
	size_t size = strlen(s) + 1;
	return memcpy(engine_scratch(e, size), s, size);
}

static const char *const *copy_texts(struct engine *e, const char *const *at, size_t n)
{
	const char **texts = engine_scratch(e, n * sizeof(*texts));
	for (size_t i = 0; i < n; i++)
		texts[i] = copy_text(e, at[i]);
	return texts;
}

void engine_retried(struct engine *e, const struct store_retry *op)
{
	if (op->op.result != STORE_OK || op->ret_verdict != STORE_RETRY_DONE)
		return;
	engine_news(e, &op->id, false);
	if (op->ret_state != STORE_PENDING)
		return;
	struct core_task *row = engine_scratch(e, sizeof(*row));
	*row = op->ret_task;
	row->queue = copy_text(e, row->queue);
	row->handler = row->handler ? copy_text(e, row->handler) : NULL;
	row->custom = row->custom ? copy_text(e, row->custom) : NULL;
	struct core_event *ev = engine_event(e, CORE_EV_READY);
	ev->due_in_ns = op->ret_due_in_ns;
	ev->ready.at = row;
	ev->ready.n = 1;
}

void engine_hello(struct engine *e, struct engine_peer *p, const struct core_event *hello, struct blob *hello_info)
{
	snprintf(p->worker, sizeof(p->worker), "%s", hello->hello.worker);
	p->hello = blob_ref(hello_info);
	struct core_event *ev = engine_event(e, CORE_EV_HELLO);
	ev->hello = hello->hello;
	ev->peer = p->id;
	ev->hello.worker = copy_text(e, hello->hello.worker);
	ev->hello.held = copy_attempts(e, hello->hello.held, hello->hello.n_held);
	ev->hello.queues = copy_texts(e, hello->hello.queues, hello->hello.n_queues);
	ev->hello.handlers = copy_texts(e, hello->hello.handlers, hello->hello.n_handlers);
	if (hello->hello.capacity.custom)
		ev->hello.capacity.custom = copy_text(e, hello->hello.capacity.custom);
}

void engine_heartbeat(struct engine *e, struct engine_peer *p, int64_t number, int64_t last_dispatch,
		      const struct core_attempt *held, size_t n)
{
	struct core_event *ev = engine_event(e, CORE_EV_HEARTBEAT);
	ev->peer = p->id;
	ev->heartbeat.number = number;
	ev->heartbeat.last_dispatch = last_dispatch;
	ev->heartbeat.held = copy_attempts(e, held, n);
	ev->heartbeat.n_held = n;
}

void engine_refused(struct engine *e, struct engine_peer *p, const struct core_attempt *at, const char *text)
{
	struct core_event *ev = engine_event(e, CORE_EV_REFUSED);
	ev->peer = p->id;
	ev->at = *at;
	ev->text = copy_text(e, text);
}

void engine_attempt_event(struct engine *e, struct engine_peer *p, enum core_event_type type, const struct core_attempt *at)
{
	struct core_event *ev = engine_event(e, type);
	ev->peer = p->id;
	ev->at = *at;
}

void engine_draining(struct engine *e, struct engine_peer *p, bool on, int64_t detach_ns)
{
	struct core_event *ev = engine_event(e, CORE_EV_DRAINING);
	ev->peer = p->id;
	ev->draining.on = on;
	ev->draining.detach_ns = detach_ns;
}

void engine_outcome(struct engine *e, struct engine_peer *p, struct engine_outcome *o)
{
	o->engine = e;
	o->peer = p->id;
	list_push_back(&e->fresh_outcomes, &o->node);
	struct core_event *ev = engine_event(e, CORE_EV_OUTCOME);
	ev->peer = p->id;
	ev->token = (uint64_t)(uintptr_t)o;
	ev->at = o->rec.at;
	ev->outcome.succeeded = o->rec.outcome == STORE_SUCCEEDED;
	ev->outcome.given_back = o->rec.outcome == STORE_STOPPED || o->rec.outcome == STORE_WORKER_LOST;
}
