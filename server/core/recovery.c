/* RunningTaskRecovery, the rows' half: running rows of sessions that nobody holds.  The keys' half is keys.c.
 *
 * A sweep reads all running rows, page after page.  Those that this core holds are left alone; the sessions of the
 * others are remembered with the time since which nothing spoke for them, and their rows are taken back when that is
 * long enough.  The take-back names attempt and session: who adopted the row in the meantime keeps it. */
#include "server/core/internal.h"

#include <string.h>

/* A session that somebody else opened, or this master before it was started again. */
struct stray {
	struct map_node node;
	uint64_t sweep;        /* the last that met it */
	int64_t since;         /* nothing spoke for it: met first, or the beat of its master changed */
	int64_t incarnation, beat;
	char *master;
	uint8_t key[];          /* session, worker */
};

#define KEY_MAX (sizeof(int64_t) + CORE_NAME_MAX)

static size_t make_key(const struct core_stray *row, uint8_t ret[static KEY_MAX])
{
	size_t len = min_sz(strlen(row->worker), CORE_NAME_MAX);
	memcpy(ret, &row->session, sizeof(row->session));
	memcpy(ret + sizeof(row->session), row->worker, len);
	return sizeof(row->session) + len;
}

static void stray_free(struct core *c, struct stray *s)
{
	map_remove(&c->recovery.seen, &s->node);
	free(s->master);
	free(s);
}

/* NULL: too many are remembered; in a later sweep. */
static struct stray *meet(struct core *c, const struct core_stray *row)
{
	uint8_t key[KEY_MAX];
	size_t len = make_key(row, key);
	struct map_node *n = map_get(&c->recovery.seen, key, len);
	struct stray *s = n ? container_of(n, struct stray, node) : NULL;
	if (!s && c->recovery.seen.len >= (size_t)c->cfg.max_workers)
		return NULL;
	if (!s) {
		s = xcalloc(1, sizeof(*s) + len);
		s->since = c->now;
		s->master = xstrdup(row->master);
		memcpy(s->key, key, len);
		map_put(&c->recovery.seen, &s->node, s->key, len);
	} else if (strcmp(s->master, row->master) != 0) {
		free(s->master);
		s->master = xstrdup(row->master);
		s->since = c->now;
	} else if (!row->own && (s->beat != row->beat || s->incarnation != row->incarnation)) {
		s->since = c->now;
	}
	s->beat = row->beat;
	s->incarnation = row->incarnation;
	s->sweep = c->recovery.sweep;
	return s;
}

static bool held(const struct core *c, const struct core_stray *row)
{
	const struct job *j = job_by_attempt(c, row->at);
	if (j && j->session >= row->session)
		return true;
	j = job_by_task(c, &row->at.task);
	return j && (j->state == JOB_INSERTING || j->state == JOB_CLAIMING);
}

static void take_back(struct core *c, const struct core_stray *row)
{
	struct core_effect *f = emit(c, CORE_DO_TAKE_BACK);
	f->at = row->at;
	f->session = row->session;
	f->cause = CORE_CAUSE_WORKER_LOST;
	f->counted = true;
	size_t size = strlen(row->worker) + 1;
	char *worker = emit_alloc(c, size);
	memcpy(worker, row->worker, size);
	f = emit(c, CORE_DO_RELEASE);
	f->at = row->at;
	f->session = row->session;
	f->worker = worker;
	keys_expect(c);
}

static void look_at(struct core *c, const struct core_stray *row)
{
	const struct worker *w = worker_find(c, row->worker);
	if (held(c, row) || (w && (w->opening || w->next || w->session == row->session)))
		return;
	if (w && w->peer && w->session > row->session && !row->exclusive) {
		/* Claimed for a session that had been replaced already: it was never sent, or nobody answers for it. */
		take_back(c, row);
		return;
	}
	const struct stray *s = meet(c, row);
	if (!s)
		return;
#ifndef REINS_MUTATION_NO_DETACHED_STRAYS /* tests/sim proves that it would notice */
	if (row->detached_ns > 0 && !row->exclusive)
		return;
#endif
	int64_t quiet = c->now - max_i64(s->since, c->recovery.since);
	int64_t lease = max_i64(row->lease_ns, c->cfg.lease_ttl_ns);
	int64_t ttl = row->own ? 0 : row->exclusive ? c->cfg.master_ttl_exclusive_ns : c->cfg.master_ttl_ns;
#ifdef REINS_MUTATION_NO_STRAY_WAIT /* tests/sim proves that it would notice */
	quiet = INT64_MAX;
#endif
	if (quiet >= ttl && quiet - ttl >= lease)
		take_back(c, row);
}

/* ---- sweeps ---- */

static void ask(struct core *c)
{
	struct core_effect *f = emit(c, CORE_DO_STRAYS);
	f->at.task = c->recovery.after;
	f->limit = c->cfg.fill;
	c->recovery.asking = true;
}

static void forget_unmet(struct core *c)
{
	for (struct map_node *n = map_first(&c->recovery.seen), *next; n; n = next) {
		next = map_next(&c->recovery.seen, n);
		struct stray *s = container_of(n, struct stray, node);
		if (s->sweep != c->recovery.sweep)
			stray_free(c, s);
	}
}

void recovery_on_timer(struct core *c)
{
	timer_set(c, &c->recovery.timer, c->now + c->cfg.recovery_ns);
#ifdef REINS_MUTATION_NO_RECOVERY
	return;
#endif
	if (c->recovery.asking || !c->store_up)
		return;
	c->recovery.sweep++;
	memset(&c->recovery.after, 0, sizeof(c->recovery.after));
	ask(c);
}

void recovery_on_strays(struct core *c, const struct core_event *ev)
{
	c->recovery.asking = false;
	if (!ev->strays.ok || !c->store_up)
		return;
	for (size_t i = 0; i < ev->strays.n; i++)
		look_at(c, &ev->strays.at[i]);
	if (ev->strays.n < (size_t)c->cfg.fill) {
		forget_unmet(c);
		return;
	}
	c->recovery.after = ev->strays.at[ev->strays.n - 1].at.task;
	ask(c);
}

/* ---- time that does not count ---- */

void recovery_stalled(struct core *c, int64_t ns)
{
	c->recovery.since += ns;
	for (struct map_node *n = map_first(&c->recovery.seen); n; n = map_next(&c->recovery.seen, n))
		container_of(n, struct stray, node)->since += ns;
}

void recovery_store_back(struct core *c, int64_t away_ns)
{
	if (away_ns > c->cfg.lease_ttl_ns / 10)
		c->recovery.since = c->now; /* all begin anew */
	else
		recovery_stalled(c, away_ns);
	if (!c->recovery.asking)
		timer_set(c, &c->recovery.timer, c->now);
}

/* ---- life ---- */

void recovery_init(struct core *c)
{
	timer_init(&c->recovery.timer, TIMER_RECOVERY);
	map_init(&c->recovery.seen);
	c->recovery.since = c->now;
	timer_set(c, &c->recovery.timer, c->now);
}

void recovery_done(struct core *c)
{
	for (struct map_node *n = map_first(&c->recovery.seen), *next; n; n = next) {
		next = map_next(&c->recovery.seen, n);
		stray_free(c, container_of(n, struct stray, node));
	}
	map_done(&c->recovery.seen);
}
