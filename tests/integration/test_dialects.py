"""Connect and gRPC-Web on the port of gRPC, with curl and http.client: over HTTP/1.1, HTTP/2 without TLS, and TLS."""
import base64
import gzip
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time

import pytest
import stubs
from cluster import PATIENCE, wait_for
from fake_worker import hold
from monitor import metrics

TASKS = '/reins.v1.TaskService/'
ADMIN = '/reins.v1.AdminService/'
HEALTH = '/grpc.health.v1.Health/'
JSON, PROTO = 'application/json', 'application/proto'
STREAM = 'application/connect+json'
VERSIONS = {'1.1': ['--http1.1'], '2': ['--http2-prior-knowledge'], '1.0': ['--http1.0']}
T = stubs.tasks

pytestmark = pytest.mark.skipif(not shutil.which('curl'), reason='no curl here')


class Reply:
    def __init__(self, head, body):
        lines = head.strip().split('\r\n\r\n')[-1].splitlines()
        self.status = int(lines[0].split()[1])
        self.version = lines[0].split()[0]
        self.fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(':')
            self.fields[name.lower()] = value.strip()
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f'{self.status} {self.fields} {self.body[:500]}'


def curl(cluster, path, body=b'{}', type_=JSON, *more, version='1.1', timeout=60, scheme='http'):
    command = ['curl', '-sS', '-m', str(timeout), *VERSIONS[version], '-D', '/dev/stderr', '-H', 'expect:', *more]
    if body is not None:
        command += ['--data-binary', '@-']
    if type_ is not None:
        command += ['-H', f'content-type: {type_}']
    host = cluster.address if scheme == 'http' else f'localhost:{cluster.port}'
    done = subprocess.run([*command, f'{scheme}://{host}{path}'], input=body.encode() if isinstance(body, str) else body or b'',
                          capture_output=True, timeout=timeout + 30)
    assert done.returncode == 0, done.stderr
    return Reply(done.stderr.decode(), done.stdout)


def in_flight(cluster, method):
    return metrics(cluster)[f'reins_rpc_in_flight{{method="reins.v1.TaskService/{method}"}}']


def envelope(message, flags=0):
    return struct.pack('>BI', flags, len(message)) + message


def envelopes(data):
    found = []
    while data:
        flags, size = struct.unpack('>BI', data[:5])
        found.append((flags, data[5:5 + size]))
        assert len(data) >= 5 + size
        data = data[5 + size:]
    return found


@pytest.fixture(params=['1.1', '2'])
def version(request):
    return request.param


# ---- unary ----

def test_as_in_the_documentation(shared):
    """The line that README and --help show, with nothing but what is in it."""
    done = subprocess.run(['curl', '-sS', '-d', '{"spec":{"command":["echo","hi"]}}', '-H', 'content-type: application/json',
                           f'http://{shared.address}/reins.v1.TaskService/SubmitTask'], capture_output=True, text=True, timeout=60)
    made = json.loads(done.stdout)
    assert made['created'] and made['task']['spec']['command'] == ['echo', 'hi']
    shared.cancel(made['task']['id'])


@pytest.mark.parametrize('version', list(VERSIONS))
def test_json(shared, version):
    r = curl(shared, TASKS + 'SubmitTask', '{"spec":{"command":["a"],"queue":"connect"}}', version=version)
    assert r.status == 200 and r.fields['content-type'] == JSON and r.fields['server'].startswith('reins/')
    task = r.json['task']
    r = curl(shared, TASKS + 'GetTask', json.dumps({'taskId': task['id']}), JSON + '; charset=utf-8', version=version)
    assert r.json['state'] == 'PENDING' and r.json['spec'] == {'command': ['a'], 'queue': 'connect'}
    shared.cancel(task['id'])


def test_proto(shared, version):
    request = T.SubmitTaskRequest(spec=stubs.task.TaskSpec(command=['a'], queue='connect'))
    r = curl(shared, TASKS + 'SubmitTask', request.SerializeToString(), PROTO, version=version)
    assert r.status == 200 and r.fields['content-type'] == PROTO
    shared.cancel(T.SubmitTaskResponse.FromString(r.body).task.id)
    # Errors are JSON even then.
    r = curl(shared, TASKS + 'GetTask', b'', PROTO, version=version)
    assert r.status == 400 and r.fields['content-type'] == JSON and r.json['code'] == 'invalid_argument'


