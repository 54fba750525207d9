"""buf curl, curl, nghttp and h2load: what people have at hand when they want to see."""

import base64
import json
import struct
import subprocess

import pytest
import seen
import stubs
from clients import package_version
from conftest import HERE, version_of
from examples import npm_ci

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"
SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
            "reins.v1.AdminService", "reins.v1.TaskService", "reins.v1.WorkerService"]


def url(place):
    return place.url if place.certs else f"http://{place.address}"


def wire(place):
    return "TLS" if place.certs else "clear"


def run(*command, want=0, data=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, input=data, timeout=60)
    assert done.returncode == want, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


# ---- buf curl ----

@pytest.fixture(scope="session")
def buf(tmp_path_factory):
    """buf(place, ARGUMENT...): what it prints, taken from JSON if data was sent."""
    folder = npm_ci(tmp_path_factory, HERE / "node")

    def call(place, *flags, data=None, method="", want=0):
        tls = ["--cacert", place.certs.ca, "--cert", place.certs.path("client-admin"), "--key", place.certs.key("client-admin")] if place.certs else []
        done = run(folder / "node_modules" / ".bin" / "buf", "curl", *tls, *flags, *(["-d", json.dumps(data)] if data is not None else []),
                   f"{url(place)}/{method}".rstrip("/"), want=want)
        out = (done.stderr if want else done.stdout).decode()
        if data is None:
            return out.split()
        decoder, messages, at = json.JSONDecoder(), [], 0
        while at < len(out.rstrip()):
            message, at = decoder.raw_decode(out, at + len(out[at:]) - len(out[at:].lstrip()))
            messages.append(message)
        return messages

    call.version = package_version(folder, "@bufbuild/buf")
    return call


# Nothing but the address: how it comes to the schema, by which protocol, is its own choice.
@pytest.mark.parametrize("flags", [[], ["--protocol", "grpc"], ["--protocol", "grpcweb"],
                                   ["--protocol", "grpc", "--reflect-protocol", "grpc-v1alpha"],
                                   ["--reflect-protocol", "grpc-v1"]], ids=lambda f: " ".join(f) or "no flags")
def test_buf_curl(place, buf, row, flags):
    row("buf curl", buf.version, f"{' '.join(flags) or 'no flags'}, {wire(place)}",
        "list-services, list-methods, submit, get with wait, log, errors with details, of a stream too")
    if "grpc" in flags and not place.certs:
        flags = ["--http2-prior-knowledge", *flags]  # as buf itself says
    assert buf(place, "--list-services", *flags) == SERVICES
    assert "reins.v1.TaskService/WatchTasks" in buf(place, "--list-methods", *flags)
    [made] = buf(place, *flags, data={"spec": {"command": ["echo", "hi"], "queue": "buf"}}, method="reins.v1.TaskService/SubmitTask")
    task_id = made["task"]["id"]
    [done] = buf(place, *flags, data={"taskId": task_id, "wait": "30s"}, method="reins.v1.TaskService/GetTask")
    assert (done["state"], done["attempts"][0]["end"]) == ("COMPLETED", "SUCCEEDED")
    log = buf(place, *flags, data={"taskId": task_id}, method="reins.v1.TaskService/ReadLogs")
    assert b"".join(base64.b64decode(c["data"]) for c in log) == b"hi\n"
    [error] = buf(place, *flags, data={"spec": {"command": ["x"], "priority": 5000}}, method="reins.v1.TaskService/SubmitTask", want=3 * 8)
    assert error["message"].startswith("spec.priority") and error["details"][0]["type"] == "google.rpc.BadRequest"
    [error] = buf(place, *flags, data={"taskId": NOBODY}, method="reins.v1.TaskService/ReadLogs", want=5 * 8)
    assert error["code"] == "not_found"


# ---- curl ----

class Curl:
    def __init__(self, place, *flags):
        self.url = url(place)
        self.flags = ["curl", "-sS", "-m", "60", *flags]
        if place.certs:
            self.flags += ["--cacert", place.certs.ca, "--cert", place.certs.path("client-admin"), "--key", place.certs.key("client-admin")]

    def call(self, method, request, *more):
        """(HTTP status, version, the answer)"""
        done = run(*self.flags, "-w", "\n%{http_code} %{http_version}", "-H", "content-type: application/json", "--data-binary", "@-", *more,
                   f"{self.url}/reins.v1.TaskService/{method}", data=json.dumps(request).encode())
        body, status = done.stdout.rsplit(b"\n", 1)
        code, version = status.decode().split()
        return int(code), version, json.loads(body)

    def stream(self, method, request):
        """The messages, and what the last frame says."""
        body = json.dumps(request).encode()
        done = run(*self.flags, "-H", "content-type: application/connect+json", "--data-binary", "@-",
                   f"{self.url}/reins.v1.TaskService/{method}", data=b"\0" + len(body).to_bytes(4, "big") + body)
        out, messages = done.stdout, []
        while out:
            flags, size = struct.unpack(">BI", out[:5])
            message, out = json.loads(out[5:5 + size]), out[5 + size:]
            if flags & 2:
                assert not out
                return messages, message
            messages.append(message)
        raise AssertionError("no last frame")


@pytest.mark.parametrize("flags, http", [(["--http1.1"], "1.1"), (["--http2-prior-knowledge"], "2"), (["--http2"], None)],
                         ids=["1.1", "2", "as it likes"])
