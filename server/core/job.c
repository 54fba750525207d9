/* Jobs: one task on its way through this master, from the window to the acknowledged outcome.  Their life, their
 * indexes, and the only function that changes a state; what makes it change is in attempt.c. */
#include "server/core/internal.h"

#include <assert.h>
#include <string.h>

#define BIT(s) (1u << (s))

static const uint32_t legal[JOB_STATES] = {
	[JOB_READY] = BIT(JOB_PREEMPTING),
	[JOB_PREEMPTING] = BIT(JOB_INSERTING) | BIT(JOB_CLAIMING),
	[JOB_INSERTING] = BIT(JOB_SENT) | BIT(JOB_TAKING_BACK),
	[JOB_CLAIMING] = BIT(JOB_SENT) | BIT(JOB_TAKING_BACK),
	[JOB_SENT] = BIT(JOB_RUNNING) | BIT(JOB_RECALLING) | BIT(JOB_TAKING_BACK) | BIT(JOB_RECORDING) |
		     BIT(JOB_WAITING) | BIT(JOB_LEFT),
	[JOB_RUNNING] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_TAKING_BACK) | BIT(JOB_WAITING) | BIT(JOB_LEFT),
	[JOB_RECALLING] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_TAKING_BACK) | BIT(JOB_WAITING) |
			  BIT(JOB_LEFT),
	[JOB_ENDED] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_TAKING_BACK) | BIT(JOB_WAITING) | BIT(JOB_LEFT),
	[JOB_RECORDING] = BIT(JOB_DONE) | BIT(JOB_ENDED) | BIT(JOB_TAKING_BACK),
	[JOB_TAKING_BACK] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_LEFT) | BIT(JOB_WAITING),
	[JOB_LEFT] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_WAITING),
	[JOB_WAITING] = BIT(JOB_RUNNING) | BIT(JOB_RECORDING) | BIT(JOB_TAKING_BACK) | BIT(JOB_WAITING) | BIT(JOB_LEFT),
	[JOB_DONE] = BIT(JOB_RECORDING) | BIT(JOB_RUNNING) | BIT(JOB_LEFT),
};

/* On its way to a worker that has not said yet that it has it. */
static bool given_state(enum job_state s) { return s >= JOB_PREEMPTING && s <= JOB_SENT; }

/* On its way to the store. */
static bool in_flight_state(enum job_state s) { return s >= JOB_PREEMPTING && s <= JOB_CLAIMING; }

static bool by_task_state(enum job_state s) { return s <= JOB_CLAIMING; }

static void index_out(struct core *c, struct job *j)
{
	map_remove(by_task_state(j->state) ? &c->by_task : &c->by_attempt, &j->node);
}

static void index_in(struct core *c, struct job *j)
{
	if (by_task_state(j->state)) {
		map_put(&c->by_task, &j->node, &j->key.task, sizeof(j->key.task));
		return;
	}
	j->key.attempt = j->t.attempt;
	map_put(&c->by_attempt, &j->node, &j->key, sizeof(j->key));
}

static void left_state(struct core *c, struct job *j)
{
	c->n_state[j->state]--;
	if (j->state == JOB_READY && heap_has(&j->worst))
		window_remove(c, j);
	if (in_flight_state(j->state))
		j->queue->n_in_flight--;
	if (given_state(j->state))
		j->worker->n_given--;
	if (j->state == JOB_SENT || j->state == JOB_DONE)
		list_remove(&j->sent);
	if (j->state == JOB_SENT)
		j->worker->sent_bytes -= j->sent_bytes;
	if (j->state == JOB_WAITING)
		timer_set(c, &j->timer, NEVER);
	if (j->state == JOB_DONE)
		j->worker->n_done--;
}

