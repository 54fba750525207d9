// What tests/interop asks of every client, with gRPC C++: interop NAME. One line of JSON with what was seen.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "reins/v1/task_service.grpc.pb.h"

namespace api = reins::v1;
static const char nobody[] = "01890a5d-ac96-774b-bcce-b302099a8057";

static std::string env(const char *name)
{
	const char *value = std::getenv(name);
	return value ? value : "";
}

static std::string file(const char *variable)
{
	std::ifstream in(env(variable), std::ios::binary);
	std::ostringstream all;
	all << in.rdbuf();
	return all.str();
}

static std::string hex(const std::string &bytes)
{
	std::string out;
	for (unsigned char c : bytes) {
		out += "0123456789abcdef"[c >> 4];
		out += "0123456789abcdef"[c & 15];
	}
	return out;
}

static std::string quoted(const std::string &text)
{
	std::string out = "\"";
	for (char c : text) {
		if (c == '"' || c == '\\')
			out += '\\';
		out += c;
	}
	return out + "\"";
}

// One context for each call.
static grpc::ClientContext *within(int ms = 30000)
{
	static std::vector<std::unique_ptr<grpc::ClientContext>> all;
	all.push_back(std::make_unique<grpc::ClientContext>());
	all.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
	return all.back().get();
}

static void must(const grpc::Status &status)
{
	if (!status.ok()) {
		std::cerr << status.error_code() << ": " << status.error_message() << "\n";
		std::exit(1);
	}
}

static std::string field(const grpc::Status &status)
{
	google::rpc::Status details;
	if (!details.ParseFromString(status.error_details()) || details.code() != status.error_code())
		return "";
	for (const auto &detail : details.details()) {
		google::rpc::BadRequest bad;
		if (detail.UnpackTo(&bad))
			return bad.field_violations(0).field();
	}
	return "";
}

static std::shared_ptr<grpc::Channel> connect()
{
	const std::string url = env("REINS_SERVER");
	if (url.rfind("https://", 0) != 0)
		return grpc::CreateChannel(url, grpc::InsecureChannelCredentials());
	return grpc::CreateChannel(url.substr(8), grpc::SslCredentials({file("REINS_TLS_CA"), file("REINS_TLS_KEY"), file("REINS_TLS_CERT")}));
}

static std::unique_ptr<api::TaskService::Stub> client;

static api::SubmitTaskResponse submit(const api::TaskSpec &spec, const std::string &key = "")
{
	api::SubmitTaskRequest request;
	api::SubmitTaskResponse reply;
	*request.mutable_spec() = spec;
	request.set_idempotency_key(key);
	must(client->SubmitTask(within(), request, &reply));
	return reply;
}

static grpc::Status get(const std::string &id, int wait_s, int limit_ms, api::Task *ret_task)
{
	api::GetTaskRequest request;
	request.set_task_id(id);
	request.mutable_wait()->set_seconds(wait_s);
	return client->GetTask(within(limit_ms), request, ret_task);
}

static grpc::Status logs(const std::string &id, std::string *ret_all)
{
	api::ReadLogsRequest request;
	request.set_task_id(id);
	request.set_follow(true);
	auto stream = client->ReadLogs(within(), request);
	for (api::LogChunk chunk; stream->Read(&chunk);)
		*ret_all += chunk.data();
	return stream->Finish();
}

// The events until one is the last that is wanted; then the stream is cancelled.
static grpc::Status watch(const std::string &cursor, const std::string &queue, bool (*last)(const api::TaskEvent &),
			  std::vector<api::TaskEvent> *ret_events)
{
	api::WatchTasksRequest request;
	request.set_cursor(cursor);
	request.mutable_filter()->set_queue(queue);
	request.add_kinds(api::TaskEvent::CREATED);
	request.add_kinds(api::TaskEvent::CHANGED);
	grpc::ClientContext *context = within();
	auto stream = client->WatchTasks(context, request);
	for (api::TaskEvent event; stream->Read(&event);) {
		ret_events->push_back(event);
		if (last(event))
			context->TryCancel();
	}
	return stream->Finish();
}

