"""The master is killed, at each crash point of the dispatch sequence and at any other moment, and started again: each
task ends once, in seconds. Leases are longer than these tests' patience, so nothing here waits for one."""

import threading
import time

import grpc
import pytest
import stubs
from cluster import LONG, PATIENCE, make_spec, needs_crash_points, submit_surely, wait_for
from fake_worker import Kind, Verdict, W, hold

FOR_GOOD = 78  # deploy/systemd does not start what ended so
State, End, T = stubs.State, stubs.End, stubs.tasks


def check_ended_once(cluster, ids, worker):
    for i in ids:
        done = cluster.finished(i)
        assert done.state == State.COMPLETED, done
        assert [a.end for a in done.attempts].count(End.SUCCEEDED) == 1
        assert done.attempts[-1].end == End.SUCCEEDED and not done.attempts[-1].open
    assert len(cluster.list_all(page_size=1000)) == len(set(ids))
    recorded = [(v.task_id, v.attempt) for v in worker.verdicts if v.verdict == Verdict.RECORDED]
    assert len(recorded) == len(set(recorded))
    # What ran: each attempt was given out once.
    given = [(t.task_id, t.attempt) for t in worker.dispatched]
    assert len(given) == len(set(given))


@needs_crash_points
@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("way", ["eager", "backlog"])
@pytest.mark.parametrize("point", ["after-preempt", "after-claim", "after-send", "after-record"])
def test_crash_point(make_cluster, make_worker, point, way, nth):
    cluster = make_cluster(LONG)
    requests = [T.SubmitTaskRequest(spec=make_spec(name=f"n{i}"), idempotency_key=f"k{i}") for i in range(6)]
    worker = make_worker(cluster, connect=False, slots=2)
    ids = []
    if way == "backlog":
        cluster.start()
        ids = [submit_surely(cluster, r) for r in requests]
        cluster.kill9()
    cluster.start(env={"REINS_CRASH_POINT": f"{point}:{nth}"})
    worker.keep_connected()
    submitter = None
    if way == "eager":
        worker.wait(lambda: worker.stream and worker.stream.welcome, "welcome")
        submitter = threading.Thread(target=lambda: ids.extend(submit_surely(cluster, r) for r in requests))
        submitter.start()
    cluster.wait_killed()
    cluster.start()
    if submitter:
        submitter.join(PATIENCE)
    assert len(ids) == 6
    check_ended_once(cluster, ids, worker)
    attempts = {i: cluster.get(i).attempts for i in ids}
    # What a worker had went on, nothing of it ran again; what never reached it was given back and counts as nothing.
    given = {(t.task_id, t.attempt) for t in worker.dispatched}
    for i, of in attempts.items():
        for a in of:
            assert a.end == (End.SUCCEEDED if (i, a.number) in given else End.RECALLED), of
        assert len(of) <= 2
    if point == "after-record":
        worker.wait(lambda: any(v.verdict == Verdict.DUPLICATE for v in worker.verdicts), "a DUPLICATE")


@needs_crash_points
def test_crash_points_one_after_the_other(make_cluster, make_worker):
    """30 tasks through a master that dies again and again."""
    cluster = make_cluster(LONG)
    cluster.start()
    workers = [make_worker(cluster, f"w{i}", slots=3) for i in range(2)]
    for w in workers:
        w.keep_connected()
    cluster.kill9()
    stop = threading.Event()
    points = ["after-record", "after-claim", "after-preempt", "after-send"] * 2

    def die_and_rise():
        for i, point in enumerate(points):
            cluster.start(env={"REINS_CRASH_POINT": f"{point}:{2 + i}"}, wait=False)
            while cluster.process.poll() is None and not stop.is_set():
                time.sleep(0.01)
            if stop.is_set():
                return
        cluster.start(wait=False)
        stop.wait()  # what a thread started is told to end when that thread ends

    thread = threading.Thread(target=die_and_rise)
    thread.start()
    ids = [
        submit_surely(cluster, T.SubmitTaskRequest(spec=make_spec(name=f"n{i}"), idempotency_key=f"k{i}"))
        for i in range(60)
    ]
    for i in ids:
        done = cluster.finished(i)
        assert done.state == State.COMPLETED and [a.end for a in done.attempts].count(End.SUCCEEDED) == 1
    stop.set()
    thread.join(PATIENCE)
    cluster.kill9()  # a crash point that is left would be met on the way out
    assert len(set(ids)) == 60
    given = [(t.task_id, t.attempt) for w in workers for t in w.dispatched]
    assert len(given) == len(set(given))
    recorded = [(v.task_id, v.attempt) for w in workers for v in w.verdicts if v.verdict == Verdict.RECORDED]
    assert len(recorded) == len(set(recorded))


