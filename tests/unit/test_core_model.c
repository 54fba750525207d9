/* The core against a naive model: random events, and after each step every effect is compared with what a slow and
 * simple reading of the rules allows.  REINS_SEED replays one seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/num.h"
#include "common/base/rng.h"
#include "server/core/core.h"
#include "server/core/core_view.h"

#include <stdio.h>
#include <string.h>

#define WORKERS 5
#define QUEUES 3
#define TASKS 4096
#define ASKS 512
#define RUNS 16

enum state { NEW, READY, AWAY, HELD, GONE }; /* AWAY: reserved for a worker, not dispatched yet */

struct task {
	struct core_task t;
	enum state state;
	int worker;            /* AWAY, HELD */
	int sent_attempt;      /* newest attempt that was dispatched */
	bool taking_back, recording;
	int from;              /* whose outcome is recorded */
	int avoid;             /* not to this one before then; -1: the model does not know */
	int64_t avoid_until;
};

struct worker {
	char id[8];
	uint64_t peer;
	bool connected, opening, draining, wished;
	int64_t session, number, hold_until;
	int slots, gpus, licences, memory;
	bool enforces, commands;
	int handlers; /* bit per handler */
	int queue; /* -1: all */
};

struct model {
	struct rng rng;
	struct core *core;
	struct core_effects out;
	int64_t now;
	struct task tasks[TASKS];
	int n_tasks;
	struct worker w[WORKERS + 1]; /* the last: nobody, for what was reserved under a session that has ended */
	uint64_t turn, turns[QUEUES], peers, tokens;
	struct core_effect asks[ASKS];
	int n_asks;
	/* the last: reserved under a session that has ended */
	int used[WORKERS + 1], used_gpus[WORKERS + 1], used_licences[WORKERS + 1], used_memory[WORKERS + 1];
	int64_t pause_until;
	int submitted; /* task of this step's submit; -1 none */
	uint64_t step, steps_with_dispatch;
	bool store_up;
};

static struct model M;
static const char *const names[QUEUES] = { "a", "b", "c" };
static const char *const handlers[] = { "x", "y" };
/* What may be asked for; the number of licences is the first digit. */
static const char *const customs[] = { "lic=1", "lic=2", "lic=3", "lic=1 none=1" };

