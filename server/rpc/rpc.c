/* The method table, and what all handlers share. */
#include "server/rpc/rpc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "proto/descriptor_set.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"
#include "reins/v1/worker_service.pb-c.h"
#include "server/rpc/rights.h"
#include "server/rpc/session.h"
#include "server/rpc/view.h"
#include "server/rpc/worker_info.h"
#include "server/core/core_view.h"

#define TASKS "/reins.v1.TaskService/"
#define WORKERS "/reins.v1.WorkerService/"
#define ADMIN "/reins.v1.AdminService/"

#define REFLECTION                                                                                                  \
	.shape = GRPC_BIDI, .max_message = 16 * 1024, .on_start = reflection_on_start, .on_message = reflection_on_message, \
	.on_half_close = reflection_on_half_close, .on_writable = reflection_on_writable, .on_end = reflection_on_end

const struct grpc_method rpc_methods[] = {
	{ .path = TASKS "SubmitTask", .shape = GRPC_UNARY, .on_request = submit_on_request, .on_end = submit_on_end },
	{ .path = TASKS "SubmitTasks", .shape = GRPC_UNARY, .on_request = submit_many_on_request, .on_end = submit_on_end },
	{ .path = TASKS "GetTask", .shape = GRPC_UNARY, .safe = true, .on_request = get_on_request, .on_end = get_on_end },
	{ .path = TASKS "ListTasks", .shape = GRPC_UNARY, .safe = true, .on_request = list_on_request, .on_end = list_on_end },
	{ .path = TASKS "CancelTask", .shape = GRPC_UNARY, .on_request = cancel_on_request, .on_end = cancel_on_end },
	{ .path = TASKS "RetryTask", .shape = GRPC_UNARY, .on_request = retry_on_request, .on_end = retry_on_end },
	{ .path = TASKS "CancelTasks", .shape = GRPC_UNARY, .on_request = cancel_many_on_request, .on_end = bulk_on_end },
	{ .path = TASKS "RetryTasks", .shape = GRPC_UNARY, .on_request = retry_many_on_request, .on_end = bulk_on_end },
	{ .path = TASKS "ReadLogs", .shape = GRPC_SERVER_STREAM, .on_request = logs_on_request,
	  .on_writable = logs_on_writable, .on_end = logs_on_end },
	{ .path = TASKS "WatchTasks", .shape = GRPC_SERVER_STREAM, .on_request = watch_on_request,
	  .on_writable = watch_on_writable, .on_end = watch_on_end },
	{ .path = TASKS "ReadMetrics", .shape = GRPC_UNARY, .safe = true, .on_request = metrics_on_request, .on_end = metrics_on_end },
	{ .path = WORKERS "Session", .shape = GRPC_BIDI, .apart = true, .on_start = worker_on_start, .on_message = worker_on_message,
	  .on_half_close = worker_on_half_close, .on_writable = worker_on_writable, .on_end = worker_on_end },
	{ .path = ADMIN "GetServerInfo", .shape = GRPC_UNARY, .safe = true, .on_request = info_on_request },
	{ .path = ADMIN "ListWorkers", .shape = GRPC_UNARY, .safe = true, .on_request = workers_on_request, .on_end = workers_on_end },
	{ .path = ADMIN "DrainWorker", .shape = GRPC_UNARY, .on_request = drain_on_request, .on_end = workers_on_end },
	{ .path = ADMIN "ListQueues", .shape = GRPC_UNARY, .safe = true, .on_request = queues_on_request, .on_end = queues_on_end },
	{ .path = ADMIN "PauseQueue", .shape = GRPC_UNARY, .on_request = pause_on_request, .on_end = queues_on_end },
	{ .path = ADMIN "ResumeQueue", .shape = GRPC_UNARY, .on_request = resume_on_request, .on_end = queues_on_end },
	{ .path = "/grpc.health.v1.Health/Check", .shape = GRPC_UNARY, .on_request = health_on_check },
	{ .path = "/grpc.health.v1.Health/Watch", .shape = GRPC_SERVER_STREAM, .on_request = health_on_watch,
	  .on_writable = health_on_writable, .on_end = health_on_end },
	{ .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECTION },
	{ .path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECTION },
};
const size_t rpc_n_methods = ARRAY_LEN(rpc_methods);

const ProtobufCServiceDescriptor *const rpc_services[] = {
	&reins__v1__task_service__descriptor,
	&reins__v1__worker_service__descriptor,
	&reins__v1__admin_service__descriptor,
	&grpc__health__v1__health__descriptor,
	&grpc__reflection__v1__server_reflection__descriptor,
	&grpc__reflection__v1alpha__server_reflection__descriptor,
};
const size_t rpc_n_services = ARRAY_LEN(rpc_services);

bool rpc_service_of(size_t method, const char **ret_name, size_t *ret_len)
{
	const char *name = rpc_methods[method].path + 1;
	size_t len = (size_t)(strchr(name, '/') - name);
	for (size_t i = 0; i < method; i++)
		if (strncmp(rpc_methods[i].path + 1, name, len + 1) == 0)
			return false;
	*ret_name = name;
	*ret_len = len;
	return true;
}

