/* Virtual time and the life of a history: what is to happen is one queue of messages, ordered by time, then by when they
 * were made. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#define HEALED_END (300 * NS_PER_S) /* virtual time after the faults by which everything must have ended */

const char *const sim_handlers[3] = { "x", "y", "nobody" };

static bool msg_less(const struct heap_node *a, const struct heap_node *b)
{
	const struct msg *x = container_of(a, struct msg, node), *y = container_of(b, struct msg, node);
	return x->at != y->at ? x->at < y->at : x->order < y->order;
}

void sim_push(struct sim *s, struct msg *m, int64_t at, void (*run)(struct sim *, struct msg *))
{
	m->at = at;
	m->run = run;
	m->order = ++s->order;
	heap_push(&s->queue, &m->node);
}

struct msg *sim_at(struct sim *s, int64_t at, void (*run)(struct sim *, struct msg *))
{
	struct list *spare = list_pop_front(&s->spare);
	struct msg *m = spare ? container_of(spare, struct msg, link) : xcalloc(1, sizeof(*m));
	if (spare)
		memset(m, 0, sizeof(*m));
	heap_node_init(&m->node);
	list_init(&m->link);
	m->at = at;
	if (run)
		sim_push(s, m, at, run);
	return m;
}

void sim_free(struct sim *s, struct msg *m)
{
	list_remove(&m->link);
	free(m->mem);
	free(m->asked);
	m->mem = m->asked = NULL;
	list_push_back(&s->spare, &m->link);
}

void sim_again(struct sim *s, struct msg *m, int64_t at, void (*run)(struct sim *, struct msg *))
{
	m->kept = true;
	sim_push(s, m, at, run);
}

/* ---- what is told ---- */

void sim_trace_line(struct sim *s, const char *fmt, ...)
{
	char *line = s->lines[s->n_lines++ % TRACE_LINES];
	size_t size = sizeof(s->lines[0]);
	int n = snprintf(line, size, "%9.4f ", (double)(s->now - SIM_START) / 1e9);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line + n, size - (size_t)n, fmt, ap);
	va_end(ap);
	if (s->trace)
		puts(line);
}

void sim_violation(struct sim *s, const char *fmt, ...)
{
	if (s->violation[0])
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->violation, sizeof(s->violation), fmt, ap);
	va_end(ap);
	sim_trace(s, "VIOLATION: %s", s->violation);
}

/* ---- chance ---- */

int64_t sim_between(struct sim *s, int64_t low, int64_t high)
{
	return low + (int64_t)rng_below(&s->rng, (uint64_t)(high - low + 1));
}

bool sim_chance(struct sim *s, int percent)
{
	return percent > 0 && (int)rng_below(&s->rng, 100) < percent;
}

/* Mostly a millisecond, sometimes much more. */
int64_t sim_latency(struct sim *s)
{
	uint64_t r = rng_below(&s->rng, 100);
	return sim_between(s, 50 * NS_PER_US, r < 80 ? 2 * NS_PER_MS : r < 97 ? 20 * NS_PER_MS : 200 * NS_PER_MS);
}

struct uuid sim_id(int row)
{
	struct uuid u = { .b = { [0] = 1, [14] = (uint8_t)(row >> 8), [15] = (uint8_t)row } };
	return u;
}

/* ---- a history ---- */

static void on_check(struct sim *s, struct msg *m)
{
	if (check_ended(s)) {
		/* A little longer: nothing may change any more, and what was left over in the lease table must go. */
		s->quiet = true;
		int64_t hb_end = s->now + s->cfg.lease_ttl_ns; /* that of a session in a large fleet is longer */
		for (int i = 0; i < s->n_workers; i++)
			hb_end = max_i64(hb_end, s->lease.w[i].hb_end);
		s->end_at = min_i64(s->end_at, hb_end + s->cfg.recovery_ns + NS_PER_S);
	} else {
		sim_at(s, s->now + NS_PER_S, on_check);
	}
}

static void on_wishes(struct sim *s, struct msg *m) { check_wishes(s); }

static void on_heal(struct sim *s, struct msg *m)
{
	sim_trace(s, "all faults end");
	s->healed = true;
	fault_heal(s);
	on_check(s, m);
	sim_at(s, s->now + 18 * NS_PER_S, on_wishes);
}

static void on_second(struct sim *s, struct msg *m)
{
	check_nowhere(s);
	sim_again(s, m, s->now + NS_PER_S, on_second);
}

static void on_submit(struct sim *s, struct msg *m) { client_submit(s, m->index); }

