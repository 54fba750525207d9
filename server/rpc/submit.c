/* SubmitTask and SubmitTasks.  The reply waits for the store's commit; if the caller goes away meanwhile the
 * task stays (an idempotency key lets it find out). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/spec.h"
#include "server/rpc/trace.h"
#include "server/rpc/view.h"
#include "server/rpc/wire.h"

#define KEY_MAX 255
#define REPLY_MAX (4 * 1024 * 1024)

/* One request of either method; `more` are the group's other members. */
struct submit_call {
	struct engine_submit submit;
	struct rpc *rpc;
	struct grpc_call *call; /* NULL once it is over */
	void *request;          /* backs the strings */
	struct store_insert *more;
	struct store_get get;   /* reads the task that an idempotency key stands for */
	char *owner;
	bool many;
};

static void free_insert(struct store_insert *ins)
{
	blob_unref(ins->spec);
	free((char *)(uintptr_t)ins->task.custom);
	free((uint8_t *)(uintptr_t)ins->labels.data);
	free((char *)(uintptr_t)ins->idempotency_key);
	store_op_done_fields(&ins->op);
}

static void submit_free(struct submit_call *s)
{
	free_insert(&s->submit.ins);
	for (int32_t i = 0; s->more && i + 1 < s->submit.ins.group_n; i++)
		free_insert(&s->more[i]);
	free(s->more);
	free(s->owner);
	pb_free(s->request);
	if (s->call)
		grpc_call_set_user(s->call, NULL);
	free(s);
}

void submit_on_end(struct grpc_call *call, bool finished)
{
	struct submit_call *s = grpc_call_user(call);
	if (s)
		s->call = NULL;
}

/* Keys are each owner's own: what another has submitted under the same key is nobody's business.  In the store the owner
 * stands before the key, between bytes that no name begins with; keys of nobody in particular are as they are. */
static char *stored_key(const char *owner, const char *key)
{
	size_t size = strlen(owner) + strlen(key) + 3;
	char *text = xcalloc(1, size);
	snprintf(text, size, *owner ? "\x01%s\x01%s" : "%s%s", owner, key);
	return text;
}

/* As the client said it. */
static const char *own_key(const struct store_insert *ins)
{
	return ins->idempotency_key + (*ins->owner ? strlen(ins->owner) + 2 : 0);
}

static int fill_insert(struct submit_call *s, Reins__V1__SubmitTaskRequest *req, const char *prefix, struct store_insert *ins,
		       struct refusal *r)
{
	struct rpc *rpc = s->rpc;
	char path[96];
	snprintf(path, sizeof(path), "%sspec", prefix);
	if (spec_check(req->spec, &rpc->limits, path, r))
		return -1;
	spec_normalise(req->spec);
	if (spec_to_insert(req->spec, ins) || spec_labels(req->spec, &ins->labels))
		return refuse_no_memory(r, "out of memory");
	ins->owner = s->owner;
	if (!rpc_may_queue(s->call, req->spec->queue)) {
		snprintf(path, sizeof(path), "%sspec.queue", prefix);
		return refuse(r, STATUS_PERMISSION_DENIED, path, "%s: \"%.100s\" may not submit to queue \"%.100s\"", path, s->owner,
			      req->spec->queue);
	}
	if (*req->idempotency_key) {
		snprintf(path, sizeof(path), "%sidempotency_key", prefix);
		if (strlen(req->idempotency_key) > KEY_MAX)
			return refuse(r, STATUS_INVALID_ARGUMENT, path, "%s: longer than 255 bytes", path);
		if (spec_hash(req->spec, ins->idempotency_hash))
			return refuse_no_memory(r, "out of memory");
		ins->idempotency_key = stored_key(ins->owner, req->idempotency_key);
	}
	ins->spec = trace_pack_spec(req->spec, grpc_call_header(s->call, "traceparent"));
	if (!ins->spec)
		return refuse_no_memory(r, "out of memory");
	return 0;
}

static void reply_submitted(struct submit_call *s, const struct store_task *t, bool created)
{
	struct buf task, reply;
	buf_init(&task, REPLY_MAX);
	buf_init(&reply, REPLY_MAX);
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&t->core.id, id);
	rpc_target(s->call, "task=%s%s", id, created ? "" : " (there already)");
	if (rpc_task(s->rpc, t, false, NULL, &task) || wire_put_len(&reply, 1, buf_head(&task), buf_len(&task)) ||
	    wire_put_int(&reply, 2, created))
		rpc_refuse_room(s->call, "no room for the reply; the task was accepted");
	else
		rpc_reply(s->call, &reply);
	buf_done(&task);
	buf_done(&reply);
}

