/* Who a worker is: Hello, gathered from its pieces, and whether its token or certificate is for it.
 *
 * Bounded: the list by the core's max_held, the time until the last piece by HELLO_TIMEOUT_NS. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log/log.h"
#include "server/rpc/rights.h"
#include "server/rpc/session.h"
#include "server/rpc/spec.h"
#include "server/rpc/worker_info.h"

#define HELLO_TIMEOUT_NS (10 * NS_PER_S)
#define SLOTS_MAX 10000
#define NAMES_MAX 1000 /* of queues, and of handlers */
#define HELLO_NUMBER_MAX (INT64_C(1) << 62) /* the next one is a number too */

static int add_held(struct session *s, const struct core_attempt *ref)
{
	if (s->n_held >= (size_t)engine_core_config(s->rpc->engine)->max_held) {
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "hello: more attempts than a worker may hold");
		return -1;
	}
	if (s->n_held == s->cap_held) {
		size_t cap = s->cap_held ? s->cap_held * 2 : 64;
		void *held = realloc(s->held, cap * sizeof(*s->held));
		if (!held) {
			session_no_memory(s);
			return -1;
		}
		s->held = held;
		s->cap_held = cap;
	}
	s->held[s->n_held++] = *ref;
	return 0;
}

static int parse_instance(const char *hex, uint8_t ret[static CORE_INSTANCE_LEN])
{
	if (strlen(hex) != 2 * CORE_INSTANCE_LEN || strspn(hex, "0123456789abcdefABCDEF") != 2 * CORE_INSTANCE_LEN)
		return -EINVAL;
	for (size_t i = 0; i < CORE_INSTANCE_LEN; i++) {
		char pair[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
		ret[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return 0;
}

static int check_right(struct session *s, const Reins__V1__Hello *m)
{
	char text[900];
	rpc_target(s->call, "worker=%s", s->worker);
	if (rights_to_work(s->call, s->worker, m->queues, m->n_queues, text, sizeof(text)))
		return 0;
	session_end(s, STATUS_PERMISSION_DENIED, "%s", text);
	return -1;
}

/* As far as they are names. */
static char **copy_names(char *const *names, size_t n, size_t *ret_n)
{
	char **copies = xcalloc(n + 1, sizeof(*copies));
	size_t i = 0;
	for (; i < n && spec_name_ok(names[i]); i++)
		copies[i] = xstrdup(names[i]);
	*ret_n = i;
	return copies;
}

/* What its process said before this one. */
static int hello_before(struct session *s, const Reins__V1__Hello *m)
{
	struct core_event *ev = s->hello;
	if (m->resumes_session < 0)
		return session_bad_message(s, "hello.resumes_session: below 0; 0 is none");
	if (m->hello_number < 0 || m->hello_number > HELLO_NUMBER_MAX)
		return session_bad_message(s, "hello.hello_number: not from 0 to 2^62; 0 is not counted");
	ev->hello.resumes = m->resumes_session;
	ev->hello.number = m->hello_number;
	ev->hello.no_other = m->no_other;
	s->next_process = m->resumes_session == 0;
	return 0;
}

/* What must be so before anything of it is taken. */
static int hello_form(struct session *s, const Reins__V1__Hello *m)
{
	if (m->slots < 1 || m->slots > SLOTS_MAX)
		return session_bad_message(s, "hello.slots: not from 1 to 10000");
	if (m->n_queues > NAMES_MAX)
		return session_bad_message(s, "hello.queues: more than 1000");
	if (m->n_handlers > NAMES_MAX)
		return session_bad_message(s, "hello.handlers: more than 1000");
	if (m->n_labels > RPC_LABELS_MAX)
		return session_bad_message(s, "hello.labels: more than 64");
	for (size_t i = 0; i < m->n_labels; i++)
		if (!spec_label_ok(m->labels[i]->key, m->labels[i]->value))
			return session_bad_message(s, "hello.labels: a key is not of 1 to 63 bytes of [A-Za-z0-9._/-], or a value "
						   "is longer than 255 bytes");
	return 0;
}

/* That this is the store whose attempts it holds. */
static int hello_store(struct session *s, const Reins__V1__Hello *m)
{
	const char *store_id = engine_store_id(s->rpc->engine);
	if (!engine_holds_sessions(s->rpc->engine)) { /* what the worker holds may be of another store than this one */
		session_end_away(s);
		return -1;
	}
	if (!*m->store_id || strcmp(m->store_id, store_id) == 0)
		return 0;
	session_end(s, STATUS_DATA_LOSS, "this master's store is %s; the worker holds attempts of store %s", store_id, m->store_id);
	return -1;
}

static int hello_capacity(struct session *s, const Reins__V1__Hello *m)
{
	struct core_event *ev = s->hello;
	Reins__V1__Resources *r = m->resources;
	ev->hello.capacity.slots = m->slots;
	if (!r)
		return 0;
	if (r->cpu_millis < 0 || r->memory_bytes < 0 || r->gpus < 0)
		return session_bad_message(s, "hello.resources: below 0");
	if (spec_custom_fault(r, 0))
		return session_bad_message(s, "hello.resources.custom: at most 16 names with counts from 0 to 2^62");
	ev->hello.capacity.have = (struct core_need){
		.memory_bytes = r->memory_bytes,
		.cpu_millis = (int32_t)min_i64(r->cpu_millis, INT32_MAX),
		.gpus = r->gpus,
	};
	if (spec_custom_text(r, &s->custom)) {
		session_no_memory(s);
		return -1;
	}
	ev->hello.capacity.custom = s->custom;
	return 0;
}

static int hello_names(struct session *s, const Reins__V1__Hello *m)
{
	struct core_event *ev = s->hello;
	s->queues = copy_names(m->queues, m->n_queues, &ev->hello.n_queues);
	if (ev->hello.n_queues < m->n_queues)
		return session_bad_message(s, "hello.queues: not a queue's name");
	s->handlers = copy_names(m->handlers, m->n_handlers, &ev->hello.n_handlers);
	if (ev->hello.n_handlers < m->n_handlers)
		return session_bad_message(s, "hello.handlers: not 1 to 255 bytes of [A-Za-z0-9._/-]");
	return 0;
}

static int hello_first(struct session *s, const Reins__V1__Hello *m)
{
	struct core_event *ev = s->hello = s->hello ? s->hello : xcalloc(1, sizeof(*ev));
	if (m->protocol != 1)
		return session_bad_message(s, "hello.protocol: this server speaks version 1");
	if (!spec_name_ok(m->worker_id))
		return session_bad_message(s, "hello.worker_id: not 1 to 255 bytes of [A-Za-z0-9._/-]");
	s->info = worker_info_of_hello(m);
	snprintf(s->worker, sizeof(s->worker), "%s", m->worker_id);
	snprintf(s->log_name, sizeof(s->log_name), "worker=%s", s->worker);
	if (check_right(s, m))
		return -1;
	if (parse_instance(m->instance, ev->hello.instance))
		return session_bad_message(s, "hello.instance: not 32 hex digits");
	if (hello_form(s, m) || hello_store(s, m) || hello_capacity(s, m) || hello_before(s, m) || hello_names(s, m))
		return -1;
	ev->hello.runs_commands = m->runs_commands;
	ev->hello.enforces_lease = m->enforces_exclusive_lease;
	ev->hello.in_process = m->tasks_die_with_process;
	ev->hello.draining = s->paused = m->paused;
	s->hello_begun = true;
	return 0;
}

/* What was collected for the engine, which has its own copy: a session may be open for months. */
static void forget(struct session *s)
{
	for (char **p = s->queues; p && *p; p++)
		free(*p);
	for (char **p = s->handlers; p && *p; p++)
		free(*p);
	free(s->queues);
	free(s->handlers);
	free(s->custom);
	free(s->held);
	free(s->hello);
	s->queues = s->handlers = NULL;
	s->custom = NULL;
	s->held = NULL;
	s->hello = NULL;
}

void session_hello_piece(struct session *s, const Reins__V1__Hello *m)
{
	if (s->greeted) {
		session_end(s, STATUS_FAILED_PRECONDITION, "hello: said already");
		return;
	}
	if (!s->hello_begun && hello_first(s, m))
		return;
	for (size_t i = 0; i < m->n_attempts; i++) {
		struct core_attempt ref;
		if (session_parse_ref(s, m->attempts[i]->task_id, m->attempts[i]->attempt, &ref) || add_held(s, &ref))
			return;
	}
	if (!m->last)
		return;
	loop_timer_stop(&s->hello_timer);
	s->greeted = true;
	struct core_event *ev = s->hello;
	ev->hello.worker = s->worker;
	ev->hello.queues = (const char *const *)s->queues;
	ev->hello.handlers = (const char *const *)s->handlers;
	ev->hello.held = s->held;
	ev->hello.n_held = s->n_held;
	engine_peer_add(s->rpc->engine, &s->peer, &session_peer_ops);
	engine_hello(s->rpc->engine, &s->peer, ev, s->info);
	/* While the store is away it may well be turned away, and come again. */
	log_line(engine_ready(s->rpc->engine) ? LOG_INFO : LOG_DEBUG, "worker", s->log_name,
		 "connected from %s, %d slots, holding %zu attempts", grpc_call_peer(s->call)->address, ev->hello.capacity.slots,
		 s->n_held);
	forget(s);
}

static void on_hello_timeout(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, hello_timer);
	session_end(s, STATUS_DEADLINE_EXCEEDED, "no complete hello within 10 s");
}

void session_hello_begin(struct session *s)
{
	loop_timer_init(&s->hello_timer, s->rpc->loop, on_hello_timeout);
	loop_timer_set(&s->hello_timer, loop_now_mono_ns(s->rpc->loop) + HELLO_TIMEOUT_NS);
}

void session_hello_stop(struct session *s)
{
	loop_timer_stop(&s->hello_timer);
}

void session_hello_done(struct session *s)
{
	session_hello_stop(s);
	forget(s);
	blob_unref(s->info);
}
