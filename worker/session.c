/* A session: opening, what a master says, heartbeats, the end.
 *
 * NONE → HELLO (call started) → UP (last piece of Welcome) → NONE.  `end` leaves the call to itself at once, whoever ends it;
 * the owner closes the channel afterwards. */
#include "worker/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/lease.h"
#include "worker/session_private.h"

#define METHOD "/reins.v1.WorkerService/Session"
#define RESEND_NS (10 * NS_PER_S)
#define LEASE_MIN_NS (100 * NS_PER_MS)   /* below, a master's numbers are a mistake */

#define log_session(level, s, ...) \
	do { \
		char object_[48]; \
		snprintf(object_, sizeof(object_), "session=%" PRId64, (s)->number); \
		log_line(level, "session", object_, __VA_ARGS__); \
	} while (0)

static void forget_call(struct session *s)
{
	if (s->stream)
		s->stream->session = NULL;
	s->stream = NULL;
	s->call = NULL;
	s->blocked = s->leaving = s->half_closed = false;
	loop_timer_stop(&s->heartbeat_timer);
	loop_timer_stop(&s->ack_timer);
	loop_unmark(&s->dirty);
	if (!list_empty(&s->hello)) /* not all of it was sent: it opened nothing */
		s->unsettled = s->was_unsettled;
	session_drop_hello(s);
	if (s->state == SESSION_UP) {
		s->last_number = s->number;
		attempts_session_down(s->cfg.attempts);
	}
	s->state = SESSION_NONE;
}

static void end(struct session *s, enum status_code code, const char *text)
{
	char copy[512];
	snprintf(copy, sizeof(copy), "%s", text);
	if (s->call)
		grpc_client_cancel(s->call);
	forget_call(s);
	s->cfg.on_end(s->cfg.arg, code, copy);
}

/* ---- what a master says ---- */

static void on_welcome_begin(struct session *s, const Reins__V1__Welcome *w)
{
	struct state_dir *state = s->cfg.state;
	int64_t interval = 0, lease = 0;
	char text[400];
	if (pb_duration_ns(w->heartbeat_interval, &interval) < 0 || pb_duration_ns(w->lease_ttl, &lease) < 0 ||
	    lease < LEASE_MIN_NS || lease > LEASE_MAX_NS || interval <= 0 || interval > lease / 3) {
		end(s, STATUS_FAILED_PRECONDITION, "the master's heartbeat interval or lease makes no sense");
		return;
	}
	if (s->cfg.attempts->n_held && state->store_id[0] && strcmp(state->store_id, w->store_id) != 0) {
		snprintf(text, sizeof(text), "this master's store is %.128s; attempts of the store %.128s are held",
			 w->store_id, state->store_id);
		end(s, STATUS_DATA_LOSS, text);
		return;
	}
	if (strcmp(state->store_id, w->store_id) != 0) {
		int r = state_dir_set_store_id(state, w->store_id);
		if (r < 0) {
			snprintf(text, sizeof(text), "the store's id can't be written: %s", strerror(-r));
			end(s, STATUS_INTERNAL, text);
			return;
		}
	}
	s->welcome_begun = true;
	s->number = w->session;
	s->interval_ns = interval;
	s->lease_ns = lease;
	attempts_set_limits(s->cfg.attempts, w->limits);
}

static void on_welcome(struct session *s, const Reins__V1__Welcome *w)
{
	if (s->state != SESSION_HELLO) {
		end(s, STATUS_FAILED_PRECONDITION, "a second Welcome");
		return;
	}
	if (!s->welcome_begun) {
		s->cfg.on_answer(s->cfg.arg);
		on_welcome_begin(s, w);
		if (!s->welcome_begun)
			return;
	}
	for (size_t i = 0; i < w->n_adopted; i++)
		attempts_adopted(s->cfg.attempts, w->adopted[i]);
	if (!w->last)
		return;
	s->state = SESSION_UP;
	s->unsettled = false;
	s->heartbeat_due = true;
	s->say_draining = s->draining;
	log_session(LOG_INFO, s, "%s: master %s, %zu attempts held", s->number == s->last_number ? "goes on" : "open", w->master_id,
		    s->cfg.attempts->n_held);
	s->cfg.on_welcome(s->cfg.arg, s->lease_ns);
	attempts_session_up(s->cfg.attempts);
	session_news(s);
}

