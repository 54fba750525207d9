/* Why a task waits: each connected worker is looked at once, and the first thing that all of them lack is said. */
#include "server/core/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"

/* A counted resource that is asked for, and the most that a worker which could run the task has. */
struct asked {
	const char *text;
	size_t len;
	const struct name *name; /* NULL: nobody has it */
	int64_t n, most;
};

struct survey {
	const struct queue *queue;  /* NULL: nobody named it yet */
	const struct name *handler; /* NULL: nobody has it */
	struct asked asked[CORE_CUSTOM_ENTRIES];
	size_t n_asked;
	/* How many workers passed this far. */
	int connected, serve, run, enforce, fit, take, fit_now;
	int run_elsewhere;          /* they would run it, but not of this queue */
	int64_t free_slots;
	struct core_need most;
	bool any_cpu;
	uint64_t away; /* one that fits and takes nothing; 0: none */
};

static bool has_handler(const struct worker *w, const struct name *handler)
{
	const struct pool *p = w->pool;
	for (size_t i = 0; handler && i < p->n_handlers; i++)
		if (p->key[1 + p->n_queues + i] == handler)
			return true;
	return false;
}

static bool runs(const struct survey *s, const struct core_task *t, const struct worker *w)
{
	return t->handler && *t->handler ? has_handler(w, s->handler) : w->pool->runs_commands;
}

static bool takes_queue(const struct survey *s, const struct worker *w)
{
	return w->pool->n_queues == 0 || (s->queue && pool_serves(w->pool, s->queue));
}

/* `now`: of what is free; else of all that it has. */
static bool has_all(const struct survey *s, const struct core_task *t, const struct worker *w, bool now)
{
	static const struct usage none = { 0 };
	const struct core_need *need = &t->need, *have = &w->capacity.have;
	const struct usage *used = now ? &w->used_need : &none;
	if ((need->gpus && need->gpus > have->gpus - used->gpus) ||
	    (have->cpu_millis && need->cpu_millis > have->cpu_millis - used->cpu_millis) ||
	    (need->memory_bytes && need->memory_bytes > have->memory_bytes - used->memory_bytes))
		return false;
	for (size_t i = 0; i < s->n_asked; i++) {
		wide left = 0;
		for (size_t k = 0; k < w->n_stock; k++)
			if (w->stock[k].name == s->asked[i].name)
				left = w->stock[k].have - (now ? w->stock[k].used : 0);
		if (s->asked[i].n > left)
			return false;
	}
	return true;
}

static void note_most(struct survey *s, const struct worker *w)
{
	const struct core_need *have = &w->capacity.have;
	s->most.gpus = have->gpus > s->most.gpus ? have->gpus : s->most.gpus;
	s->most.cpu_millis = have->cpu_millis > s->most.cpu_millis ? have->cpu_millis : s->most.cpu_millis;
	s->most.memory_bytes = max_i64(s->most.memory_bytes, have->memory_bytes);
	s->any_cpu |= have->cpu_millis == 0;
	for (size_t i = 0; i < s->n_asked; i++)
		for (size_t k = 0; k < w->n_stock; k++)
			if (w->stock[k].name == s->asked[i].name)
				s->asked[i].most = max_i64(s->asked[i].most, w->stock[k].have);
}

static void look_at(struct survey *s, const struct core_task *t, const struct worker *w)
{
	s->connected++;
	bool would = runs(s, t, w);
	s->run_elsewhere += would;
	if (!takes_queue(s, w))
		return;
	s->serve++;
	if (!would)
		return;
	s->run++;
	if (t->exclusive && !w->pool->enforces)
		return;
	s->enforce++;
	note_most(s, w);
	if (w->capacity.slots < 1 || !has_all(s, t, w, false))
		return;
	s->fit++;
	if (worker_drains(w)) {
		s->away = s->away ? s->away : w->peer;
		return;
	}
	s->take++;
	int32_t left = w->capacity.slots - w->used;
	s->free_slots += left > 0 ? left : 0;
	s->fit_now += heap_has(&w->free) && left > 0 && has_all(s, t, w, true);
}

static void survey(const struct core *c, const struct core_task *t, struct survey *s)
{
	struct map_node *q = map_get(&c->queues, t->queue, strlen(t->queue));
	s->queue = q ? container_of(q, struct queue, node) : NULL;
	s->handler = t->handler ? name_find(c, t->handler, strlen(t->handler)) : NULL;
	for (const char *at = t->custom && *t->custom ? t->custom : NULL; at && s->n_asked < CORE_CUSTOM_ENTRIES;) {
		struct asked *a = &s->asked[s->n_asked++];
		at = custom_next(at, &a->text, &a->len, &a->n);
		a->name = name_find(c, a->text, a->len);
	}
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		const struct worker *w = container_of(n, struct worker, node);
		if (w->peer)
			look_at(s, t, w);
	}
}

/* ---- words ---- */

