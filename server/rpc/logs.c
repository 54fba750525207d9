/* ReadLogs: pieces of one attempt's log from the store, in order; with `follow` until the attempt (or the task) has ended.
 *
 * While an attempt runs, all but the head of a long log is not stored: who follows and has read what there is gets the
 * rest as it comes from the worker (follow.h), and at the end goes on from the store behind what it got.
 *
 * A slow reader is waited for: nothing is read ahead of it, what comes live is left out for it beyond a bound, and one that
 * takes nothing at all for a while is ended. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/follow.h"
#include "server/rpc/rpc.h"
#include "server/store/store_logs.h"

#define READ_BYTES (64 * 1024) /* beside it a reader holds its stream's queue and follow.c's */
#define FOLLOW_POLL_NS (2 * NS_PER_S)
#define LOOKS 4 /* at a reader that takes nothing, before it is given up */
#define LOOK_NS (15 * NS_PER_S)

struct logs_call {
	struct rpc *rpc;
	struct grpc_call *call;
	struct uuid id;
	int32_t attempt;     /* being read; 0: none was there yet */
	bool newest;         /* attempt 0 was asked for: go on with those that come after */
	bool follow;
	int64_t tail_bytes;  /* > 0 until the first read has found where to begin */
	int32_t stream;
	int64_t offset;      /* next byte to send */
	/* as of the last GET: */
	int32_t last_attempt;
	int64_t log_end;     /* of the attempt being read; 0: not known */
	bool ended;          /* the attempt being read has */
	bool over;           /* the task is terminal: no further attempt comes */
	char worker[CORE_NAME_MAX + 1];
	struct store_get get;
	struct store_log_read read;
	size_t next_chunk;   /* of read.ret_chunks, not sent yet */
	bool reading, again, blocked;
	bool caught_up;      /* all that is stored was sent: what comes live may be */
	struct follower live;
	struct loop_dirty live_dirty;
	struct engine_waiter waiter;
	struct rpc_parked parked;
	struct loop_timer timer;
	struct loop_timer patience;
	size_t queued;       /* when it was looked at last */
	int looks;           /* that found as much as the one before */
};

static void look(struct logs_call *l);
static void read_on(struct logs_call *l);

static void logs_free(struct logs_call *l)
{
	engine_unwait(&l->waiter);
	list_remove(&l->parked.node);
	loop_timer_stop(&l->timer);
	store_op_done_fields(&l->get.op);
	store_op_done_fields(&l->read.op);
	if (l->call)
		grpc_call_set_user(l->call, NULL);
	free(l);
}

static void logs_over(struct logs_call *l)
{
	if (l->call)
		grpc_call_set_user(l->call, NULL);
	l->call = NULL;
	follow_end(&l->live);
	loop_unmark(&l->live_dirty);
	loop_timer_stop(&l->timer);
	loop_timer_stop(&l->patience);
	if (!l->reading)
		logs_free(l);
}

static void on_stopping(struct rpc_parked *p)
{
	struct logs_call *l = container_of(p, struct logs_call, parked);
	if (l->call)
		rpc_refuse_stopping(l->call);
	logs_over(l);
}

void logs_on_end(struct grpc_call *call, bool finished)
{
	struct logs_call *l = grpc_call_user(call);
	if (l)
		logs_over(l);
}

/* ---- sending ---- */

static void block(struct logs_call *l)
{
	l->blocked = true;
	l->queued = grpc_call_queued(l->call);
	l->looks = 0;
	loop_timer_set(&l->patience, loop_now_mono_ns(l->rpc->loop) + LOOK_NS);
}

static void on_patience(struct loop_timer *t)
{
	struct logs_call *l = container_of(t, struct logs_call, patience);
	if (grpc_call_queued(l->call) < l->queued) {
		block(l);
		return;
	}
	if (++l->looks < LOOKS) {
		loop_timer_set(t, loop_now_mono_ns(l->rpc->loop) + LOOK_NS);
		return;
	}
	struct refusal r;
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "nothing of the log was taken for %d s; read on from offset %lld",
		     (int)(LOOKS * LOOK_NS / NS_PER_S), (long long)l->offset);
	(void)refuse_reason(&r, REASON_READER_TOO_SLOW);
	(void)refuse_more(&r, "offset", "%lld", (long long)l->offset);
	grpc_call_finish(l->call, &r);
	logs_over(l);
}

/* False: the reader is slow (on_writable goes on) or gone. */
static bool send_one(struct logs_call *l, Reins__V1__LogChunk *m)
{
	m->attempt = l->attempt;
	int rc = grpc_call_send_packed(l->call, reins__v1__log_chunk__get_packed_size(m),
				       (size_t (*)(const void *, uint8_t *))reins__v1__log_chunk__pack, m);
	if (rc == -EAGAIN)
		block(l);
	else if (rc)
		logs_over(l);
	else
		l->offset = m->offset + (int64_t)m->data.len + m->dropped_bytes;
	return rc == 0;
}