#define EXPECT(x)                                                                              \
	do {                                                                                   \
		if (!(x))                                                                      \
			fail_msg("step %llu: %s", (unsigned long long)M.step, #x);             \
	} while (0)

static int between(int low, int high) { return low + (int)rng_below(&M.rng, (uint64_t)(high - low + 1)); }
static bool chance(int percent) { return between(0, 99) < percent; }

static int queue_of(const struct task *t) { return t->t.queue[0] - 'a'; }
static struct task *task_of(const struct uuid *u) { return &M.tasks[u->b[14] << 8 | u->b[15]]; }
static int worker_of(const char *id) { return id[1] - '0'; }

/* ---- the rules, slowly ---- */

static int licences(const struct task *t) { return t->t.custom ? t->t.custom[4] - '0' : 0; }

static bool runs(const struct task *t, const struct worker *w)
{
	return t->t.handler ? w->handlers & (t->t.handler[0] == 'x' ? 1 : 2) : w->commands;
}

/* What is used of each worker, counted anew each time. */
static void tally(void)
{
	memset(M.used, 0, sizeof(M.used));
	memset(M.used_gpus, 0, sizeof(M.used_gpus));
	memset(M.used_licences, 0, sizeof(M.used_licences));
	memset(M.used_memory, 0, sizeof(M.used_memory));
	for (int i = 0; i < M.n_tasks; i++) {
		const struct task *t = &M.tasks[i];
		if (t->state == AWAY || t->state == HELD) {
			M.used[t->worker]++;
			M.used_gpus[t->worker] += t->t.need.gpus;
			M.used_licences[t->worker] += licences(t);
			M.used_memory[t->worker] += (int)t->t.need.memory_bytes;
		}
	}
}

static bool fits(const struct task *t, int i)
{
	const struct worker *w = &M.w[i];
	return w->connected && !w->opening && !w->draining && !w->wished && M.now >= w->hold_until && M.used[i] < w->slots &&
	       t->t.need.gpus <= w->gpus - M.used_gpus[i] && licences(t) <= w->licences - M.used_licences[i] &&
	       (t->t.need.memory_bytes == 0 || t->t.need.memory_bytes <= w->memory - M.used_memory[i]) &&
	       (!t->t.custom || !strstr(t->t.custom, "none")) && runs(t, w) && (!t->t.exclusive || w->enforces) &&
	       (w->queue < 0 || w->queue == queue_of(t));
}

static bool avoids(const struct task *t) { return t->avoid_until > M.now; }

static bool fits_somebody(const struct task *t)
{
	for (int i = 0; i < WORKERS; i++)
		if (fits(t, i))
			return true;
	return false;
}

static int in_flight(void)
{
	int n = 0;
	for (int i = 0; i < M.n_tasks; i++)
		n += M.tasks[i].state == AWAY;
	return n;
}

/* Must `a` be given out before `b`? */
static bool goes_first(const struct task *a, const struct task *b)
{
	if (a->t.priority != b->t.priority)
		return a->t.priority > b->t.priority;
	if (queue_of(a) != queue_of(b))
		return M.turns[queue_of(a)] < M.turns[queue_of(b)];
	return a->t.seq < b->t.seq;
}

static void check_next(const struct task *picked)
{
	for (int i = 0; i < M.n_tasks; i++) {
		const struct task *t = &M.tasks[i];
		if (t->state == READY && t != picked && !avoids(t) && goes_first(t, picked) && fits_somebody(t))
			fail_msg("step %llu: task %d was given out before task %d", (unsigned long long)M.step,
				 (int)(picked - M.tasks), i);
	}
}

static void check_nothing_waits(void)
{
	if (!M.store_up || M.now < M.pause_until || in_flight() >= 64)
		return;
	tally();
	for (int i = 0; i < M.n_tasks; i++) {
		const struct task *t = &M.tasks[i];
		if (t->state == READY && !avoids(t) && fits_somebody(t))
			fail_msg("step %llu: task %d waits though somebody is free for it", (unsigned long long)M.step, i);
	}
}

/* ---- effects ---- */

static void on_preempt(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	int w = worker_of(f->worker);
	tally();
	EXPECT(t->state == READY || (t->state == NEW && M.submitted == (int)(t - M.tasks)));
	EXPECT(fits(t, w));
	EXPECT(f->session == M.w[w].session);
	EXPECT(f->at.attempt == t->t.attempt + 1);
	EXPECT(!(avoids(t) && t->avoid == w));
	if (t->state == READY && !avoids(t))
		check_next(t);
	for (int i = 0; t->state == NEW && i < M.n_tasks; i++) {
		const struct task *o = &M.tasks[i];
		EXPECT(!(o->state == READY && !avoids(o) && o->t.priority >= t->t.priority && fits_somebody(o)));
	}
	M.turns[queue_of(t)] = ++M.turn;
	t->state = AWAY;
	t->worker = w;
}

static void on_dispatch(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct worker *w = &M.w[worker_of(f->worker)];
	EXPECT(t->state == HELD && t->worker == worker_of(f->worker));
	EXPECT(f->at.attempt == t->t.attempt && f->at.attempt > t->sent_attempt);
	EXPECT(w->connected && !w->opening && f->peer == w->peer);
	EXPECT(f->number == w->number + (M.steps_with_dispatch != M.step));
	w->number = f->number;
	M.steps_with_dispatch = M.step;
	t->sent_attempt = f->at.attempt;
}

static bool asks(enum core_effect_type t)
{
	return t == CORE_DO_INSERT || t == CORE_DO_PREEMPT || t == CORE_DO_CLAIM || t == CORE_DO_RECORD ||
	       t == CORE_DO_TAKE_BACK || t == CORE_DO_SESSION_OPEN || t == CORE_DO_FILL || t == CORE_DO_QUEUES ||
	       t == CORE_DO_DUE || t == CORE_DO_EXPIRE || t == CORE_DO_STRAYS || t == CORE_DO_KEYS;
}

static void on_effect(const struct core_effect *f)
{
	if (f->type == CORE_DO_PREEMPT)
		on_preempt(f);
	else if (f->type == CORE_DO_DISPATCH)
		on_dispatch(f);
	else if (f->type == CORE_DO_CLAIM || (f->type == CORE_DO_INSERT && f->worker))
		EXPECT(task_of(&f->at.task)->state == AWAY);
	if (f->type == CORE_DO_TAKE_BACK)
		task_of(&f->at.task)->taking_back = true;
	if (!asks(f->type))
		return;
	EXPECT(M.n_asks < ASKS);
	M.asks[M.n_asks] = *f;
	M.asks[M.n_asks].held = NULL;
	M.asks[M.n_asks].spec = NULL;
	if (f->worker)
		M.asks[M.n_asks].worker = M.w[worker_of(f->worker)].id;
	M.n_asks++;
}

static int count(enum core_effect_type type)
{
	int n = 0;
	for (size_t i = 0; i < M.out.n; i++)
		n += M.out.at[i].type == type;
	return n;
}

/* One event, what it means to the model applied by `before` (NULL: nothing), then its effects one after the other. */
static void step(const struct core_event *ev)
{
	M.step++;
	core_step(M.core, M.now, ev, 1, &M.out);
	core_check(M.core);
	for (size_t i = 0; i < M.out.n; i++)
		on_effect(&M.out.at[i]);
	check_nothing_waits();
}

/* ---- events ---- */

static struct task *task_new(void)
{
	struct task *t = &M.tasks[M.n_tasks];
	*t = (struct task){ .worker = -1 };
	t->t = (struct core_task){
		.id = { .b = { [14] = (uint8_t)(M.n_tasks >> 8), [15] = (uint8_t)M.n_tasks } },
		.queue = names[between(0, QUEUES - 1)],
		.priority = chance(30) ? between(-1, 2) : 0,
		.need.gpus = chance(20) ? between(1, 2) : 0,
		.need.memory_bytes = chance(10) ? between(1, 2) : 0,
		.handler = chance(25) ? handlers[between(0, 1)] : NULL,
		.custom = chance(20) ? customs[between(0, 3)] : NULL,
		.exclusive = chance(20),
		.max_attempts = 3,
	};
	M.n_tasks++;
	return t;
}

static void ev_submit(void)
{
	if (M.n_tasks == TASKS)
		return;
	struct task *t = task_new();
	struct core_event ev = { .type = CORE_EV_SUBMIT, .task = t->t, .token = ++M.tokens };
	M.submitted = (int)(t - M.tasks);
	step(&ev);
	M.submitted = -1;
	EXPECT(t->state == AWAY || count(CORE_DO_INSERT) == 1);
}

static void ev_ready(void)
{
	struct core_task rows[4];
	size_t n = 0;
	for (int k = between(1, 4); k > 0 && M.n_tasks < TASKS; k--) {
		struct task *t = task_new();
		t->t.seq = M.n_tasks;
		t->state = READY;
		rows[n++] = t->t;
	}
	struct core_event ev = { .type = CORE_EV_READY, .ready = { rows, n } };
	step(&ev);
}

static int pick_task(bool (*is)(const struct task *))
{
	int at[TASKS], n = 0;
	for (int i = 0; i < M.n_tasks; i++)
		if (is(&M.tasks[i]))
			at[n++] = i;
	return n ? at[between(0, n - 1)] : -1;
}

static bool is_running(const struct task *t)
{
	return t->state == HELD && !t->taking_back && M.w[t->worker].connected && !M.w[t->worker].opening;
}
static bool is_ready(const struct task *t) { return t->state == READY; }

static void ev_outcome(void)
{
	int i = pick_task(is_running);
	if (i < 0)
		return;
	struct task *t = &M.tasks[i];
	struct core_event ev = { .type = chance(80) ? CORE_EV_OUTCOME : CORE_EV_REFUSED, .peer = M.w[t->worker].peer,
				 .at = { t->t.id, t->t.attempt }, .token = ++M.tokens };
	ev.outcome.succeeded = true;
	t->state = GONE; /* its slot is free at once */
	t->from = t->avoid = t->worker;
	t->avoid_until = 0;
	t->recording = ev.type == CORE_EV_OUTCOME;
	step(&ev);
	EXPECT(count(ev.type == CORE_EV_OUTCOME ? CORE_DO_RECORD : CORE_DO_TAKE_BACK) == 1);
	if (ev.type == CORE_EV_OUTCOME && chance(20)) {
		ev.token = ++M.tokens; /* the same again */
		step(&ev);
		EXPECT(count(CORE_DO_RECORD) == 0 && count(CORE_DO_DROP) == 1);
	}
}

static void ev_gone(void)
{
	int i = pick_task(is_ready);
	if (i < 0)
		return;
	struct core_event ev = { .type = CORE_EV_GONE, .at = { M.tasks[i].t.id, 0 } };
	M.tasks[i].state = GONE;
	step(&ev);
}

static size_t list_held(int w, struct core_attempt *at)
{
	size_t n = 0;
	for (int i = 0; i < M.n_tasks; i++) {
		const struct task *t = &M.tasks[i];
		if (t->state == HELD && t->worker == w && n < RUNS)
			at[n++] = (struct core_attempt){ t->t.id, t->t.attempt };
	}
	return n;
}

static void ev_heartbeat(int i)
{
	struct core_attempt held[RUNS];
	struct worker *w = &M.w[i];
	struct core_event ev = { .type = CORE_EV_HEARTBEAT, .peer = w->peer };
	ev.heartbeat.number = 1;
	ev.heartbeat.last_dispatch = w->number;
	ev.heartbeat.held = held;
	ev.heartbeat.n_held = list_held(i, held);
	w->hold_until = 0;
	step(&ev);
	EXPECT(count(CORE_DO_HEARTBEAT_ACK) == 1 && count(CORE_DO_TAKE_BACK) == 0 && count(CORE_DO_STOP) == 0);
}

static void ev_worker(void)
{
	int i = between(0, WORKERS - 1);
	struct worker *w = &M.w[i];
	if (w->opening)
		return;
	if (w->connected && chance(85)) {
		ev_heartbeat(i);
	} else if (w->connected && chance(50)) {
		struct core_event ev = { .type = CORE_EV_PEER_GONE, .peer = w->peer };
		w->connected = false;
		step(&ev);
	} else if (w->connected && chance(20)) {
		bool on = chance(50);
		struct core_event ev = { .type = CORE_EV_DRAINING, .peer = w->peer, .draining.on = on };
		w->draining = on;
		step(&ev);
	} else if (chance(20)) {
		/* By an operator, of a worker that is here or not: it holds over sessions. */
		struct core_event ev = { .type = CORE_EV_DRAIN_WISH };
		ev.drain_wish.worker = w->id;
		ev.drain_wish.on = w->wished = chance(50);
		step(&ev);
	} else {
		struct core_attempt held[RUNS];
		struct core_event ev = { .type = CORE_EV_HELLO, .peer = ++M.peers };
		if (!w->session) {
			w->slots = between(0, 4);
			w->gpus = between(0, 3);
			w->enforces = chance(50);
			w->commands = chance(80);
			w->handlers = between(0, 3);
			w->licences = between(0, 4);
			w->memory = chance(50) ? between(1, 4) : 0;
			w->queue = chance(50) ? -1 : between(0, QUEUES - 1);
		}
		ev.hello.worker = w->id;
		char custom[16];
		snprintf(custom, sizeof(custom), "lic=%d", w->licences);
		ev.hello.capacity = (struct core_capacity){
			.slots = w->slots, .have = { .gpus = w->gpus, .memory_bytes = w->memory }, .custom = custom,
		};
		ev.hello.handlers = &handlers[w->handlers == 2];
		ev.hello.n_handlers = (size_t)(w->handlers == 3 ? 2 : w->handlers != 0);
		ev.hello.runs_commands = w->commands;
		ev.hello.queues = &names[w->queue < 0 ? 0 : w->queue];
		ev.hello.n_queues = w->queue >= 0;
		ev.hello.enforces_lease = w->enforces;
		ev.hello.held = held;
		ev.hello.n_held = list_held(i, held);
		w->opening = true;
		step(&ev);
		EXPECT(count(CORE_DO_SESSION_OPEN) == 1);
	}
}

/* ---- answers ---- */

static void to_ready(struct task *t)
{
	t->state = READY;
	t->worker = -1;
}

static void answer_preempt(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct worker *w = &M.w[worker_of(f->worker)];
	struct core_event ev = { .type = CORE_EV_PREEMPTED, .at = f->at };
	ev.preempted = chance(90) ? CORE_PREEMPT_OK : (enum core_preempt_verdict)between(0, 3);
	bool taken = ev.preempted == CORE_PREEMPT_OK || ev.preempted == CORE_PREEMPT_DOWN;
	bool lives = w->connected && !w->opening && !w->draining && !w->wished && w->session == f->session;
	if (!taken && w->session == f->session)
		w->hold_until = M.now + 2 * NS_PER_S;
	bool submit = t->t.seq == 0;
	if (!taken || !lives) {
		if (submit) {
			t->state = NEW;
			t->worker = -1;
		} else {
			to_ready(t);
		}
	}
	step(&ev);
	if (!taken || !lives)
		EXPECT(!submit || count(CORE_DO_INSERT) == 1);
	else
		EXPECT(count(submit ? CORE_DO_INSERT : CORE_DO_CLAIM) == 1);
}

/* The row became RUNNING here: it is sent, or given back when nobody is there. */
static void won(struct task *t, const struct core_effect *f, struct core_event *ev)
{
	const struct worker *w = &M.w[t->worker];
	bool lives = w->connected && !w->opening && !w->draining && !w->wished && w->session == f->session;
	t->t.attempt++;
	t->state = lives ? HELD : GONE;
	ev->at.attempt = t->t.attempt;
	ev->task = t->t;
	step(ev);
	EXPECT(count(lives ? CORE_DO_DISPATCH : CORE_DO_TAKE_BACK) == 1);
}

static void answer_insert(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct core_event ev = { .type = CORE_EV_INSERTED, .at = f->at, .task = t->t, .token = f->token };
	ev.inserted = chance(90) ? CORE_INSERT_CREATED : (enum core_insert_verdict)between(1, 2);
	if (ev.inserted != CORE_INSERT_CREATED) {
		t->state = GONE;
		step(&ev);
		return;
	}
	t->t.seq = t - M.tasks + 1;
	if (f->worker) {
		won(t, f, &ev);
		return;
	}
	to_ready(t);
	ev.task = t->t;
	step(&ev);
}

static void answer_claim(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct core_event ev = { .type = CORE_EV_CLAIMED, .at = f->at };
	ev.claimed = chance(90) ? CORE_CLAIM_WON : (enum core_claim_verdict)between(1, 2);
	if (ev.claimed == CORE_CLAIM_WON) {
		won(t, f, &ev);
		return;
	}
	if (ev.claimed == CORE_CLAIM_LOST) {
		t->state = GONE;
	} else {
		to_ready(t);
		M.pause_until = M.now + 100 * NS_PER_MS;
	}
	step(&ev);
}

static void answer_take_back(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct core_event ev = { .type = CORE_EV_TAKEN_BACK, .at = f->at, .session = f->session, .task = t->t };
	ev.taken_back = chance(90) ? CORE_TAKE_BACK_PENDING : (enum core_take_back_verdict)between(1, 2);
	t->taking_back = false;
	t->state = GONE;
	if (ev.taken_back == CORE_TAKE_BACK_PENDING) {
		to_ready(t);
		/* A new session of that worker may begin with a clean slate: then either is right. */
		if (f->cause != CORE_CAUSE_REFUSED || M.w[t->from].session != f->session)
			t->avoid = -1;
		if (f->cause == CORE_CAUSE_REFUSED)
			t->avoid_until = M.now + NS_PER_S;
	}
	step(&ev);
}

static void answer_record(const struct core_effect *f)
{
	struct task *t = task_of(&f->at.task);
	struct core_event ev = { .type = CORE_EV_RECORDED, .at = f->at, .peer = f->peer, .token = f->token };
	bool again = chance(20);
	t->recording = false;
	if (again) {
		to_ready(t);
		ev.recorded.pending_again = true;
		ev.task = t->t;
	}
	int w = t->from;
	step(&ev);
	EXPECT(count(CORE_DO_OUTCOME_ACK) == (M.w[w].connected ? 1 : 0));
}

static void answer_session(const struct core_effect *f)
{
	struct worker *w = &M.w[worker_of(f->worker)];
	struct core_adopted adopted[RUNS];
	struct core_event ev = { .type = CORE_EV_SESSION_OPENED, .peer = f->peer };
	ev.opened.worker = w->id;
	ev.opened.ok = true;
	ev.opened.session = w->session + 1;
	ev.opened.drain_wish = w->wished;
	ev.opened.adopted = adopted;
	for (int i = 0; i < M.n_tasks; i++) {
		struct task *t = &M.tasks[i];
		if (t->state == HELD && t->worker == worker_of(f->worker))
			adopted[ev.opened.n_adopted++] = (struct core_adopted){ .task = t->t, .lease_ns = 1000 * NS_PER_S };
		/* Reserved under the older session: its slot is free, its answer will find no stream. */
		if (t->state == AWAY && t->worker == worker_of(f->worker))
			t->worker = WORKERS;
	}
	w->session++;
	w->number = 0;
	w->peer = f->peer;
	w->connected = true;
	w->opening = w->draining = false;
	w->hold_until = 0;
	step(&ev);
	EXPECT(count(CORE_DO_WELCOME) == 1);
}

/* Some ready rows that were never given out. */
static void answer_expire(void)
{
	struct uuid ids[4];
	struct core_event ev = { .type = CORE_EV_EXPIRED };
	ev.expired.at = ids;
	ev.expired.ok = chance(90);
	ev.expired.next_in_ns = chance(50) ? between(0, 50) * NS_PER_MS : -1;
	while (ev.expired.ok && ev.expired.n < ARRAY_LEN(ids) && chance(50)) {
		int i = pick_task(is_ready);
		if (i < 0 || M.tasks[i].t.attempt > 0)
			break;
		M.tasks[i].state = GONE;
		ids[ev.expired.n++] = M.tasks[i].t.id;
	}
	step(&ev);
}

static void answer_reading(const struct core_effect *f)
{
	static struct core_task rows[TASKS];
	struct core_event ev = { .type = CORE_EV_QUEUES };
	if (f->type == CORE_DO_QUEUES) {
		ev.queues.at = names;
		ev.queues.n = QUEUES;
		ev.queues.ok = true;
	} else if (f->type == CORE_DO_DUE) {
		ev.type = CORE_EV_DUE;
		ev.due.ok = true;
		ev.due.next_in_ns = -1;
	} else if (f->type == CORE_DO_EXPIRE) {
		answer_expire();
		return;
	} else if (f->type == CORE_DO_KEYS) {
		ev.type = CORE_EV_KEYS;
		ev.keys.ok = true;
	} else if (f->type == CORE_DO_STRAYS) {
		ev.type = CORE_EV_STRAYS;
		ev.strays.ok = true;
	} else {
		ev.type = CORE_EV_FILLED;
		ev.filled.queue = f->queue;
		ev.filled.ok = true;
		ev.filled.exhausted = true;
		ev.filled.at = rows;
		for (int i = 0; i < M.n_tasks; i++) /* all are known already */
			if (M.tasks[i].state == READY && queue_of(&M.tasks[i]) == f->queue[0] - 'a')
				rows[ev.filled.n++] = M.tasks[i].t;
	}
	step(&ev);
}

static void answer_one(void)
{
	if (!M.n_asks)
		return;
	int i = between(0, M.n_asks - 1);
	struct core_effect f = M.asks[i];
	M.asks[i] = M.asks[--M.n_asks];
	switch (f.type) {
	case CORE_DO_PREEMPT: answer_preempt(&f); break;
	case CORE_DO_INSERT: answer_insert(&f); break;
	case CORE_DO_CLAIM: answer_claim(&f); break;
	case CORE_DO_TAKE_BACK: answer_take_back(&f); break;
	case CORE_DO_RECORD: answer_record(&f); break;
	case CORE_DO_SESSION_OPEN: answer_session(&f); break;
	default: answer_reading(&f); break;
	}
}

static void ev_time(void)
{
	/* Short: leases and accept deadlines are test_core's and the simulator's. */
	M.now += between(0, 20) * NS_PER_MS;
	struct core_event ev = { .type = CORE_EV_TIME };
	step(&ev);
}

static void ev_accepted(void)
{
	int i = pick_task(is_running);
	if (i < 0)
		return;
	struct task *t = &M.tasks[i];
	struct core_event ev = { .type = CORE_EV_ACCEPTED, .peer = M.w[t->worker].peer, .at = { t->t.id, t->t.attempt } };
	step(&ev);
}

static void run_seed(uint64_t seed)
{
	struct core_config cfg;
	memset(&M, 0, sizeof(M));
	rng_seed(&M.rng, seed);
	core_config_default(&cfg);
	cfg.lease_ttl_ns = cfg.accept_timeout_ns = 1000000 * NS_PER_S;
	cfg.in_flight_claims = 64;
	M.now = 1000 * NS_PER_S;
	M.submitted = -1;
	M.store_up = true;
	M.core = core_new(&cfg, M.now);
	core_effects_init(&M.out);
	for (int i = 0; i < WORKERS; i++)
		snprintf(M.w[i].id, sizeof(M.w[i].id), "w%d", i);
	ev_time();
	while (M.n_asks)
		answer_one();
	for (int i = 0; i < 3000; i++) {
		int what = between(0, 99);
		if (what < 45)
			answer_one();
		else if (what < 55)
			ev_submit();
		else if (what < 60)
			ev_ready();
		else if (what < 75)
			ev_outcome();
		else if (what < 80)
			ev_accepted();
		else if (what < 92)
			ev_worker();
		else if (what < 94)
			ev_gone();
		else
			ev_time();
	}
	core_free(M.core);
	core_effects_done(&M.out);
}

static void test_model(void **state)
{
	const char *text = getenv("REINS_SEED");
	int64_t seed = 0;
	if (text) {
		assert_int_equal(num_parse_i64(text, &seed), 0);
		run_seed((uint64_t)seed);
		return;
	}
	for (int i = 0; i < 40; i++) {
		uint64_t s = rng_process_next() >> 1;
		print_message("# REINS_SEED=%llu\n", (unsigned long long)s);
		run_seed(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
