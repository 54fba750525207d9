"""Who may what: tokens, owners, the audit, and what strangers cost.  Every method with every role: test_matrix.py."""
import concurrent.futures
import fcntl
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import subprocess
import time
import urllib.request

import grpc
import pytest

import stubs
from certs import Certs
from cluster import BUILD, PATIENCE, wait_for
from lone_master import Caller, LoneMaster
from real_worker import Worker

Code = grpc.StatusCode
State = stubs.State
ROLES = ['reader', 'submitter', 'worker', 'operator', 'admin']
DENIED = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.RESOURCE_EXHAUSTED)


class Tokens:
    """A tokens file, and the secrets that it has the hashes of."""

    def __init__(self, path):
        self.path = path
        self.lines, self.made = {}, 0
        path.write_text('# made by a test\n')

    def add(self, name, role, token_id=None, **fields):
        self.made += 1
        token_id = token_id or f't{self.made:04}'
        secret = secrets.token_hex(32)
        if 'worker' in role.split(','):
            fields.setdefault('worker', '*')
        more = ''.join(f' {k}={v}' for k, v in fields.items())
        digest = hashlib.sha256(secret.encode()).hexdigest()
        self.lines[token_id] = f'token {token_id} {digest} name={name} roles={role}{more}\n'
        self.write()
        return f'reins_{token_id}_{secret}'

    def drop(self, token):
        del self.lines[token.split('_')[1]]
        self.write()

    def change(self, token, old, new):
        token_id = token.split('_')[1]
        self.lines[token_id] = self.lines[token_id].replace(old, new)
        self.write()

    def write(self):
        self.path.write_text('# made by a test\n' + ''.join(self.lines.values()))


@pytest.fixture(scope='module')
def house(tmp_path_factory):
    """One master with a token of each role, for tests that leave both as they are."""
    folder = tmp_path_factory.mktemp('house')
    tokens = Tokens(folder / 'tokens')
    by_role = {role: tokens.add(role, role) for role in ROLES}
    by_role['alice'], by_role['bob'] = tokens.add('alice', 'submitter'), tokens.add('bob', 'submitter')
    by_role['late'] = tokens.add('late', 'admin', expires='2020-01-01')
    by_role['narrow'] = tokens.add('narrow', 'submitter', queues='a,b')
    master = LoneMaster(folder, tokens_file=tokens.path, audit_log=folder / 'audit').start()
    master.tokens = by_role
    yield master
    master.close()
    assert_silent(by_role.values(), master.log(), (folder / 'audit').read_text())


@pytest.fixture
def own(tmp_path):
    """own(flags) -> a master with a tokens file of its own, started; master.file is it."""
    made = []

    def make(**flags):
        file = Tokens(tmp_path / 'tokens')
        admin = file.add('root', 'admin')
        master = LoneMaster(tmp_path, tokens_file=file.path, **flags).start()
        master.file, master.admin_token = file, admin
        made.append(master)
        return master

    yield make
    for master in made:
        master.close()


def assert_silent(tokens, *texts):
    """No secret in what was written."""
    for token in tokens:
        for text in texts:
            assert token.split('_')[2] not in text


def refused(call):
    with pytest.raises(grpc.RpcError) as e:
        call()
    return e.value.code(), e.value.details()


# ---- what is shown over HTTP ----

def bearer(token):
    return (('authorization', f'Bearer {token}'),)


def ask(house, method, path, headers=(), body=None):
    """Over HTTP/1.1."""
    connection = http.client.HTTPConnection(house.address, timeout=PATIENCE)
    try:
        connection.putrequest(method, path)
        for name, value in (*headers, *([('content-length', str(len(body)))] if body is not None else [])):
            connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        return reply.status, reply.getheader('www-authenticate'), reply.read().decode()
    finally:
        connection.close()


JSON = ('content-type', 'application/json')


def test_refusals_over_connect(house):
    path = '/reins.v1.TaskService/ListTasks'
    good = bearer(house.tokens['admin'])[0]
    for headers in ((JSON,), (JSON, ('authorization', 'Bearer x')), (JSON, good, good)):
        status, challenge, said = ask(house, 'POST', path, headers, b'{}')
        assert (status, challenge, json.loads(said)['code']) == (401, 'Bearer', 'unauthenticated')
        time.sleep(0.11)  # as often as one address may fail
    assert ask(house, 'POST', path, (JSON, good), b'{}')[0] == 200
    assert json.loads(ask(house, 'POST', '/reins.v1.AdminService/DrainWorker', (JSON, bearer(house.tokens['reader'])[0]), b'{}')[2])[
        'code'] == 'permission_denied'