struct words {
	char *at;
	size_t cap;
};

/* True: something was said. */
static bool say(struct words *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool say(struct words *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w->at, w->cap, fmt, ap);
	va_end(ap);
	return true;
}

/* Nobody is there who would run it, whatever it needs. */
static bool say_nobody(const struct core *c, const struct survey *s, const struct core_task *t, struct words *w)
{
	bool handler = t->handler && *t->handler;
	if (!c->store_up)
		return say(w, "the store is away");
	if (!s->connected)
		return say(w, "no worker is connected");
	if (!s->serve)
		return say(w, "no connected worker takes queue \"%s\"", t->queue);
	if (!s->run && !s->run_elsewhere)
		return handler ? say(w, "no connected worker has handler \"%s\"", t->handler)
			       : say(w, "no connected worker runs commands");
	if (!s->run)
		return handler ? say(w, "no connected worker that takes queue \"%.160s\" has handler \"%s\"", t->queue, t->handler)
			       : say(w, "no connected worker that takes queue \"%s\" runs commands", t->queue);
	if (!s->enforce)
		return say(w, "exclusive: no connected worker that could run it enforces leases");
	return false;
}

static bool say_needs(const struct survey *s, const struct core_task *t, struct words *w)
{
	const struct core_need *need = &t->need, *most = &s->most;
	char asked[40], largest[40];
	if (need->gpus > most->gpus)
		return say(w, "needs gpus=%d; the largest connected worker has %d", (int)need->gpus, (int)most->gpus);
	if (!s->any_cpu && need->cpu_millis > most->cpu_millis)
		return say(w, "needs cpus=%g; the largest connected worker has %g", need->cpu_millis / 1000.0,
			   most->cpu_millis / 1000.0);
	num_format_size(need->memory_bytes, asked, sizeof asked);
	num_format_size(most->memory_bytes, largest, sizeof largest);
	if (need->memory_bytes > most->memory_bytes && most->memory_bytes == 0)
		return say(w, "needs memory=%s; no connected worker enforces memory limits", asked);
	if (need->memory_bytes > most->memory_bytes)
		return say(w, "needs memory=%s; the largest connected worker has %s", asked, largest);
	for (size_t i = 0; i < s->n_asked; i++) {
		const struct asked *a = &s->asked[i];
		if (a->n > a->most)
			return say(w, "needs %.*s=%" PRId64 "; the largest connected worker has %" PRId64, (int)a->len, a->text, a->n,
				   a->most);
	}
	if (!s->fit)
		return say(w, "no single connected worker has all that it needs");
	return false;
}

/* Of its queue, in the window: what lies behind the window comes later anyway. */
static size_t ahead_of(const struct core *c, const struct core_task *t)
{
	const struct map_node *n = map_get(&c->queues, t->queue, strlen(t->queue));
	const struct queue *q = n ? container_of(n, struct queue, node) : NULL;
	const struct row_key key = { t->priority, t->seq };
	size_t ahead = 0;
	for (size_t i = 0; q && i < q->worst.len; i++) {
		const struct job *j = container_of(q->worst.at[i], struct job, worst);
		ahead += key_before((struct row_key){ j->t.priority, j->t.seq }, key);
	}
	return ahead;
}

void core_why_pending(const struct core *c, const struct core_task *t, bool place, uint64_t *ret_peer, char *ret_text, size_t cap)
{
	struct survey s = { 0 };
	struct words w = { ret_text, cap };
	*ret_peer = 0;
	if (cap)
		ret_text[0] = '\0';
	const struct map_node *n = map_get(&c->queues, t->queue, strlen(t->queue));
	const struct queue *q = n ? container_of(n, struct queue, node) : NULL;
	if (c->store_up && q && q->paused) {
		say(&w, "queue paused%s%s", q->paused_reason ? ": " : "", q->paused_reason ? q->paused_reason : "");
		return;
	}
	survey(c, t, &s);
	if (say_nobody(c, &s, t, &w) || say_needs(&s, t, &w) || s.fit_now)
		return;
	if (!s.take) {
		say(&w, "every worker that fits is draining or has paused (%d connected)", s.fit);
		*ret_peer = s.away;
		return;
	}
	say(&w, "all fitting workers are busy (%d connected, %" PRId64 " free slots)", s.take, s.free_slots);
	size_t ahead = place ? ahead_of(c, t) : 0, len = strlen(ret_text);
	if (ahead)
		snprintf(ret_text + len, cap - len, "; %zu tasks of its queue are ahead", ahead);
}

static bool same_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

bool core_same_wants(const struct core_task *a, const struct core_task *b)
{
	return same_text(a->queue, b->queue) && same_text(a->handler, b->handler) && same_text(a->custom, b->custom) &&
	       a->exclusive == b->exclusive && a->need.gpus == b->need.gpus && a->need.cpu_millis == b->need.cpu_millis &&
	       a->need.memory_bytes == b->need.memory_bytes;
}
