/* Looking in: for people, metrics and tests. Changes nothing. */
#include "server/core/internal.h"
#include "server/core/core_view.h"

#include <stdio.h>
#include <string.h>

bool core_worker(const struct core *c, const char *id, struct core_worker_view *ret)
{
	const struct worker *w = worker_find(c, id);
	if (!w)
		return false;
	*ret = (struct core_worker_view){
		.peer = w->peer,
		.session = w->session,
		.capacity = w->capacity,
		.used = w->used,
		.used_need = {
			.memory_bytes = w->used_need.memory_bytes,
			.cpu_millis = (int32_t)min_i64(w->used_need.cpu_millis, INT32_MAX),
			.gpus = (int32_t)min_i64(w->used_need.gpus, INT32_MAX),
		},
		.heard_mono_ns = w->heard,
		.lease_end_mono_ns = max_i64(w->heard + w->lease_ns, w->detached_until),
		.draining = w->draining,
		.drain_wish = w->drain_wish,
		.unanswered = w->unanswered,
	};
	list_each(it, &w->jobs)
		ret->n_held += container_of(it, struct job, at_worker)->holds;
	return true;
}

size_t core_worker_held(const struct core *c, const char *id, struct core_attempt *ret, size_t max)
{
	const struct worker *w = worker_find(c, id);
	size_t n = 0;
	if (!w)
		return 0;
	list_each(it, &w->jobs) {
		const struct job *j = container_of(it, struct job, at_worker);
		if (j->holds && n < max)
			ret[n++] = job_at(j);
	}
	return n;
}

const struct core_timings *core_timings(const struct core *c) { return &c->timings; }

void core_counts(const struct core *c, struct core_counts *ret)
{
	*ret = (struct core_counts){
		.ready = (int64_t)c->n_ready,
		.workers = (int64_t)c->workers.len,
		.connected = (int64_t)c->n_connected,
		.in_flight = (int64_t)(c->n_state[JOB_PREEMPTING] + c->n_state[JOB_INSERTING] + c->n_state[JOB_CLAIMING]),
		.running = (int64_t)(c->n_state[JOB_SENT] + c->n_state[JOB_RUNNING] + c->n_state[JOB_RECALLING]),
	};
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		const struct worker *w = container_of(n, struct worker, node);
		if (w->peer) {
			ret->slots += w->capacity.slots;
			ret->slots_used += w->used;
		}
	}
}

/* ---- the core's own promises ---- */

