"""Workers that die, come back, come twice, or say wrong things: leases, the list, fences."""

import threading
import time

import grpc
import pytest
import stubs
from cluster import CALM, PATIENCE, QUICK, make_spec, wait_for
from fake_worker import FakeWorker, Kind, Verdict, W, hold, success

State, End, T = stubs.State, stubs.End, stubs.tasks
Stop = W.Stop
LEASE = 1.5  # of QUICK


def submit_many(cluster, n, **spec):
    made = cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(**spec))] * n), timeout=PATIENCE
    )
    return [m.task_id for m in made.tasks]


def ends(task):
    return [(a.number, a.worker_id, a.end) for a in task.attempts]


# ---- lost ----


def test_killed_worker_and_its_late_outcome(quick, make_worker):
    first = make_worker(quick, "w1", policy=hold, proxy=True)
    ids = submit_many(quick, 4)
    refs = [first.wait_dispatch(i) for i in ids]
    second = make_worker(quick, "w2", policy=hold)
    last_beat = time.monotonic()
    first.wait_heartbeat_acked()
    first.kill()
    again = [second.wait_dispatch(i) for i in ids]
    assert all(attempt == 2 for _, attempt in again)
    # The lease counts from the receipt of the last heartbeat: nothing is given away sooner.
    assert all(second.receipt[ref] >= last_beat + LEASE for ref in again)
    t = quick.get(ids[0])
    assert t.state == State.RUNNING and t.attempt == 2 and t.worker_id == "w2"
    assert t.attempts[0].end == End.LOST and t.attempts[0].cause == "worker lost"
    assert t.attempts[0].HasField("finished_at")
    # It comes back with what it ran: fenced, whether it runs still or has ended.
    first.beat = True
    first.ended[refs[0]] = W.Outcome(task_id=refs[0][0], attempt=1, kind=Kind.SUCCEEDED, result=b"late")
    first.connect()
    assert not first.stream.adopted
    assert first.wait_verdict(refs[0]) == Verdict.FENCED
    for ref in refs[1:]:
        assert first.wait_stop(ref) == Stop.FENCED
    first.outcome(refs[1], result=b"late")
    assert first.wait_verdict(refs[1]) == Verdict.FENCED
    for ref in again:
        second.outcome(ref, result=b"mine")
    for i in ids:
        done = quick.finished(i)
        assert done.state == State.COMPLETED and done.result == b"mine"
        assert ends(done) == [(1, "w1", End.LOST), (2, "w2", End.SUCCEEDED)]


def test_leases_are_the_attempts_own(quick, make_worker):
    first = make_worker(quick, "w1", policy=hold, proxy=True)
    spec = make_spec()
    spec.lease_ttl.FromMilliseconds(3500)
    long = quick.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=PATIENCE).task.id
    short = quick.submit().id
    for i in (long, short):
        first.wait_dispatch(i)
    second = make_worker(quick, "w2")
    last_beat = time.monotonic()
    first.wait_heartbeat_acked()
    first.kill()
    assert second.receipt[second.wait_dispatch(short)] >= last_beat + LEASE
    assert second.receipt[second.wait_dispatch(long)] >= last_beat + 3.5
    for i in (long, short):
        assert quick.finished(i).state == State.COMPLETED


