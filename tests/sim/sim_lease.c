/* The lease table: the keys of server/lease/lease.h with their times to live.  It may be away, also for one master alone; it
 * may forget everything, or one key; what it does not answer it may have done. */
#include "tests/sim/sim.h"

#define TASK_KEY_TTL (120 * NS_PER_S)

static bool reachable(const struct sim *s, const struct master *m) { return s->lease.up && !m->lease_cut; }

static struct field *find(struct sim *s, int w, int row)
{
	for (int i = 0; i < s->lease.w[w].n_hash; i++)
		if (s->lease.w[w].hash[i].row == row)
			return &s->lease.w[w].hash[i];
	return NULL;
}

/* What has run out is no more. */
static void purge(struct sim *s, int w)
{
	if (s->lease.w[w].hb_end <= s->now)
		s->lease.w[w].hb_end = 0;
	if (s->lease.w[w].hash_end <= s->now)
		s->lease.w[w].n_hash = 0;
}

static void set_field(struct sim *s, int w, int row, int attempt)
{
	struct field *f = find(s, w, row);
	if (!f && s->lease.w[w].n_hash < SIM_RUNS)
		f = &s->lease.w[w].hash[s->lease.w[w].n_hash++];
	if (f)
		*f = (struct field){ row, attempt };
	s->lease.w[w].hash_end = s->now + TASK_KEY_TTL;
}

static void set_hb(struct sim *s, const struct master *m, int w, const struct core_effect *f)
{
	if (!s->lease.w[w].hb_end || s->lease.w[w].session != f->session)
		s->lease.w[w].hb_since = s->now;
	s->lease.w[w].session = f->session;
	s->lease.w[w].master = m->id;
	s->lease.w[w].hb_end = s->now + f->lease_ns;
}

static enum core_preempt_verdict preempt(struct sim *s, const struct master *m, int w, const struct core_effect *f)
{
	bool fresh = s->lease.w[w].hb_end > 0;
	int row = row_of(&f->at.task);
	if (fresh && s->lease.w[w].session > f->session)
		return CORE_PREEMPT_NEWER_SESSION;
	if (!fresh || s->lease.w[w].session < f->session) {
		set_hb(s, m, w, f);
		s->lease.w[w].n_hash = 0;
	} else if (!find(s, w, row) && s->lease.w[w].n_hash >= f->slots) {
		return CORE_PREEMPT_FULL;
	}
	set_field(s, w, row, f->at.attempt);
	return CORE_PREEMPT_OK;
}

static void own(struct sim *s, int w, const struct core_attempt *at, int64_t session)
{
	int row = row_of(&at->task);
	s->lease.owner[row].session = session;
	s->lease.owner[row].worker = w;
	s->lease.owner[row].attempt = at->attempt;
	s->lease.owner[row].end = s->now + TASK_KEY_TTL;
}

static void release(struct sim *s, int w, const struct core_effect *f)
{
	int row = row_of(&f->at.task);
	struct field *at = find(s, w, row);
	if (s->lease.owner[row].attempt == f->at.attempt && s->lease.owner[row].worker == w)
		s->lease.owner[row].end = 0;
	if (at && at->attempt == f->at.attempt)
		*at = s->lease.w[w].hash[--s->lease.w[w].n_hash];
}

static void beat(struct sim *s, const struct master *m, int w, const struct core_effect *f)
{
	if (s->lease.w[w].hb_end && s->lease.w[w].session > f->session)
		return;
	set_hb(s, m, w, f);
	s->lease.w[w].n_hash = 0;
	for (size_t i = 0; i < f->n_held; i++) {
		set_field(s, w, row_of(&f->held[i].task), f->held[i].attempt);
		if (i < f->n_owned)
			own(s, w, &f->held[i], f->session);
	}
}

static void disown(struct sim *s, int w, const struct core_effect *f)
{
	int row = row_of(&f->at.task);
	if (s->lease.owner[row].attempt == f->at.attempt && s->lease.owner[row].worker == w &&
	    s->lease.owner[row].session == f->session)
		s->lease.owner[row].end = 0;
}

/* ---- pages: places 1 to SIM_WORKERS are the workers' hashes, those behind are owner keys ---- */

static bool add_key(struct sim *s, int place, struct core_owner *owners, const char **hashes, struct core_event *ev)
{
	int w = place - 1, row = place - 1 - SIM_WORKERS;
	if (row < 0) {
		purge(s, w);
		bool lone = !s->lease.w[w].hb_end && s->lease.w[w].n_hash;
		if (lone)
			hashes[ev->keys.n_hashes++] = s->w[w].id;
		return lone;
	}
	if (s->lease.owner[row].end <= s->now)
		return false;
	owners[ev->keys.n++] = (struct core_owner){ { sim_id(row), s->lease.owner[row].attempt },
						    s->w[s->lease.owner[row].worker].id, s->lease.owner[row].session };
	return true;
}

/* So many that a round has few pages. */
static void read_page(struct sim *s, struct msg *x, uint64_t from)
{
	int last = SIM_WORKERS + s->store.n_rows, max = max_i64(1, last / 8) + (int)rng_below(&s->rng, 64);
	struct core_owner *owners = xcalloc((size_t)max, sizeof(*owners) + sizeof(char *));
	const char **hashes = (const char **)(void *)(owners + max);
	int place = (int)from + 1;
	for (int n = 0; place <= last && n < max; place++)
		n += add_key(s, place, owners, hashes, &x->ev);
	x->mem = owners;
	x->ev.keys.at = owners;
	x->ev.keys.hashes = hashes;
	x->ev.keys.ok = true;
	x->ev.keys.next = place > last ? 0 : (uint64_t)place - 1;
}

