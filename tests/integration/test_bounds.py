"""What strangers can make a master hold: unfinished requests of every protocol, and connections from one address."""
import contextlib
import gzip
import http.client
import json
import socket
import struct
import threading

import grpc
import pytest

import stubs
from cluster import PATIENCE, wait_for
from fake_worker import FakeWorker, hold
from lone_master import Caller, LoneMaster
from monitor import metrics
from netns import network  # noqa: F401

SUBMIT = '/reins.v1.TaskService/SubmitTask'
MIB = 1 << 20
LIMIT = 8 * MIB
PIECE = 3 * MIB


@pytest.fixture
def master(tmp_path):
    made = LoneMaster(tmp_path, max_body_bytes='8MiB').start()
    yield made
    made.close()


def held(master, of='calls'):
    return metrics(master)[f'reins_rpc_body_bytes{{of="{of}"}}']


def refused(master, cause='calls'):
    return metrics(master)[f'reins_rpc_refused_bodies_total{{cause="{cause}"}}']


class Slow:
    """A unary call over grpcio whose message is there and whose end is not."""

    def __init__(self, channel, size=PIECE):
        self.go = threading.Event()
        spec = stubs.task.TaskSpec(command=['/bin/true'], payload=b'x' * size)
        self.call = channel.stream_unary(SUBMIT, response_deserializer=stubs.tasks.SubmitTaskResponse.FromString).future(
            self._messages(stubs.tasks.SubmitTaskRequest(spec=spec).SerializeToString()), timeout=60)

    def _messages(self, message):
        yield message
        self.go.wait(60)

    def code(self):
        error = self.call.exception(PATIENCE)
        return error.code() if error else grpc.StatusCode.OK


def begin_http1(master, type_, body, *more, path=SUBMIT):
    """A request over HTTP/1.1 of which the last byte is missing."""
    s = socket.create_connection(('127.0.0.1', master.port), PATIENCE)
    fields = ''.join(f'{line}\r\n' for line in (f'content-type: {type_}', f'content-length: {len(body)}', *more))
    s.sendall(f'POST {path} HTTP/1.1\r\nhost: {master.address}\r\n{fields}\r\n'.encode() + body[:-1])
    return s


def go_on(master, s):
    """The missing byte is awaited, and the connection good for another request."""
    s.sendall(b'x' + f'GET /healthz HTTP/1.1\r\nhost: {master.address}\r\n\r\n'.encode())
    reply = http.client.HTTPResponse(s)
    reply.begin()
    assert reply.status == 200


def noise(n):
    import random
    return random.Random(1).randbytes(n)


WAYS = {
    'connect': ('application/proto', noise(PIECE)),
    'json': ('application/json', b'{' + b' ' * (PIECE - 2) + b'}'),
    'web': ('application/grpc-web+proto', struct.pack('>BI', 0, PIECE) + noise(PIECE)),
    'gzip': ('application/json', gzip.compress(noise(PIECE)), 'content-encoding: gzip'),
    'grpc': None,
}


@pytest.mark.parametrize('way', WAYS)
def test_all_requests_have_one_limit(master, way):
    """Two of three fit, each on a connection of its own: with the third the first one goes."""
    with contextlib.ExitStack() as stack:
        if way == 'grpc':
            first = Slow(master.channel())
        else:
            first = stack.enter_context(begin_http1(master, WAYS[way][0], WAYS[way][1], *WAYS[way][2:]))
        wait_for(lambda: PIECE - 1000 <= held(master) <= PIECE + 1000, lambda: held(master))
        second = Slow(master.channel())
        wait_for(lambda: held(master) >= 2 * PIECE - 2000, lambda: held(master))
        third = Slow(master.channel())
        wait_for(lambda: refused(master) == 1, lambda: held(master))
        assert held(master) <= LIMIT
        if way == 'grpc':
            assert first.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            details = dict(first.call.exception().trailing_metadata())
            assert b'TOO_MUCH_IN_FLIGHT' in details['grpc-status-details-bin'] and details['grpc-retry-pushback-ms'] == '1000'
            assert str(LIMIT) in first.call.exception().details()
        else:
            reply = http.client.HTTPResponse(first)
            reply.begin()
            said = reply.read()
            if way == 'web':
                assert b'grpc-status:8' in said
            else:
                assert reply.status == 429 and json.loads(said)['code'] == 'resource_exhausted'
                assert 'google.rpc.RetryInfo' in said.decode()
            go_on(master, first)
        assert Caller(master.channel()).submit().id  # what comes whole is served
        for slow in (second, third):
            slow.go.set()
            # More than a task may have: so the request came whole.
            assert 'payload' in slow.call.exception(PATIENCE).details()
        wait_for(lambda: held(master) == 0, lambda: held(master))


def test_the_refused_one_s_connection_stays(master):
    channel = master.channel()
    first = Slow(channel)
    wait_for(lambda: held(master) >= PIECE, lambda: held(master))
    others = [Slow(master.channel()) for _ in range(2)]
    assert first.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    connections = metrics(master)['reins_rpc_connections']
    assert Caller(channel).submit().id
    assert metrics(master)['reins_rpc_connections'] == connections
    for slow in others:
        slow.go.set()


def test_a_flood_of_unfinished_bodies(master):
    """60 connections with 3 MiB each: 180 MiB, of which the master keeps 8. Workers' streams are not of them."""
    worker = FakeWorker(master.address, slots=1, policy=hold)
    try:
        worker.connect()
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(begin_http1(master, *WAYS['connect'])) for _ in range(60)]
            wait_for(lambda: refused(master) >= 58, lambda: refused(master))
            assert held(master) <= LIMIT
            assert metrics(master)['reins_buffer_bytes'] < 3 * LIMIT
            task = Caller(master.channel()).submit()
            worker.wait(lambda: (task.id, 1) in worker.held, 'the task')
            assert len(sockets) == 60
    finally:
        worker.close()


