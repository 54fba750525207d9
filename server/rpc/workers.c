/* ListWorkers and DrainWorker: the store's rows, page by page, with what this master knows of its own workers. */
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "server/rpc/spec.h"
#include "server/rpc/wire.h"
#include "server/rpc/worker_info.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_BYTES (3 * 1024 * 1024)
#define READS_MAX 20                 /* of the store for one request: then the page stays short */
#define READ_ROWS 500
#define TOKEN_PREFIX "w1:"           /* version of the token's form, then the filter and an id */
#define WITHIN_MAX_NS (3600 * NS_PER_S)
#define REASON_MAX 255

#define STATE_BIT(s) (1u << REINS__V1__WORKER_INFO__STATE__##s)
#define ALL_STATES (STATE_BIT(CONNECTED) | STATE_BIT(DRAINING) | STATE_BIT(DISCONNECTED) | STATE_BIT(GONE))

struct workers_call {
	struct rpc *rpc;
	struct grpc_call *call;
	struct store_workers read;
	struct store_drain drain;
	bool reading;
	uint32_t states;
	size_t n, limit;
	int reads;
	struct buf page;
	char only[RPC_NAME_MAX + 1], after[RPC_NAME_MAX + 1], reason[REASON_MAX + 1];
	char last[RPC_NAME_MAX + 1]; /* id of the last row looked at */
};

static void call_free(struct workers_call *w)
{
	if (w->call)
		grpc_call_set_user(w->call, NULL);
	store_op_done_fields(&w->read.op);
	buf_done(&w->page);
	free(w);
}

void workers_on_end(struct grpc_call *call, bool finished)
{
	struct workers_call *w = grpc_call_user(call);
	if (!w)
		return;
	w->call = NULL;
	if (!w->reading)
		call_free(w);
}

static struct workers_call *call_new(struct grpc_call *call)
{
	struct workers_call *w = rpc_calloc(call, sizeof(*w));
	if (!w)
		return NULL;
	w->rpc = rpc_of(call);
	w->call = call;
	w->read.op.kind = STORE_WORKERS; /* for store_op_done_fields */
	buf_init(&w->page, 4 * PAGE_BYTES);
	grpc_call_set_user(call, w);
	return w;
}

static void read_more(struct workers_call *w, void (*done)(struct store_op *op))
{
	store_op_done_fields(&w->read.op);
	w->read = (struct store_workers){
		.op = { .kind = STORE_WORKERS, .done = done },
		.only = *w->only ? w->only : NULL,
		.after = w->after,
		.limit = (int32_t)min_sz(w->limit - w->n, READ_ROWS),
		.max_bytes = PAGE_BYTES,
	};
	w->reading = true;
	w->reads++;
	rpc_store_begin(w->call, false);
	store_submit(engine_store(w->rpc->engine), &w->read.op);
}

/* ---- list ---- */

enum added { ADDED, LEFT_OUT, NO_ROOM, NO_MEMORY };

static enum added add(struct workers_call *w, const struct store_worker *row)
{
	Reins__V1__WorkerInfo *m = worker_info_make(w->rpc, row);
	if (!m)
		return NO_MEMORY;
	enum added result = LEFT_OUT;
	if (w->states & 1u << m->state) {
		struct buf one;
		buf_init(&one, 2 * PAGE_BYTES);
		if (pb_pack(m, &one))
			result = NO_MEMORY;
		else if (w->n > 0 && buf_len(&w->page) + buf_len(&one) > PAGE_BYTES)
			result = NO_ROOM;
		else
			result = wire_put_len(&w->page, 1, buf_head(&one), buf_len(&one)) ? NO_MEMORY : ADDED;
		buf_done(&one);
	}
	pb_free(m);
	return result;
}

static void finish(struct workers_call *w, bool more)
{
	char token[RPC_NAME_MAX + 32] = "";
	if (more)
		snprintf(token, sizeof(token), TOKEN_PREFIX "%02x:%s", w->states, w->last);
	if (wire_put_text(&w->page, 2, token))
		rpc_refuse_room(w->call, "no room for the page; ask for a smaller page_size");
	else
		rpc_reply(w->call, &w->page);
	call_free(w);
}