#define CHECK(x)                                                                                     \
	do {                                                                                         \
		if (!(x)) {                                                                          \
			fprintf(stderr, "core_check: %s:%d: %s\n", __FILE__, __LINE__, #x);          \
			abort();                                                                     \
		}                                                                                    \
	} while (0)

static void check_worker(const struct core *c, const struct worker *w)
{
	struct usage need = { 0 };
	wide custom[CORE_CUSTOM_ENTRIES] = { 0 };
	int32_t used = 0, unanswered = 0;
	size_t n = 0, done = 0, given = 0, bytes = 0;
	list_each(it, &w->jobs) {
		const struct job *j = container_of(it, struct job, at_worker);
		CHECK(j->worker == w);
		n++;
		done += j->state == JOB_DONE;
		given += j->state >= JOB_PREEMPTING && j->state <= JOB_SENT;
		bytes += j->state == JOB_SENT ? j->sent_bytes : 0;
		unanswered += j->unanswered;
		CHECK((j->state == JOB_SENT || j->state == JOB_DONE) == !list_empty(&j->sent));
		CHECK(!list_empty(&j->link_retry) ? j->tb == TB_RETRY && j->state == JOB_TAKING_BACK : true);
		if (j->state == JOB_DONE || j->state == JOB_RECORDING || j->state == JOB_WAITING)
			CHECK(!j->holds);
		if (j->state == JOB_SENT || j->state == JOB_RUNNING || j->state == JOB_RECALLING || j->state == JOB_LEFT)
			CHECK(j->holds);
		if (!j->holds)
			continue;
		used++;
		need.gpus += j->t.need.gpus;
		need.cpu_millis += j->t.need.cpu_millis;
		need.memory_bytes += j->t.need.memory_bytes;
		for (size_t i = 0; j->asks && i < w->n_stock; i++)
			for (size_t k = 0; k < j->asks->n_counts; k++)
				if (j->asks->counts[k].name == w->stock[i].name)
					custom[i] += j->asks->counts[k].n;
	}
	for (size_t i = 0; i < w->n_stock; i++)
		CHECK(custom[i] == w->stock[i].used && w->stock[i].name->offers > 0);
	CHECK(given == w->n_given && bytes == w->sent_bytes);
	CHECK(used == w->used && n == w->n_jobs && done == w->n_done && unanswered == w->unanswered);
	CHECK(need.gpus == w->used_need.gpus && need.cpu_millis == w->used_need.cpu_millis &&
	      need.memory_bytes == w->used_need.memory_bytes);
	bool takes = w->peer && !w->opening && !worker_drains(w) && w->unanswered == 0 && w->used < w->capacity.slots;
	CHECK(!heap_has(&w->free) || takes);
	if (w->peer)
		CHECK(peer_worker(c, w->peer) == w);
	if (!w->peer && !w->opening && !w->n_jobs)
		CHECK(heap_has(&w->timer.node) || !c->store_up);
}

static void check_queue(const struct core *c, const struct queue *q, size_t *ready, size_t *resting)
{
	size_t n = 0;
	CHECK(heap_has(&q->order) == (q->classes.len > 0 && queue_gives(q)));
	CHECK(q->paused == !list_empty(&q->link_paused));
	CHECK(list_empty(&q->parked) == list_empty(&q->link_parked));
	list_each(it, &q->class_list) {
		const struct class *k = container_of(it, struct class, link);
		n += k->jobs.len;
		bool is_parked = !list_empty(&k->link_parked);
		CHECK(!k->key.want.asks || k->key.want.asks->refs > 0);
		CHECK(!(is_parked && heap_has(&k->order)));
		CHECK((k->jobs.len > 0) == (is_parked || heap_has(&k->order)));
	}
	CHECK(n <= q->worst.len && q->worst.len == q->n_ready);
	CHECK((q->n_ready > 0) == !list_empty(&q->link_active));
	*resting += q->n_ready - n;
	*ready += q->n_ready;
}

void core_check(const struct core *c)
{
	size_t n_state[JOB_STATES] = { 0 }, in_flight = 0, ready = 0, resting = 0, active = 0, connected = 0, n_free = 0;
	for (struct map_node *n = map_first(&c->by_task); n; n = map_next(&c->by_task, n)) {
		const struct job *j = container_of(n, struct job, node);
		CHECK(j->state <= JOB_CLAIMING);
		CHECK((j->state == JOB_READY) == (j->worker == NULL));
		n_state[j->state]++;
	}
	for (struct map_node *n = map_first(&c->by_attempt); n; n = map_next(&c->by_attempt, n)) {
		const struct job *j = container_of(n, struct job, node);
		CHECK(j->state > JOB_CLAIMING && j->worker);
		n_state[j->state]++;
	}
	CHECK(memcmp(n_state, c->n_state, sizeof(n_state)) == 0);
	for (struct map_node *n = map_first(&c->queues); n; n = map_next(&c->queues, n)) {
		const struct queue *q = container_of(n, struct queue, node);
		check_queue(c, q, &ready, &resting);
		active += q->n_ready > 0;
		in_flight += q->n_in_flight;
	}
	CHECK(in_flight == n_state[JOB_PREEMPTING] + n_state[JOB_INSERTING] + n_state[JOB_CLAIMING]);
	CHECK(ready == c->n_ready && ready == n_state[JOB_READY] && ready <= (size_t)c->cfg.window);
	CHECK(active == c->n_active && resting == c->n_resting);
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		const struct worker *w = container_of(n, struct worker, node);
		check_worker(c, w);
		connected += w->peer != 0;
		n_free += heap_has(&w->free);
	}
	CHECK(connected == c->n_connected && n_free == c->n_free);
	CHECK(n_state[JOB_PREEMPTING] + n_state[JOB_INSERTING] + n_state[JOB_CLAIMING] <=
	      (size_t)c->cfg.in_flight_claims);
}
