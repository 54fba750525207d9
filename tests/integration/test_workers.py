"""Who the workers are, and how they are told to leave: ListWorkers and DrainWorker, and the commands for them.

Scenario S05 (two workers with one id), and S12 in small (many workers, and the master killed)."""

import os
import subprocess
import time

import stubs
import grpc
import pytest
from aftermath import check
from cluster import BUILD, PATIENCE, QUICK, wait_for
from fake_worker import Kind, W, hold
from refusals import fields, refused

A = stubs.admin
State, End = stubs.State, stubs.End
Info = A.WorkerInfo
ALL = [Info.CONNECTED, Info.DRAINING, Info.DISCONNECTED, Info.GONE]


def listed(cluster, **request):
    return {w.worker_id: w for w in cluster.admin.ListWorkers(A.ListWorkersRequest(**request), timeout=PATIENCE).workers}


def info(cluster, worker_id):
    return listed(cluster, worker_id=worker_id)[worker_id]


def drain(cluster, worker_id, within=None, **request):
    message = A.DrainWorkerRequest(worker_id=worker_id, **request)
    if within is not None:
        message.within.FromMilliseconds(int(within * 1000))
    return cluster.admin.DrainWorker(message, timeout=PATIENCE)


def until_state(cluster, worker_id, state):
    return wait_for(lambda: (w := info(cluster, worker_id)).state == state and w, f"{worker_id} in state {state}")


@pytest.fixture(params=["postgres", "sqlite"])
def either(request, make_cluster, tmp_path):
    """A cluster on each kind of store."""
    flags = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}
    return make_cluster(flags).start()


@pytest.fixture
def pair(make_cluster):
    """Two masters on one store; the second is started."""
    quick = {**QUICK, "recovery-interval": "300ms", "master-ttl": "1s"}
    first = make_cluster(quick)
    second = make_cluster({**quick, "master-id": "m2"})
    second.flags["store"], second.flags["lease"] = first.flags["store"], first.flags["lease"]
    return first.start(), second.start()


# ---- what is known of them ----


def test_all_that_hello_said(either, make_worker):
    resources = stubs.task.Resources(cpu_millis=8000, memory_bytes=1 << 34, gpus=2, custom={"licence": 3})
    worker = make_worker(
        either, "w1", slots=3, policy=hold, queues=["a", "b"], labels={"zone": "x"}, handlers=["resize"], resources=resources,
        enforces_exclusive_lease=True, hostname="node7", version="fake/1.2",
    )
    need = stubs.task.Resources(gpus=1, cpu_millis=500)
    ref = worker.wait_dispatch(either.submit(queue="a", resources=need).id)
    w = info(either, "w1")
    assert (w.state, w.slots, w.slots_used, w.hostname, w.version) == (Info.CONNECTED, 3, 1, "node7", "fake/1.2")
    assert w.instance == worker.instance and w.session == worker.session and w.master_id == "m1"
    assert w.resources == resources and (w.resources_used.gpus, w.resources_used.cpu_millis) == (1, 500)
    assert list(w.queues) == ["a", "b"] and dict(w.labels) == {"zone": "x"} and list(w.handlers) == ["resize"]
    assert w.runs_commands and w.enforces_exclusive_lease and not w.tasks_die_with_process
    assert [(a.task_id, a.attempt) for a in w.attempts] == [ref]
    now = time.time()
    assert now - 60 < w.connected_at.seconds <= now + 1 and now - 60 < w.last_heartbeat_at.seconds <= now + 1
    assert w.paused_reason == "" and w.drain_mode == W.DRAIN_MODE_UNSPECIFIED and not w.stuck


def test_long_lists_are_cut_and_texts_too(cluster, make_worker):
    names = [f"q{i}-" + "x" * 240 for i in range(1000)]
    make_worker(cluster, "w1", queues=names, handlers=names, hostname="h" * 5000, version="\u00e4" * 300)
    w = info(cluster, "w1")
    assert 0 < len(w.queues) < 1000 and len(w.hostname) == 255 and w.version == "\u00e4" * 127
    assert w.ByteSize() < 70000