static void on_listed(struct store_op *op)
{
	struct workers_call *w = container_of(op, struct workers_call, read.op);
	w->reading = false;
	if (!w->call) {
		call_free(w);
		return;
	}
	if (op->result != STORE_OK) {
		rpc_refuse_store(w->call, op);
		call_free(w);
		return;
	}
	bool full = false;
	for (size_t i = 0; i < w->read.ret_n && !full; i++) {
		enum added a = add(w, &w->read.ret_rows[i]);
		if (a == NO_MEMORY) {
			rpc_refuse_room(w->call, "no room for the page; ask for a smaller page_size");
			call_free(w);
			return;
		}
		full = a == NO_ROOM;
		if (!full)
			snprintf(w->last, sizeof(w->last), "%s", w->read.ret_rows[i].id);
		w->n += a == ADDED;
	}
	if (full || w->n == w->limit || !w->read.ret_more || w->reads == READS_MAX) {
		finish(w, full || w->read.ret_more);
		return;
	}
	snprintf(w->after, sizeof(w->after), "%s", w->last);
	read_more(w, on_listed);
}

static int parse_token(struct workers_call *w, const char *token, struct refusal *r)
{
	char want[16];
	int head = snprintf(want, sizeof(want), TOKEN_PREFIX "%02x:", w->states);
	if (!*token)
		return 0;
	if (strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) != 0 || strlen(token) <= (size_t)head ||
	    !spec_name_ok(token + head))
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_token", "page_token: not one that this server gave out");
	if (strncmp(token, want, (size_t)head) != 0)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_token", "page_token: it belongs to a list with another filter");
	snprintf(w->after, sizeof(w->after), "%s", token + head);
	return 0;
}

static int parse_list(struct workers_call *w, const Reins__V1__ListWorkersRequest *req, struct refusal *r)
{
	if (req->page_size < 0 || req->page_size > PAGE_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_size", "page_size: %d; 1 to 1000 are allowed, 0 means 100",
			      req->page_size);
	w->limit = req->page_size ? (size_t)req->page_size : PAGE_DEFAULT;
	for (size_t i = 0; i < req->n_states; i++) {
		if (req->states[i] < REINS__V1__WORKER_INFO__STATE__CONNECTED || req->states[i] > REINS__V1__WORKER_INFO__STATE__GONE)
			return refuse(r, STATUS_INVALID_ARGUMENT, "states",
				      "states[%zu]: no state of a worker; CONNECTED, DRAINING, DISCONNECTED and GONE are known", i);
		w->states |= 1u << req->states[i];
	}
	if (*req->worker_id && !spec_name_ok(req->worker_id))
		return refuse(r, STATUS_INVALID_ARGUMENT, "worker_id", "worker_id: not 1 to 255 bytes of [A-Za-z0-9._/-]");
	snprintf(w->only, sizeof(w->only), "%s", req->worker_id);
	if (!w->states)
		w->states = *w->only ? ALL_STATES : ALL_STATES & ~STATE_BIT(GONE);
	return parse_token(w, req->page_token, r);
}

void workers_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ListWorkersRequest *req = rpc_unpack(call, &reins__v1__list_workers_request__descriptor, data, len);
	if (!req)
		return;
	struct workers_call *w = call_new(call);
	struct refusal r;
	if (!w) {
		pb_free(req);
		return;
	}
	int rc = parse_list(w, req, &r);
	pb_free(req);
	if (rc) {
		grpc_call_finish(call, &r);
		call_free(w);
		return;
	}
	read_more(w, on_listed);
}

/* ---- drain ---- */

