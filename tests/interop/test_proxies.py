"""Through nginx and nghttpx: every client that is not the proxy's own matter, and a worker's stream."""

import subprocess

import pytest
import proxies
import seen
from conftest import version_of
from examples import EXAMPLES, build, environment
from programs import connected, output

PACKAGES = {"nginx": "nginx-light", "nghttpx": "nghttp2-proxy"}


@pytest.fixture(params=["nginx", "nghttpx"])
def proxy(request, place, tmp_path):
    version = version_of(PACKAGES[request.param])
    made = getattr(proxies, request.param)(place, tmp_path)
    made.name, made.version = request.param, version
    made.wire = f"{request.param} {version} to a master over {'TLS' if place.certs else 'clear text'}"
    yield made
    made.close()


@pytest.mark.parametrize("name", ["grpcio", "grpc_js", "go", "cpp"])
def test_grpc(proxy, clients, row, name):
    client = clients(name)
    row(client.name, client.version, f"gRPC through {proxy.wire}", seen.CALLED)
    seen.check(proxy, [*client.command, proxy.name], cwd=client.cwd)


@pytest.mark.parametrize("protocol, http, codec", [("connect", "1.1", "json"), ("connect", "2", "json"), ("grpcweb", "2", "binary"), ("grpc", "2", "binary")])
def test_connect(proxy, clients, row, protocol, http, codec):
    if proxy.name == "nginx" and http == "2" and protocol != "grpc":
        pytest.skip("nginx speaks HTTP/2 to a server with grpc_pass only, which is for gRPC")
    client = clients("connect")
    early = proxy.name == "nghttpx" and http == "1.1"
    called = seen.CALLED.replace(", 5 MiB", "") if early else seen.CALLED
    row(client.name, client.version, f"{protocol} {codec}, HTTP/{http} through {proxy.wire}", called)
    address = proxy.address_1 if proxy.name == "nginx" and http == "1.1" else proxy.address
    seen.check(proxy, [*client.command, f"http://{address}", protocol, http, codec], cwd=client.cwd,
               env={"INTEROP_WAY": proxy.name, **({"NO_EARLY_ANSWER": "1"} if early else {})})


def test_worker(proxy, row, tmp_path, tmp_path_factory):
    """WorkerService.Session, which is open both ways for as long as the worker lives."""
    name = f"through-{proxy.name}"
    if proxy.place.certs:
        pytest.skip("the certificate that the master sees is the proxy's, which names no worker")
    row("worker.py", version_of("python3-grpcio"), f"gRPC through {proxy.wire}", "WorkerService.Session: hello, heartbeats, dispatch, log, outcome, drain")
    with open(tmp_path / "worker.log", "wb") as log:
        worker = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "/usr/bin/python3", EXAMPLES / "python" / "handlers.py", name], stdout=log, stderr=log,
            env=environment(proxy, PYTHONPATH=str(build("python", tmp_path_factory.mktemp("python")))))
    try:
        connected(proxy, name)
        task = proxy.submit(handler="count", params={"to": "12"}).id  # longer than a heartbeat's interval
        done = proxy.finished(task)
        assert (done.result, done.worker_id) == (b"done", name)
        assert output(proxy, task) == b"".join(b"%d\n" % i for i in range(1, 13))
    finally:
        worker.terminate()
        code = worker.wait(30)
    assert code == 0, (tmp_path / "worker.log").read_text()
