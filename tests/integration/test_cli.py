"""The reins command against a server in Python: what it sends, prints and returns."""
import base64
import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import uuid

import grpc
import pytest
from google.protobuf import any_pb2, timestamp_pb2

DEADLINE = 20  # seconds; far more than any of these takes


class Fake:
    """Tasks as a table that the tests write to; each method notes what it was asked."""

    def __init__(self, stubs):
        self.pb = stubs.task_pb2
        self.svc = stubs.task_service_pb2
        self.stubs = stubs
        self.tasks = {}
        self.by_key = {}
        self.logs = {}        # id -> [(attempt, stream, bytes or number of lost bytes)]
        self.requests = []
        self.metadata = []
        self.fail = []        # [(method, code, text, details)]: the next call of the method ends so
        self.release = {}     # id -> Event: GetTask(wait) and ReadLogs(follow) hold until it is set
        self.follows = True   # ReadLogs(follow) stays open
        self.early = 0        # so many seconds before the deadline a followed log ends with DEADLINE_EXCEEDED
        self.finish = None    # called with (fake, task) at submission
        self.serving = True
        self.lock = threading.RLock()

    def note(self, method, request, context):
        with self.lock:
            self.requests.append((method, request))
            self.metadata.append(dict(context.invocation_metadata()))
            for i, (name, code, text, details) in enumerate(self.fail):
                if name == method:
                    del self.fail[i]
                    break
            else:
                return
        if details:
            status = self.stubs.status_pb2.Status(code=code.value[0], message=text)
            for d in details:
                status.details.append(any_pb2.Any(
                    type_url='type.googleapis.com/' + d.DESCRIPTOR.full_name, value=d.SerializeToString()))
            context.set_trailing_metadata((('grpc-status-details-bin', status.SerializeToString()),))
        context.abort(code, text)

    def sent(self, method):
        with self.lock:
            return [r for m, r in self.requests if m == method]

    def add(self, state='PENDING', **fields):
        task = self.pb.Task(id=str(uuid.uuid4()), state=state, **fields)
        task.created_at.GetCurrentTime()
        self.tasks[task.id] = task
        return task

    def end(self, task, state, exit_code=None, signal=0, end='FAILED'):
        task.state = self.pb.Task.State.Value(state)
        task.attempt = max(task.attempt, 1)
        task.signal = signal
        if exit_code is not None:
            task.exit_code = exit_code
        attempt = task.attempts.add(number=task.attempt, end=end, worker_id='gpu-1', signal=signal)
        if exit_code is not None:
            attempt.exit_code = exit_code
        task.finished_at.GetCurrentTime()
        if task.id in self.release:
            self.release[task.id].set()

    def find(self, task_id, context):
        task = self.tasks.get(task_id)
        if not task:
            context.abort(grpc.StatusCode.NOT_FOUND, f'no task {task_id}')
        return task

    # ---- TaskService

    def SubmitTask(self, request, context):
        self.note('SubmitTask', request, context)
        with self.lock:
            known = self.by_key.get(request.idempotency_key)
            if known:
                return self.svc.SubmitTaskResponse(task=known, created=False)
            task = self.add(spec=request.spec)
            self.by_key[request.idempotency_key] = task
        if self.finish:
            self.finish(self, task)
        return self.svc.SubmitTaskResponse(task=task, created=True)

    def GetTask(self, request, context):
        self.note('GetTask', request, context)
        task = self.find(request.task_id, context)
        if request.HasField('wait') and task.id in self.release:
            self.release[task.id].wait(min(request.wait.ToTimedelta().total_seconds(), DEADLINE))
        return task

    def ListTasks(self, request, context):
        self.note('ListTasks', request, context)
        wanted = [t for t in self.tasks.values() if not request.filter.states or t.state in request.filter.states]
        start = int(request.page_token or '0')
        size = min(request.page_size or 100, 3)
        reply = self.svc.ListTasksResponse(tasks=wanted[start:start + size])
        if start + size < len(wanted):
            reply.next_page_token = str(start + size)
        return reply

    def CancelTask(self, request, context):
        self.note('CancelTask', request, context)
        task = self.find(request.task_id, context)
        if task.state in (self.pb.Task.COMPLETED, self.pb.Task.FAILED):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, 'the task has ended')
        task.state = self.pb.Task.CANCELLED
        return task

    def RetryTask(self, request, context):
        self.note('RetryTask', request, context)
        task = self.find(request.task_id, context)
        if task.state not in (self.pb.Task.FAILED, self.pb.Task.CANCELLED):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, 'only one that is FAILED or CANCELLED')
        task.state = self.pb.Task.PENDING
        return task

    def ReadLogs(self, request, context):
        self.note('ReadLogs', request, context)
        task = self.find(request.task_id, context)
        offset = 0
        newest = max([a for a, _, _ in self.logs.get(task.id, [])], default=0)
        wanted = request.attempt or newest
        for attempt, stream, data in list(self.logs.get(task.id, [])):
            if attempt != wanted:
                continue
            lost = data if isinstance(data, int) else 0
            data = b'' if lost else data
            if offset >= request.offset:
                yield self.svc.LogChunk(attempt=attempt, stream=stream, offset=offset, data=data, dropped_bytes=lost)
            offset += len(data) + lost
        if request.follow and self.follows and task.id in self.release:
            self.release[task.id].wait(max(context.time_remaining() - self.early, 0) if self.early else DEADLINE)
            if self.early and not self.release[task.id].is_set():
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, 'counted by the server')

    # ---- others

    def Check(self, request, context):
        self.note('Check', request, context)
        h = self.stubs.health_pb2.HealthCheckResponse
        return h(status=h.SERVING if self.serving else h.NOT_SERVING)

    def ListWorkers(self, request, context):
        self.note('ListWorkers', request, context)
        a = self.stubs.admin_service_pb2
        first = a.WorkerInfo(worker_id='gpu-1', state='CONNECTED', slots=4, slots_used=1, hostname='node7')
        first.resources.gpus = 2
        second = a.WorkerInfo(worker_id='cpu-with-a-long-name', state='DRAINING', slots=16)
        if request.page_token:
            return a.ListWorkersResponse(workers=[second])
        return a.ListWorkersResponse(workers=[first], next_page_token='more')