static enum core_preempt_verdict carry_out(struct sim *s, const struct master *m, const struct core_effect *f)
{
	int w = number_of(f->worker);
	purge(s, w);
	switch (f->type) {
	case CORE_DO_PREEMPT: return preempt(s, m, w, f);
	case CORE_DO_RELEASE: release(s, w, f); break;
	case CORE_DO_LEASE_BEAT: beat(s, m, w, f); break;
	case CORE_DO_DISOWN: disown(s, w, f); break;
	case CORE_DO_DROP_HASH:
		if (!s->lease.w[w].hb_end)
			s->lease.w[w].n_hash = 0;
		break;
	default:
		own(s, w, &f->at, f->session);
		if (!s->lease.w[w].hb_end || s->lease.w[w].session <= f->session)
			set_field(s, w, row_of(&f->at.task), f->at.attempt);
	}
	return CORE_PREEMPT_OK;
}

static void on_answer(struct sim *s, struct msg *x)
{
	if (master_dead(s, x) || master_later(s, x))
		return;
	struct msg *d = master_event(s, x->ev.type);
	d->ev = x->ev;
	d->mem = x->mem;
	x->mem = NULL;
	master_deliver(s, master_of(s, x), d);
}

/* Of what is on its way when the connection goes, or is answered too late, some is carried out, and none is answered. */
static void on_command(struct sim *s, struct msg *x)
{
	struct master *m = master_of(s, x);
	const struct core_effect *f = &x->ef;
	bool up = !master_dead(s, x) && reachable(s, m), lost = !up || (!s->healed && sim_chance(s, 1));
	int w = f->worker ? number_of(f->worker) : 0;
	switch (f->type) {
	case CORE_DO_KEYS:
		x->ev.type = CORE_EV_KEYS;
		if (!lost)
			read_page(s, x, f->cursor);
		break;
	case CORE_DO_ASK_HB:
		purge(s, w);
		x->ev.type = CORE_EV_HB;
		x->ev.session = f->session;
		x->ev.hb.worker = s->w[w].id;
		if (!up)
			m->hb_lost_at = s->now; /* it is told nothing, and may go on */
		x->ev.hb.fresh = up && s->lease.w[w].hb_end && s->lease.w[w].session == f->session;
		break;
	default: {
		enum core_preempt_verdict v = CORE_PREEMPT_DOWN;
		if (!lost || (s->lease.up && sim_chance(s, 30)))
			v = carry_out(s, m, f);
		if (f->type != CORE_DO_PREEMPT)
			return;
		x->ev.type = CORE_EV_PREEMPTED;
		x->ev.at = f->at;
		x->ev.preempted = lost ? CORE_PREEMPT_DOWN : v;
	}
	}
	sim_again(s, x, s->now + sim_latency(s) / 8, on_answer);
}

/* One master's commands keep their order; those of two don't. */
void lease_effect(struct sim *s, struct master *m, const struct core_effect *f)
{
	m->last_command = max_i64(m->last_command, s->now + sim_latency(s) / 8);
	struct msg *x = master_msg(s, m, m->last_command, on_command);
	x->ef = *f;
	x->ef.spec = NULL;
	x->ef.instance = NULL;
	if (f->worker)
		x->ef.worker = s->w[number_of(f->worker)].id;
	store_keep_asked(x, f); /* the arena is gone by then */
}

/* ---- faults ---- */

static void tell(struct sim *s, struct master *m, bool up)
{
	m->lease_since = up ? s->now : INT64_MAX;
	if (!m->up)
		return;
	struct msg *d = master_event(s, CORE_EV_LEASE);
	d->ev.up = up;
	master_deliver(s, m, d);
}

void lease_set(struct sim *s, bool up)
{
	if (s->lease.up == up)
		return;
	sim_trace(s, "lease table %s", up ? "up" : "away");
	s->lease.up = up;
	for (int i = 0; i < s->n_masters; i++)
		if (!s->m[i].lease_cut)
			tell(s, &s->m[i], up);
}

void lease_part(struct sim *s, int i, bool cut)
{
	if (s->m[i].lease_cut == cut)
		return;
	sim_trace(s, "%s %s the lease table", master_name(s, &s->m[i]), cut ? "does not reach" : "reaches");
	s->m[i].lease_cut = cut;
	if (s->lease.up)
		tell(s, &s->m[i], !cut);
}

void lease_flush(struct sim *s)
{
	sim_trace(s, "lease table is empty");
	memset(s->lease.w, 0, sizeof(s->lease.w));
	memset(s->lease.owner, 0, sizeof(s->lease.owner));
}

void lease_lose_one(struct sim *s)
{
	int w = (int)rng_below(&s->rng, (uint64_t)s->n_workers);
	switch (rng_below(&s->rng, 3)) {
	case 0: s->lease.w[w].hb_end = 0; break;
	case 1: s->lease.w[w].n_hash = 0; break;
	default: s->lease.owner[rng_below(&s->rng, (uint64_t)s->store.n_rows + 1) % SIM_ROWS].end = 0;
	}
}