def test_what_http_asks_for(own):
    house = own()
    reader, worker = house.file.add('r', 'reader'), house.file.add('w', 'worker')
    house.hang_up()
    for path in ('/healthz', '/readyz'):
        assert ask(house, 'GET', path)[0] == 200
    status, challenge, said = ask(house, 'GET', '/metrics')
    assert (status, challenge) == (401, 'Bearer') and 'authorization: Bearer TOKEN' in said
    assert ask(house, 'GET', '/metrics', bearer(reader))[0] == 200
    assert ask(house, 'GET', '/metrics', bearer(reader) * 2)[:2] == (401, 'Bearer')
    assert ask(house, 'GET', '/metrics', bearer(worker))[:2] == (403, None)
    done = subprocess.run(['curl', '-sS', '-o', '/dev/null', '-D', '-', '--http2-prior-knowledge', f'http://{house.address}/metrics'],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.startswith('HTTP/2 401') and 'www-authenticate: Bearer' in done.stdout, done
    house.close()
    house.flags['open-metrics'] = house.flags['open-reflection'] = 'true'
    house.log_path.unlink()
    house.start()
    assert ask(house, 'GET', '/metrics')[0] == 200
    R = stubs.every.reflection_pb2
    stub = stubs.every.reflection_pb2_grpc.ServerReflectionStub(house.channel())
    assert next(stub.ServerReflectionInfo(iter([R.ServerReflectionRequest(list_services='')]))).list_services_response.service


@pytest.mark.parametrize('table, rpc, said', [
    ('', 'x.S/M', 'no line for x.S/M'), ('x.S/M reader\ny.T/N reader\n', 'x.S/M', 'no rpc of proto/ is called y.T/N'),
    ('x.S/M\n', 'x.S/M', 'is meant'), ('x.S/M boss\n', 'x.S/M', '"boss" is neither a role'),
    ('x.S/M reader\nx.S/M admin\n', 'x.S/M', 'has a line already'), ('x.S/M reader changed\n', 'x.S/M', 'is meant')])
def test_a_missing_row_breaks_the_build(tmp_path, table, rpc, said):
    from google.protobuf import descriptor_pb2
    files = descriptor_pb2.FileDescriptorSet()
    package, rest = rpc.split('.')
    service, method = rest.split('/')
    files.file.add(name='x.proto', package=package).service.add(name=service).method.add(name=method)
    (tmp_path / 'set').write_bytes(files.SerializeToString())
    (tmp_path / 'table').write_text(table)
    done = subprocess.run(['python3', stubs.ROOT / 'server' / 'auth' / 'access.py', tmp_path / 'table', tmp_path / 'set', tmp_path / 'out'],
                          capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr, done
    assert not (tmp_path / 'out').exists()


# ---- who calls ----

def info(house, metadata):
    stub = stubs.admin_grpc.AdminServiceStub(house.channel())
    return stub.GetServerInfo(stubs.admin.GetServerInfoRequest(), metadata=metadata, timeout=PATIENCE)


def test_what_is_shown(own):
    house = own()
    good = house.admin_token
    other = house.file.add('late', 'admin', expires='2020-01-01')
    house.hang_up()
    unknown = 'reins_zzzz_' + '0' * 64
    wrong = good[:-1] + ('0' if good[-1] != '0' else '1')
    for scheme in ('Bearer', 'bearer', 'BEARER'):
        assert info(house, (('authorization', f'{scheme} {good}'),)).version
    texts = set()
    for token in (unknown, wrong, other, good.upper(), good + 'x', 'x'):
        code, text = refused(lambda t=token: info(house, bearer(t)))
        assert code == Code.UNAUTHENTICATED, (token, code, text)
        texts.add(text)
    assert texts == {'the token is not known, or has expired'}
    code, text = refused(lambda: info(house, ()))
    assert code == Code.UNAUTHENTICATED and 'authorization: Bearer TOKEN' in text
    code, text = refused(lambda: info(house, bearer(good) + bearer(good)))
    assert code == Code.UNAUTHENTICATED and text == 'more than one authorization header'
    code, text = refused(lambda: info(house, (('authorization', f'Basic {good}'),)))
    assert code == Code.UNAUTHENTICATED
    assert_silent([good, other, unknown], house.log())


def test_without_tokens_nobody_is_asked(tmp_path):
    master = LoneMaster(tmp_path).start()
    try:
        t = Caller(master.channel()).submit()
        assert t.owner == '' and Caller(master.channel(), 'anything').submit().id
    finally:
        master.close()


@pytest.mark.parametrize('flags, said', [
    ({'listen': '0.0.0.0:{port}', 'tokens-file': '{tokens}'}, 'whoever is on the way can read the tokens'),
    ({'listen': '0.0.0.0:{port}'}, 'anybody who reaches it'),
    ({'tokens-file': '/nowhere/tokens'}, 'reinsd: tokens-file: /nowhere/tokens: No such file'),
    ({'tokens-file': '{bad}'}, 'line 2: roles: "king" is none'),
    ({'tokens-file': '{open}'}, 'anybody may write it'),
    ({'audit-log': '/nowhere/audit'}, 'reinsd: audit-log: /nowhere/audit: No such file'),
])
def test_refused_at_start(tmp_path, flags, said):
    Tokens(tmp_path / 'tokens')
    (tmp_path / 'bad').write_text(f'# x\ntoken abcd {"0" * 64} name=x roles=king\n')
    Tokens(tmp_path / 'open').path.chmod(0o666)
    places = {'port': LoneMaster(tmp_path).port, **{k: tmp_path / k for k in ('tokens', 'bad', 'open')}}
    words = [f'--{k}={v.format(**places)}' for k, v in flags.items()]
    done = subprocess.run([BUILD / 'server' / 'reinsd', f'--store=sqlite:{tmp_path}/db', *words], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 64 and said in done.stderr, done


# ---- whose ----

def test_owners(house):
    alice, bob = (Caller(house.channel(), house.tokens[n]) for n in ('alice', 'bob'))
    reader, operator = (Caller(house.channel(), house.tokens[n]) for n in ('reader', 'operator'))
    T = stubs.tasks
    t = alice.submit(payload=b'secret', env={'KEY': 'word'}, name='hers')
    assert t.owner == 'alice'
    for caller in (alice, reader, operator):
        seen = caller.tasks.GetTask(T.GetTaskRequest(task_id=t.id))
        assert (seen.owner, seen.spec.payload, dict(seen.spec.env)) == ('alice', b'secret', {'KEY': 'word'})
    seen = bob.tasks.GetTask(T.GetTaskRequest(task_id=t.id))
    assert (seen.owner, seen.spec.name, seen.spec.payload, dict(seen.spec.env)) == ('alice', 'hers', b'', {})
    full = T.ListTasksRequest(view=stubs.task.TASK_VIEW_FULL)
    assert {x.id: x.spec.payload for x in bob.tasks.ListTasks(full).tasks}[t.id] == b''
    assert {x.id: x.spec.payload for x in alice.tasks.ListTasks(full).tasks}[t.id] == b'secret'
    for call in (lambda: bob.tasks.CancelTask(T.CancelTaskRequest(task_id=t.id)),
                 lambda: bob.tasks.RetryTask(T.RetryTaskRequest(task_id=t.id)),
                 lambda: list(bob.tasks.ReadLogs(T.ReadLogsRequest(task_id=t.id))),
                 lambda: bob.tasks.ReadMetrics(T.ReadMetricsRequest(task_id=t.id))):
        code, text = refused(call)
        assert code == Code.PERMISSION_DENIED and 'not yours' in text, text
    code, _ = refused(lambda: bob.tasks.CancelTask(T.CancelTaskRequest(task_id='0' * 8 + '-0000-7000-8000-' + '0' * 12)))
    assert code == Code.NOT_FOUND
    assert reader.tasks.GetTask(T.GetTaskRequest(task_id=t.id)).state == State.PENDING
    assert alice.tasks.CancelTask(T.CancelTaskRequest(task_id=t.id)).state == State.CANCELLED
    assert alice.tasks.RetryTask(T.RetryTaskRequest(task_id=t.id)).state == State.PENDING
    assert operator.tasks.CancelTask(T.CancelTaskRequest(task_id=t.id)).state == State.CANCELLED
    assert refused(lambda: operator.submit())[0] == Code.PERMISSION_DENIED


def test_owners_in_postgres(make_cluster, tmp_path):
    tokens = Tokens(tmp_path / 'tokens')
    names = {name: tokens.add(name, 'submitter') for name in ('alice', 'bob')}
    cluster = make_cluster({'tokens-file': tokens.path}).start()
    alice, bob = (Caller(cluster.channel(), names[n]) for n in ('alice', 'bob'))
    t = alice.submit(payload=b'secret')
    full = stubs.tasks.ListTasksRequest(view=stubs.task.TASK_VIEW_FULL)
    for caller, payload in ((alice, b'secret'), (bob, b'')):
        for seen in (caller.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=t.id)), caller.tasks.ListTasks(full).tasks[0]):
            assert (seen.id, seen.owner, seen.spec.payload) == (t.id, 'alice', payload)
    cancel = stubs.tasks.CancelTaskRequest(task_id=t.id)
    assert refused(lambda: bob.tasks.CancelTask(cancel))[0] == Code.PERMISSION_DENIED
    assert alice.tasks.CancelTask(cancel).state == State.CANCELLED


def test_watching_shows_no_more_than_lists(house):
    alice, bob, reader = (Caller(house.channel(), house.tokens[n]) for n in ('alice', 'bob', 'reader'))
    request = stubs.tasks.WatchTasksRequest(view=stubs.task.TASK_VIEW_FULL, filter=stubs.tasks.TaskFilter(name='watched'))
    streams = [c.tasks.WatchTasks(request, timeout=PATIENCE) for c in (alice, bob, reader)]
    for s in streams:
        assert next(s).kind == stubs.tasks.TaskEvent.SYNC
    t = alice.submit(name='watched', payload=b'secret')
    seen = []
    for s in streams:
        event = next(e for e in s if e.kind == stubs.tasks.TaskEvent.CREATED)
        seen.append((event.task.id, event.task.owner, event.task.spec.payload))
        s.cancel()
    assert seen == [(t.id, 'alice', b'secret'), (t.id, 'alice', b''), (t.id, 'alice', b'secret')]


def test_watching_shows_metrics_to_those_who_may_read_them(own, tmp_path):
    master, event = own(), stubs.tasks.TaskEvent
    tokens = [master.file.add('alice', 'submitter'), master.file.add('bob', 'submitter')]
    (tmp_path / 'w').mkdir()
    w = Worker(BUILD, tmp_path / 'w', master.address, id='w1')
    w.env['REINS_TOKEN'] = master.file.add('w1', 'worker')
    master.hang_up()
    alice, bob = (Caller(master.channel(), token) for token in tokens)
    streams = [c.tasks.WatchTasks(stubs.tasks.WatchTasksRequest(), timeout=PATIENCE) for c in (alice, bob)]
    for s in streams:
        assert next(s).kind == event.SYNC
    try:
        w.start()
        go = tmp_path / 'go'
        t = alice.submit(command=['sh', '-c', f'echo \'{{"x":1}}\' >>$REINS_METRICS; until [ -e {go} ]; do sleep 0.02; done'])
        told = next(e for e in streams[0] if e.kind == event.METRICS)
        assert (told.task.id, dict(told.task.metrics.values)) == (t.id, {'x': 1})
        go.touch()
        for e in streams[1]:
            assert e.kind != event.METRICS
            if e.state == State.COMPLETED:
                break
    finally:
        for s in streams:
            s.cancel()
        w.stop()


def test_queues(house):
    narrow = Caller(house.channel(), house.tokens['narrow'])
    assert narrow.submit(queue='b').owner == 'narrow'
    for queue in ('c', '', 'a,b'):
        code, text = refused(lambda q=queue: narrow.submit(queue=q))
        assert code == (Code.INVALID_ARGUMENT if ',' in queue else Code.PERMISSION_DENIED), text
    code, text = refused(lambda: narrow.tasks.SubmitTasks(stubs.tasks.SubmitTasksRequest(requests=[
        stubs.tasks.SubmitTaskRequest(spec=stubs.task.TaskSpec(command=['x'], queue=q)) for q in ('a', 'c')])))
    assert code == Code.PERMISSION_DENIED and text.startswith('requests[1].spec.queue: ')


# ---- workers ----

def test_a_worker_has_its_own_id(own, tmp_path):
    master = own()
    token = master.file.add('gpu-1', 'worker', worker='gpu-1', queues='a,default')
    master.hang_up()
    submitter = Caller(master.channel(), master.admin_token)
    (tmp_path / 'w').mkdir()
    w = Worker(BUILD, tmp_path / 'w', master.address, id='gpu-2', queues='a')
    w.env['REINS_TOKEN'] = token
    try:
        w.start()
        wait_for(lambda: 'may work as gpu-1, not as "gpu-2"' in w.log(), w.log)
        w.stop()
        w.command = [c.replace('--id=gpu-2', '--id=gpu-1') for c in w.command if '--queues' not in c]
        w.state.rename(tmp_path / 'old')
        w.start()
        wait_for(lambda: 'may not work for every queue' in w.log(), w.log)
        w.stop()
        w.command.append('--queues=a,default')
        w.start()
        done = submitter.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=submitter.submit().id, wait={'seconds': 20}))
        assert (done.state, done.worker_id, done.owner) == (State.COMPLETED, 'gpu-1', 'root')
    finally:
        w.stop()
    assert_silent([token, master.admin_token], w.log(), master.log())