def test_errors(shared, version):
    r = curl(shared, TASKS + 'SubmitTask', '{"spec":{"command":["a"],"priority":5000}}', version=version)
    assert r.status == 400 and r.json['code'] == 'invalid_argument' and r.json['message'].startswith('spec.priority')
    details = {d['type']: d['value'] for d in r.json['details']}
    assert not any(v.endswith('=') for v in details.values())
    text = details['google.rpc.BadRequest']
    assert b'spec.priority' in base64.b64decode(text + '=' * (-len(text) % 4))
    missing = '01990000-0000-7000-8000-000000000000'
    r = curl(shared, TASKS + 'GetTask', json.dumps({'task_id': missing}), version=version)
    assert r.status == 404 and r.json['code'] == 'not_found'
    for body in ('', '{', '[]', '{"taskId": 5}', '{"nothing": 1}', '{} {}', b'\xff'):
        r = curl(shared, TASKS + 'GetTask', body, version=version)
        assert r.status == 400 and r.json['code'] == 'invalid_argument' and r.json['message'], body


@pytest.mark.parametrize('path, type_, status', [
    (TASKS + 'GetTask', 'text/plain', 415),                      # what a foreign page may send without being asked
    (TASKS + 'GetTask', 'application/x-www-form-urlencoded', 415),
    (TASKS + 'GetTask', 'application/json; charset=latin1', 415),
    (TASKS + 'GetTask', 'application/jsonx', 415),
    (TASKS + 'GetTask', None, 415),
    (TASKS + 'GetTask', STREAM, 415),
    (TASKS + 'ReadLogs', JSON, 415),
    (TASKS + 'GetTask', 'application/grpc-web-text', 415),
    (TASKS + 'gettask', JSON, 404),
    (TASKS + 'GetTask/', JSON, 404),
    ('/nothing', JSON, 404),
    ('/', JSON, 404),
])
def test_what_is_no_call(shared, version, path, type_, status):
    r = curl(shared, path, b'{}', type_, *(['-H', 'content-type:'] if type_ is None else []), version=version)
    assert r.status == status, r
    if status == 415:
        assert JSON in r.fields['accept-post']


def test_other_verbs(shared, version):
    for verb, path, allow in (('PUT', 'GetTask', 'GET, POST'), ('DELETE', 'CancelTask', 'POST'), ('GET', 'CancelTask', 'POST'),
                              ('OPTIONS', 'GetTask', 'GET, POST'), ('GET', 'SubmitTask?connect=v1&encoding=json&message={}', 'POST')):
        r = curl(shared, TASKS + path, None, JSON, '-g', '-X', verb, version=version)
        assert r.status == 405 and r.fields['allow'] == allow, (verb, r)
    assert curl(shared, '/nothing', None, None, version=version).status == 404


def test_only_http2_can_carry_it(shared):
    for path, type_ in ((TASKS + 'GetTask', 'application/grpc'), ('/reins.v1.WorkerService/Session', STREAM)):
        assert curl(shared, path, b'', type_).status == 505


def test_versions_of_the_protocol(shared):
    for value, status in (('1', 200), ('2', 400), ('', 400)):
        r = curl(shared, ADMIN + 'GetServerInfo', '{}', JSON, '-H', f'connect-protocol-version: {value}' if value
                 else 'connect-protocol-version;')
        assert r.status == status, r


# ---- deadlines ----

def test_deadline(shared, version):
    made = shared.submit(queue='connect')
    wait = json.dumps({'taskId': made.id, 'wait': '60s'})
    began = time.monotonic()
    r = curl(shared, TASKS + 'GetTask', wait, JSON, '-H', 'connect-timeout-ms: 300', version=version)
    assert r.status == 504 and r.json['code'] == 'deadline_exceeded' and time.monotonic() - began < 20
    for value in ('1s', '-1', '12345678901', '1.5', ' '):
        r = curl(shared, TASKS + 'GetTask', wait, JSON, '-H', f'connect-timeout-ms: {value}' if value.strip() else
                 'connect-timeout-ms;', version=version)
        assert r.status == 400 and 'connect-timeout-ms' in r.json['message'], value
    r = curl(shared, TASKS + 'GetTask', wait, JSON, '-H', 'connect-timeout-ms: 300', '-H', 'connect-timeout-ms: 300', version=version)
    assert r.status == 400, 'one that is given twice is none'
    shared.cancel(made.id)


# ---- compression ----

def test_gzip(shared, version):
    spec = {'command': ['a' * 20000], 'queue': 'connect'}
    body = gzip.compress(json.dumps({'spec': spec}).encode())
    r = curl(shared, TASKS + 'SubmitTask', body, JSON, '-H', 'content-encoding: gzip', '-H', 'accept-encoding: br, gzip;q=0.5',
             version=version)
    assert r.status == 200 and r.fields['content-encoding'] == 'gzip' and len(r.body) < 2000
    task = json.loads(gzip.decompress(r.body))['task']
    assert task['spec'] == spec
    for accept in ('identity', 'br', 'gzip;q=0'):
        r = curl(shared, TASKS + 'GetTask', json.dumps({'taskId': task['id']}), JSON, '-H', f'accept-encoding: {accept}', version=version)
        assert 'content-encoding' not in r.fields and r.json['spec'] == spec
    # Too short to pay.
    r = curl(shared, ADMIN + 'GetServerInfo', '{}', JSON, '-H', 'accept-encoding: gzip', version=version)
    assert 'content-encoding' not in r.fields
    shared.cancel(task['id'])


