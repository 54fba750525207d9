/* GetTask (with `wait`), CancelTask and RetryTask: all end in reading one task. */
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/view.h"
#include "server/store/store_metrics.h"

#define REPLY_MAX (16 * 1024 * 1024)
#define WAIT_MAX_NS (3600 * NS_PER_S)
/* While a call waits, news come from this master; the store is asked this often for what another one did. */
#define WAIT_POLL_NS (5 * NS_PER_S)

struct get_call {
	struct rpc *rpc;
	struct grpc_call *call; /* NULL once it is over */
	struct store_get get;
	struct rpc_read large; /* while it has what was read */
	struct store_cancel cancel;
	struct store_retry retry;
	char *words; /* of the cancel, owned */
	struct store_metrics_read metrics; /* the newest points of the newest attempt */
	struct engine_waiter waiter;
	struct rpc_parked parked;
	struct loop_timer timer;
	int64_t wait_until_mono_ns; /* 0: does not wait */
	bool reading, again;        /* a read is on its way; news came meanwhile */
	bool cancelling;
	void (*then)(struct get_call *g); /* once it was read that the task may be changed; NULL: the task is the reply */
};

static void read_task(struct get_call *g);

static void get_free(struct get_call *g)
{
	engine_unwait(&g->waiter);
	list_remove(&g->parked.node);
	loop_timer_stop(&g->timer);
	store_op_done_fields(&g->get.op);
	rpc_read_end(g->rpc, &g->large);
	if (g->retry.op.kind == STORE_RETRY)
		store_op_done_fields(&g->retry.op);
	free(g->words);
	store_op_done_fields(&g->metrics.op);
	if (g->call)
		grpc_call_set_user(g->call, NULL);
	free(g);
}

/* The call is answered or gone; what is on its way in the store comes back to us first. */
static void get_over(struct get_call *g)
{
	if (g->call)
		grpc_call_set_user(g->call, NULL);
	g->call = NULL;
	if (rpc_read_cancel(g->rpc, &g->large))
		g->reading = false;
	if (!g->reading)
		get_free(g);
}

void get_on_end(struct grpc_call *call, bool finished)
{
	struct get_call *g = grpc_call_user(call);
	if (g)
		get_over(g);
}

void cancel_on_end(struct grpc_call *call, bool finished)
{
	get_on_end(call, finished);
}

void retry_on_end(struct grpc_call *call, bool finished)
{
	get_on_end(call, finished);
}

static void on_stopping(struct rpc_parked *p)
{
	struct get_call *g = container_of(p, struct get_call, parked);
	if (g->call)
		rpc_refuse_stopping(g->call);
	get_over(g);
}

static void reply_task(struct get_call *g)
{
	struct buf b;
	buf_init(&b, REPLY_MAX);
	int rc = rpc_task(g->rpc, &g->get.ret_task, rpc_may(g->call, g->get.ret_task.owner, RPC_READ), NULL, &b);
	if (rc == 0 && g->metrics.ret_n)
		rc = view_metrics(g->metrics.ret_items, g->metrics.ret_n, &b);
	if (rc)
		rpc_refuse_room(g->call, "no room for the reply");
	else
		rpc_reply(g->call, &b);
	buf_done(&b);
}

static void on_metrics(struct store_op *op)
{
	struct get_call *g = container_of(op, struct get_call, metrics.op);
	g->reading = false;
	/* A task is shown without what can't be had of its metrics. */
	if (g->call)
		reply_task(g);
	get_over(g);
}

static void read_metrics(struct get_call *g)
{
	g->metrics = (struct store_metrics_read){
		.op = { .kind = STORE_METRICS_READ, .done = on_metrics },
		.at = { g->get.id, g->get.ret_task.core.attempt },
		.newest = true,
		.limit = VIEW_METRICS_POINTS,
		.max_bytes = VIEW_METRICS_BYTES,
	};
	g->reading = true;
	rpc_store_begin(g->call, false);
	store_submit(engine_store(g->rpc->engine), &g->metrics.op);
}