# ---- the file is read again ----

def test_revocation_reaches_open_streams(own):
    master = own()
    worker, reader = master.file.add('w', 'worker'), master.file.add('r', 'reader')
    stays, other = master.file.add('s', 'reader'), master.file.add('o', 'reader')
    assert 'tokens read again' in master.hang_up()
    root = Caller(master.channel(), master.admin_token)
    t = root.submit()
    session = master.channel().stream_stream('/reins.v1.WorkerService/Session')(iter(lambda: time.sleep(PATIENCE), 0), metadata=bearer(worker))
    follows = [Caller(master.channel(), token).tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
               for token in (reader, stays, other)]
    waits = Caller(master.channel(), reader).tasks.GetTask.future(stubs.tasks.GetTaskRequest(task_id=t.id, wait={'seconds': 25}))
    session.initial_metadata()
    wait_for(lambda: open_calls(master) == 5, lambda: master.log())
    master.file.path.write_text('token broken\n')
    said = master.hang_up()
    assert 'the old tokens stay in use' in said and 'line 1: ' in said
    assert not session.done() and not any(f.done() for f in follows) and not waits.done()
    master.file.drop(worker)
    master.file.drop(reader)
    master.file.change(other, 'roles=reader', 'roles=operator')  # other rights are no longer those that let it in
    begun = time.monotonic()
    master.hang_up()
    for call in (session, follows[0], follows[2], waits):
        wait_for(call.done, lambda: master.log())
        assert call.code() == Code.UNAUTHENTICATED and call.details() == 'the right to this call was taken back'
    assert time.monotonic() - begun < 5
    assert not follows[1].done()
    assert refused(lambda: Caller(master.channel(), reader).tasks.ListTasks(stubs.tasks.ListTasksRequest()))[0] == Code.UNAUTHENTICATED
    assert_silent([worker, reader, stays], master.log())