def test_gzip_that_is_refused(shared, version):
    r = curl(shared, TASKS + 'GetTask', b'x', JSON, '-H', 'content-encoding: br', version=version)
    assert r.status == 501 and r.json['code'] == 'unimplemented' and 'gzip' in r.json['message']
    assert 'gzip' in r.fields['accept-encoding']
    good = gzip.compress(b'{"taskId":"x"}')
    for body in (b'{}', good[:-1], good + b'x', good[:20] + b'\xff' + good[21:]):
        r = curl(shared, TASKS + 'GetTask', body, JSON, '-H', 'content-encoding: gzip', version=version)
        assert r.status == 400 and r.json['code'] == 'invalid_argument', body
    bomb = gzip.compress(b'{"taskId":"' + b'x' * 50_000_000)
    r = curl(shared, TASKS + 'GetTask', bomb, JSON, '-H', 'content-encoding: gzip', version=version)
    assert r.status == 429 and r.json['code'] == 'resource_exhausted' and '4194304' in r.json['message']
    # An empty body is not inflated.
    r = curl(shared, ADMIN + 'GetServerInfo', b'', PROTO, '-H', 'content-encoding: gzip', version=version)
    assert r.status == 200


def test_message_limit(shared, version):
    r = curl(shared, TASKS + 'GetTask', b'x' * (5 << 20), JSON, version=version)
    assert r.status == 429 and '4194304' in r.json['message']
    big = curl(shared, TASKS + 'GetTask', json.dumps({'taskId': 'x' * 4_000_000}), version=version)
    assert big.status == 400 and big.json['code'] == 'invalid_argument'


# ---- GET ----

@pytest.mark.parametrize('query', [
    'connect=v1&encoding=json&message=%7B%22pageSize%22%3A2%7D', 'message=%7B%22pageSize%22:+2%7D&encoding=json',
    'base64=1&encoding=json&message=eyJwYWdlU2l6ZSI6Mn0&connect=v1', 'base64=1&encoding=json&message=eyJwYWdlU2l6ZSI6Mn0%3D&x=y',
    'connect=v1&encoding=json&compression=gzip&base64=1&message='
    + base64.urlsafe_b64encode(gzip.compress(b'{"pageSize":2}', mtime=0)).decode().rstrip('='),
])
def test_get(shared, version, query):
    ids = [shared.submit(queue='get').id for _ in range(3)]
    r = curl(shared, f'{TASKS}ListTasks?{query}', None, None, version=version)
    assert r.status == 200 and len(r.json['tasks']) == 2, r
    for i in ids:
        shared.cancel(i)


@pytest.mark.parametrize('query, status', [
    ('encoding=xml&message=', 415), ('encoding=json', 400), ('encoding=json&message=%7', 400), ('encoding=json&message=%zz', 400),
    ('encoding=json&base64=1&message=!!', 400), ('encoding=json&message={}&connect=v2', 400),
    ('encoding=json&message={}&compression=br', 501), ('encoding=proto&message=%FF', 400), ('x', 415),
])
def test_get_that_is_refused(shared, query, status):
    assert curl(shared, f'{TASKS}ListTasks?{query}', None, None, '-g').status == status


def test_get_proto(shared):
    message = base64.urlsafe_b64encode(T.ListTasksRequest(page_size=1).SerializeToString()).decode()
    r = curl(shared, f'{TASKS}ListTasks?connect=v1&encoding=proto&base64=1&message={message}', None, None)
    assert r.status == 200 and r.fields['content-type'] == PROTO
    T.ListTasksResponse.FromString(r.body)


def test_safe_is_what_the_contract_says(shared):
    """Each method of the contract: GET is 405, or is answered by the method."""
    level = stubs.tasks.DESCRIPTOR.services_by_name['TaskService'].methods_by_name['GetTask'].GetOptions().idempotency_level
    assert level == 1
    seen = 0
    for file in (stubs.tasks.DESCRIPTOR, stubs.admin.DESCRIPTOR):
        for service in file.services_by_name.values():
            for method in service.methods:
                path = f'/{service.full_name}/{method.name}'
                r = curl(shared, f'{path}?connect=v1&encoding=json&message=%7B%7D', None, None)
                if r.status == 404 and 'code' not in r.body.decode():
                    continue  # not served
                assert (r.status != 405) == (method.GetOptions().idempotency_level == 1), (path, r)
                seen += 1
    assert seen >= 10


