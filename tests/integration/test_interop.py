"""reinsd under clients that we did not write, beside grpcio: grpc-js, curl, nghttp."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest
import stubs
from examples import EXAMPLES, npm_ci
from fake_worker import W, Kind, hold

State, T = stubs.State, stubs.tasks
HERE = pathlib.Path(__file__).resolve().parent


def framed(message):
    body = message.SerializeToString()
    return struct.pack(">BI", 0, len(body)) + body


def unframed(data):
    flag, size = struct.unpack(">BI", data[:5])
    assert flag == 0 and len(data) == 5 + size
    return data[5:]


class Curl:
    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder

    def __call__(self, path, message, *more):
        """Header lines (trailers included) and the body."""
        request, reply, head = (self.folder / n for n in ("request", "reply", "head"))
        request.write_bytes(framed(message))
        reply.write_bytes(b"")
        done = subprocess.run(
            ["curl", "-sS", "-m", "30", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers",
             "--data-binary", f"@{request}", "-D", head, "-o", reply, *more, f"http://{self.cluster.address}{path}"],
            capture_output=True, text=True, timeout=60,
        )
        assert done.returncode == 0, done.stderr
        lines = [line.strip() for line in head.read_text().splitlines()]
        return lines, reply.read_bytes()


@pytest.fixture
def curl(shared, tmp_path):
    if not shutil.which("curl"):
        pytest.skip("no curl here")
    return Curl(shared, tmp_path)


def test_curl(shared, curl):
    spec = stubs.task.TaskSpec(command=["/bin/true"], queue="curl")
    lines, body = curl("/reins.v1.TaskService/SubmitTask", T.SubmitTaskRequest(spec=spec))
    assert lines[0] == "HTTP/2 200" and "grpc-status: 0" in lines
    assert "content-type: application/grpc" in [line.split("+")[0] for line in lines]
    made = T.SubmitTaskResponse.FromString(unframed(body))
    assert made.created
    lines, body = curl("/reins.v1.TaskService/GetTask", T.GetTaskRequest(task_id=made.task.id))
    assert "grpc-status: 0" in lines
    assert stubs.task.Task.FromString(unframed(body)).spec == spec
    shared.cancel(made.task.id)


def test_curl_errors(curl):
    spec = stubs.task.TaskSpec(command=["/bin/true"], priority=5000)
    lines, body = curl("/reins.v1.TaskService/SubmitTask", T.SubmitTaskRequest(spec=spec))
    assert lines[0] == "HTTP/2 200" and "grpc-status: 3" in lines and body == b""
    assert any(line.startswith("grpc-message: spec.priority") for line in lines)
    assert any(line.startswith("grpc-status-details-bin: ") for line in lines)


def test_deadline_is_kept_by_the_server(shared, curl):
    """curl says grpc-timeout and would wait for ever."""
    made = shared.submit(queue="curl")
    request = T.GetTaskRequest(task_id=made.id)
    request.wait.FromSeconds(60)
    lines, _ = curl("/reins.v1.TaskService/GetTask", request, "-H", "grpc-timeout: 200m")
    assert "grpc-status: 4" in lines
    shared.cancel(made.id)


@pytest.fixture
def nghttp(shared, tmp_path):
    """What nghttp -v prints of a call, with its frames."""
    if not shutil.which("nghttp"):
        pytest.skip("no nghttp here")

    def call(path, message, *more):
        request = tmp_path / "request"
        request.write_bytes(framed(message))
        done = subprocess.run(
            ["nghttp", "-v", "-H", ":method: POST", "-H", "content-type: application/grpc", "-H", "te: trailers", *more,
             "-d", request, f"http://{shared.address}{path}"],
            capture_output=True, timeout=60,
        )
        return done.stdout.decode(errors="replace")

    return call


def test_nghttp(shared, nghttp):
    made = shared.submit(queue="nghttp", name="from-nghttp")
    out = nghttp("/reins.v1.TaskService/GetTask", T.GetTaskRequest(task_id=made.id))
    assert re.search(r":status: 200", out) and "from-nghttp" in out
    assert "grpc-status: 0" in out.split("from-nghttp")[1]  # trailers come after the message
    shared.cancel(made.id)


# Refused by their headers alone: the answer may come before the body, which curl 7.88 takes for an error.
@pytest.mark.parametrize("path, header, status", [
    ("/reins.v1.TaskService/Nothing", "x: y", 12),
    ("/reins.v1.TaskService/GetTask", "grpc-timeout: 200x", 3),
    ("/reins.v1.TaskService/GetTask", "grpc-timeout: 123456789S", 3),
    ("/reins.v1.TaskService/GetTask", "grpc-encoding: deflate", 12),
])
def test_refused_by_its_headers(nghttp, path, header, status):
    out = nghttp(path, T.GetTaskRequest(task_id="x"), "-H", header)
    assert re.search(r":status: 200", out)
    assert f"grpc-status: {status}" in out


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory):
    """grpc-js as the lock file of the example has it."""
    return npm_ci(tmp_path_factory, EXAMPLES / "node")


def test_grpc_js(shared, make_worker, node_modules):
    def end(task):
        ref = (task.task_id, task.attempt)
        worker.log(ref, 0, b"\x00log\xff")
        return W.Outcome(kind=Kind.SUCCEEDED, exit_code=0, result=b"\x00\xff", result_bytes=2, log_end=5)

    worker = make_worker(shared, "js", policy=hold, queues=["js"])
    worker.policy = end
    done = subprocess.run(
        ["node", HERE / "grpc_js.js", shared.address, stubs.PROTO], env={**os.environ, "NODE_PATH": node_modules / "node_modules"}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    task = shared.get(seen["id"])
    assert seen["created"] and not seen["again"]
    assert seen["state"] == "COMPLETED" and seen["attempts"] == ["SUCCEEDED"]
    assert seen["result"] == "00ff" and seen["payload"] == "00ff800a" == task.spec.payload.hex()
    assert seen["listed"] == [task.id]
    assert seen["code"] == 3 and "spec.priority" in seen["message"]
    assert seen["details"]["present"] and seen["details"]["bad_request"] and seen["details"]["field"]
    assert seen["not_found"] == 5 and seen["many"] == 200
    assert seen["log"] == b"\x00log\xff".hex()
