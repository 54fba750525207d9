"""Who gets what, and when: order, queues, needs, slots; accepting, refusing, draining; why a task waits."""

import time

import stubs
from cluster import QUICK, make_spec, wait_for
from fake_worker import Kind, Verdict, W, hold, success

State, End, T = stubs.State, stubs.End, stubs.tasks
Resources = stubs.task.Resources
Stop = W.Stop


def submit_many(cluster, specs):
    made = cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(**s)) for s in specs]), timeout=30
    )
    return [m.task_id for m in made.tasks]


def order(worker, n):
    worker.wait(lambda: len(worker.verdicts) == n, f"{n} verdicts")
    return [t.task_id for t in worker.dispatched]


def test_priority_then_age(cluster, make_worker):
    priorities = [0, 5, -3, 5, 0, 1000, -1000, 0, 5]
    ids = [cluster.submit(priority=p, name=f"n{i}").id for i, p in enumerate(priorities)]
    worker = make_worker(cluster, slots=1)
    expected = [ids[i] for i in sorted(range(len(ids)), key=lambda i: (-priorities[i], i))]
    assert order(worker, len(ids)) == expected


def test_queues_take_turns(cluster, make_worker):
    queues = ["a"] * 8 + ["b"] * 4 + ["c"] * 4
    ids = submit_many(cluster, [dict(queue=q) for q in queues])
    high = cluster.submit(queue="a", priority=1).id  # priority goes over turns
    worker = make_worker(cluster, slots=1)
    came = order(worker, len(ids) + 1)
    assert came[0] == high
    of = dict(zip(ids, queues))
    names = [of[i] for i in came[1:]]
    for turn in range(4):
        assert sorted(names[3 * turn : 3 * turn + 3]) == ["a", "b", "c"], names
    assert names[12:] == ["a"] * 4
    for q in "abc":  # within a queue the oldest first
        assert [i for i in came[1:] if of[i] == q] == [i for i in ids if of[i] == q]


def test_a_worker_takes_only_its_queues(cluster, make_worker):
    b = make_worker(cluster, "wb", queues=["b"])
    ids = submit_many(cluster, [dict(queue=q) for q in "aabbcc"])
    assert order(b, 2) == ids[2:4]
    ac = make_worker(cluster, "wac", queues=["c", "a"])
    assert set(order(ac, 4)) == {*ids[:2], *ids[4:]}
    assert len(b.dispatched) == 2
    every = make_worker(cluster, "wall")
    later = cluster.submit(queue="d").id
    assert order(every, 1) == [later]


def test_never_more_than_the_slots(cluster, make_worker):
    worker = make_worker(cluster, slots=3, policy=hold)
    ids = submit_many(cluster, [dict()] * 10)
    finished = []
    while len(finished) < 10:
        n = min(3, 10 - len(finished))
        worker.wait(lambda: len(worker.held) == n, f"{n} held")
        worker.wait_heartbeat_acked()  # room for one too many to come
        with worker.changed:
            assert len(worker.held) == n
            ref = next(iter(worker.held))
        worker.outcome(ref)
        worker.wait_verdict(ref)
        finished.append(ref[0])
    assert sorted(finished) == sorted(ids)


def test_gpus_are_counted(cluster, make_worker):
    worker = make_worker(cluster, slots=8, policy=hold, resources=Resources(gpus=3, cpu_millis=4000, memory_bytes=1000))
    two = [cluster.submit(resources=Resources(gpus=2)).id for _ in range(2)]
    one = cluster.submit(resources=Resources(gpus=1)).id
    cpu = cluster.submit(resources=Resources(cpu_millis=4000)).id
    cpu_more = cluster.submit(resources=Resources(cpu_millis=1)).id
    worker.wait(lambda: len(worker.held) == 3, "three held")
    worker.wait_heartbeat_acked()
    assert {t for t, _ in worker.held} == {two[0], one, cpu}
    assert "gpus" in cluster.get(two[1]).pending_reason or "busy" in cluster.get(two[1]).pending_reason
    worker.outcome((cpu, 1))
    worker.wait_dispatch(cpu_more)
    worker.outcome((two[0], 1))
    worker.wait_dispatch(two[1])
    for t, a in ((two[1], 1), (one, 1), (cpu_more, 1)):
        worker.outcome((t, a))
        assert cluster.finished(t).state == State.COMPLETED


