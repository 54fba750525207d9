/* Connections of masters to the store: operations are applied some time after they were asked for and answered some time
 * after that; kinds overtake each other.  When a connection is lost nobody knows what became of the operations on it: some
 * were carried out, some never arrived, some arrive yet.  On the next connection each runs once more, and its answer says
 * what the first did: server/store/store.h. */
#include "tests/sim/sim.h"

bool store_reachable(const struct sim *s, const struct master *m) { return s->store.up && !m->store_cut; }

void store_init(struct sim *s)
{
	s->store.up = true;
	for (int i = 0; i < SIM_TASKS; i++)
		s->store.by_key[i] = -1;
	for (int i = 0; i < SIM_WORKERS; i++)
		s->store.opened_by[i] = -1;
}

static int kind_of(const struct msg *x) { return (int)x->gen; }

static int64_t latency(struct sim *s)
{
	return sim_latency(s) + (s->store.slow_until > s->now ? sim_between(s, 0, 3 * NS_PER_S) : 0);
}

/* ---- answers ---- */

static void unavailable(struct sim *s, struct msg *x)
{
	struct core_event *e = &x->ev;
	*e = (struct core_event){ .at = x->ef.at, .token = x->ef.token, .peer = x->ef.peer, .session = x->ef.session };
	switch (kind_of(x)) {
	case CORE_DO_INSERT:
		e->type = CORE_EV_INSERTED;
		e->inserted = CORE_INSERT_FAILED;
		e->task = s->store.rows[row_of(&x->ef.at.task)].t;
		break;
	case CORE_DO_CLAIM:
		e->type = CORE_EV_CLAIMED;
		e->claimed = CORE_CLAIM_UNAVAILABLE;
		break;
	case CORE_DO_RECORD:
		e->type = CORE_EV_RECORDED;
		e->recorded.verdict = CORE_RECORD_UNAVAILABLE;
		break;
	case CORE_DO_TAKE_BACK:
		e->type = CORE_EV_TAKEN_BACK;
		e->taken_back = CORE_TAKE_BACK_UNAVAILABLE;
		break;
	case CORE_DO_SESSION_OPEN:
		e->type = CORE_EV_SESSION_OPENED;
		e->opened.worker = s->w[x->worker].id;
		break;
	case CORE_DO_FILL:
		e->type = CORE_EV_FILLED;
		e->filled.queue = x->ef.queue;
		break;
	case CORE_DO_QUEUES: e->type = CORE_EV_QUEUES; break;
	case CORE_DO_DUE: e->type = CORE_EV_DUE; break;
	case CORE_DO_EXPIRE: e->type = CORE_EV_EXPIRED; break;
	case CORE_DO_STRAYS: e->type = CORE_EV_STRAYS; break;
	case CORE_DO_TAKE_OVER:
		e->type = CORE_EV_TOOK_OVER;
		e->took_over.master = x->ef.master;
		break;
	case CORE_DO_RUNS: e->type = CORE_EV_RUNS; break;
	default: e->type = CORE_EV_TIME; break;
	}
}

static void tell_core(struct sim *s, struct master *m, bool up)
{
	struct msg *d = master_event(s, CORE_EV_STORE);
	d->ev.up = up;
	master_deliver(s, m, d);
}

/* Another process has this one's id: it ends its streams and leaves. */
static void replaced(struct sim *s, struct master *m)
{
	sim_trace(s, "%s is not the one that its row names any more", master_name(s, m));
	master_crash(s, (int)(m - s->m));
}

/* The time that it names is when it was asked for, by the master's clock. */
static void beat_committed(struct sim *s, struct master *m, const struct msg *x)
{
	struct msg *d = master_event(s, CORE_EV_BEAT);
	d->ev.beat_mono_ns = x->ef.number;
	master_deliver(s, m, d);
}

