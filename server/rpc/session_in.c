/* What a worker says on its stream after Hello: each message becomes events of the engine.  An outcome is handed on only
 * when the log that came before it is stored: who sees a terminal state can read the last byte.
 *
 * Bounded: attempts with something on its way by twice the list's limit, their bytes by SESSION_HELD_MAX. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "server/rpc/follow.h"
#include "server/rpc/session.h"

#define STOPPING "the master stops; connect again, or to another"
#define AWAY_RETRY_MS 100 /* workers have a backoff of their own */
#define DETACH_DEFAULT_NS (600 * NS_PER_S)
#define DETACH_MAX_NS (3600 * NS_PER_S)
/* A start is stored only if the attempt is not over by then: short tasks need no row of their own for it. */
#define START_AGAIN_NS (250 * NS_PER_MS) /* what the store could not take */
#define START_DELAY_NS (200 * NS_PER_MS)

struct outcome {
	struct engine_outcome engine;
	struct session *session;
	char *error, *devices;
	size_t bytes;
};

/* An attempt with a start on its way, or an outcome that waits. */
struct attempt {
	struct map_node by_ref;
	struct core_attempt ref;
	struct session *session;
	int holds;       /* what the outcome waits for: its log, and points on their way */
	struct list starting;
	int64_t started_wall_us, start_due_mono_ns; /* 0: none */
	bool start_pending;
	struct store_started start_op;
	char *devices; /* of its start; separated by spaces; NULL: none */
	struct outcome *parked;
};

static void attempt_free(struct attempt *a)
{
	free(a->devices);
	free(a);
}

static void session_free(struct session *s)
{
	loop_timer_stop(&s->start_timer);
	for (struct map_node *n = map_first(&s->attempts), *next; n; n = next) {
		next = map_next(&s->attempts, n);
		attempt_free(container_of(n, struct attempt, by_ref));
	}
	map_done(&s->attempts);
	session_log_done(s);
	session_hello_done(s);
	session_out_done(s);
	free(s->paused_reason);
	free(s->stuck);
	s->rpc->windows -= s->window;
	free(s);
}

void session_unref(struct session *s)
{
	if (--s->refs == 0)
		session_free(s);
}

/* Who is refused comes again and again.  While the store is away all workers do that had to connect anew: that it is away
 * is in the log already. */
static void log_ended(const struct session *s, enum status_code code, const char *text)
{
	static struct log_repeats refusals;
	bool refused = code == STATUS_PERMISSION_DENIED || code == STATUS_UNAUTHENTICATED;
	bool store_away = code == STATUS_UNAVAILABLE && !engine_ready(s->rpc->engine);
	int64_t left_out;
	if (store_away && !log_enabled(LOG_DEBUG))
		return;
	if (refused && !log_repeats_pass(&refusals, clock_mono_ns(), NS_PER_S / 10, text, &left_out))
		return;
	log_line(refused ? LOG_WARN : store_away ? LOG_DEBUG : LOG_INFO, "worker", s->log_name, "stream from %s ended by us: %s: %s",
		 s->call ? grpc_call_peer(s->call)->address : "a peer that is gone", status_code_name(code), text);
}

static void end(struct session *s, const struct refusal *r)
{
	if (s->closing)
		return;
	s->closing = true;
	log_ended(s, r->code, r->message);
	session_log_leave(s);
	engine_peer_gone(s->rpc->engine, &s->peer);
	if (s->call)
		grpc_call_finish(s->call, r);
}

void session_end(struct session *s, enum status_code code, const char *fmt, ...)
{
	struct refusal r;
	va_list ap;
	va_start(ap, fmt);
	(void)refuse_v(&r, code, NULL, fmt, ap);
	va_end(ap);
	if (code == STATUS_UNAVAILABLE && s->rpc->draining)
		(void)refuse_reason(&r, REASON_MASTER_STOPPING);
	end(s, &r);
}

void session_no_memory(struct session *s)
{
	struct refusal r;
	(void)refuse_no_memory(&r, "out of memory");
	end(s, &r);
}