# ---- streams ----

def held(cluster, make_worker):
    """A worker, and an attempt that it holds; it takes nothing of the other tests'."""
    worker = make_worker(cluster, worker_id='connect', policy=hold, queues=['logs'])
    return worker, worker.wait_dispatch(cluster.submit(queue='logs').id)


def logged(cluster, make_worker, text=b'hello'):
    worker, ref = held(cluster, make_worker)
    worker.log(ref, 0, text)
    worker.outcome(ref, log_end=len(text))
    cluster.finished(ref[0])
    return ref[0]


@pytest.mark.parametrize('version', list(VERSIONS))
def test_server_stream(shared, make_worker, version):
    task = logged(shared, make_worker)
    r = curl(shared, TASKS + 'ReadLogs', envelope(json.dumps({'taskId': task}).encode()), STREAM, version=version)
    assert r.status == 200 and r.fields['content-type'] == STREAM
    assert ('transfer-encoding' in r.fields) == (version == '1.1')
    *messages, (flags, end) = envelopes(r.body)
    assert flags == 2 and json.loads(end) == {} and all(f == 0 for f, _ in messages)
    data = b''.join(base64.b64decode(json.loads(m).get('data', '')) for _, m in messages)
    assert data == b'hello'
    request = envelope(T.ReadLogsRequest(task_id=task).SerializeToString())
    r = curl(shared, TASKS + 'ReadLogs', request, 'application/connect+proto', version=version)
    *messages, (flags, end) = envelopes(r.body)
    assert b''.join(T.LogChunk.FromString(m).data for _, m in messages) == b'hello' and (flags, end) == (2, b'{}')


def test_compressed_stream(shared, make_worker, version):
    text = b'line of a log\n' * 2000
    task = logged(shared, make_worker, text)
    request = envelope(gzip.compress(T.ReadLogsRequest(task_id=task).SerializeToString()), 1)
    r = curl(shared, TASKS + 'ReadLogs', request, 'application/connect+proto', '-H', 'connect-content-encoding: gzip',
             '-H', 'connect-accept-encoding: gzip', version=version)
    assert r.fields['connect-content-encoding'] == 'gzip' and len(r.body) < len(text) // 4
    *messages, (flags, end) = envelopes(r.body)
    data = b''.join(T.LogChunk.FromString(gzip.decompress(m) if f else m).data for f, m in messages)
    assert data == text and (flags, end) == (2, b'{}')


@pytest.mark.parametrize('body, fields, code', [
    (envelope(b'{"taskId":"x"}'), [], 'invalid_argument'),
    (envelope(b'{"taskId":"01990000-0000-7000-8000-000000000000"}'), [], 'not_found'),
    (b'', [], 'unimplemented'),
    (envelope(b'{}') * 2, [], 'unimplemented'),
    (b'\0\0\0\0', [], 'internal'),
    (envelope(b'{}')[:-1], [], 'internal'),
    (envelope(b'{}', 2), [], 'invalid_argument'),
    (envelope(b'{}', 4), [], 'invalid_argument'),
    (envelope(gzip.compress(b'{}', mtime=0), 1), [], 'internal'),
    (envelope(b'{}', 1), ['-H', 'connect-content-encoding: gzip'], 'invalid_argument'),
    (envelope(b'{}'), ['-H', 'connect-content-encoding: br'], 'unimplemented'),
    (envelope(b'{}'), ['-H', 'connect-timeout-ms: x'], 'invalid_argument'),
    (b'\0\x7f\xff\xff\xff', [], 'resource_exhausted'),
])
def test_stream_errors(shared, version, body, fields, code):
    """HTTP says 200 always; the last envelope says what is wrong."""
    r = curl(shared, TASKS + 'ReadLogs', body, STREAM, *fields, version=version)
    assert r.status == 200 and r.fields['content-type'] == STREAM, r
    (flags, end), = envelopes(r.body)
    assert flags == 2 and json.loads(end)['error']['code'] == code, end


def test_stream_without_an_envelope(shared, version):
    """Who takes a stream for a plain call is told what is missing."""
    r = curl(shared, TASKS + 'ReadLogs', b'{"taskId": "x"}', STREAM, version=version)
    (flags, end), = envelopes(r.body)
    error = json.loads(end)['error']
    assert flags == 2 and error['code'] == 'invalid_argument' and 'wants five bytes before it' in error['message'], end