static void prepare_tasks(struct sim *s)
{
	s->exclusives = sim_chance(s, s->takes_over ? 80 : 50);
	for (int i = 0; i < s->n_tasks; i++) {
		s->tasks[i] = (struct client_task){
			.priority = sim_chance(s, 30) ? (int)sim_between(s, -2, 2) : 0,
			.queue = (int)sim_between(s, 0, 2),
			.exclusive = s->exclusives && sim_chance(s, 40),
			.handler = sim_chance(s, 30) ? sim_handlers[rng_below(&s->rng, 2)] : NULL,
			.custom = sim_chance(s, 20) ? (sim_chance(s, 50) ? "lic=1" : "lic=2") : NULL,
			.expiry = sim_chance(s, 15) ? sim_between(s, NS_PER_MS, 20 * NS_PER_S) : 0,
		};
		if (s->tasks[i].expiry && sim_chance(s, 40))
			s->tasks[i].handler = sim_handlers[2];
		sim_at(s, s->now + sim_between(s, 0, s->faults_end * 3 / 4), on_submit)->index = i;
	}
}

static void prepare(struct sim *s)
{
	core_config_default(&s->cfg);
	s->faults_end = 40 * NS_PER_S;
	/* In some histories masters take over from each other, while something exclusive runs. */
	s->takes_over = sim_chance(s, 30);
	if (s->takes_over) {
		s->faults_end = 100 * NS_PER_S;
		s->cfg.master_ttl_ns = sim_between(s, 4, 8) * NS_PER_S;
		s->cfg.master_ttl_exclusive_ns = s->cfg.master_ttl_ns + sim_between(s, 0, 8) * NS_PER_S;
	}
	s->n_masters = !s->takes_over && sim_chance(s, 40) ? 1 : (int)sim_between(s, 2, SIM_MASTERS);
	s->n_workers = (int)sim_between(s, 1, SIM_WORKERS);
	s->n_tasks = (int)sim_between(s, 1, SIM_TASKS);
	s->race_percent = sim_chance(s, 70) ? (int)sim_between(s, 1, 30) : 0;
	s->new_ids = sim_chance(s, 30);
	master_boot(s);
	for (int i = 0; i < s->n_workers; i++) {
		worker_init(s, i);
		worker_start(s, i);
	}
	prepare_tasks(s);
	fault_prepare(s);
	sim_at(s, s->now + s->faults_end, on_heal);
	sim_at(s, s->now + NS_PER_S, on_second);
	s->end_at = s->now + s->faults_end + HEALED_END;
}

static void forget(struct sim *s)
{
	while (s->queue.len) {
		struct msg *m = container_of(heap_top(&s->queue), struct msg, node);
		heap_remove(&s->queue, &m->node);
		sim_free(s, m);
	}
	heap_done(&s->queue);
	for (int k = 0; k < s->n_masters; k++) {
		struct master *m = &s->m[k];
		for (int i = 0; i < m->n_inbox; i++)
			sim_free(s, m->inbox[i]);
		for (int i = 0; i < m->n_outbox; i++)
			sim_free(s, m->outbox[i]);
		struct list *n;
		while ((n = list_pop_front(&m->ops)))
			sim_free(s, container_of(n, struct msg, link));
		core_free(m->core);
		core_effects_clear(&m->out);
	}
}

static void begin(struct sim *s, uint64_t seed, enum sim_trace trace)
{
	struct core_effects keep[SIM_MASTERS];
	for (int i = 0; i < SIM_MASTERS; i++)
		keep[i] = s->m[i].out;
	memset(s, 0, offsetof(struct sim, conns));
	for (int i = 0; i < SIM_MASTERS; i++) {
		s->m[i].out = keep[i];
		list_init(&s->m[i].ops);
	}
	if (!s->spare.next)
		list_init(&s->spare);
	s->n_lines = 0;
	s->seed = seed;
	s->trace = trace == SIM_PRINT;
	s->keep = trace == SIM_KEEP;
	rng_seed(&s->rng, seed);
	heap_init(&s->queue, msg_less);
	s->now = SIM_START;
	s->end_at = INT64_MAX;
	store_init(s);
	s->lease.up = true;
}

bool sim_run(struct sim *s, uint64_t seed, enum sim_trace trace)
{
	begin(s, seed, trace);
	prepare(s);
	while (s->queue.len && !s->violation[0]) {
		struct msg *m = container_of(heap_top(&s->queue), struct msg, node);
		if (m->at > s->end_at)
			break;
		heap_remove(&s->queue, &m->node);
		s->now = max_i64(s->now, m->at);
		m->kept = false;
		m->run(s, m);
		if (!m->kept)
			sim_free(s, m);
	}
	if (!s->violation[0])
		check_end(s);
	forget(s);
	return !s->violation[0];
}

void sim_done(struct sim *s)
{
	for (int i = 0; i < SIM_MASTERS; i++)
		core_effects_done(&s->m[i].out);
	struct list *n;
	while (s->spare.next && (n = list_pop_front(&s->spare)))
		free(container_of(n, struct msg, link));
}
