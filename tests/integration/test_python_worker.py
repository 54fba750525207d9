"""The in-process worker of client/examples/python under a real master: the same promises as reins-worker's."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import stubs
from cluster import LONG, PATIENCE, QUICK, wait_for
from examples import EXAMPLES, build, environment
from programs import connected, info, output

State, End = stubs.State, stubs.End
HERE = pathlib.Path(__file__).resolve().parent


class Program:
    """A worker that runs handlers.py or python_handlers.py."""

    def __init__(self, cluster, stubs_folder, folder, name, script, arguments, **env):
        self.log_path = folder / f"{name}.log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "/usr/bin/python3", script, name, *map(str, arguments)], stderr=log, stdout=log,
                env=environment(cluster, f"worker-{name}", PYTHONPATH=str(stubs_folder), **env))

    def log(self):
        return self.log_path.read_text()

    def sigterm(self):
        self.process.send_signal(signal.SIGTERM)

    def ended(self, timeout=PATIENCE):
        return self.process.wait(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def python_stubs(tmp_path_factory):
    return build("python", tmp_path_factory.mktemp("python"))


@pytest.fixture
def start(python_stubs, tmp_path):
    """start(cluster, id): a worker with our handlers, connected."""
    made = []

    def start(cluster, name="py", drain=60, grace=10, wait=True, script=HERE / "python_handlers.py", arguments=None, **env):
        arguments = (drain, grace) if arguments is None else arguments
        made.append(Program(cluster, python_stubs, tmp_path, name, script, arguments, **env))
        if wait:
            connected(cluster, name)
        return made[-1]

    yield start
    for program in made:
        program.kill()
        print(f"---- {program.log_path.name}\n{program.log()}")


def running(cluster, task_id, attempt=1):
    def look():
        t = cluster.get(task_id)
        return t if t.state == State.RUNNING and t.attempt == attempt and t.HasField("started_at") else None
    return wait_for(look, lambda: f"it runs: {cluster.get(task_id)}")


def ticks(cluster, task_id):
    return output(cluster, task_id).count(b"tick\n")


def test_results_and_failures(cluster, start):
    start(cluster)
    well = cluster.submit(handler="echo", payload=b"\0\xff").id
    badly = cluster.submit(handler="fails").id
    done = cluster.finished(well)
    assert (done.state, done.result, [a.end for a in done.attempts]) == (State.COMPLETED, b"\0\xff", [End.SUCCEEDED])
    assert not done.HasField("exit_code") and done.attempts[0].HasField("started_at")
    done = cluster.finished(badly)
    assert done.state == State.FAILED and done.error.rstrip().endswith("ValueError: as it ? should") and "Traceback" in done.error
    assert output(cluster, badly) == b"about to\n"
    w = info(cluster, "py")
    assert list(w.handlers) == ["deaf", "echo", "fails", "prints", "until"] and w.tasks_die_with_process and not w.runs_commands


def test_the_handlers_that_are_shown(make_cluster, start):
    """handlers.py as it is, over TLS."""
    cluster = make_cluster(tls=True).start()
    cluster.certs.make("--worker", "shown")
    start(cluster, "shown", script=EXAMPLES / "python" / "handlers.py", arguments=())
    added = cluster.submit(handler="add", payload=b"[1, 2.5]").id
    counted = cluster.submit(handler="count", params={"to": "2"}).id
    assert cluster.finished(added).result == b"3.5" and output(cluster, added) == b"adding 2 numbers\n"
    assert cluster.finished(counted).result == b"done" and output(cluster, counted) == b"1\n2\n"


def test_stops(cluster, start, tmp_path):
    start(cluster)
    params = {"go": str(tmp_path / "go")}
    cancelled, timed = (cluster.submit(handler="until", params=params, **more).id for more in ({}, {"timeout": {"nanos": 300000000}}))
    running(cluster, cancelled)
    cluster.cancel(cancelled, "enough")
    assert [a.end for a in cluster.finished(cancelled).attempts] == [End.STOPPED]
    assert cluster.get(cancelled).state == State.CANCELLED and output(cluster, cancelled).endswith(b"stopped\n")
    done = cluster.finished(timed)
    assert (done.state, [a.end for a in done.attempts]) == (State.FAILED, [End.TIMED_OUT])


def test_more_tasks_than_slots(cluster, start):
    start(cluster)
    large = cluster.submit(handler="prints", params={"bytes": "0", "result": str((1 << 20) + 1)}).id
    many = [cluster.submit(handler="prints", params={"bytes": "300000"}).id for _ in range(8)]
    done = cluster.finished(large)
    assert done.state == State.COMPLETED and done.result_dropped and done.result_bytes == (1 << 20) + 1
    for i in many:
        assert cluster.finished(i).state == State.COMPLETED
        assert output(cluster, i) == (b"x" * 3999 + b"\n") * 75


def test_store_is_away(make_cluster, start, tmp_path):
    """What is printed meanwhile is kept up to a limit of memory, and the rest is counted; the outcome waits."""
    cluster = make_cluster(LONG).start()
    start(cluster)
    go = tmp_path / "go"
    task = cluster.submit(handler="prints", params={"bytes": "4000000", "go": str(go)}).id
    running(cluster, task)
    cluster.postgres.stop()
    go.touch()
    wait_for((tmp_path / "go.printed").exists, "it has printed all")
    cluster.postgres.start()
    assert cluster.finished(task).state == State.COMPLETED
    at = 0
    chunks = cluster.read_logs(task)
    for c in chunks:  # whole, gaps and all
        assert c.offset == at
        at += len(c.data) + c.dropped_bytes
    kept = sum(len(c.data) for c in chunks)
    assert at == 4000000 and 1000000 <= kept <= 1 << 20, kept


def test_master_restarts_while_it_runs(cluster, start, tmp_path):
    """One attempt, its log without a gap, its outcome recorded once."""
    start(cluster)
    go = tmp_path / "go"
    task = cluster.submit(handler="until", params={"go": str(go)}).id
    running(cluster, task)
    cluster.restart()
    cluster.connect_anew()
    connected(cluster, "py")
    n = ticks(cluster, task)
    wait_for(lambda: ticks(cluster, task) > n, "the log goes on")
    cluster.kill9()
    go.touch()  # it ends while nobody is there
    wait_for(lambda: (tmp_path / "go.went").exists(), "the handler's end")
    cluster.start()
    cluster.connect_anew()
    done = cluster.finished(task)
    assert (done.state, done.result, [a.end for a in done.attempts]) == (State.COMPLETED, b"went", [End.SUCCEEDED])
    chunks = cluster.read_logs(task)
    assert not any(c.dropped_bytes for c in chunks)
    assert re.fullmatch(rb"pid \d+\n(tick\n)+", b"".join(c.data for c in chunks))


def test_process_is_killed(make_cluster, start, tmp_path):
    """Its tasks die with it: they go on elsewhere after the grace, not after the lease."""
    quick = make_cluster({**LONG, "disconnect-grace": "200ms"}).start()
    one = start(quick, "one")
    go = tmp_path / "go"
    task = quick.submit(handler="until", params={"go": str(go)}).id
    running(quick, task)
    one.kill()
    start(quick, "two")
    running(quick, task, attempt=2)
    go.touch()
    done = quick.finished(task)
    assert (done.state, done.worker_id) == (State.COMPLETED, "two") and [a.end for a in done.attempts] == [End.LOST, End.SUCCEEDED]


def test_drain_waits(cluster, start, tmp_path):
    program = start(cluster)
    go = tmp_path / "go"
    task = cluster.submit(handler="until", params={"go": str(go)}).id
    running(cluster, task)
    program.sigterm()
    wait_for(lambda: info(cluster, "py").state == stubs.admin.WorkerInfo.DRAINING, "it drains")
    later = cluster.submit(handler="echo").id
    go.touch()
    assert cluster.finished(task).state == State.COMPLETED and program.ended() == 0
    assert cluster.get(later).state == State.PENDING
    cluster.cancel(later)


def test_drain_gives_back(cluster, start, tmp_path):
    """After drain_timeout, or at the second SIGTERM."""
    go = tmp_path / "go"
    task = cluster.submit(handler="until", params={"go": str(go)}).id
    first = start(cluster, "first", drain=0.2)
    running(cluster, task)
    first.sigterm()
    assert first.ended() == 0
    second = start(cluster, "second")
    running(cluster, task, attempt=2)
    second.sigterm()
    wait_for(lambda: "draining" in second.log(), "it drains")
    second.sigterm()
    assert second.ended() == 0
    start(cluster, "third")
    running(cluster, task, attempt=3)
    go.touch()
    done = cluster.finished(task)
    assert done.state == State.COMPLETED and [a.end for a in done.attempts] == [End.STOPPED, End.STOPPED, End.SUCCEEDED]


def test_drained_from_afar(cluster, start):
    start(cluster)
    cluster.admin.DrainWorker(stubs.admin.DrainWorkerRequest(worker_id="py"), timeout=PATIENCE)
    wait_for(lambda: info(cluster, "py").state == stubs.admin.WorkerInfo.DRAINING, "it drains")
    task = cluster.submit(handler="echo").id
    cluster.admin.DrainWorker(stubs.admin.DrainWorkerRequest(worker_id="py", resume=True), timeout=PATIENCE)
    assert cluster.finished(task).state == State.COMPLETED


def test_second_process_with_its_id(cluster, start):
    """The older one ends, and says why."""
    first = start(cluster)
    start(cluster, wait=False)
    assert first.ended() == 1 and "another process has this worker id" in first.log()
    task = cluster.submit(handler="echo").id
    assert cluster.finished(task).state == State.COMPLETED


@pytest.mark.parametrize("handler, ends", [("until", False), ("deaf", True)])
def test_exclusive_lease_ends(quick, start, tmp_path, handler, ends):
    """The master is gone. Who listens is asked to stop in time and its process stays; who does not is ended with it, before
    the lease is over. What is not exclusive goes on, if the process does."""
    program = start(quick, grace=0.3)
    params = {"go": str(tmp_path / "go")}
    alone = quick.submit(handler=handler, params=params, exclusive=True).id
    beside = quick.submit(handler="until", params=params).id
    running(quick, alone)
    running(quick, beside)
    quick.kill9()
    killed = time.monotonic()
    lease = float(QUICK["lease-ttl"].removesuffix("ms")) / 1000
    if ends:
        assert program.ended() == -signal.SIGKILL
        assert time.monotonic() - killed < lease
        return
    wait_for((tmp_path / "go.stopped").exists, "the exclusive one has been asked to stop")
    with pytest.raises(subprocess.TimeoutExpired):
        program.ended(0.4 * lease)
    (tmp_path / "go").touch()
    quick.start()
    quick.connect_anew()
    assert quick.finished(beside).attempts[0].end == End.SUCCEEDED and len(quick.get(beside).attempts) == 1
    done = quick.finished(alone)
    assert done.attempts[0].end == End.STOPPED and done.attempts[-1].end == End.SUCCEEDED, done