def open_calls(master):
    request = urllib.request.Request(f'http://{master.address}/metrics', headers={'authorization': f'Bearer {master.admin_token}'})
    text = urllib.request.urlopen(request, timeout=PATIENCE).read().decode()
    return sum(int(n) for n in re.findall(r'^reins_rpc_in_flight{.*} (\d+)$', text, re.M))


def test_a_token_that_ends_ends_its_stream(own):
    master = own()
    soon = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 2))
    token = master.file.add('short', 'reader', expires=soon)
    master.hang_up()
    t = Caller(master.channel(), master.admin_token).submit()
    call = Caller(master.channel(), token).tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
    wait_for(call.done)
    assert call.code() == Code.UNAUTHENTICATED and 'has expired' in call.details()


# ---- the audit ----

def test_the_audit(house):
    alice, bob = (Caller(house.channel(), house.tokens[n]) for n in ('alice', 'bob'))
    audit = house.folder / 'audit'
    before = len(audit.read_text().splitlines())
    request = stubs.tasks.SubmitTaskRequest(spec=stubs.task.TaskSpec(command=['/bin/true'], payload=b'private'))
    t = alice.tasks.SubmitTask(request, metadata=(('x-request-id', 'r-1'),)).task
    refused(lambda: bob.tasks.CancelTask(stubs.tasks.CancelTaskRequest(task_id=t.id)))
    alice.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=t.id))
    alice.tasks.CancelTask(stubs.tasks.CancelTaskRequest(task_id=t.id))
    refused(lambda: Caller(house.channel(), house.tokens['reader']).submit())

    def lines():
        return [json.loads(x) for x in audit.read_text().splitlines()[before:]]

    for odd in (b'r-2 and more', b'r-2\xff\xfe'):  # what is no id ends it, and the line is there
        ask(house, 'POST', '/reins.v1.TaskService/CancelTask', (JSON, bearer(house.tokens['reader'])[0], ('x-request-id', odd)), b'{}')
    wait_for(lambda: len(lines()) >= 6, lines)
    seen = [(x['principal'], x['method'].split('/')[1], x['target'], x['code'], x['request_id']) for x in lines()]
    assert seen == [('alice', 'SubmitTask', f'task={t.id}', 'OK', 'r-1'),
                    ('bob', 'CancelTask', f'task={t.id}', 'PERMISSION_DENIED', ''),
                    ('alice', 'CancelTask', f'task={t.id}', 'OK', ''),
                    ('reader', 'SubmitTask', '', 'PERMISSION_DENIED', ''),
                    ('reader', 'CancelTask', '', 'PERMISSION_DENIED', 'r-2'), ('reader', 'CancelTask', '', 'PERMISSION_DENIED', 'r-2')]
    assert all(re.fullmatch(r'127\.0\.0\.1:\d+', x['peer']) and x['time'].endswith('Z') for x in lines())
    audit.rename(house.folder / 'audit.1')
    house.hang_up()
    t = alice.submit()
    wait_for(lambda: t.id in audit.read_text())
    audit.write_text((house.folder / 'audit.1').read_text() + audit.read_text())