def test_disconnect_grace_of_an_in_process_worker(make_cluster, make_worker):
    # The lease is longer than this test's patience: only the grace can explain what happens.
    cluster = make_cluster({**QUICK, "lease-ttl": "300s"}).start()
    inside = make_worker(cluster, "inside", policy=hold, proxy=True, tasks_die_with_process=True)
    outside = make_worker(cluster, "outside", policy=hold, proxy=True)
    ids = submit_many(cluster, 2)
    wait_for(lambda: inside.dispatched and outside.dispatched, "one each")
    (of_inside,), (of_outside,) = list(inside.held), list(outside.held)
    taker = make_worker(cluster, "taker")
    inside.kill()
    assert taker.wait_dispatch(of_inside[0]) == (of_inside[0], 2)
    assert cluster.finished(of_inside[0]).attempts[0].end == End.LOST
    time.sleep(2.5)  # streams that end in the same second as others prove nothing
    outside.kill()
    assert cluster.get(of_outside[0]).attempt == 1
    # An agent's tasks outlive it.
    outside.beat = True
    outside.connect()
    assert of_outside in outside.stream.adopted
    outside.outcome(of_outside)
    assert ends(cluster.finished(of_outside[0])) == [(1, "outside", End.SUCCEEDED)]
    assert sorted(ids) == sorted([of_inside[0], of_outside[0]])


def test_lost_too_often(make_cluster, make_worker):
    cluster = make_cluster({**QUICK, "lost-limit": "2"}).start()
    t = cluster.submit(name="kills-its-worker")
    for i in (1, 2):
        worker = make_worker(cluster, f"w{i}", policy=hold, proxy=True)
        worker.wait_dispatch(t.id, i)
        worker.kill()
    done = cluster.finished(t.id)
    assert done.state == State.FAILED
    assert [a.end for a in done.attempts] == [End.LOST, End.LOST]
    assert done.attempts[1].cause == "worker lost"


def test_partition(quick, make_worker):
    first = make_worker(quick, "w1", policy=hold, proxy=True)
    t = quick.submit()
    ref = first.wait_dispatch(t.id)
    second = make_worker(quick, "w2", policy=hold)
    stream = first.stream
    last_beat = time.monotonic()
    first.wait_heartbeat_acked()
    first.proxy.partition()
    again = second.wait_dispatch(t.id, 2)
    assert second.receipt[again] >= last_beat + LEASE
    first.proxy.heal()
    assert first.wait_over(stream) == grpc.StatusCode.UNAVAILABLE
    first.connect()
    assert first.wait_stop(ref) == Stop.FENCED
    second.outcome(again)
    assert ends(quick.finished(t.id)) == [(1, "w1", End.LOST), (2, "w2", End.SUCCEEDED)]


def test_open_attempt_is_adopted_again(quick, make_worker):
    """Its lease ended, but nobody else took the task: the worker that has it may end it."""
    worker = make_worker(quick, policy=hold, proxy=True)
    t = quick.submit()
    ref = worker.wait_dispatch(t.id)
    worker.log(ref, 0, b"before ")
    worker.wait(lambda: worker.log_stored.get(ref) == 7, "log stored")
    worker.kill()
    lost = quick.in_state(t.id, State.PENDING)
    assert lost.attempts[0].end == End.LOST and lost.attempts[0].open
    worker.beat = True
    worker.connect()
    assert ref in worker.stream.adopted
    assert worker.stream.adopted[ref].log_stored == 7
    back = quick.get(t.id)
    assert back.state == State.RUNNING and back.attempt == 1
    worker.log(ref, 7, b"after")
    worker.outcome(ref, result=b"r", log_end=12)
    done = quick.finished(t.id)
    assert done.state == State.COMPLETED and ends(done) == [(1, "w1", End.SUCCEEDED)]
    assert b"".join(c.data for c in quick.read_logs(t.id)) == b"before after"


def test_open_attempt_that_ended_meanwhile(quick, make_worker):
    worker = make_worker(quick, policy=hold, proxy=True)
    t = quick.submit()
    ref = worker.wait_dispatch(t.id)
    worker.kill()
    quick.in_state(t.id, State.PENDING)
    worker.ended[ref] = W.Outcome(task_id=t.id, attempt=1, kind=Kind.SUCCEEDED, result=b"r")
    worker.beat = True
    worker.connect()
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    done = quick.finished(t.id)
    assert done.state == State.COMPLETED and done.result == b"r" and ends(done) == [(1, "w1", End.SUCCEEDED)]


# ---- back within the lease ----