/* What is not kept between what was sent and `to`. */
static bool send_gap(struct logs_call *l, int64_t to)
{
	if (to <= l->offset)
		return true;
	Reins__V1__LogChunk m = REINS__V1__LOG_CHUNK__INIT;
	m.offset = l->offset;
	m.dropped_bytes = to - l->offset;
	return send_one(l, &m);
}

static bool send_chunk(struct logs_call *l, const struct store_log_chunk *stored)
{
	struct store_log_chunk c = *stored;
	if (!store_log_trim(&c, l->offset))
		return true;
	if (!send_gap(l, c.offset + c.dropped))
		return false;
	if (c.dropped)
		return true;
	if (l->stream && l->stream != (int32_t)c.stream) {
		l->offset = c.offset + (int64_t)c.data.len;
		return true;
	}
	Reins__V1__LogChunk m = REINS__V1__LOG_CHUNK__INIT;
	m.stream = (Reins__V1__LogStream)c.stream;
	m.offset = c.offset;
	m.data = (ProtobufCBinaryData){ c.data.len, (uint8_t *)(uintptr_t)c.data.data };
	return send_one(l, &m);
}

/* What was read and not sent yet. */
static bool send_read(struct logs_call *l)
{
	for (; l->next_chunk < l->read.ret_n; l->next_chunk++)
		if (!send_chunk(l, &l->read.ret_chunks[l->next_chunk]))
			return false;
	return true;
}

static bool send_live(struct logs_call *l)
{
	while (!list_empty(&l->live.pieces)) {
		struct follow_piece *p = container_of(l->live.pieces.next, struct follow_piece, node);
		struct store_log_chunk c = { .offset = p->offset, .stream = p->stream, .data = { p->data->data, p->data->len } };
		if (!send_chunk(l, &c))
			return false;
		follow_piece_free(&l->live, p);
	}
	return true;
}

static void on_live(struct loop_dirty *d)
{
	struct logs_call *l = container_of(d, struct logs_call, live_dirty);
	if (l->caught_up && !l->blocked)
		send_live(l);
}

static void on_pieces(struct follower *f)
{
	struct logs_call *l = container_of(f, struct logs_call, live);
	loop_mark(l->rpc->loop, &l->live_dirty);
}

/* ---- what next ---- */

static void wait_for_news(struct logs_call *l)
{
	loop_timer_set(&l->timer, loop_now_mono_ns(l->rpc->loop) + FOLLOW_POLL_NS);
}

static void go_live(struct logs_call *l)
{
	l->caught_up = true;
	if (send_live(l))
		wait_for_news(l);
}

/* All that is stored was sent. */
static void at_end(struct logs_call *l)
{
	if (l->follow && !l->ended) {
		if (l->attempt)
			go_live(l);
		else
			wait_for_news(l);
		return;
	}
	follow_end(&l->live);
	if (!send_gap(l, l->log_end))
		return;
	if (l->follow && l->newest && l->attempt < l->last_attempt) {
		l->attempt++;
		l->offset = 0;
		look(l);
	} else if (l->follow && l->newest && !l->over) {
		wait_for_news(l);
	} else {
		grpc_call_finish(l->call, NULL);
		logs_over(l);
	}
}

static void on_chunks(struct store_op *op)
{
	struct logs_call *l = container_of(op, struct logs_call, read.op);
	l->reading = false;
	l->next_chunk = 0;
	rpc_store_end(l->call);
	if (!l->call) {
		logs_free(l);
		return;
	}
	if (op->result != STORE_OK) {
		rpc_refuse_store(l->call, op);
		logs_over(l);
		return;
	}
	if (l->tail_bytes) {
		/* Of one that ended the end is known; what it has lost there is part of the tail. */
		l->offset = l->read.ret_n ? l->read.ret_offset : 0;
		l->offset = max_i64(l->offset, (l->ended ? l->log_end : 0) - l->tail_bytes);
		l->tail_bytes = 0;
	}
	bool any = l->read.ret_n > 0;
	if (!send_read(l))
		return;
	if (any)
		read_on(l);
	else if (l->again)
		look(l);
	else
		at_end(l);
}

void logs_on_writable(struct grpc_call *call)
{
	struct logs_call *l = grpc_call_user(call);
	if (!l || !l->blocked)
		return;
	l->blocked = false;
	loop_timer_stop(&l->patience);
	if (l->caught_up && !l->again) {
		if (send_live(l))
			wait_for_news(l);
	} else if (send_read(l)) {
		if (l->again)
			look(l);
		else
			read_on(l);
	}
}

static void read_on(struct logs_call *l)
{
	store_op_done_fields(&l->read.op);
	memset(&l->read, 0, sizeof(l->read));
	l->read.op.kind = STORE_LOG_READ;
	l->read.op.done = on_chunks;
	l->read.at = (struct core_attempt){ l->id, l->attempt };
	l->read.offset = l->offset;
	l->read.tail = l->tail_bytes;
	l->read.max_bytes = READ_BYTES;
	l->next_chunk = 0;
	l->reading = true;
	rpc_store_begin(l->call, false);
	store_submit(engine_store(l->rpc->engine), &l->read.op);
}

