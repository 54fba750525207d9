"""What tests/interop asks of every client, with grpcio: grpcio_client.py NAME. One line of JSON with what was seen."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'integration'), str(HERE.parents[1] / 'client' / 'examples' / 'python')]

import connect  # noqa: E402
import grpc  # noqa: E402
import stubs  # noqa: E402

T, Task, Spec = stubs.tasks, stubs.task.Task, stubs.task.TaskSpec
client = stubs.tasks_grpc.TaskServiceStub(connect.channel())
queue = 'grpcio-' + sys.argv[1]
NOBODY = '01890a5d-ac96-774b-bcce-b302099a8057'


def call(method, request, timeout=30, **wait):
    if wait:
        request.wait.FromSeconds(wait['wait'])
    return getattr(client, method)(request, timeout=timeout, metadata=connect.metadata())


def failure(method, request, **kwargs):
    try:
        answer = call(method, request, **kwargs)
        if not hasattr(answer, 'DESCRIPTOR'):
            list(answer)
    except grpc.RpcError as error:
        return error
    raise SystemExit(f'{method} was to fail')


def number(error):
    return error.code().value[0]


def field(error):
    status = stubs.status_pb2.Status.FromString(dict(error.trailing_metadata())['grpc-status-details-bin'])
    assert (status.code, status.message) == (number(error), error.details())
    bad = stubs.error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(bad):
            return bad.field_violations[0].field
    return None


seen = {}
spec = Spec(command=['sh', '-c', r'printf "\000log\377"; cat >"$REINS_RESULT"'], queue=queue, payload=b'\0\xff\x80\n',
            labels={'from': 'grpcio'}, params={'ä': '€'})
before = next(call('WatchTasks', T.WatchTasksRequest())).cursor
first = call('SubmitTask', T.SubmitTaskRequest(spec=spec, idempotency_key=queue))
seen['created'], seen['id'] = first.created, first.task.id
seen['again'] = call('SubmitTask', T.SubmitTaskRequest(spec=spec, idempotency_key=queue)).created
done = call('GetTask', T.GetTaskRequest(task_id=first.task.id), wait=30)
seen['state'], seen['result'], seen['payload'] = Task.State.Name(done.state), done.result.hex(), done.spec.payload.hex()
kinds = [T.TaskEvent.CREATED, T.TaskEvent.CHANGED]
seen['watched'], stream = [], call('WatchTasks', T.WatchTasksRequest(cursor=before, filter=T.TaskFilter(queue=queue), kinds=kinds))
for event in stream:
    if event.kind != T.TaskEvent.SYNC:
        seen['watched'].append(f'{event.task.id} {T.TaskEvent.Kind.Name(event.kind)} {Task.State.Name(event.state)}')
    if event.state == Task.COMPLETED:
        stream.cancel()
        break
seen['watch_cancelled'] = stream.code().value[0]
seen['listed'] = [t.id for t in call('ListTasks', T.ListTasksRequest(filter=T.TaskFilter(queue=queue))).tasks]
seen['log'] = b''.join(c.data for c in call('ReadLogs', T.ReadLogsRequest(task_id=done.id, follow=True))).hex()

bad = failure('SubmitTask', T.SubmitTaskRequest(spec=Spec(command=['x'], priority=5000)))
seen['code'], seen['message'], seen['field'] = number(bad), bad.details(), field(bad)
seen['not_found'] = number(failure('GetTask', T.GetTaskRequest(task_id=NOBODY)))
seen['stream_not_found'] = number(failure('ReadLogs', T.ReadLogsRequest(task_id=NOBODY)))

running = call('SubmitTask', T.SubmitTaskRequest(spec=Spec(command=['sh', '-c', 'echo here; sleep 300'], queue=queue))).task.id
seen['deadline'] = number(failure('GetTask', T.GetTaskRequest(task_id=running), timeout=0.3, wait=60))
stream = call('ReadLogs', T.ReadLogsRequest(task_id=running, follow=True))
seen['followed'] = next(stream).data.hex()
stream.cancel()
seen['cancelled'] = stream.code().value[0]
call('CancelTask', T.CancelTaskRequest(task_id=running))
seen['stopped'] = Task.State.Name(call('GetTask', T.GetTaskRequest(task_id=running), wait=30).state)

seen['too_large'] = number(failure('SubmitTask', T.SubmitTaskRequest(spec=Spec(command=['x'], payload=bytes(5 << 20)))))
for i in range(5):
    large = Spec(command=['true'], queue=queue + '-large', payload=bytes(1 << 20), run_at={'seconds': 4000000000})
    call('SubmitTask', T.SubmitTaskRequest(spec=large))
seen['large'], request = 0, T.ListTasksRequest(filter=T.TaskFilter(queue=queue + '-large'), view=stubs.task.TASK_VIEW_FULL)
while True:
    page = call('ListTasks', request)
    seen['large'] += len(page.tasks)
    for task in page.tasks:
        call('CancelTask', T.CancelTaskRequest(task_id=task.id))
    request.page_token = page.next_page_token
    if not page.next_page_token:
        break
print(json.dumps(seen))