static void on_drained_read(struct store_op *op)
{
	struct workers_call *w = container_of(op, struct workers_call, read.op);
	w->reading = false;
	if (!w->call) {
		;
	} else if (op->result != STORE_OK) {
		rpc_refuse_store(w->call, op);
	} else if (w->read.ret_n == 0) {
		rpc_refuse_no_worker(w->call, w->only, "no worker of this id");
	} else {
		Reins__V1__WorkerInfo *m = worker_info_make(w->rpc, &w->read.ret_rows[0]);
		if (!m || pb_pack(m, &w->page))
			rpc_refuse_room(w->call, "no room for the reply");
		else
			rpc_reply(w->call, &w->page);
		pb_free(m);
	}
	call_free(w);
}

static void on_drain_stored(struct store_op *op)
{
	struct workers_call *w = container_of(op, struct workers_call, drain.op);
	w->reading = false;
	engine_drained(w->rpc->engine, &w->drain); /* also if nobody waits for the answer any more */
	if (op->result == STORE_OK && w->drain.ret_found && w->call) {
		read_more(w, on_drained_read);
		return;
	}
	if (w->call && op->result != STORE_OK)
		rpc_refuse_store(w->call, op);
	else if (w->call)
		rpc_refuse_no_worker(w->call, w->only, "no worker of this id was ever connected");
	call_free(w);
}

static int parse_drain(struct workers_call *w, const Reins__V1__DrainWorkerRequest *req, struct refusal *r)
{
	struct store_drain_wish *wish = &w->drain.wish;
	if (!spec_name_ok(req->worker_id))
		return refuse(r, STATUS_INVALID_ARGUMENT, "worker_id", "worker_id: %s; 1 to 255 bytes of [A-Za-z0-9._/-] are allowed",
			      *req->worker_id ? "not the id of a worker" : "missing");
	snprintf(w->only, sizeof(w->only), "%s", req->worker_id);
	w->drain.worker = w->only;
	*wish = (struct store_drain_wish){ .within_ns = -1 };
	if (req->resume)
		return 0;
	if (req->mode < REINS__V1__DRAIN_MODE__DRAIN_MODE_UNSPECIFIED || req->mode > REINS__V1__DRAIN_MODE__DRAIN_REQUEUE)
		return refuse(r, STATUS_INVALID_ARGUMENT, "mode",
			      "mode: %d; DRAIN_WAIT, DRAIN_DETACH and DRAIN_REQUEUE are known", (int)req->mode);
	wish->mode = req->mode ? (int32_t)req->mode : REINS__V1__DRAIN_MODE__DRAIN_WAIT;
	if (req->within && wish->mode == REINS__V1__DRAIN_MODE__DRAIN_WAIT)
		return refuse(r, STATUS_INVALID_ARGUMENT, "within", "within: DRAIN_WAIT waits without a limit; it goes with "
			      "DRAIN_DETACH and DRAIN_REQUEUE");
	if (req->within && (pb_duration_ns(req->within, &wish->within_ns) || wish->within_ns < 0 || wish->within_ns > WITHIN_MAX_NS))
		return refuse(r, STATUS_INVALID_ARGUMENT, "within", "within: not a duration from 0 to 1 h");
	if (strlen(req->reason) > REASON_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "reason", "reason: %zu bytes; at most 255 are allowed", strlen(req->reason));
	snprintf(w->reason, sizeof(w->reason), "%s", req->reason);
	wish->reason = *w->reason ? w->reason : NULL;
	return 0;
}

void drain_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__DrainWorkerRequest *req = rpc_unpack(call, &reins__v1__drain_worker_request__descriptor, data, len);
	if (!req)
		return;
	struct workers_call *w = call_new(call);
	struct refusal r;
	if (!w) {
		pb_free(req);
		return;
	}
	int rc = parse_drain(w, req, &r);
	pb_free(req);
	if (rc) {
		grpc_call_finish(call, &r);
		call_free(w);
		return;
	}
	rpc_target(call, "worker=%s", w->only);
	w->limit = 1;
	w->states = ALL_STATES;
	w->drain.op.kind = STORE_DRAIN;
	w->drain.op.done = on_drain_stored;
	w->reading = true;
	rpc_store_begin(call, true);
	store_submit(engine_store(w->rpc->engine), &w->drain.op);
}
