"""Rows of docs/protocol.md that want stock clients: what is released, what may be sent twice, what is pushed back."""
import itertools
import json
import subprocess
import threading
import time

import grpc
import pytest
import stubs
from cluster import make_spec, wait_for
from lone_master import LoneMaster
from monitor import get, parse
from refusals import refused

T, State = stubs.tasks, stubs.State
Health = stubs.every.health_pb2_grpc.HealthStub
NS = 10 ** 9


def start(folder, **flags):
    master = LoneMaster(folder, **flags).start()
    master.certs = None
    return master


@pytest.fixture(scope='module')
def lone(tmp_path_factory):
    master = start(tmp_path_factory.mktemp('lone'))
    yield master
    master.close()


def channel(master, *options):
    made = grpc.insecure_channel(master.address, options=[('grpc.use_local_subchannel_pool', 1), *options])
    master.channels.append(made)
    return made


def tasks(master, *options):
    return stubs.tasks_grpc.TaskServiceStub(channel(master, *options))


def submit(stub, key='', **spec):
    return stub.SubmitTask(T.SubmitTaskRequest(spec=make_spec(**spec), idempotency_key=key), timeout=30).task


def test_five_hundred_waits_on_one_channel_are_let_go(lone):
    """1.11, 1.26: calls and watchers in flight, all of them cancelled: nothing of them stays."""
    made = channel(lone)
    stub, health = stubs.tasks_grpc.TaskServiceStub(made), Health(made)
    task = submit(stub)

    def open_calls():
        return sum(v for k, v in parse(get(lone, '/metrics')[1]).items() if k.startswith('reins_rpc_in_flight'))
    before = open_calls()
    request = T.GetTaskRequest(task_id=task.id)
    request.wait.FromSeconds(300)
    calls = [stub.GetTask.future(request) for _ in range(250)]
    calls += [health.Watch(stubs.health_pb2.HealthCheckRequest(service='')) for _ in range(250)]
    wait_for(lambda: open_calls() == before + 500, lambda: open_calls())
    for call in calls:
        call.cancel()
    wait_for(lambda: open_calls() == before, lambda: open_calls())
    assert stub.GetTask(T.GetTaskRequest(task_id=task.id), timeout=30).id == task.id  # on the same connection
    stub.CancelTask(T.CancelTaskRequest(task_id=task.id), timeout=30)


def test_pages_fit_stock_limits(lone):
    """1.14: the largest tasks, the largest page, and a client that takes 4 MiB."""
    stub = tasks(lone)
    ids = {submit(stub, queue='large', payload=b'x' * 1_000_000).id for _ in range(8)}
    found, token, pages = set(), '', 0
    while True:
        page = stub.ListTasks(T.ListTasksRequest(filter=T.TaskFilter(queue='large'), page_size=1000, page_token=token,
                                                 view=stubs.task.TASK_VIEW_FULL), timeout=30)
        found |= {t.id for t in page.tasks}
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert found == ids and pages > 1
    for i in ids:
        stub.CancelTask(T.CancelTaskRequest(task_id=i), timeout=30)


def test_unknown_fields_are_kept(lone):
    """1.31: field 2047 of the spec, of a client newer than the master, comes back as it came."""
    raw = channel(lone)
    unknown = b'\xfa\x7f\x05hello'
    spec = make_spec(queue='unknown').SerializeToString() + unknown
    body = b'\x0a' + bytes([len(spec)]) + spec + b'\xfa\x7f\x02hi'
    reply = T.SubmitTaskResponse.FromString(raw.unary_unary('/reins.v1.TaskService/SubmitTask')(body, timeout=30))
    request = T.GetTaskRequest(task_id=reply.task.id).SerializeToString()
    task = raw.unary_unary('/reins.v1.TaskService/GetTask')(request, timeout=30)
    assert unknown in task and stubs.task.Task.FromString(task).spec.queue == 'unknown'
    tasks(lone).CancelTask(T.CancelTaskRequest(task_id=reply.task.id), timeout=30)