static void answered(struct sim *s, struct master *m, struct msg *x)
{
	switch (kind_of(x)) {
	case OP_OPEN:
		if (x->ev.up) {
			replaced(s, m);
			return;
		}
		beat_committed(s, m, x);
		m->incarnation = x->ev.session;
		m->opened = true;
		if (m->store_up)
			tell_core(s, m, true);
		return;
	case OP_BEAT:
		m->beating = false;
		if (x->ev.up) {
			replaced(s, m);
		} else if (x->ev.session != x->ef.session) {
			master_deposed(s, m);
		} else {
			beat_committed(s, m, x);
		}
		return;
	case OP_STARTED:
	case OP_DETACHED:
		return;
	default: break;
	}
	if (x->ev.type == CORE_EV_PAUSE)
		m->pause_told[x->index] = x->ev.pause.on;
	struct msg *d = master_event(s, x->ev.type);
	d->ev = x->ev;
	d->mem = x->mem;
	x->mem = NULL;
	master_deliver(s, m, d);
}

static void on_answer(struct sim *s, struct msg *x)
{
	if (master_later(s, x))
		return;
	struct master *m = master_of(s, x);
	list_remove(&x->link);
	if (m->crash_in_answers == 0)
		master_crash(s, x->master); /* between the commit and its answer */
	else
		answered(s, m, x);
	m->crash_in_answers -= m->crash_in_answers > 0;
}

static void on_apply(struct sim *s, struct msg *x)
{
	struct master *m = master_of(s, x);
	if (!store_reachable(s, m)) {
		/* Sent into a connection that is gone already. */
		x->kept = true;
		x->again++;
		return;
	}
	rows_apply(s, x, kind_of(x), x->again);
	int64_t *last = &m->last_answer[kind_of(x)];
	*last = max_i64(s->now + latency(s), *last);
	sim_again(s, x, *last, on_answer);
}

static void on_unavailable(struct sim *s, struct msg *x)
{
	if (master_dead(s, x) || master_later(s, x))
		return;
	unavailable(s, x);
	if (kind_of(x) == OP_BEAT)
		master_of(s, x)->beating = false;
	else if (kind_of(x) < OP_OPEN)
		answered(s, master_of(s, x), x);
}

/* ---- asking ---- */

static void send(struct sim *s, struct master *m, struct msg *x)
{
	int64_t *last = &m->last_apply[kind_of(x)];
	*last = max_i64(s->now + latency(s), *last);
	sim_push(s, x, *last, on_apply);
}

struct msg *store_ask(struct sim *s, struct master *m, int kind)
{
	struct msg *x = master_msg(s, m, s->now, NULL);
	x->gen = (uint64_t)kind;
	if (!m->store_up) {
		sim_push(s, x, s->now + NS_PER_US, on_unavailable);
		return x;
	}
	list_push_back(&m->ops, &x->link);
	send(s, m, x);
	if (m->cut_in == 0)
		fault_cut_store(s, x->master);
	m->cut_in -= m->cut_in >= 0;
	return x;
}

/* What `ef` points to: an instance, then a list, or owners. */
void store_keep_asked(struct msg *x, const struct core_effect *f)
{
	if (f->n_owners) {
		struct core_owner *owners = xcalloc(f->n_owners, sizeof(*owners));
		memcpy(owners, f->owners, f->n_owners * sizeof(*owners));
		x->ef.owners = x->asked = owners;
	}
	if (!f->instance && !f->n_held)
		return;
	size_t head = CORE_INSTANCE_LEN;
	uint8_t *mem = xcalloc(1, head + f->n_held * sizeof(*f->held));
	if (f->instance)
		memcpy(mem, f->instance, CORE_INSTANCE_LEN);
	if (f->n_held)
		memcpy(mem + head, f->held, f->n_held * sizeof(*f->held));
	x->ef.instance = f->instance ? mem : NULL;
	x->ef.held = (const struct core_attempt *)(const void *)(mem + head);
	x->asked = mem;
}

void store_effect(struct sim *s, struct master *m, const struct core_effect *f)
{
	static const char *const queue_names[] = { "a", "b", "c" };
	struct msg *x = store_ask(s, m, (int)f->type);
	x->ef = *f;
	x->ef.spec = NULL;
	if (f->worker) {
		x->worker = number_of(f->worker);
		x->ef.worker = s->w[x->worker].id;
	}
	/* What the engine says of itself with these. */
	x->index = m->id;
	if (f->type == CORE_DO_CLAIM || f->type == CORE_DO_INSERT)
		x->ef.incarnation = m->incarnation;
	for (int i = 0; f->master && i < s->store.n_masters; i++)
		if (strcmp(s->store.masters[i].name, f->master) == 0)
			x->ef.master = s->store.masters[i].name;
	if (f->queue)
		x->ef.queue = queue_names[f->queue[0] - 'a'];
	store_keep_asked(x, f); /* the arena is gone by then */
	for (size_t i = 0; i < f->n_owners; i++)
		((struct core_owner *)x->asked)[i].worker = s->w[number_of(f->owners[i].worker)].id;
}

