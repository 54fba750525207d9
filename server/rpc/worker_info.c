/* What the store keeps of a Hello, and a worker's row and this master's memory put together. */
#include "server/rpc/worker_info.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "server/core/core_view.h"
#include "server/rpc/session.h"

#define INFO_MAX (64 * 1024) /* bytes kept of one worker: they are read for every list */
#define TEXT_MAX 256
#define ATTEMPTS_MAX 1000

/* ---- what is kept of Hello ---- */

struct blob *worker_info_of_hello(const Reins__V1__Hello *m)
{
	Reins__V1__WorkerInfo info = REINS__V1__WORKER_INFO__INIT;
	char version[TEXT_MAX], hostname[TEXT_MAX];
	utf8_make_valid(m->version, strlen(m->version), version, sizeof(version), NULL);
	utf8_make_valid(m->hostname, strlen(m->hostname), hostname, sizeof(hostname), NULL);
	info.version = version;
	info.hostname = hostname;
	info.slots = m->slots;
	info.resources = m->resources;
	info.queues = m->queues;
	info.n_queues = m->n_queues;
	info.handlers = m->handlers;
	info.n_handlers = m->n_handlers;
	info.runs_commands = m->runs_commands;
	info.enforces_exclusive_lease = m->enforces_exclusive_lease;
	info.tasks_die_with_process = m->tasks_die_with_process;
	Reins__V1__WorkerInfo__LabelsEntry *labels = xcalloc(m->n_labels + 1, sizeof(*labels));
	info.labels = xcalloc(m->n_labels + 1, sizeof(*info.labels));
	info.n_labels = m->n_labels;
	for (size_t i = 0; i < m->n_labels; i++) {
		reins__v1__worker_info__labels_entry__init(&labels[i]);
		labels[i].key = m->labels[i]->key;
		labels[i].value = m->labels[i]->value;
		info.labels[i] = &labels[i];
	}
	while (protobuf_c_message_get_packed_size(&info.base) > INFO_MAX && info.n_queues + info.n_handlers > 1) {
		info.n_queues = (info.n_queues + 1) / 2;
		info.n_handlers = info.n_handlers / 2;
	}
	if (protobuf_c_message_get_packed_size(&info.base) > INFO_MAX)
		info.resources = NULL; /* names of custom ones without end */
	struct blob *b = pb_pack_blob(&info);
	free(info.labels);
	free(labels);
	return b;
}

/* ---- put together ---- */

static char *text_in(void *message, const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = pb_alloc(message, size);
	if (copy)
		memcpy(copy, text, size);
	return copy ? copy : (char *)(uintptr_t)protobuf_c_empty_string;
}

static Google__Protobuf__Timestamp *time_in(void *message, int64_t wall_us)
{
	Google__Protobuf__Timestamp *t = wall_us > 0 ? pb_alloc(message, sizeof(*t)) : NULL;
	if (t)
		pb_timestamp_set(t, wall_us);
	return t;
}

static const char *mode_name(int32_t mode)
{
	switch (mode) {
	case REINS__V1__DRAIN_MODE__DRAIN_DETACH: return "detach";
	case REINS__V1__DRAIN_MODE__DRAIN_REQUEUE: return "requeue";
	default: return "wait";
	}
}

static void say_why(int32_t drain_mode, const char *drain_reason, const struct core_worker_view *v, const struct session *s,
		    char *text, size_t cap)
{
	if (drain_mode)
		snprintf(text, cap, "drained by an operator (%s)%s%s", mode_name(drain_mode), *drain_reason ? ": " : "", drain_reason);
	else if (s && s->draining)
		snprintf(text, cap, "it is leaving");
	else if (s && s->paused)
		snprintf(text, cap, "%s", s->paused_reason ? s->paused_reason : "it takes no tasks, and does not say why");
	else if (v && v->peer && v->unanswered)
		snprintf(text, cap, "it has not answered the recall of %d attempts", (int)v->unanswered);
}

void worker_info_why(struct rpc *rpc, uint64_t peer, char *text, size_t cap)
{
	char why[640] = "", all[1024];
	size_t len = strlen(text);
	struct engine_peer *p = engine_peer_find(rpc->engine, peer);
	if (!p)
		return;
	say_why(p->drain.mode, p->drain.reason ? p->drain.reason : "", NULL, session_of_peer(p), why, sizeof(why));
	if (!*why)
		return;
	int n = snprintf(all, sizeof(all), "; worker %s: %s", p->worker, why);
	utf8_make_valid(all, min_sz((size_t)n, sizeof(all) - 1), text + len, cap - len, NULL); /* cut at a character */
}

static void put_attempts(struct rpc *rpc, const char *id, size_t n, Reins__V1__WorkerInfo *m)
{
	n = min_sz(n, ATTEMPTS_MAX);
	struct core_attempt *held = xcalloc(n + 1, sizeof(*held));
	n = core_worker_held(engine_core(rpc->engine), id, held, n);
	Reins__V1__AttemptRef *refs = pb_alloc(m, n * sizeof(*refs));
	Reins__V1__AttemptRef **at = pb_alloc(m, n * sizeof(Reins__V1__AttemptRef *));
	for (size_t i = 0; refs && at && i < n; i++) {
		char text[UUID_TEXT_LEN + 1];
		uuid_format(&held[i].task, text);
		reins__v1__attempt_ref__init(&refs[i]);
		refs[i].task_id = text_in(m, text);
		refs[i].attempt = held[i].attempt;
		at[i] = &refs[i];
		m->n_attempts = i + 1;
	}
	m->attempts = at;
	free(held);
}