static void on_looked(struct store_op *op)
{
	struct logs_call *l = container_of(op, struct logs_call, get.op);
	l->reading = false;
	rpc_store_end(l->call);
	const struct store_task *t = &l->get.ret_task;
	if (!l->call) {
		logs_free(l);
		return;
	}
	if (op->result != STORE_OK) {
		rpc_refuse_store(l->call, op);
		logs_over(l);
		return;
	}
	if (!l->get.ret_found) {
		rpc_refuse_no_task(l->call, &l->get.id);
		logs_over(l);
		return;
	}
	if (!rpc_must(l->call, t->owner, RPC_READ)) {
		logs_over(l);
		return;
	}
	if (l->attempt > t->core.attempt) {
		rpc_refuse_no_attempt(l->call, &l->get.id, t->core.attempt);
		logs_over(l);
		return;
	}
	if (l->attempt == 0)
		l->attempt = t->core.attempt;
	l->last_attempt = t->core.attempt;
	l->over = store_state_is_final(t->state);
	l->ended = l->attempt < t->core.attempt || t->state != STORE_RUNNING;
	l->log_end = 0;
	for (size_t i = 0; i < t->n_attempts; i++)
		if (t->attempts[i].attempt == l->attempt)
			l->log_end = t->attempts[i].log_end;
	snprintf(l->worker, sizeof(l->worker), "%s", t->worker ? t->worker : "");
	/* Before the first read, so that nothing falls between the two. */
	struct core_attempt at = { l->id, l->attempt };
	if (l->follow && l->attempt > 0 && !l->ended && !l->live.of)
		follow_begin(l->rpc, &l->live, &at, l->worker);
	if (l->attempt > 0)
		read_on(l);
	else if (l->again) /* none yet, and news came while we looked */
		look(l);
	else
		at_end(l);
}

/* State first, log second: an attempt that had ended before the log was read has no more log. */
static void look(struct logs_call *l)
{
	store_op_done_fields(&l->get.op);
	memset(&l->get, 0, sizeof(l->get));
	l->get.op.kind = STORE_GET;
	l->get.op.done = on_looked;
	l->get.id = l->id;
	l->reading = true;
	l->again = l->caught_up = false;
	if (l->follow && !l->waiter.head)
		engine_wait(l->rpc->engine, &l->waiter, &l->id);
	rpc_store_begin(l->call, false);
	store_submit(engine_store(l->rpc->engine), &l->get.op);
}

static void on_news(struct engine_waiter *w)
{
	struct logs_call *l = container_of(w, struct logs_call, waiter);
	if (l->reading || l->blocked)
		l->again = true;
	else
		look(l);
}

static void on_timer(struct loop_timer *t)
{
	struct logs_call *l = container_of(t, struct logs_call, timer);
	if (!l->reading && !l->blocked)
		look(l);
}

void logs_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ReadLogsRequest *req = rpc_unpack(call, &reins__v1__read_logs_request__descriptor, data, len);
	if (!req)
		return;
	struct uuid id;
	if (req->attempt < 0)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "attempt", "attempt: below 0; attempts count from 1, 0 is the newest");
	else if (req->offset < 0)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "offset", "offset: below 0");
	else if (req->tail_bytes < 0 || (req->offset && req->tail_bytes))
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "tail_bytes", "tail_bytes: below 0, or set together with offset");
	else if (req->stream < REINS__V1__LOG_STREAM__LOG_STREAM_UNSPECIFIED || req->stream > REINS__V1__LOG_STREAM__STDERR)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "stream", "stream: neither STDOUT nor STDERR");
	else if (req->follow && rpc_of(call)->draining)
		rpc_refuse_stopping(call);
	else if (rpc_parse_id(call, req->task_id, &id) == 0) {
		struct logs_call *l = rpc_calloc(call, sizeof(*l));
		if (!l) {
			pb_free(req);
			return;
		}
		l->rpc = rpc_of(call);
		l->call = call;
		l->id = id;
		l->attempt = req->attempt;
		l->newest = req->attempt == 0;
		l->follow = req->follow;
		l->tail_bytes = req->tail_bytes;
		l->stream = (int32_t)req->stream;
		l->offset = req->offset;
		l->get.op.kind = STORE_GET;
		l->read.op.kind = STORE_LOG_READ;
		l->waiter.wake = on_news;
		l->waiter.log = true;
		loop_timer_init(&l->timer, l->rpc->loop, on_timer);
		loop_timer_init(&l->patience, l->rpc->loop, on_patience);
		loop_dirty_init(&l->live_dirty, LOOP_STORE, on_live);
		follower_init(&l->live, on_pieces);
		list_init(&l->parked.node);
		l->parked.end = on_stopping;
		if (l->follow)
			list_push_back(&l->rpc->parked, &l->parked.node);
		grpc_call_set_user(call, l);
		look(l);
	}
	pb_free(req);
}
