/* RunningTaskRecovery, the rows' half: the running rows against this master's memory, and against who holds their sessions.
 * The keys' half is keys.c.
 *
 * A sweep reads all running rows, page after page.
 *
 * A row of a session that this core holds has its job here: then only a wish to cancel is sent again, which may have come by
 * another master or been lost with a stream.  Without a job in two sweeps it is taken into memory, where heartbeats decide.
 *
 * The other sessions are remembered with the time since which nothing spoke for them.  Those of this master's own id, from
 * before it was started, are judged after a whole lease; exclusive ones not before an earlier process under this id, if it still
 * is there and can't know of this one, has given up renewing them.  Those of another master are judged when its beat was seen to stand
 * still for master-ttl, in steps:
 *
 *   beat unchanged for master-ttl, Redis shows no hb ──▶ take over: its incarnation + 1, if the beat is still the same
 *   a whole lease after that, Redis shows no hb      ──▶ take back
 *
 * A changed beat or a fresh hb of that session begins the count anew; a raised incarnation alone is the take-over of a
 * third one, and as good as ours.  Several masters may judge the same sessions: each take-back names attempt and
 * session, and who adopted the row in the meantime keeps it. */
#include "server/core/internal.h"

#include <string.h>

#define UNKNOWN_MAX 1024 /* more are looked at in later sweeps */
#define HB_ASKED_MAX 1000 /* likewise */

/* A session that somebody else opened, or this master before it was started again. */
struct stray {
	struct map_node node;
	uint64_t sweep;        /* the last that met it */
	int64_t since;         /* nothing speaks for it: met first, or seen alive in the lease table */
	uint64_t silent;       /* the sweep in which the lease table showed no life of it last; 0: never */
	bool asked;            /* it is asked at the moment */
	char *master;
	uint8_t key[];          /* session, worker */
};

struct other {
	struct map_node node;
	uint64_t sweep;
	int64_t since;         /* its beat stands still */
	int64_t taken_at;      /* it is known to be taken over, with this beat; NEVER: not yet */
	int64_t incarnation, beat;
	bool asking;           /* the take-over is on its way */
	char id[];
};

struct unknown {
	struct map_node node;
	struct job_key key;
	uint64_t sweep;
};

#define KEY_MAX (sizeof(int64_t) + CORE_NAME_MAX)

static size_t make_key(const char *worker, int64_t session, uint8_t ret[static KEY_MAX])
{
	size_t len = min_sz(strlen(worker), CORE_NAME_MAX);
	memcpy(ret, &session, sizeof(session));
	memcpy(ret + sizeof(session), worker, len);
	return sizeof(session) + len;
}

static void stray_free(struct core *c, struct stray *s)
{
	map_remove(&c->recovery.seen, &s->node);
	free(s->master);
	free(s);
}

static void other_free(struct core *c, struct other *o)
{
	map_remove(&c->recovery.masters, &o->node);
	free(o);
}

static void unknown_free(struct core *c, struct unknown *u)
{
	map_remove(&c->recovery.unknown, &u->node);
	free(u);
}

static struct stray *stray_find(const struct core *c, const char *worker, int64_t session)
{
	uint8_t key[KEY_MAX];
	size_t len = make_key(worker, session, key);
	struct map_node *n = map_get(&c->recovery.seen, key, len);
	return n ? container_of(n, struct stray, node) : NULL;
}

static struct stray *stray_new(struct core *c, const struct core_stray *row)
{
	uint8_t key[KEY_MAX];
	size_t len = make_key(row->worker, row->session, key);
	struct stray *s = xcalloc(1, sizeof(*s) + len);
	memcpy(s->key, key, len);
	map_put(&c->recovery.seen, &s->node, s->key, len);
	return s;
}

/* NULL: too many are remembered; in a later sweep. */
static struct stray *meet(struct core *c, const struct core_stray *row)
{
	struct stray *s = stray_find(c, row->worker, row->session);
	if (!s && c->recovery.seen.len >= (size_t)c->cfg.max_workers)
		return NULL;
	if (!s)
		s = stray_new(c, row);
	if (!s->master || strcmp(s->master, row->master) != 0) {
		free(s->master);
		s->master = xstrdup(row->master);
		s->since = c->now;
	}
	s->sweep = c->recovery.sweep;
	return s;
}