static void on_read(struct store_op *op)
{
	struct get_call *g = container_of(op, struct get_call, get.op);
	g->reading = false;
	int64_t now = loop_now_mono_ns(g->rpc->loop);
	if (!g->call) {
		get_free(g);
		return;
	}
	if (op->result != STORE_OK) {
		rpc_refuse_store(g->call, op);
	} else if (!g->get.ret_found) {
		rpc_refuse_no_task(g->call, &g->get.id);
	} else if (g->then) {
		void (*then)(struct get_call *) = g->then;
		g->then = NULL;
		if (rpc_must(g->call, g->get.ret_task.owner, RPC_CHANGE)) {
			store_op_done_fields(op);
			rpc_read_end(g->rpc, &g->large);
			rpc_store_end(g->call);
			then(g);
			return;
		}
	} else if (g->cancelling && (g->get.ret_task.state == STORE_COMPLETED || g->get.ret_task.state == STORE_FAILED)) {
		const char *state = g->get.ret_task.state == STORE_COMPLETED ? "COMPLETED" : "FAILED";
		rpc_refuse_state(g->call, &g->get.id, state, "task_id", "task_id: the task is %s already", state);
	} else if (!store_state_is_final(g->get.ret_task.state) && now < g->wait_until_mono_ns) {
		store_op_done_fields(op);
		rpc_read_end(g->rpc, &g->large);
		rpc_store_end(g->call);
		if (g->again) {
			read_task(g);
			return;
		}
		loop_timer_set(&g->timer, min_i64(g->wait_until_mono_ns, now + WAIT_POLL_NS));
		return;
	} else if (g->get.ret_task.core.attempt > 0 && rpc_may(g->call, g->get.ret_task.owner, RPC_READ)) {
		engine_unwait(&g->waiter);
		loop_timer_stop(&g->timer);
		read_metrics(g);
		return;
	} else {
		reply_task(g);
	}
	get_over(g);
}

static void begin_read(struct rpc_read *r)
{
	struct get_call *g = container_of(r, struct get_call, large);
	store_submit(engine_store(g->rpc->engine), &g->get.op);
}

static void read_task(struct get_call *g)
{
	struct uuid id = g->get.id;
	memset(&g->get, 0, sizeof(g->get));
	g->get.op.kind = STORE_GET;
	g->get.op.done = on_read;
	g->get.id = id;
	g->reading = true;
	g->again = false;
	/* Waiting begins before the read, so that no news falls between the two. */
	if (g->wait_until_mono_ns && !g->waiter.head)
		engine_wait(g->rpc->engine, &g->waiter, &id);
	rpc_store_begin(g->call, false);
	rpc_read_begin(g->rpc, &g->large, g->call);
}

static void on_news(struct engine_waiter *w)
{
	struct get_call *g = container_of(w, struct get_call, waiter);
	if (g->reading)
		g->again = true;
	else
		read_task(g);
}

static void on_timer(struct loop_timer *t)
{
	struct get_call *g = container_of(t, struct get_call, timer);
	if (!g->reading)
		read_task(g);
}

static struct get_call *get_call_new(struct grpc_call *call, const struct uuid *id)
{
	struct get_call *g = calloc(1, sizeof(*g));
	if (!g) {
		rpc_no_memory(call);
		return NULL;
	}
	g->rpc = rpc_of(call);
	g->call = call;
	g->get.op.kind = STORE_GET; /* for store_op_done_fields */
	g->metrics.op.kind = STORE_METRICS_READ;
	g->get.id = *id;
	g->large = (struct rpc_read){ .weight = READ_WEIGHT_TASK, .begin = begin_read };
	g->waiter.wake = on_news;
	list_init(&g->waiter.node);
	list_init(&g->parked.node);
	g->parked.end = on_stopping;
	loop_timer_init(&g->timer, g->rpc->loop, on_timer);
	grpc_call_set_user(call, g);
	return g;
}

void get_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__GetTaskRequest *req = rpc_unpack(call, &reins__v1__get_task_request__descriptor, data, len);
	if (!req)
		return;
	struct uuid id;
	int64_t wait_ns = 0;
	struct get_call *g = NULL;
	if (rpc_parse_id(call, req->task_id, &id) == 0) {
		if (pb_duration_ns(req->wait, &wait_ns) || wait_ns < 0)
			rpc_refuse(call, STATUS_INVALID_ARGUMENT, "wait", "wait: not a duration of 0 or more");
		else if (wait_ns > 0 && rpc_of(call)->draining)
			rpc_refuse_stopping(call);
		else
			g = get_call_new(call, &id);
	}
	pb_free(req);
	if (!g)
		return;
	if (wait_ns > 0) {
		g->wait_until_mono_ns = loop_now_mono_ns(g->rpc->loop) + min_i64(wait_ns, WAIT_MAX_NS);
		list_push_back(&g->rpc->parked, &g->parked.node);
	}
	read_task(g);
}

