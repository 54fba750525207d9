#!/usr/bin/python3
"""Submits, waits, watches, reads logs, lists and cancels, over gRPC. Where the server is, and who we are: see connect.py.

  client.py submit PROGRAM [ARGUMENT...]   prints the task's id
  client.py wait ID                        prints the state; exit code 0 if it is COMPLETED, else 1
  client.py watch PROGRAM [ARGUMENT...]    submits, and prints what happens to the task until it has ended; exit code as of wait
  client.py logs ID                        what the program prints, until it has ended
  client.py list [QUEUE]                   id, state and name, the newest first
  client.py cancel ID

REINS_QUEUE is the queue that submit puts tasks into.
"""
import os
import sys
import time
import uuid

import grpc

import connect
from reins.v1 import task_pb2, task_service_pb2 as api, task_service_pb2_grpc

State = task_pb2.Task.State
Kind = api.TaskEvent.Kind
FINAL = (task_pb2.Task.COMPLETED, task_pb2.Task.FAILED, task_pb2.Task.CANCELLED)


class Client:
    def __init__(self, channel):
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.metadata = connect.metadata()

    def call(self, method, request, timeout=10):
        return getattr(self.tasks, method)(request, timeout=timeout, metadata=self.metadata)

    def submit(self, command, queue='', **spec):
        # The key makes it safe to send this again when the answer was lost.
        request = api.SubmitTaskRequest(spec=task_pb2.TaskSpec(command=command, queue=queue, **spec), idempotency_key=str(uuid.uuid4()))
        return self.call('SubmitTask', request).task

    def wait(self, task_id):
        """The task once it has ended. Each call waits half a minute, so that a server which is restarted costs little."""
        while True:
            request = api.GetTaskRequest(task_id=task_id)
            request.wait.FromSeconds(30)
            task = self.call('GetTask', request, timeout=60)
            if task.state in FINAL:
                return task

    def watch(self, cursor='', **fields):
        """What happens to the tasks with these fields of TaskFilter, from a cursor on; without one from now on. The first event
        is SYNC. Who keeps the cursor of the last event can go on from there, and misses nothing."""
        while True:
            stream = self.call('WatchTasks', api.WatchTasksRequest(cursor=cursor, filter=api.TaskFilter(**fields)), timeout=None)
            try:
                for event in stream:
                    cursor = event.cursor
                    yield event
            except grpc.RpcError as error:
                # The server has gone, or we were too slow for it.
                if not cursor or error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
            finally:
                stream.cancel()
            time.sleep(0.5)

    def logs(self, task_id, follow=True):
        """The log piece by piece; what was not kept is a piece without data and with dropped_bytes."""
        return self.call('ReadLogs', api.ReadLogsRequest(task_id=task_id, follow=follow), timeout=None)

    def list(self, queue=''):
        """All tasks, page by page."""
        request = api.ListTasksRequest(filter=api.TaskFilter(queue=queue), page_size=100)
        while True:
            page = self.call('ListTasks', request)
            yield from page.tasks
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def cancel(self, task_id, reason=''):
        """The task; RUNNING with cancel_requested_at if its program has yet to end."""
        return self.call('CancelTask', api.CancelTaskRequest(task_id=task_id, reason=reason))


def main(arguments):
    client = Client(connect.channel())
    verb, *rest = arguments or ['help']
    if verb == 'submit' and rest:
        print(client.submit(rest, queue=os.environ.get('REINS_QUEUE', '')).id)
    elif verb == 'wait' and len(rest) == 1:
        task = client.wait(rest[0])
        print(State.Name(task.state))
        return 0 if task.state == task_pb2.Task.COMPLETED else 1
    elif verb == 'watch' and rest:
        before = next(client.watch()).cursor  # so nothing of the task is missed, however soon it ends
        task = client.submit(rest, queue=os.environ.get('REINS_QUEUE', ''))
        for event in client.watch(before, task_ids=[task.id]):
            if event.kind != api.TaskEvent.SYNC:
                print(Kind.Name(event.kind), State.Name(event.state), flush=True)
            if event.state in FINAL:
                return 0 if event.state == task_pb2.Task.COMPLETED else 1
    elif verb == 'logs' and len(rest) == 1:
        for chunk in client.logs(rest[0]):
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.buffer.flush()
    elif verb == 'list' and len(rest) <= 1:
        for task in client.list(*rest):
            print(task.id, State.Name(task.state), task.spec.name)
    elif verb == 'cancel' and len(rest) == 1:
        print(State.Name(client.cancel(rest[0], 'by client.py').state))
    else:
        print(__doc__, file=sys.stderr)
        return 64
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main(sys.argv[1:]))
    except grpc.RpcError as error:
        # The message names the field and what is allowed, if a field was at fault.
        print(f'{error.code().name}: {error.details()}', file=sys.stderr)
        sys.exit(1)
