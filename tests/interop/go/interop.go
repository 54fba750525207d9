// What tests/interop asks of every client, with grpc-go: interop ADDRESS. One line of JSON with what was seen.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "reins.dev/reins/v1"
)

const nobody = "01890a5d-ac96-774b-bcce-b302099a8057"

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dial(url string) *grpc.ClientConn {
	security := grpc.WithInsecure()
	if strings.HasPrefix(url, "https://") {
		pem, err := os.ReadFile(os.Getenv("REINS_TLS_CA"))
		must(err)
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		pair, err := tls.LoadX509KeyPair(os.Getenv("REINS_TLS_CERT"), os.Getenv("REINS_TLS_KEY"))
		must(err)
		config.Certificates = []tls.Certificate{pair}
		security = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	connection, err := grpc.Dial(strings.TrimPrefix(url, "https://"), security)
	must(err)
	return connection
}

func within(limit time.Duration) context.Context {
	ctx, _ := context.WithTimeout(context.Background(), limit) //nolint: the process ends soon
	return ctx
}

// code is the number of the status; the call must have failed.
func code(err error) int {
	if err == nil {
		fmt.Fprintln(os.Stderr, "a call was to fail")
		os.Exit(1)
	}
	return int(status.Code(err))
}

// field is what BadRequest in the details names.
func field(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			return bad.FieldViolations[0].Field
		}
	}
	return ""
}

func logs(stream api.TaskService_ReadLogsClient, err error) ([]byte, error) {
	var all []byte
	for err == nil {
		var chunk *api.LogChunk
		if chunk, err = stream.Recv(); err == nil {
			all = append(all, chunk.Data...)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return all, err
}

// watch returns the events until one is the last that is wanted, and how the stream ended that was then cancelled.
func watch(client api.TaskServiceClient, request *api.WatchTasksRequest, last func(*api.TaskEvent) bool) (events []*api.TaskEvent, err error) {
	ctx, cancel := context.WithCancel(within(30 * time.Second))
	defer cancel()
	stream, err := client.WatchTasks(ctx, request)
	for err == nil {
		var event *api.TaskEvent
		if event, err = stream.Recv(); err == nil {
			events = append(events, event)
			if last(event) {
				cancel()
			}
		}
	}
	return events, err
}

func main() {
	client := api.NewTaskServiceClient(dial(os.Getenv("REINS_SERVER")))
	queue := "go-" + os.Args[1]
	long := within(90 * time.Second)
	seen := map[string]interface{}{}
	submit := func(spec *api.TaskSpec, key string) *api.SubmitTaskResponse {
		made, err := client.SubmitTask(long, &api.SubmitTaskRequest{Spec: spec, IdempotencyKey: key})
		must(err)
		return made
	}
	get := func(id string) *api.Task {
		task, err := client.GetTask(long, &api.GetTaskRequest{TaskId: id, Wait: durationpb.New(30 * time.Second)})
		must(err)
		return task
	}

	spec := &api.TaskSpec{Command: []string{"sh", "-c", `printf "\000log\377"; cat >"$REINS_RESULT"`}, Queue: queue,
		Payload: []byte{0, 255, 128, 10}, Labels: map[string]string{"from": "go"}, Params: map[string]string{"ä": "€"}}
	events, _ := watch(client, &api.WatchTasksRequest{}, func(*api.TaskEvent) bool { return true })
	before := events[0].Cursor
	first := submit(spec, queue)
	id := first.Task.Id
	seen["created"], seen["id"] = first.Created, id
	seen["again"] = submit(spec, queue).Created
	done := get(id)
	seen["state"], seen["result"], seen["payload"] = done.State.String(), hex.EncodeToString(done.Result), hex.EncodeToString(done.Spec.Payload)
	page, err := client.ListTasks(long, &api.ListTasksRequest{Filter: &api.TaskFilter{Queue: queue}})
	must(err)
	var listed []string
	for _, task := range page.Tasks {
		listed = append(listed, task.Id)
	}
	seen["listed"] = listed
	events, err = watch(client, &api.WatchTasksRequest{Cursor: before, Filter: &api.TaskFilter{Queue: queue},
		Kinds: []api.TaskEvent_Kind{api.TaskEvent_CREATED, api.TaskEvent_CHANGED}},
		func(event *api.TaskEvent) bool { return event.State == api.Task_COMPLETED })
	var watched []string
	for _, event := range events {
		if event.Kind != api.TaskEvent_SYNC {
			watched = append(watched, fmt.Sprint(event.Task.Id, " ", event.Kind, " ", event.State))
		}
	}
	seen["watched"], seen["watch_cancelled"] = watched, code(err)
	log, err := logs(client.ReadLogs(long, &api.ReadLogsRequest{TaskId: id, Follow: true}))
	must(err)
	seen["log"] = hex.EncodeToString(log)

	_, err = client.SubmitTask(long, &api.SubmitTaskRequest{Spec: &api.TaskSpec{Command: []string{"x"}, Priority: 5000}})
	seen["code"], seen["message"], seen["field"] = code(err), status.Convert(err).Message(), field(err)
	_, err = client.GetTask(long, &api.GetTaskRequest{TaskId: nobody})
	seen["not_found"] = code(err)
	_, err = logs(client.ReadLogs(long, &api.ReadLogsRequest{TaskId: nobody}))
	seen["stream_not_found"] = code(err)

	running := submit(&api.TaskSpec{Command: []string{"sh", "-c", "echo here; sleep 300"}, Queue: queue}, "").Task.Id
	_, err = client.GetTask(within(300*time.Millisecond), &api.GetTaskRequest{TaskId: running, Wait: durationpb.New(time.Minute)})
	seen["deadline"] = code(err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.ReadLogs(ctx, &api.ReadLogsRequest{TaskId: running, Follow: true})
	must(err)
	chunk, err := stream.Recv()
	must(err)
	seen["followed"] = hex.EncodeToString(chunk.Data)
	cancel()
	_, err = logs(stream, nil)
	seen["cancelled"] = code(err)
	_, err = client.CancelTask(long, &api.CancelTaskRequest{TaskId: running})
	must(err)
	seen["stopped"] = get(running).State.String()

	_, err = client.SubmitTask(long, &api.SubmitTaskRequest{Spec: &api.TaskSpec{Command: []string{"x"}, Payload: make([]byte, 5<<20)}})
	seen["too_large"] = code(err)
	for i := 0; i < 5; i++ {
		submit(&api.TaskSpec{Command: []string{"true"}, Queue: queue + "-large", Payload: make([]byte, 1<<20),
			RunAt: &timestamppb.Timestamp{Seconds: 4000000000}}, "")
	}
	large := 0
	request := &api.ListTasksRequest{Filter: &api.TaskFilter{Queue: queue + "-large"}, View: api.TaskView_TASK_VIEW_FULL}
	for {
		page, err := client.ListTasks(long, request)
		must(err)
		for _, task := range page.Tasks {
			large++
			_, err := client.CancelTask(long, &api.CancelTaskRequest{TaskId: task.Id})
			must(err)
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
	}
	seen["large"] = large
	line, err := json.Marshal(seen)
	must(err)
	fmt.Println(string(line))
}
