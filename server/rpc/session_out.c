/* Messages to a worker.  What the engine says in one turn goes out together: all tasks in one Dispatch, all verdicts
 * in one OutcomeAck, all stops for one reason in one Stop. */
#include <errno.h>
#include <string.h>

#include "common/log/log.h"
#include "common/pb/pb.h"
#include "server/rpc/follow.h"
#include "server/rpc/session.h"
#include "server/rpc/trace.h"
#include "server/rpc/wire.h"

#define WINDOW_PART 64 /* one of so many of what is left */
#define PIECE_MAX (1024 * 1024)        /* of a Dispatch, unless a single task is larger */
#define TASK_MAX GRPC_MESSAGE_MAX
#define BACKLOG_MAX (16 * 1024 * 1024) /* for a worker that reads too slowly: then its stream ends */
#define ADOPTED_PER_PIECE 1000

/* Field numbers of worker_service.proto. */
enum { MSG_HEARTBEAT_ACK = 2, MSG_DISPATCH = 3, MSG_STOP = 4, MSG_OUTCOME_ACK = 5 };

struct queued {
	struct list node;
	size_t len;
	uint8_t data[];
};

static void out_of_room(struct session *s)
{
	session_end(s, STATUS_RESOURCE_EXHAUSTED, "the worker reads too slowly: more than %d MiB wait for it",
		    BACKLOG_MAX >> 20);
}

/* A message that no worker takes. To leave it out would break the order that numbers stand for. */
static void too_large(struct session *s, size_t len)
{
	session_end(s, STATUS_RESOURCE_EXHAUSTED, "a message of %zu bytes for the worker is over the limit", len);
}

static void send_bytes(struct session *s, const uint8_t *data, size_t len)
{
	if (s->closing || !s->call)
		return;
	int rc = list_empty(&s->backlog) ? grpc_call_send(s->call, data, len) : -EAGAIN;
	if (rc == -EMSGSIZE)
		too_large(s, len);
	if (rc != -EAGAIN)
		return; /* taken, or the stream is over and on_end follows */
	struct queued *q = s->backlog_bytes + len > BACKLOG_MAX ? NULL : malloc(sizeof(*q) + len);
	if (!q) {
		out_of_room(s);
		return;
	}
	q->len = len;
	memcpy(q->data, data, len);
	list_push_back(&s->backlog, &q->node);
	s->backlog_bytes += len;
}

void session_out_writable(struct session *s)
{
	while (!list_empty(&s->backlog) && s->call && !s->closing) {
		struct queued *q = container_of(s->backlog.next, struct queued, node);
		int rc = grpc_call_send(s->call, q->data, q->len);
		if (rc == -EAGAIN)
			return;
		if (rc == -EMSGSIZE)
			too_large(s, q->len);
		list_remove(&q->node);
		s->backlog_bytes -= q->len;
		free(q);
	}
}

static void send_message(struct session *s, Reins__V1__MasterMessage *m)
{
	struct buf b;
	buf_init(&b, 4 * PIECE_MAX);
	if (pb_pack(m, &b) == 0)
		send_bytes(s, buf_head(&b), buf_len(&b));
	else
		out_of_room(s);
	buf_done(&b);
}

/* MasterMessage { field { number, body } }, where body's fields are encoded already. */
static void send_body(struct session *s, uint32_t field, int64_t number, struct buf *body)
{
	struct buf b;
	buf_init(&b, PIECE_MAX + 2 * TASK_MAX);
	size_t head = number ? 1 + wire_varint_size((uint64_t)number) : 0;
	if (wire_put_head(&b, field, head + buf_len(body)) || wire_put_int(&b, 1, number) ||
	    buf_add(&b, buf_head(body), buf_len(body)))
		out_of_room(s);
	else
		send_bytes(s, buf_head(&b), buf_len(&b));
	buf_done(&b);
	buf_clear(body);
}

/* ---- dispatch ---- */

static void flush_dispatch(struct session *s, bool last_piece)
{
	if (buf_len(&s->dispatch) == 0)
		return;
	/* Pieces before the last carry the number before: a heartbeat that names a number has seen all of it. */
	send_body(s, MSG_DISPATCH, last_piece ? s->dispatch_number : s->last_number, &s->dispatch);
	if (last_piece)
		s->last_number = s->dispatch_number;
}

static int put_duration(struct buf *b, uint32_t field, int64_t ns)
{
	int64_t seconds = ns / NS_PER_S, nanos = ns % NS_PER_S;
	size_t len = (seconds ? 1 + wire_varint_size((uint64_t)seconds) : 0) + (nanos ? 1 + wire_varint_size((uint64_t)nanos) : 0);
	int rc = wire_put_head(b, field, len);
	if (rc == 0)
		rc = wire_put_int(b, 1, seconds);
	return rc ? rc : wire_put_int(b, 2, nanos);
}

