"""Tasks go to workers that run and have what they ask by name; expiry; the reasons in lists and in the command."""

import subprocess
import time

import pytest

import stubs
from cluster import make_spec, wait_for
from fake_worker import W, hold
from google.protobuf.duration_pb2 import Duration

State, T = stubs.State, stubs.tasks
Resources = stubs.task.Resources


def reason(cluster, task):
    return cluster.get(task.id).pending_reason


def test_a_handler_task_waits_for_its_worker(cluster, make_worker):
    commands = make_worker(cluster, "commands", policy=hold, slots=1)
    t = cluster.submit(command=[], handler="resize")
    assert reason(cluster, t) == 'no connected worker has handler "resize"'
    other = make_worker(cluster, "other", runs_commands=False, handlers=["grow", "shrink"])
    commands.wait_heartbeat_acked()
    assert reason(cluster, t) == 'no connected worker has handler "resize"'
    plain = cluster.submit()
    commands.wait_dispatch(plain.id)
    right = make_worker(cluster, "right", runs_commands=False, handlers=["grow", "resize"])
    assert cluster.finished(t.id).worker_id == "right"
    second = cluster.submit()  # a command, and the only worker that runs commands is busy
    assert "busy" in reason(cluster, second)
    commands.outcome((plain.id, 1))
    commands.outcome(commands.wait_dispatch(second.id))
    assert cluster.finished(second.id).worker_id == "commands"
    assert not other.dispatched and len(right.dispatched) == 1


def test_counted_resources(cluster, make_worker):
    small = make_worker(cluster, "small", resources=Resources(custom={"licenses": 1, "fpga": 0}))
    t = cluster.submit(resources=Resources(custom={"licenses": 3}))
    assert reason(cluster, t) == "needs licenses=3; the largest connected worker has 1"
    f = cluster.submit(resources=Resources(custom={"fpga": 1}))
    assert reason(cluster, f) == "needs fpga=1; the largest connected worker has 0"
    large = make_worker(cluster, "large", policy=hold, resources=Resources(custom={"licenses": 4}))
    ref = large.wait_dispatch(t.id)
    more = cluster.submit(resources=Resources(custom={"licenses": 2}))
    assert "busy" in reason(cluster, more)
    one = cluster.submit(resources=Resources(custom={"licenses": 1}))
    assert cluster.finished(one.id).worker_id == "small"
    assert dict(cluster.get(more.id).spec.resources.custom) == {"licenses": 2}
    large.outcome(ref)
    large.outcome(large.wait_dispatch(more.id))
    assert cluster.finished(more.id).worker_id == "large"
    assert cluster.get(f.id).state == State.PENDING and len(small.dispatched) == 1


def test_memory_goes_to_workers_that_enforce_it(cluster, make_worker):
    make_worker(cluster, "free", policy=hold)
    t = cluster.submit(resources=Resources(memory_bytes=1 << 30))
    assert reason(cluster, t) == "needs memory=1GiB; no connected worker enforces memory limits"
    make_worker(cluster, "strict", resources=Resources(memory_bytes=1 << 30))
    assert cluster.finished(t.id).worker_id == "strict"


def test_needs_survive_the_master(cluster, make_worker):
    t = cluster.submit(command=[], handler="x", resources=Resources(custom={"a": 2, "b": 1}))
    cluster.kill9()
    cluster.restart()
    wrong = make_worker(cluster, "wrong", handlers=["x"], resources=Resources(custom={"a": 2}))
    wrong.wait_heartbeat_acked()
    assert reason(cluster, t) == "needs b=1; the largest connected worker has 0"
    make_worker(cluster, "right", handlers=["x"], resources=Resources(custom={"a": 2, "b": 1}))
    assert cluster.finished(t.id).worker_id == "right"
    assert not wrong.dispatched


# ---- expiry ----


