/* The list of effects of one step, and the arena that backs their arrays until the list is cleared. */
#include "server/core/internal.h"

#include <string.h>

#define BLOCK_MIN (16 * 1024)
#define KEEP_MAX (256 * 1024) /* a larger block is given back when the list is cleared */

struct block {
	struct block *next;
	size_t used, cap;
	uint8_t data[] __attribute__((aligned(16)));
};

void core_effects_init(struct core_effects *e)
{
	*e = (struct core_effects){ 0 };
}

void core_effects_clear(struct core_effects *e)
{
	for (size_t i = 0; i < e->n; i++)
		blob_unref(e->at[i].spec);
	e->n = 0;
	/* The newest block is the largest: it alone is kept. */
	struct block *b = e->arena;
	while (b && (b->next || b->cap > KEEP_MAX)) {
		struct block *next = b->next;
		if (next && b->cap <= KEEP_MAX) {
			b->next = next->next;
			free(next);
		} else {
			free(b);
			b = next;
		}
	}
	if (b)
		b->used = 0;
	e->arena = b;
}

void core_effects_done(struct core_effects *e)
{
	core_effects_clear(e);
	free(e->arena);
	free(e->at);
	*e = (struct core_effects){ 0 };
}

void *emit_alloc(struct core *c, size_t n)
{
	struct core_effects *e = c->out;
	n = (n + 15) & ~(size_t)15;
	struct block *b = e->arena;
	if (!b || b->cap - b->used < n) {
		size_t cap = max_sz(n, b ? b->cap * 2 : BLOCK_MIN);
		struct block *fresh = xcalloc(1, sizeof(*fresh) + cap);
		fresh->cap = cap;
		fresh->next = b;
		e->arena = b = fresh;
	}
	void *p = b->data + b->used;
	b->used += n;
	return p;
}

const char *emit_text(struct core *c, const char *text)
{
	size_t size = strlen(text) + 1;
	return memcpy(emit_alloc(c, size), text, size);
}

struct core_effect *emit(struct core *c, enum core_effect_type type)
{
	struct core_effects *e = c->out;
	e->at = xgrow(e->at, e->n, &e->cap, sizeof(*e->at));
	struct core_effect *f = &e->at[e->n++];
	*f = (struct core_effect){ .type = type };
	return f;
}

struct core_effect *emit_worker(struct core *c, enum core_effect_type type, const struct worker *w)
{
	/* The instance is copied: a session that opens later in the same step may change the worker's. */
	uint8_t *instance = emit_alloc(c, CORE_INSTANCE_LEN);
	memcpy(instance, w->instance, CORE_INSTANCE_LEN);
	struct core_effect *f = emit(c, type);
	f->worker = w->id;
	f->instance = instance;
	f->session = w->session;
	f->peer = w->peer;
	return f;
}

void emit_close(struct core *c, uint64_t peer, enum core_close_code code)
{
	struct core_effect *f = emit(c, CORE_DO_CLOSE_PEER);
	f->peer = peer;
	f->close = code;
}

void emit_stop(struct core *c, const struct worker *w, struct core_attempt at, enum core_stop_reason why)
{
	struct core_effect *f = emit_worker(c, CORE_DO_STOP, w);
	f->at = at;
	f->stop = why;
}

/* renewTaskOwnerTtl: the lease table renews the owner keys of what runs of this list, and writes those it lacks.  What is
 * reserved has none before its claim is committed, and what was taken back while its worker holds it is another's by now:
 * both only take their slots. */
void emit_lease_beat(struct core *c, struct worker *w)
{
	struct core_attempt *held = emit_alloc(c, w->n_jobs * sizeof(*held));
	size_t n = 0, n_slots = w->n_jobs;
	list_each(it, &w->jobs) {
		const struct job *j = container_of(it, struct job, at_worker);
		if (job_owns(j))
			held[n++] = job_at(j);
		else if (j->holds)
			held[--n_slots] = job_at(j);
	}
	size_t n_owned = n;
	while (n_slots < w->n_jobs)
		held[n++] = held[n_slots++];
	struct core_effect *f = emit_worker(c, CORE_DO_LEASE_BEAT, w);
	f->held = held;
	f->n_held = n;
	f->n_owned = n_owned;
	f->slots = w->capacity.slots;
	f->lease_ns = w->lease_ns;
}