/* DispatchedTask: the spec's bytes as they were stored. */
static int put_task(struct buf *b, const struct core_effect *e)
{
	char id[UUID_TEXT_LEN + 1], trace[TRACEPARENT_LEN + 1];
	trace_find(e->spec, trace);
	uuid_format(&e->at.task, id);
	int rc = wire_put_text(b, 1, id);
	if (rc == 0)
		rc = wire_put_int(b, 2, e->at.attempt);
	if (rc == 0)
		rc = wire_put_text(b, 3, e->queue);
	if (rc == 0)
		rc = wire_put_len(b, 4, e->spec->data, e->spec->len);
	if (rc == 0)
		rc = put_duration(b, 5, e->lease_ns);
	if (rc == 0)
		rc = wire_put_text(b, 7, trace);
	return rc ? rc : wire_put_int(b, 6, e->exclusive);
}

static void on_dispatch(struct engine_peer *p, const struct core_effect *e)
{
	struct session *s = container_of(p, struct session, peer);
	struct buf task;
	buf_init(&task, TASK_MAX);
	int rc = put_task(&task, e);
	if (e->number != s->dispatch_number)
		flush_dispatch(s, true);
	else if (buf_len(&s->dispatch) + buf_len(&task) > PIECE_MAX)
		flush_dispatch(s, false);
	s->dispatch_number = e->number;
	if (rc || wire_put_len(&s->dispatch, 2, buf_head(&task), buf_len(&task)))
		out_of_room(s);
	buf_done(&task);
}

/* ---- the rest ---- */

/* One piece; with the attempts from `adopted` on. */
static void send_welcome(struct session *s, Reins__V1__Welcome *w, const struct core_adopted *adopted, size_t n)
{
	_cleanup_free_ Reins__V1__AdoptedAttempt *items = xcalloc(n + 1, sizeof(*items));
	_cleanup_free_ Reins__V1__AdoptedAttempt **at = xcalloc(n + 1, sizeof(*at));
	_cleanup_free_ Google__Protobuf__Duration *leases = xcalloc(n + 1, sizeof(*leases));
	_cleanup_free_ char(*ids)[UUID_TEXT_LEN + 1] = xcalloc(n + 1, sizeof(*ids));
	for (size_t i = 0; i < n; i++) {
		const struct core_adopted *a = &adopted[i];
		reins__v1__adopted_attempt__init(&items[i]);
		uuid_format(&a->task.id, ids[i]);
		items[i].task_id = ids[i];
		items[i].attempt = a->task.attempt;
		items[i].stop_follows = a->cancel_wish;
		items[i].log_stored = a->log_stored;
		items[i].metrics_stored = a->metrics_stored;
		if (a->lease_ns > 0) {
			pb_duration_set(&leases[i], a->lease_ns);
			items[i].lease_ttl = &leases[i];
		}
		at[i] = &items[i];
	}
	Reins__V1__MasterMessage m = REINS__V1__MASTER_MESSAGE__INIT;
	w->adopted = at;
	w->n_adopted = n;
	m.kind_case = REINS__V1__MASTER_MESSAGE__KIND_WELCOME;
	m.welcome = w;
	send_message(s, &m);
}

/* A part of what all sessions may hold and is not given away yet: few workers have the usual window, of many the later ones
 * less, so that the sum stays near the limit however many come. */
static void take_window(struct session *s)
{
	struct rpc *rpc = s->rpc;
	int64_t limit = rpc->limits.held_bytes, left = max_i64(limit - rpc->windows, 0);
	s->window = limit ? max_i64(min_i64(left / WINDOW_PART, SESSION_LOG_WINDOW_SUM), SESSION_LOG_WINDOW_MIN) : SESSION_LOG_WINDOW_SUM;
	rpc->windows += s->window;
}