static void put_stuck(const struct session *s, Reins__V1__WorkerInfo *m)
{
	Reins__V1__StuckAttempt *items = pb_alloc(m, s->n_stuck * sizeof(*items));
	Reins__V1__StuckAttempt **at = pb_alloc(m, s->n_stuck * sizeof(Reins__V1__StuckAttempt *));
	for (size_t i = 0; items && at && i < s->n_stuck; i++) {
		char text[UUID_TEXT_LEN + 1];
		uuid_format(&s->stuck[i].at.task, text);
		reins__v1__stuck_attempt__init(&items[i]);
		items[i].task_id = text_in(m, text);
		items[i].attempt = s->stuck[i].at.attempt;
		items[i].reason = text_in(m, s->stuck[i].reason);
		at[i] = &items[i];
		m->n_stuck = i + 1;
	}
	m->stuck = at;
}

static void put_used(const struct core_need *used, Reins__V1__WorkerInfo *m)
{
	Reins__V1__Resources *r = pb_alloc(m, sizeof(*r));
	if (!r)
		return;
	reins__v1__resources__init(r);
	r->cpu_millis = used->cpu_millis;
	r->memory_bytes = used->memory_bytes;
	r->gpus = used->gpus;
	m->resources_used = r;
}

/* This master holds the session, or judges its lease. */
static void put_own(struct rpc *rpc, const struct store_worker *row, const struct core_worker_view *v, Reins__V1__WorkerInfo *m)
{
	int64_t now = loop_now_mono_ns(rpc->loop);
	m->state = v->peer ? (v->draining || v->drain_wish ? REINS__V1__WORKER_INFO__STATE__DRAINING
							   : REINS__V1__WORKER_INFO__STATE__CONNECTED)
			   : now < v->lease_end_mono_ns ? REINS__V1__WORKER_INFO__STATE__DISCONNECTED
							: REINS__V1__WORKER_INFO__STATE__GONE;
	m->slots = v->capacity.slots;
	m->slots_used = v->used;
	put_used(&v->used_need, m);
	m->last_heartbeat_at = time_in(m, clock_wall_us() - (now - v->heard_mono_ns) / NS_PER_US);
	put_attempts(rpc, row->id, v->n_held, m);
}

static void put_foreign(struct rpc *rpc, const struct store_worker *row, Reins__V1__WorkerInfo *m)
{
	const struct core_config *cfg = engine_core_config(rpc->engine);
	int64_t lease_us = cfg->lease_ttl_ns / NS_PER_US, ttl_us = cfg->master_ttl_ns / NS_PER_US;
	bool own = strcmp(row->master, engine_master_id(rpc->engine)) == 0;
	/* Of our own, before we were started: it has a lease from then on to come back. */
	int64_t quiet_us = own ? clock_wall_us() - rpc->started_wall_us : row->beat_age_us;
	bool over = quiet_us > (own ? lease_us : ttl_us + lease_us);
	if (row->heard_wall_us || (over && !row->detached_us))
		m->state = REINS__V1__WORKER_INFO__STATE__GONE;
	else if (own || over || quiet_us > lease_us)
		m->state = REINS__V1__WORKER_INFO__STATE__DISCONNECTED;
	else
		m->state = row->drain.mode ? REINS__V1__WORKER_INFO__STATE__DRAINING : REINS__V1__WORKER_INFO__STATE__CONNECTED;
	m->last_heartbeat_at = time_in(m, row->heard_wall_us);
}

Reins__V1__WorkerInfo *worker_info_make(struct rpc *rpc, const struct store_worker *row)
{
	struct refusal ignored;
	Reins__V1__WorkerInfo *m =
		pb_unpack(&reins__v1__worker_info__descriptor, row->info.data, row->info.len, NULL, &ignored);
	if (!m && row->info.len) /* of another version: what else is known is shown all the same */
		m = pb_unpack(&reins__v1__worker_info__descriptor, NULL, 0, NULL, &ignored);
	if (!m)
		return NULL;
	struct core_worker_view v;
	bool own = core_worker(engine_core(rpc->engine), row->id, &v) && v.session && v.session >= row->session;
	struct engine_peer *p = own ? engine_peer_find(rpc->engine, v.peer) : NULL;
	const struct session *s = p ? session_of_peer(p) : NULL;
	char instance[2 * CORE_INSTANCE_LEN + 1], why[640] = "";
	for (size_t i = 0; i < CORE_INSTANCE_LEN; i++)
		snprintf(instance + 2 * i, 3, "%02x", row->instance[i]);
	m->worker_id = text_in(m, row->id);
	m->instance = text_in(m, instance);
	m->session = row->session;
	m->master_id = text_in(m, row->master);
	m->connected_at = time_in(m, row->opened_wall_us);
	if (own)
		put_own(rpc, row, &v, m);
	else
		put_foreign(rpc, row, m);
	if (s)
		put_stuck(s, m);
	say_why(row->drain.mode, row->drain.reason, own ? &v : NULL, s, why, sizeof(why));
	m->paused_reason = text_in(m, why);
	m->drain_mode = (Reins__V1__DrainMode)row->drain.mode;
	m->drain_reason = text_in(m, row->drain.reason);
	if (row->drain.mode && row->drain.within_ns >= 0) {
		m->drain_within = pb_alloc(m, sizeof(*m->drain_within));
		if (m->drain_within)
			pb_duration_set(m->drain_within, row->drain.within_ns);
	}
	return m;
}