@pytest.mark.parametrize('how, version', [('--http1.1', '1.1'), ('--http2', '1.1'), ('--http2-prior-knowledge', '2')])
def test_one_port_for_both(lone, how, version):
    """1.32: `--http2` asks to upgrade from 1.1, which nobody does any more: it stays there."""
    curl = ['curl', '-sS', '-m', '20', how, '-o', '/dev/null', '-w', '%{http_version} %{http_code}']
    url = f'http://{lone.address}' + ('/healthz' if version == '1.1' else '/grpc.health.v1.Health/Check')
    out = subprocess.run([*curl, url], capture_output=True, text=True, timeout=30)
    assert out.stdout == f'{version} {200 if version == "1.1" else 405}', out


def test_health_has_no_list(lone):
    """2.3"""
    assert refused(channel(lone).unary_unary('/grpc.health.v1.Health/List'), b'').code() == grpc.StatusCode.UNIMPLEMENTED


def test_who_calls_is_in_the_log(lone):
    """1.21; attempts before this one are seen in test_a_retry_is_pushed_back."""
    made = channel(lone, ('grpc.primary_user_agent', 'that-agent/7'))
    made.unary_unary('/reins.v1.AdminService/GetServerInfo')(b'', timeout=30)
    (line,) = [line for line in lone.log().splitlines() if 'that-agent/7' in line]
    assert '/reins.v1.AdminService/GetServerInfo' in line and 'attempts before=0' in line


# What docs/protocol.md recommends.
POLICY = json.dumps({'methodConfig': [{'name': [{}], 'retryPolicy': {
    'maxAttempts': 5, 'initialBackoff': '0.1s', 'maxBackoff': '2s', 'backoffMultiplier': 2,
    'retryableStatusCodes': ['UNAVAILABLE']}}]})


