/* ListQueues, PauseQueue and ResumeQueue. */
#include <stdio.h>
#include <string.h>

#include "common/loop/loop.h"
#include "common/pb/pb.h"
#include "reins/v1/admin_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/spec.h"
#include "server/rpc/wire.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_BYTES (3 * 1024 * 1024)
#define READ_ROWS 20          /* queues whose tasks the store counts in one statement */
#define READ_NS NS_PER_S      /* then the page stays short */
#define TOKEN_PREFIX "q1:"
#define REASON_MAX 255

struct queues_call {
	struct rpc *rpc;
	struct grpc_call *call;
	struct store_queue_list read;
	struct engine_pause pause;
	bool busy; /* one of the two is on its way */
	size_t n, limit;
	int64_t until_mono_ns;
	struct buf page;
	char queue[RPC_NAME_MAX + 1], reason[REASON_MAX + 1];
	char after[RPC_NAME_MAX + 1];
};

static void call_free(struct queues_call *q)
{
	if (q->call)
		grpc_call_set_user(q->call, NULL);
	store_op_done_fields(&q->read.op);
	buf_done(&q->page);
	free(q);
}

void queues_on_end(struct grpc_call *call, bool finished)
{
	struct queues_call *q = grpc_call_user(call);
	if (!q)
		return;
	q->call = NULL;
	if (!q->busy)
		call_free(q);
}

static struct queues_call *call_new(struct grpc_call *call)
{
	struct queues_call *q = rpc_calloc(call, sizeof(*q));
	if (!q)
		return NULL;
	q->rpc = rpc_of(call);
	q->call = call;
	q->read.op.kind = STORE_QUEUE_LIST; /* for store_op_done_fields */
	buf_init(&q->page, 2 * PAGE_BYTES);
	grpc_call_set_user(call, q);
	return q;
}

static void read_more(struct queues_call *q, void (*done)(struct store_op *op))
{
	store_op_done_fields(&q->read.op);
	q->read = (struct store_queue_list){
		.op = { .kind = STORE_QUEUE_LIST, .done = done },
		.only = *q->queue ? q->queue : NULL,
		.after = q->after,
		.limit = (int32_t)min_sz(q->limit - q->n, READ_ROWS),
	};
	q->busy = true;
	rpc_store_begin(q->call, false);
	store_submit(engine_store(q->rpc->engine), &q->read.op);
}

static int put_queue(const struct store_queue *r, struct buf *b)
{
	Reins__V1__QueueInfo m = REINS__V1__QUEUE_INFO__INIT;
	Google__Protobuf__Timestamp paused, oldest;
	m.name = (char *)(uintptr_t)r->name;
	m.paused = r->paused;
	m.paused_reason = (char *)(uintptr_t)r->reason;
	if (r->paused) {
		pb_timestamp_set(&paused, r->paused_wall_us);
		m.paused_at = &paused;
	}
	m.pending = r->ready;
	m.pending_more = r->ready_more;
	m.scheduled = r->delayed;
	m.scheduled_more = r->delayed_more;
	m.running = r->running;
	m.running_more = r->running_more;
	if (r->oldest_wall_us) {
		pb_timestamp_set(&oldest, r->oldest_wall_us);
		m.oldest_pending_at = &oldest;
	}
	return pb_pack(&m, b);
}

/* ---- list ---- */

static int add(struct queues_call *q, const struct store_queue *r)
{
	struct buf one;
	buf_init(&one, PAGE_BYTES);
	int rc = put_queue(r, &one);
	if (rc == 0)
		rc = wire_put_len(&q->page, 1, buf_head(&one), buf_len(&one));
	buf_done(&one);
	return rc;
}

static void finish(struct queues_call *q, bool more)
{
	char token[RPC_NAME_MAX + 16] = "";
	if (more)
		snprintf(token, sizeof(token), TOKEN_PREFIX "%s", q->after);
	if (wire_put_text(&q->page, 2, token))
		rpc_refuse_room(q->call, "no room for the page; ask for a smaller page_size");
	else
		rpc_reply(q->call, &q->page);
	call_free(q);
}

static void on_listed(struct store_op *op)
{
	struct queues_call *q = container_of(op, struct queues_call, read.op);
	q->busy = false;
	if (!q->call || op->result != STORE_OK) {
		if (q->call)
			rpc_refuse_store(q->call, op);
		call_free(q);
		return;
	}
	for (size_t i = 0; i < q->read.ret_n; i++, q->n++) {
		if (add(q, &q->read.ret_rows[i])) {
			rpc_refuse_room(q->call, "no room for the page; ask for a smaller page_size");
			call_free(q);
			return;
		}
		snprintf(q->after, sizeof(q->after), "%s", q->read.ret_rows[i].name);
	}
	bool more = q->read.ret_more;
	if (!more || q->n >= q->limit || loop_now_mono_ns(q->rpc->loop) >= q->until_mono_ns)
		finish(q, more);
	else
		read_more(q, on_listed);
}