def test_pages_and_states(either, make_worker):
    for name in ("w-1", "w-2", "wB", "wa", "wb"):
        make_worker(either, name)
    seen, token, pages = [], "", 0
    while True:
        page = either.admin.ListWorkers(A.ListWorkersRequest(page_size=2, page_token=token), timeout=PATIENCE)
        seen += [w.worker_id for w in page.workers]
        token = page.next_page_token
        pages += 1
        if not token:
            break
    assert seen == ["w-1", "w-2", "wB", "wa", "wb"] and pages == 3
    drain(either, "wB")
    assert set(listed(either, states=[Info.DRAINING])) == {"wB"}
    assert set(listed(either, states=[Info.CONNECTED], page_size=4)) == {"w-1", "w-2", "wa", "wb"}
    assert listed(either, states=[Info.GONE]) == {}
    assert listed(either, worker_id="w-9") == {}
    page = either.admin.ListWorkers(A.ListWorkersRequest(page_size=1, states=[Info.DRAINING]), timeout=PATIENCE)
    assert [w.worker_id for w in page.workers] == ["wB"]


@pytest.mark.parametrize("field, request_fields", [
    ("page_size", {"page_size": -1}), ("page_size", {"page_size": 1001}), ("states", {"states": [9]}),
    ("states", {"states": [Info.STATE_UNSPECIFIED]}), ("worker_id", {"worker_id": "a b"}),
    ("page_token", {"page_token": "x"}), ("page_token", {"page_token": "w1:1e:"}), ("page_token", {"page_token": "w1:02:w1"}),
])
def test_bad_list(shared, field, request_fields):
    error = refused(shared.admin.ListWorkers, A.ListWorkersRequest(**request_fields))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and fields(error) == [field], error.details()


def test_paused_and_stuck(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, slots=2)
    ref = worker.wait_dispatch(cluster.submit().id)
    stuck = [W.StuckAttempt(task_id=ref[0], attempt=ref[1], reason="2 processes stay: 17, 18")]
    worker.beats_say = {"paused": True, "paused_reason": "disk full", "stuck": stuck}
    worker.wait_heartbeat_acked()
    w = info(cluster, "w1")
    assert (w.state, w.paused_reason, list(w.stuck)) == (Info.DRAINING, "disk full", stuck)
    waiting = cluster.submit().id
    said = "every worker that fits is draining or has paused (1 connected); worker w1: disk full"
    assert cluster.get(waiting).pending_reason == said
    worker.beats_say = {"paused_reason": "not read", "stuck": []}
    worker.wait_heartbeat_acked()
    w = info(cluster, "w1")
    assert (w.state, w.paused_reason, len(w.stuck)) == (Info.CONNECTED, "", 0)
    worker.wait_dispatch(waiting)
    worker.beats_say = {"paused": True, "paused_reason": "\u00e4" * 200, "stuck": stuck * 200}
    worker.wait_heartbeat_acked()
    w = info(cluster, "w1")
    assert w.paused_reason == "\u00e4" * 127 and len(w.stuck) == 100


def test_disconnected_then_gone(make_cluster, make_worker, tmp_path):
    cluster = make_cluster({**QUICK, "store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"}).start()
    worker = make_worker(cluster, "w1", version="fake/7")
    make_worker(cluster, "w2")
    worker.beat = False
    worker.stream.close()
    until_state(cluster, "w1", Info.DISCONNECTED)
    w = until_state(cluster, "w1", Info.GONE)
    assert w.version == "fake/7"
    assert set(listed(cluster)) == {"w2"} and set(listed(cluster, states=ALL)) == {"w1", "w2"}
    heard = wait_for(lambda: info(cluster, "w1").last_heartbeat_at.seconds, "the store knows its last word")
    cluster.restart()  # the store knows it still
    w = info(cluster, "w1")
    assert w.state == Info.GONE and abs(w.last_heartbeat_at.seconds - heard) <= 2 and w.version == "fake/7"
    worker.beat = True
    worker.reconnect()
    assert info(cluster, "w1").state == Info.CONNECTED


def test_after_a_restart_of_the_master(make_cluster, make_worker):
    """Those that have not come back are not gone before a lease is over."""
    cluster = make_cluster({"lease-ttl": "3s"}).start()
    worker = make_worker(cluster, "w1", version="fake/7")
    worker.beat = False
    cluster.restart()
    w = info(cluster, "w1")
    assert (w.state, w.version, w.slots) == (Info.DISCONNECTED, "fake/7", 4)
    until_state(cluster, "w1", Info.GONE)


