#include "server/monitor/counts.h"

#include <stdio.h>
#include <string.h>

#define REST_FACTOR 10
/* No name of a queue has parentheses. */
#define OTHERS "(other)"

static void round_init(struct counts_round *r, size_t max_queues)
{
	*r = (struct counts_round){ .at = xcalloc(max_queues + 1, sizeof(*r->at)) };
}

static void round_clear(struct counts_round *r, size_t max_queues)
{
	for (size_t i = 0; i <= max_queues; i++)
		free(r->at[i].name);
	memset(r->at, 0, (max_queues + 1) * sizeof(*r->at));
	r->n = 0;
	r->queues = r->done_mono_ns = 0;
}

void counts_init(struct counts *c, size_t max_queues)
{
	*c = (struct counts){ .max_queues = max_queues };
	round_init(&c->now, max_queues);
	round_init(&c->next, max_queues);
}

void counts_done(struct counts *c)
{
	struct counts_round *const rounds[] = { &c->now, &c->next };
	for (size_t i = 0; i < ARRAY_LEN(rounds) && rounds[i]->at; i++) {
		round_clear(rounds[i], c->max_queues);
		free(rounds[i]->at);
		rounds[i]->at = NULL;
	}
}

/* ---- a round ---- */

static void add(struct counted *to, const struct store_queue *q)
{
	to->ready += q->ready;
	to->delayed += q->delayed;
	to->running += q->running;
	to->paused += q->paused;
	if (q->oldest_wall_us && (!to->oldest_wall_us || q->oldest_wall_us < to->oldest_wall_us))
		to->oldest_wall_us = q->oldest_wall_us;
}

static void add_page(struct counts *c)
{
	struct counts_round *r = &c->next;
	for (size_t i = 0; i < c->op.ret_n; i++) {
		const struct store_queue *q = &c->op.ret_rows[i];
		bool own = r->n < c->max_queues;
		struct counted *to = &r->at[own ? r->n++ : c->max_queues];
		if (own)
			to->name = xstrdup(q->name);
		add(to, q);
		r->queues++;
	}
}

static void ask(struct counts *c);

static void on_page(struct store_op *op)
{
	struct counts *c = container_of(op, struct counts, op.op);
	bool ok = op->result == STORE_OK;
	if (ok)
		add_page(c);
	bool more = ok && c->op.ret_more && c->op.ret_n > 0;
	if (more)
		snprintf(c->after, sizeof(c->after), "%s", c->op.ret_rows[c->op.ret_n - 1].name);
	store_op_done_fields(op);
	if (more) {
		ask(c);
		return;
	}
	int64_t now = clock_mono_ns();
	c->asking = false;
	c->next_mono_ns = max_i64(c->next.began_mono_ns + COUNTS_EVERY_NS, now + REST_FACTOR * (now - c->next.began_mono_ns));
	if (!ok)
		return;
	struct counts_round before = c->now;
	c->now = c->next;
	c->now.done_mono_ns = now;
	c->next = before;
}

static void ask(struct counts *c)
{
	c->op = (struct store_queue_list){ .op = { .kind = STORE_QUEUE_LIST, .done = on_page }, .after = c->after, .limit = COUNTS_PAGE };
	c->asking = true;
	store_submit(c->store, &c->op.op);
}

void counts_want(struct counts *c, struct store *store, int64_t now_mono_ns)
{
	if (!c->max_queues || c->asking || now_mono_ns < c->next_mono_ns || !store->up)
		return;
	c->store = store;
	c->after[0] = '\0';
	round_clear(&c->next, c->max_queues);
	c->next.began_mono_ns = now_mono_ns;
	ask(c);
}

/* ---- its result ---- */

static const char *queue_label(const struct counted *q, char *labels, size_t cap)
{
	*labels = '\0';
	(void)exposition_label(labels, cap, "queue", q->name ? q->name : OTHERS);
	return labels;
}

static void show_tasks(struct exposition *x, const struct counted *q)
{
	static const char *const states[] = { "ready", "delayed", "running" };
	const int64_t values[] = { q->ready, q->delayed, q->running };
	char labels[2 * CORE_NAME_MAX + 64];
	for (size_t i = 0; i < ARRAY_LEN(states); i++) {
		queue_label(q, labels, sizeof(labels));
		(void)exposition_label(labels, sizeof(labels), "state", states[i]);
		exposition_int(x, labels, values[i]);
	}
}

void counts_show(const struct counts *c, struct exposition *x, int64_t now_mono_ns)
{
	const struct counts_round *r = &c->now;
	if (!r->done_mono_ns || now_mono_ns - r->done_mono_ns > COUNTS_OLD_NS)
		return;
	char labels[2 * CORE_NAME_MAX + 64];
	exposition_one(x, "reins_queues", EXPOSITION_GAUGE, "Queues with tasks that wait or run, or that are paused.", r->queues);
	exposition_family(x, "reins_tasks", EXPOSITION_GAUGE,
			  "Tasks in the store by queue and state, a moment ago. Ready and delayed are PENDING. At 10000 of a queue no more "
			  "are counted. Queue (other): all but the first --metrics-queues, by name.");
	for (size_t i = 0; i <= r->n; i++)
		show_tasks(x, &r->at[i < r->n ? i : c->max_queues]);
	exposition_family(x, "reins_queue_paused", EXPOSITION_GAUGE, "1: it is paused; of (other): how many are.");
	for (size_t i = 0; i <= r->n; i++) {
		const struct counted *q = &r->at[i < r->n ? i : c->max_queues];
		exposition_int(x, queue_label(q, labels, sizeof(labels)), q->paused);
	}
	exposition_family(x, "reins_queue_oldest_ready_timestamp_seconds", EXPOSITION_GAUGE,
			  "When the task of the queue that waits the longest was submitted; 0: none waits.");
	for (size_t i = 0; i <= r->n; i++) {
		const struct counted *q = &r->at[i < r->n ? i : c->max_queues];
		exposition_int(x, queue_label(q, labels, sizeof(labels)), q->oldest_wall_us / 1000000);
	}
}