struct rpc *rpc_of(struct grpc_call *call)
{
	return grpc_call_app(call);
}

void *rpc_calloc(struct grpc_call *call, size_t size)
{
	void *at = calloc(1, size);
	if (!at)
		rpc_no_memory(call);
	return at;
}

void rpc_no_memory(struct grpc_call *call)
{
	struct refusal r;
	(void)refuse_no_memory(&r, "out of memory");
	grpc_call_finish(call, &r);
}

void rpc_refuse(struct grpc_call *call, enum status_code code, const char *field, const char *fmt, ...)
{
	struct refusal r;
	va_list ap;
	va_start(ap, fmt);
	(void)refuse_v(&r, code, field, fmt, ap);
	va_end(ap);
	grpc_call_finish(call, &r);
}

static void about_task(struct refusal *r, const struct uuid *id)
{
	char text[UUID_TEXT_LEN + 1];
	uuid_format(id, text);
	(void)refuse_resource(r, "task", text);
}

void rpc_refuse_no_task(struct grpc_call *call, const struct uuid *id)
{
	struct refusal r;
	(void)refuse(&r, STATUS_NOT_FOUND, "task_id", "task_id: no such task");
	(void)refuse_reason(&r, REASON_TASK_NOT_FOUND);
	about_task(&r, id);
	grpc_call_finish(call, &r);
}

void rpc_refuse_no_attempt(struct grpc_call *call, const struct uuid *id, int attempts)
{
	struct refusal r;
	if (attempts)
		(void)refuse(&r, STATUS_NOT_FOUND, "attempt", "attempt: this task has attempts 1 to %d", attempts);
	else
		(void)refuse(&r, STATUS_NOT_FOUND, "attempt", "attempt: this task has had no attempt yet");
	(void)refuse_reason(&r, REASON_ATTEMPT_NOT_FOUND);
	(void)refuse_more(&r, "attempts", "%d", attempts);
	about_task(&r, id);
	grpc_call_finish(call, &r);
}

void rpc_refuse_state(struct grpc_call *call, const struct uuid *id, const char *state, const char *field, const char *fmt, ...)
{
	struct refusal r;
	va_list ap;
	va_start(ap, fmt);
	(void)refuse_v(&r, STATUS_FAILED_PRECONDITION, field, fmt, ap);
	va_end(ap);
	bool ended = strcmp(state, "PENDING") != 0 && strcmp(state, "RUNNING") != 0;
	(void)refuse_reason(&r, ended ? REASON_TASK_TERMINAL : REASON_TASK_NOT_TERMINAL);
	(void)refuse_more(&r, "state", "%s", state);
	about_task(&r, id);
	grpc_call_finish(call, &r);
}

void rpc_refuse_no_worker(struct grpc_call *call, const char *id, const char *text)
{
	struct refusal r;
	(void)refuse(&r, STATUS_NOT_FOUND, "worker_id", "worker_id: %s", text);
	(void)refuse_reason(&r, REASON_WORKER_NOT_FOUND);
	(void)refuse_resource(&r, "worker", id);
	grpc_call_finish(call, &r);
}

void rpc_refuse_room(struct grpc_call *call, const char *text)
{
	struct refusal r;
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "%s", text);
	(void)refuse_reason(&r, REASON_REPLY_TOO_LARGE);
	grpc_call_finish(call, &r);
}

void rpc_refuse_store(struct grpc_call *call, const struct store_op *op)
{
	struct refusal r;
	if (op->result == STORE_REFUSED) {
		(void)refuse(&r, STATUS_INVALID_ARGUMENT, NULL, "the store can't keep this: %s", op->text);
		(void)refuse_reason(&r, REASON_STORE_REFUSED);
	} else if (op->no_memory) {
		(void)refuse_no_memory(&r, "out of memory");
	} else {
		(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "%s: %s%s",
			     op->queue_full ? "too much waits for the store" : "the store is away", op->text,
			     op->maybe_done ? " (it may have been done; repeat it with the same idempotency key)" : "");
		(void)refuse_reason(&r, op->queue_full ? REASON_STORE_BUSY : REASON_STORE_AWAY);
		r.retry_after_ms = 1000;
	}
	grpc_call_finish(call, &r);
}

static void say_no_answer(const struct rpc *rpc, const char *more, struct refusal *ret)
{
	memset(ret, 0, sizeof(*ret));
	(void)refuse(ret, STATUS_UNAVAILABLE, NULL, "the store did not answer within %lld ms%s",
		     (long long)(rpc->store_wait_ns / NS_PER_MS), more);
	(void)refuse_reason(ret, REASON_STORE_AWAY);
	ret->retry_after_ms = 1000;
}

void rpc_store_begin(struct grpc_call *call, bool changes)
{
	if (!call || rpc_of(call)->store_wait_ns <= 0)
		return;
	struct rpc *rpc = rpc_of(call);
	grpc_call_patience(call, loop_now_mono_ns(rpc->loop) + rpc->store_wait_ns,
			   changes ? &rpc->no_answer_to_change : &rpc->no_answer);
}