def test_expired_task_fails_and_is_told(cluster, make_worker):
    t = cluster.submit(expiry=Duration(nanos=300_000_000))
    done = cluster.finished(t.id)
    assert done.state == State.FAILED
    assert done.error == "not started within its expiry of 0.3 s"
    assert not done.attempts and done.attempt == 0 and not done.worker_id
    worker = make_worker(cluster)
    after = cluster.submit()
    assert cluster.finished(after.id).state == State.COMPLETED
    assert [d.task_id for d in worker.dispatched] == [after.id]


def test_expiry_in_a_group_and_before_run_at(cluster):
    spec = make_spec(expiry=Duration(nanos=200_000_000))
    spec.run_at.FromSeconds(int(time.time()) + 3600)
    made = cluster.tasks.SubmitTasks(T.SubmitTasksRequest(requests=[
        T.SubmitTaskRequest(spec=make_spec()), T.SubmitTaskRequest(spec=spec),
        T.SubmitTaskRequest(spec=make_spec(expiry=Duration(nanos=100_000_000)))]), timeout=30).tasks
    for m in made[1:]:
        assert cluster.finished(m.task_id).state == State.FAILED
    assert cluster.get(made[0].task_id).state == State.PENDING


def test_what_was_given_out_never_expires(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, queues=["default"])
    t = cluster.submit(expiry=Duration(seconds=1))
    ref = worker.wait_dispatch(t.id)
    other = cluster.submit(queue="nobody", expiry=Duration(seconds=1, nanos=200_000_000))
    worker.outcome(ref, kind=W.Outcome.STOPPED)  # given back: PENDING again
    assert cluster.finished(other.id).state == State.FAILED
    worker.outcome(worker.wait_dispatch(t.id, 2))
    assert cluster.finished(t.id).state == State.COMPLETED


def test_expiry_while_no_master_runs(cluster):
    t = cluster.submit(expiry=Duration(nanos=50_000_000))
    late = cluster.submit(expiry=Duration(seconds=3600))
    cluster.kill9()
    cluster.restart()
    assert cluster.finished(t.id).state == State.FAILED
    assert cluster.get(late.id).state == State.PENDING


# ---- reasons ----


def test_reasons_in_a_list(cluster, make_worker):
    make_worker(cluster, queues=["default"])
    for i in range(40):
        cluster.submit(command=[], handler=f"h{i}")
    cluster.submit(queue="elsewhere")
    tasks = cluster.list_all(states=[State.PENDING])
    reasons = [t.pending_reason for t in tasks]
    assert reasons[0] == 'no connected worker takes queue "elsewhere"'
    assert reasons[1] == 'no connected worker has handler "h39"'
    assert all(reasons), reasons  # beyond so many kinds it says that it did not look
    assert len([r for r in reasons if "GetTask" in r]) == 41 - 32
    assert cluster.get(tasks[-1].id).pending_reason == 'no connected worker has handler "h0"'


def test_reason_is_short(cluster, make_worker):
    make_worker(cluster, queues=["default"])
    t = cluster.submit(queue="q" * 255, command=[], handler="h" * 255)
    assert len(reason(cluster, t)) <= 512
    make_worker(cluster, "w2", queues=["q" * 255])
    make_worker(cluster, "w3", queues=["default"], handlers=["h" * 255])
    assert reason(cluster, t).endswith('h"') and len(reason(cluster, t)) <= 512


def test_reasons_in_the_command(cluster, build_dir):
    def reins(*args):
        r = subprocess.run([build_dir / "client/reins", args[0], "--server", cluster.address, *args[1:]],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout

    task = reins("submit", "--expiry", "1h", "--resource", "licenses=2", "--resource", "a/b=1", "--", "true").strip()
    spec = cluster.get(task).spec
    assert dict(spec.resources.custom) == {"licenses": 2, "a/b": 1} and spec.expiry.seconds == 3600
    shown = reins("status", task)
    assert "no worker is connected" in shown and "licenses=2" in shown and "a/b=1" in shown and "1h" in shown
    assert "no worker is connected" in reins("list")
    r = subprocess.run([build_dir / "client/reins", "submit", "--server", cluster.address, "--resource", "x", "--", "true"],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 64 and "NAME=COUNT" in r.stderr
