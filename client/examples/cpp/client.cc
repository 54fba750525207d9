// Submits, waits, watches, reads logs, lists and cancels, over gRPC.
//
//   client submit PROGRAM [ARGUMENT...]   prints the task's id
//   client wait ID                        prints the state; exit code 0 if it is COMPLETED, else 1
//   client watch PROGRAM [ARGUMENT...]    submits, and prints what happens to the task until it has ended; exit code as of wait
//   client logs ID                        what the program prints, until it has ended
//   client list [QUEUE]                   id, state and name, the newest first
//   client cancel ID
//
// REINS_SERVER   127.0.0.1:7346 (the default), or https://HOST:PORT for TLS
// REINS_TOKEN    sent with each call; the server may ask for one
// REINS_TLS_CA   the authority that signed the server's certificate; without it the system's authorities are asked
// REINS_TLS_CERT, REINS_TLS_KEY   a certificate of our own, where the server wants to see one
// REINS_QUEUE    the queue that submit puts tasks into
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "reins/v1/task_service.grpc.pb.h"

namespace api = reins::v1;
using std::chrono::seconds;

// Calls that ended with UNAVAILABLE are made again: the server or its store was away. A submit that is made again needs an
// idempotency key, or there may be two tasks.
static const char retry[] = R"({"methodConfig": [{
  "name": [{"service": "reins.v1.TaskService"}],
  "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
                  "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