static void on_heartbeat_ack(struct session *s, const Reins__V1__HeartbeatAck *ack)
{
	if (ack->number > s->heartbeat_number || ack->number < 0) {
		end(s, STATUS_FAILED_PRECONDITION, "an answer to a heartbeat that was not sent");
		return;
	}
	if (ack->number > s->acked_number) {
		const struct heartbeat *h = &s->sent[ack->number % HEARTBEATS_MAX];
		s->acked_number = ack->number;
		session_arm_ack(s);
		if (!ack->exclusive_not_renewed && h->number == ack->number)
			attempts_renewed(s->cfg.attempts, h->boot_ns);
	}
	for (size_t i = 0; i < ack->n_logs; i++)
		attempts_log_stored(s->cfg.attempts, ack->logs[i]->task_id, ack->logs[i]->attempt, ack->logs[i]->offset);
	if (ack->n_logs)
		session_news(s);
	if (ack->exclusive_not_renewed)
		s->cfg.on_storeless(s->cfg.arg);
}

static void on_dispatch(struct session *s, Reins__V1__MasterMessage *m)
{
	/* Not counted on: a number that was left out is a dispatch that the master sees is missing from the list. */
	if (m->dispatch->number > s->last_dispatch)
		s->last_dispatch = m->dispatch->number;
	struct dispatch *d = dispatch_new(m);
	attempts_dispatch(s->cfg.attempts, d);
	dispatch_unref(d);
}

/* Takes the message over. */
static void on_master_message(struct session *s, Reins__V1__MasterMessage *m)
{
	struct attempts *a = s->cfg.attempts;
	if (m->kind_case != REINS__V1__MASTER_MESSAGE__KIND_WELCOME && s->state != SESSION_UP) {
		pb_free(m);
		end(s, STATUS_FAILED_PRECONDITION, "a message before Welcome");
		return;
	}
	switch (m->kind_case) {
	case REINS__V1__MASTER_MESSAGE__KIND_WELCOME:
		on_welcome(s, m->welcome);
		break;
	case REINS__V1__MASTER_MESSAGE__KIND_HEARTBEAT_ACK:
		on_heartbeat_ack(s, m->heartbeat_ack);
		break;
	case REINS__V1__MASTER_MESSAGE__KIND_DISPATCH:
		on_dispatch(s, m);
		return;
	case REINS__V1__MASTER_MESSAGE__KIND_STOP:
		for (size_t i = 0; i < m->stop->n_attempts; i++)
			attempts_stop(a, m->stop->attempts[i]->task_id, m->stop->attempts[i]->attempt, m->stop->reason,
				      m->stop->text[0] ? m->stop->text :
				      m->stop->reason == REINS__V1__STOP__REASON__CANCELLED ? "cancelled" : "stopped by the master");
		break;
	case REINS__V1__MASTER_MESSAGE__KIND_OUTCOME_ACK:
		for (size_t i = 0; i < m->outcome_ack->n_verdicts; i++) {
			const Reins__V1__OutcomeVerdict *v = m->outcome_ack->verdicts[i];
			attempts_verdict(a, v->task_id, v->attempt, v->verdict == REINS__V1__OUTCOME_VERDICT__VERDICT__FENCED);
		}
		break;
	case REINS__V1__MASTER_MESSAGE__KIND_FOLLOW_LOG:
		attempts_follow_log(a, m->follow_log->task_id, m->follow_log->attempt, m->follow_log->on);
		break;
	case REINS__V1__MASTER_MESSAGE__KIND_DRAIN:
		s->cfg.on_drain(s->cfg.arg, m->drain);
		break;
	default: /* of a newer master: what we don't know we don't do */
		break;
	}
	pb_free(m);
}

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct session *s = ((struct session_stream *)arg)->session;
	struct refusal why;
	if (!s)
		return;
	Reins__V1__MasterMessage *m = pb_unpack(&reins__v1__master_message__descriptor, data, len, NULL, &why);
	if (!m) {
		end(s, STATUS_FAILED_PRECONDITION, why.message);
		return;
	}
	on_master_message(s, m);
}

