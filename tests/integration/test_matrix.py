"""Who may call what: every method with every role and with none, in every way that it can be called.

What is right stands here once more, apart from server/auth/access.txt: a row that is changed there is to be changed here too."""
import collections
import concurrent.futures
import json
import re
import shutil
import struct
import subprocess

import grpc
import pytest
from google.protobuf import descriptor_pb2

import stubs
from cluster import PATIENCE
from lone_master import LoneMaster
from test_auth import ROLES, Tokens, bearer

pytestmark = pytest.mark.skipif(not shutil.which('curl'), reason='no curl here')

READS, CHANGES = 'reader submitter operator admin', 'submitter operator admin'
KNOWN = ' '.join(ROLES)
MAY = {
    'reins.v1.TaskService/SubmitTask': 'submitter admin',
    'reins.v1.TaskService/SubmitTasks': 'submitter admin',
    'reins.v1.TaskService/GetTask': READS,
    'reins.v1.TaskService/ListTasks': READS,
    'reins.v1.TaskService/CancelTask': CHANGES,
    'reins.v1.TaskService/RetryTask': CHANGES,
    'reins.v1.TaskService/CancelTasks': CHANGES,
    'reins.v1.TaskService/RetryTasks': CHANGES,
    'reins.v1.TaskService/WatchTasks': READS,
    'reins.v1.TaskService/ReadLogs': READS,
    'reins.v1.TaskService/ReadMetrics': READS,
    'reins.v1.WorkerService/Session': 'worker admin',
    'reins.v1.AdminService/ListWorkers': READS,
    'reins.v1.AdminService/DrainWorker': 'operator admin',
    'reins.v1.AdminService/ListQueues': READS,
    'reins.v1.AdminService/PauseQueue': 'operator admin',
    'reins.v1.AdminService/ResumeQueue': 'operator admin',
    'reins.v1.AdminService/GetServerInfo': KNOWN,
    'grpc.health.v1.Health/Check': KNOWN + ' none',
    'grpc.health.v1.Health/Watch': KNOWN + ' none',
    'grpc.reflection.v1.ServerReflection/ServerReflectionInfo': KNOWN,
    'grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo': KNOWN,
}

UNARY, STREAM, BIDI = 'unary', 'server stream', 'both ways'
Method = collections.namedtuple('Method', 'name shape safe')
Way = collections.namedtuple('Way', 'name version type shapes')
WAYS = [
    Way('gRPC-Web over HTTP/1.1', 'http1.1', 'application/grpc-web+proto', (UNARY, STREAM)),
    Way('gRPC-Web over HTTP/2', 'http2-prior-knowledge', 'application/grpc-web+proto', (UNARY, STREAM, BIDI)),
    Way('Connect over HTTP/1.1', 'http1.1', 'application/json', (UNARY,)),
    Way('Connect over HTTP/2', 'http2-prior-knowledge', 'application/proto', (UNARY,)),
    Way('Connect by GET over HTTP/1.1', 'http1.1', 'GET json', (UNARY,)),
    Way('Connect by GET over HTTP/2', 'http2-prior-knowledge', 'GET proto', (UNARY,)),
    Way('streams of Connect over HTTP/1.1', 'http1.1', 'application/connect+json', (STREAM,)),
    Way('streams of Connect over HTTP/2', 'http2-prior-knowledge', 'application/connect+proto', (STREAM, BIDI)),
]
CURLS = 6
DENIED = {'unauthenticated', 'permission_denied', 'resource_exhausted'}
CODES = {str(c.value[0]): c.name.lower() for c in grpc.StatusCode}