static struct other *other_find(const struct core *c, const char *id)
{
	struct map_node *n = map_get(&c->recovery.masters, id, strlen(id));
	return n ? container_of(n, struct other, node) : NULL;
}

/* There are no more than strays.  NULL: the store knows of no such master; nobody there can be taken over. */
static struct other *meet_master(struct core *c, const struct core_stray *row)
{
	size_t len = strlen(row->master);
	if (!len)
		return NULL;
	struct other *o = other_find(c, row->master);
	bool fresh = !o;
	if (fresh) {
		o = xcalloc(1, sizeof(*o) + len + 1);
		memcpy(o->id, row->master, len);
		map_put(&c->recovery.masters, &o->node, o->id, len);
	}
	if (fresh || o->beat != row->beat) {
		o->since = c->now;
		o->taken_at = NEVER;
	} else if (o->incarnation != row->incarnation && o->taken_at == NEVER) {
		o->taken_at = c->now; /* to open its row again it would have beaten */
	}
	o->beat = row->beat;
	o->incarnation = row->incarnation;
	o->sweep = c->recovery.sweep;
	return o;
}

/* ---- rows of sessions that are held here ---- */

static bool held(const struct core *c, const struct core_stray *row)
{
	const struct job *j = job_by_attempt(c, row->at);
	if (j && j->session >= row->session)
		return true;
	j = job_by_task(c, &row->at.task);
	return j && (j->state == JOB_INSERTING || j->state == JOB_CLAIMING);
}

static void repeat_wish(struct core *c, const struct core_stray *row)
{
	struct job *j = row->cancel_wish ? job_by_attempt(c, row->at) : NULL;
	if (!j && row->cancel_wish)
		j = job_by_task(c, &row->at.task);
#ifdef REINS_MUTATION_NO_WISH_AGAIN /* tests/sim proves that it would notice */
	j = NULL;
#endif
	struct core_event ev = { .type = CORE_EV_CANCEL_WISH, .at = row->at };
	if (j)
		job_input(c, j, IN_CANCEL, &ev);
}

/* The store says that this session runs it, and memory does not know it.  In one sweep that may be a row that was read
 * before it changed.  In two it is put right by taking it into memory, not by taking it back: its worker may run it, and
 * its next heartbeat lists it, or proves that it does not. */
static void compare(struct core *c, struct worker *w, const struct core_stray *row)
{
#ifdef REINS_MUTATION_NO_COMPARE /* tests/sim proves that it would notice */
	return;
#endif
	struct job_key key = { row->at.task, row->at.attempt };
	struct map_node *n = map_get(&c->recovery.unknown, &key, sizeof(key));
	struct unknown *u = n ? container_of(n, struct unknown, node) : NULL;
	if (!u && c->recovery.unknown.len < UNKNOWN_MAX) {
		u = xcalloc(1, sizeof(*u));
		u->key = key;
		u->sweep = c->recovery.sweep;
		map_put(&c->recovery.unknown, &u->node, &u->key, sizeof(u->key));
	} else if (u && u->sweep != c->recovery.sweep) {
		unknown_free(c, u);
		/* What it needs is not known; its slot is. */
		struct core_task t = { .id = row->at.task, .attempt = row->at.attempt, .exclusive = row->exclusive };
		struct job *j = job_new_at(c, &t, w, JOB_RUNNING);
		j->lease_ns = row->lease_ns;
		worker_take_slot(c, w, j);
		worker_timer(c, w);
		repeat_wish(c, row);
	}
}

/* ---- rows of sessions that nobody here holds ---- */

static void take_back(struct core *c, const struct core_stray *row)
{
	struct core_effect *f = emit(c, CORE_DO_TAKE_BACK);
	f->at = row->at;
	f->session = row->session;
	f->cause = CORE_CAUSE_WORKER_LOST;
	f->counted = true;
	f = emit(c, CORE_DO_RELEASE);
	f->at = row->at;
	f->session = row->session;
	f->worker = emit_text(c, row->worker);
	keys_expect(c);
}