void job_set_state(struct core *c, struct job *j, enum job_state to)
{
	assert(legal[j->state] & BIT(to));
	bool moves = by_task_state(j->state) != by_task_state(to);
	bool given = given_state(j->state);
	if (moves)
		index_out(c, j);
	left_state(c, j);
	j->state = to;
	c->n_state[to]++;
	if (moves)
		index_in(c, j);
	if (in_flight_state(to))
		j->queue->n_in_flight++;
	if (given_state(to))
		j->worker->n_given++;
	else if (given)
		worker_refresh(c, j->worker, false);
	if (to == JOB_SENT) {
		list_push_back(&j->worker->sent, &j->sent);
		j->worker->sent_bytes += j->sent_bytes;
		worker_refresh(c, j->worker, false);
	}
	if (to == JOB_DONE) {
		list_push_back(&j->worker->done, &j->sent);
		j->worker->n_done++;
	}
}

/* ---- life ---- */

struct job *job_by_task(const struct core *c, const struct uuid *task)
{
	struct map_node *n = map_get(&c->by_task, task, sizeof(*task));
	return n ? container_of(n, struct job, node) : NULL;
}

struct job *job_by_attempt(const struct core *c, struct core_attempt at)
{
	struct job_key key = { at.task, at.attempt };
	struct map_node *n = map_get(&c->by_attempt, &key, sizeof(key));
	return n ? container_of(n, struct job, node) : NULL;
}

static struct job *create(struct core *c, const struct core_task *t, struct queue *q, enum job_state state)
{
	struct job *j = xcalloc(1, sizeof(*j));
	j->state = state;
	j->t = *t;
	j->t.queue = q ? q->name : NULL;
	j->asks = asks_get(c, t->handler, t->custom);
	j->t.handler = j->asks && j->asks->handler ? j->asks->handler->text : NULL;
	j->t.custom = j->asks ? j->asks->custom : NULL;
	j->queue = q;
	j->key.task = t->id;
	j->ready_at = c->now;
	heap_node_init(&j->best);
	heap_node_init(&j->worst);
	timer_init(&j->timer, TIMER_JOB);
	list_init(&j->at_worker);
	list_init(&j->sent);
	list_init(&j->link_retry);
	c->n_state[state]++;
	index_in(c, j);
	return j;
}

struct job *job_new(struct core *c, const struct core_task *t, struct queue *q)
{
	return create(c, t, q, JOB_READY);
}

void job_attach(struct job *j, struct worker *w)
{
	j->worker = w;
	j->session = w->session;
	j->lease_ns = max_i64(w->lease_ns, j->t.lease_ttl_ns);
	list_push_back(&w->jobs, &j->at_worker);
	w->n_jobs++;
}

void job_answered(struct core *c, struct job *j)
{
	if (!j->unanswered)
		return;
	j->unanswered = false;
	j->worker->unanswered--;
	worker_refresh(c, j->worker, true);
}

static void detach(struct core *c, struct job *j)
{
	struct worker *w = j->worker;
	job_answered(c, j);
	if (j->holds)
		worker_free_slot(c, w, j);
	worker_refresh(c, w, false);
	list_remove(&j->at_worker);
	w->n_jobs--;
	j->worker = NULL;
	worker_maybe_forget(c, w);
}

struct job *job_new_at(struct core *c, const struct core_task *t, struct worker *w, enum job_state state)
{
	struct job *old = job_by_attempt(c, (struct core_attempt){ t->id, t->attempt });
	if (old)
		job_free(c, old);
	struct job *j = create(c, t, t->queue ? queue_get(c, t->queue) : NULL, state);
	job_attach(j, w);
	return j;
}

void job_free(struct core *c, struct job *j)
{
	index_out(c, j);
	left_state(c, j);
	timer_set(c, &j->timer, NEVER);
	list_remove(&j->link_retry);
	if (j->worker)
		detach(c, j);
	blob_unref(j->spec);
	free(j->refusal);
	asks_put(c, j->asks);
	free(j);
}

struct core_attempt job_at(const struct job *j)
{
	return (struct core_attempt){ j->t.id, j->t.attempt + (by_task_state(j->state) ? 1 : 0) };
}

bool job_owns(const struct job *j)
{
	return j->holds && (j->state == JOB_SENT || j->state == JOB_RUNNING || j->state == JOB_RECALLING);
}