def test_reconnect_with_the_list(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True, slots=8)
    ids = submit_many(cluster, 8)
    refs = [worker.wait_dispatch(i) for i in ids]
    sessions = [worker.session]
    for _ in range(5):  # a bad network: one attempt all the same
        worker.kill()
        worker.beat = True
        worker.connect(resumes=worker.session)
        assert set(worker.stream.adopted) == set(refs)
        sessions.append(worker.session)
    assert sessions == sorted(set(sessions))  # each newer than the last
    assert not worker.stops
    for ref in refs:
        worker.outcome(ref)
    for i in ids:
        assert ends(cluster.finished(i)) == [(1, "w1", End.SUCCEEDED)]


def test_ended_while_disconnected(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    worker.kill()
    worker.ended[ref] = W.Outcome(task_id=t.id, attempt=1, kind=Kind.FAILED, exit_code=7)
    worker.beat = True
    worker.connect()
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    done = cluster.finished(t.id)
    assert done.state == State.FAILED and done.exit_code == 7 and len(done.attempts) == 1


def test_list_that_lacks_one(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True)
    ids = submit_many(cluster, 3)
    refs = [worker.wait_dispatch(i) for i in ids]
    worker.kill()
    del worker.held[refs[1]]
    worker.policy, worker.beat = success, True
    worker.connect()
    assert set(worker.stream.adopted) == {refs[0], refs[2]}
    done = cluster.finished(ids[1])  # at once, not after the lease of 10 s
    assert done.state == State.COMPLETED and done.attempt == 2
    assert done.attempts[0].end in (End.LOST, End.RECALLED)
    for i in (0, 2):
        worker.outcome(refs[i])
        assert ends(cluster.finished(ids[i])) == [(1, "w1", End.SUCCEEDED)]


def test_heartbeat_that_lacks_one(cluster, make_worker):
    """Not listed is proof, for dispatches that the heartbeat has seen."""
    worker = make_worker(cluster, policy=hold, beat=False)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    seen, worker.last_dispatch = worker.last_dispatch, 0
    kept = worker.held.pop(ref)
    worker.wait_heartbeat_acked()  # has not seen the dispatch: says nothing about it
    assert cluster.get(t.id).attempt == 1 and cluster.get(t.id).state == State.RUNNING
    worker.held[ref] = kept
    worker.last_dispatch = seen
    worker.wait_heartbeat_acked()
    assert cluster.get(t.id).attempt == 1 and cluster.get(t.id).state == State.RUNNING
    del worker.held[ref]
    worker.policy = success
    worker.heartbeat()
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and done.attempt == 2


def test_new_instance_ends_the_old_ones_attempts(cluster, make_worker):
    old = make_worker(cluster, "w1", policy=hold)
    t = cluster.submit()
    ref = old.wait_dispatch(t.id)
    stream = old.stream
    new = make_worker(cluster, "w1")
    assert old.wait_over(stream) == grpc.StatusCode.ABORTED
    assert "w1" in stream.details
    done = cluster.finished(t.id)  # at once: the lease is 10 s
    assert done.state == State.COMPLETED and done.attempt == 2
    assert new.wait_dispatch(t.id) == (t.id, 2)
    assert new.session > stream.session
    assert ref not in new.held


def test_two_streams_of_one_instance(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    old = worker.stream
    again = FakeWorker(cluster.address, "w1", instance=worker.instance, policy=hold)
    try:
        again.held[ref], again.hello_number = worker.held[ref], worker.hello_number
        again.connect(resumes=worker.session)
        assert worker.wait_over(old) == grpc.StatusCode.ABORTED
        assert ref in again.stream.adopted
        again.outcome(ref)
        assert ends(cluster.finished(t.id)) == [(1, "w1", End.SUCCEEDED)]
    finally:
        again.close()


def test_hello_in_pieces(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True, slots=3000)
    ids = submit_many(cluster, 2500)
    worker.wait(lambda: len(worker.held) == 2500, "2,500 held")
    worker.kill()
    worker.beat = True
    worker.connect(piece=1000)
    assert len(worker.stream.adopted) == 2500
    worker.wait_heartbeat_acked()
    assert not worker.stops
    refs = list(worker.held)
    for begin in range(0, 2500, 500):
        worker.send(outcome=W.OutcomeReport(outcomes=[
            W.Outcome(task_id=i, attempt=a, kind=Kind.SUCCEEDED) for i, a in refs[begin : begin + 500]]))
    worker.wait(lambda: len(worker.verdicts) == 2500, "2,500 verdicts")
    assert {v.verdict for v in worker.verdicts} == {Verdict.RECORDED}
    listed = cluster.list_all(states=[State.COMPLETED], page_size=1000)
    assert sorted(t.id for t in listed) == sorted(ids) and {t.attempt for t in listed} == {1}


def test_many_reconnects_at_once(cluster, make_worker):
    workers = [make_worker(cluster, f"w{i}", policy=hold, proxy=True, slots=5) for i in range(20)]
    ids = submit_many(cluster, 100)
    wait_for(lambda: sum(len(w.held) for w in workers) == 100, "100 held")
    threads = []
    for w in workers:
        w.kill()
    for w in workers:
        w.beat = True
        threads.append(threading.Thread(target=w.connect))
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE)
    for w in workers:
        assert set(w.stream.adopted) == set(w.held)
        for ref in list(w.held):
            w.outcome(ref)
    for i in ids:
        done = cluster.finished(i)
        assert done.state == State.COMPLETED and len(done.attempts) == 1


# ---- heartbeats, outcomes ----


def test_heartbeats_are_answered_by_number(cluster, make_worker):
    worker = make_worker(cluster, beat=False)
    for number in range(1, 21):
        assert worker.heartbeat() == number
        worker.wait(lambda: worker.stream.acked >= number, f"answer {number}")
        assert worker.stream.acked == number
    assert worker.stream.welcome.heartbeat_interval.ToMilliseconds() == 500
    assert worker.stream.welcome.lease_ttl.ToMilliseconds() == 10000
    assert worker.stream.welcome.master_id == "m1" and worker.stream.welcome.store_id
    assert worker.stream.welcome.limits.result_bytes == 1 << 20


def test_heartbeats_keep_a_task_for_many_leases(quick, make_worker):
    worker = make_worker(quick, policy=hold)
    t = quick.submit()
    ref = worker.wait_dispatch(t.id)
    until = time.monotonic() + 3 * LEASE
    worker.wait(lambda: time.monotonic() > until, "three leases")
    worker.outcome(ref)
    assert ends(quick.finished(t.id)) == [(1, "w1", End.SUCCEEDED)]


def test_outcome_that_comes_again(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    worker.outcome(ref, result=b"first")
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    worker.outcome(ref, result=b"second")
    assert worker.wait_verdict(ref, 2) == Verdict.DUPLICATE
    worker.held[ref] = None
    worker.kill()
    worker.beat = True
    worker.connect()  # lists it and sends it again
    worker.outcome(ref, kind=Kind.FAILED, exit_code=1)
    assert worker.wait_verdict(ref, 3) == Verdict.DUPLICATE
    done = cluster.get(t.id)
    assert done.state == State.COMPLETED and done.result == b"first" and len(done.attempts) == 1


def test_outcome_said_many_times_at_once(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    ids = submit_many(cluster, 4)
    refs = [worker.wait_dispatch(i) for i in ids]
    outcomes = [W.Outcome(task_id=i, attempt=a, kind=Kind.SUCCEEDED) for i, a in refs]
    for _ in range(5):
        worker.send(outcome=W.OutcomeReport(outcomes=outcomes * 2))
    for ref in refs:
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        done = cluster.finished(ref[0])
        assert done.state == State.COMPLETED and len(done.attempts) == 1
    worker.wait_heartbeat_acked()
    for ref in refs:
        verdicts = [v.verdict for v in worker.verdicts if (v.task_id, v.attempt) == ref]
        assert verdicts.count(Verdict.RECORDED) == 1 and set(verdicts) <= {Verdict.RECORDED, Verdict.DUPLICATE}


def test_outcome_of_a_stranger(cluster, make_worker):
    owner = make_worker(cluster, "owner", policy=hold)
    t = cluster.submit()
    ref = owner.wait_dispatch(t.id)
    stranger = make_worker(cluster, "stranger", slots=1, policy=hold)
    strange = [ref, (t.id, 2), ("01890a5d-ac96-774b-bcce-b302099a8057", 1)]
    for r in strange:
        stranger.outcome(r, result=b"forged")
        assert stranger.wait_verdict(r) == Verdict.FENCED
    stranger.log(ref, 0, b"forged")
    stranger.wait_heartbeat_acked()
    owner.outcome((t.id, 2), result=b"not dispatched")
    assert owner.wait_verdict((t.id, 2)) == Verdict.FENCED
    now = cluster.get(t.id)
    assert now.state == State.RUNNING and now.worker_id == "owner" and now.attempt == 1
    owner.outcome(ref, result=b"mine")
    done = cluster.finished(t.id)
    assert done.result == b"mine" and len(done.attempts) == 1
    assert cluster.read_logs(t.id) == []


def test_list_of_a_stranger(cluster, make_worker):
    owner = make_worker(cluster, "owner", policy=hold)
    t = cluster.submit()
    ref = owner.wait_dispatch(t.id)
    stranger = make_worker(cluster, "stranger", connect=False, policy=hold)
    unknown = ("01890a5d-ac96-774b-bcce-b302099a8057", 3)
    stranger.held = {ref: None, unknown: None}
    stranger.connect()
    assert not stranger.stream.adopted
    for r in (ref, unknown):
        assert stranger.wait_stop(r) == Stop.FENCED
    assert cluster.get(t.id).worker_id == "owner"
    owner.outcome(ref)
    assert ends(cluster.finished(t.id)) == [(1, "owner", End.SUCCEEDED)]


def test_worker_says_lost(cluster, make_worker):
    """It can't know how the attempt ended: a loss, and another attempt."""
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    worker.policy = success
    worker.outcome(ref, kind=Kind.LOST)
    worker.wait_verdict(ref)
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED
    assert ends(done) == [(1, "w1", End.LOST), (2, "w1", End.SUCCEEDED)]


def test_cancel_wish_reaches_a_worker_that_comes_back(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    worker.kill()
    assert cluster.cancel(t.id).state == State.RUNNING
    worker.beat = True
    worker.connect()
    assert worker.stream.adopted[ref].stop_follows
    assert worker.wait_stop(ref) == Stop.CANCELLED
    worker.outcome(ref, kind=Kind.STOPPED, stop_reason=Stop.CANCELLED)
    assert cluster.finished(t.id).state == State.CANCELLED


def test_cancel_wish_beats_a_loss(quick, make_worker):
    worker = make_worker(quick, policy=hold, proxy=True)
    t = quick.submit()
    worker.wait_dispatch(t.id)
    worker.kill()
    quick.cancel(t.id)
    done = quick.finished(t.id)
    assert done.state == State.CANCELLED and done.attempts[0].end == End.LOST


# ---- wrong things said ----


HELLO = dict(protocol=1, worker_id="w9", instance="0123456789abcdef" * 2, slots=1, last=True)
REF = dict(task_id="01890a5d-ac96-774b-bcce-b302099a8057", attempt=1)


@pytest.mark.parametrize("hello, code", [
    (dict(protocol=2), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(protocol=0), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(worker_id=""), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(worker_id="a b"), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(worker_id="{x}"), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(worker_id="w" * 256), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(instance=""), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(instance="x" * 32), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(instance="0" * 31), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(slots=0), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(slots=-1), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(slots=10001), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(queues=["a b"]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(queues=["q"] * 1001), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(store_id="01890a5d-ac96-774b-bcce-b302099a8057"), grpc.StatusCode.DATA_LOSS),
    (dict(attempts=[W.HeldAttempt(task_id="x", attempt=1)]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(attempts=[W.HeldAttempt(task_id=REF["task_id"], attempt=0)]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(handlers=["a b"]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(handlers=[""]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(handlers=[f"h{i}" for i in range(1001)]), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(custom={"a b": 1})), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(custom={"a": -1})), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(custom={f"a{i}": 1 for i in range(17)})), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(gpus=-1)), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(memory_bytes=-5)), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resources=stubs.task.Resources(cpu_millis=-5)), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(resumes_session=-1), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(hello_number=-1), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(hello_number=2**62 + 1), grpc.StatusCode.INVALID_ARGUMENT),
], ids=lambda v: next(iter(v)) if isinstance(v, dict) else "")
def test_bad_hello(shared, hello, code):
    error = session_error(shared, W.WorkerMessage(hello=W.Hello(**{**HELLO, **hello})))
    assert error.code() == code, error.details()
    field = next(iter(hello))
    if code == grpc.StatusCode.INVALID_ARGUMENT and field != "attempts":
        assert f"hello.{field}" in error.details()
    assert "w9" not in [w.worker_id for w in shared.admin.ListWorkers(stubs.admin.ListWorkersRequest(), timeout=30).workers]


def session_error(cluster, *messages):
    """How a stream ends that says this; its answers before that are read."""
    stay = threading.Event()

    def say():
        yield from messages
        stay.wait(PATIENCE)

    call = stubs.worker_grpc.WorkerServiceStub(cluster.channel()).Session(say(), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    stay.set()
    return call


@pytest.mark.parametrize("messages, code", [
    ([W.WorkerMessage(heartbeat=W.Heartbeat(number=1))], grpc.StatusCode.FAILED_PRECONDITION),
    ([W.WorkerMessage(accepted=W.Accepted())], grpc.StatusCode.FAILED_PRECONDITION),
    ([W.WorkerMessage(hello=W.Hello(**HELLO))] * 2, grpc.StatusCode.FAILED_PRECONDITION),
    ([W.WorkerMessage(hello=W.Hello(**HELLO)), W.WorkerMessage(accepted=W.Accepted(
        attempts=[stubs.task.AttemptRef(task_id="x", attempt=1)]))], grpc.StatusCode.INVALID_ARGUMENT),
    ([W.WorkerMessage(hello=W.Hello(**HELLO)), W.WorkerMessage(outcome=W.OutcomeReport(
        outcomes=[W.Outcome(**REF)]))], grpc.StatusCode.INVALID_ARGUMENT),
    ([W.WorkerMessage(hello=W.Hello(**HELLO)), W.WorkerMessage(log=W.Log(
        **REF, offset=-1, stream=1, data=b"x"))], grpc.StatusCode.INVALID_ARGUMENT),
    ([W.WorkerMessage(hello=W.Hello(**HELLO)), W.WorkerMessage(log=W.Log(
        **REF, offset=0, stream=1, data=b"x" * 65537))], grpc.StatusCode.INVALID_ARGUMENT),
    ([W.WorkerMessage(hello=W.Hello(**HELLO)), W.WorkerMessage(log=W.Log(
        **REF, offset=0, data=b"x"))], grpc.StatusCode.INVALID_ARGUMENT),
], ids=["beat-first", "accepted-first", "hello-twice", "bad-ref", "no-kind", "log-offset", "log-size", "log-stream"])
def test_broken_protocol(shared, messages, code):
    error = session_error(shared, *messages)
    assert error.code() == code, error.details()
    assert error.details()
    assert shared.health() == "SERVING"


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x0a\x05ab", b"\x0a\x04\x12\x02\xff\xfe"])
def test_bytes_that_are_no_message(shared, body):
    call = shared.channel().stream_stream("/reins.v1.WorkerService/Session")(iter([body]), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError) as e:
        list(call)
    assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_attempts_that_nobody_knows(shared, make_worker):
    """accepted, refused, started, log of attempts that the master doesn't know: no harm."""
    worker = make_worker(shared, "w-unknown", queues=["none"])
    ref = (REF["task_id"], 1)
    worker.accepted(ref)
    worker.refused(ref)
    worker.started(ref)
    worker.log(ref, 0, b"x")
    worker.held[ref] = None
    worker.wait_heartbeat_acked()
    worker.held.clear()
    worker.wait_heartbeat_acked()
    assert not worker.stream.status


def test_worker_that_half_closes(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    stream = worker.stream
    stream.half_close()
    assert worker.wait_over(stream) == grpc.StatusCode.OK
    assert cluster.get(t.id).state == State.RUNNING  # for as long as the lease runs
    worker.connect()
    assert ref in worker.stream.adopted
    worker.outcome(ref)
    assert len(cluster.finished(t.id).attempts) == 1


def test_too_many_workers(make_cluster, make_worker):
    cluster = make_cluster({**CALM, "max-workers": "2"}).start()
    kept = [make_worker(cluster, f"w{i}") for i in range(2)]
    third = make_worker(cluster, "w2", connect=False)
    stream = third.begin()
    assert third.wait_over(stream) == grpc.StatusCode.RESOURCE_EXHAUSTED
    t = cluster.submit()
    assert cluster.finished(t.id).state == State.COMPLETED
    assert not any(w.stream.status for w in kept)


@pytest.fixture(params=["postgres", "sqlite"])
def either(request, make_cluster, tmp_path):
    """A cluster on each kind of store."""
    flags = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}
    return make_cluster(flags).start()


def test_numbers_of_a_log_that_no_program_makes(either, make_worker):
    """Offsets at the end of int64, and a log_end that lies: the log stays readable."""
    cluster = either
    worker = make_worker(cluster, slots=8, policy=hold)
    for offset in (2**63 - 1, 2**63 - 4, 2**62 + 1, -1):
        ref = worker.wait_dispatch(cluster.submit().id)
        worker.log(ref, 0, b"good")
        worker.log(ref, offset, b"lie")
        assert worker.wait_over() == grpc.StatusCode.INVALID_ARGUMENT
        worker.connect()
        worker.log(ref, 0, b"good")  # what was on its way when the stream ended may be lost
        worker.outcome(ref, log_end=4)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        assert b"".join(c.data for c in cluster.read_logs(ref[0])) == b"good"
        for fields in ({"tail_bytes": 2}, {"tail_bytes": 2**63 - 1}, {"offset": 2**63 - 1}):
            cluster.read_logs(ref[0], **fields)
    for log_end, shown in ((-5, 0), (-2**63, 0), (2**63 - 1, 2**62), (4, 4)):
        ref = worker.wait_dispatch(cluster.submit().id)
        worker.log(ref, 2**62, b"after a long gap")
        worker.outcome(ref, log_end=log_end)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        assert cluster.get(ref[0]).attempts[0].log_bytes == shown
        gap, last = cluster.read_logs(ref[0])
        assert (gap.offset, gap.dropped_bytes, gap.data) == (0, 2**62, b"")
        assert (last.offset, last.dropped_bytes, last.data) == (2**62, 0, b"after a long gap")


def test_an_attempt_listed_twice_is_adopted_once(either, make_worker):
    cluster = either
    worker = make_worker(cluster, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    worker.connect(held=[ref] * 3 + [(ref[0], 7), ref], piece=2)
    assert list(worker.stream.adopted) == [ref]
    worker.wait_heartbeat_acked()
    assert {r for r, _ in worker.stops} == {(ref[0], 7)}
    worker.outcome(ref)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert len(cluster.finished(ref[0]).attempts) == 1