void session_end_away(struct session *s)
{
	struct refusal r;
	(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "no session was opened: the store %s; connect again",
		     engine_ready(s->rpc->engine) ? "did not take it, or has that of a newer hello" : "is away");
	(void)refuse_reason(&r, REASON_STORE_AWAY);
	r.retry_after_ms = AWAY_RETRY_MS;
	end(s, &r);
}

void session_end_all(struct rpc *rpc)
{
	list_each(it, &rpc->sessions)
		session_end(container_of(it, struct session, at_rpc), STATUS_UNAVAILABLE, STOPPING);
}

int session_bad_message(struct session *s, const char *what)
{
	session_end(s, STATUS_INVALID_ARGUMENT, "%s", what);
	return -1;
}

int session_parse_ref(struct session *s, const char *task_id, int32_t attempt, struct core_attempt *ret)
{
	if (uuid_parse(task_id, strlen(task_id), &ret->task) || attempt < 1)
		return session_bad_message(s, "an attempt is not named by a task id and a number from 1");
	ret->attempt = attempt;
	return 0;
}

/* ---- attempts ---- */

static struct attempt *find_attempt(struct session *s, const struct core_attempt *ref)
{
	struct map_node *n = map_get(&s->attempts, ref, sizeof(*ref));
	return n ? container_of(n, struct attempt, by_ref) : NULL;
}

static struct attempt *need_attempt(struct session *s, const struct core_attempt *ref)
{
	struct attempt *a = find_attempt(s, ref);
	if (a)
		return a;
	if (s->attempts.len >= 2 * (size_t)engine_core_config(s->rpc->engine)->max_held) {
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "more attempts than a worker may hold");
		return NULL;
	}
	a = xcalloc(1, sizeof(*a));
	a->ref = *ref;
	a->session = s;
	list_init(&a->starting);
	map_put(&s->attempts, &a->by_ref, &a->ref, sizeof(a->ref));
	return a;
}

static void forget_if_idle(struct attempt *a)
{
	if (a->holds || a->start_pending || a->parked || !list_empty(&a->starting))
		return;
	map_remove(&a->session->attempts, &a->by_ref);
	attempt_free(a);
}

static void hand_on(struct session *s, struct outcome *o)
{
	struct store_record *rec = &o->engine.rec;
	rec->log_dropped = session_log_dropped(s, &rec->at, rec->log_end);
	if (s->call && !s->closing)
		engine_outcome(s->rpc->engine, &s->peer, &o->engine);
	else
		o->engine.done(&o->engine); /* the worker sends it again in its next session */
}

static void hand_on_parked(struct attempt *a)
{
	struct outcome *o = a->parked;
	if (!o || a->holds)
		return;
	a->parked = NULL;
	hand_on(a->session, o);
}

struct attempt *session_hold_outcome(struct session *s, const struct core_attempt *ref)
{
	struct attempt *a = need_attempt(s, ref);
	if (!a)
		return NULL;
	a->holds++;
	s->refs++;
	return a;
}

void session_let_outcome(struct attempt *a)
{
	struct session *s = a->session;
	a->holds--;
	hand_on_parked(a);
	forget_if_idle(a);
	session_unref(s);
}

/* ---- started ---- */

static void on_start_stored(struct store_op *op)
{
	struct attempt *a = container_of(op, struct attempt, start_op.op);
	struct session *s = a->session;
	a->start_pending = false;
	if (op->result == STORE_UNAVAILABLE && s->call && !s->closing && list_empty(&a->starting)) {
		a->start_due_mono_ns = loop_now_mono_ns(s->rpc->loop) + START_AGAIN_NS;
		list_push_back(&s->starting, &a->starting);
		if (!loop_timer_active(&s->start_timer))
			loop_timer_set(&s->start_timer, a->start_due_mono_ns);
	}
	if (op->result == STORE_OK)
		engine_news(s->rpc->engine, &a->ref.task, false);
	forget_if_idle(a);
	session_unref(s);
}