def test_stream_is_flushed_and_cancelled(shared, make_worker, version):
    """Each envelope is there when it was sent, and who leaves ends the call."""
    worker, ref = held(shared, make_worker)
    body = envelope(json.dumps({'taskId': ref[0], 'follow': True}).encode())
    p = subprocess.Popen(['curl', '-sSN', '-m', '60', *VERSIONS[version], '--data-binary', '@-', '-H', f'content-type: {STREAM}',
                          f'http://{shared.address}{TASKS}ReadLogs'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(body)
    p.stdin.close()
    try:
        for i, text in enumerate((b'one', b'two')):
            worker.log(ref, 3 * i, text, live=i > 0)
            message = {}
            while 'data' not in message:
                flags, size = struct.unpack('>BI', p.stdout.read(5))
                message = json.loads(p.stdout.read(size))
                assert flags == 0
            worker.wait(lambda: worker.follows.get(ref), 'it is followed')
            assert base64.b64decode(message['data']) == text
        wait_for(lambda: in_flight(shared, 'ReadLogs') == 1, 'the call')
        p.kill()
        p.wait(10)
        wait_for(lambda: in_flight(shared, 'ReadLogs') == 0, 'the call is cancelled')
    finally:
        p.kill()
        p.wait(10)
        p.stdout.close()


# ---- gRPC-Web ----

def web_status(data):
    *messages, (flags, block) = envelopes(data)
    assert flags == 0x80
    lines = block.decode().split('\r\n')
    assert lines.pop() == ''
    return messages, dict(line.split(':', 1) for line in lines)


def test_grpc_web(shared, make_worker, version):
    task = logged(shared, make_worker)
    for type_ in ('application/grpc-web', 'application/grpc-web+proto'):
        r = curl(shared, TASKS + 'GetTask', envelope(T.GetTaskRequest(task_id=task).SerializeToString()), type_, '-H', 'x-grpc-web: 1',
                 version=version)
        (message,), status = web_status(r.body)
        assert r.status == 200 and r.fields['content-type'] == 'application/grpc-web+proto' and status == {'grpc-status': '0'}
        assert stubs.task.Task.FromString(message[1]).id == task
    r = curl(shared, TASKS + 'ReadLogs', envelope(T.ReadLogsRequest(task_id=task).SerializeToString()), 'application/grpc-web',
             version=version)
    messages, status = web_status(r.body)
    assert b''.join(T.LogChunk.FromString(m).data for _, m in messages) == b'hello' and status['grpc-status'] == '0'
    for path, body, code in ((TASKS + 'GetTask', envelope(b''), '3'), (TASKS + 'Nothing', envelope(b''), '12'),
                             (TASKS + 'GetTask', b'', '12'),
                             (TASKS + 'GetTask', envelope(b'', 3), '13')):
        r = curl(shared, path, body, 'application/grpc-web+proto', version=version)
        messages, status = web_status(r.body)
        assert not messages and status['grpc-status'] == code and status['grpc-message'], (path, status)
    # grpc-timeout is its word for deadlines.
    r = curl(shared, HEALTH + 'Watch', envelope(b''), 'application/grpc-web', '-H', 'grpc-timeout: 200m', version=version)
    assert web_status(r.body)[1]['grpc-status'] == '4'


# ---- streams both ways ----

@pytest.mark.parametrize('service', ['grpc.reflection.v1', 'grpc.reflection.v1alpha'])
def test_streams_of_requests(shared, service):
    """As `buf curl` asks what there is, in the protocol that it calls with. A message in, a message out; the end is ours after theirs."""
    path, list_all = f'/{service}.ServerReflection/ServerReflectionInfo', b'\x3a\0'
    r = curl(shared, path, envelope(list_all) * 2, 'application/connect+proto', version='2')
    *messages, (flags, end) = envelopes(r.body)
    assert r.status == 200 and len(messages) == 2 and (flags, end) == (2, b'{}')
    assert all(f == 0 and b'reins.v1.TaskService' in m for f, m in messages)
    r = curl(shared, path, envelope(b'{"listServices":""}') + envelope(b'{'), STREAM, version='2')
    (_, one), (flags, end) = envelopes(r.body)
    assert 'reins.v1.TaskService' in one.decode() and flags == 2 and json.loads(end)['error']['code'] == 'invalid_argument'
    r = curl(shared, path, envelope(list_all), 'application/grpc-web', version='2')
    (message,), status = web_status(r.body)
    assert b'reins.v1.TaskService' in message[1] and status['grpc-status'] == '0'
    for type_ in ('application/connect+proto', 'application/grpc-web'):
        assert curl(shared, path, envelope(list_all), type_).status == 505


# ---- pages of other origins ----

def test_no_other_origin_by_default(shared, version):
    r = curl(shared, TASKS + 'ListTasks', '{}', JSON, '-H', 'origin: https://a.example', version=version)
    assert r.status == 200 and not any(f.startswith('access-control') for f in r.fields)
    r = curl(shared, TASKS + 'ListTasks', None, None, '-X', 'OPTIONS', '-H', 'origin: https://a.example',
             '-H', 'access-control-request-method: POST', version=version)
    assert r.status == 405 and not any(f.startswith('access-control') for f in r.fields)


ORIGINS = 'https://a.example,http://b.example:8080'


def test_a_page_that_calls_us_by_its_own_name(make_cluster):
    """DNS rebinding: of the same origin for the browser, and only its Host says whose page it is."""
    cluster = make_cluster(flags={'allow-host': 'scheduler.example'}).start()
    def status(host, *more):
        return curl(cluster, TASKS + 'SubmitTask', '{"spec":{"command":["true"]}}', JSON, '-H', f'host: {host}', *more)
    for host in ('evil.example', f'evil.example:{cluster.port}', 'localhost.evil.example', '127.0.0.1.evil.example', 'xlocalhost',
                 'scheduler.example.evil', ':80'):
        r = status(host)
        assert r.status == 403 and 'no name of this server' in r.body.decode(), host
        assert curl(cluster, '/metrics', None, None, '-H', f'host: {host}').status == 403
    for host in ('localhost', f'LocalHost:{cluster.port}', 'tasks.localhost', '127.0.0.1', '[::1]:7346', socket.gethostname(),
                 'Scheduler.example:1'):
        assert status(host).status == 200, host
    assert len(cluster.list_all()) == 7


def test_cors(make_cluster):
    cluster = make_cluster(flags={'cors-origin': ORIGINS}).start()
    for version in ('1.1', '2'):
        for origin, good in (('https://a.example', True), ('http://b.example:8080', True), ('https://a.example.evil', False),
                             ('http://a.example', False), ('null', False)):
            asked = ['-H', f'origin: {origin}']
            r = curl(cluster, TASKS + 'ListTasks', '{}', JSON, *asked, version=version)
            assert r.status == 200 and r.fields['vary'] == 'origin'
            assert r.fields.get('access-control-allow-origin') == (origin if good else None)
            assert ('grpc-status' in r.fields.get('access-control-expose-headers', '')) == good
            r = curl(cluster, TASKS + 'ListTasks', None, None, '-X', 'OPTIONS', *asked, '-H', 'access-control-request-method: POST',
                     '-H', 'access-control-request-headers: content-type', version=version)
            assert r.status == (204 if good else 405)
            if good:
                assert r.fields['access-control-allow-origin'] == origin and r.fields['access-control-max-age'] == '7200'
                assert 'connect-protocol-version' in r.fields['access-control-allow-headers']
        # An error must be readable too.
        r = curl(cluster, TASKS + 'GetTask', '{', JSON, '-H', 'origin: https://a.example', version=version)
        assert r.status == 400 and r.fields['access-control-allow-origin'] == 'https://a.example'


# ---- the table's paths over HTTP/2; TLS ----

def test_pages_over_http2(shared):
    for path in ('/healthz', '/readyz', '/metrics', '/metrics?x=y'):
        r = curl(shared, path, None, None, version='2')
        assert r.status == 200 and r.version == 'HTTP/2' and r.body and r.fields['content-type'].startswith('text/plain'), r
    r = curl(shared, '/healthz', None, None, '-I', version='2')
    assert r.status == 200 and r.fields['content-length'] == '3'
    r = curl(shared, '/healthz', b'', None, version='2')
    assert r.status == 405 and r.fields['allow'] == 'GET, HEAD'


def test_tls(make_cluster):
    """h2 and http/1.1 by ALPN, and who offers nothing; one port for all."""
    cluster = make_cluster(tls=True).start()
    certs = ['--cacert', str(cluster.certs.ca), '--cert', str(cluster.certs.path('client-admin')),
             '--key', str(cluster.certs.key('client-admin'))]
    for more, version in ((['--http2'], 'HTTP/2'), (['--http1.1'], 'HTTP/1.1'), (['--no-alpn', '--http1.1'], 'HTTP/1.1')):
        for path, body in ((ADMIN + 'GetServerInfo', '{}'), ('/readyz', None)):
            command = ['curl', '-sS', '-m', '60', '-D', '/dev/stderr', *more, *certs, f'https://localhost:{cluster.port}{path}']
            if body:
                command += ['-d', body, '-H', f'content-type: {JSON}']
            done = subprocess.run(command, capture_output=True, timeout=90)
            r = Reply(done.stderr.decode(), done.stdout)
            assert r.status == 200 and r.version == version, r
    assert cluster.health() == 'SERVING'


# ---- HTTP/1.1, said by hand ----

class Raw:
    def __init__(self, cluster):
        self.s = socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.s.makefile('rb')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.s.close()

    def say(self, data):
        self.s.sendall(data)

    def reply(self):
        """(status, body, fields) of the next one; the body by its length, in chunks, or to the end."""
        status = int(self.file.readline().split()[1])
        fields = dict(line.decode().rstrip('\r\n').lower().split(': ', 1) for line in iter(self.file.readline, b'\r\n'))
        if 'content-length' in fields:
            return status, self.file.read(int(fields['content-length'])), fields
        if 'transfer-encoding' not in fields:
            return status, self.file.read(), fields
        body = b''
        while size := int(self.file.readline(), 16):
            body += self.file.read(size)
            assert self.file.read(2) == b'\r\n'
        assert self.file.readline() == b'\r\n'
        return status, body, fields

    def over(self):
        return self.file.read() == b''


def post(path=ADMIN + 'GetServerInfo', body=b'{}', type_=JSON, *fields, version='1.1'):
    head = [f'POST {path} HTTP/{version}', 'Host: localhost', f'Content-Type: {type_}', *fields]
    if not any(f.lower().startswith('transfer-encoding') for f in fields):
        head.append(f'Content-Length: {len(body)}')
    return '\r\n'.join(head).encode() + b'\r\n\r\n' + body


def chunked(body, size=3, ext=b'', trailers=b''):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b''.join(b'%X%s\r\n%s\r\n' % (len(p), ext, p) for p in pieces) + b'0%s\r\n%s\r\n' % (ext, trailers)


def test_keep_alive_and_pipelining(shared):
    """Many calls on one connection, answered in their order, pages and refusals among them."""
    requests = [(post(TASKS + 'GetTask', b'{"taskId":"x"}'), 400), (post(), 200), (b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n', 200),
                (post(ADMIN + 'GetServerInfo', chunked(b'{  }'), JSON, 'Transfer-Encoding: chunked'), 200),
                (post('/no'), 404), (post(type_='text/plain'), 415), (post(), 200)]
    with Raw(shared) as raw:
        raw.say(b''.join(r for r, _ in requests))
        for _, status in requests:
            assert raw.reply()[0] == status
        raw.say(post())
        assert raw.reply()[0] == 200


@pytest.mark.parametrize('body', [
    chunked(b'{ "pageSize": 1 }'), chunked(b'{ "pageSize": 1 }', 1), chunked(b'{ "pageSize": 1 }', ext=b';a=b'),
    chunked(b'{ "pageSize": 1 }', trailers=b'X: y\r\n'), chunked(b'{ "pageSize": 1 }', 17), b'00002\r\n{}\r\n0\r\n\r\n',
])
def test_chunks(shared, body):
    request = post(TASKS + 'ListTasks', body, JSON, 'Transfer-Encoding: chunked')
    with Raw(shared) as raw:
        raw.say(request)
        assert raw.reply()[0] == 200
        for i in range(len(request)):  # however it comes
            raw.say(request[i:i + 1])
        assert raw.reply()[0] == 200


@pytest.mark.parametrize('body', [
    b'2\n{}\r\n0\r\n\r\n', b'2\r\n{}0\r\n\r\n', b'2\r\n{}\n0\r\n\r\n', b'\r\n', b'x\r\n', b'-1\r\n', b'+2\r\n{}\r\n', b'0x2\r\n{}\r\n',
    b'2 x\r\n{}\r\n0\r\n\r\n', b'2 2\r\n{}\r\n0\r\n\r\n', b'2 ;x\r\n{}\r\n0\r\n\r\n\0', b'123456789\r\n', b'2;' + b'a' * 300 + b'\r\n{}\r\n0\r\n\r\n', b'0\r\nX: \x01\r\n\r\n',
    b'0\r\n' + b'X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n' * 200,
])
def test_bad_chunks(shared, body):
    """The connection can't go on: nobody knows where the next request begins."""
    good = b'2 ;x' in body  # a blank before an extension is tolerated, what follows the body is not
    with Raw(shared) as raw:
        raw.say(post(TASKS + 'ListTasks', body, JSON, 'Transfer-Encoding: chunked'))
        if good:
            assert raw.reply()[0] == 200
        status, text, fields = raw.reply()
        assert status == 400 and fields['connection'] == 'close', text
        assert raw.over()


@pytest.mark.parametrize('fields, status', [
    (['Content-Length: 2', 'Transfer-Encoding: chunked'], 400), (['Content-Length: 2', 'Content-Length: 2'], 400),
    (['Content-Length : 2'], 400), (['Content-Length: 2', 'X: y\r\n z'], 400), (['Content-Length: 2', 'X: y\nZ: w'], 400),
    (['Transfer-Encoding: gzip, chunked'], 501), (['Content-Length: 2', 'Expect: 200-ok'], 417), (['Content-Length: 2', 'Host: b'], 400),
    (['Content-Length: 2', 'X: ' + 'y' * 17000], 431), (['Content-Length: 2'] + ['X: y'] * 101, 400),
])
def test_heads_that_are_refused(shared, fields, status):
    head = [f'POST {ADMIN}GetServerInfo HTTP/1.1', 'Host: localhost', f'Content-Type: {JSON}', *fields]
    with Raw(shared) as raw:
        raw.say('\r\n'.join(head).encode() + b'\r\n\r\n{}')
        got, _, answer = raw.reply()
        assert got == status and answer['connection'] == 'close'
        assert raw.over()


def test_absolute_form(shared):
    with Raw(shared) as raw:
        raw.say(post(f'http://a:1{ADMIN}GetServerInfo'))
        assert raw.reply()[0] == 200
        raw.say(b'OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n')
        assert raw.reply()[0] in (404, 405)


def test_expect(shared):
    """The body is asked for once it is known to be wanted, and not at all for what is refused from its head."""
    with Raw(shared) as raw:
        whole = post(ADMIN + 'GetServerInfo', b'{}', JSON, 'Expect: 100-continue')
        raw.say(whole[:-2])
        assert raw.file.readline() == b'HTTP/1.1 100 Continue\r\n' and raw.file.readline() == b'\r\n'
        raw.say(b'{}')
        assert raw.reply()[0] == 200
        raw.say(post(ADMIN + 'GetServerInfo', b'{}', 'text/plain', 'Expect: 100-continue')[:-2])
        status, _, fields = raw.reply()
        assert status == 415 and fields['connection'] == 'close' and raw.over()
    done = subprocess.run(['curl', '-sS', '-H', f'content-type: {JSON}', '-H', 'expect: 100-continue', '-d', '{}',
                           f'http://{shared.address}{ADMIN}GetServerInfo'], capture_output=True, text=True, timeout=60)
    assert 'masterId' in done.stdout


def test_early_answers(shared):
    """A body that nobody wants: a short one is passed over, a long one ends the connection, and the answer is read all the same."""
    with Raw(shared) as raw:
        raw.say(post('/nothing', b'x' * 1000)[:-500])
        assert raw.reply()[0] == 404
        raw.say(b'x' * 500 + post())
        assert raw.reply()[0] == 200
    with Raw(shared) as raw:
        raw.say(f'POST {TASKS}GetTask HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: 99999999999\r\n\r\n'.encode())
        raw.say(b'x' * 100000)
        status, body, fields = raw.reply()
        assert status == 429 and fields['connection'] == 'close', body


def test_who_leaves_cancels(shared):
    made = shared.submit(queue='leave')
    with Raw(shared) as raw:
        raw.say(post(TASKS + 'GetTask', json.dumps({'taskId': made.id, 'wait': '60s'}).encode()))
        wait_for(lambda: in_flight(shared, 'GetTask') == 1, 'the call')
    wait_for(lambda: in_flight(shared, 'GetTask') == 0, 'it is cancelled')
    shared.cancel(made.id)


def test_both_kinds_of_connections_have_one_limit(make_cluster):
    """At the limit nobody is accepted, and again as soon as one of HTTP/1.1 has left."""
    cluster = make_cluster(flags={'max-connections': '3'}).start()
    raws = []
    try:
        def opened():
            raw = Raw(cluster)
            raw.s.settimeout(0.5)
            raws.append(raw)
            raw.say(post())
            try:
                return raw.reply()[0] == 200
            except (OSError, IndexError):
                raw.__exit__()
                return False
        count = 0
        while count < 10 and opened():
            count += 1
        assert 1 <= count <= 3
        raws[0].__exit__()
        assert wait_for(opened, 'room')
    finally:
        for raw in raws:
            raw.__exit__()


def test_end_of_the_master(cluster):
    """A waiting call ends with a status that says so, not with a cut."""
    made = cluster.submit(queue='end')
    with Raw(cluster) as raw:
        raw.say(post(TASKS + 'GetTask', json.dumps({'taskId': made.id, 'wait': '60s'}).encode()))
        wait_for(lambda: in_flight(cluster, 'GetTask') == 1, 'the call')
        cluster.process.terminate()
        status, body, fields = raw.reply()
        assert status in (200, 503) and fields['connection'] == 'close', body
        assert raw.over()
        assert cluster.process.wait(PATIENCE) == 0
