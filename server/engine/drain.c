/* Drains: the wishes of operators, which the store keeps.
 *
 * A wish reaches the worker's stream and the core in three ways: with the session that is opened; at once when it was
 * stored by this master; and from the list of all wishes, read once every recovery interval, when it was stored by another
 * one.  What they say may be older than what is known: a counter orders the questions and what was learnt. */
#include <stdio.h>
#include <string.h>

#include "server/engine/engine_impl.h"

#define PAGE 500

static bool same(const struct engine_drain *d, const struct store_drain_wish *w)
{
	return d->mode == w->mode && (d->mode == 0 || (d->within_ns == w->within_ns &&
						       strcmp(d->reason ? d->reason : "", w->reason ? w->reason : "") == 0));
}

static void keep(struct engine *e, struct engine_peer *p, const struct store_drain_wish *w)
{
	char *reason = w->mode && w->reason ? xstrdup(w->reason) : NULL;
	free(p->drain.reason);
	p->drain = (struct engine_drain){ w->mode, w->within_ns, reason, ++e->drain_clock };
}

static struct store_drain_wish wish_of(const struct engine_peer *p)
{
	return (struct store_drain_wish){ p->drain.mode, p->drain.within_ns, p->drain.reason };
}

void engine_drain_forget(struct engine_peer *p)
{
	free(p->drain.reason);
	p->drain = (struct engine_drain){ 0 };
}

void engine_drain_opened(struct engine *e, struct engine_peer *p, uint64_t asked_at, const struct store_drain_wish *wish)
{
	if (p->drain.told_at <= asked_at)
		keep(e, p, wish);
}

void engine_drain_welcome(struct engine_peer *p)
{
	struct store_drain_wish wish = wish_of(p);
	if (wish.mode)
		p->ops->drain(p, &wish);
}

static void tell_core(struct engine *e, const char *worker, const struct store_drain_wish *wish)
{
	struct core_event *ev = engine_event(e, CORE_EV_DRAIN_WISH);
	size_t size = strlen(worker) + 1;
	ev->drain_wish.worker = memcpy(engine_scratch(e, size), worker, size);
	ev->drain_wish.on = wish->mode != 0;
}

/* May end the peer's stream. */
static void learn(struct engine *e, struct engine_peer *p, const struct store_drain_wish *wish)
{
	bool news = !same(&p->drain, wish);
	keep(e, p, wish);
	if (news && p->welcomed)
		p->ops->drain(p, wish);
}

void engine_drained(struct engine *e, const struct store_drain *op)
{
	if (op->op.result != STORE_OK || !op->ret_found)
		return;
	tell_core(e, op->worker, &op->wish);
	for (struct map_node *n = map_first(&e->peers), *next; n; n = next) {
		next = map_next(&e->peers, n);
		struct engine_peer *p = container_of(n, struct engine_peer, by_id);
		if (strcmp(p->worker, op->worker) == 0)
			learn(e, p, &op->wish);
	}
}

/* ---- of other masters ---- */

static void read_page(struct engine *e);

static const struct store_drain_wish *find(const struct store_workers *page, const char *worker)
{
	for (size_t low = 0, high = page->ret_n; low < high;) {
		size_t at = (low + high) / 2;
		int r = strcmp(worker, page->ret_rows[at].id);
		if (r == 0)
			return &page->ret_rows[at].drain;
		if (r < 0)
			high = at;
		else
			low = at + 1;
	}
	return NULL;
}

/* All workers whose ids lie within the page: in it, or without a wish. */
static void compare(struct engine *e)
{
	static const struct store_drain_wish none = { 0, -1, NULL };
	const struct store_workers *page = &e->wishes;
	const char *last = page->ret_more && page->ret_n ? page->ret_rows[page->ret_n - 1].id : NULL;
	for (struct map_node *n = map_first(&e->peers), *next; n; n = next) {
		next = map_next(&e->peers, n);
		struct engine_peer *p = container_of(n, struct engine_peer, by_id);
		if (!p->welcomed || p->drain.told_at > e->wishes_round)
			continue;
		const char *worker = p->worker;
		if (strcmp(worker, e->wishes_after) <= 0 || (last && strcmp(worker, last) > 0))
			continue;
		const struct store_drain_wish *wish = find(page, worker);
		if (same(&p->drain, wish ? wish : &none))
			continue;
		tell_core(e, worker, wish ? wish : &none);
		learn(e, p, wish ? wish : &none);
	}
}

static void on_page(struct store_op *op)
{
	struct engine *e = container_of(op, struct engine, wishes.op);
	e->reading_wishes = false;
	bool more = op->result == STORE_OK && e->wishes.ret_more && e->wishes.ret_n;
	if (op->result == STORE_OK)
		compare(e);
	if (more)
		snprintf(e->wishes_after, sizeof(e->wishes_after), "%s", e->wishes.ret_rows[e->wishes.ret_n - 1].id);
	store_op_done_fields(op);
	if (more)
		read_page(e);
}

static void read_page(struct engine *e)
{
	e->reading_wishes = true;
	e->wishes = (struct store_workers){
		.op = { .kind = STORE_WORKERS, .done = on_page },
		.after = e->wishes_after,
		.drained = true,
		.limit = PAGE,
	};
	store_submit(e->store, &e->wishes.op);
}

void engine_drain_pulse(struct engine *e)
{
	int64_t now = loop_now_mono_ns(e->loop);
	if (e->reading_wishes || now < e->next_wishes_mono_ns || !e->opened || !e->store_state.state.up)
		return;
	e->next_wishes_mono_ns = now + e->core_config.recovery_ns;
	e->wishes_round = e->drain_clock;
	e->wishes_after[0] = '\0';
	read_page(e);
}