def test_restart_with_100_running(make_cluster, make_worker):
    cluster = make_cluster(LONG).start()
    workers = [make_worker(cluster, f"w{i}", slots=25, policy=hold) for i in range(4)]
    made = cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec())] * 100), timeout=PATIENCE
    ).tasks
    wait_for(lambda: sum(len(w.held) for w in workers) == 100, "100 held")
    held = {w.worker_id: set(w.held) for w in workers}
    sessions = {w.worker_id: w.session for w in workers}
    for w in workers:
        w.keep_connected()
    cluster.restart()
    for w in workers:
        w.wait(lambda: w.session > sessions[w.worker_id] and w.stream.welcome, "a new session")
        assert set(w.stream.adopted) == held[w.worker_id] and not w.stops
    assert len(cluster.list_all(states=[State.RUNNING], page_size=1000)) == 100
    for w in workers:
        for ref in held[w.worker_id]:
            w.outcome(ref)
    for m in made:
        done = cluster.finished(m.task_id)
        assert done.state == State.COMPLETED and len(done.attempts) == 1


def test_ends_while_the_master_is_down(make_cluster, make_worker):
    cluster = make_cluster(LONG).start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    cluster.kill9()
    worker.wait_over()
    ended = time.time()
    worker.ended[ref] = W.Outcome(task_id=t.id, attempt=1, kind=Kind.SUCCEEDED, result=b"real")
    worker.ended[ref].finished_at.FromNanoseconds(int((ended - 100) * 1e9))
    cluster.start()
    worker.reconnect()
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and done.result == b"real" and len(done.attempts) == 1
    assert abs(done.attempts[0].finished_at.ToNanoseconds() / 1e9 - (ended - 100)) < 1


def test_start_up_grace(make_cluster, make_worker):
    """A worker that comes back within a lease of the master's start keeps its tasks, however long the master was away."""
    cluster = make_cluster({"heartbeat-interval": "250ms", "lease-ttl": "3s"}).start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    cluster.kill9()
    worker.wait_over()
    time.sleep(3.2)  # more than the lease
    cluster.start()
    assert cluster.get(t.id).state == State.RUNNING
    worker.reconnect()
    assert ref in worker.stream.adopted
    worker.outcome(ref)
    assert len(cluster.finished(t.id).attempts) == 1


def test_worker_that_never_comes_back(make_cluster, make_worker):
    """The other side of it: nobody holds the session, so the lease is counted from the master's start."""
    cluster = make_cluster({"heartbeat-interval": "250ms", "lease-ttl": "1500ms", "recovery-interval": "300ms"}).start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    worker.wait_dispatch(t.id)
    cluster.kill9()
    worker.beat = False
    worker.close()
    cluster.start()
    other = make_worker(cluster, "w2")
    done = cluster.finished(t.id, timeout=6)
    assert done.state == State.COMPLETED
    assert [(a.worker_id, a.end) for a in done.attempts] == [("w1", End.LOST), ("w2", End.SUCCEEDED)]
    assert len(other.dispatched) == 1