static void on_welcome(struct engine_peer *p, const struct core_effect *x, struct core_adopted *adopted, size_t n)
{
	struct session *s = container_of(p, struct session, peer);
	Google__Protobuf__Duration heartbeat, lease;
	Reins__V1__Welcome w = REINS__V1__WELCOME__INIT;
	Reins__V1__WorkerLimits limits = REINS__V1__WORKER_LIMITS__INIT;
	limits.message_bytes = s->rpc->limits.message_bytes;
	limits.result_bytes = s->rpc->limits.result_bytes;
	limits.error_bytes = s->rpc->limits.error_bytes;
	limits.log_bytes = s->rpc->limits.log_bytes;
	take_window(s);
	limits.log_window_bytes = min_i64(SESSION_LOG_WINDOW, s->window);
	limits.log_window_sum_bytes = s->window;
	limits.metrics_points = s->rpc->limits.metrics_points;
	pb_duration_set(&heartbeat, x->heartbeat_ns);
	pb_duration_set(&lease, x->lease_ns);
	if (x->resumed)
		progress_fill(&s->rpc->left, s->worker, adopted, n);
	progress_drop(&s->rpc->left, s->worker);
	w.session = x->session;
	w.heartbeat_interval = &heartbeat;
	w.lease_ttl = &lease;
	w.store_id = (char *)(uintptr_t)engine_store_id(s->rpc->engine);
	w.master_id = (char *)(uintptr_t)engine_master_id(s->rpc->engine);
	w.version = (char *)(uintptr_t)REINS_VERSION;
	w.limits = &limits;
	size_t done = 0;
	do {
		size_t piece = min_sz(n - done, ADOPTED_PER_PIECE);
		w.last = done + piece == n;
		send_welcome(s, &w, adopted + done, piece);
		done += piece;
	} while (done < n);
	if (x->resumed)
		log_info("worker", s->log_name, "session %lld goes on while the store is away, with %zu attempts",
			 (long long)x->session, n);
	for (size_t i = 0; i < n; i++) {
		struct core_attempt ref = { adopted[i].task.id, adopted[i].task.attempt };
		session_log_adopted(s, &adopted[i]);
		follow_session(s, &ref);
	}
}

void session_follow_log(struct session *s, const struct core_attempt *at, bool on)
{
	char id[UUID_TEXT_LEN + 1];
	Reins__V1__FollowLog f = REINS__V1__FOLLOW_LOG__INIT;
	Reins__V1__MasterMessage m = REINS__V1__MASTER_MESSAGE__INIT;
	uuid_format(&at->task, id);
	f.task_id = id;
	f.attempt = at->attempt;
	f.on = on;
	m.kind_case = REINS__V1__MASTER_MESSAGE__KIND_FOLLOW_LOG;
	m.follow_log = &f;
	send_message(s, &m);
}

static void on_heartbeat_ack(struct engine_peer *p, int64_t number, bool exclusive_not_renewed)
{
	struct session *s = container_of(p, struct session, peer);
	s->acked = number;
	s->exclusive_not_renewed = exclusive_not_renewed;
	s->ack_due = true;
}

void session_log_stored(struct session *s, const struct core_attempt *at, int64_t offset)
{
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&at->task, id);
	struct buf one;
	buf_init(&one, 256);
	if (wire_put_text(&one, 1, id) || wire_put_int(&one, 2, at->attempt) || wire_put_int(&one, 3, offset) ||
	    wire_put_len(&s->stored, 3, buf_head(&one), buf_len(&one)))
		out_of_room(s);
	buf_done(&one);
	loop_mark(s->rpc->loop, &s->out);
}

static Reins__V1__Stop__Reason reason_of(size_t reason)
{
	static const Reins__V1__Stop__Reason reasons[CORE_STOP_REASONS] = {
		[CORE_STOP_CANCELLED] = REINS__V1__STOP__REASON__CANCELLED,
		[CORE_STOP_FENCED] = REINS__V1__STOP__REASON__FENCED,
		[CORE_STOP_RECALLED] = REINS__V1__STOP__REASON__RECALLED,
	};
	return reasons[reason];
}

/* A stop never overtakes its dispatch. */
static void flush_stops(struct session *s)
{
	for (size_t i = 0; i < CORE_STOP_REASONS; i++) {
		if (buf_len(&s->stops[i]) == 0)
			continue;
		flush_dispatch(s, true);
		if (wire_put_int(&s->stops[i], 2, reason_of(i)))
			out_of_room(s);
		send_body(s, MSG_STOP, 0, &s->stops[i]);
	}
}

static void on_stop(struct engine_peer *p, const struct core_attempt *at, enum core_stop_reason reason)
{
	struct session *s = container_of(p, struct session, peer);
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&at->task, id);
	struct buf one;
	buf_init(&one, 256);
	if (wire_put_text(&one, 1, id) || wire_put_int(&one, 2, at->attempt) ||
	    wire_put_len(&s->stops[reason], 1, buf_head(&one), buf_len(&one)))
		out_of_room(s);
	buf_done(&one);
	if (buf_len(&s->stops[reason]) > PIECE_MAX)
		flush_stops(s);
}