def methods():
    """Every rpc of the contract, as the descriptors have it."""
    for module in (stubs.tasks, stubs.worker, stubs.admin, stubs.health_pb2, stubs.every.reflection_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for service in file.service:
            for m in service.method:
                shape = BIDI if m.client_streaming else STREAM if m.server_streaming else UNARY
                safe = m.options.idempotency_level == descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
                name = f'{file.package}.{service.name}/{m.name}'
                yield Method(name, shape, safe)
                if 'reflection.v1.' in name:
                    yield Method(name.replace('.v1.', '.v1alpha.'), shape, safe)


def fits(way, method):
    return method.shape in way.shapes and (method.safe or not way.type.startswith('GET'))


@pytest.fixture(scope='module')
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp('house')
    tokens = Tokens(folder / 'tokens')
    by_role = {role: tokens.add(role, role) for role in ROLES}
    master = LoneMaster(folder, tokens_file=tokens.path).start()
    master.tokens = by_role
    yield master
    master.close()


# ---- gRPC ----

def by_grpcio(channel, method, token):
    """The code that an empty request gets; a stream that answers is let in."""
    path, kwargs = f'/{method.name}', {'timeout': PATIENCE, 'metadata': bearer(token) if token else ()}
    try:
        if method.shape == UNARY:
            channel.unary_unary(path)(b'', **kwargs)
            return 'ok'
        call = (channel.stream_stream(path)(iter([b'']), **kwargs) if method.shape == BIDI else channel.unary_stream(path)(b'', **kwargs))
        next(call, None)
        call.cancel()
        return 'ok'
    except grpc.RpcError as e:
        return e.code().name.lower()


# ---- the others, by curl ----

def request(house, way, method, token, at):
    """Lines of curl's configuration; the answer is to be in the files `at` and `at`.head."""
    # A name for each makes a connection for each: curl 7.88 can't use one of HTTP/2 again after an early answer.
    url, lines = f'http://r{at.name}.test/{method.name}', [f'connect-to = "::{house.address}"']
    proto = 'proto' in way.type
    if way.type.startswith('GET'):
        url += f'?connect=v1&encoding={"proto" if proto else "json"}&message={"" if proto else "%7B%7D"}'
    else:
        body = at.parent / way.type.replace('/', '-')
        lines += [f'header = "content-type: {way.type}"', f'data-binary = "@{body}"', 'header = "expect:"']
    if method.shape == STREAM:  # so long one that is let in and goes on is waited for
        lines.append('header = "grpc-timeout: 200m"' if 'web' in way.type else 'header = "connect-timeout-ms: 200"')
    if token:
        lines.append(f'header = "authorization: Bearer {token}"')
    return '\n'.join([f'url = "{url}"', way.version, f'output = "{at}"', f'dump-header = "{at}.head"', f'max-time = {PATIENCE}', *lines, ''])


def code_of(way, at):
    """The code of the answer; 'no way (…)' where the method can't be called so."""
    head = at.with_name(at.name + '.head').read_text()
    body = at.read_bytes() if at.exists() else b''
    status = int(head.split()[1])
    kind = re.search('(?im)^content-type: *(.*?)\r$', head)
    if status in (404, 405, 415, 505) and not (kind and 'json' in kind[1]):
        return f'no way ({status})'
    if way.type in ('application/json', 'application/proto') or way.type.startswith('GET'):
        return 'ok' if status == 200 else json.loads(body)['code']
    said = re.search(r'(?im)^grpc-status: *(\d+)', head)
    while body and not said:
        flags, size = struct.unpack('>BI', body[:5])
        end, body = body[5:5 + size], body[5 + size:]
        if flags & 128:
            said = re.search(r'grpc-status: *(\d+)', end.decode())
        elif flags & 2:
            return json.loads(end).get('error', {'code': 'ok'})['code']
    assert said, (way, head, body)
    return CODES[said[1]]


def by_curl(house, folder, pairs):
    """{(way, method, role): code}, some at a time."""
    at = {key: folder / str(i) for i, key in enumerate(pairs)}
    for type_ in {way.type for way in WAYS}:
        message = b'' if 'proto' in type_ else b'{}'
        if 'web' in type_ or 'connect+' in type_:
            message = struct.pack('>BI', 0, len(message)) + message
        (folder / type_.replace('/', '-')).write_bytes(message)

    def run(part):
        config = folder / f'config{part}'
        config.write_text('next\n'.join(request(house, way, method, house.tokens.get(role), at[way, method, role])
                                        for way, method, role in pairs[part::CURLS]))
        done = subprocess.run(['curl', '-sS', '-K', config], capture_output=True, text=True, timeout=2 * PATIENCE)
        assert done.returncode == 0, done.stderr[-2000:]

    with concurrent.futures.ThreadPoolExecutor(CURLS) as pool:
        list(pool.map(run, range(CURLS)))
    return {key: code_of(key[0], file) for key, file in at.items()}


# ---- the matrix ----

def wrong(role, method, code):
    if role in MAY[method.name].split():
        return code in DENIED or code == 'unimplemented' or code.startswith('no way')
    # Who shows nothing counts as a failure, of which an address may have ten a second.
    return code not in (('unauthenticated', 'resource_exhausted') if role == 'none' else ('permission_denied',))


def test_every_method_is_in_the_table():
    assert sorted(MAY) == sorted(m.name for m in methods())


def test_every_method_with_every_role_over_grpc(house):
    channel = house.channel()
    pairs = [(method, role) for role in [*ROLES, 'none'] for method in methods()]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda pair: by_grpcio(channel, pair[0], house.tokens.get(pair[1])), pairs))
    assert [(m.name, role, code) for (m, role), code in zip(pairs, codes) if wrong(role, m, code)] == []


def test_every_method_with_every_role_in_every_other_way(house, tmp_path):
    pairs = [(way, method, role) for way in WAYS for method in methods() if fits(way, method) for role in [*ROLES, 'none']]
    assert len({(way, method) for way, method, _ in pairs}) > 90
    seen = by_curl(house, tmp_path, pairs)
    assert [(way.name, m.name, role, code) for (way, m, role), code in seen.items() if wrong(role, m, code)] == []
    text = house.log()
    assert not any(token.split('_')[2] in text for token in house.tokens.values())


def test_no_method_can_be_called_in_another_way(house, tmp_path):
    """So none of them is left out above."""
    pairs = [(way, method, 'admin') for way in WAYS for method in methods() if not fits(way, method)]
    seen = by_curl(house, tmp_path, pairs)
    assert [(way.name, m.name, code) for (way, m, _), code in seen.items() if code not in ('no way (405)', 'no way (415)', 'no way (505)')] == []
