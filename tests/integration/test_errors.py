"""What programs learn from a refusal: docs/errors.md over the wire, and `reins` in words."""
import subprocess

import grpc
import pytest
import stubs
from cluster import BUILD, make_spec, wait_for
from refusals import fields, info, refused, resource, retry_after

T = stubs.tasks
NOBODY = '01890000-0000-7000-8000-000000000001'


def test_not_found(shared):
    of_task = [lambda c: refused(c.tasks.GetTask, T.GetTaskRequest(task_id=NOBODY)),
               lambda c: refused(c.tasks.CancelTask, T.CancelTaskRequest(task_id=NOBODY)),
               lambda c: refused(c.tasks.RetryTask, T.RetryTaskRequest(task_id=NOBODY)),
               lambda c: refused(lambda *a, **k: list(c.tasks.ReadLogs(*a, **k)), T.ReadLogsRequest(task_id=NOBODY)),
               lambda c: refused(c.tasks.ReadMetrics, T.ReadMetricsRequest(task_id=NOBODY))]
    for call in of_task:
        e = call(shared)
        assert (e.code(), info(e), resource(e)) == (grpc.StatusCode.NOT_FOUND, ('TASK_NOT_FOUND', {}), ('task', NOBODY))
    e = refused(shared.admin.DrainWorker, stubs.admin.DrainWorkerRequest(worker_id='nobody'))
    assert (e.code(), info(e), resource(e)) == (grpc.StatusCode.NOT_FOUND, ('WORKER_NOT_FOUND', {}), ('worker', 'nobody'))
    e = refused(stubs.every.health_pb2_grpc.HealthStub(shared.channel()).Check, stubs.health_pb2.HealthCheckRequest(service='x'))
    assert (info(e), resource(e)) == (('SERVICE_NOT_FOUND', {}), ('service', 'x'))
    task = shared.submit(queue='errors').id
    e = refused(shared.tasks.ReadMetrics, T.ReadMetricsRequest(task_id=task, attempt=3))
    assert (info(e), resource(e), fields(e)) == (('ATTEMPT_NOT_FOUND', {'attempts': '0'}), ('task', task), ['attempt'])
    shared.cancel(task)


def test_states_and_keys(shared):
    task = shared.submit(key='errors-1', queue='errors').id
    e = refused(shared.tasks.RetryTask, T.RetryTaskRequest(task_id=task))
    assert (e.code(), info(e)) == (grpc.StatusCode.FAILED_PRECONDITION, ('TASK_NOT_TERMINAL', {'state': 'PENDING'}))
    e = refused(shared.tasks.SubmitTask,
                T.SubmitTaskRequest(spec=make_spec(queue='errors', priority=3), idempotency_key='errors-1'))
    assert (e.code(), info(e), resource(e)) == (grpc.StatusCode.ALREADY_EXISTS, ('IDEMPOTENCY_KEY_REUSED', {}), ('task', task))
    shared.cancel(task)
    two = [T.SubmitTaskRequest(spec=make_spec(queue='errors', priority=p), idempotency_key='errors-2') for p in (1, 2)]
    e = refused(shared.tasks.SubmitTasks, T.SubmitTasksRequest(requests=two))
    assert (info(e), resource(e)) == (('IDEMPOTENCY_KEY_REUSED', {}), ('idempotency_key', 'errors-2'))


def test_limits_and_fields(shared):
    e = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(payload=b'x' * (5 << 20))))
    reason, more = info(e)
    assert (e.code(), reason, more['limit']) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 'MESSAGE_TOO_LARGE', str(4 << 20))
    assert int(more['size']) > 5 << 20
    e = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(priority=5000)))
    assert (info(e), fields(e)) == (('FIELD_INVALID', {}), ['spec.priority'])
    e = refused(shared.channel().unary_unary('/reins.v1.TaskService/Nothing'), b'')
    assert (e.code(), info(e)) == (grpc.StatusCode.UNIMPLEMENTED, ('NOT_IMPLEMENTED', {}))
    e = refused(shared.channel().unary_unary('/reins.v1.TaskService/GetTask'), b'\xff')
    assert (e.code(), info(e)) == (grpc.StatusCode.INVALID_ARGUMENT, ('MESSAGE_INVALID', {}))


@pytest.mark.parametrize('words, told', [
    (['status', NOBODY], f'NOT_FOUND (TASK_NOT_FOUND): task_id: no such task (task {NOBODY})'),
    (['drain', 'nobody'], 'NOT_FOUND (WORKER_NOT_FOUND): worker_id: no worker of this id was ever connected (worker nobody)'),
])
def test_in_words(shared, words, told):
    r = subprocess.run([BUILD / 'client' / 'reins', *words, '--server', shared.url], capture_output=True, text=True, timeout=30)
    assert r.returncode == 1 and told in r.stderr, r.stderr


def test_the_store_is_away(make_cluster):
    c = make_cluster({'store-timeout': '1s'}).start()
    c.postgres.stop()
    wait_for(lambda: c.health() == 'NOT_SERVING', 'it is noticed')
    e = refused(c.tasks.GetTask, T.GetTaskRequest(task_id=NOBODY))
    assert (e.code(), info(e), retry_after(e)) == (grpc.StatusCode.UNAVAILABLE, ('STORE_AWAY', {}), 1.0)
    c.postgres.start()