/* Redis holds work back where it shows life, and says nothing where it is away.  Its word counts for the next sweep, which
 * begins at once when it has come. */
static bool silent(struct core *c, struct stray *s, const struct core_stray *row)
{
#ifdef REINS_MUTATION_NO_HB_CHECK /* tests/sim proves that it would notice */
	return true;
#endif
	if (!c->lease_up || (s->silent && c->recovery.sweep - s->silent <= 1))
		return true;
	if (s->asked || c->recovery.n_hb >= HB_ASKED_MAX)
		return false;
	s->asked = true;
	c->recovery.n_hb++;
	struct core_effect *f = emit(c, CORE_DO_ASK_HB);
	f->worker = emit_text(c, row->worker);
	f->session = row->session;
	return false;
}

static void take_over(struct core *c, struct other *o)
{
#ifdef REINS_MUTATION_NO_BUMP /* tests/sim proves that it would notice */
	o->taken_at = c->now;
	return;
#endif
	o->asking = true;
	struct core_effect *f = emit(c, CORE_DO_TAKE_OVER);
	f->master = emit_text(c, o->id);
	f->incarnation = o->incarnation;
	f->beat = o->beat;
}

static void judge(struct core *c, const struct core_stray *row, struct stray *s)
{
	int64_t lease = max_i64(row->lease_ns, c->cfg.lease_ttl_ns);
	int64_t since = max_i64(s->since, c->recovery.since);
#ifdef REINS_MUTATION_NO_STRAY_WAIT /* tests/sim proves that it would notice */
	take_back(c, row);
	return;
#endif
	if (row->own) {
#ifndef REINS_MUTATION_NO_FORMER_WAIT /* tests/sim proves that it would notice */
		if (row->exclusive)
			since = max_i64(since, c->recovery.former_until);
#endif
		/* Redis may show an earlier process alive for longer than it is bound to be. */
		if (c->now - since >= lease && (!row->exclusive || silent(c, s, row)))
			take_back(c, row);
		return;
	}
	struct other *o = meet_master(c, row);
	since = max_i64(since, o ? o->since : since) + (row->exclusive ? c->cfg.master_ttl_exclusive_ns : c->cfg.master_ttl_ns);
	if (c->now < since)
		return;
	if (o && o->taken_at == NEVER) {
		if (!o->asking && silent(c, s, row))
			take_over(c, o);
		return;
	}
#ifndef REINS_MUTATION_NO_TAKE_OVER_WAIT /* tests/sim proves that it would notice */
	since = max_i64(since, o ? o->taken_at : since) + lease;
#endif
	if (c->now >= since && silent(c, s, row))
		take_back(c, row);
}

static void look_at(struct core *c, const struct core_stray *row)
{
	struct worker *w = worker_find(c, row->worker);
	if (held(c, row)) {
		repeat_wish(c, row);
		return;
	}
	if (w && (w->opening || w->next))
		return; /* the answer says what this worker has */
	if (w && w->session == row->session) {
		compare(c, w, row);
		return;
	}
	/* It has a newer session elsewhere: the stream here is left, or that of an older process with its id.  Without numbers
	 * in its hellos the newer one may be nobody's. */
	if (w && w->peer && w->session < row->session)
		worker_drop_peer(c, w, true, w->hello_number && !row->own ? CORE_CLOSE_REPLACED : CORE_CLOSE_AWAY);
	if (w && w->peer && w->session > row->session && !row->exclusive) {
		/* Claimed for a session that had been replaced already: it was never sent, or nobody answers for it. */
		take_back(c, row);
		return;
	}
	struct stray *s = meet(c, row);
	if (!s)
		return;
#ifndef REINS_MUTATION_NO_DETACHED_STRAYS /* tests/sim proves that it would notice */
	if (row->detached_ns > 0 && !row->exclusive)
		return;
#endif
	judge(c, row, s);
}

/* ---- sweeps ---- */

static void ask(struct core *c)
{
	struct core_effect *f = emit(c, CORE_DO_STRAYS);
	f->at.task = c->recovery.after;
	f->limit = c->cfg.fill;
	c->recovery.asking = true;
}

