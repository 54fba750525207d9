/* ListTasks: newest first, by keyset: a page token names the last id seen, so that tasks which come and go
 * neither skip nor repeat others. */
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/spec.h"
#include "server/rpc/wire.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_BYTES (3 * 1024 * 1024)
#define TOKEN_PREFIX "t1:" /* version of the token's form, then the filter's fingerprint and an id */

struct list_call {
	struct rpc *rpc;
	struct grpc_call *call;
	Reins__V1__ListTasksRequest *request;
	struct store_list list;
	uint32_t fingerprint;
	bool reading;
};

static void list_free(struct list_call *l)
{
	if (l->call)
		grpc_call_set_user(l->call, NULL);
	store_op_done_fields(&l->list.op);
	pb_free(l->request);
	free(l);
}

void list_on_end(struct grpc_call *call, bool finished)
{
	struct list_call *l = grpc_call_user(call);
	if (!l)
		return;
	l->call = NULL;
	if (!l->reading)
		list_free(l);
}

/* The tasks that fit a page; at least one. */
static int add_tasks(struct list_call *l, struct buf *b, size_t *ret_n)
{
	_cleanup_free_ struct rpc_reasons *reasons = xcalloc(1, sizeof(*reasons));
	size_t n = 0;
	for (; n < l->list.ret_n; n++) {
		struct buf one;
		buf_init(&one, 2 * PAGE_BYTES);
		const struct store_task *t = &l->list.ret_tasks[n];
		int rc = rpc_task(l->rpc, t, l->list.full && rpc_may(l->call, t->owner, RPC_READ), reasons, &one);
		if (rc == 0 && n > 0 && buf_len(b) + buf_len(&one) > PAGE_BYTES) {
			buf_done(&one);
			break;
		}
		if (rc == 0)
			rc = wire_put_len(b, 1, buf_head(&one), buf_len(&one));
		buf_done(&one);
		if (rc)
			return rc;
	}
	*ret_n = n;
	return 0;
}

static void on_listed(struct store_op *op)
{
	struct list_call *l = container_of(op, struct list_call, list.op);
	l->reading = false;
	struct buf b;
	buf_init(&b, 4 * PAGE_BYTES);
	size_t n = 0;
	if (!l->call) {
		;
	} else if (op->result != STORE_OK) {
		rpc_refuse_store(l->call, op);
	} else if (add_tasks(l, &b, &n)) {
		rpc_refuse_room(l->call, "no room for the page; ask for a smaller page_size");
	} else {
		char token[80] = "", id[UUID_TEXT_LEN + 1];
		if (n > 0 && (l->list.ret_more || n < l->list.ret_n)) {
			uuid_format(&l->list.ret_tasks[n - 1].core.id, id);
			snprintf(token, sizeof(token), TOKEN_PREFIX "%08x:%s", l->fingerprint, id);
		}
		if (wire_put_text(&b, 2, token))
			rpc_refuse_room(l->call, "no room for the page");
		else
			rpc_reply(l->call, &b);
	}
	buf_done(&b);
	list_free(l);
}

/* FNV-1a over what a token must not be used across. */
static uint32_t fingerprint(uint32_t states, const char *queue)
{
	uint32_t h = 2166136261u ^ states;
	for (const char *p = queue; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	return h;
}

static int parse_filter(const Reins__V1__TaskFilter *f, struct store_list *list, struct refusal *r)
{
	if (!f)
		return 0;
	for (size_t i = 0; i < f->n_states; i++) {
		if (f->states[i] < REINS__V1__TASK__STATE__PENDING || f->states[i] > REINS__V1__TASK__STATE__CANCELLED)
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.states", "filter.states[%zu]: no state of a task", i);
		list->states |= 1u << f->states[i];
	}
	if (*f->queue) {
		if (!spec_name_ok(f->queue))
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.queue", "filter.queue: not the name of a queue");
		list->queue = f->queue;
	}
	const char *later = *f->name ? "filter.name" : f->n_labels ? "filter.labels" : *f->worker_id ? "filter.worker_id"
			  : *f->owner ? "filter.owner" : f->created_from ? "filter.created_from"
			  : f->created_before ? "filter.created_before" : f->n_task_ids ? "filter.task_ids" : NULL;
	if (later)
		return refuse(r, STATUS_UNIMPLEMENTED, later, "%s: this server filters by states and queue", later);
	return 0;
}

static int parse_token(const char *token, uint32_t print, struct store_list *list, struct refusal *r)
{
	if (!*token)
		return 0;
	char want[16];
	size_t head = strlen(TOKEN_PREFIX) + 9;
	snprintf(want, sizeof(want), TOKEN_PREFIX "%08x:", print);
	if (strlen(token) != head + UUID_TEXT_LEN || strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) != 0 ||
	    uuid_parse(token + head, UUID_TEXT_LEN, &list->after_id))
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_token", "page_token: not one that this server gave out");
	if (strncmp(token, want, head) != 0)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_token", "page_token: it belongs to a list with another filter");
	list->after = true;
	return 0;
}

static int parse(struct list_call *l, struct refusal *r)
{
	const Reins__V1__ListTasksRequest *req = l->request;
	struct store_list *list = &l->list;
	if (req->page_size < 0 || req->page_size > PAGE_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_size", "page_size: %d; 1 to 1000 are allowed, 0 means 100",
			      req->page_size);
	list->limit = req->page_size ? req->page_size : PAGE_DEFAULT;
	list->full = req->view == REINS__V1__TASK_VIEW__TASK_VIEW_FULL;
	list->max_bytes = PAGE_BYTES;
	if (parse_filter(req->filter, list, r))
		return -1;
	l->fingerprint = fingerprint(list->states, list->queue ? list->queue : "");
	return parse_token(req->page_token, l->fingerprint, list, r);
}

void list_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ListTasksRequest *req = rpc_unpack(call, &reins__v1__list_tasks_request__descriptor, data, len);
	if (!req)
		return;
	struct list_call *l = xcalloc(1, sizeof(*l));
	l->rpc = rpc_of(call);
	l->call = call;
	l->request = req;
	l->list.op.kind = STORE_LIST;
	l->list.op.done = on_listed;
	grpc_call_set_user(call, l);
	struct refusal r;
	if (parse(l, &r)) {
		grpc_call_finish(call, &r);
		list_free(l);
		return;
	}
	l->reading = true;
	rpc_store_begin(call, false);
	store_submit(engine_store(l->rpc->engine), &l->list.op);
}