static void on_existing(struct store_op *op)
{
	struct submit_call *s = container_of(op, struct submit_call, get.op);
	if (s->call) {
		if (op->result != STORE_OK)
			rpc_refuse_store(s->call, op);
		else if (!s->get.ret_found)
			rpc_refuse(s->call, STATUS_ABORTED, NULL, "the task of this idempotency key was just removed; try again");
		else
			reply_submitted(s, &s->get.ret_task, false);
	}
	store_op_done_fields(op);
	submit_free(s);
}

static void reply_many(struct submit_call *s)
{
	struct buf reply;
	buf_init(&reply, REPLY_MAX);
	int rc = 0;
	char first[UUID_TEXT_LEN + 1];
	uuid_format(s->submit.ins.ret_verdict == STORE_INSERT_CREATED ? &s->submit.ins.task.id : &s->submit.ins.ret_id, first);
	rpc_target(s->call, "tasks=%d first=%s", (int)s->submit.ins.group_n, first);
	for (struct store_insert *i = &s->submit.ins; i && rc == 0; i = i->group_next) {
		bool created = i->ret_verdict == STORE_INSERT_CREATED;
		char id[UUID_TEXT_LEN + 1];
		uuid_format(created ? &i->task.id : &i->ret_id, id);
		rc = wire_put_head(&reply, 1, 2 + UUID_TEXT_LEN + (created ? 2 : 0));
		if (rc == 0)
			rc = wire_put_len(&reply, 1, id, UUID_TEXT_LEN);
		if (rc == 0)
			rc = wire_put_int(&reply, 2, created);
	}
	if (rc)
		rpc_refuse_room(s->call, "no room for the reply; the tasks were accepted");
	else
		rpc_reply(s->call, &reply);
	buf_done(&reply);
}

static const struct store_insert *conflict_of(const struct submit_call *s)
{
	for (const struct store_insert *i = &s->submit.ins; i; i = i->group_next)
		if (i->ret_verdict == STORE_INSERT_KEY_CONFLICT)
			return i;
	return NULL;
}

static void refuse_key(struct grpc_call *call, const struct store_insert *conflict)
{
	struct refusal r;
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&conflict->ret_id, id);
	(void)refuse(&r, STATUS_ALREADY_EXISTS, NULL, "idempotency_key: \"%s\" was used for task %s, which has another spec",
		     own_key(conflict), id);
	(void)refuse_reason(&r, REASON_IDEMPOTENCY_KEY_REUSED);
	(void)refuse_resource(&r, "task", id);
	grpc_call_finish(call, &r);
}

static void on_submitted(struct engine_submit *es)
{
	struct submit_call *s = container_of(es, struct submit_call, submit);
	struct store_insert *ins = &es->ins;
	const struct store_insert *conflict;
	if (!s->call) {
		submit_free(s);
	} else if (ins->op.result != STORE_OK) {
		rpc_refuse_store(s->call, &ins->op);
		submit_free(s);
	} else if ((conflict = conflict_of(s))) {
		refuse_key(s->call, conflict);
		submit_free(s);
	} else if (s->many) {
		reply_many(s);
		submit_free(s);
	} else if (ins->ret_verdict == STORE_INSERT_EXISTS) {
		memset(&s->get, 0, sizeof(s->get));
		s->get.op.kind = STORE_GET;
		s->get.op.done = on_existing;
		s->get.id = ins->ret_id;
		store_submit(engine_store(s->rpc->engine), &s->get.op);
	} else {
		struct store_task t = {
			.core = ins->task,
			.state = ins->ret_given ? STORE_RUNNING : STORE_PENDING,
			.spec = ins->spec,
			.owner = s->owner,
			.worker = ins->ret_given ? (char *)(uintptr_t)ins->eager.worker : NULL,
			.created_wall_us = uuid7_wall_us(&ins->task.id),
			.run_at_wall_us = ins->run_at_wall_us,
		};
		t.core.attempt = ins->ret_given ? 1 : 0;
		reply_submitted(s, &t, true);
		submit_free(s);
	}
}