def test_a_master_killed_under_a_retry_policy(tmp_path):
    """2.7: calls are sent again by the client itself, by its policy or because the server can't have seen them. Each key has
    one task, whatever happened to its submits."""
    master = start(tmp_path)
    stop, done, failed = threading.Event(), [], []

    def go(n):
        stub = tasks(master, ('grpc.service_config', POLICY), ('grpc.initial_reconnect_backoff_ms', 50),
                     ('grpc.min_reconnect_backoff_ms', 1000), ('grpc.max_reconnect_backoff_ms', 200))
        for i in itertools.count():
            if stop.is_set():
                return
            key = f'{n}-{i}'
            while True:  # an application that does not give up
                try:
                    done.append((key, submit(stub, key, queue='killed').id))
                    break
                except grpc.RpcError as e:
                    failed.append(e.code())
    threads = [threading.Thread(target=go, args=(n,), daemon=True) for n in range(4)]
    for t in threads:
        t.start()
    for _ in range(2):
        before = len(done)
        wait_for(lambda: len(done) > before + 50, 'submits')
        master.process.kill()
        master.process.wait()
        master.log_path.unlink()
        master.start()
    before = len(done)
    wait_for(lambda: len(done) > before + 50, lambda: master.log()[-2000:])
    stop.set()
    for t in threads:
        t.join(60)
    stub, found, token = tasks(master), [], ''
    while True:
        page = stub.ListTasks(T.ListTasksRequest(filter=T.TaskFilter(queue='killed'), page_size=1000, page_token=token), timeout=30)
        found += [t.id for t in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert sorted(found) == sorted(i for _, i in done) and len(set(found)) == len(found)
    assert set(failed) <= {grpc.StatusCode.UNAVAILABLE}
    master.close()


def test_a_restart_under_calls_that_wait(tmp_path):
    """2.9: SIGTERM: the listener goes first, what is in flight is answered; wait_for_ready finds the next process."""
    master = start(tmp_path)
    stop, codes, seen = threading.Event(), [], [0] * 3

    def go(n):
        stub = stubs.admin_grpc.AdminServiceStub(channel(
            master, ('grpc.service_config', POLICY), ('grpc.initial_reconnect_backoff_ms', 50),
            ('grpc.min_reconnect_backoff_ms', 1000), ('grpc.max_reconnect_backoff_ms', 200)))
        while not stop.is_set():
            try:
                stub.GetServerInfo(stubs.admin.GetServerInfoRequest(), wait_for_ready=True, timeout=60)
                seen[n] += 1
            except grpc.RpcError as e:
                codes.append((e.code(), e.details()))
    threads = [threading.Thread(target=go, args=(n,), daemon=True) for n in range(3)]
    for t in threads:
        t.start()
    for _ in range(2):
        before = list(seen)
        wait_for(lambda: all(b > a + 10 for a, b in zip(before, seen)), 'calls')
        master.process.terminate()
        assert master.process.wait(30) == 0
        master.log_path.unlink()
        master.start()
    before = list(seen)
    wait_for(lambda: all(b > a + 10 for a, b in zip(before, seen)), 'calls')
    stop.set()
    for t in threads:
        t.join(60)
    assert codes == []
    master.close()


def test_a_retry_is_pushed_back(make_cluster):
    """2.8: the master says when; the client's own backoff would be 10 ms."""
    c = make_cluster({'store-timeout': '1s'}).start()
    policy = POLICY.replace('"0.1s"', '"0.01s"').replace('"2s"', '"0.01s"').replace('5', '2', 1)
    stub = stubs.tasks_grpc.TaskServiceStub(c.channel(('grpc.service_config', policy)))
    task = submit(stub).id
    c.postgres.stop()
    wait_for(lambda: c.health() == 'NOT_SERVING', 'it is noticed')
    began = time.monotonic()
    error = refused(stub.GetTask, T.GetTaskRequest(task_id=task))
    took = time.monotonic() - began
    assert error.code() == grpc.StatusCode.UNAVAILABLE and 1 <= took < 10
    assert dict(error.trailing_metadata())['grpc-retry-pushback-ms'] == '1000'
    assert [a for a in ('0', '1', '2') if f'attempts before={a}' in c.log()] == ['0', '1']
    c.postgres.start()


def test_too_many_pings(lone):
    """1.28: a stock client that asks for it, and comes back with twice its interval by itself."""
    options = [('grpc.keepalive_time_ms', 50), ('grpc.keepalive_permit_without_calls', 1),
               ('grpc.http2.max_pings_without_data', 0), ('grpc.http2.min_ping_interval_without_data_ms', 50)]
    stub = tasks(lone, *options)
    task = submit(stub)
    request = T.GetTaskRequest(task_id=task.id)
    request.wait.FromSeconds(60)
    error = refused(stub.GetTask, request, timeout=60)
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: 'too_many_pings' in lone.log(), lambda: lone.log()[-2000:])
    stub.CancelTask(T.CancelTaskRequest(task_id=task.id), timeout=30, wait_for_ready=True)


def test_connections_grow_old_under_a_worker(make_cluster, start_worker, tmp_path):
    """1.29: the worker's session ends with its connection and comes again; its program never stops."""
    c = make_cluster({'max-connection-age': '500ms', 'max-connection-age-grace': '100ms'}).start()
    w = start_worker(c)
    go = tmp_path / 'go'
    task = c.submit(command=['sh', '-c', 'until [ -e "$GO" ]; do sleep 0.05; done'], env={'GO': str(go)}).id
    c.in_state(task, State.RUNNING)
    wait_for(lambda: w.log().count('session: open') >= 3, lambda: w.log())
    assert 'max-connection-age' in w.log()
    for _ in range(30):  # clients notice nothing
        assert c.get(task).state == State.RUNNING
    go.touch()
    done = c.finished(task)
    assert (done.state, len(done.attempts)) == (State.COMPLETED, 1)
