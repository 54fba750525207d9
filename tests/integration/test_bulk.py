"""CancelTasks and RetryTasks; whose tasks and keys they are; and `reins` with filters, and with queues."""
import json
import os
import random
import subprocess
import time

import grpc
import pytest
import stubs
from cluster import BUILD, PATIENCE, make_spec
from fake_worker import Kind, hold
from google.protobuf.timestamp_pb2 import Timestamp
from lone_master import Caller, LoneMaster
from refusals import fields, refused
from test_auth import Tokens

State, T = stubs.State, stubs.tasks
Code = grpc.StatusCode


@pytest.fixture(params=["postgres", "sqlite"])
def some_cluster(request, make_cluster, tmp_path):
    return make_cluster({"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}).start()


def cancel_all(cluster, limit=0, **request):
    """Call after call to the end: the replies."""
    replies, token = [], ""
    while True:
        replies.append(cluster.tasks.CancelTasks(T.CancelTasksRequest(limit=limit, page_token=token, **request), timeout=PATIENCE))
        token = replies[-1].next_page_token
        if not token:
            return replies


def retry_all(cluster, limit=0, **request):
    replies, token = [], ""
    while True:
        replies.append(cluster.tasks.RetryTasks(T.RetryTasksRequest(limit=limit, page_token=token, **request), timeout=PATIENCE))
        token = replies[-1].next_page_token
        if not token:
            return replies


def total(replies, field):
    return sum(getattr(r, field) for r in replies)


def later():
    return Timestamp(seconds=int(time.time()) + 9999)


def test_cancel_and_retry_what_matches(some_cluster, make_worker):
    cluster = some_cluster
    worker = make_worker(cluster, slots=3, policy=hold, queues=["r"])
    running = [cluster.submit(queue="r", labels={"sweep": "1"}) for _ in range(3)]
    refs = [worker.wait_dispatch(t.id) for t in running]
    worker.outcome(refs[2], exit_code=0)
    cluster.finished(running[2].id)
    waiting = [cluster.submit(queue="p", labels={"sweep": "1"}, **({"run_at": later()} if i % 2 else {})) for i in range(8)]
    other = cluster.submit(queue="p", labels={"sweep": "2"})
    which = T.TaskFilter(label_selector="sweep=1")
    dry = cancel_all(cluster, filter=which, dry_run=True)
    assert (total(dry, "matched"), total(dry, "cancelled"), total(dry, "stopping")) == (10, 8, 2)
    assert {t for r in dry for t in r.task_ids} == {t.id for t in waiting + running[:2]}
    assert all(t.state == State.PENDING for t in cluster.list_all(queue="p"))
    replies = cancel_all(cluster, limit=3, filter=which, reason="wrong data")
    assert len(replies) >= 4 and all(r.matched <= 3 for r in replies)
    assert (total(replies, "matched"), total(replies, "cancelled"), total(replies, "stopping")) == (10, 8, 2)
    for ref in refs[:2]:
        worker.wait_stop(ref)
        worker.outcome(ref, kind=Kind.STOPPED, signal=15)
    for t in waiting + running[:2]:
        done = cluster.finished(t.id)
        assert done.state == State.CANCELLED and "wrong data" in (done.error or done.attempts[0].cause), done
    assert cluster.get(other.id).state == State.PENDING
    # With the states named, those that have ended are counted.
    again = cancel_all(cluster, filter=T.TaskFilter(label_selector="sweep=1", states=[State.PENDING, State.CANCELLED, State.COMPLETED]))
    assert (total(again, "matched"), total(again, "ended"), total(again, "cancelled")) == (11, 11, 0)
    assert not cancel_all(cluster, filter=which)[0].matched

    dry = retry_all(cluster, filter=which, dry_run=True)
    assert (total(dry, "matched"), total(dry, "retried")) == (10, 10)
    replies = retry_all(cluster, limit=4, filter=which)
    assert (total(replies, "matched"), total(replies, "retried")) == (10, 10)
    assert {t for r in replies for t in r.task_ids} == {t.id for t in waiting + running[:2]}
    # Every effect of the single call: they are given out again, by themselves.
    for t in running[:2]:
        assert worker.wait_dispatch(t.id, attempt=2)
    every = [State.PENDING, State.RUNNING, State.COMPLETED, State.FAILED, State.CANCELLED]
    again = retry_all(cluster, filter=T.TaskFilter(label_selector="sweep=1", states=every))
    assert (total(again, "matched"), total(again, "not_ended"), total(again, "completed"), total(again, "retried")) == (11, 10, 1, 0)


def test_nothing_is_not_everything(some_cluster):
    task = some_cluster.submit(run_at=later())
    for call, request in ((some_cluster.tasks.CancelTasks, T.CancelTasksRequest), (some_cluster.tasks.RetryTasks, T.RetryTasksRequest)):
        for f in (None, T.TaskFilter(), T.TaskFilter(label_selector=" ")):
            error = refused(call, request(filter=f))
            assert error.code() == Code.INVALID_ARGUMENT and fields(error) == ["filter"] and "all" in error.details()
        assert fields(refused(call, request(all=True, limit=1001))) == ["limit"]
        assert fields(refused(call, request(all=True, page_token="x"))) == ["page_token"]
        assert fields(refused(call, request(filter=T.TaskFilter(queue="a b")))) == ["filter.queue"]
    assert fields(refused(some_cluster.tasks.CancelTasks, T.CancelTasksRequest(all=True, reason="x" * 256))) == ["reason"]
    assert some_cluster.get(task.id).state == State.PENDING
    assert cancel_all(some_cluster, all=True)[0].task_ids == [task.id]
    assert retry_all(some_cluster, all=True)[0].task_ids == [task.id]
    # A token goes with its filter, and with its method.
    for _ in range(3):
        some_cluster.submit(run_at=later())
    token = some_cluster.tasks.CancelTasks(T.CancelTasksRequest(all=True, limit=1, dry_run=True)).next_page_token
    assert token
    assert fields(refused(some_cluster.tasks.CancelTasks, T.CancelTasksRequest(filter=T.TaskFilter(queue="q"), page_token=token))) == ["page_token"]
    assert fields(refused(some_cluster.tasks.RetryTasks, T.RetryTasksRequest(all=True, page_token=token))) == ["page_token"]


def test_all_that_were_there_while_others_come_and_end(some_cluster, make_worker):
    """Whatever happens between the calls, what was there at the first and still waits is cancelled in the end, once."""
    rng = random.Random(os.environ.get("REINS_SEED"))
    worker = make_worker(some_cluster, slots=4, queues=["q"])
    some_cluster.submit(queue="q")
    for i in range(60):
        some_cluster.submit(queue=rng.choice(["q", "w"]), run_at=later())
    there = {t.id for t in some_cluster.list_all(states=[State.PENDING])}
    ended, stopped, token = set(), [], ""
    while True:
        reply = some_cluster.tasks.CancelTasks(T.CancelTasksRequest(all=True, limit=rng.randint(1, 9), page_token=token), timeout=PATIENCE)
        stopped += reply.task_ids
        token = reply.next_page_token
        if not token:
            break
        some_cluster.submit(queue="w", run_at=later())
        gone = rng.choice(sorted(there))
        ended.add(some_cluster.cancel(gone).id)
    assert len(set(stopped)) == len(stopped)
    assert there - ended <= set(stopped)
    assert all(some_cluster.get(t).state == State.CANCELLED for t in there)


def test_whose_tasks_and_keys(tmp_path):
    tokens = Tokens(tmp_path / "tokens")
    secret = {name: tokens.add(name, role) for name, role in (("alice", "submitter"), ("bob", "submitter"), ("op", "operator"))}
    master = LoneMaster(tmp_path, tokens_file=tokens.path, audit_log=tmp_path / "audit").start()
    try:
        alice, bob, op = (Caller(master.channel(), secret[name]) for name in ("alice", "bob", "op"))
        hers = [alice.submit(queue="q", run_at=later()).id for _ in range(3)]
        his = [bob.submit(queue="q", run_at=later()).id for _ in range(2)]
        denied = refused(alice.tasks.CancelTasks, T.CancelTasksRequest(filter=T.TaskFilter(owner="bob")))
        assert denied.code() == Code.PERMISSION_DENIED and fields(denied) == ["filter.owner"]
        reply = alice.tasks.CancelTasks(T.CancelTasksRequest(all=True), timeout=PATIENCE)
        assert set(reply.task_ids) == set(hers)
        assert set(alice.tasks.RetryTasks(T.RetryTasksRequest(filter=T.TaskFilter(queue="q"))).task_ids) == set(hers)
        assert set(op.tasks.CancelTasks(T.CancelTasksRequest(filter=T.TaskFilter(owner="bob"))).task_ids) == set(his)
        assert [t.id for t in op.tasks.ListTasks(T.ListTasksRequest(filter=T.TaskFilter(owner="bob"))).tasks] == his[::-1]
        assert "tasks=3" in (tmp_path / "audit").read_text()

        # One key, two owners: each has a task of their own, and learns nothing of the other's.
        def submit(who, **spec):
            request = T.SubmitTaskRequest(spec=make_spec(run_at=Timestamp(seconds=4102444800), **spec), idempotency_key="k")
            return who.tasks.SubmitTask(request, timeout=PATIENCE)

        a, b = submit(alice), submit(bob, queue="other")
        assert a.created and b.created and a.task.id != b.task.id
        assert not submit(alice).created and submit(bob, queue="other").task.id == b.task.id
        with pytest.raises(grpc.RpcError) as e:
            submit(alice, queue="other")
        assert e.value.code() == Code.ALREADY_EXISTS and f'"k" was used for task {a.task.id}' in e.value.details()
    finally:
        master.close()


# ---- the command ----


@pytest.fixture
def lone(tmp_path):
    master = LoneMaster(tmp_path).start()
    master.caller = Caller(master.channel())
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("REINS_")}, "REINS_SERVER": master.address}

    def reins(*words, code=0):
        done = subprocess.run([BUILD / "client/reins", *words], env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    master.reins = reins
    yield master
    master.close()


def test_reins_with_filters(lone):
    reins, submit = lone.reins, lone.caller.submit
    made = [submit(queue="q" if i % 2 else "p", name=f"run-{i}", labels={"n": str(i), **({"odd": ""} if i % 2 else {})}, run_at=later()).id
            for i in range(6)]

    def ids(*flags):
        return [json.loads(line)["id"] for line in reins("list", "-o", "json", *flags).splitlines()]

    assert ids() == made[::-1]
    assert ids("-l", "n in (1,3,4), odd") == [made[3], made[1]] == ids("--label-selector=n in (1,3)")
    assert ids("--name-prefix", "run-", "--queue", "p", "--limit", "2") == [made[4], made[2]]
    assert ids("--name", "run-5", "--since", "1h") == [made[5]] and ids("--until", "2020-01-01") == []
    assert ids("--owner", "me") == ids("--worker", "w1") == ids("--state", "failed") == []
    assert "--since x: how long ago" in reins("list", "--since", "x", code=64)
    assert "filter.label_selector" in reins("list", "-l", "a b", code=64)

    assert reins("cancel", "-l", "odd", "--dry-run") == "3 would be cancelled\n"
    assert reins("cancel", "-l", "odd", "--limit", "2") == "2 cancelled\n"
    assert reins("cancel", "-l", "odd", "--state", "pending,cancelled") == "1 cancelled, 2 had ended\n"
    for words in (["cancel", "--dry-run"], ["cancel"], ["retry"]):
        assert "flags that say which tasks; --all means all of them" in reins(*words, code=64)
    assert "none of the flags" in reins("cancel", "--queue", "q", made[0], code=64)
    assert "none of the flags" in reins("cancel", "--queue", "q", "--all", code=64)
    assert reins("retry", "--state", "cancelled", "--dry-run") == "3 would be retried\n"
    told = [json.loads(line) for line in reins("retry", "--queue", "q", "-o", "json").splitlines()]
    assert sum(int(r["retried"]) for r in told) == 3 and sorted(t for r in told for t in r["taskIds"]) == sorted(made[1::2])
    assert reins("cancel", "--all") == "6 cancelled\n"


def test_reins_queues(lone):
    reins = lone.reins
    lone.caller.submit(queue="a")
    assert "a " in reins("pause", "a", "--reason", "new disks")
    task = lone.caller.submit(queue="a").id
    assert "queue paused: new disks" in reins("status", task)
    lines = reins("queues").splitlines()
    assert lines[0].split() == ["QUEUE", "PENDING", "SCHEDULED", "RUNNING", "OLDEST", "PAUSED"]
    assert lines[1].split()[:4] == ["a", "2", "0", "0"] and lines[1].endswith("yes: new disks")
    assert json.loads(reins("queues", "-o", "json"))["pausedReason"] == "new disks"
    assert not json.loads(reins("resume", "a", "-o", "json"))["paused"]
    assert "NOT_FOUND" in reins("resume", "b", code=1)
    assert "the queue's name" in reins("pause", code=64)