/* A task's owner never changes: what was read holds when it is changed. */
static void change(struct get_call *g, void (*submit)(struct get_call *g))
{
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&g->get.id, id);
	rpc_target(g->call, "task=%s", id);
	if (!rpc_only_owner(g->call, RPC_CHANGE)) {
		submit(g);
		return;
	}
	g->then = submit;
	read_task(g);
}

static void on_cancelled(struct store_op *op)
{
	struct get_call *g = container_of(op, struct get_call, cancel.op);
	g->reading = false;
	engine_cancelled(g->rpc->engine, &g->cancel);
	if (!g->call) {
		get_free(g);
	} else if (op->result != STORE_OK) {
		rpc_refuse_store(g->call, op);
		get_over(g);
	} else if (g->cancel.ret_verdict == STORE_CANCEL_NOT_FOUND) {
		rpc_refuse_no_task(g->call, &g->cancel.id);
		get_over(g);
	} else {
		g->cancelling = g->cancel.ret_verdict == STORE_CANCEL_TERMINAL;
		read_task(g);
	}
}

static void submit_cancel(struct get_call *g)
{
	g->reading = true;
	g->cancel.op.kind = STORE_CANCEL;
	g->cancel.op.done = on_cancelled;
	rpc_store_begin(g->call, true);
	store_submit(engine_store(g->rpc->engine), &g->cancel.op);
}

void cancel_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__CancelTaskRequest *req = rpc_unpack(call, &reins__v1__cancel_task_request__descriptor, data, len);
	if (!req)
		return;
	struct uuid id;
	struct get_call *g = NULL;
	char words[320];
	snprintf(words, sizeof(words), "cancelled%s%.255s", *req->reason ? ": " : "", req->reason);
	if (strlen(req->reason) > 255)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "reason", "reason: longer than 255 bytes");
	else if (rpc_parse_id(call, req->task_id, &id) == 0)
		g = get_call_new(call, &id);
	pb_free(req);
	if (!g)
		return;
	g->cancel.id = id;
	g->words = xstrdup(words);
	g->cancel.words = g->words;
	change(g, submit_cancel);
}

static void refuse_retry(struct get_call *g)
{
	static const char *const states[] = { "?", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED" };
	const struct store_retry *o = &g->retry;
	switch (o->ret_verdict) {
	case STORE_RETRY_ANOTHER:
		rpc_refuse(g->call, STATUS_FAILED_PRECONDITION, "attempt",
			   "attempt: %d is not the newest attempt of the task, which is %d (0: it was cancelled before its first)",
			   (int)o->attempt, (int)o->ret_attempt);
		return;
	case STORE_RETRY_COMPLETED:
	case STORE_RETRY_NOT_ENDED:
		rpc_refuse_state(g->call, &o->id, states[o->ret_state], "task_id",
				 "task_id: the task is %s (attempt %d); only one that is FAILED or CANCELLED can be retried",
				 states[o->ret_state], (int)o->ret_attempt);
		return;
	default:
		rpc_refuse_no_task(g->call, &g->retry.id);
	}
}

static void on_retried(struct store_op *op)
{
	struct get_call *g = container_of(op, struct get_call, retry.op);
	g->reading = false;
	engine_retried(g->rpc->engine, &g->retry);
	if (!g->call) {
		get_free(g);
	} else if (op->result != STORE_OK) {
		rpc_refuse_store(g->call, op);
		get_over(g);
	} else if (g->retry.ret_verdict != STORE_RETRY_DONE) {
		refuse_retry(g);
		get_over(g);
	} else {
		read_task(g);
	}
}

static void submit_retry(struct get_call *g)
{
	g->reading = true;
	g->retry.op.kind = STORE_RETRY;
	g->retry.op.done = on_retried;
	rpc_store_begin(g->call, true);
	store_submit(engine_store(g->rpc->engine), &g->retry.op);
}

void retry_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__RetryTaskRequest *req = rpc_unpack(call, &reins__v1__retry_task_request__descriptor, data, len);
	if (!req)
		return;
	struct uuid id;
	struct get_call *g = NULL;
	int32_t attempt = req->attempt;
	if (rpc_parse_id(call, req->task_id, &id) == 0) {
		if (attempt < 0)
			rpc_refuse(call, STATUS_INVALID_ARGUMENT, "attempt",
				   "attempt: %d; the newest attempt is wanted, or 0 for a task that was cancelled before its first", (int)attempt);
		else
			g = get_call_new(call, &id);
	}
	pb_free(req);
	if (!g)
		return;
	g->retry.id = id;
	g->retry.attempt = attempt;
	change(g, submit_retry);
}