def test_why_a_task_waits(cluster, make_worker):
    t = cluster.submit(queue="q", resources=Resources(gpus=2))
    reasons = [cluster.get(t.id).pending_reason]
    make_worker(cluster, "other", queues=["p"])
    reasons.append(cluster.get(t.id).pending_reason)
    make_worker(cluster, "small", resources=Resources(gpus=1), queues=["q"])
    reasons.append(cluster.get(t.id).pending_reason)
    assert "no worker" in reasons[0], reasons
    assert "q" in reasons[1] and reasons[1] != reasons[0], reasons
    assert "gpus=2" in reasons[2] and "1" in reasons[2], reasons
    big = make_worker(cluster, "big", resources=Resources(gpus=2), queues=["q"], policy=hold, slots=1)
    big.wait_dispatch(t.id)
    assert cluster.get(t.id).pending_reason == ""
    second = cluster.submit(queue="q", resources=Resources(gpus=2))
    assert "busy" in cluster.get(second.id).pending_reason
    big.outcome((t.id, 1))
    big.wait_dispatch(second.id)
    big.outcome((second.id, 1))
    assert cluster.finished(second.id).pending_reason == ""


def test_why_a_task_waits_that_is_not_due(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    spec = make_spec()
    spec.run_at.FromSeconds(int(time.time()) + 3600)
    t = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    assert "run_at" in cluster.get(t.id).pending_reason
    spec = make_spec()
    spec.retry.max_attempts = 2
    spec.retry.initial_backoff.FromSeconds(3600)
    spec.retry.max_backoff.FromSeconds(3600)
    t = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    worker.outcome(worker.wait_dispatch(t.id, 1), kind=Kind.FAILED)
    wait_for(lambda: cluster.get(t.id).state == State.PENDING, "attempt 1 has been recorded")
    assert cluster.get(t.id).pending_reason.endswith("Z: the delay after attempt 1")


def test_exclusive_goes_to_workers_that_enforce_the_lease(cluster, make_worker):
    plain = make_worker(cluster, "plain")
    t = cluster.submit(exclusive=True)
    assert "exclusive" in cluster.get(t.id).pending_reason
    enforcing = make_worker(cluster, "enforcing", enforces_exclusive_lease=True, policy=hold)
    ref = enforcing.wait_dispatch(t.id)
    assert enforcing.held[ref].exclusive
    enforcing.outcome(ref)
    assert cluster.finished(t.id).state == State.COMPLETED and not plain.dispatched


def test_lease_of_the_spec(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    spec = make_spec()
    spec.lease_ttl.seconds = 3600
    long = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    spec.lease_ttl.seconds = 1  # below the server's: no effect
    short = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    assert worker.held[worker.wait_dispatch(long.id)].lease_ttl.seconds == 3600
    assert worker.held[worker.wait_dispatch(short.id)].lease_ttl.seconds == 10


# ---- accepting ----


def test_refused_goes_elsewhere(cluster, make_worker):
    refuser = make_worker(cluster, "refuser", refuse=W.RefusedAttempt.BUSY)
    t = cluster.submit()
    refuser.wait_dispatch(t.id)
    taker = make_worker(cluster, "taker")
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and done.worker_id == "taker"
    assert done.attempts[-1].end == End.SUCCEEDED
    assert {a.end for a in done.attempts[:-1]} == {End.REFUSED} and len(done.attempts) >= 2
    assert all(a.worker_id == "refuser" for a in done.attempts[:-1])
    assert len(taker.dispatched) == 1


def test_refused_for_ever_is_not_counted(cluster, make_worker):
    """max_attempts 1 and lost-limit 3 are not touched by refusals."""
    worker = make_worker(cluster, refuse=W.RefusedAttempt.BUSY)
    t = cluster.submit()
    worker.wait(lambda: len(worker.dispatched) >= 5, "five refusals")
    worker.refuse = None
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED


def test_not_accepted_is_recalled(make_cluster, make_worker):
    cluster = make_cluster({**QUICK, "lease-ttl": "20s"}).start()
    mute = make_worker(cluster, "mute", accept=False)
    t = cluster.submit()
    ref = mute.wait_dispatch(t.id)
    taker = make_worker(cluster, "taker")
    assert mute.wait_stop(ref) == Stop.RECALLED
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and done.worker_id == "taker"
    assert [(a.worker_id, a.end) for a in done.attempts] == [("mute", End.RECALLED), ("taker", End.SUCCEEDED)]
    assert done.attempts[0].worker_id == "mute"
    # Until it answers the worker gets nothing new, although it is the least loaded.
    more = [cluster.submit().id for _ in range(5)]
    assert all(cluster.finished(i).worker_id == "taker" for i in more)
    taker.close()
    mute.accept, mute.last_dispatch = True, 1
    mute.refused(ref, cause=W.RefusedAttempt.STOPPED)
    last = cluster.submit()
    assert cluster.finished(last.id).worker_id == "mute"


def test_recalled_but_it_ran(make_cluster, make_worker):
    """The accept was late and the attempt had been started. Its success counts if it reaches the store before the task
    is given out again; either way the task ends once, and the worker is told which it was."""
    cluster = make_cluster({**QUICK, "lease-ttl": "20s"}).start()
    slow = make_worker(cluster, "slow", accept=False)
    t = cluster.submit()
    ref = slow.wait_dispatch(t.id)
    slow.wait_stop(ref)
    slow.accept = True
    slow.outcome(ref, exit_code=0)
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED
    verdict = slow.wait_verdict(ref)
    assert verdict in (Verdict.RECORDED, Verdict.FENCED)
    kept = [End.SUCCEEDED] if verdict == Verdict.RECORDED else [End.RECALLED, End.SUCCEEDED]
    assert [a.end for a in done.attempts] == kept


def test_draining_worker_gets_nothing_new(cluster, make_worker):
    leaving = make_worker(cluster, "leaving", policy=hold)
    first = cluster.submit()
    ref = leaving.wait_dispatch(first.id)
    leaving.send(draining=W.Draining(mode=W.DRAIN_WAIT))
    leaving.wait_heartbeat_acked()  # in stream order: the master has read it
    second = cluster.submit()
    assert "drain" in cluster.get(second.id).pending_reason
    other = make_worker(cluster, "other")
    assert cluster.finished(second.id).worker_id == "other"
    leaving.outcome(ref)
    assert cluster.finished(first.id).worker_id == "leaving"
    assert len(leaving.dispatched) == 1 and len(other.dispatched) == 1


def test_draining_and_back(cluster, make_worker):
    worker = make_worker(cluster)
    worker.send(draining=W.Draining(mode=W.DRAIN_WAIT))
    worker.wait_heartbeat_acked()
    t = cluster.submit()
    assert cluster.get(t.id).state == State.PENDING
    worker.send(draining=W.Draining(resumed=True))
    assert cluster.finished(t.id).state == State.COMPLETED


def test_paused_worker(cluster, make_worker):
    """Heartbeat.paused holds for as long as heartbeats say so."""
    worker = make_worker(cluster, beat=False)
    number = worker.heartbeat() + 1
    worker.send(heartbeat=W.Heartbeat(number=number, paused=True, paused_reason="disk full"))
    worker.wait(lambda: worker.stream.acked >= number, "answer")
    t = cluster.submit()
    assert cluster.get(t.id).state == State.PENDING
    worker.send(heartbeat=W.Heartbeat(number=number + 1))
    assert cluster.finished(t.id).state == State.COMPLETED


def test_hello_paused(cluster, make_worker):
    worker = make_worker(cluster, beat=False, paused=True)
    t = cluster.submit()
    worker.send(heartbeat=W.Heartbeat(number=1, paused=True))
    worker.wait(lambda: worker.stream.acked >= 1, "answer")
    assert cluster.get(t.id).state == State.PENDING
    worker.send(heartbeat=W.Heartbeat(number=2))
    assert cluster.finished(t.id).state == State.COMPLETED


def test_dispatches_are_numbered(cluster, make_worker):
    worker = make_worker(cluster, slots=2)
    ids = submit_many(cluster, [dict()] * 20)
    order(worker, 20)
    numbers = [d.number for d in worker.dispatches]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sorted(t.task_id for t in worker.dispatched) == sorted(ids)


def test_large_tasks_come_in_messages_a_client_takes(cluster, make_worker):
    payload = b"\xff" * (1 << 20)
    ids = [cluster.submit(payload=payload, name=f"n{i}").id for i in range(12)]
    worker = make_worker(cluster, slots=12)
    assert sorted(order(worker, 12)) == sorted(ids)
    assert all(d.ByteSize() < 4 << 20 for d in worker.dispatches)
    assert all(t.spec.payload == payload for t in worker.dispatched)


def test_load_is_spread(cluster, make_worker):
    workers = [make_worker(cluster, f"w{i}", slots=10, policy=hold) for i in range(4)]
    submit_many(cluster, [dict()] * 20)
    wait_for(lambda: sum(len(w.held) for w in workers) == 20, "20 held")
    assert [len(w.held) for w in workers] == [5] * 4
    for w in workers:
        w.policy = success
        for ref in list(w.held):
            w.outcome(ref)
    wait_for(lambda: not cluster.list_all(states=[State.RUNNING]), "all ended")


def test_list_workers(cluster, make_worker):
    a = make_worker(cluster, "wa", slots=3, policy=hold)
    make_worker(cluster, "wb", slots=5)
    listed = cluster.admin.ListWorkers(stubs.admin.ListWorkersRequest(), timeout=30).workers
    assert [(w.worker_id, w.slots, w.state) for w in listed] == [
        ("wa", 3, stubs.admin.WorkerInfo.CONNECTED), ("wb", 5, stubs.admin.WorkerInfo.CONNECTED)]
    assert listed[0].session == a.session and listed[0].master_id == "m1"
    page = cluster.admin.ListWorkers(stubs.admin.ListWorkersRequest(page_size=1), timeout=30)
    assert [w.worker_id for w in page.workers] == ["wa"]
    page = cluster.admin.ListWorkers(
        stubs.admin.ListWorkersRequest(page_size=1, page_token=page.next_page_token), timeout=30
    )
    assert [w.worker_id for w in page.workers] == ["wb"] and not page.next_page_token


def test_time_limit_is_the_workers(cluster, make_worker):
    """The limit travels with the task, and TIMED_OUT counts against max_attempts."""
    worker = make_worker(cluster, policy=hold)
    spec = make_spec()
    spec.timeout.FromMilliseconds(1500)
    t = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    ref = worker.wait_dispatch(t.id)
    assert worker.held[ref].spec.timeout.ToMilliseconds() == 1500
    worker.outcome(ref, kind=Kind.TIMED_OUT, signal=9)
    done = cluster.finished(t.id)
    assert done.state == State.FAILED and done.attempts[0].cause


def test_many_large_tasks_and_a_worker_with_many_slots(cluster, make_worker):
    """More than a stream's queue takes: they come one after the other, on one stream."""
    payload = bytes(1 << 20)
    ids = [cluster.submit(payload=payload).id for _ in range(60)]
    worker = make_worker(cluster, slots=1000)
    tasks = [cluster.finished(i) for i in ids]
    assert {t.state for t in tasks} == {State.COMPLETED}
    assert {len(worker.dispatched)} == {60} and worker.session == 1 and worker.stream.status is None
    assert all(a.end in (End.SUCCEEDED, End.RECALLED) for t in tasks for a in t.attempts)