# ---- what strangers cost ----

def test_a_thousand_bad_tokens(own):
    master = own()
    call = master.channel().unary_unary('/reins.v1.AdminService/GetServerInfo')
    guesses = ['reins_guess_' + secrets.token_hex(32) for _ in range(1000)]
    before = len(master.log())
    codes = []
    for guess in guesses:
        with pytest.raises(grpc.RpcError) as e:
            call(b'', metadata=bearer(guess), timeout=PATIENCE)
        codes.append(e.value.code())
    assert codes.count(Code.UNAUTHENTICATED) >= 10 and codes.count(Code.RESOURCE_EXHAUSTED) >= 500
    assert set(codes) == {Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED}
    assert len(master.log()) - before < 20000, master.log()[before:]
    assert Caller(master.channel(), master.admin_token).submit().id  # from the same address
    assert_silent(guesses, master.log())


def test_bodies_of_strangers_are_not_kept(own):
    master = own()
    Caller(master.channel(), master.admin_token).submit()
    body = b'x' * (4 << 20)
    before = master.peak()

    def send(_):
        call = master.channel().unary_unary('/reins.v1.TaskService/SubmitTask')
        with pytest.raises(grpc.RpcError) as e:
            call(body, timeout=PATIENCE)
        return e.value.code()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        codes = set(pool.map(send, range(16)))
    assert codes <= set(DENIED) and Code.UNAUTHENTICATED in codes, codes
    assert master.peak() - before < 8 << 20