static int parse_list(struct queues_call *q, const Reins__V1__ListQueuesRequest *req, struct refusal *r)
{
	const char *token = req->page_token;
	if (req->page_size < 0 || req->page_size > PAGE_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_size", "page_size: %d; 1 to 1000 are allowed, 0 means 100",
			      req->page_size);
	q->limit = req->page_size ? (size_t)req->page_size : PAGE_DEFAULT;
	if (!*token)
		return 0;
	if (strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) != 0 || !spec_name_ok(token + strlen(TOKEN_PREFIX)))
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_token", "page_token: not one that this server gave out");
	snprintf(q->after, sizeof(q->after), "%s", token + strlen(TOKEN_PREFIX));
	return 0;
}

void queues_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ListQueuesRequest *req = rpc_unpack(call, &reins__v1__list_queues_request__descriptor, data, len);
	if (!req)
		return;
	struct queues_call *q = call_new(call);
	struct refusal r;
	if (!q) {
		pb_free(req);
		return;
	}
	int rc = parse_list(q, req, &r);
	pb_free(req);
	if (rc) {
		grpc_call_finish(call, &r);
		call_free(q);
		return;
	}
	q->until_mono_ns = loop_now_mono_ns(q->rpc->loop) + READ_NS;
	read_more(q, on_listed);
}

/* ---- pause and resume ---- */

static void on_paused_read(struct store_op *op)
{
	struct queues_call *q = container_of(op, struct queues_call, read.op);
	const struct store_queue nothing = { .name = q->queue, .reason = "" }; /* is left of one without tasks that was resumed */
	q->busy = false;
	if (!q->call)
		;
	else if (op->result != STORE_OK)
		rpc_refuse_store(q->call, op);
	else if (q->read.ret_n == 0 && !q->pause.op.ret_done)
		rpc_refuse(q->call, STATUS_NOT_FOUND, "queue", "queue: it has no task, and is not paused");
	else if (put_queue(q->read.ret_n ? &q->read.ret_rows[0] : &nothing, &q->page))
		rpc_refuse_room(q->call, "no room for the reply");
	else
		rpc_reply(q->call, &q->page);
	call_free(q);
}

static void on_pause(struct engine_pause *p)
{
	struct queues_call *q = container_of(p, struct queues_call, pause);
	q->busy = false;
	if (!q->call) {
		call_free(q);
	} else if (p->op.op.result != STORE_OK) {
		rpc_refuse_store(q->call, &p->op.op);
		call_free(q);
	} else if (p->op.on && !p->op.ret_done) {
		rpc_refuse(q->call, STATUS_RESOURCE_EXHAUSTED, "queue", "queue: %d queues are paused, as many as may be",
			   (int)p->op.max);
		call_free(q);
	} else {
		q->limit = 1;
		read_more(q, on_paused_read);
	}
}

static void begin(struct grpc_call *call, bool on, const char *queue, const char *reason)
{
	if (!spec_name_ok(queue)) {
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "queue", "queue: %s; 1 to 255 bytes of [A-Za-z0-9._/-] are allowed",
			   *queue ? "not the name of a queue" : "missing");
		return;
	}
	if (strlen(reason) > REASON_MAX) {
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "reason", "reason: %zu bytes; at most 255 are allowed", strlen(reason));
		return;
	}
	rpc_target(call, "queue=%s", queue);
	struct queues_call *q = call_new(call);
	if (!q)
		return;
	snprintf(q->queue, sizeof(q->queue), "%s", queue);
	snprintf(q->reason, sizeof(q->reason), "%s", reason);
	q->pause.done = on_pause;
	q->pause.op = (struct store_pause){
		.queue = q->queue,
		.on = on,
		.reason = *q->reason ? q->reason : NULL,
		.max = engine_core_config(q->rpc->engine)->max_queues,
	};
	q->busy = true;
	rpc_store_begin(call, true);
	engine_pause(q->rpc->engine, &q->pause);
}

void pause_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__PauseQueueRequest *req = rpc_unpack(call, &reins__v1__pause_queue_request__descriptor, data, len);
	if (!req)
		return;
	begin(call, true, req->queue, req->reason);
	pb_free(req);
}

void resume_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ResumeQueueRequest *req = rpc_unpack(call, &reins__v1__resume_queue_request__descriptor, data, len);
	if (!req)
		return;
	begin(call, false, req->queue, "");
	pb_free(req);
}
