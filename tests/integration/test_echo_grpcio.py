"""The gRPC server under grpcio, curl and nghttp, through the echo server of this folder.

REINS_BUILD names the build folder (default: build in the root of the tree)."""

import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import grpc
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("REINS_BUILD", ROOT / "build"))
UNARY = "/test.Echo/Unary"
BIDI = "/test.Echo/Bidi"


class Echo:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [BUILD / "tests/integration/echo_server", *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("listening "), line
        self.port = int(line.split()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.told = False

    def term(self):
        """Once: the second would meet a process that is past its handler."""
        if not self.told:
            self.told = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """SIGTERM; the last line and the exit status."""
        self.term()
        out, _ = self.process.communicate(timeout=20)
        return out, self.process.returncode


@pytest.fixture
def echo():
    server = Echo()
    yield server
    out, status = server.stop()
    assert status == 0
    assert "drained, 0 calls left" in out


@pytest.fixture
def channel(echo):
    with grpc.insecure_channel(echo.address) as made:
        yield made


def unary(channel):
    return channel.unary_unary(UNARY)


def bidi(channel):
    return channel.stream_stream(BIDI)


def test_unary(channel):
    for size in (0, 1, 5, 16384, 65536, 3 * 1024 * 1024):
        body = os.urandom(size)
        assert unary(channel)(body, timeout=20) == body


def test_bidi_in_step(channel):
    pending = threading.Semaphore(0)

    def requests():
        for i in range(100):
            pending.acquire()
            yield b"%d" % i

    pending.release()
    seen = []
    call = bidi(channel)(requests(), timeout=20)
    for reply in call:
        seen.append(reply)
        pending.release()
    assert seen == [b"%d" % i for i in range(100)]
    assert call.code() == grpc.StatusCode.OK


def test_bidi_headers_come_at_once(channel):
    """Before any message: a worker's stream is open when its headers are there."""
    stop = threading.Event()

    def requests():
        stop.wait(20)
        return
        yield

    call = bidi(channel)(requests(), timeout=20)
    assert call.initial_metadata() is not None
    stop.set()
    assert list(call) == []


def test_metadata(channel):
    _, call = unary(channel).with_call(b"x", timeout=20, metadata=(("a-bin", b"\x00\xff"), ("grpc-odd", "1")))
    assert call.code() == grpc.StatusCode.OK
    initial = dict(call.initial_metadata())
    assert initial["server"].startswith("reins/")
    assert "grpc-odd" not in initial


def test_refusal_carries_details(channel):
    with pytest.raises(grpc.RpcError) as e:
        unary(channel)(b"fail", timeout=20)
    assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert e.value.details() == "100% wröng\n"
    details = dict(e.value.trailing_metadata())["grpc-status-details-bin"]
    assert b"type.googleapis.com/google.rpc.BadRequest" in details
    assert b"spec.argv" in details


def test_deadline(channel):
    with pytest.raises(grpc.RpcError) as e:
        unary(channel)(b"sleep", timeout=0.2)
    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_cancel(channel):
    call = unary(channel).future(b"sleep")
    call.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        call.result(timeout=20)
    assert unary(channel)(b"after", timeout=20) == b"after"


@pytest.mark.parametrize("path", ["/test.Echo/None", "/test.echo/Unary", "/test.Echo/Unary/", "/no", "/test.Echo/Unary?a=b"])
def test_unknown_method(channel, path):
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary(path)(b"x", timeout=20)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_over_the_message_limit(echo):
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(echo.address, options=options) as channel:
        with pytest.raises(grpc.RpcError) as e:
            unary(channel)(b"x" * (5 * 1024 * 1024), timeout=20)
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "5242880" in e.value.details() and "4194304" in e.value.details()
        assert unary(channel)(b"after", timeout=20) == b"after"


def test_headers_too_large(channel):
    with pytest.raises(grpc.RpcError) as e:
        unary(channel)(b"x", timeout=20, metadata=(("big", "v" * 20000),))
    assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert unary(channel)(b"after", timeout=20) == b"after"


def test_gzip_both_ways(echo):
    """Messages of a call in gzip, each on its own; what is short or does not shrink comes as it is."""
    with grpc.insecure_channel(echo.address, compression=grpc.Compression.Gzip) as channel:
        for text in (b"x" * 10000, b"", b"y", b"z" * 2_000_000, os.urandom(5000)):
            assert unary(channel)(text, timeout=20) == text
        bidi = channel.stream_stream(BIDI)(iter([b"a" * 5000, b"", b"b" * 5000]), timeout=20)
        assert list(bidi) == [b"a" * 5000, b"", b"b" * 5000]


def test_gzip_bomb(echo):
    with grpc.insecure_channel(echo.address, [("grpc.max_send_message_length", -1)], grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError) as e:
            unary(channel)(b"x" * 100_000_000, timeout=20)
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "4194304" in e.value.details()
        assert unary(channel)(b"x" * 4_000_000, timeout=20) == b"x" * 4_000_000


def test_other_compression_is_refused(echo):
    with grpc.insecure_channel(echo.address, compression=grpc.Compression.Deflate) as channel:
        with pytest.raises(grpc.RpcError) as e:
            unary(channel)(b"x" * 10000, timeout=20)
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and "gzip" in e.value.details()


def test_wrong_cardinality(channel):
    """No message, and two, to a unary method."""
    for messages in ([], [b"a", b"b"]):
        with pytest.raises(grpc.RpcError) as e:
            list(channel.stream_stream(UNARY)(iter(messages), timeout=20))
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_64_concurrent(channel):
    futures = [unary(channel).future(b"%d" % i * 100, timeout=30) for i in range(64) for _ in range(10)]
    replies = [f.result() for f in futures]
    assert replies == [b"%d" % i * 100 for i in range(64) for _ in range(10)]


def test_3000_cancelled_calls_leave_the_connection(channel):
    calls = [unary(channel).future(b"sleep") for _ in range(900)]
    for call in calls:
        call.cancel()
    for _ in range(2100):
        unary(channel).future(b"sleep").cancel()
    assert unary(channel)(b"after", timeout=20) == b"after"


def test_drain_serves_what_was_accepted():
    server = Echo()
    with grpc.insecure_channel(server.address) as channel:
        go_on = threading.Event()

        def requests():
            yield b"one"
            go_on.wait(20)
            yield b"two"

        call = bidi(channel)(requests(), timeout=20)
        assert next(call) == b"one"
        server.term()
        # The listener is closed: the drain has begun.
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", server.port)) != 0:
                    break
        go_on.set()
        assert list(call) == [b"two"]
        assert call.code() == grpc.StatusCode.OK
    out, status = server.stop()
    assert "drained, 0 calls left" in out and status == 0


def test_drain_ends_parked_calls():
    server = Echo()
    with grpc.insecure_channel(server.address) as channel:
        call = unary(channel).future(b"sleep", timeout=30)
        assert unary(channel)(b"x", timeout=20) == b"x"
        out, status = server.stop()
        with pytest.raises(grpc.RpcError) as e:
            call.result(timeout=20)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "drained, 0 calls left" in out and status == 0


def curl(echo, *arguments):
    done = subprocess.run(
        ["curl", "-sS", "-m", "20", "-D", "-", "-o", "/dev/null", *arguments], capture_output=True, text=True
    )
    return done.stdout


def test_curl(echo, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(struct.pack(">BI", 0, 5) + b"hello")
    out = curl(
        echo, "--http2-prior-knowledge", "-H", "content-type: application/grpc+proto", "-H", "te: trailers",
        "--data-binary", f"@{body}", f"http://{echo.address}{UNARY}",
    )
    assert "HTTP/2 200" in out and "grpc-status: 0" in out
    out = curl(
        echo, "--http2-prior-knowledge", "-H", "content-type: application/json", "-d", "{}",
        f"http://{echo.address}{UNARY}",
    )
    assert "HTTP/2 415" in out and "grpc-status" not in out
    out = curl(echo, "--http2-prior-knowledge", f"http://{echo.address}{UNARY}")
    assert "HTTP/2 405" in out
    out = curl(echo, f"http://{echo.address}/")
    assert "HTTP/1.1 505" in out


def test_nghttp(echo, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(struct.pack(">BI", 0, 5) + b"hello")
    done = subprocess.run(
        ["nghttp", "-v", "-H", ":method: POST", "-H", "content-type: application/grpc", "-H", "te: trailers",
         "-d", body, f"http://{echo.address}{UNARY}"],
        capture_output=True, text=True, timeout=20,
    )
    assert "grpc-status: 0" in done.stdout and "hello" in done.stdout


def test_idle_bytes_that_are_no_preface(echo):
    with socket.create_connection(("127.0.0.1", echo.port)) as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nXX")
        readable, _, _ = select.select([s], [], [], 20)
        assert readable and s.recv(100).startswith(b"HTTP/1.1 505")