# ---- reins token ----

def reins(*words, **kwargs):
    return subprocess.run([BUILD / 'client' / 'reins', *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


def test_reins_token(own, tmp_path):
    master = own()
    file = master.file.path
    file.chmod(0o640)
    made = reins('token', 'new', '--name', 'carol', '--role', 'reader,submitter', '--expires', '1h', '--file', file)
    assert made.returncode == 0 and re.fullmatch(r'reins_[a-z2-7]{10}_[0-9a-f]{64}\n', made.stdout), made
    assert made.stdout.strip() not in made.stderr and file.stat().st_mode & 0o777 == 0o640
    assert made.stdout.strip().split('_')[2] not in file.read_text() and '# made by a test' in file.read_text()
    token_id = made.stdout.split('_')[1]
    master.hang_up()
    env = {'REINS_SERVER': master.address, 'REINS_TOKEN': made.stdout.strip()}
    done = reins('submit', '--', 'true', env=env)
    assert done.returncode == 0, done
    assert reins('status', done.stdout.strip(), env=env).returncode == 0
    done = reins('workers', env={**env, 'REINS_TOKEN': 'reins_nobody_1'})
    assert done.returncode == 77 and 'does not take the token that you gave' in done.stderr, done
    done = reins('drain', 'w1', env=env)
    assert done.returncode == 77 and 'it takes one of the roles operator,admin; yours: reader,submitter' in done.stderr, done
    assert f'{token_id}    carol' in re.sub(' +', '    ', reins('token', 'list', '--file', file).stdout)
    assert reins('token', 'revoke', token_id, '--file', file).returncode == 0
    master.hang_up()
    assert reins('list', env=env).returncode == 77
    done = reins('token', 'revoke', token_id, '--file', file)
    assert done.returncode == 1 and f'has no token with the id "{token_id}"; nothing was changed' in done.stderr, done
    fresh = reins('token', 'new', '--name', 'w1', '--role', 'worker', '--file', tmp_path / 'new')
    assert fresh.returncode == 0 and (tmp_path / 'new').stat().st_mode & 0o777 == 0o600
    assert (tmp_path / 'new').read_text().endswith(' name=w1 roles=worker worker=w1\n')


def test_reins_token_list(tmp_path):
    file = tmp_path / 'tokens'
    digest = '0' * 64
    file.write_text(f'token aaaa1 {digest} name=gpu-1 roles=worker worker=gpu-* queues=a,b\n'
                    f'token aaaa2 {digest[1:]}1 name=eve roles=reader,admin expires=2020-01-01\n'
                    'cert reins:client:somebody-with-a-long-name roles=submitter\n')
    assert [line.split() for line in reins('token', 'list', '--file', file).stdout.splitlines()] == [
        ['KIND', 'ID', 'NAME', 'ROLES', 'EXPIRES', 'WORKER', 'QUEUES'],
        ['token', 'aaaa1', 'gpu-1', 'worker', 'never', 'gpu-*', 'a,b'],
        ['token', 'aaaa2', 'eve', 'reader,admin', 'EXPIRED', '2020-01-01T00:00:00.000Z', '-', 'all'],
        ['cert', 'reins:client:somebody-with-a-long-name', '-', 'submitter', 'never', '-', 'all']]
    before = file.read_text()
    done = reins('token', 'revoke', 'aaaa1', 'zzzz9', '--file', file)
    assert done.returncode == 1 and '"zzzz9"' in done.stderr and '"aaaa1"' not in done.stderr and file.read_text() == before, done


def waits_for_a_lock(pid):
    return any(f' {pid} ' in line and '->' in line for line in pathlib.Path('/proc/locks').read_text().splitlines())


def test_first_tokens_at_once(tmp_path):
    """Who waits for another that makes the file adds to it."""
    file, folder = tmp_path / 'tokens', os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    making = [subprocess.Popen([BUILD / 'client' / 'reins', 'token', 'new', '--name', name, '--role', 'reader', '--file', file],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name in ('one', 'two', 'three')]
    try:
        for p in making:
            wait_for(lambda p=p: waits_for_a_lock(p.pid), 'all wait for the lock')
        os.close(folder)
        assert [(p.communicate(timeout=PATIENCE), p.returncode)[1] for p in making] == [0, 0, 0]
    finally:
        for p in making:
            p.kill()
            p.wait()
    assert sorted(re.findall(r' name=(\w+) ', file.read_text())) == ['one', 'three', 'two']


@pytest.mark.parametrize('words, said', [
    ([], 'new, list or revoke'), (['new'], '--name is missing'), (['new', '--name', 'x'], '--role is missing'),
    (['new', '--name', 'x y', '--role', 'reader'], 'key=value'), (['new', '--name', 'x', '--role', 'king'], '"king"'),
    (['list'], '--file is missing'), (['revoke', '--file', '/x'], 'which?')])
def test_reins_token_is_misused(words, said):
    done = reins('token', *words)
    assert done.returncode == 64 and said in done.stderr, done


def running(caller, task_id):
    return caller.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=task_id)).state == State.RUNNING


def tls_master(tmp_path, certs, **flags):
    master = LoneMaster(tmp_path, tls_cert=certs.path('server'), tls_key=certs.key('server'), **flags)
    master.flags['listen'] = f'tls://{master.address}'
    return master


def test_from_nothing_to_tokens_and_tls(tmp_path):
    """The commands of docs/security.md: no client has a certificate, every one has a token."""
    certs = Certs(tmp_path / 'tls')
    file = tmp_path / 'tokens'
    for name, role in (('gpu-1', 'worker'), ('alice', 'submitter')):
        made = reins('token', 'new', '--name', name, '--role', role, '--file', file)
        (tmp_path / f'{name}.token').write_text(made.stdout)
    master = tls_master(tmp_path, certs, tokens_file=file).start()
    url = f'https://{master.address}'
    w = Worker(BUILD, tmp_path, url, id='gpu-1', tls_ca=certs.ca, token_file=tmp_path / 'gpu-1.token')
    env = {'REINS_SERVER': url, 'REINS_TLS_CA': str(certs.ca), 'REINS_TOKEN_FILE': str(tmp_path / 'alice.token')}
    try:
        w.command.append('--insecure')
        w.env['REINS_TOKEN'] = ''
        w.start()
        done = reins('submit', '--wait', '--', 'echo', 'hello', env=env)
        assert (done.returncode, done.stdout) == (0, 'hello\n'), done
        assert reins('list', env={**env, 'REINS_TOKEN_FILE': ''}).returncode == 77
    finally:
        w.stop()
        master.close()
    assert_silent([(tmp_path / f'{n}.token').read_text().strip() for n in ('gpu-1', 'alice')], master.log(), w.log())


def test_s55_a_token_is_rotated_under_a_running_task(own, tmp_path):
    """The worker's next token is in its file before the old one is taken away: its stream ends, its program does not."""
    master = own()
    root = Caller(master.channel(), master.admin_token)
    old = master.file.add('w1', 'worker', worker='w1')
    master.hang_up()
    shown = tmp_path / 'w1.token'
    shown.write_text(old + '\n')
    (tmp_path / 'w').mkdir()
    w = Worker(BUILD, tmp_path / 'w', master.address, token_file=shown)
    w.env['REINS_TOKEN'] = ''
    try:
        w.start()
        t = root.submit(command=['sh', '-c', f'until [ -e {tmp_path}/go ]; do sleep 0.02; done'])
        wait_for(lambda: running(root, t.id))
        fresh = master.file.add('w1', 'worker', worker='w1')
        master.hang_up()
        shown.write_text(fresh)
        master.file.drop(old)
        master.hang_up()
        wait_for(lambda: w.log().count('session: open') == 2, w.log)
        assert 'the right to this call was taken back' in w.log()
        # An expired one is refused, and both say so.
        late = master.file.add('w1', 'worker', worker='w1', expires='2020-01-01')
        master.file.drop(fresh)
        shown.write_text(late)
        master.hang_up()
        said = 'the token is not known, or has expired'
        wait_for(lambda: f'UNAUTHENTICATED: {said}' in w.log(), w.log)
        wait_for(lambda: f'{said} (expired)' in master.log(), master.log)
        shown.write_text(master.file.add('w1', 'worker', worker='w1'))
        master.hang_up()
        wait_for(lambda: w.log().count('session: open') == 3, w.log)
        (tmp_path / 'go').touch()
        done = root.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=t.id, wait={'seconds': 20}))
        assert (done.state, done.attempt) == (State.COMPLETED, 1), w.log()
    finally:
        w.stop()
    assert_silent([old, fresh, late], w.log(), master.log())