def serve(stubs, f, listen):
    """A started server for a Fake; `listen` adds the port."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    f.port = listen(server)

    class Task(stubs.task_service_pb2_grpc.TaskServiceServicer):
        pass

    class Admin(stubs.admin_service_pb2_grpc.AdminServiceServicer):
        pass

    class Health(stubs.health_pb2_grpc.HealthServicer):
        pass

    for cls, names in ((Task, ['SubmitTask', 'GetTask', 'ListTasks', 'CancelTask', 'RetryTask', 'ReadLogs']),
                       (Admin, ['ListWorkers']), (Health, ['Check'])):
        for name in names:
            setattr(cls, name, staticmethod(getattr(f, name)))
    stubs.task_service_pb2_grpc.add_TaskServiceServicer_to_server(Task(), server)
    stubs.admin_service_pb2_grpc.add_AdminServiceServicer_to_server(Admin(), server)
    stubs.health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    server.start()
    return server


@pytest.fixture
def fake(stubs):
    f = Fake(stubs)
    f.server = serve(stubs, f, lambda s: s.add_insecure_port('127.0.0.1:0'))
    yield f
    for event in f.release.values():
        event.set()
    f.server.stop(None).wait(DEADLINE)


@pytest.fixture
def reins(build_dir, fake, tmp_path):
    program = build_dir / 'client' / 'reins'
    env = {k: v for k, v in os.environ.items() if not k.startswith('REINS_')}
    env['REINS_SERVER'] = f'127.0.0.1:{fake.port}'

    def run(*args, popen=False, cwd=tmp_path, stdin=b'', extra_env=None):
        argv = [program, *args]
        full = {**env, **(extra_env or {})}
        if popen:
            return subprocess.Popen(argv, env=full, cwd=cwd, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return subprocess.run(argv, env=full, cwd=cwd, input=stdin, capture_output=True, timeout=DEADLINE)

    return run


def until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, 'the condition never came true'
        time.sleep(0.01)


# ---- submit

def test_submit_prints_the_id_and_sends_all_flags(reins, fake, tmp_path):
    (tmp_path / 'in').write_bytes(b'\x00\xffdata')
    r = reins('submit', '--name', 'train', '--queue=gpu', '--priority', '-5', '--env', 'A=1=2', '--env', 'B=',
              '--param', 'lr=0.1', '--label', 'team=rl', '--payload', 'in', '--timeout', '90s', '--expiry', '1h',
              '--max-attempts', '3', '--backoff', '500ms', '--exclusive', '--gpus', '2', '--cpus', '1.5',
              '--memory', '4GiB', '--working-dir', '.', '--idempotency-key', 'k1',
              '--', 'python3', 'train.py', '--lr', '0.1', '-o', 'x', '--', 'y')
    assert (r.returncode, r.stderr) == (0, b'')
    (request,) = fake.sent('SubmitTask')
    spec = request.spec
    assert r.stdout.decode().strip() == next(iter(fake.tasks))
    assert request.idempotency_key == 'k1'
    assert list(spec.command) == ['python3', 'train.py', '--lr', '0.1', '-o', 'x', '--', 'y']
    assert (spec.name, spec.queue, spec.priority, spec.exclusive) == ('train', 'gpu', -5, True)
    assert dict(spec.env) == {'A': '1=2', 'B': ''}
    assert dict(spec.params) == {'lr': '0.1'} and dict(spec.labels) == {'team': 'rl'}
    assert spec.payload == b'\x00\xffdata'
    assert (spec.timeout.seconds, spec.expiry.seconds) == (90, 3600)
    assert (spec.retry.max_attempts, spec.retry.initial_backoff.ToMilliseconds()) == (3, 500)
    assert (spec.resources.gpus, spec.resources.cpu_millis, spec.resources.memory_bytes) == (2, 1500, 4 << 30)
    assert spec.working_dir == str(tmp_path.resolve())
    assert spec.origin.directory == str(tmp_path.resolve())
    assert spec.origin.host and spec.origin.client.startswith('reins/') and spec.origin.git_commit == ''


def test_submit_records_git(reins, fake, tmp_path):
    def git(*args):
        return subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *args], cwd=tmp_path, check=True,
                              capture_output=True, text=True).stdout.strip()
    git('init', '-q')
    (tmp_path / 'f').write_text('1')
    git('add', 'f')
    git('commit', '-qm', 'x')
    assert reins('submit', '--', 'true').returncode == 0
    (tmp_path / 'f').write_text('2')
    assert reins('submit', '--', 'true').returncode == 0
    clean, dirty = [r.spec.origin for r in fake.sent('SubmitTask')]
    assert clean.git_commit == dirty.git_commit == git('rev-parse', 'HEAD')
    assert (clean.git_dirty, dirty.git_dirty) == (False, True)


def test_a_git_that_hangs_does_not_hold_up_a_submit(reins, fake, tmp_path):
    bin_dir = tmp_path / 'bin'
    bin_dir.mkdir()
    (bin_dir / 'git').write_text('#!/bin/sh\nsleep 600\n')
    (bin_dir / 'git').chmod(0o755)
    r = reins('submit', '--', 'true', extra_env={'PATH': f'{bin_dir}:{os.environ["PATH"]}'})
    assert r.returncode == 0
    assert fake.sent('SubmitTask')[0].spec.origin.git_commit == ''


def test_payload_from_stdin_and_a_random_key(reins, fake):
    data = bytes(range(256)) * 4000
    for _ in range(2):
        assert reins('submit', '--payload', '-', '--handler', 'sum', stdin=data).returncode == 0
    first, second = fake.sent('SubmitTask')
    assert first.spec.payload == data and first.spec.handler == 'sum' and not first.spec.command
    assert first.idempotency_key and first.idempotency_key != second.idempotency_key


@pytest.mark.parametrize('args, says', [
    ([], b'what is to run?'),
    (['echo', 'hi'], b'write -- before the command'),
    (['--handler', 'h', '--', 'x'], b'not both'),
    (['--env', 'A', '--', 'x'], b'KEY=VALUE'),
    (['--cpus', '1.2345', '--', 'x'], b'--cpus'),
    (['--priority', '1001', '--', 'x'], b'1000'),
    (['--payload', '/no/such/file', '--', 'x'], b'/no/such/file'),
    (['--prioriti', '1', '--', 'x'], b'did you mean --priority'),
    (['-o', 'yaml', '--', 'x'], b'json'),
    (['--server', 'http://h:x', '--', 'x'], b'port'),
    (['--tls-ca', '/etc/passwd', '--', 'x'], b'https'),
])
def test_wrong_usage_is_refused_before_anything_is_sent(reins, fake, args, says):
    r = reins('submit', *args)
    assert (r.returncode, r.stdout) == (64, b'')
    assert says in r.stderr
    assert not fake.requests


def test_refused_fields_are_named(reins, fake, stubs):
    e = stubs.error_details_pb2
    bad = e.BadRequest(field_violations=[e.BadRequest.FieldViolation(field='spec.queue', description='at most 255 bytes')])
    fake.fail.append(('SubmitTask', grpc.StatusCode.INVALID_ARGUMENT, 'the spec is not valid\x1b[31m', [bad]))
    r = reins('submit', '--', 'x')
    assert r.returncode == 64
    assert b'INVALID_ARGUMENT: the spec is not valid' in r.stderr
    assert b'(spec.queue: at most 255 bytes)' in r.stderr and b'\x1b' not in r.stderr


def test_retry_info_is_passed_on(reins, fake, stubs):
    wait = stubs.error_details_pb2.RetryInfo()
    wait.retry_delay.FromMilliseconds(1500)
    fake.fail += [('SubmitTask', grpc.StatusCode.UNAVAILABLE, 'the store is away', [wait])]
    r = reins('submit', '--idempotency-key', 'kk', '--', 'x')
    assert r.returncode == 69
    assert b'try again in 1.5 s' in r.stderr and b'--idempotency-key kk' in r.stderr


# ---- submit --wait

def finish_with(*chunks, state='COMPLETED', **how):
    def finish(fake, task):
        fake.logs[task.id] = list(chunks)
        fake.end(task, state, **how)
    return finish


def test_wait_passes_bytes_on_and_exits_with_the_code(reins, fake):
    noise = bytes(range(256)) * 64
    fake.finish = finish_with((1, 'STDOUT', noise), (1, 'STDERR', b'err\n'), (1, 'STDOUT', b'end'),
                              state='FAILED', exit_code=3)
    r = reins('submit', '--wait', '--', 'x')
    task_id = next(iter(fake.tasks))
    assert r.returncode == 3
    assert r.stdout == noise + b'end'
    assert r.stderr.startswith(f'reins submit: task {task_id}\n'.encode() + b'err\n')
    assert b'FAILED, exit code 3' in r.stderr


@pytest.mark.parametrize('how, code', [
    (dict(state='COMPLETED', exit_code=0, end='SUCCEEDED'), 0),
    (dict(state='FAILED', signal=9), 137),
    (dict(state='FAILED', signal=15, end='TIMED_OUT'), 124),
    (dict(state='FAILED', end='LAUNCH_FAILED'), 1),
    (dict(state='CANCELLED', signal=15, end='STOPPED'), 143),
    (dict(state='CANCELLED', exit_code=0, end='STOPPED'), 1),
])
def test_exit_codes(reins, fake, how, code):
    fake.finish = finish_with(**how)
    assert reins('submit', '--wait', '--', 'x').returncode == code


def test_wait_says_that_the_result_was_dropped(reins, fake):
    def finish(f, task):
        task.result_bytes, task.result_dropped = 3 << 20, True
        f.end(task, 'COMPLETED', 0, end='SUCCEEDED')
    fake.finish = finish
    done = reins('submit', '--wait', '--', 'true')
    assert done.returncode == 0
    assert b'was not kept' in done.stderr and b'3MiB' in done.stderr and b'limit' in done.stderr


def test_wait_follows_a_log_as_it_grows(reins, fake):
    def finish(f, task):
        f.release[task.id] = threading.Event()
        f.logs[task.id] = [(1, 'STDOUT', b'early\n')]
        task.state, task.attempt = f.pb.Task.RUNNING, 1
    fake.finish = finish
    p = reins('submit', '--wait', '--', 'x', popen=True)
    assert p.stdout.readline() == b'early\n'
    task = next(iter(fake.tasks.values()))
    fake.logs[task.id].append((1, 'STDOUT', b'late\n'))
    fake.logs[task.id].append((1, 'STDOUT', 77))
    fake.end(task, 'COMPLETED', exit_code=0, end='SUCCEEDED')
    out, err = p.communicate(timeout=DEADLINE)
    assert (out, p.returncode) == (b'late\n', 0)
    assert b'77 bytes of the log were not kept' in err


@pytest.mark.parametrize('how', [('submit', '--wait'), ('submit', '--wait', '-o', 'json'), ('wait',), ('logs', '-f')])
def test_what_a_task_waits_for_is_told_once(reins, fake, how):
    task = fake.add(state='PENDING', pending_reason='needs gpus=2;\nthe largest connected worker has 1')
    fake.finish = lambda f, t: t.CopyFrom(task)
    fake.release[task.id] = threading.Event()
    args = ('--', 'x') if how[0] == 'submit' else (task.id,)
    r = reins(*how, '--deadline', '4s', *args)
    assert r.returncode == 124
    assert r.stderr.count(b'waits: needs gpus=2; the largest connected worker has 1') == 1, r.stderr
    assert len(fake.requests) < 10


def test_a_file_that_is_here_and_not_there(reins, fake, tmp_path):
    (tmp_path / 'train.py').touch()
    fake.finish = lambda f, t: f.end(t, 'FAILED', exit_code=2)
    r = reins('submit', '--wait', '--', 'python3', '-u', 'train.py')
    assert r.returncode == 2 and b'"train.py" is in this directory' in r.stderr and b'--working-dir .' in r.stderr
    for args in (['--working-dir=.', '--', 'python3', 'train.py'], ['--', 'python3', 'else.py'], ['--', 'train.py', '-']):
        r = reins('submit', '--wait', *args)
        assert r.returncode == 2 and b'is in this directory' not in r.stderr
    fake.finish = lambda f, t: f.end(t, 'COMPLETED', exit_code=0)
    r = reins('submit', '--wait', '--', 'ls', 'train.py')
    assert r.returncode == 0 and b'is in this directory' not in r.stderr


def test_wait_sees_all_attempts_of_a_server_that_does_not_follow(reins, fake):
    fake.follows = False

    def finish(f, task):
        f.logs[task.id] = [(1, 'STDOUT', b'one\n')]
        task.state, task.attempt = f.pb.Task.RUNNING, 1
    fake.finish = finish
    p = reins('submit', '--wait', '--', 'x', popen=True)
    assert p.stdout.readline() == b'one\n'
    task = next(iter(fake.tasks.values()))
    with fake.lock:
        fake.logs[task.id] += [(1, 'STDOUT', b'more\n'), (2, 'STDOUT', b'two\n')]
        task.attempt = 2
        fake.end(task, 'COMPLETED', exit_code=0, end='SUCCEEDED')
    out, err = p.communicate(timeout=DEADLINE)
    assert (out, p.returncode) == (b'more\ntwo\n', 0)
    assert b'this is attempt 2' in err


def test_a_stream_that_breaks_goes_on_where_it_was(reins, fake):
    def finish(f, task):
        f.logs[task.id] = [(1, 'STDOUT', b'a'), (1, 'STDOUT', b'b')]
        f.end(task, 'COMPLETED', exit_code=0, end='SUCCEEDED')
        f.fail += [('GetTask', grpc.StatusCode.UNAVAILABLE, 'going down', [])] * 3
    fake.finish = finish
    r = reins('submit', '--wait', '--', 'x')
    assert (r.returncode, r.stdout) == (0, b'ab')
    assert b'going down; trying again' in r.stderr
    assert fake.sent('ReadLogs')[-1].offset == 2


def test_a_server_that_is_started_again_is_found(reins, fake, stubs):
    def finish(f, task):
        f.release[task.id] = threading.Event()
        f.logs[task.id] = [(1, 'STDOUT', b'first\n')]
        task.state, task.attempt = f.pb.Task.RUNNING, 1
    fake.finish = finish
    p = reins('submit', '--wait', '--', 'x', popen=True)
    assert p.stdout.readline() == b'first\n'
    (task,) = fake.tasks.values()
    fake.server.stop(None).wait(DEADLINE)
    line = b''
    while b'trying again' not in line:
        line = p.stderr.readline()
        assert line, 'it gave up'
    fake.logs[task.id].append((1, 'STDOUT', b'second\n'))
    fake.end(task, 'FAILED', exit_code=5)
    port = fake.port
    fake.server = serve(stubs, fake, lambda s: s.add_insecure_port(f'127.0.0.1:{port}'))
    out, _ = p.communicate(timeout=DEADLINE)
    assert (out, p.returncode) == (b'second\n', 5)
    assert len(fake.sent('SubmitTask')) == 1


def test_ctrl_c_leaves_the_task_alone(reins, fake):
    def finish(f, task):
        f.release[task.id] = threading.Event()
        f.logs[task.id] = [(1, 'STDOUT', b'go\n')]
        task.state, task.attempt = f.pb.Task.RUNNING, 1
    fake.finish = finish
    p = reins('submit', '--wait', '--', 'x', popen=True)
    assert p.stdout.readline() == b'go\n'
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=DEADLINE)
    task_id = next(iter(fake.tasks)).encode()
    assert p.returncode == 130
    assert b'goes on' in err and b'reins cancel ' + task_id in err and b'reins logs -f ' + task_id in err
    assert not fake.sent('CancelTask')


@pytest.mark.parametrize('early', [0, 0.05], ids=['by_its_own_clock', 'by_the_servers'])
def test_deadline_ends_the_waiting(reins, fake, early):
    def finish(f, task):
        f.release[task.id] = threading.Event()
        task.state, task.attempt = f.pb.Task.RUNNING, 1
    fake.finish, fake.early = finish, early
    r = reins('submit', '--wait', '--deadline', '300ms', '--', 'x')
    assert r.returncode == 124 and b'goes on' in r.stderr
    assert b'not ended in the time' in r.stderr and b'ping' not in r.stderr  # nothing is wrong with the server


def test_wait_as_json_prints_the_task_alone(reins, fake):
    fake.finish = finish_with((1, 'STDOUT', b'noise'), state='FAILED', exit_code=4)
    r = reins('submit', '--wait', '-o', 'json', '--', 'x')
    task = json.loads(r.stdout)
    assert (r.returncode, task['state'], task['exitCode'], r.stderr) == (4, 'FAILED', 4, b'')


# ---- the others

def test_status(reins, fake):
    task = fake.add(state='PENDING', pending_reason='needs gpus=2; the largest connected worker has 1')
    task.spec.command.extend(['python3', 'a b.py'])
    task.spec.params['lr'] = '0.1'
    text = reins('status', task.id).stdout.decode()
    for line in ('state      PENDING', 'waits      needs gpus=2', "command    python3 'a b.py'", 'params     lr=0.1'):
        assert line in text
    assert json.loads(reins('status', '-ojson', task.id).stdout)['id'] == task.id


@pytest.mark.parametrize('result, line', [
    (b'{"loss": 7.29}\n', 'result     {"loss": 7.29}'),
    ('größer'.encode(), 'result     größer'),
    (b'two\nlines', 'result     9 bytes; -o json has them, as base64'),
    (b'\n', 'result     1 bytes; -o json has them, as base64'),
    (b'\xff', 'result     1 bytes; -o json has them, as base64'),
    (b'x' * 400, 'result     ' + 'x' * 400),
    (b'x' * 401, 'result     401 bytes; -o json has them, as base64'),
])
def test_status_shows_a_result_of_one_line(reins, fake, result, line):
    task = fake.add(state='COMPLETED', result=result, result_bytes=len(result))
    assert line in reins('status', task.id).stdout.decode().splitlines()


def test_status_says_things_once(reins, fake):
    task = fake.add(error='exit code 3')
    task.spec.resources.gpus = 2
    fake.end(task, 'FAILED', exit_code=3)
    task.attempts[0].error = 'exit code 3'
    lines = reins('status', task.id).stdout.decode().splitlines()
    assert 'needs      gpus=2' in lines
    assert sum(line.count('exit code 3') for line in lines) == 2  # of the task, of its attempt


def test_status_of_no_task(reins, fake):
    r = reins('status', str(uuid.uuid4()))
    assert r.returncode == 1 and b'NOT_FOUND' in r.stderr and b'reins list' in r.stderr
    r = reins('status', 'nonsense')
    assert r.returncode == 64 and not fake.sent('GetTask')[1:]


def test_list_goes_through_pages(reins, fake):
    ids = [fake.add(state='RUNNING').id for _ in range(7)]
    fake.add(state='PENDING')
    r = reins('list', '--state', 'running', '--all')
    lines = r.stdout.decode().splitlines()
    assert lines[0].split()[:2] == ['ID', 'STATE']
    assert [line.split()[0] for line in lines[1:]] == ids
    r = reins('list', '--state', 'running', '--limit', '3')
    assert len(r.stdout.decode().splitlines()) == 4 and b'--page-token 3' in r.stderr
    r = reins('list', '-o', 'json', '--all', '--state', 'Running')
    assert [json.loads(line)['id'] for line in r.stdout.splitlines()] == ids
    assert reins('list', '--state', 'runing').returncode == 64


def test_output_to_a_closed_pipe_ends_quietly(reins, fake):
    for _ in range(2000):
        fake.add(state='RUNNING')
    p = reins('list', '--all', popen=True)
    p.stdout.read(10)
    p.stdout.close()
    assert p.wait(DEADLINE) == -signal.SIGPIPE
    assert p.stderr.read() == b''
    p.stderr.close()


def test_logs(reins, fake):
    task = fake.add(state='RUNNING', attempt=1)
    fake.logs[task.id] = [(1, 'STDOUT', b'out\xff'), (1, 'STDERR', b'err')]
    r = reins('logs', task.id)
    assert (r.returncode, r.stdout, r.stderr) == (0, b'out\xff', b'err')
    chunks = [json.loads(line) for line in reins('logs', task.id, '-o', 'json').stdout.splitlines()]
    assert [base64.b64decode(c['data']) for c in chunks] == [b'out\xff', b'err']
    reins('logs', '--stdout', '--tail', '10', '--attempt', '1', task.id)
    last = fake.sent('ReadLogs')[-1]
    assert (last.tail_bytes, last.attempt, last.stream, last.follow) == (10, 1, 1, False)


def test_wait_cancel_retry(reins, fake):
    good, bad = fake.add(), fake.add()
    fake.end(good, 'COMPLETED', exit_code=0, end='SUCCEEDED')
    fake.end(bad, 'FAILED', exit_code=9)
    assert reins('wait', bad.id).returncode == 9
    r = reins('wait', good.id, bad.id)
    assert r.returncode == 1 and b'COMPLETED' in r.stdout and b'exit code 9' in r.stdout
    r = reins('retry', bad.id)
    assert (r.returncode, fake.sent('RetryTask')[0].attempt) == (0, 1)
    # Several: one that can't be retried does not keep the others from it.
    fake.end(bad, 'FAILED', exit_code=9)
    r = reins('retry', '-o', 'json', good.id, bad.id)
    assert r.returncode == 1 and b'FAILED_PRECONDITION' in r.stderr
    assert [json.loads(line)['id'] for line in r.stdout.splitlines()] == [bad.id]
    fake.end(bad, 'FAILED', exit_code=9)
    assert reins('retry', '--attempt', '7', bad.id).returncode == 0 and fake.sent('RetryTask')[-1].attempt == 7
    assert reins('retry').returncode == reins('retry', '--attempt', '1', good.id, bad.id).returncode == 64
    assert reins('retry', str(uuid.uuid4())).returncode == 1
    bad.state = fake.pb.Task.PENDING
    r = reins('cancel', '--reason', 'wrong data', good.id, bad.id)
    assert r.returncode == 1 and b'FAILED_PRECONDITION' in r.stderr
    assert fake.sent('CancelTask')[1].reason == 'wrong data'
    assert bad.state == fake.pb.Task.CANCELLED


def test_workers(reins, fake):
    lines = reins('workers').stdout.decode().splitlines()
    assert lines[0].split()[:4] == ['WORKER', 'STATE', 'SLOTS', 'GPUS']
    assert lines[1].split()[:5] == ['gpu-1', 'CONNECTED', '1/4', '0/2', 'all']
    assert lines[2].startswith('cpu-with-a-long-name') and 'DRAINING' in lines[2]
    assert len(lines) == 3


def test_ping(reins, fake):
    assert reins('ping').returncode == 0
    fake.serving = False
    assert reins('ping').returncode == 69


def test_what_is_not_there_is_said(reins, fake):
    r = reins('queues')
    assert r.returncode == 1 and b'UNIMPLEMENTED' in r.stderr
    r = reins('ping', '--server', 'http://127.0.0.1:1')
    assert r.returncode == 69 and b'127.0.0.1:1' in r.stderr and b'REINS_SERVER' in r.stderr


def test_a_server_that_says_nothing(reins, fake):
    with socket.create_server(('127.0.0.1', 0)) as silent:
        url = f'127.0.0.1:{silent.getsockname()[1]}'
        r = reins('ping', '--server', url, '--deadline', '300ms')
        assert r.returncode == 124 and url.encode() in r.stderr
        silent.accept()[0].close()
        p = reins('ping', '--server', url, popen=True)
        peer, _ = silent.accept()
        with peer:
            peer.recv(1)  # it has connected, and watches for signals
            p.send_signal(signal.SIGINT)
            _, err = p.communicate(timeout=DEADLINE)
        assert p.returncode == 130 and b'interrupted' in err


def test_tls(reins, fake, stubs, tmp_path):
    def openssl(*args):
        subprocess.run(['openssl', *args], cwd=tmp_path, check=True, capture_output=True)
    for name in ('ca', 'other'):
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
                '-subj', f'/CN={name}', '-keyout', f'{name}.key', '-out', f'{name}.pem')
    for name, extension in (('server', 'subjectAltName=DNS:localhost'), ('client', 'subjectAltName=DNS:me')):
        (tmp_path / 'ext').write_text(extension)
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', f'/CN={name}',
                '-keyout', f'{name}.key', '-out', f'{name}.csr')
        openssl('x509', '-req', '-in', f'{name}.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2',
                '-extfile', 'ext', '-out', f'{name}.pem')
    read = lambda name: (tmp_path / name).read_bytes()
    credentials = grpc.ssl_server_credentials([(read('server.key'), read('server.pem'))], read('ca.pem'), True)
    server = serve(stubs, fake, lambda s: s.add_secure_port('127.0.0.1:0', credentials))
    try:
        url = f'https://localhost:{fake.port}'
        own = ['--tls-cert', 'client.pem', '--tls-key', 'client.key']
        r = reins('ping', '--server', url, '--tls-ca', 'ca.pem', *own)
        assert r.returncode == 0, r.stderr
        r = reins('ping', '--server', url, extra_env={
            'REINS_TLS_CA': 'ca.pem', 'REINS_TLS_CERT': 'client.pem', 'REINS_TLS_KEY': 'client.key'})
        assert r.returncode == 0, r.stderr
        assert reins('ping', '--server', url, '--tls-ca', 'other.pem', *own).returncode == 77
        assert reins('ping', '--server', f'https://127.0.0.1:{fake.port}', '--tls-ca', 'ca.pem', *own).returncode == 77
        assert reins('ping', '--server', url, '--tls-ca', 'ca.pem').returncode in (69, 77)  # as the server puts it
        r = reins('ping', '--server', url, '--tls-ca', 'none.pem')
        assert r.returncode == 64 and b'none.pem' in r.stderr
    finally:
        server.stop(None).wait(DEADLINE)


@pytest.mark.parametrize('code, exit_code', [('PERMISSION_DENIED', 77), ('UNAUTHENTICATED', 77), ('DEADLINE_EXCEEDED', 124),
                                             ('INTERNAL', 1), ('RESOURCE_EXHAUSTED', 1)])
def test_codes_of_refusals(reins, fake, code, exit_code):
    fake.fail.append(('GetTask', grpc.StatusCode[code], 'no', []))
    r = reins('status', str(uuid.uuid4()))
    assert r.returncode == exit_code and code.encode() in r.stderr


def test_the_token_is_sent_and_never_shown(reins, fake):
    r = reins('ping', extra_env={'REINS_TOKEN': 's3cret'})
    assert r.returncode == 0
    assert fake.metadata[0]['authorization'] == 'Bearer s3cret'
    assert b's3cret' not in r.stdout + r.stderr


def test_flags_before_the_command_and_help(reins, fake):
    r = reins('--server', 'http://127.0.0.1:1', 'ping')
    assert r.returncode == 69
    r = reins('cancle')
    assert r.returncode == 64 and b'did you mean `reins cancel`' in r.stderr
    for args in (['--help'], ['help'], ['help', 'list'], ['list', '--help'], ['--version']):
        r = reins(*args)
        assert (r.returncode, r.stderr) == (0, b'') and r.stdout
    assert reins().returncode == 64
    listed = reins('--help').stdout.decode()
    assert 'retry' in listed and 'queues' in listed
    assert not fake.requests
