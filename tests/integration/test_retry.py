"""What becomes of an attempt that ended badly: what is kept of it, what is counted, and RetryTask.  On both kinds of store."""

import time

import grpc
import pytest
import stubs
from cluster import CALM, PATIENCE, QUICK, wait_for
from fake_worker import Kind, Verdict, W, hold, success
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from refusals import fields, refused

State, End, T = stubs.State, stubs.End, stubs.tasks
Stop, Cause = W.Stop, W.RefusedAttempt
MOMENT = Duration(nanos=1_000_000)
FULL = stubs.task.TASK_VIEW_FULL


@pytest.fixture(params=["postgres", "sqlite"])
def flags(request, tmp_path):
    return {} if request.param == "postgres" else {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"}


@pytest.fixture
def calm(make_cluster, flags):
    return make_cluster({**CALM, **flags}).start()


def retry(cluster, task_id, attempt):
    return cluster.tasks.RetryTask(T.RetryTaskRequest(task_id=task_id, attempt=attempt), timeout=PATIENCE)


def refused_retry(cluster, task_id, attempt, code=grpc.StatusCode.FAILED_PRECONDITION):
    error = refused(cluster.tasks.RetryTask, T.RetryTaskRequest(task_id=task_id, attempt=attempt))
    assert error.code() == code, error.details()
    return error


def ended(cluster, worker, task_id, attempt=1, **outcome):
    ref = worker.wait_dispatch(task_id, attempt)
    worker.outcome(ref, **outcome)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    return ref


# ---- RetryTask ----


def test_retry_of_a_failed_task(calm, make_worker):
    worker = make_worker(calm, policy=hold)
    spec = dict(retry=stubs.task.RetryPolicy(max_attempts=2, initial_backoff=MOMENT))
    t = calm.submit(**spec).id
    for attempt in (1, 2):
        ref = ended(calm, worker, t, attempt, kind=Kind.FAILED, exit_code=attempt, error=b"no")
    failed = calm.finished(t)
    assert (failed.state, failed.attempt, failed.exit_code) == (State.FAILED, 2, 2)
    for attempt in (0, 1, 3):
        assert "newest attempt" in refused_retry(calm, t, attempt).details()
    again = retry(calm, t, 2)
    assert again.state in (State.PENDING, State.RUNNING) and not again.HasField("finished_at")
    # The answer was lost, say: the same request says what has become of it.
    assert "only one that is FAILED or CANCELLED" in refused_retry(calm, t, 2).details()
    # Counted from 0 again; the number grows.
    ended(calm, worker, t, 3, kind=Kind.FAILED, exit_code=3)
    ended(calm, worker, t, 4, kind=Kind.SUCCEEDED)
    done = calm.finished(t)
    assert (done.state, done.attempt) == (State.COMPLETED, 4)
    assert [(a.number, a.end, a.exit_code) for a in done.attempts] == [
        (1, End.FAILED, 1), (2, End.FAILED, 2), (3, End.FAILED, 3), (4, End.SUCCEEDED, 0)]
    assert "COMPLETED" in refused_retry(calm, t, 4).details()
    # What was recorded then stays recorded.
    worker.outcome(ref, kind=Kind.SUCCEEDED)
    assert worker.wait_verdict(ref, 2) == Verdict.DUPLICATE


def test_retry_of_a_cancelled_task(calm, make_worker):
    t = calm.submit()
    refused_retry(calm, t.id, 0)
    calm.cancel(t.id, reason="by mistake")
    cancelled = calm.get(t.id)
    assert cancelled.HasField("cancel_requested_at") and cancelled.error == "cancelled: by mistake"
    again = retry(calm, t.id, 0)
    assert again.state == State.PENDING and not again.HasField("cancel_requested_at") and not again.error
    waiting = calm.tasks.GetTask.future(T.GetTaskRequest(task_id=t.id, wait=Duration(seconds=30)), timeout=PATIENCE)
    make_worker(calm)
    assert waiting.result().state == State.COMPLETED
    assert calm.get(t.id).attempt == 1


def test_a_retry_does_not_wait_for_run_at(calm, make_worker):
    """Nor do those of RetryTasks."""
    make_worker(calm)
    later = Timestamp(seconds=int(time.time()) + 7200)
    one, other = (calm.submit(queue="later", run_at=later).id for _ in range(2))
    for t in (one, other):
        assert calm.get(t).run_at == later
        assert calm.cancel(t).state == State.CANCELLED
    assert retry(calm, one, 0).spec.run_at == later
    asked = T.TaskFilter(queue="later", states=[State.CANCELLED])
    bulk = calm.tasks.RetryTasks(T.RetryTasksRequest(filter=asked), timeout=PATIENCE)
    assert list(bulk.task_ids) == [other]
    for t in (one, other):
        done = calm.finished(t)
        assert done.state == State.COMPLETED and done.attempts[0].dispatched_at.seconds < later.seconds


def test_a_retried_task_asks_for_the_same(calm, make_worker):
    """It goes to the worker that has its handler and its licences, and to no other."""
    asks = dict(command=[], handler="train", resources=stubs.task.Resources(custom={"licenses": 2}))
    t = calm.submit(**asks).id
    calm.cancel(t)
    retry(calm, t, 0)
    make_worker(calm, "plain")
    others = [calm.submit().id for _ in range(3)]
    assert all(calm.finished(i).worker_id == "plain" for i in others)
    assert calm.get(t).state == State.PENDING
    make_worker(calm, "able", handlers=["train"], resources=stubs.task.Resources(custom={"licenses": 2}))
    assert calm.finished(t).worker_id == "able"


def test_retry_is_refused(calm):
    unknown = "01890000-0000-7000-8000-000000000001"
    refused_retry(calm, unknown, 0, grpc.StatusCode.NOT_FOUND)
    assert fields(refused_retry(calm, "x", 0, grpc.StatusCode.INVALID_ARGUMENT)) == ["task_id"]
    assert fields(refused_retry(calm, unknown, -1, grpc.StatusCode.INVALID_ARGUMENT)) == ["attempt"]


def test_retry_closes_what_was_open(make_cluster, make_worker, flags):
    """A worker that was lost comes back with success, after the task was cancelled and retried."""
    cluster = make_cluster({**QUICK, **flags}).start()
    worker = make_worker(cluster, policy=hold, proxy=True)
    t = cluster.submit(queue="q").id
    ref = worker.wait_dispatch(t)
    worker.kill()
    wait_for(lambda: [a.open for a in cluster.get(t).attempts] == [True], "the attempt is taken back, and open")
    cluster.cancel(t)
    retry(cluster, t, 1)
    assert not cluster.get(t).attempts[0].open
    worker.reconnect()
    worker.outcome(ref)
    assert worker.wait_verdict(ref) == Verdict.FENCED
    ended(cluster, worker, t, 2)
    assert [a.end for a in cluster.finished(t).attempts] == [End.LOST, End.SUCCEEDED]


def test_a_retry_holds_over_a_restart(calm, make_worker):
    t = calm.submit().id
    calm.cancel(t)
    retry(calm, t, 0)
    calm.restart()
    make_worker(calm)
    assert calm.finished(t).state == State.COMPLETED


# ---- losses ----


def test_lost_with_its_workers(make_cluster, make_worker, flags):
    """S11: it kills its worker each time. Others go on."""
    cluster = make_cluster({**QUICK, **flags}).start()
    other = make_worker(cluster, "other", policy=hold, queues=["calm"])
    going_on = cluster.submit(queue="calm").id
    ref = other.wait_dispatch(going_on)
    t = cluster.submit(queue="deadly", retry=stubs.task.RetryPolicy(max_attempts=9)).id
    for attempt in (1, 2, 3):
        worker = make_worker(cluster, f"victim{attempt}", policy=hold, proxy=True, queues=["deadly"])
        worker.wait_dispatch(t, attempt)
        worker.kill()
        wait_for(lambda: cluster.get(t).state != State.RUNNING, "the loss is noticed")
    failed = cluster.finished(t)
    assert failed.state == State.FAILED and "lost with its worker 3 times" in failed.error
    assert [(a.end, a.cause, a.worker_id) for a in failed.attempts] == [(End.LOST, "worker lost", f"victim{n}") for n in (1, 2, 3)]
    other.outcome(ref)
    assert cluster.finished(going_on).state == State.COMPLETED


def test_losses_that_a_worker_reports(calm, make_worker):
    """Its supervisor died, or the machine was started again: counted, given out at once, the worker's words are kept."""
    worker = make_worker(calm, policy=hold)
    t = calm.submit(retry=stubs.task.RetryPolicy(max_attempts=1, initial_backoff=Duration(seconds=3600), max_backoff=Duration(seconds=3600))).id
    for attempt in (1, 2, 3):
        ref = ended(calm, worker, t, attempt, kind=Kind.LOST, error=b"the supervisor is gone")
    failed = calm.finished(t)
    assert failed.state == State.FAILED
    assert failed.error == "lost with its worker 3 times, and is not tried again: the supervisor is gone"
    assert [(a.end, a.cause, a.error) for a in failed.attempts] == [(End.LOST, "worker lost", "the supervisor is gone")] * 3
    worker.outcome(ref, kind=Kind.LOST)
    assert worker.wait_verdict(ref, 2) == Verdict.DUPLICATE
    # Both counts begin anew.
    retry(calm, t, 3)
    for attempt in (4, 5):
        ended(calm, worker, t, attempt, kind=Kind.LOST)
    ended(calm, worker, t, 6)
    assert calm.finished(t).state == State.COMPLETED


def test_a_wish_beats_a_reported_loss(calm, make_worker):
    worker = make_worker(calm, policy=hold)
    t = calm.submit().id
    ref = worker.wait_dispatch(t)
    calm.cancel(t, reason="enough")
    worker.wait_stop(ref)
    worker.outcome(ref, kind=Kind.LOST)
    done = calm.finished(t)
    assert (done.state, done.attempts[0].end, done.attempts[0].cause) == (State.CANCELLED, End.LOST, "cancelled: enough")


# ---- what is not counted ----


def test_refused_after_it_was_accepted(calm, make_worker):
    """The worker's own failure to start a program: neither an attempt nor a loss, and its words are kept."""
    worker = make_worker(calm, policy=hold)
    t = calm.submit().id
    for attempt in range(1, 6):
        worker.refused(worker.wait_dispatch(t, attempt), cause=Cause.PAUSED, text="no room on /var: ä")
    ended(calm, worker, t, 6)
    done = calm.finished(t)
    assert done.state == State.COMPLETED
    assert [(a.end, a.cause) for a in done.attempts[:-1]] == [(End.REFUSED, "refused by the worker: paused: no room on /var: ä")] * 5


@pytest.mark.parametrize("reason, cause", [
    (Stop.DRAINED, "drained by worker"), (Stop.LEASE_ENDED, "its lease ended"), (Stop.LOCAL, "stopped at the worker's machine")])
def test_stopped_is_given_back_at_once(calm, make_worker, reason, cause):
    worker = make_worker(calm, policy=hold)
    hour = Duration(seconds=3600)
    t = calm.submit(retry=stubs.task.RetryPolicy(max_attempts=1, initial_backoff=hour, max_backoff=hour)).id
    for attempt in (1, 2, 3, 4):
        ended(calm, worker, t, attempt, kind=Kind.STOPPED, stop_reason=reason)
    ended(calm, worker, t, 5)
    done = calm.finished(t)
    assert done.state == State.COMPLETED
    assert [(a.end, a.cause) for a in done.attempts[:-1]] == [(End.STOPPED, cause)] * 4


# ---- the delay ----


def test_the_delay_holds_over_a_restart(calm, make_worker):
    """By the row: a master that knows nothing of the failure gives the task out no earlier."""
    worker = make_worker(calm, policy=hold)
    t = calm.submit(retry=stubs.task.RetryPolicy(max_attempts=3, initial_backoff=Duration(seconds=2), max_backoff=Duration(seconds=2))).id
    ended(calm, worker, t, kind=Kind.FAILED, exit_code=1)
    wait_for(lambda: calm.get(t).state == State.PENDING, "it waits")
    waits = calm.get(t)
    assert "the delay after attempt 1" in waits.pending_reason
    asked = waits.run_at.ToNanoseconds() - waits.attempts[0].finished_at.ToNanoseconds()
    assert asked > 1_900_000_000
    calm.restart()
    worker.reconnect()
    worker.wait_dispatch(t, 2)
    assert calm.get(t).attempts[1].dispatched_at.ToNanoseconds() >= waits.run_at.ToNanoseconds()


# ---- the record of an attempt ----


def test_what_is_kept_of_an_attempt(calm, make_worker):
    worker = make_worker(calm, policy=hold, slots=8)
    worker.devices = ["GPU-5f3c", "7"]
    t = calm.submit(retry=stubs.task.RetryPolicy(max_attempts=2, initial_backoff=MOMENT), lease_ttl=Duration(seconds=60)).id
    ref = worker.wait_dispatch(t)
    running = wait_for(lambda: calm.get(t).attempts[0].devices and calm.get(t), "the devices are stored")
    assert (running.attempts[0].end, running.attempts[0].cause) == (0, "")
    worker.devices, worker.policy = ["0"], success  # at once: the start is never stored by itself
    worker.outcome(ref, kind=Kind.FAILED, signal=9, oom_killed=True)
    done = calm.finished(t)
    for a in done.attempts:
        assert a.instance == worker.instance and a.session == worker.session
        assert a.lease_ttl.seconds == 60 and a.HasField("dispatched_at") and not a.open
    assert [list(a.devices) for a in done.attempts] == [["GPU-5f3c", "7"], ["0"]]
    assert [a.oom_killed for a in done.attempts] == [True, False]


def test_who_cancelled_it(calm, make_worker):
    worker = make_worker(calm, policy=hold)
    t = calm.submit().id
    ref = worker.wait_dispatch(t)
    calm.cancel(t, reason="too slow, ä")
    calm.cancel(t, reason="again")
    worker.wait_stop(ref)
    worker.outcome(ref, kind=Kind.STOPPED, stop_reason=Stop.CANCELLED)
    done = calm.finished(t)
    assert (done.state, done.attempts[0].end, done.attempts[0].cause) == (State.CANCELLED, End.STOPPED, "cancelled: too slow, ä")
    assert done.error == done.attempts[0].cause
    plain = calm.submit().id
    ref = worker.wait_dispatch(plain)
    calm.cancel(plain)
    worker.wait_stop(ref)
    worker.outcome(ref, kind=Kind.STOPPED, stop_reason=Stop.CANCELLED)
    done = calm.finished(plain)
    assert (done.attempts[0].cause, done.error) == ("cancelled", "")


def test_lists_have_the_attempts(calm, make_worker):
    worker = make_worker(calm, policy=hold, slots=8)
    policies = [stubs.task.RetryPolicy(max_attempts=n, initial_backoff=MOMENT) for n in (1, 2, 3)]
    ids = [calm.submit(retry=p).id for p in policies]
    for n, t in enumerate(ids):
        for attempt in range(1, n + 2):
            ended(calm, worker, t, attempt, kind=Kind.FAILED, exit_code=attempt, error=b"x" * 16000)
    whole = {t.id: t for t in calm.list_all(view=FULL)}
    assert {i: len(whole[i].attempts) for i in ids} == {ids[0]: 1, ids[1]: 2, ids[2]: 3}
    assert whole[ids[2]] == calm.get(ids[2])
    assert all(not t.attempts for t in calm.list_all())