static const char *const codes[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
	"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};

static std::string env(const char *name, const char *otherwise = "")
{
	const char *value = std::getenv(name);
	return value && *value ? value : otherwise;
}

static std::string file(const char *variable)
{
	std::string path = env(variable);
	if (path.empty())
		return "";
	std::ifstream in(path, std::ios::binary);
	if (!in)
		throw std::runtime_error(std::string(variable) + ": " + path + " can't be read");
	std::ostringstream all;
	all << in.rdbuf();
	return all.str();
}

static std::shared_ptr<grpc::Channel> connect()
{
	std::string address = env("REINS_SERVER", "127.0.0.1:7346");
	const bool tls = address.rfind("https://", 0) == 0;
	const size_t scheme = address.find("://");
	if (scheme != std::string::npos)
		address.erase(0, scheme + 3);
	if (!address.empty() && address.back() == '/')
		address.pop_back();
	std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
	if (tls)
		credentials = grpc::SslCredentials({file("REINS_TLS_CA"), file("REINS_TLS_KEY"), file("REINS_TLS_CERT")});
	grpc::ChannelArguments arguments;
	arguments.SetServiceConfigJSON(retry);
	// Notice a server that is gone without a word, also while a log is followed and nothing is said.
	arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
	arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
	return grpc::CreateCustomChannel(address, credentials, arguments);
}

struct Failed : std::runtime_error {
	explicit Failed(const grpc::Status &s)
		: std::runtime_error((s.error_code() <= 16 ? codes[s.error_code()] : "?") + std::string(": ") + s.error_message())
	{
	}
};

class Client {
public:
	explicit Client(const std::shared_ptr<grpc::Channel> &channel) : tasks(api::TaskService::NewStub(channel)) {}

	api::Task submit(const std::vector<std::string> &command, const std::string &queue)
	{
		api::SubmitTaskRequest request;
		*request.mutable_spec()->mutable_command() = {command.begin(), command.end()};
		request.mutable_spec()->set_queue(queue);
		// It makes it safe to send this again when the answer was lost.
		std::random_device random;
		for (int i = 0; i < 4; i++)
			request.mutable_idempotency_key()->append(std::to_string(random()) + ".");
		api::SubmitTaskResponse reply;
		check(tasks->SubmitTask(call(seconds(10)).get(), request, &reply));
		return reply.task();
	}

	// The task once it has ended. Each call waits half a minute, so that a server which is restarted costs little.
	api::Task wait(const std::string &id)
	{
		for (;;) {
			api::GetTaskRequest request;
			request.set_task_id(id);
			request.mutable_wait()->set_seconds(30);
			api::Task task;
			check(tasks->GetTask(call(seconds(60)).get(), request, &task));
			if (ended(task.state()))
				return task;
		}
	}

	static bool ended(api::Task::State state)
	{
		return state == api::Task::COMPLETED || state == api::Task::FAILED || state == api::Task::CANCELLED;
	}

	// What happens to the tasks that match, from a cursor on, until each says that it is enough; without a cursor from now on.
	// The first event is SYNC. Who keeps the cursor of the last event can go on from there, and misses nothing.
	void watch(std::string cursor, const api::TaskFilter &filter, const std::function<bool(const api::TaskEvent &)> &each)
	{
		for (;; std::this_thread::sleep_for(std::chrono::milliseconds(500))) {
			api::WatchTasksRequest request;
			request.set_cursor(cursor);
			*request.mutable_filter() = filter;
			auto context = call(seconds(0));
			auto stream = tasks->WatchTasks(context.get(), request);
			for (api::TaskEvent event; stream->Read(&event);) {
				cursor = event.cursor();
				if (!each(event)) {
					context->TryCancel();
					return;
				}
			}
			// The server has gone, or we were too slow for it.
			const grpc::Status status = stream->Finish();
			if (cursor.empty() || (status.error_code() != grpc::UNAVAILABLE && status.error_code() != grpc::RESOURCE_EXHAUSTED))
				throw Failed(status);
		}
	}

	// Its state once it has ended.
	api::Task::State submit_and_watch(const std::vector<std::string> &command, const std::string &queue,
					  const std::function<void(const api::TaskEvent &)> &each)
	{
		std::string before; // so nothing of the task is missed, however soon it ends
		watch("", {}, [&](const api::TaskEvent &sync) {
			before = sync.cursor();
			return false;
		});
		api::TaskFilter filter;
		filter.add_task_ids(submit(command, queue).id());
		api::Task::State state = api::Task::STATE_UNSPECIFIED;
		watch(before, filter, [&](const api::TaskEvent &event) {
			each(event);
			state = event.state();
			return !ended(state);
		});
		return state;
	}

	// Piece by piece; what was not kept is a piece without data and with dropped_bytes.
	void logs(const std::string &id, std::ostream &out)
	{
		api::ReadLogsRequest request;
		request.set_task_id(id);
		request.set_follow(true);
		auto context = call(seconds(0));
		auto stream = tasks->ReadLogs(context.get(), request);
		for (api::LogChunk chunk; stream->Read(&chunk);)
			out << chunk.data() << std::flush;
		check(stream->Finish());
	}

	// All tasks, page by page.
	void list(const std::string &queue, const std::function<void(const api::Task &)> &each)
	{
		api::ListTasksRequest request;
		request.mutable_filter()->set_queue(queue);
		request.set_page_size(100);
		do {
			api::ListTasksResponse page;
			check(tasks->ListTasks(call(seconds(10)).get(), request, &page));
			for (const api::Task &task : page.tasks())
				each(task);
			request.set_page_token(page.next_page_token());
		} while (!request.page_token().empty());
	}

	api::Task cancel(const std::string &id)
	{
		api::CancelTaskRequest request;
		request.set_task_id(id);
		request.set_reason("by client.cc");
		api::Task task;
		check(tasks->CancelTask(call(seconds(10)).get(), request, &task));
		return task;
	}

private:
	std::unique_ptr<api::TaskService::Stub> tasks;

	// Of one call: its deadline (0: none), and the token.
	static std::unique_ptr<grpc::ClientContext> call(seconds limit)
	{
		auto context = std::make_unique<grpc::ClientContext>();
		if (limit.count())
			context->set_deadline(std::chrono::system_clock::now() + limit);
		const std::string token = env("REINS_TOKEN");
		if (!token.empty())
			context->AddMetadata("authorization", "Bearer " + token);
		return context;
	}

	static void check(const grpc::Status &status)
	{
		if (!status.ok())
			throw Failed(status);
	}
};

static int run(const std::string &verb, const std::vector<std::string> &rest)
{
	Client client(connect());
	if (verb == "submit" && !rest.empty()) {
		std::cout << client.submit(rest, env("REINS_QUEUE")).id() << "\n";
	} else if (verb == "wait" && rest.size() == 1) {
		const api::Task task = client.wait(rest[0]);
		std::cout << api::Task::State_Name(task.state()) << "\n";
		return task.state() == api::Task::COMPLETED ? 0 : 1;
	} else if (verb == "watch" && !rest.empty()) {
		const auto state = client.submit_and_watch(rest, env("REINS_QUEUE"), [](const api::TaskEvent &event) {
			if (event.kind() != api::TaskEvent::SYNC)
				std::cout << api::TaskEvent::Kind_Name(event.kind()) << " " << api::Task::State_Name(event.state()) << std::endl;
		});
		return state == api::Task::COMPLETED ? 0 : 1;
	} else if (verb == "logs" && rest.size() == 1) {
		client.logs(rest[0], std::cout);
	} else if (verb == "list" && rest.size() <= 1) {
		client.list(rest.empty() ? "" : rest[0], [](const api::Task &task) {
			std::cout << task.id() << " " << api::Task::State_Name(task.state()) << " " << task.spec().name() << "\n";
		});
	} else if (verb == "cancel" && rest.size() == 1) {
		std::cout << api::Task::State_Name(client.cancel(rest[0]).state()) << "\n";
	} else {
		std::cerr << "usage: client submit PROGRAM... | wait ID | watch PROGRAM... | logs ID | list [QUEUE] | cancel ID\n";
		return 64;
	}
	return 0;
}

int main(int argc, char **argv)
{
	try {
		const std::vector<std::string> words(argv + 1, argv + argc);
		return run(words.empty() ? "" : words[0], {words.begin() + !words.empty(), words.end()});
	} catch (const std::exception &error) {
		// The message names the field and what is allowed, if a field was at fault.
		std::cerr << error.what() << "\n";
		return 1;
	}
}
