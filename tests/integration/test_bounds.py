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
        before = master.peak()
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(begin_http1(master, *WAYS['connect'])) for _ in range(60)]
            wait_for(lambda: refused(master) >= 58, lambda: refused(master))
            assert held(master) <= LIMIT
            assert master.peak() - before < 4 * LIMIT
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
