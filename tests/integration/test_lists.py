"""ListTasks with all filters, against a naive model, while tasks come and change; queues that are paused."""
import os
import random
import time

import grpc
import pytest
import stubs
from cluster import PATIENCE, make_spec, wait_for
from fake_worker import Kind, hold
from google.protobuf.timestamp_pb2 import Timestamp
from refusals import fields, refused

State, T, A = stubs.State, stubs.tasks, stubs.admin
INVALID = grpc.StatusCode.INVALID_ARGUMENT
KEYS, VALUES = ["team", "exp/id", "c"], ["a", "b b", ""]
STATES = [State.PENDING, State.RUNNING, State.COMPLETED, State.FAILED, State.CANCELLED]
NAMES = ["", "run-1", "run-12", "sweep/3"]


@pytest.fixture(params=["postgres", "sqlite"])
def some_cluster(request, make_cluster, tmp_path):
    return make_cluster({"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}).start()


def condition(rng):
    """One condition of a selector, and whether labels satisfy it."""
    key, value, other = rng.choice(KEYS), rng.choice(VALUES), rng.choice(VALUES)
    quote = '"%s"'
    some = f'({quote % value}, {quote % other})'
    return rng.choice([
        (f'{key}={quote % value}', lambda has: has.get(key) == value),
        (f'{key} != {quote % value}', lambda has: has.get(key) != value),
        (f'{key} in {some}', lambda has: has.get(key) in (value, other)),
        (f'{key} notin {some}', lambda has: has.get(key) not in (value, other)),
        (key, lambda has: key in has),
        (f'!{key}', lambda has: key not in has),
    ])


def a_filter(rng, world):
    """Fields of a TaskFilter, and whether a task that is there as it was submitted matches (but for its state)."""
    tests, f = [], {}

    def ask(chance, name, value, test):
        if rng.random() < chance:
            f[name] = value
            tests.append(test)

    queue, name, one = rng.choice(world.queues), rng.choice(NAMES[1:]), rng.choice(world.tasks)
    ask(.3, "queue", queue, lambda t: t.spec.queue == queue)
    ask(.2, "name", name, lambda t: t.spec.name == name)
    ask(.2, "name_prefix", "run-1", lambda t: t.spec.name.startswith("run-1"))
    ask(.2, "created_from", one.created_at, lambda t: t.created_at.ToNanoseconds() >= one.created_at.ToNanoseconds())
    ask(.1, "created_before", one.created_at, lambda t: t.created_at.ToNanoseconds() < one.created_at.ToNanoseconds())
    ids = [t.id for t in rng.sample(world.tasks, 10)] + ["0190b6a0-0000-7000-8000-000000000001"]
    ask(.1, "task_ids", ids, lambda t: t.id in ids)
    labels = {key: rng.choice(VALUES) for key in rng.sample(KEYS, rng.choice([1, 1, 2]))}
    ask(.2, "labels", labels, lambda t: all(t.spec.labels.get(k) == v for k, v in labels.items()))
    conditions = [condition(rng) for _ in range(rng.randint(1, 3))]
    ask(.5, "label_selector", " , ".join(c[0] for c in conditions), lambda t: all(c[1](dict(t.spec.labels)) for c in conditions))
    states = rng.sample(STATES, rng.randint(1, 3))
    if rng.random() < .5:
        f["states"] = states
    return f, lambda t: all(test(t) for test in tests), set(f.get("states", STATES))


class World:
    """Tasks that are submitted, given out, ended, cancelled and retried one by one; and in which state each was at any time."""

    def __init__(self, cluster, worker, rng):
        self.cluster, self.worker, self.rng = cluster, worker, rng
        self.queues = ["lists-a", "lists-b", "lists-c"]
        self.tasks, self.states = [], {}
        for _ in range(40):
            self.submit()
        for _ in range(20):
            self.change()

    def submit(self):
        rng = self.rng
        labels = {key: rng.choice(VALUES) for key in KEYS if rng.random() < .6}
        later = rng.random() < .6
        task = self.cluster.submit(queue=rng.choice(self.queues), name=rng.choice(NAMES), labels=labels,
                                   **(dict(run_at=Timestamp(seconds=int(time.time()) + 9999)) if later else {}))
        task = self.cluster.get(task.id)
        self.tasks.append(task)
        self.states[task.id] = {State.PENDING, State.RUNNING}

    def change(self):
        task = self.rng.choice(self.tasks)
        now = self.cluster.get(task.id)
        seen = self.states[task.id]
        seen.add(now.state)
        if now.state == State.RUNNING and (task.id, now.attempt) in self.worker.held:
            good = self.rng.random() < .6
            self.worker.outcome((task.id, now.attempt), kind=Kind.SUCCEEDED if good else Kind.FAILED, exit_code=0 if good else 1)
            seen.add(self.cluster.finished(task.id).state)
        elif now.state == State.PENDING:
            seen.add(self.cluster.cancel(task.id).state)
            seen.add(State.CANCELLED)
        elif now.state in (State.FAILED, State.CANCELLED):
            seen.update((State.PENDING, State.RUNNING))
            self.cluster.tasks.RetryTask(T.RetryTaskRequest(task_id=task.id, attempt=now.attempt), timeout=PATIENCE)


def test_lists_against_a_model(some_cluster, make_worker):
    seed = int(os.environ.get("REINS_SEED", random.randrange(1 << 32)))
    print(f"REINS_SEED={seed}")
    rng = random.Random(seed)
    worker = make_worker(some_cluster, slots=200, policy=hold)
    world = World(some_cluster, worker, rng)
    for _ in range(25):
        f, matches, states = a_filter(rng, world)
        there = list(world.tasks)
        for t in there: # from here on all states that it has while the list goes on
            now = some_cluster.get(t.id)
            world.states[t.id] = {now.state}
            if now.state == State.PENDING:
                world.states[t.id].add(State.RUNNING)
            if now.HasField("cancel_requested_at"):
                world.states[t.id].add(State.CANCELLED)
        found, token = [], ""
        while True:
            page = some_cluster.tasks.ListTasks(T.ListTasksRequest(
                filter=T.TaskFilter(**f), page_size=rng.randint(1, 20), page_token=token, view=rng.choice([1, 2])), timeout=PATIENCE)
            found += page.tasks
            token = page.next_page_token
            if not token:
                break
            world.change()
            if rng.random() < .3:
                world.submit()
        ids = [t.id for t in found]
        assert ids == sorted(ids, reverse=True) and len(set(ids)) == len(ids), (seed, f)
        known = {t.id: t for t in world.tasks}
        for t in found:
            assert matches(known[t.id]) and t.state in states, (seed, f, t)
        for t in there: # all the time in a state that is asked for
            if matches(t) and world.states[t.id] <= states:
                assert t.id in ids, (seed, f, t)


BAD = [
    ("filter.states", dict(states=[9])), ("filter.queue", dict(queue="a b")), ("filter.name", dict(name="ä")),
    ("filter.name_prefix", dict(name_prefix="*")), ("filter.worker_id", dict(worker_id="w 1")),
    ("filter.owner", dict(owner="x" * 256)), ("filter.labels", dict(labels={"a b": "c"})),
    ("filter.labels", dict(labels={f"k{i}": "" for i in range(17)})), ("filter.task_ids", dict(task_ids=["7"])),
    ("filter.task_ids", dict(task_ids=["0190b6a0-0000-7000-8000-000000000001"] * 1001)),
    ("filter.created_from", dict(created_from=Timestamp(seconds=1 << 50))), ("filter.label_selector", dict(label_selector="a b")),
    ("filter.label_selector", dict(label_selector="a=" + "x" * 4096)),
]


@pytest.mark.parametrize("field, f", BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_filter(shared, field, f):
    error = refused(shared.tasks.ListTasks, T.ListTasksRequest(filter=T.TaskFilter(**f)))
    assert error.code() == INVALID and fields(error) == [field], error.details()


def test_bad_view(shared):
    error = refused(shared.tasks.ListTasks, T.ListTasksRequest(view=7))
    assert error.code() == INVALID and fields(error) == ["view"], error.details()
    error = refused(lambda r, timeout: list(shared.tasks.WatchTasks(r, timeout=timeout)), T.WatchTasksRequest(view=7))
    assert error.code() == INVALID and fields(error) == ["view"], error.details()


def test_a_token_belongs_to_its_filter(shared):
    for _ in range(3):
        shared.submit(queue="tokens", labels={"a": "b"}, run_at=Timestamp(seconds=int(time.time()) + 999))
    token = shared.tasks.ListTasks(T.ListTasksRequest(filter=T.TaskFilter(queue="tokens", label_selector="a=b"), page_size=1)).next_page_token
    same = T.TaskFilter(queue="tokens", label_selector="a = b")
    assert len(shared.tasks.ListTasks(T.ListTasksRequest(filter=same, page_size=1, page_token=token)).tasks) == 1
    for other in (dict(queue="tokens"), dict(queue="tokens", label_selector="a!=b"), dict(queue="tokens", labels={"a": "c"}),
                  *(dict(queue="tokens", label_selector="a=b", **more) for more in (
                      dict(owner="me"), dict(name="n"), dict(name_prefix="n"), dict(worker_id="w"), dict(states=[1]),
                      dict(created_from=Timestamp(seconds=1)), dict(created_before=Timestamp(seconds=1 << 33)),
                      dict(task_ids=["0190b6a0-0000-7000-8000-000000000001"])))):
        error = refused(shared.tasks.ListTasks, T.ListTasksRequest(filter=T.TaskFilter(**other), page_token=token))
        assert error.code() == INVALID and fields(error) == ["page_token"]
    for bad in ("x", token + "x", token[:-1], "t1" + token[2:]):
        error = refused(shared.tasks.ListTasks, T.ListTasksRequest(filter=same, page_token=bad))
        assert error.code() == INVALID and fields(error) == ["page_token"]


# ---- queues ----


def pause(cluster, queue, reason=""):
    return cluster.admin.PauseQueue(A.PauseQueueRequest(queue=queue, reason=reason), timeout=PATIENCE)


def resume(cluster, queue):
    return cluster.admin.ResumeQueue(A.ResumeQueueRequest(queue=queue), timeout=PATIENCE)


def queues(cluster, page_size=0):
    found, token = [], ""
    while True:
        page = cluster.admin.ListQueues(A.ListQueuesRequest(page_size=page_size, page_token=token), timeout=PATIENCE)
        found += page.queues
        token = page.next_page_token
        if not token:
            return {q.name: q for q in found}


def test_a_paused_queue(some_cluster, make_worker):
    worker = make_worker(some_cluster, slots=8, policy=hold)
    running = some_cluster.submit(queue="p")
    ref = worker.wait_dispatch(running.id)
    info = pause(some_cluster, "p", "new disks")
    assert info.paused and info.paused_reason == "new disks" and info.HasField("paused_at") and info.running == 1
    waiting = [some_cluster.submit(queue="p") for _ in range(3)]
    other = some_cluster.submit(queue="o")
    worker.wait_dispatch(other.id)
    assert some_cluster.get(waiting[0].id).pending_reason == "queue paused: new disks"
    worker.outcome(ref, exit_code=0)
    assert some_cluster.finished(running.id).state == State.COMPLETED
    again = pause(some_cluster, "p")
    assert again.paused_at == info.paused_at and not again.paused_reason and again.pending == 3
    # Another process of the same master: not one is given out before it knows.
    some_cluster.restart()
    some_cluster.connect_anew()
    wait_for(lambda: some_cluster.get(waiting[0].id).pending_reason == "queue paused", "the reason after a restart")
    worker.reconnect()
    worker.wait_dispatch(some_cluster.submit(queue="o").id)
    assert not [r for r in worker.held if r[0] in {t.id for t in waiting}]
    assert not resume(some_cluster, "p").paused
    for t in waiting:
        worker.wait_dispatch(t.id)
    assert not resume(some_cluster, "p").paused
    assert refused(some_cluster.admin.ResumeQueue, A.ResumeQueueRequest(queue="never")).code() == grpc.StatusCode.NOT_FOUND
    for request in (A.PauseQueueRequest(), A.PauseQueueRequest(queue="a b")):
        assert fields(refused(some_cluster.admin.PauseQueue, request)) == ["queue"]
    assert fields(refused(some_cluster.admin.PauseQueue, A.PauseQueueRequest(queue="p", reason="x" * 256))) == ["reason"]


def test_a_mistyped_queue(some_cluster):
    """It is gone when it is resumed; a second resumption is told the same, if its answer was lost."""
    some_cluster.submit(queue="p")
    assert pause(some_cluster, "pp").paused and list(queues(some_cluster)) == ["p", "pp"]
    for _ in range(2):
        info = resume(some_cluster, "pp")
        assert (info.name, info.paused, info.pending, info.HasField("paused_at")) == ("pp", False, 0, False)
        assert list(queues(some_cluster)) == ["p"]
    pause(some_cluster, "p")
    resume(some_cluster, "p")
    assert refused(some_cluster.admin.ResumeQueue, A.ResumeQueueRequest(queue="pp")).code() == grpc.StatusCode.NOT_FOUND
    assert list(queues(some_cluster)) == ["p"]


def test_another_master_obeys(cluster, make_worker):
    other = cluster.another("m2").start()
    worker = make_worker(other, slots=8, policy=hold, connect=False)
    try:
        pause(cluster, "p", "by m1")
        waiting = other.submit(queue="p")
        wait_for(lambda: other.get(waiting.id).pending_reason == "queue paused: by m1", "m2 knows of the pause")
        worker.connect()
        worker.wait_dispatch(other.submit(queue="o").id)
        assert waiting.id not in {r[0] for r in worker.held}
        resume(cluster, "p")
        worker.wait_dispatch(waiting.id)
    finally:
        worker.close()
        other.close()


def test_queues_are_listed(some_cluster, make_worker):
    worker = make_worker(some_cluster, slots=2, policy=hold, queues=["b"])
    oldest = some_cluster.get(some_cluster.submit(queue="a").id)
    some_cluster.submit(queue="a", priority=5)
    some_cluster.submit(queue="a", run_at=Timestamp(seconds=int(time.time()) + 999))
    worker.wait_dispatch(some_cluster.submit(queue="b").id)
    pause(some_cluster, "c")
    for page_size in (1, 2, 0):
        found = queues(some_cluster, page_size)
        assert list(found) == ["a", "b", "c"]
        assert (found["a"].pending, found["a"].scheduled, found["a"].running) == (2, 1, 0)
        assert found["a"].oldest_pending_at == oldest.created_at
        assert (found["b"].pending, found["b"].running, found["c"].pending, found["c"].paused) == (0, 1, 0, True)
        assert not any(q.pending_more or q.scheduled_more or q.running_more for q in found.values())
    error = refused(some_cluster.admin.ListQueues, A.ListQueuesRequest(page_size=1001))
    assert error.code() == INVALID and fields(error) == ["page_size"]
