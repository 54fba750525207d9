/* RunningTaskRecovery, the keys' half: keys of the lease table that no row answers for.
 *
 * A key outlives its row when a release is lost (the table did not answer, or was over its limit) or was never sent (the
 * master died between two steps).  A round goes through all keys, page after page:
 *
 *   owner keys    those of attempts that run here, by this core's own memory, are left alone; of the others the store says
 *                 which have a RUNNING row of that worker, and the rest is deleted.
 *   hashes        one without an hb is deleted: no master beats for that worker.  One with an hb is left: the next beat sets
 *                 it anew, or the hb ends by its TTL.
 *
 * Neither takes anything away from a master that is in the middle of a dispatch.  Its reservation is a field of a hash, and
 * preempt writes hb with it; an owner key is written only when the claim has been committed, so whoever reads the key before
 * he asks for the row finds the row.  What is void stays void: an attempt runs again only under a newer session, which
 * is part of the owner key, and disown compares all of it.  And should a key go that is right (hb had ended while its
 * worker lives: a master that stood still), nothing comes of it: the table only ever holds work back, a missing key proves
 * nothing, and the next beat writes it.
 *
 * Keys that a row lacks are the beats' to write, which name all that a session holds, within one heartbeat interval.  For a
 * running row of a session that nobody holds none is written: nobody has heard of that worker, a key made from the row
 * would say that somebody did, and whether the row is still right is what the other half (recovery.c) finds out.
 *
 * The load is bounded whatever else is in the table, which may hold millions of keys that are not ours and cost a look
 * each: one page at a time, few a second.  A round then takes as long as it takes; a small table's fits into
 * one recovery interval. */
#include "server/core/internal.h"

#include <string.h>

#define BUSY_GAP (10 * NS_PER_MS) /* between two pages of a busy round: about 25,000 keys a second, a few percent of Redis */
#define CALM_PAGES 20             /* in one recovery interval */

static int64_t gap(const struct core *c)
{
	int64_t calm = max_i64(c->cfg.recovery_ns / CALM_PAGES, BUSY_GAP);
	return c->keys.round_at < c->keys.busy_until ? BUSY_GAP : calm;
}

/* Of the next page, which may be the first of a round: one round in a recovery interval, however much happens. */
static int64_t next_at(const struct core *c)
{
	int64_t at = c->now + gap(c);
	return c->keys.cursor ? at : max_i64(at, c->keys.round_at + c->cfg.recovery_ns);
}

static void next_page(struct core *c, uint64_t cursor)
{
	c->keys.asking = false;
	c->keys.cursor = cursor;
	timer_set(c, &c->keys.timer, next_at(c));
}

/* What is at fault now may be held by an hb for one lease more. */
void keys_expect(struct core *c)
{
	struct keys *k = &c->keys;
	k->busy_until = max_i64(k->busy_until, c->now + c->cfg.lease_ttl_ns + c->cfg.recovery_ns);
	if (!k->asking)
		timer_set(c, &k->timer, min_i64(k->timer.at, next_at(c)));
}

void keys_on_timer(struct core *c)
{
	struct keys *k = &c->keys;
#ifdef REINS_MUTATION_NO_KEY_SWEEP /* tests/sim proves that it would notice */
	return;
#endif
	if (k->asking || !c->store_up || !c->lease_up)
		return; /* keys_expect begins again */
	if (!k->cursor)
		k->round_at = c->now;
	k->asking = true;
	emit(c, CORE_DO_KEYS)->cursor = k->cursor;
}

static bool runs_here(const struct core *c, const struct core_owner *o)
{
	const struct job *j = job_by_attempt(c, o->at);
	return j && job_owns(j) && strcmp(j->worker->id, o->worker) == 0;
}

void keys_on_page(struct core *c, const struct core_event *ev)
{
	if (!ev->keys.ok) {
		next_page(c, 0);
		return;
	}
	for (size_t i = 0; i < ev->keys.n_hashes; i++)
		emit(c, CORE_DO_DROP_HASH)->worker = emit_text(c, ev->keys.hashes[i]);
	struct core_owner *doubtful = emit_alloc(c, ev->keys.n * sizeof(*doubtful));
	size_t n = 0;
	for (size_t i = 0; i < ev->keys.n; i++) {
		if (runs_here(c, &ev->keys.at[i]))
			continue;
		doubtful[n] = ev->keys.at[i];
		doubtful[n].worker = emit_text(c, doubtful[n].worker);
		n++;
	}
	if (!n) {
		next_page(c, ev->keys.next);
		return;
	}
	struct core_effect *f = emit(c, CORE_DO_RUNS);
	f->cursor = ev->keys.next;
	f->owners = doubtful;
	f->n_owners = n;
}

void keys_on_runs(struct core *c, const struct core_event *ev)
{
	for (size_t i = 0; ev->runs.ok && i < ev->runs.n; i++) {
		if (ev->runs.runs[i])
			continue;
		const struct core_owner *o = &ev->runs.at[i];
		struct core_effect *f = emit(c, CORE_DO_DISOWN);
		f->at = o->at;
		f->session = o->session;
		f->worker = emit_text(c, o->worker);
	}
	next_page(c, ev->runs.ok ? ev->runs.next : 0);
}

void keys_init(struct core *c)
{
	timer_init(&c->keys.timer, TIMER_KEYS);
	/* None began yet: the first begins as soon as store and table are there. */
	c->keys.round_at = c->now - c->cfg.recovery_ns;
	keys_expect(c);
}