static struct submit_call *submit_call_new(struct grpc_call *call, void *request)
{
	struct submit_call *s = calloc(1, sizeof(*s));
	if (!s) {
		pb_free(request);
		rpc_no_memory(call);
		return NULL;
	}
	s->rpc = rpc_of(call);
	s->call = call;
	s->owner = xstrdup(rpc_principal(call));
	s->request = request;
	s->submit.done = on_submitted;
	grpc_call_set_user(call, s);
	return s;
}

void submit_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__SubmitTaskRequest *req =
		rpc_unpack(call, &reins__v1__submit_task_request__descriptor, data, len);
	struct submit_call *s = req ? submit_call_new(call, req) : NULL;
	struct refusal r;
	if (!s)
		return;
	if (fill_insert(s, req, "", &s->submit.ins, &r)) {
		grpc_call_finish(call, &r);
		submit_free(s);
		return;
	}
	rpc_store_begin(call, true);
	engine_submit(s->rpc->engine, &s->submit);
}

static int by_key(const void *a, const void *b)
{
	const struct store_insert *const *x = a, *const *y = b;
	return strcmp((*x)->idempotency_key, (*y)->idempotency_key);
}

static int refuse_twice(struct refusal *r, const char *key)
{
	(void)refuse(r, STATUS_ALREADY_EXISTS, NULL, "idempotency_key: \"%s\" stands for two specs in this request", key);
	(void)refuse_resource(r, "idempotency_key", key);
	return refuse_reason(r, REASON_IDEMPOTENCY_KEY_REUSED);
}

/* One key for two specs within a request: the store compares only with what was there before. */
static int check_keys(struct submit_call *s, size_t n, struct refusal *r)
{
	_cleanup_free_ struct store_insert **keyed = calloc(n, sizeof(*keyed));
	size_t m = 0;
	if (!keyed)
		return refuse_no_memory(r, "out of memory");
	for (struct store_insert *i = &s->submit.ins; i; i = i->group_next)
		if (i->idempotency_key)
			keyed[m++] = i;
	qsort(keyed, m, sizeof(struct store_insert *), by_key);
	for (size_t i = 1; i < m; i++)
		if (by_key(&keyed[i - 1], &keyed[i]) == 0 &&
		    memcmp(keyed[i - 1]->idempotency_hash, keyed[i]->idempotency_hash, sizeof(keyed[i]->idempotency_hash)) != 0)
			return refuse_twice(r, own_key(keyed[i]));
	return 0;
}

static int fill_group(struct submit_call *s, Reins__V1__SubmitTasksRequest *req, struct refusal *r)
{
	size_t n = req->n_requests;
	if (n == 0 || n > (size_t)s->rpc->limits.tasks_per_submit) {
		(void)refuse(r, n ? STATUS_RESOURCE_EXHAUSTED : STATUS_INVALID_ARGUMENT, "requests",
			     "requests: %zu tasks; 1 to %lld are allowed", n, (long long)s->rpc->limits.tasks_per_submit);
		return refuse_more(r, "limit", "%lld", (long long)s->rpc->limits.tasks_per_submit);
	}
	s->more = calloc(n, sizeof(*s->more));
	if (!s->more)
		return refuse_no_memory(r, "out of memory");
	s->submit.ins.group_n = (int32_t)n;
	struct store_insert *last = &s->submit.ins;
	for (size_t i = 0; i < n; i++) {
		char prefix[32];
		struct store_insert *ins = i == 0 ? &s->submit.ins : &s->more[i - 1];
		snprintf(prefix, sizeof(prefix), "requests[%zu].", i);
		if (fill_insert(s, req->requests[i], prefix, ins, r))
			return -1;
		if (i > 0)
			last = last->group_next = ins;
	}
	return check_keys(s, n, r);
}

void submit_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__SubmitTasksRequest *req =
		rpc_unpack(call, &reins__v1__submit_tasks_request__descriptor, data, len);
	struct submit_call *s = req ? submit_call_new(call, req) : NULL;
	struct refusal r;
	if (!s)
		return;
	s->many = true;
	if (fill_group(s, req, &r)) {
		grpc_call_finish(call, &r);
		submit_free(s);
		return;
	}
	rpc_store_begin(call, true);
	engine_submit(s->rpc->engine, &s->submit);
}