void rpc_store_end(struct grpc_call *call)
{
	if (call)
		grpc_call_patience(call, GRPC_NO_DEADLINE, NULL);
}

void rpc_init(struct rpc *rpc)
{
	say_no_answer(rpc, "", &rpc->no_answer);
	say_no_answer(rpc, ": it may have been done, or will be; repeat it, a submit with the same idempotency key",
		      &rpc->no_answer_to_change);
	list_init(&rpc->sessions);
	list_init(&rpc->parked);
	map_init(&rpc->follows);
	progress_init(&rpc->left);
	rights_init(rpc);
	reads_init(rpc);
	health_init(rpc);
	/* Ours, and a test reads it through. */
	if (descriptors_init(&rpc->protos, reins_descriptor_set, reins_descriptor_set_len))
		rpc->protos.n = 0;
}

void rpc_done(struct rpc *rpc)
{
	watch_free(rpc->watch);
	watch_news_free(rpc->news);
	health_done(rpc);
	progress_done(&rpc->left);
	rights_done(rpc);
	reads_done(rpc);
}

void rpc_drain(struct rpc *rpc)
{
	rpc->draining = true;
	health_drain(rpc);
	session_end_all(rpc);
	struct list *n;
	while ((n = list_pop_front(&rpc->parked))) {
		struct rpc_parked *p = container_of(n, struct rpc_parked, node);
		p->end(p);
	}
}

void rpc_refuse_stopping(struct grpc_call *call)
{
	struct refusal r;
	(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "the master stops");
	(void)refuse_reason(&r, REASON_MASTER_STOPPING);
	r.retry_after_ms = 1000;
	grpc_call_finish(call, &r);
}

void rpc_reply(struct grpc_call *call, const struct buf *b)
{
	int rc = grpc_call_send(call, buf_head(b), buf_len(b));
	char text[96];
	if (rc == -EMSGSIZE) {
		snprintf(text, sizeof(text), "the reply has %zu bytes, more than a client takes", buf_len(b));
		rpc_refuse_room(call, text);
	} else if (rc && rc != -EPIPE)
		rpc_refuse_room(call, "no room for the reply");
	else
		grpc_call_finish(call, NULL);
}

int rpc_parse_id(struct grpc_call *call, const char *text, struct uuid *ret)
{
	if (uuid_parse(text, strlen(text), ret) == 0)
		return 0;
	rpc_refuse(call, STATUS_INVALID_ARGUMENT, "task_id", "task_id: %s; a UUID of 36 characters is wanted",
		   *text ? "not a task id" : "missing");
	return -1;
}

void *rpc_unpack(struct grpc_call *call, const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len)
{
	struct refusal r;
	void *m = pb_unpack(type, data, len, NULL, &r);
	if (!m)
		grpc_call_finish(call, &r);
	return m;
}

/* ---- why a task waits ---- */

/* Of a row that is not due yet. */
static void why_delayed(const struct store_task *t, char *ret_text, size_t cap)
{
	time_t at = (time_t)(t->run_at_wall_us / 1000000);
	struct tm tm;
	char when[64] = "a far day";
	if (gmtime_r(&at, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%SZ", &tm);
	if (t->core.attempt > 0)
		snprintf(ret_text, cap, "not before %s: the delay after attempt %d", when, (int)t->core.attempt);
	else
		snprintf(ret_text, cap, "not before %s: its run_at", when);
}

static void why_pending(struct rpc *rpc, const struct core_task *t, bool place, char *ret_text, size_t cap)
{
	uint64_t peer;
	core_why_pending(engine_core(rpc->engine), t, place, &peer, ret_text, cap);
	if (peer)
		worker_info_why(rpc, peer, ret_text, cap);
}

static const char *why_of_kind(struct rpc *rpc, const struct core_task *t, struct rpc_reasons *reasons)
{
	size_t i = 0;
	while (i < reasons->n && !core_same_wants(reasons->of[i], t))
		i++;
	if (i == RPC_REASONS_MAX)
		return "not looked into in so long a list; GetTask says why it waits";
	if (i == reasons->n) {
		reasons->of[reasons->n++] = t;
		why_pending(rpc, t, false, reasons->text[i], sizeof(reasons->text[i]));
	}
	return reasons->text[i];
}

int rpc_task(struct rpc *rpc, const struct store_task *t, bool full, struct rpc_reasons *reasons, struct buf *b)
{
	char text[513] = "";
	const char *reason = text;
	if (t->state == STORE_PENDING && t->run_at_wall_us > clock_wall_us())
		why_delayed(t, text, sizeof(text));
	else if (t->state == STORE_PENDING && reasons)
		reason = why_of_kind(rpc, &t->core, reasons);
	else if (t->state == STORE_PENDING)
		why_pending(rpc, &t->core, full, text, sizeof(text));
	return view_task(t, full, reason, b);
}