static void on_start_timer(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, start_timer);
	int64_t now = loop_now_mono_ns(s->rpc->loop);
	while (!list_empty(&s->starting)) {
		struct attempt *a = container_of(s->starting.next, struct attempt, starting);
		if (a->start_due_mono_ns > now) {
			loop_timer_set(t, a->start_due_mono_ns);
			return;
		}
		list_remove(&a->starting);
		a->start_pending = true;
		s->refs++;
		a->start_op = (struct store_started){
			.op = { .kind = STORE_STARTED, .done = on_start_stored },
			.at = a->ref,
			.worker = s->worker,
			.started_wall_us = a->started_wall_us,
			.devices = a->devices,
		};
		store_submit(engine_store(s->rpc->engine), &a->start_op.op);
	}
}

static void on_started(struct session *s, const Reins__V1__StartedAttempt *m)
{
	struct core_attempt ref;
	int64_t wall_us;
	if (session_parse_ref(s, m->task_id, m->attempt, &ref) || pb_timestamp_us(m->started_at, &wall_us))
		return;
	follow_session(s, &ref);
	struct attempt *a = need_attempt(s, &ref);
	if (!a || a->start_pending || !list_empty(&a->starting))
		return;
	a->started_wall_us = wall_us;
	if (!a->devices)
		a->devices = session_devices(m->devices, m->n_devices);
	a->start_due_mono_ns = loop_now_mono_ns(s->rpc->loop) + START_DELAY_NS;
	list_push_back(&s->starting, &a->starting);
	if (!loop_timer_active(&s->start_timer))
		loop_timer_set(&s->start_timer, a->start_due_mono_ns);
}

/* ---- outcomes ---- */

static void on_outcome_done(struct engine_outcome *eo)
{
	struct outcome *o = container_of(eo, struct outcome, engine);
	struct session *s = o->session;
	session_let_bytes(s, o->bytes);
	blob_unref(o->engine.rec.result);
	free(o->error);
	free(o->devices);
	free(o);
	session_unref(s);
}

static struct outcome *outcome_new(struct session *s, const Reins__V1__Outcome *m, const struct core_attempt *ref)
{
	struct outcome *o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	struct store_record *rec = &o->engine.rec;
	size_t error_len = min_sz(m->error.len, (size_t)s->rpc->limits.error_bytes);
	bool too_large = m->result.len > (size_t)s->rpc->limits.result_bytes;
	o->session = s;
	o->engine.done = on_outcome_done;
	rec->op.kind = STORE_RECORD;
	rec->at = *ref;
	rec->worker = s->worker;
	rec->outcome = session_outcome(m->kind);
	rec->words = session_stop_words(m);
	rec->oom_killed = m->oom_killed;
	rec->has_exit_code = m->has_exit_code_case == REINS__V1__OUTCOME__HAS_EXIT_CODE_EXIT_CODE;
	rec->exit_code = rec->has_exit_code ? m->exit_code : 0;
	rec->has_signal = m->signal != 0;
	rec->signal = m->signal;
	rec->result_too_large = too_large ? (int64_t)m->result.len
			      : m->result_bytes > (int64_t)m->result.len ? m->result_bytes : 0;
	rec->log_end = max_i64(0, min_i64(m->log_end, SESSION_OFFSET_MAX));
	if (pb_timestamp_us(m->started_at, &rec->started_wall_us))
		rec->started_wall_us = 0;
	if (pb_timestamp_us(m->finished_at, &rec->finished_wall_us))
		rec->finished_wall_us = 0;
	o->bytes = error_len + (too_large ? 0 : m->result.len);
	if (error_len) {
		o->error = malloc(error_len);
		if (!o->error) {
			free(o);
			return NULL;
		}
		memcpy(o->error, m->error.data, error_len);
		rec->error = (struct store_bytes){ (uint8_t *)o->error, error_len };
	}
	if (m->result.len && !too_large) {
		rec->result = blob_new(m->result.data, m->result.len);
		if (!rec->result) {
			free(o->error);
			free(o);
			return NULL;
		}
	}
	return o;
}

