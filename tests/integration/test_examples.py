"""client/examples: each client does what it says, over clear text and over TLS. (Those in Go and C++: tests/interop.)"""

import re
import subprocess

import pytest
import stubs
from certs import Certs
from cluster import BUILD, PATIENCE
from examples import EXAMPLES, Example, build, clusters_with_a_worker, does_the_rest, goes_through, npm_ci
from lone_master import Caller, LoneMaster
from real_worker import workers


@pytest.fixture(scope="module")
def places(servers, need_reinsd, build_dir, tmp_path_factory):
    with clusters_with_a_worker(servers, build_dir, tmp_path_factory.mktemp("workers")) as place:
        yield place


def python(tmp_path_factory):
    return Example(["/usr/bin/python3", EXAMPLES / "python" / "client.py"], PYTHONPATH=str(build("python", tmp_path_factory.mktemp("python"))))


def node(tmp_path_factory):
    folder = npm_ci(tmp_path_factory, EXAMPLES / "node")
    return Example(["node", "client.js"], cwd=folder, NODE_NO_WARNINGS="1", REINS_PROTO=str(EXAMPLES.parents[1] / "proto"))


def curl(tmp_path_factory):
    return Example([EXAMPLES / "curl" / "client.sh"], code=str.lower)


@pytest.fixture(scope="module", params=[python, node, curl], ids=lambda make: make.__name__)
def example(request, tmp_path_factory):
    return request.param(tmp_path_factory)


def test_over_clear_text(places, example, request, tmp_path):
    cluster, queue = places("clear"), request.node.callspec.id
    goes_through(example, cluster, queue)
    if queue != "node":  # 0.6 s each time it starts: tests/interop has the rest
        does_the_rest(example, cluster, queue, tmp_path)


def test_over_tls(places, example, request):
    goes_through(example, places("tls"), request.node.callspec.id)


class WithTokens(LoneMaster):
    """TLS, and a token instead of a client's certificate."""

    def __init__(self, folder):
        self.certs = Certs(folder / "tls")
        self.file = folder / "tokens"
        self.admin, self.ada, self.py = (self.new_token(*who) for who in (("root", "admin"), ("ada", "submitter"), ("py", "worker")))
        super().__init__(folder, tokens_file=self.file, tls_cert=self.certs.path("server"), tls_key=self.certs.key("server"))
        self.flags["listen"] = f"tls://{self.address}"
        self.url = f"https://{self.address}"

    def new_token(self, name, role):
        made = subprocess.run([BUILD / "client" / "reins", "token", "new", "--name", name, "--role", role, "--file", self.file], capture_output=True,
                              text=True, timeout=PATIENCE)
        assert made.returncode == 0, made.stderr
        return re.search(r"reins_\w+", made.stdout).group()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    master = WithTokens(tmp_path_factory.mktemp("guarded")).start()
    yield master
    master.close()


NO_CERT = {"REINS_TLS_CERT": "", "REINS_TLS_KEY": ""}


def test_with_a_token(guarded, example, request):
    token, queue = guarded.ada, request.node.callspec.id
    made = example.word(guarded, "submit", "true", REINS_TOKEN=token, REINS_QUEUE=queue, **NO_CERT)
    assert example.word(guarded, "list", queue, REINS_TOKEN=token, **NO_CERT).split()[:2] == [made, "PENDING"]
    for wrong in ("", "reins_nobody_" + "0" * 64):
        error = example.run(guarded, "list", want=1, REINS_TOKEN=wrong, **NO_CERT).decode()
        assert error.startswith(example.code("UNAUTHENTICATED") + ": "), error


def test_worker_with_a_token(guarded, tmp_path_factory):
    stubs_folder = build("python", tmp_path_factory.mktemp("python"))
    program = Example(["setpriv", "--pdeathsig", "KILL", "--", "/usr/bin/python3", EXAMPLES / "python" / "handlers.py", "py"],
                      PYTHONPATH=str(stubs_folder))
    caller = Caller(guarded.channel(guarded.certs.credentials(None)), guarded.admin)
    worker = program.start(guarded, REINS_TOKEN=guarded.py, **NO_CERT)
    try:
        task = caller.submit(command=[], handler="add", payload=b"[1, 2]")
        get = stubs.tasks.GetTaskRequest(task_id=task.id)
        get.wait.FromSeconds(30)
        done = caller.tasks.GetTask(get, timeout=PATIENCE)
        assert (done.state, done.result, done.owner) == (stubs.State.COMPLETED, b"3", "root")
    finally:
        worker.terminate()
        assert worker.wait(PATIENCE) == 0, worker.stderr.read()
