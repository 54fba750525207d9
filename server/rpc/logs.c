/* ReadLogs: pieces of one attempt's log from the store, in order; with `follow` until the attempt (or the
 * task) has ended.  A slow reader is waited for: nothing is read ahead of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/rpc.h"

#define READ_BYTES (256 * 1024)
#define FOLLOW_POLL_NS (2 * NS_PER_S)

struct logs_call {
	struct rpc *rpc;
	struct grpc_call *call;
	struct uuid id;
	int32_t attempt;     /* being read; 0: none was there yet */
	bool newest;         /* attempt 0 was asked for: go on with those that come after */
	bool follow;
	int64_t tail_bytes;
	int64_t skip_to;     /* bytes before this are not sent (tail) */
	bool measuring;      /* first pass of a tail: find the end */
	int32_t stream;
	int64_t offset;      /* next byte to read */
	/* as of the last GET: */
	int32_t last_attempt;
	bool ended;          /* the attempt being read has */
	bool over;           /* the task is terminal: no further attempt comes */
	struct store_get get;
	struct store_log_read read;
	size_t next_chunk;   /* of read.ret_chunks, not sent yet */
	bool reading, again, blocked;
	struct engine_waiter waiter;
	struct rpc_parked parked;
	struct loop_timer timer;
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

static int send_chunk(struct logs_call *l, const struct store_log_chunk *c)
{
	int64_t cut = max_i64(0, min_i64((int64_t)c->data.len, max_i64(l->skip_to, l->offset) - c->offset));
	if (cut == (int64_t)c->data.len || (l->stream && l->stream != (int32_t)c->stream))
		return 0;
	Reins__V1__LogChunk m;
	reins__v1__log_chunk__init(&m);
	m.attempt = l->attempt;
	m.stream = (Reins__V1__LogStream)c->stream;
	m.offset = c->offset + cut;
	m.data = (ProtobufCBinaryData){ c->data.len - (size_t)cut, (uint8_t *)(uintptr_t)c->data.data + cut };
	return grpc_call_send_packed(l->call, reins__v1__log_chunk__get_packed_size(&m),
				     (size_t (*)(const void *, uint8_t *))reins__v1__log_chunk__pack, &m);
}

/* What was read and not sent yet; false when the reader is slow (on_writable goes on) or gone. */
static bool send_read(struct logs_call *l)
{
	for (; l->next_chunk < l->read.ret_n; l->next_chunk++) {
		const struct store_log_chunk *c = &l->read.ret_chunks[l->next_chunk];
		if (!l->measuring) {
			int rc = send_chunk(l, c);
			if (rc == -EAGAIN) {
				l->blocked = true;
				return false;
			}
			if (rc) {
				logs_over(l);
				return false;
			}
		}
		l->offset = max_i64(l->offset, c->offset + (int64_t)c->data.len);
	}
	return true;
}

static void wait_for_news(struct logs_call *l)
{
	loop_timer_set(&l->timer, loop_now_mono_ns(l->rpc->loop) + FOLLOW_POLL_NS);
}

/* All that is stored was sent: what next? */
static void at_end(struct logs_call *l)
{
	if (l->measuring) {
		l->measuring = false;
		l->skip_to = max_i64(0, l->offset - l->tail_bytes);
		l->offset = l->skip_to;
		read_on(l);
	} else if (l->follow && !l->ended) {
		wait_for_news(l);
	} else if (l->follow && l->newest && l->attempt < l->last_attempt) {
		l->attempt++;
		l->offset = l->skip_to = 0;
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
	if (!l->call) {
		logs_free(l);
		return;
	}
	if (op->result != STORE_OK) {
		rpc_refuse_store(l->call, op);
		logs_over(l);
		return;
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
	if (send_read(l))
		read_on(l);
}

static void read_on(struct logs_call *l)
{
	store_op_done_fields(&l->read.op);
	memset(&l->read, 0, sizeof(l->read));
	l->read.op.kind = STORE_LOG_READ;
	l->read.op.done = on_chunks;
	l->read.at = (struct core_attempt){ l->id, l->attempt };
	l->read.offset = l->offset;
	l->read.max_bytes = READ_BYTES;
	l->reading = true;
	store_submit(engine_store(l->rpc->engine), &l->read.op);
}

static void on_looked(struct store_op *op)
{
	struct logs_call *l = container_of(op, struct logs_call, get.op);
	l->reading = false;
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
		rpc_refuse(l->call, STATUS_NOT_FOUND, "task_id", "task_id: no such task");
		logs_over(l);
		return;
	}
	if (l->attempt > t->core.attempt) {
		rpc_refuse(l->call, STATUS_NOT_FOUND, "attempt", "attempt: the task has had %d attempts", t->core.attempt);
		logs_over(l);
		return;
	}
	if (l->attempt == 0)
		l->attempt = t->core.attempt;
	l->last_attempt = t->core.attempt;
	l->over = store_state_is_final(t->state);
	l->ended = l->attempt < t->core.attempt || t->state != STORE_RUNNING;
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
	l->again = false;
	if (l->follow && !l->waiter.head)
		engine_wait(l->rpc->engine, &l->waiter, &l->id);
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
		struct logs_call *l = xcalloc(1, sizeof(*l));
		l->rpc = rpc_of(call);
		l->call = call;
		l->id = id;
		l->attempt = req->attempt;
		l->newest = req->attempt == 0;
		l->follow = req->follow;
		l->tail_bytes = req->tail_bytes;
		l->measuring = req->tail_bytes > 0;
		l->stream = (int32_t)req->stream;
		l->offset = l->skip_to = req->offset;
		l->get.op.kind = STORE_GET;
		l->read.op.kind = STORE_LOG_READ;
		l->waiter.wake = on_news;
		l->waiter.log = true;
		loop_timer_init(&l->timer, l->rpc->loop, on_timer);
		list_init(&l->parked.node);
		l->parked.end = on_stopping;
		if (l->follow)
			list_push_back(&l->rpc->parked, &l->parked.node);
		grpc_call_set_user(call, l);
		look(l);
	}
	pb_free(req);
}
