/* The methods by path, with the types of their messages. */
#include "client/lib/client.h"
#include "grpc/health/v1/health.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"

#define METHOD(service, name, req, rep, again)                            \
	{                                                                 \
		.path = "/" service "/" name, .request = &req##__descriptor, .reply = &rep##__descriptor, \
		.repeatable = again                                       \
	}
#define TASK "reins.v1.TaskService"
#define ADMIN "reins.v1.AdminService"

const struct client_method client_submit_task =
	METHOD(TASK, "SubmitTask", reins__v1__submit_task_request, reins__v1__submit_task_response, false);
const struct client_method client_submit_tasks =
	METHOD(TASK, "SubmitTasks", reins__v1__submit_tasks_request, reins__v1__submit_tasks_response, false);
const struct client_method client_get_task =
	METHOD(TASK, "GetTask", reins__v1__get_task_request, reins__v1__task, true);
const struct client_method client_list_tasks =
	METHOD(TASK, "ListTasks", reins__v1__list_tasks_request, reins__v1__list_tasks_response, true);
const struct client_method client_cancel_task =
	METHOD(TASK, "CancelTask", reins__v1__cancel_task_request, reins__v1__task, true);
const struct client_method client_retry_task =
	METHOD(TASK, "RetryTask", reins__v1__retry_task_request, reins__v1__task, false);
const struct client_method client_cancel_tasks =
	METHOD(TASK, "CancelTasks", reins__v1__cancel_tasks_request, reins__v1__cancel_tasks_response, true);
const struct client_method client_retry_tasks =
	METHOD(TASK, "RetryTasks", reins__v1__retry_tasks_request, reins__v1__retry_tasks_response, false);
const struct client_method client_watch_tasks =
	METHOD(TASK, "WatchTasks", reins__v1__watch_tasks_request, reins__v1__task_event, true);
const struct client_method client_read_logs =
	METHOD(TASK, "ReadLogs", reins__v1__read_logs_request, reins__v1__log_chunk, true);
const struct client_method client_read_metrics =
	METHOD(TASK, "ReadMetrics", reins__v1__read_metrics_request, reins__v1__read_metrics_response, true);
const struct client_method client_list_workers =
	METHOD(ADMIN, "ListWorkers", reins__v1__list_workers_request, reins__v1__list_workers_response, true);
const struct client_method client_drain_worker =
	METHOD(ADMIN, "DrainWorker", reins__v1__drain_worker_request, reins__v1__worker_info, true);
const struct client_method client_list_queues =
	METHOD(ADMIN, "ListQueues", reins__v1__list_queues_request, reins__v1__list_queues_response, true);
const struct client_method client_pause_queue =
	METHOD(ADMIN, "PauseQueue", reins__v1__pause_queue_request, reins__v1__queue_info, true);
const struct client_method client_resume_queue =
	METHOD(ADMIN, "ResumeQueue", reins__v1__resume_queue_request, reins__v1__queue_info, true);
const struct client_method client_get_server_info =
	METHOD(ADMIN, "GetServerInfo", reins__v1__get_server_info_request, reins__v1__server_info, true);
const struct client_method client_health_check =
	METHOD("grpc.health.v1.Health", "Check", grpc__health__v1__health_check_request,
	       grpc__health__v1__health_check_response, true);