def test_of_another_master(pair, make_worker):
    first, second = pair
    worker = make_worker(second, "w1", policy=hold, version="fake/7").keep_connected()
    make_worker(first, "w2")
    w = until_state(first, "w1", Info.CONNECTED)
    assert (w.master_id, w.version, w.slots) == ("m2", "fake/7", 4) and not w.HasField("last_heartbeat_at")
    assert info(second, "w2").master_id == "m1"
    drain(second, "w1")
    until_state(first, "w1", Info.DRAINING)
    worker.close()
    second.kill9()
    until_state(first, "w1", Info.DISCONNECTED)
    until_state(first, "w1", Info.GONE)
    assert info(first, "w2").state == Info.CONNECTED


# ---- drains ----


def test_drain_and_resume(either, make_worker):
    worker = make_worker(either, "w1", slots=2, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    w = drain(either, "w1", mode=W.DRAIN_REQUEUE, within=90, reason="new disk")
    assert (w.state, w.slots_used, w.drain_mode, w.drain_reason) == (Info.DRAINING, 1, W.DRAIN_REQUEUE, "new disk")
    assert w.drain_within.seconds == 90 and "new disk" in w.paused_reason and "requeue" in w.paused_reason
    worker.wait(lambda: worker.drains, "the drain")
    d = worker.drains[0]
    assert (d.mode, d.within.seconds, d.reason, d.resume) == (W.DRAIN_REQUEUE, 90, "new disk", False)
    waiting = either.submit().id
    assert either.get(waiting).pending_reason == ("every worker that fits is draining or has paused (1 connected); "
                                                  "worker w1: drained by an operator (requeue): new disk")
    worker.wait_heartbeat_acked()
    assert not worker.stops and len(worker.dispatched) == 1  # what runs goes on, the rest waits
    drain(either, "w1", mode=W.DRAIN_REQUEUE, within=90, reason="new disk")  # the same again is nothing new
    worker.wait_heartbeat_acked()
    assert len(worker.drains) == 1
    w = drain(either, "w1", resume=True)
    assert w.drain_mode == W.DRAIN_MODE_UNSPECIFIED and w.drain_reason == ""
    worker.wait_dispatch(waiting)
    assert [d.resume for d in worker.drains] == [False, True]
    wait_for(lambda: info(either, "w1").state == Info.CONNECTED, "takes tasks again")
    drain(either, "w1", resume=True)
    for r in (ref, (waiting, 1)):
        worker.outcome(r)
        assert either.finished(r[0]).attempt == 1


def test_the_next_process_of_a_detached_worker_stays(either, make_worker):
    worker = make_worker(either, "w1", policy=hold, obeys=False)
    ref = worker.wait_dispatch(either.submit().id)
    drain(either, "w1", mode=W.DRAIN_DETACH, within=90, reason="upgrade")
    worker.wait(lambda: worker.drains, "the drain")
    assert worker.drains[0].mode == W.DRAIN_DETACH
    for process, mode in (("same", W.DRAIN_DETACH), ("next", W.DRAIN_WAIT), ("same", W.DRAIN_DETACH)):
        worker.drains.clear()
        worker.reconnect(resumes=0 if process == "next" else worker.stream.welcome.session)
        worker.wait(lambda: worker.drains, "told again")
        assert (worker.drains[0].mode, worker.drains[0].reason) == (mode, "upgrade")
        assert worker.drains[0].HasField("within") == (mode == W.DRAIN_DETACH)
        assert set(worker.stream.adopted) == {ref}
    worker.outcome(ref)
    assert either.finished(ref[0]).attempt == 1


def test_a_drain_holds_over_reconnects_and_restarts(either, make_worker):
    worker = make_worker(either, "w1", policy=hold, obeys=False)  # the master alone sees to it
    drain(either, "w1", reason="moving")
    waiting = either.submit().id
    for restart in (False, True, False):
        if restart:
            either.restart()
        worker.drains.clear()
        worker.reconnect()
        worker.wait(lambda: worker.drains, "told again")
        assert worker.drains[0].mode == W.DRAIN_WAIT and worker.drains[0].reason == "moving"
        worker.wait_heartbeat_acked()
        assert info(either, "w1").state == Info.DRAINING and not worker.dispatched
    drain(either, "w1", resume=True)
    worker.wait_dispatch(waiting)
    worker.drains.clear()
    worker.reconnect()
    worker.wait_heartbeat_acked()
    assert not worker.drains


def test_drain_of_one_that_is_away(cluster, make_worker):
    worker = make_worker(cluster, "w1", policy=hold)
    worker.beat = False
    worker.stream.close()
    until_state(cluster, "w1", Info.DISCONNECTED)
    assert drain(cluster, "w1").state == Info.DISCONNECTED
    waiting = cluster.submit().id
    worker.beat = True
    worker.reconnect()
    worker.wait(lambda: worker.drains, "told with its session")
    worker.wait_heartbeat_acked()
    assert cluster.get(waiting).state == State.PENDING


def test_drain_through_another_master(pair, make_worker):
    """It finds the wish in the store, and that it was taken back."""
    first, second = pair
    worker = make_worker(second, "w1", policy=hold, obeys=False)
    drain(first, "w1", mode=W.DRAIN_DETACH, within=60)
    worker.wait(lambda: worker.drains, "told by its master")
    assert worker.drains[0].mode == W.DRAIN_DETACH
    waiting = second.submit().id
    assert second.get(waiting).state == State.PENDING
    drain(first, "w1", resume=True)
    worker.wait_dispatch(waiting)
    assert worker.drains[-1].resume


def test_what_a_draining_worker_gives_back_runs_elsewhere_at_once(cluster, make_worker):
    worker = make_worker(cluster, "w1", policy=hold)
    retry = stubs.task.RetryPolicy(max_attempts=1)
    retry.initial_backoff.FromSeconds(3600)
    t = cluster.submit(retry=retry)
    ref = worker.wait_dispatch(t.id)
    drain(cluster, "w1", mode=W.DRAIN_REQUEUE, within=0)
    worker.wait(lambda: worker.drains, "the drain")
    assert worker.drains[0].HasField("within") and worker.drains[0].within.ToNanoseconds() == 0
    worker.outcome(ref, kind=Kind.STOPPED, signal=15, stop_reason=W.Stop.DRAINED)
    other = make_worker(cluster, "w2")
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and [a.worker_id for a in done.attempts] == ["w1", "w2"]
    assert done.attempts[0].end not in (End.FAILED, End.LOST)
    assert other.wait_dispatch(t.id) == (t.id, 2)


def test_detach_lengthens_what_is_not_exclusive(quick, make_worker):
    """The lease is 1.5 s; the worker comes back after three of them and finds its task, but not the exclusive one."""
    worker = make_worker(quick, "w1", policy=hold, slots=2, enforces_exclusive_lease=True, obeys=False)
    other = make_worker(quick, "w2", policy=hold, slots=2, enforces_exclusive_lease=True)
    drain(quick, "w2")
    plain, exclusive = quick.submit(), quick.submit(exclusive=True)
    refs = [worker.wait_dispatch(t.id) for t in (plain, exclusive)]
    drain(quick, "w2", resume=True)
    within = worker.stream.welcome.lease_ttl.__class__()
    within.FromSeconds(600)
    worker.draining(mode=W.DRAIN_DETACH, within=within)
    worker.wait_heartbeat_acked()
    worker.beat = False
    worker.stream.close()
    other.wait_dispatch(exclusive.id, 2)
    until = time.monotonic() + 3
    wait_for(lambda: time.monotonic() > until, "three leases")
    assert quick.get(plain.id).attempt == 1 and quick.get(plain.id).state == State.RUNNING
    worker.beat = True
    worker.reconnect()
    assert set(worker.stream.adopted) == {refs[0]}
    worker.outcome(refs[0])
    done = quick.finished(plain.id)
    assert done.state == State.COMPLETED and len(done.attempts) == 1


def test_detach_holds_over_a_restart_of_the_master(quick, make_worker):
    worker = make_worker(quick, "w1", policy=hold, obeys=False)
    make_worker(quick, "w2", slots=2).keep_connected()
    drain(quick, "w2")
    ref = worker.wait_dispatch(quick.submit().id)
    worker.draining(mode=W.DRAIN_DETACH)  # ten minutes, as it does not say
    worker.wait_heartbeat_acked()
    worker.beat = False
    worker.stream.close()
    wait_for(lambda: quick.sql("SELECT 1 FROM reins.worker WHERE id = 'w1' AND detached_until > now() + interval '9 min'"),
             "it is stored")
    quick.restart()
    drain(quick, "w2", resume=True)
    sweeps = time.monotonic() + 2.5
    wait_for(lambda: time.monotonic() > sweeps, "a lease of the new master, and three sweeps more")
    assert info(quick, "w1").state == Info.DISCONNECTED
    assert quick.get(ref[0]).state == State.RUNNING and quick.get(ref[0]).attempt == 1
    worker.beat = True
    worker.reconnect()
    assert set(worker.stream.adopted) == {ref}
    worker.outcome(ref)
    assert len(quick.finished(ref[0]).attempts) == 1


@pytest.mark.parametrize("code, field, request_fields", [
    ("INVALID_ARGUMENT", "worker_id", {"worker_id": ""}),
    ("INVALID_ARGUMENT", "worker_id", {"worker_id": "a b"}),
    ("NOT_FOUND", "worker_id", {"worker_id": "nobody"}),
    ("NOT_FOUND", "worker_id", {"worker_id": "nobody", "resume": True}),
    ("INVALID_ARGUMENT", "mode", {"worker_id": "w1", "mode": 7}),
    ("INVALID_ARGUMENT", "within", {"worker_id": "w1", "within": 5}),
    ("INVALID_ARGUMENT", "within", {"worker_id": "w1", "mode": W.DRAIN_REQUEUE, "within": -1}),
    ("INVALID_ARGUMENT", "within", {"worker_id": "w1", "mode": W.DRAIN_DETACH, "within": 3601}),
    ("INVALID_ARGUMENT", "reason", {"worker_id": "w1", "reason": "x" * 256}),
])
def test_bad_drain(shared, code, field, request_fields):
    error = refused(lambda r, timeout: drain(shared, **r), request_fields)
    assert error.code() == grpc.StatusCode[code] and fields(error) == [field], error.details()


def test_a_drain_while_the_store_is_away(cluster, make_worker, servers):
    worker = make_worker(cluster, "w1")
    servers[0].stop()
    try:
        wait_for(lambda: cluster.health() == "NOT_SERVING", "the store is missed")
        error = refused(cluster.admin.DrainWorker, A.DrainWorkerRequest(worker_id="w1"))
        assert error.code() == grpc.StatusCode.UNAVAILABLE
    finally:
        servers[0].start()
    assert not worker.drains


# ---- the streams ----


def test_stops_of_a_turn_are_one_message(cluster, make_worker):
    """What a worker lists and may not have is fenced in one Stop, not in one for each."""
    worker = make_worker(cluster, "w1", policy=hold)
    strangers = [("01890a5d-ac96-774b-bcce-%012x" % i, 1) for i in range(500)]
    worker.connect(held=strangers)
    worker.wait(lambda: len(worker.stops) >= 500, "500 stops")
    assert {r for r, _ in worker.stops} == set(strangers)
    assert len(worker.stop_messages) == 1


def test_s05_two_workers_one_id(cluster, start_worker):
    """The newer one wins; the older one says why and ends; nothing runs twice, and nobody is replaced twice."""
    older = start_worker(cluster, "w1")
    wait_for(lambda: listed(cluster).get("w1"), "the older one")
    t = cluster.submit(command=["sleep", "60"])
    cluster.in_state(t.id, State.RUNNING)
    newer = start_worker(cluster, "w1")
    assert older.wait(PATIENCE) == 1
    assert 'another process has taken over the id "w1"' in older.log()
    wait_for(lambda: (a := cluster.get(t.id)).attempt == 2 and a.state == State.RUNNING, "it runs at the newer one")
    assert [a.end for a in cluster.get(t.id).attempts][0] == End.LOST
    cluster.cancel(t.id)
    cluster.finished(t.id)
    assert info(cluster, "w1").session == 2 and newer.process.poll() is None


def test_s12_many_workers_and_the_master_killed(make_cluster, make_worker):
    """200 workers: all are back, none was declared dead, nothing ran again."""
    n = 200
    cluster = make_cluster({"heartbeat-interval": "1s", "lease-ttl": "10s"}).start()
    workers = [make_worker(cluster, f"w{i:03}", slots=1, policy=hold, beat=False) for i in range(n)]
    made = cluster.tasks.SubmitTasks(
        stubs.tasks.SubmitTasksRequest(requests=[stubs.tasks.SubmitTaskRequest(
            spec=stubs.task.TaskSpec(command=["x"]))] * n), timeout=PATIENCE,
    ).tasks
    wait_for(lambda: sum(len(w.held) for w in workers) == n, "all hold one")
    for w in workers:
        w.beat = True
        w.keep_connected()
    cluster.restart()
    wait_for(lambda: len(listed(cluster, states=[Info.CONNECTED], page_size=1000)) == n, "all are back", timeout=60)
    assert not any(w.stops for w in workers)
    rows = cluster.list_all(states=[State.RUNNING], page_size=1000)
    assert len(rows) == n and {t.attempt for t in rows} == {1}
    for w in workers:
        for ref in list(w.held):
            w.outcome(ref)
    for m in made:
        done = cluster.finished(m.task_id)
        assert done.state == State.COMPLETED and len(done.attempts) == 1
    check(cluster, [m.task_id for m in made])


# ---- the commands ----


@pytest.fixture
def reins(cluster):
    def run(*arguments, timeout=PATIENCE):
        env = {k: v for k, v in os.environ.items() if not k.startswith("REINS_")}
        return subprocess.run(
            [BUILD / "client" / "reins", *arguments, "--server", f"http://{cluster.address}"], capture_output=True, text=True,
            timeout=timeout, env=env,
        )
    return run


def test_reins_workers(cluster, make_worker, reins):
    make_worker(cluster, "gpu-1", slots=2, policy=hold, queues=["a"], labels={"zone": "x"},
                resources=stubs.task.Resources(gpus=4))
    make_worker(cluster, "w2")
    drain(cluster, "w2", reason="new disk")
    shown = reins("workers")
    assert shown.returncode == 0, shown.stderr
    head, first, second = shown.stdout.splitlines()
    assert head.split() == ["WORKER", "STATE", "SLOTS", "GPUS", "QUEUES", "HOST", "VERSION", "HEARD", "WHY"]
    assert first.split()[:7] == ["gpu-1", "CONNECTED", "0/2", "0/4", "a", "test", "fake/1"]
    assert "DRAINING" in second and second.endswith("drained by an operator (wait): new disk")
    one = reins("workers", "gpu-1").stdout
    for line in ("id         gpu-1", "slots      0 of 2 taken", "resources  gpus=4", "labels     zone=x", "session    1 at master m1"):
        assert line in one.splitlines(), one
    assert '"workerId": "gpu-1"' in reins("workers", "gpu-1", "-o", "json").stdout
    missing = reins("workers", "nobody")
    assert missing.returncode == 1 and "nobody" in missing.stderr


def test_reins_drain(cluster, make_worker, reins):
    worker = make_worker(cluster, "w1", policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    told = reins("drain", "w1", "--mode", "requeue", "--within", "5m", "--reason", "new disk")
    assert told.returncode == 0, told.stderr
    assert told.stdout == "w1 takes no more tasks, 1 of 4 slots are taken; what still runs after 5m00s is stopped and given back\n"
    again = reins("drain", "w1", "--wait", "--deadline", "1s")
    assert again.returncode == 124 and "still runs" in again.stderr
    waits = subprocess.Popen(
        [BUILD / "client" / "reins", "drain", "w1", "--wait", "--server", f"http://{cluster.address}"], stdout=subprocess.PIPE,
        text=True)
    assert waits.stdout.readline() == "w1 takes no more tasks, 1 of 4 slots are taken; what runs goes on until it has ended\n"
    worker.outcome(ref)
    assert waits.wait(PATIENCE) == 0
    assert waits.stdout.read() == "w1 takes no more tasks, 0 of 4 slots are taken; it stays connected and may be ended, or resumed\n"
    back = reins("drain", "w1", "--resume")
    assert back.stdout == "w1 takes tasks again, 0 of 4 slots are taken\n", back.stderr


@pytest.mark.parametrize("arguments, says", [
    (["drain"], "the worker's id is missing"),
    (["drain", "w1", "--mode", "soon"], "wait, detach and requeue are known"),
    (["drain", "w1", "--within", "5m"], "--within goes with"),
    (["drain", "w1", "--mode", "requeue", "--within", "2h"], "from 0s to 1h"),
    (["drain", "w1", "--mode", "requeue", "--within", "-1s"], "from 0s to 1h"),
    (["drain", "w1", "--resume", "--wait"], "--resume goes with none"),
    (["workers", "a", "b"], "too many arguments"),
])
def test_wrong_usage(cluster, reins, arguments, says):
    r = reins(*arguments)
    assert r.returncode == 64 and says in r.stderr, r.stderr


def test_drain_of_nobody(cluster, reins):
    r = reins("drain", "nobody")
    assert r.returncode == 1 and "NOT_FOUND" in r.stderr
