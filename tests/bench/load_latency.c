/* Mode `latency`: one task at a time on an idle system, with pauses of random length so that no timer of the server
 * is met in step.  Submit and receipt are seen by one process and one clock. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "tests/bench/fleet.h"
#include "tests/bench/scan.h"
#include "tests/bench/submitter.h"

#define PATIENCE_NS (10 * NS_PER_S)

struct latency {
	struct rig *rig;
	struct rig_link link;
	struct fleet *fleet;
	uint8_t *request;
	size_t request_len;
	bool wait;         /* ask for the end by GetTask(wait) */
	/* the task on its way */
	int64_t sent_mono_ns;
	int64_t recorded_before, received_before;
	struct uuid id;
	bool replied, ended;
	struct hist reply, receipt, end;
};

static bool welcomed(void *arg)
{
	struct latency *l = arg;
	return l->link.ready && fleet_ready(l->fleet);
}

static bool over(void *arg)
{
	struct latency *l = arg;
	return l->replied && fleet_sums(l->fleet)->recorded > l->recorded_before && (!l->wait || l->ended);
}

/* Task { state = 2 } */
static void on_task(void *arg, const uint8_t *data, size_t len)
{
	struct latency *l = arg;
	struct scan s = scan_of(data, len);
	struct scan_field f;
	while (scan_next(&s, &f))
		if (f.number == 2 && !f.data && f.value != REINS__V1__TASK__STATE__COMPLETED)
			rig_fail(l->rig, "GetTask with wait came back in state %llu", (unsigned long long)f.value);
}

static void on_task_status(void *arg, const struct grpc_status *status)
{
	struct latency *l = arg;
	hist_add(&l->end, clock_mono_ns() - l->sent_mono_ns);
	l->ended = true;
	if (status->code != STATUS_OK)
		rig_fail(l->rig, "GetTask ended %s: %s", status_code_name(status->code), status->message);
}

static void start_call(struct latency *l, const char *path, const struct grpc_call_events *ev, const uint8_t *data, size_t len)
{
	struct grpc_client_call *call;
	int rc = grpc_call_start(l->link.channel, path, GRPC_CALL_UNARY, GRPC_NO_DEADLINE, ev, l, &call);
	if (rc == 0)
		rc = grpc_client_send(call, data, len);
	if (rc)
		rig_fail(l->rig, "a call could not be started: %s", strerror(-rc));
}

static void ask_for_end(struct latency *l)
{
	static const struct grpc_call_events events = { .on_message = on_task, .on_status = on_task_status };
	Reins__V1__GetTaskRequest req = REINS__V1__GET_TASK_REQUEST__INIT;
	Google__Protobuf__Duration wait;
	char id[UUID_TEXT_LEN + 1];
	uint8_t data[128];
	uuid_format(&l->id, id);
	pb_duration_set(&wait, PATIENCE_NS);
	req.task_id = id;
	req.wait = &wait;
	start_call(l, "/reins.v1.TaskService/GetTask", &events, data, reins__v1__get_task_request__pack(&req, data));
}

/* SubmitTaskResponse { task = 1 { id = 1 } } */
static void on_reply(void *arg, const uint8_t *data, size_t len)
{
	struct latency *l = arg;
	struct scan_field task, id;
	if (!scan_find(data, len, 1, &task) || !scan_find(task.data, task.len, 1, &id) ||
	    uuid_parse((const char *)id.data, id.len, &l->id)) {
		rig_fail(l->rig, "a reply without a task id");
		return;
	}
	struct idset_entry *e = idset_get(&l->rig->ids, &l->id);
	e->submits++;
	e->submitted_mono_ns = l->sent_mono_ns;
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct latency *l = arg;
	hist_add(&l->reply, clock_mono_ns() - l->sent_mono_ns);
	l->replied = true;
	if (status->code != STATUS_OK)
		rig_fail(l->rig, "a submit ended %s: %s", status_code_name(status->code), status->message);
	else if (l->wait)
		ask_for_end(l);
}

/* Only one task is on its way, so whatever is received is that one. */
static void on_receipt(void *arg, struct idset_entry *e)
{
	struct latency *l = arg;
	hist_add(&l->receipt, e->received_mono_ns - l->sent_mono_ns);
}

static int one(struct latency *l)
{
	static const struct grpc_call_events events = { .on_message = on_reply, .on_status = on_status };
	int64_t pause = l->rig->conf.pause_ns;
	if (pause)
		rig_run(l->rig, NS_PER_MS + (int64_t)(rng_process_next() % (uint64_t)pause), NULL, NULL);
	l->recorded_before = fleet_sums(l->fleet)->recorded;
	l->replied = l->ended = false;
	l->sent_mono_ns = clock_mono_ns();
	start_call(l, "/reins.v1.TaskService/SubmitTask", &events, l->request, l->request_len);
	if (rig_run(l->rig, PATIENCE_NS, over, l)) {
		rig_fail(l->rig, "a task was not over within %lld s", (long long)(PATIENCE_NS / NS_PER_S));
		return -1;
	}
	return 0;
}

int load_latency(struct rig *r)
{
	struct latency *l = xcalloc(1, sizeof(*l));
	l->rig = r;
	hist_init(&l->reply);
	hist_init(&l->receipt);
	hist_init(&l->end);
	l->request = submitter_request(r, &l->request_len);
	l->fleet = fleet_new(r, "load", (size_t)max_i64(r->conf.workers, 1), (size_t)r->conf.slots);
	fleet_on_receipt(l->fleet, on_receipt, l);
	fleet_start(l->fleet);
	rig_link_open(r, &l->link, "fleet");
	if (rig_run(r, 20 * NS_PER_S, welcomed, l))
		rig_fail(r, "not all workers were welcomed");
	int rc = 0;
	for (int64_t i = 0; i < 20 && rc == 0; i++)
		rc = one(l); /* first calls of all caches and plans */
	hist_init(&l->reply);
	hist_init(&l->receipt);
	rig_read_procs(r, r->before);
	for (int64_t i = 0; i < r->conf.samples && rc == 0; i++)
		rc = one(l);
	rig_read_procs(r, r->after);
	report_hist(&r->report, "submit_to_receipt_ms", &l->receipt);
	report_hist(&r->report, "submit_to_reply_ms", &l->reply);
	l->wait = true;
	for (int64_t i = 0; i < r->conf.samples / 2 && rc == 0; i++)
		rc = one(l);
	report_hist(&r->report, "submit_to_end_seen_ms", &l->end);
	report_procs(&r->report, &r->procs, r->before, r->after, r->conf.samples);
	rig_check_ids(r, 20 + r->conf.samples + r->conf.samples / 2);
	fleet_free(l->fleet);
	rig_link_close(&l->link);
	loop_turn(r->loop, false);
	free(l->request);
	free(l);
	return 0;
}
