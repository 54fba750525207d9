// Submits, waits, watches, reads logs, lists and cancels, over gRPC.
//
//	client submit PROGRAM [ARGUMENT...]   prints the task's id
//	client wait ID                        prints the state; exit code 0 if it is COMPLETED, else 1
//	client watch PROGRAM [ARGUMENT...]    submits, and prints what happens to the task until it has ended; exit code as of wait
//	client logs ID                        what the program prints, until it has ended
//	client list [QUEUE]                   id, state and name, the newest first
//	client cancel ID
//
// REINS_SERVER   127.0.0.1:7346 (the default), or https://HOST:PORT for TLS
// REINS_TOKEN    sent with each call; the server may ask for one
// REINS_TLS_CA   the authority that signed the server's certificate; without it the system's authorities are asked
// REINS_TLS_CERT, REINS_TLS_KEY   a certificate of our own, where the server wants to see one
// REINS_QUEUE    the queue that submit puts tasks into
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"reins.dev/reins/v1"
)

// Calls that ended with UNAVAILABLE are made again: the server or its store was away. A submit that is made again needs an
// idempotency key, or there may be two tasks. (grpc-go before 1.40 does so only with GRPC_GO_RETRY=on in the environment.)
const retry = `{"methodConfig": [{
	"name": [{"service": "reins.v1.TaskService"}],
	"retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

type client struct {
	tasks reinsv1.TaskServiceClient
}

func tlsConfig() (*tls.Config, error) {
	config := &tls.Config{}
	if ca := os.Getenv("REINS_TLS_CA"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in it", ca)
		}
	}
	if cert := os.Getenv("REINS_TLS_CERT"); cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, os.Getenv("REINS_TLS_KEY"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func dial() (*grpc.ClientConn, error) {
	address := strings.TrimSuffix(os.Getenv("REINS_SERVER"), "/")
	if address == "" {
		address = "127.0.0.1:7346"
	}
	security := grpc.WithInsecure()
	if strings.HasPrefix(address, "https://") {
		config, err := tlsConfig()
		if err != nil {
			return nil, err
		}
		security = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	// Notice a server that is gone without a word, also while a log is followed and nothing is said.
	alive := keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}
	return grpc.Dial(address, security, grpc.WithKeepaliveParams(alive), grpc.WithDefaultServiceConfig(retry))
}

// call is the context of one call: its deadline, and the token. Without a time it goes on for as long as it takes.
func call(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if token := os.Getenv("REINS_TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

func (c client) submit(command []string, queue string) (*reinsv1.Task, error) {
	ctx, cancel := call(10 * time.Second)
	defer cancel()
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	made, err := c.tasks.SubmitTask(ctx, &reinsv1.SubmitTaskRequest{
		Spec: &reinsv1.TaskSpec{Command: command, Queue: queue},
		// It makes it safe to send this again when the answer was lost.
		IdempotencyKey: hex.EncodeToString(key),
	})
	return made.GetTask(), err
}

// wait returns the task once it has ended. Each call waits half a minute, so that a server which is restarted costs little.
func (c client) wait(id string) (*reinsv1.Task, error) {
	for {
		ctx, cancel := call(time.Minute)
		task, err := c.tasks.GetTask(ctx, &reinsv1.GetTaskRequest{TaskId: id, Wait: durationpb.New(30 * time.Second)})
		cancel()
		if err != nil {
			return nil, err
		}
		switch task.State {
		case reinsv1.Task_COMPLETED, reinsv1.Task_FAILED, reinsv1.Task_CANCELLED:
			return task, nil
		}
	}
}

// logs writes the log; what was not kept is a piece without data and with DroppedBytes.
func (c client) logs(id string, out io.Writer) error {
	ctx, cancel := call(0)
	defer cancel()
	stream, err := c.tasks.ReadLogs(ctx, &reinsv1.ReadLogsRequest{TaskId: id, Follow: true})
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(chunk.Data); err != nil {
			return err
		}
	}
}

// list calls each with all tasks, page by page.
func (c client) list(queue string, each func(*reinsv1.Task)) error {
	request := &reinsv1.ListTasksRequest{Filter: &reinsv1.TaskFilter{Queue: queue}, PageSize: 100}
	for {
		ctx, cancel := call(10 * time.Second)
		page, err := c.tasks.ListTasks(ctx, request)
		cancel()
		if err != nil {
			return err
		}
		for _, task := range page.Tasks {
			each(task)
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return nil
		}
	}
}

func (c client) cancel(id string) (*reinsv1.Task, error) {
	ctx, cancel := call(10 * time.Second)
	defer cancel()
	return c.tasks.CancelTask(ctx, &reinsv1.CancelTaskRequest{TaskId: id, Reason: "by client.go"})
}

// watchOnce hands on events until each says that it is enough, and keeps the cursor of the last.
func (c client) watchOnce(cursor *string, filter *reinsv1.TaskFilter, each func(*reinsv1.TaskEvent) bool) error {
	ctx, cancel := call(0)
	defer cancel()
	stream, err := c.tasks.WatchTasks(ctx, &reinsv1.WatchTasksRequest{Cursor: *cursor, Filter: filter})
	for err == nil {
		var event *reinsv1.TaskEvent
		if event, err = stream.Recv(); err == nil {
			*cursor = event.Cursor
			if !each(event) {
				return nil
			}
		}
	}
	return err
}

// watch tells what happens to the tasks that match, from a cursor on; without one from now on. The first event is SYNC. Who
// keeps the cursor of the last event can go on from there, and misses nothing.
func (c client) watch(cursor string, filter *reinsv1.TaskFilter, each func(*reinsv1.TaskEvent) bool) error {
	for {
		err := c.watchOnce(&cursor, filter, each)
		// The server has gone, or we were too slow for it.
		again := status.Code(err) == codes.Unavailable || status.Code(err) == codes.ResourceExhausted
		if !again || cursor == "" {
			return err
		}
		time.Sleep(time.Second / 2)
	}
}

func (c client) submitAndWatch(command []string, queue string) (state reinsv1.Task_State, err error) {
	var before string // so nothing of the task is missed, however soon it ends
	if err = c.watchOnce(&before, nil, func(*reinsv1.TaskEvent) bool { return false }); err != nil {
		return
	}
	task, err := c.submit(command, queue)
	if err != nil {
		return
	}
	err = c.watch(before, &reinsv1.TaskFilter{TaskIds: []string{task.Id}}, func(event *reinsv1.TaskEvent) bool {
		if event.Kind != reinsv1.TaskEvent_SYNC {
			fmt.Println(event.Kind, event.State)
		}
		state = event.State
		return state != reinsv1.Task_COMPLETED && state != reinsv1.Task_FAILED && state != reinsv1.Task_CANCELLED
	})
	return
}

func run(verb string, rest []string) (int, error) {
	connection, err := dial()
	if err != nil {
		return 1, err
	}
	defer connection.Close()
	c := client{reinsv1.NewTaskServiceClient(connection)}
	switch {
	case verb == "submit" && len(rest) > 0:
		task, err := c.submit(rest, os.Getenv("REINS_QUEUE"))
		if err != nil {
			return 1, err
		}
		fmt.Println(task.Id)
	case verb == "wait" && len(rest) == 1:
		task, err := c.wait(rest[0])
		if err != nil {
			return 1, err
		}
		fmt.Println(task.State)
		if task.State != reinsv1.Task_COMPLETED {
			return 1, nil
		}
	case verb == "watch" && len(rest) > 0:
		state, err := c.submitAndWatch(rest, os.Getenv("REINS_QUEUE"))
		if err != nil || state != reinsv1.Task_COMPLETED {
			return 1, err
		}
	case verb == "logs" && len(rest) == 1:
		return 0, c.logs(rest[0], os.Stdout)
	case verb == "list" && len(rest) <= 1:
		return 0, c.list(strings.Join(rest, ""), func(task *reinsv1.Task) { fmt.Println(task.Id, task.State, task.Spec.Name) })
	case verb == "cancel" && len(rest) == 1:
		task, err := c.cancel(rest[0])
		if err != nil {
			return 1, err
		}
		fmt.Println(task.State)
	default:
		return 64, fmt.Errorf("usage: client submit PROGRAM... | wait ID | watch PROGRAM... | logs ID | list [QUEUE] | cancel ID")
	}
	return 0, nil
}

func main() {
	var verb string
	var rest []string
	if len(os.Args) > 1 {
		verb, rest = os.Args[1], os.Args[2:]
	}
	code, err := run(verb, rest)
	if err != nil {
		if s, ok := status.FromError(err); ok {
			// The message names the field and what is allowed, if a field was at fault.
			fmt.Fprintf(os.Stderr, "%s: %s\n", s.Code(), s.Message())
		} else {
			fmt.Fprintln(os.Stderr, err)
		}
		if code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}