# ---- certificates ----

def make_certificate(certs, name, sans):
    ext, key, cert = (certs.folder / f'{name}{end}' for end in ('.ext', '-key.pem', '.pem'))
    ext.write_text('extendedKeyUsage=clientAuth\n' + (f'subjectAltName={sans}\n' if sans else ''))
    subprocess.run(f'openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -subj /CN=root -out {ext}.req && '
                   f'openssl x509 -req -in {ext}.req -CA {certs.ca} -CAkey {certs.folder}/ca-key.pem -set_serial {len(sans) + 7} '
                   f'-extfile {ext} -days 1 -out {cert}', shell=True, check=True, capture_output=True)


def test_certificates_stand_for_people(tmp_path):
    certs = Certs(tmp_path / 'tls')
    certs.make('--client', 'alice', '--worker', 'w1')
    for name, sans in (('service', 'URI:spiffe://org/service'), ('two', 'URI:spiffe://org/service,URI:reins:client:alice'), ('cn', ''),
                       ('host', 'DNS:w7.example.org')):
        make_certificate(certs, name, sans)
    tokens = Tokens(tmp_path / 'tokens')
    token = tokens.add('root', 'admin')
    lines = ('cert reins:client:* roles=submitter\ncert spiffe://org/* roles=reader name=service\n'
             'cert reins:worker:* roles=worker\n')
    tokens.path.write_text(tokens.path.read_text() + lines)
    master = tls_master(tmp_path, certs, client_ca=certs.ca, tokens_file=tokens.path).start()

    def caller(name, with_token=None):
        return Caller(master.channel(certs.credentials(name)), with_token)

    def listed(who):
        return who.tasks.ListTasks(stubs.tasks.ListTasksRequest())

    try:
        t = caller('client-alice').submit()
        assert t.owner == 'alice'
        assert listed(caller('service')).tasks[0].owner == 'alice'
        code, text = refused(lambda: caller('service').submit())
        assert code == Code.PERMISSION_DENIED and text.startswith('"service" may not: ')
        assert refused(lambda: listed(caller('worker-w1')))[0] == Code.PERMISSION_DENIED
        assert refused(lambda: listed(caller('two'))) == (Code.UNAUTHENTICATED, 'the certificate names more than one who is known here')
        for name in ('cn', 'host'):
            assert refused(lambda n=name: listed(caller(n))) == (Code.UNAUTHENTICATED, 'the certificate names nobody who is known here')
        assert caller(None, token).submit().owner == caller('worker-w1', token).submit().owner == 'root'
        assert refused(lambda: listed(caller(None)))[0] == Code.UNAUTHENTICATED
        # Taken from the list: what is open ends.
        follow = caller('client-alice').tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
        stays = caller(None, token).tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
        request = stubs.tasks.GetTaskRequest(task_id=t.id)
        wait_for(lambda: caller('client-alice').tasks.GetTask(request).id)
        tokens.path.write_text(tokens.path.read_text().replace('cert reins:client:* roles=submitter\n', ''))
        master.hang_up()
        wait_for(follow.done)
        assert follow.code() == Code.UNAUTHENTICATED and not stays.done()
        # The last line for certificates has gone: what it had let in ends, though certificates have their kinds now.
        follow = caller('service').tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
        wait_for(lambda: caller('service').tasks.GetTask(request).id)
        tokens.path.write_text(''.join(x for x in tokens.path.read_text().splitlines(True) if not x.startswith('cert ')))
        master.hang_up()
        wait_for(follow.done)
        assert follow.code() == Code.UNAUTHENTICATED and not stays.done()
    finally:
        master.close()