/* What this sweep did not meet. */
static void forget(struct core *c, bool all)
{
	struct recovery *r = &c->recovery;
	for (struct map_node *n = map_first(&r->seen), *next; n; n = next) {
		next = map_next(&r->seen, n);
		struct stray *s = container_of(n, struct stray, node);
		if (all || s->sweep != r->sweep)
			stray_free(c, s);
	}
	for (struct map_node *n = map_first(&r->masters), *next; n; n = next) {
		next = map_next(&r->masters, n);
		struct other *o = container_of(n, struct other, node);
		if (all || o->sweep != r->sweep)
			other_free(c, o);
	}
	for (struct map_node *n = map_first(&r->unknown), *next; n; n = next) {
		next = map_next(&r->unknown, n);
		struct unknown *u = container_of(n, struct unknown, node);
		if (all || u->sweep != r->sweep)
			unknown_free(c, u);
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
	c->recovery.again = false;
	memset(&c->recovery.after, 0, sizeof(c->recovery.after));
	ask(c);
}

static void sweep_now(struct core *c)
{
	c->recovery.again = true;
	if (!c->recovery.asking)
		timer_set(c, &c->recovery.timer, c->now);
}

void recovery_on_strays(struct core *c, const struct core_event *ev)
{
	c->recovery.asking = false;
	if (!ev->strays.ok || !c->store_up)
		return;
	for (size_t i = 0; i < ev->strays.n; i++)
		look_at(c, &ev->strays.at[i]);
	if (ev->strays.n == (size_t)c->cfg.fill) {
		c->recovery.after = ev->strays.at[ev->strays.n - 1].at.task;
		ask(c);
		return;
	}
	forget(c, false);
	if (c->recovery.again)
		sweep_now(c);
}

/* ---- answers about strays ---- */

void recovery_on_hb(struct core *c, const struct core_event *ev)
{
	c->recovery.n_hb--;
	struct stray *s = stray_find(c, ev->hb.worker, ev->session);
	if (!s)
		return;
	s->asked = false;
	if (ev->hb.fresh) {
		s->since = c->now;
		return;
	}
	s->silent = c->recovery.sweep;
	sweep_now(c);
}

void recovery_on_took_over(struct core *c, const struct core_event *ev)
{
	struct other *o = other_find(c, ev->took_over.master);
	if (!o)
		return;
	o->asking = false;
	if (!ev->took_over.taken || o->beat != ev->took_over.beat || o->taken_at != NEVER)
		return; /* the next sweep shows what it is like */
	o->incarnation = ev->took_over.incarnation;
	o->taken_at = c->now;
}

/* ---- time that does not count ---- */

void recovery_stalled(struct core *c, int64_t ns)
{
	struct recovery *r = &c->recovery;
	r->since += ns;
	for (struct map_node *n = map_first(&r->seen); n; n = map_next(&r->seen, n))
		container_of(n, struct stray, node)->since += ns;
	for (struct map_node *n = map_first(&r->masters); n; n = map_next(&r->masters, n)) {
		struct other *o = container_of(n, struct other, node);
		o->since += ns;
		if (o->taken_at != NEVER)
			o->taken_at += ns;
	}
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

void recovery_restart(struct core *c)
{
	forget(c, true);
	c->recovery.since = c->now;
}

void recovery_on_beat(struct core *c)
{
	struct recovery *r = &c->recovery;
	if (!r->opened && !c->cfg.alone)
		r->former_until = c->now + c->cfg.master_ttl_exclusive_ns;
	r->opened = true;
}

/* ---- life ---- */

void recovery_init(struct core *c)
{
	timer_init(&c->recovery.timer, TIMER_RECOVERY);
	map_init(&c->recovery.seen);
	map_init(&c->recovery.masters);
	map_init(&c->recovery.unknown);
	c->recovery.since = c->now;
	timer_set(c, &c->recovery.timer, c->now);
}

void recovery_done(struct core *c)
{
	forget(c, true);
	map_done(&c->recovery.seen);
	map_done(&c->recovery.masters);
	map_done(&c->recovery.unknown);
}