def test_what_is_answered_holds_nothing(master):
    """The deadline ends it while its rest is awaited still."""
    with begin_http1(master, *WAYS['connect'], 'connect-timeout-ms: 300') as s:
        wait_for(lambda: held(master) > PIECE - 1000, lambda: held(master))
        assert metrics(master)['reins_buffer_bytes'] > PIECE
        reply = http.client.HTTPResponse(s)
        reply.begin()
        assert reply.status == 504, reply.read()
        wait_for(lambda: metrics(master)['reins_buffer_bytes'] < MIB, lambda: metrics(master))
        assert held(master) == 0
        go_on(master, s)


# ---- connections ----

def test_connections_of_an_address(tmp_path, network):  # noqa: F811
    made = LoneMaster(tmp_path, max_connections_per_address='3')
    made.flags['listen'] = f'{network.host}:{made.port}'
    made.flags['insecure'] = 'true'
    made.start()
    try:
        with contextlib.ExitStack() as stack:
            def connect():
                return stack.enter_context(socket.create_connection((network.host, made.port), PATIENCE))

            def ask(s):
                s.sendall(f'GET /healthz HTTP/1.1\r\nhost: {network.host}\r\n\r\n'.encode())
                reply = http.client.HTTPResponse(s)
                reply.begin()
                return reply.status

            kept = [connect() for _ in range(3)]
            assert [ask(s) for s in kept] == [200, 200, 200]
            fourth = connect()
            assert fourth.recv(1) == b''
            wait_for(lambda: 'too many connections from this address' in made.log(), made.log)
            kept.pop().close()

            def room():
                try:
                    return ask(connect()) == 200
                except (http.client.HTTPException, OSError):
                    return False

            wait_for(room, made.log)
    finally:
        made.close()


class Reader:
    """HTTP/2 of our own that takes nothing until it opens its windows."""

    def __init__(self, master):
        self.s = socket.create_connection(('127.0.0.1', master.port), PATIENCE)
        self.authority, self.streams = master.address, 0
        self.s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + self._window(0))

    @staticmethod
    def _frame(kind, flags, stream, payload):
        return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload

    def _window(self, size):
        return self._frame(4, 0, 0, struct.pack('>HI', 4, size))

    def ask(self, method, request):
        """A call of which nothing is read yet."""
        fields = {':method': 'POST', ':scheme': 'http', ':path': method, ':authority': self.authority,
                  'content-type': 'application/grpc', 'te': 'trailers'}
        head = b''.join(b'\0' + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in fields.items())
        body = request.SerializeToString()
        stream = 2 * self.streams + 1
        self.s.sendall(self._frame(1, 4, stream, head) + self._frame(0, 1, stream, struct.pack('>BI', 0, len(body)) + body))
        self.streams += 1

    def take_all(self):
        """Bytes of the answers' messages, once all have come."""
        self.s.sendall(self._window(2**31 - 1) + self._frame(8, 0, 0, struct.pack('>I', 2**31 - 1 - 65535)))
        came, open_, f = 0, self.streams, self.s.makefile('rb')
        while open_:
            head = f.read(9)
            size, kind, flags = int.from_bytes(head[:3], 'big'), head[3], head[4]
            f.read(size)
            came += size if kind == 0 else 0
            open_ -= kind in (0, 1) and flags & 1
        return came


READS = '/reins.v1.TaskService/'


@pytest.mark.parametrize('method', ['GetTask', 'ListTasks'])
def test_answers_wait_until_those_before_are_taken(master, method):
    """A connection on which hundreds of megabytes are asked for and none is taken."""
    caller = Caller(master.channel())
    env = {f'k{i}': 'x' * 1000 for i in range(200)}
    ids = [caller.submit(payload=b'x' * MIB, env=env).id for _ in range(1 if method == 'GetTask' else 10)]
    request = stubs.tasks.GetTaskRequest(task_id=ids[0]) if method == 'GetTask' else stubs.tasks.ListTasksRequest(view=stubs.task.TASK_VIEW_FULL)
    reader = Reader(master)
    for _ in range(90):
        reader.ask(READS + method, request)

    name = (READS + method)[1:]

    def going_on():
        return metrics(master)[f'reins_rpc_in_flight{{method="{name}"}}']
    wait_for(lambda: metrics(master)[f'reins_rpc_started_total{{method="{name}",protocol="grpc"}}'] == 90, 'all calls')
    wait_for(lambda: 0 < going_on() < 90, 'answers')
    # Others are answered meanwhile, also those who come later.
    for _ in range(3):
        assert caller.tasks.ListTasks(stubs.tasks.ListTasksRequest(), timeout=PATIENCE).tasks
        assert caller.tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=ids[0]), timeout=PATIENCE).id == ids[0]
    assert going_on() > 50
    assert metrics(master)['reins_buffer_bytes'] < 110 * MIB
    assert reader.take_all() > 90 * MIB
    wait_for(lambda: going_on() == 0, 'no call is left')
    # And one that leaves instead.
    for one in (Reader(master), Reader(master)):
        for _ in range(50):
            one.ask(READS + method, request)
        wait_for(lambda: going_on() > 0, 'calls')
        one.s.close()
        wait_for(lambda: going_on() == 0, 'no call is left')