void store_insert_direct(struct sim *s, struct master *m, int row)
{
	struct msg *x = store_ask(s, m, CORE_DO_INSERT);
	x->ef = (struct core_effect){ .type = CORE_DO_INSERT, .at = { .task = sim_id(row) } };
}

/* ---- connections ---- */

/* A statement that arrives though who sent it is gone, or has given up this connection. Nobody hears its answer. */
static void on_late(struct sim *s, struct msg *x)
{
	/* A pause that comes late is told to nobody, and an operator looks whether it holds. */
	if (!s->store.up || kind_of(x) == OP_PAUSE)
		return;
	sim_trace(s, "  store: a statement of a lost connection of %s arrives", master_name(s, &s->m[x->master]));
	rows_apply(s, x, kind_of(x), false);
}

static bool not_applied(const struct msg *x) { return heap_has(&x->node) && x->run == on_apply; }

/* The server has the statement already, though the connection is gone: it is carried out some time, perhaps after it was
 * sent again. */
static void arrives_late(struct sim *s, const struct msg *x)
{
	struct msg *late = sim_at(s, s->now, NULL);
	late->master = x->master;
	late->id = x->id;
	late->epoch = x->epoch;
	late->gen = x->gen;
	late->worker = x->worker;
	late->index = x->index;
	late->again = x->again;
	late->ef = x->ef;
	store_keep_asked(late, &x->ef);
	sim_push(s, late, s->now + sim_between(s, 0, (sim_chance(s, 60) ? 8 : 60) * NS_PER_S), on_late);
}

static void lose(struct sim *s, struct master *m)
{
	list_each(it, &m->ops) {
		struct msg *x = container_of(it, struct msg, link);
		if (not_applied(x) && sim_chance(s, 50))
			rows_apply(s, x, kind_of(x), x->again);
		else if (not_applied(x) && s->store.up && sim_chance(s, 50))
			arrives_late(s, x);
		heap_remove(&s->queue, &x->node);
		x->again++;
	}
}

static bool opening(struct master *m)
{
	list_each(it, &m->ops)
		if (kind_of(container_of(it, struct msg, link)) == OP_OPEN)
			return true;
	return false;
}

static void on_news(struct sim *s, struct msg *x)
{
	if (master_dead(s, x) || master_later(s, x))
		return;
	struct master *m = master_of(s, x);
	if (!x->index) {
		tell_core(s, m, false);
		m->store_up = false;
		/* What was sent before it noticed. */
		list_each(it, &m->ops) {
			struct msg *op = container_of(it, struct msg, link);
			heap_remove(&s->queue, &op->node);
			op->again++;
		}
		return;
	}
	if (m->store_up || !store_reachable(s, m))
		return;
	m->store_up = true;
	list_each(it, &m->ops)
		send(s, m, container_of(it, struct msg, link));
	if (m->opened) {
		tell_core(s, m, true);
		master_beat(s, m);
	} else if (!opening(m)) {
		master_open(s, m);
	}
}

void store_changed(struct sim *s)
{
	for (int i = 0; i < s->n_masters; i++) {
		struct master *m = &s->m[i];
		bool reach = store_reachable(s, m);
		if (!m->up || reach == m->reach)
			continue;
		m->reach = reach;
		if (!reach)
			lose(s, m);
		int64_t *told = &m->last_answer[OP_NEWS]; /* news of the store keep their order */
		*told = max_i64(*told, s->now + sim_latency(s) / 4) + 1;
		master_msg(s, m, *told, on_news)->index = reach;
	}
}

void store_forget(struct sim *s, struct master *m)
{
	struct list *n;
	while ((n = list_pop_front(&m->ops))) {
		struct msg *x = container_of(n, struct msg, link);
		bool arrives = not_applied(x) && store_reachable(s, m) && sim_chance(s, 50);
		int64_t at = x->at;
		heap_remove(&s->queue, &x->node);
		if (arrives) {
			sim_push(s, x, at, on_late);
		} else {
			sim_free(s, x);
		}
	}
}