static void on_outcome(struct session *s, const Reins__V1__Outcome *m)
{
	struct core_attempt ref;
	if (session_parse_ref(s, m->task_id, m->attempt, &ref))
		return;
	if (!session_outcome(m->kind)) {
		(void)session_bad_message(s, "outcome: no such kind");
		return;
	}
	struct outcome *o = !session_has_room(s, m->result.len + m->error.len) ? NULL : outcome_new(s, m, &ref);
	if (!o) {
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "too many bytes of outcomes wait for the store");
		return;
	}
	session_hold_bytes(s, o->bytes);
	s->refs++;
	struct attempt *a = find_attempt(s, &ref);
	if (a) {
		list_remove(&a->starting); /* the outcome says when it started */
		o->devices = a->devices ? xstrdup(a->devices) : NULL; /* and where */
		o->engine.rec.devices = o->devices;
	}
	if (a && a->holds && !a->parked) {
		a->parked = o;
		return;
	}
	if (a && a->parked) {
		o->engine.done(&o->engine); /* said twice: the first one waits for its log already */
		return;
	}
	hand_on(s, o);
	if (a)
		forget_if_idle(a);
}

/* ---- the rest ---- */

static void takes_work(struct session *s, int64_t detach_ns)
{
	if (!s->closing)
		engine_draining(s->rpc->engine, &s->peer, s->paused || s->draining, detach_ns);
}

/* For ListWorkers. Texts that are too long are cut, and what is over the limit of stuck attempts is left out. */
static int note_state(struct session *s, const Reins__V1__Heartbeat *m)
{
	char text[SESSION_TEXT_MAX + 1];
	utf8_make_valid(m->paused_reason, strlen(m->paused_reason), text, sizeof(text), NULL);
	free(s->paused_reason);
	s->paused_reason = m->paused && *text ? xstrdup(text) : NULL;
	free(s->stuck);
	s->n_stuck = min_sz(m->n_stuck, SESSION_STUCK_MAX);
	s->stuck = s->n_stuck ? xcalloc(s->n_stuck, sizeof(*s->stuck)) : NULL;
	for (size_t i = 0; i < s->n_stuck; i++) {
		const Reins__V1__StuckAttempt *a = m->stuck[i];
		utf8_make_valid(a->reason, strlen(a->reason), s->stuck[i].reason, sizeof(s->stuck[i].reason), NULL);
		if (session_parse_ref(s, a->task_id, a->attempt, &s->stuck[i].at))
			return -1;
	}
	return 0;
}

static void on_heartbeat(struct session *s, const Reins__V1__Heartbeat *m)
{
	struct core_attempt *held = xcalloc(m->n_attempts + 1, sizeof(*held));
	size_t n = 0;
	for (; n < m->n_attempts; n++)
		if (session_parse_ref(s, m->attempts[n]->task_id, m->attempts[n]->attempt, &held[n]))
			break;
	if (n == m->n_attempts)
		engine_heartbeat(s->rpc->engine, &s->peer, m->number, m->last_dispatch, held, n);
	free(held);
	if (s->closing || note_state(s, m))
		return;
	if (!m->paused != !s->paused) {
		s->paused = m->paused;
		takes_work(s, s->detach_ns);
	}
}

static void on_draining(struct session *s, const Reins__V1__Draining *m)
{
	int64_t within = DETACH_DEFAULT_NS;
	if (m->within && (pb_duration_ns(m->within, &within) || within < 0)) {
		(void)session_bad_message(s, "draining.within: not a duration of 0 or more");
		return;
	}
	s->draining = !m->resumed;
	s->detach_ns = s->draining && m->mode == REINS__V1__DRAIN_MODE__DRAIN_DETACH ? min_i64(within, DETACH_MAX_NS) : 0;
	takes_work(s, s->detach_ns);
}

static void each_ref(struct session *s, enum core_event_type type, const char *task_id, int32_t attempt)
{
	struct core_attempt ref;
	if (session_parse_ref(s, task_id, attempt, &ref) == 0)
		engine_attempt_event(s->rpc->engine, &s->peer, type, &ref);
}