def test_another_master_takes_over(make_cluster, make_worker):
    """A master and its worker die for good: another one sees the beat stand still, and waits a lease more."""
    quick = {"heartbeat-interval": "250ms", "lease-ttl": "1500ms", "recovery-interval": "300ms", "master-ttl": "1s"}
    cluster = make_cluster(quick).start()
    heir = make_cluster({**quick, "master-id": "m2"})
    heir.flags["store"], heir.flags["lease"] = cluster.flags["store"], cluster.flags["lease"]
    heir.start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    worker.wait_dispatch(t.id)
    cluster.kill9()
    worker.beat = False
    worker.close()
    make_worker(heir, "w2")
    done = heir.finished(t.id, timeout=PATIENCE)
    assert done.state == State.COMPLETED
    assert [(a.worker_id, a.end) for a in done.attempts] == [("w1", End.LOST), ("w2", End.SUCCEEDED)]


def test_backlog_outlives_the_master(make_cluster, make_worker):
    cluster = make_cluster(LONG).start()
    made = cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(priority=i % 3)) for i in range(500)]),
        timeout=PATIENCE,
    ).tasks
    cluster.restart()
    worker = make_worker(cluster, slots=50)
    worker.wait(lambda: len(worker.verdicts) == 500, "500 verdicts")
    assert {t.task_id for t in worker.dispatched} == {m.task_id for m in made}


def test_sigterm_drains(make_cluster, make_worker):
    cluster = make_cluster(LONG).start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    waiting = cluster.tasks.GetTask.future(
        T.GetTaskRequest(task_id=t.id, wait=stubs.task.TaskSpec(timeout={"seconds": 60}).timeout), timeout=PATIENCE
    )
    cluster.get(t.id)  # the call before it has arrived
    assert cluster.stop() == 0
    with pytest.raises(grpc.RpcError) as e:
        waiting.result(timeout=PATIENCE)
    assert e.value.code() == grpc.StatusCode.UNAVAILABLE
    assert worker.wait_over() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK)
    assert cluster.health() is None
    cluster.start()
    worker.reconnect()
    assert ref in worker.stream.adopted
    worker.outcome(ref)
    assert len(cluster.finished(t.id).attempts) == 1


def test_sigterm_under_load(make_cluster, make_worker):
    """Submits that were answered OK are there; the others may be repeated with their keys."""
    cluster = make_cluster(LONG).start()
    requests = [T.SubmitTaskRequest(spec=make_spec(name=f"n{i}"), idempotency_key=f"k{i}") for i in range(300)]
    calls = [cluster.tasks.SubmitTask.future(r, timeout=PATIENCE) for r in requests]
    calls[20].result()
    assert cluster.stop() == 0
    accepted = {}
    for i, c in enumerate(calls):
        error = c.exception(timeout=PATIENCE)
        if error is None:
            accepted[i] = c.result().task.id
        else:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    cluster.start()
    ids = [submit_surely(cluster, r) for r in requests]
    assert len(set(ids)) == 300 == len(cluster.list_all(page_size=1000))
    assert all(ids[i] == t for i, t in accepted.items())


def test_second_master_of_the_same_name(make_cluster, servers, make_worker):
    """A new process under a master's id is its next incarnation: the older one ends its streams."""
    cluster = make_cluster(LONG).start()
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    twin = make_cluster(LONG)
    twin.flags["store"], twin.flags["lease"] = cluster.flags["store"], cluster.flags["lease"]
    twin.start()
    assert worker.wait_over() == grpc.StatusCode.UNAVAILABLE
    worker.address = twin.address
    worker.connect()
    assert ref in worker.stream.adopted
    worker.outcome(ref)
    assert len(twin.finished(t.id).attempts) == 1
    # Whoever starts ended processes again must not start this one, or the two would end each other for ever.
    assert cluster.process.wait(PATIENCE) == FOR_GOOD