def test_curl(place, row, flags, http):
    curl = Curl(place, *flags)
    queue = f"curl{''.join(flags)}"
    row("curl", version_of("curl"), f"Connect json, {' '.join(flags)}, {wire(place)}", seen.CALLED.removesuffix(", large pages"))
    payload = base64.b64encode(b"\0\xff\x80\n").decode()
    spec = {"command": ["sh", "-c", r'printf "\000log\377"; cat >"$REINS_RESULT"'], "queue": queue, "payload": payload, "params": {"ä": "€"}}
    code, version, made = curl.call("SubmitTask", {"spec": spec, "idempotencyKey": queue})
    # --http2 asks for an upgrade over clear text, which nobody offers any more.
    assert (code, version) == (200, http or ("2" if place.certs else "1.1")) and made["created"]
    assert "created" not in curl.call("SubmitTask", {"spec": spec, "idempotencyKey": queue})[2]
    task_id = made["task"]["id"]
    _, _, done = curl.call("GetTask", {"taskId": task_id, "wait": "30s"})
    assert (done["state"], done["result"], done["spec"]["params"]) == ("COMPLETED", payload, {"ä": "€"})
    assert [t["id"] for t in curl.call("ListTasks", {"filter": {"queue": queue}})[2]["tasks"]] == [task_id]
    log, end = curl.stream("ReadLogs", {"taskId": task_id, "follow": True})
    assert b"".join(base64.b64decode(c["data"]) for c in log) == b"\0log\xff" and end == {}

    code, _, error = curl.call("SubmitTask", {"spec": {"command": ["x"], "priority": 5000}})
    assert (code, error["code"], error["details"][0]["type"]) == (400, "invalid_argument", "google.rpc.BadRequest")
    assert curl.call("GetTask", {"taskId": NOBODY})[0] == 404
    assert curl.stream("ReadLogs", {"taskId": NOBODY})[1]["error"]["code"] == "not_found"

    running = curl.call("SubmitTask", {"spec": {"command": ["sh", "-c", "echo here; sleep 300"], "queue": queue}})[2]["task"]["id"]
    code, _, error = curl.call("GetTask", {"taskId": running, "wait": "60s"}, "-H", "connect-timeout-ms: 300")
    assert (code, error["code"]) == (504, "deadline_exceeded")
    cut = subprocess.run([str(c) for c in (*curl.flags, "-m", "1", "-H", "content-type: application/connect+json", "--data-binary", "@-",
                                           f"{curl.url}/reins.v1.TaskService/ReadLogs")], capture_output=True,
                         input=(lambda b: b"\0" + len(b).to_bytes(4, "big") + b)(json.dumps({"taskId": running, "follow": True}).encode()))
    assert cut.returncode == 28 and base64.b64encode(b"here\n") in cut.stdout  # curl's own limit ended it
    curl.call("CancelTask", {"taskId": running})
    assert curl.call("GetTask", {"taskId": running, "wait": "30s"})[2]["state"] == "CANCELLED"
    large = json.dumps({"spec": {"command": ["x"], "payload": "A" * (6 << 20)}}).encode()
    done = subprocess.run([str(c) for c in (*curl.flags, "-w", "\n%{http_code}", "-H", "content-type: application/json", "--data-binary", "@-",
                                            f"{curl.url}/reins.v1.TaskService/SubmitTask")], capture_output=True, input=large)
    assert done.stdout.rsplit(b"\n", 1)[1] in (b"413", b"429"), done


# ---- nghttp, h2load ----

def framed(message):
    body = message.SerializeToString()
    return struct.pack(">BI", 0, len(body)) + body


def own_certificate(place):
    return [f"--cert={place.certs.path('client-admin')}", f"--key={place.certs.key('client-admin')}"] if place.certs else []


def test_nghttp(place, row, tmp_path):
    row("nghttp", version_of("nghttp2-client"), f"gRPC, {wire(place)}", "submit, get, an error")
    request = tmp_path / "request"

    def call(method, message):
        request.write_bytes(framed(message))
        return run("nghttp", "-v", *own_certificate(place), "-H", ":method: POST", "-H", "content-type: application/grpc", "-H", "te: trailers",
                   "-d", request, f"{url(place)}/reins.v1.TaskService/{method}").stdout.decode(errors="replace")

    spec = stubs.task.TaskSpec(command=["true"], name="by-nghttp", queue="nghttp")
    out = call("SubmitTask", stubs.tasks.SubmitTaskRequest(spec=spec))
    assert ":status: 200" in out and "grpc-status: 0" in out.split("by-nghttp")[1]
    out = call("GetTask", stubs.tasks.GetTaskRequest(task_id=NOBODY))
    assert "grpc-status: 5" in out and "grpc-message: task_id" in out


@pytest.mark.parametrize("kind", ["gRPC", "Connect json"])
def test_h2load(places, row, tmp_path, kind):
    """h2load speaks TLS without a certificate of ours only, so clear text."""
    place = places("clear")
    row("h2load", version_of("nghttp2-client"), f"{kind}, clear", "2,000 times ListTasks, 20 at once on each of 4 connections")
    before = counted(place)
    request = tmp_path / "request"
    if kind == "gRPC":
        request.write_bytes(framed(stubs.tasks.ListTasksRequest(page_size=1)))
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    else:
        request.write_text('{"pageSize": 1}')
        headers = ["-H", "content-type: application/json"]
    out = run("h2load", "-n", "2000", "-c", "4", "-m", "20", *headers, "-d", request,
              f"http://{place.address}/reins.v1.TaskService/ListTasks").stdout.decode()
    assert "2000 succeeded, 0 failed, 0 errored" in out and "status codes: 2000 2xx" in out, out
    assert counted(place) - before == 2000  # h2load does not look at grpc-status


def counted(place):
    """Calls of ListTasks that ended well, says the master."""
    out = run("curl", "-sS", f"http://{place.address}/metrics").stdout.decode()
    found = [line for line in out.splitlines() if line.startswith("reins_") and 'ListTasks"' in line and '"OK"' in line and "_bucket" not in line]
    return sum(int(line.rsplit(" ", 1)[1]) for line in found)
