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
		.lease_end_mono_ns = max_i64(w->heard + c->cfg.lease_ttl_ns, w->detached_until),
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

struct survey {
	bool connected, serves, enforces, accepts, slot;
	struct core_need largest;
	bool any_cpu, any_memory;
	bool fits_empty;
};

static bool serves(const struct worker *w, const char *queue)
{
	for (size_t i = 0; i < w->pool->n_queues; i++)
		if (strcmp(w->pool->key[1 + i]->name, queue) == 0)
			return true;
	return w->pool->n_queues == 0;
}

static bool fits_empty(const struct worker *w, const struct core_need *need)
{
	const struct core_need *have = &w->capacity.have;
	return w->capacity.slots > 0 && need->gpus <= have->gpus &&
	       (have->cpu_millis == 0 || need->cpu_millis <= have->cpu_millis) &&
	       (have->memory_bytes == 0 || need->memory_bytes <= have->memory_bytes);
}

static void survey(const struct core *c, const char *queue, const struct core_need *need, bool exclusive,
		   struct survey *s)
{
	for (struct map_node *n = map_first(&c->workers); n; n = map_next(&c->workers, n)) {
		const struct worker *w = container_of(n, struct worker, node);
		if (!w->peer)
			continue;
		s->connected = true;
		if (!serves(w, queue))
			continue;
		s->serves = true;
		if (exclusive && !w->pool->enforces)
			continue;
		s->enforces = true;
		const struct core_need *have = &w->capacity.have;
		s->largest.gpus = have->gpus > s->largest.gpus ? have->gpus : s->largest.gpus;
		s->largest.cpu_millis = have->cpu_millis > s->largest.cpu_millis ? have->cpu_millis :
										   s->largest.cpu_millis;
		s->largest.memory_bytes = max_i64(s->largest.memory_bytes, have->memory_bytes);
		s->any_cpu |= have->cpu_millis == 0;
		s->any_memory |= have->memory_bytes == 0;
		if (!fits_empty(w, need))
			continue;
		s->fits_empty = true;
		if (worker_drains(w))
			continue;
		s->accepts = true;
		s->slot |= heap_has(&w->free) && worker_fits(w, need);
	}
}

void core_why_pending(const struct core *c, const char *queue, const struct core_need *need, bool exclusive, char *ret_text,
		      size_t cap)
{
	struct survey s = { 0 };
	survey(c, queue, need, exclusive, &s);
	if (!c->store_up)
		snprintf(ret_text, cap, "the store is away");
	else if (!s.connected)
		snprintf(ret_text, cap, "no worker is connected");
	else if (!s.serves)
		snprintf(ret_text, cap, "no connected worker serves queue \"%s\"", queue);
	else if (!s.enforces)
		snprintf(ret_text, cap, "exclusive, and no connected worker of queue \"%s\" enforces the lease", queue);
	else if (need->gpus > s.largest.gpus)
		snprintf(ret_text, cap, "needs gpus=%d; the largest connected worker has %d", (int)need->gpus,
			 (int)s.largest.gpus);
	else if (!s.any_cpu && need->cpu_millis > s.largest.cpu_millis)
		snprintf(ret_text, cap, "needs cpu_millis=%d; the largest connected worker has %d", (int)need->cpu_millis,
			 (int)s.largest.cpu_millis);
	else if (!s.any_memory && need->memory_bytes > s.largest.memory_bytes)
		snprintf(ret_text, cap, "needs memory_bytes=%lld; the largest connected worker has %lld",
			 (long long)need->memory_bytes, (long long)s.largest.memory_bytes);
	else if (!s.fits_empty)
		snprintf(ret_text, cap, "no single connected worker has all that it needs");
	else if (!s.accepts)
		snprintf(ret_text, cap, "every worker that fits is draining");
	else if (!s.slot)
		snprintf(ret_text, cap, "every worker that fits is busy");
	else if (cap)
		ret_text[0] = '\0';
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
	}
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
	CHECK(heap_has(&q->order) == (q->classes.len > 0));
	CHECK(list_empty(&q->parked) == list_empty(&q->link_parked));
	list_each(it, &q->class_list) {
		const struct class *k = container_of(it, struct class, link);
		n += k->jobs.len;
		bool is_parked = !list_empty(&k->link_parked);
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
	size_t n_state[JOB_STATES] = { 0 }, ready = 0, resting = 0, active = 0, connected = 0, n_free = 0;
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
	}
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
