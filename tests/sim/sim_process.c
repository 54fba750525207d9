/* A master's process: it starts, dies at any point, stands still, and beats in its row of the store.  What reaches it while
 * it stands still it finds when it goes on; what it had decided before still takes effect then. */
#include "tests/sim/sim.h"

struct msg *master_msg(struct sim *s, const struct master *m, int64_t at, void (*run)(struct sim *, struct msg *))
{
	struct msg *x = sim_at(s, at, run);
	x->master = (int)(m - s->m);
	x->id = m->id;
	x->epoch = m->epoch;
	return x;
}

bool master_later(struct sim *s, struct msg *m)
{
	const struct master *at = master_of(s, m);
	if (!master_stands(s, at))
		return false;
	sim_again(s, m, at->paused_until, m->run);
	return true;
}

int master_any(struct sim *s)
{
	int first = (int)rng_below(&s->rng, (uint64_t)s->n_masters);
	for (int i = 0; i < s->n_masters; i++)
		if (s->m[(first + i) % s->n_masters].up)
			return (first + i) % s->n_masters;
	return -1;
}

/* A twin's with its place. */
const char *master_name(const struct sim *s, const struct master *m)
{
	static char text[4][32];
	static unsigned next;
	int place = (int)(m - s->m);
	if (m->id == place || m->id >= s->n_masters)
		return s->store.masters[m->id].name;
	char *to = text[next++ % ARRAY_LEN(text)];
	snprintf(to, sizeof(text[0]), "%s(at %d)", s->store.masters[m->id].name, place);
	return to;
}

/* ---- its row, and the wishes of operators ---- */

void master_open(struct sim *s, struct master *m)
{
	struct msg *ask = store_ask(s, m, OP_OPEN);
	ask->index = m->id;
	ask->ef.session = m->incarnation; /* > 0: again */
	ask->ef.number = master_now(s, m);
}

void master_beat(struct sim *s, struct master *m)
{
	if (!m->opened || !m->store_up || m->beating)
		return;
	m->beating = true;
	struct msg *ask = store_ask(s, m, OP_BEAT);
	ask->index = m->id;
	ask->ef.session = m->incarnation;
	ask->ef.number = master_now(s, m);
}

static void on_beat_due(struct sim *s, struct msg *m)
{
	if (master_dead(s, m) || master_later(s, m))
		return;
	struct master *at = master_of(s, m);
	master_beat(s, at);
	master_msg(s, at, clock_when(&at->clock, master_now(s, at) + HEARTBEAT), on_beat_due);
}

void master_learn_wish(struct sim *s, struct master *m, int w, bool on)
{
	struct msg *d = master_event(s, CORE_EV_DRAIN_WISH);
	d->ev.drain_wish.worker = s->w[w].id;
	d->ev.drain_wish.on = on;
	master_deliver(s, m, d);
}

static void on_wishes_due(struct sim *s, struct msg *m)
{
	if (master_dead(s, m) || master_later(s, m))
		return;
	struct master *at = master_of(s, m);
	for (int w = 0; at->opened && at->store_up && w < s->n_workers; w++)
		if (at->wished[w] != s->store.drained[w])
			master_learn_wish(s, at, w, s->store.drained[w]);
	master_msg(s, at, s->now + s->cfg.recovery_ns, on_wishes_due);
}

/* ---- starts and ends ---- */

static int new_id(struct sim *s)
{
	if (s->store.n_masters == SIM_MASTER_IDS)
		return -1;
	snprintf(s->store.masters[s->store.n_masters].name, sizeof(s->store.masters[0].name), "m%d", s->store.n_masters);
	return s->store.n_masters++;
}

static void on_restart(struct sim *s, struct msg *m)
{
	if (!master_of(s, m)->up)
		master_start(s, m->master);
}

void master_start(struct sim *s, int i)
{
	static const int32_t windows[] = { 4, 16, 20000 }, fills[] = { 2, 8, 500 }, claims[] = { 1, 4, 4096 };
	struct master *m = &s->m[i];
	struct core_config cfg = s->cfg;
	cfg.seed = rng_next(&s->rng);
	cfg.window = windows[rng_below(&s->rng, 3)];
	cfg.fill = fills[rng_below(&s->rng, 3)];
	cfg.in_flight_claims = claims[rng_below(&s->rng, 3)];
	cfg.heartbeat_rate = sim_chance(s, 30) ? 1 : 1000; /* 1: the third worker and those after it get longer H and L */
	m->clock = (struct clock){ sim_between(s, 1, 1000) * NS_PER_S, sim_between(s, -1000, 1000) };
	m->up = true;
	m->epoch = ++s->epochs;
	m->core = core_new(&cfg, master_now(s, m));
	m->opened = m->beating = m->turn_set = m->mid_turn = false;
	m->incarnation = 0;
	m->lease_since = s->lease.up && !m->lease_cut ? s->now : INT64_MAX;
	m->crash_in = m->pause_in = m->crash_in_answers = m->cut_in = -1;
	m->paused_until = 0;
	m->store_up = m->reach = store_reachable(s, m);
	m->listens_from = m->store_down_at = master_now(s, m);
	m->unseen = 0;
	m->told_up = true;       /* what a core takes for granted */
	m->started_at = s->now;
	memset(m->pause_answered, 0, sizeof(m->pause_answered));
	memset(m->pause_told, 0, sizeof(m->pause_told));
	memset(m->wished, 0, sizeof(m->wished));
	memset(m->detached_until, 0, sizeof(m->detached_until));
	memset(m->detached_session, 0, sizeof(m->detached_session));
	sim_trace(s, "%s starts: window %d, fill %d, claims %d", master_name(s, m), cfg.window, cfg.fill, cfg.in_flight_claims);
	/* Until the store has taken it in it is away for the core. */
	master_deliver(s, m, master_event(s, CORE_EV_STORE));
	if (m->store_up)
		master_open(s, m);
	master_msg(s, m, s->now + HEARTBEAT / 4, on_beat_due);
	master_msg(s, m, s->now + sim_between(s, 0, s->cfg.recovery_ns), on_wishes_due);
}