int main(int, char **argv)
{
	client = api::TaskService::NewStub(connect());
	const std::string queue = std::string("cpp-") + argv[1];
	std::map<std::string, std::string> seen;

	api::TaskSpec spec;
	for (const char *word : {"sh", "-c", "printf \"\\000log\\377\"; cat >\"$REINS_RESULT\""})
		spec.add_command(word);
	spec.set_queue(queue);
	spec.set_payload(std::string("\0\377\200\n", 4));
	(*spec.mutable_labels())["from"] = "cpp";
	(*spec.mutable_params())["ä"] = "€";
	std::vector<api::TaskEvent> sync, events;
	watch("", "", [](const api::TaskEvent &) { return true; }, &sync);
	const api::SubmitTaskResponse first = submit(spec, queue);
	const std::string id = first.task().id();
	seen["id"] = quoted(id);
	seen["created"] = first.created() ? "true" : "false";
	seen["again"] = submit(spec, queue).created() ? "true" : "false";
	api::Task done;
	must(get(id, 30, 60000, &done));
	seen["state"] = quoted(api::Task::State_Name(done.state()));
	seen["result"] = quoted(hex(done.result()));
	seen["payload"] = quoted(hex(done.spec().payload()));
	api::ListTasksRequest list;
	api::ListTasksResponse page;
	list.mutable_filter()->set_queue(queue);
	must(client->ListTasks(within(), list, &page));
	std::string listed;
	for (const api::Task &task : page.tasks())
		listed += (listed.empty() ? "" : ", ") + quoted(task.id());
	seen["listed"] = "[" + listed + "]";
	grpc::Status ended = watch(sync.at(0).cursor(), queue, [](const api::TaskEvent &e) { return e.state() == api::Task::COMPLETED; }, &events);
	seen["watch_cancelled"] = std::to_string(ended.error_code());
	std::string watched;
	for (const api::TaskEvent &e : events)
		if (e.kind() != api::TaskEvent::SYNC)
			watched += (watched.empty() ? "" : ", ") +
				   quoted(e.task().id() + " " + api::TaskEvent::Kind_Name(e.kind()) + " " + api::Task::State_Name(e.state()));
	seen["watched"] = "[" + watched + "]";
	std::string log;
	must(logs(id, &log));
	seen["log"] = quoted(hex(log));

	api::SubmitTaskRequest bad;
	api::SubmitTaskResponse reply;
	bad.mutable_spec()->add_command("x");
	bad.mutable_spec()->set_priority(5000);
	grpc::Status status = client->SubmitTask(within(), bad, &reply);
	seen["code"] = std::to_string(status.error_code());
	seen["message"] = quoted(status.error_message());
	seen["field"] = quoted(field(status));
	api::Task task;
	seen["not_found"] = std::to_string(get(nobody, 0, 30000, &task).error_code());
	seen["stream_not_found"] = std::to_string(logs(nobody, &log).error_code());

	api::TaskSpec sleeps;
	for (const char *word : {"sh", "-c", "echo here; sleep 300"})
		sleeps.add_command(word);
	sleeps.set_queue(queue);
	const std::string running = submit(sleeps).task().id();
	seen["deadline"] = std::to_string(get(running, 60, 300, &task).error_code());
	api::ReadLogsRequest follow;
	follow.set_task_id(running);
	follow.set_follow(true);
	grpc::ClientContext *context = within();
	auto stream = client->ReadLogs(context, follow);
	api::LogChunk chunk;
	if (stream->Read(&chunk))
		seen["followed"] = quoted(hex(chunk.data()));
	context->TryCancel();
	while (stream->Read(&chunk))
		;
	seen["cancelled"] = std::to_string(stream->Finish().error_code());
	api::CancelTaskRequest cancel;
	cancel.set_task_id(running);
	must(client->CancelTask(within(), cancel, &task));
	must(get(running, 30, 60000, &task));
	seen["stopped"] = quoted(api::Task::State_Name(task.state()));

	bad.mutable_spec()->set_priority(0);
	bad.mutable_spec()->set_payload(std::string(5 << 20, '\0'));
	seen["too_large"] = std::to_string(client->SubmitTask(within(), bad, &reply).error_code());
	api::TaskSpec large;
	large.add_command("true");
	large.set_queue(queue + "-large");
	large.set_payload(std::string(1 << 20, '\0'));
	large.mutable_run_at()->set_seconds(4000000000);
	for (int i = 0; i < 5; i++)
		submit(large);
	int n = 0;
	list.mutable_filter()->set_queue(queue + "-large");
	list.set_view(api::TASK_VIEW_FULL);
	do {
		must(client->ListTasks(within(), list, &page));
		n += page.tasks_size();
		for (const api::Task &one : page.tasks()) {
			cancel.set_task_id(one.id());
			must(client->CancelTask(within(), cancel, &task));
		}
		list.set_page_token(page.next_page_token());
	} while (!page.next_page_token().empty());
	seen["large"] = std::to_string(n);

	std::string line;
	for (const auto &one : seen)
		line += (line.empty() ? "{" : ", ") + quoted(one.first) + ": " + one.second;
	std::cout << line << "}\n";
	return 0;
}
