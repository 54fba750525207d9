"""Connections whose other end is gone without a word, or hears and is not heard: whoever waits on one notices in a bounded
time, says why, and comes back; and the master keeps nothing of them."""

import os
import pathlib
import socket
import struct
import subprocess
import sys

import grpc
import pytest
import stubs
from aftermath import check
from cluster import BUILD, QUICK, wait_for
from netns import network  # noqa: F401

State, End = stubs.State, stubs.End
KEEPALIVE = "500ms"  # so a second at most for who has nothing to say
BOUND = 20  # seconds; generous, but less than what the kernel (30 s) and the defaults take
HERE = pathlib.Path(__file__).resolve().parent
COUNT = 'i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo end'

WAYS = {"both ways": ("out", "in"), "to the master": ("out",), "from the master": ("in",)}
directions = pytest.mark.parametrize("lost", WAYS.values(), ids=WAYS)


@pytest.fixture
def cluster(make_cluster, network):  # noqa: F811
    """Reached from the network too."""
    made = make_cluster({**QUICK, "insecure": "true", "keepalive": KEEPALIVE, "min-ping-interval": "100ms"})
    made.address = made.flags["listen"] = f"{network.host}:{made.port}"
    return made.start()


def connections(cluster, network):  # noqa: F811
    """Those from the network that the master has open: it knows them, and the kernel says where they come from."""
    from_there = struct.unpack("<I", socket.inet_aton(network.inside))[0]
    held = set()
    for fd in pathlib.Path(f"/proc/{cluster.process.pid}/fd").iterdir():
        try:
            held.add(os.readlink(fd))
        except FileNotFoundError:
            pass
    found = 0
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, _, _, _, _, _, _, inode = line.split()[:10]
        found += (here.endswith(f":{cluster.port:04X}") and there.startswith(f"{from_there:08X}:") and f"socket:[{inode}]" in held)
    return found


def start(cluster, go):
    t = cluster.submit(command=["sh", "-c", COUNT], env={"GO": str(go)}).id
    wait_for(lambda: cluster.get(t).HasField("started_at"), "it runs")
    return t


class Command:
    """A program in that network."""

    def __init__(self, network, tmp_path, *command, **env):  # noqa: F811
        self.out, self.err = tmp_path / "out", tmp_path / "err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*network.prefix, *map(str, command)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**os.environ, **env})

    def said(self):
        return self.err.read_text()


@pytest.fixture
def command(network, tmp_path):  # noqa: F811
    made = []

    def start(*words, **env):
        made.append(Command(network, tmp_path, *words, **env))
        return made[-1]

    yield start
    for c in made:
        if c.process.poll() is None:
            c.process.kill()
        c.process.wait()


def reins(command, cluster, *words):
    return command(BUILD / "client" / "reins", *words, "--server", cluster.address, "--keepalive", KEEPALIVE)


@directions
def test_a_worker(cluster, start_worker, network, tmp_path, lost):  # noqa: F811
    go = tmp_path / "go"
    w = start_worker(cluster, prefix=network.prefix)
    t = start(cluster, go)
    assert connections(cluster, network) == 1
    network.drop(lost)
    wait_for(lambda: w.log().count("link: ") > 0, lambda: f"the worker notices\n{w.log()}", BOUND)
    wait_for(lambda: not connections(cluster, network), "the master has closed it", BOUND)
    info = cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30)
    assert info.workers_connected == 0
    network.heal()
    wait_for(lambda: w.log().count("session: open") == 2, lambda: w.log())
    go.touch()
    done = cluster.finished(t)
    assert (done.state, [a.end for a in done.attempts]) == (State.COMPLETED, [End.SUCCEEDED])
    check(cluster, [t])