static void on_writable(void *arg)
{
	struct session *s = ((struct session_stream *)arg)->session;
	if (!s)
		return;
	s->blocked = false;
	loop_mark(s->cfg.loop, &s->dirty);
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct session_stream *stream = arg;
	struct session *s = stream->session;
	if (s) {
		s->call = NULL;
		s->refused = s->state == SESSION_HELLO && status->code == STATUS_UNAVAILABLE && status->retry_after_ms > 0;
		if (s->refused)
			s->unsettled = s->was_unsettled;
		end(s, status->code, status->message[0] ? status->message : "the master ended the stream");
	}
	free(stream);
}

static const struct grpc_call_events call_events = {on_message, on_writable, on_status};

/* ---- heartbeats ---- */

static void on_heartbeat_timer(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, heartbeat_timer);
	s->heartbeat_due = true;
	attempts_resend_before(s->cfg.attempts, loop_now_mono_ns(s->cfg.loop) - RESEND_NS);
	loop_mark(s->cfg.loop, &s->dirty);
}

static void on_ack_timer(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, ack_timer);
	end(s, STATUS_UNAVAILABLE, "a heartbeat was not answered in time");
}

void session_arm_ack(struct session *s)
{
	if (s->acked_number == s->heartbeat_number) {
		loop_timer_stop(&s->ack_timer);
		return;
	}
	int64_t first = max_i64(s->acked_number + 1, s->heartbeat_number - HEARTBEATS_MAX + 1);
	loop_timer_set(&s->ack_timer, s->sent[first % HEARTBEATS_MAX].mono_ns +
		       lease_ack_timeout_ns(s->lease_ns, s->interval_ns));
}

/* ---- the owner ---- */

static void on_dirty(struct loop_dirty *d)
{
	session_flush(container_of(d, struct session, dirty));
}

struct session *session_new(const struct session_config *cfg)
{
	struct session *s = xcalloc(1, sizeof(*s));
	s->cfg = *cfg;
	list_init(&s->hello);
	buf_init(&s->scratch, 16u << 20);
	rng_seed(&s->rng, rng_process_next());
	loop_dirty_init(&s->dirty, LOOP_WORK, on_dirty);
	loop_timer_init(&s->heartbeat_timer, cfg->loop, on_heartbeat_timer);
	loop_timer_init(&s->ack_timer, cfg->loop, on_ack_timer);
	return s;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	forget_call(s);
	buf_done(&s->scratch);
	free(s);
}

int session_open(struct session *s, struct grpc_channel *ch)
{
	s->stream = xcalloc(1, sizeof(*s->stream));
	s->stream->session = s;
	int r = grpc_call_start(ch, METHOD, GRPC_CALL_STREAM, GRPC_NO_DEADLINE, &call_events, s->stream, &s->call);
	if (r < 0) {
		free(s->stream);
		s->stream = NULL;
		s->call = NULL;
		return r;
	}
	s->state = SESSION_HELLO;
	s->welcome_begun = false;
	s->number = 0;
	s->last_dispatch = 0;
	s->heartbeat_number = s->acked_number = 0;
	s->heartbeat_due = false;
	s->was_unsettled = s->unsettled;
	s->unsettled = true;
	memset(s->sent, 0, sizeof(s->sent));
	session_make_hello(s);
	s->refused = false;
	loop_mark(s->cfg.loop, &s->dirty);
	return 0;
}

void session_close(struct session *s)
{
	forget_call(s);
}

void session_news(struct session *s)
{
	if (s->state == SESSION_UP && !s->blocked)
		loop_mark(s->cfg.loop, &s->dirty);
}

void session_drain(struct session *s, Reins__V1__DrainMode mode, int64_t within_ns, bool resumed)
{
	s->draining = !resumed;
	s->drain_mode = mode;
	s->drain_within_ns = within_ns;
	s->say_draining = true;
	session_news(s);
}

bool session_is_up(const struct session *s)
{
	return s->state == SESSION_UP;
}

bool session_leave(struct session *s)
{
	if (s->state != SESSION_UP)
		return false;
	s->leaving = true;
	loop_mark(s->cfg.loop, &s->dirty);
	return true;
}