def test_without_a_file_certificates_have_their_kinds(tmp_path):
    certs = Certs(tmp_path / 'tls')
    certs.make('--worker', 'w1')
    master = tls_master(tmp_path, certs, client_ca=certs.ca).start()
    try:
        assert Caller(master.channel(certs.credentials('client-admin'))).submit().owner == 'admin'
        code, text = refused(lambda: Caller(master.channel(certs.credentials('worker-w1'))).submit())
        assert code == Code.PERMISSION_DENIED and text == (
            '"reins:worker:w1" may not: it takes one of the roles submitter,admin; yours: worker')
    finally:
        master.close()


def test_a_certificate_that_ends_ends_any_stream(tmp_path):
    certs = Certs(tmp_path / 'tls')
    certs.make('--seconds', '3', '--client', 'short')
    master = tls_master(tmp_path, certs, client_ca=certs.ca).start()
    try:
        t = Caller(master.channel(certs.credentials('client-admin'))).submit()
        follow = Caller(master.channel(certs.credentials('client-short'))).tasks.ReadLogs(
            stubs.tasks.ReadLogsRequest(task_id=t.id, follow=True), timeout=PATIENCE)
        wait_for(follow.done)
        assert (follow.code(), follow.details()) == (Code.UNAUTHENTICATED, 'the certificate of this call has expired: renew it')
    finally:
        master.close()


def test_no_token_in_clear_text(build_dir, tmp_path):
    """Over a network, that is; 192.0.2.1 is nobody's."""
    done = reins('ping', env={'REINS_SERVER': '192.0.2.1', 'REINS_TOKEN': 'x'})
    assert done.returncode == 64 and 'could read the token: use https://' in done.stderr, done
    done = subprocess.run([build_dir / 'worker' / 'reins-worker', '--server=192.0.2.1', '--token=x', f'--state-dir={tmp_path}/s', '--id=w'],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and 'could read the token: use https://' in done.stderr, done


def test_no_file_of_ours_holds_a_secret():
    for path in [*pathlib.Path(stubs.ROOT / 'docs').glob('*.md'), stubs.ROOT / 'README.md']:
        assert not re.search(r'reins_[a-z0-9]{4,32}_[0-9a-f]{64}', path.read_text()), path