@directions
def test_logs_that_are_followed(cluster, start_worker, network, command, tmp_path, lost):  # noqa: F811
    go = tmp_path / "go"
    start_worker(cluster)
    t = start(cluster, go)
    logs = reins(command, cluster, "logs", "-f", t)
    wait_for(lambda: logs.out.read_bytes().count(b"\n") > 3, "it reads along")
    network.drop(lost)
    wait_for(lambda: "trying again" in logs.said(), lambda: f"it notices, and says so: {logs.said()}", BOUND)
    wait_for(lambda: not connections(cluster, network), "the master has closed it", BOUND)
    network.heal()
    seen = logs.out.read_bytes().count(b"\n")
    wait_for(lambda: logs.out.read_bytes().count(b"\n") > seen, "it reads on")
    go.touch()
    assert logs.process.wait(BOUND) == 0
    lines = logs.out.read_text().split()
    assert lines == [*map(str, range(1, len(lines))), "end"], "each line once, in order"


def test_a_wait(cluster, start_worker, network, command, tmp_path):  # noqa: F811
    go = tmp_path / "go"
    start_worker(cluster)
    t = start(cluster, go)
    waits = reins(command, cluster, "wait", t)
    wait_for(lambda: connections(cluster, network), "it waits")
    network.drop()
    wait_for(lambda: not connections(cluster, network), "the master has closed it", BOUND)
    wait_for(lambda: "trying again" in waits.said(), lambda: f"it notices, and says so: {waits.said()}", BOUND)
    network.heal()
    go.touch()
    assert waits.process.wait(BOUND) == 0 and "COMPLETED" in waits.out.read_text()


ASK = """
import sys
sys.path.insert(0, sys.argv[3])
import grpc, stubs
options = [] if sys.argv[4] == 'no' else [('grpc.keepalive_time_ms', 1000), ('grpc.keepalive_timeout_ms', 500),
                                          ('grpc.http2.max_pings_without_data', 0)]
request = stubs.tasks.GetTaskRequest(task_id=sys.argv[2])
request.wait.FromSeconds(60)
try:
    print(stubs.tasks_grpc.TaskServiceStub(grpc.insecure_channel(sys.argv[1], options)).GetTask(
        request, timeout=90 if options else 3).state)
except grpc.RpcError as e:
    print(e.code().name, e.details())
"""


@pytest.mark.parametrize("lost, pings", [*((ways, "yes") for ways in WAYS.values()), (("out", "in"), "no")], ids=[*WAYS, "without pings"])
def test_a_stock_client(cluster, start_worker, network, command, tmp_path, lost, pings):  # noqa: F811
    """A GetTask that waits on the server. Who does not look after its connection has its deadline; the master does not wait
    for that."""
    go = tmp_path / "go"
    start_worker(cluster)
    t = start(cluster, go)
    asks = command(sys.executable, "-c", ASK, cluster.address, t, HERE, pings)
    wait_for(lambda: connections(cluster, network), "it asks")
    network.drop(lost)
    wait_for(lambda: not connections(cluster, network), "the master has closed it", BOUND)
    assert asks.process.wait(BOUND) == 0, asks.said()
    code = asks.out.read_text().split()[0]
    assert code == "UNAVAILABLE" if pings == "yes" else code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), asks.out.read_text()
    network.heal()
    go.touch()
    assert cluster.finished(t).state == State.COMPLETED


def test_pings_of_a_client_are_welcome(cluster, network):  # noqa: F811
    """As often as --min-ping-interval allows, without any call and for a while: nobody is told to be calm."""
    options = [("grpc.keepalive_time_ms", 100), ("grpc.keepalive_timeout_ms", 2000), ("grpc.keepalive_permit_without_calls", 1),
               ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 100),
               ("grpc.use_local_subchannel_pool", 1)]
    with cluster.open_channel(options) as channel:
        stub = stubs.tasks_grpc.TaskServiceStub(channel)
        request = stubs.tasks.GetTaskRequest(task_id=cluster.submit().id)
        request.wait.FromMilliseconds(1500)
        assert stub.GetTask(request, timeout=30).state == State.PENDING
        states = []
        channel.subscribe(states.append)
        assert stub.GetTask(request, timeout=30).state == State.PENDING
        assert grpc.ChannelConnectivity.TRANSIENT_FAILURE not in states
    assert "calm" not in cluster.log().lower() and "too many" not in cluster.log()