void master_boot(struct sim *s)
{
	for (int i = 0; i < s->n_masters; i++) {
		s->m[i].id = new_id(s);
		master_start(s, i);
	}
}

static void end_streams(struct sim *s, const struct master *m)
{
	for (uint64_t i = 1; i <= s->n_conns; i++)
		if (s->conns[i].epoch == m->epoch && !s->conns[i].closed[0])
			net_close(s, i, false);
}

static void clear(struct sim *s, struct master *m)
{
	for (int i = 0; i < m->n_outbox; i++)
		sim_free(s, m->outbox[i]);
	for (int i = 0; i < m->n_inbox; i++)
		sim_free(s, m->inbox[i]);
	m->n_outbox = m->n_inbox = 0;
	master_drop_wake(s, m);
	core_free(m->core);
	m->core = NULL;
	core_effects_clear(&m->out);
}

void master_crash(struct sim *s, int i)
{
	struct master *m = &s->m[i];
	if (!m->up)
		return;
	sim_trace(s, "%s dies", master_name(s, m));
	if (sim_chance(s, 50))
		master_flush(s, m);
	end_streams(s, m);
	clear(s, m);
	store_forget(s, m);
	m->up = false;
	m->paused_until = 0;
	int base = i; /* a twin comes back as itself */
	int id = s->new_ids ? new_id(s) : -1;
	m->id = id >= 0 ? id : base;
	int64_t away = sim_chance(s, 30) ? sim_between(s, 20, 500) * NS_PER_MS : sim_between(s, 500 * NS_PER_MS, 20 * NS_PER_S);
	master_msg(s, m, s->now + away, on_restart);
}

void master_twin(struct sim *s, int i)
{
	int other = (i + 1) % s->n_masters;
	if (other == i || !s->m[i].up || s->m[other].id == s->m[i].id)
		return;
	master_crash(s, other);
	s->m[other].id = s->m[i].id;
	sim_trace(s, "another process comes as %s", master_name(s, &s->m[i]));
	master_start(s, other);
}

void master_deposed(struct sim *s, struct master *m)
{
	sim_trace(s, "%s finds that another has taken over", master_name(s, m));
	m->opened = false;
	memset(m->detached_until, 0, sizeof(m->detached_until));
	for (uint64_t i = 1; i <= s->n_conns; i++) {
		if (s->conns[i].epoch != m->epoch || s->conns[i].closed[0])
			continue;
		net_close(s, i, false);
		struct msg *d = master_event(s, CORE_EV_PEER_GONE);
		d->ev.peer = i;
		master_deliver(s, m, d);
	}
	master_deliver(s, m, master_event(s, CORE_EV_DEPOSED));
	master_deliver(s, m, master_event(s, CORE_EV_STORE));
	master_open(s, m);
}

/* ---- stands still ---- */

static void on_resume(struct sim *s, struct msg *m)
{
	if (master_dead(s, m))
		return;
	struct master *at = master_of(s, m);
	sim_trace(s, "%s goes on", master_name(s, at));
	if (at->mid_turn)
		master_resume_turn(s, at);
	if (master_dead(s, m) || master_stands(s, at))
		return;
	int64_t stood = s->now - at->paused_at;
	at->listens_from += max_i64(0, stood - HEARTBEAT);
	at->unseen += min_i64(stood, HEARTBEAT);
	/* The engine looks four times in a heartbeat's time: what it sees is up to so much less. */
	int64_t late = master_now(s, at) - clock_at(&at->clock, at->paused_at) - sim_between(s, 0, HEARTBEAT / 4);
	if (late <= s->cfg.lease_ttl_ns / 10)
		return;
#ifndef REINS_MUTATION_NO_STALL /* of the engine: tests/sim proves that it would notice */
	struct msg *d = master_event(s, CORE_EV_STALLED);
	d->ev.stalled_ns = late;
	master_deliver(s, at, d);
#endif
}

void master_pause(struct sim *s, int i, int64_t ns)
{
	struct master *m = &s->m[i];
	if (!m->up || master_stands(s, m))
		return;
	m->paused_at = s->now;
	m->paused_until = s->now + ns;
	sim_trace(s, "%s stands still for %.1f s%s", master_name(s, m), (double)ns / 1e9, m->mid_turn ? ", in the middle of a turn" : "");
	master_msg(s, m, m->paused_until, on_resume);
}