static void on_drain(struct engine_peer *p, const struct store_drain_wish *wish)
{
	struct session *s = container_of(p, struct session, peer);
	Google__Protobuf__Duration within;
	Reins__V1__Drain drain = REINS__V1__DRAIN__INIT;
	Reins__V1__MasterMessage m = REINS__V1__MASTER_MESSAGE__INIT;
	drain.resume = wish->mode == 0;
	/* The process that was to leave has left; this is the next one, which takes over what runs and then waits. */
	bool left = s->next_process && wish->mode == REINS__V1__DRAIN_MODE__DRAIN_DETACH;
	drain.mode = left ? REINS__V1__DRAIN_MODE__DRAIN_WAIT : (Reins__V1__DrainMode)wish->mode;
	if (wish->mode && wish->within_ns >= 0 && !left) {
		pb_duration_set(&within, wish->within_ns);
		drain.within = &within;
	}
	if (wish->mode && wish->reason)
		drain.reason = (char *)(uintptr_t)wish->reason;
	m.kind_case = REINS__V1__MASTER_MESSAGE__KIND_DRAIN;
	m.drain = &drain;
	send_message(s, &m);
}

static void on_outcome_ack(struct engine_peer *p, const struct core_attempt *at, enum core_record_verdict verdict)
{
	struct session *s = container_of(p, struct session, peer);
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&at->task, id);
	struct buf one;
	buf_init(&one, 256);
	int64_t wire = verdict == CORE_RECORD_RECORDED    ? REINS__V1__OUTCOME_VERDICT__VERDICT__RECORDED
		       : verdict == CORE_RECORD_DUPLICATE ? REINS__V1__OUTCOME_VERDICT__VERDICT__DUPLICATE
							  : REINS__V1__OUTCOME_VERDICT__VERDICT__FENCED;
	if (wire_put_text(&one, 1, id) || wire_put_int(&one, 2, at->attempt) || wire_put_int(&one, 3, wire) ||
	    wire_put_len(&s->verdicts, 1, buf_head(&one), buf_len(&one)))
		out_of_room(s);
	buf_done(&one);
	session_log_forget(s, at);
}

static void on_close(struct engine_peer *p, enum core_close_code code)
{
	struct session *s = container_of(p, struct session, peer);
	switch (code) {
	case CORE_CLOSE_REPLACED:
		session_end(s, STATUS_ABORTED, "a newer session of worker %s has begun; this one is over", s->worker);
		break;
	case CORE_CLOSE_UNAVAILABLE:
		session_end(s, STATUS_UNAVAILABLE, "the lease has ended, or another master judges it by now; connect again");
		break;
	case CORE_CLOSE_AWAY:
		session_end_away(s);
		break;
	case CORE_CLOSE_LIMIT:
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "too many workers, or too many attempts of this one");
		break;
	case CORE_CLOSE_PROTOCOL:
		session_end(s, STATUS_FAILED_PRECONDITION, "a message came out of order");
		break;
	}
}

static void flush_out(struct loop_dirty *d)
{
	struct session *s = container_of(d, struct session, out);
	flush_dispatch(s, true);
	flush_stops(s);
	if (buf_len(&s->verdicts))
		send_body(s, MSG_OUTCOME_ACK, 0, &s->verdicts);
	if (s->ack_due || buf_len(&s->stored)) {
		/* The number of the last one is said again where only logs were stored: that renews nothing. */
		s->ack_due = false;
		if (s->exclusive_not_renewed && wire_put_int(&s->stored, 2, true))
			out_of_room(s);
		send_body(s, MSG_HEARTBEAT_ACK, s->acked, &s->stored);
	}
}

static void on_flush(struct engine_peer *p)
{
	struct session *s = container_of(p, struct session, peer);
	s->next_process = false;
	loop_mark(s->rpc->loop, &s->out);
}

const struct engine_peer_ops session_peer_ops = {
	.welcome = on_welcome,
	.heartbeat_ack = on_heartbeat_ack,
	.dispatch = on_dispatch,
	.stop = on_stop,
	.outcome_ack = on_outcome_ack,
	.drain = on_drain,
	.close = on_close,
	.flush = on_flush,
};

void session_out_init(struct session *s)
{
	/* After the store's and before the streams' own flush: all of the turn is known then. */
	loop_dirty_init(&s->out, LOOP_LEASE, flush_out);
	buf_init(&s->dispatch, PIECE_MAX + TASK_MAX);
	for (size_t i = 0; i < CORE_STOP_REASONS; i++)
		buf_init(&s->stops[i], 2 * PIECE_MAX);
	buf_init(&s->verdicts, 2 * PIECE_MAX);
	buf_init(&s->stored, 2 * PIECE_MAX);
	list_init(&s->backlog);
}

void session_out_done(struct session *s)
{
	loop_unmark(&s->out);
	buf_done(&s->dispatch);
	for (size_t i = 0; i < CORE_STOP_REASONS; i++)
		buf_done(&s->stops[i]);
	buf_done(&s->verdicts);
	buf_done(&s->stored);
	struct list *n;
	while ((n = list_pop_front(&s->backlog)))
		free(container_of(n, struct queued, node));
}