static void on_refused(struct session *s, const Reins__V1__RefusedAttempt *m)
{
	struct core_attempt ref;
	char text[SESSION_REFUSAL_MAX + 1];
	if (session_parse_ref(s, m->task_id, m->attempt, &ref))
		return;
	session_refusal_words(m, text);
	engine_refused(s->rpc->engine, &s->peer, &ref, text);
}

static void handle(struct session *s, const Reins__V1__WorkerMessage *m)
{
	if (m->kind_case == REINS__V1__WORKER_MESSAGE__KIND_HELLO) {
		session_hello_piece(s, m->hello);
		return;
	}
	if (!s->greeted) {
		session_end(s, STATUS_FAILED_PRECONDITION, "hello must come first");
		return;
	}
	switch (m->kind_case) {
	case REINS__V1__WORKER_MESSAGE__KIND_HEARTBEAT:
		on_heartbeat(s, m->heartbeat);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_ACCEPTED:
		for (size_t i = 0; i < m->accepted->n_attempts && !s->closing; i++)
			each_ref(s, CORE_EV_ACCEPTED, m->accepted->attempts[i]->task_id, m->accepted->attempts[i]->attempt);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_REFUSED:
		for (size_t i = 0; i < m->refused->n_attempts && !s->closing; i++)
			on_refused(s, m->refused->attempts[i]);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_STARTED:
		for (size_t i = 0; i < m->started->n_attempts && !s->closing; i++)
			on_started(s, m->started->attempts[i]);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_LOG:
		session_log_piece(s, m->log);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_OUTCOME:
		for (size_t i = 0; i < m->outcome->n_outcomes && !s->closing; i++)
			on_outcome(s, m->outcome->outcomes[i]);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_DRAINING:
		on_draining(s, m->draining);
		break;
	case REINS__V1__WORKER_MESSAGE__KIND_METRICS:
		session_metrics(s, m->metrics);
		break;
	default:
		break;
	}
}

void worker_on_message(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct session *s = grpc_call_user(call);
	if (!s || s->closing)
		return;
	struct refusal r;
	Reins__V1__WorkerMessage *m = pb_unpack(&reins__v1__worker_message__descriptor, data, len, NULL, &r);
	if (!m) {
		session_end(s, r.code, "%s", r.message);
		return;
	}
	handle(s, m);
	pb_free(m);
}

void worker_on_start(struct grpc_call *call)
{
	struct session *s = xcalloc(1, sizeof(*s));
	s->rpc = rpc_of(call);
	s->call = call;
	s->refs = 1;
	map_init(&s->attempts);
	list_init(&s->starting);
	list_push_back(&s->rpc->sessions, &s->at_rpc);
	session_out_init(s);
	session_log_init(s);
	session_metrics_init(s);
	session_hello_begin(s);
	loop_timer_init(&s->start_timer, s->rpc->loop, on_start_timer);
	grpc_call_set_user(call, s);
	if (s->rpc->draining)
		session_end(s, STATUS_UNAVAILABLE, STOPPING);
}

/* The worker says no more: its stream is of no use any longer. */
void worker_on_half_close(struct grpc_call *call)
{
	struct session *s = grpc_call_user(call);
	if (!s || s->closing)
		return;
	s->closing = true;
	session_log_leave(s);
	engine_peer_gone(s->rpc->engine, &s->peer);
	grpc_call_finish(call, NULL);
}

void worker_on_writable(struct grpc_call *call)
{
	struct session *s = grpc_call_user(call);
	if (s)
		session_out_writable(s);
}

void worker_on_end(struct grpc_call *call, bool finished)
{
	struct session *s = grpc_call_user(call);
	if (!s)
		return;
	if (!s->closing && s->greeted)
		log_info("worker", s->log_name, "stream lost");
	s->call = NULL;
	s->closing = true;
	list_remove(&s->at_rpc);
	session_log_leave(s);
	engine_peer_gone(s->rpc->engine, &s->peer);
	loop_unmark(&s->out);
	session_hello_stop(s);
	session_log_stop(s);
	session_metrics_stop(s);
	loop_timer_stop(&s->start_timer);
	session_unref(s);
}
