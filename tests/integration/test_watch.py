"""WatchTasks: every change of a task once, in order, whatever dies; slow readers; cursors.

The changes that were seen of a task must follow on each other (what one leaves is what the next one finds), and end where
the store has it: so none is missing, none comes twice and none is out of order."""
import collections
import contextlib
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import threading
import time

import grpc
import monitor
import pytest
import stubs
from cluster import BUILD, PATIENCE, REINSD, dying_with_us, make_spec, wait_for
from fake_worker import W, hold, success
from refusals import info, refused

T, State = stubs.tasks, stubs.State
Event = T.TaskEvent
CODE = grpc.StatusCode
ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED)
CHANGES = (Event.CREATED, Event.CHANGED)


@pytest.fixture(params=["postgres", "sqlite"])
def start(request, make_cluster, tmp_path):
    """start(flags) -> a cluster that runs, on each kind of store."""
    def start(**flags):
        flags = {name.replace("_", "-"): value for name, value in flags.items()}
        own = {"store": f"sqlite:{tmp_path / 'reins.db'}", "lease": "memory"} if request.param == "sqlite" else {}
        return make_cluster({**own, **flags}).start()
    return start


class Watcher:
    """Reads in a thread; with `again` it goes on from its last cursor when its stream ends. kinds=(): all."""

    def __init__(self, cluster, cursor="", again=False, view=0, kinds=CHANGES, **fields):
        self.cluster, self.cursor, self.again, self.view, self.kinds, self.fields = cluster, cursor, again, view, kinds, fields
        self.events, self.errors, self.lock = [], [], threading.Lock()
        self.closed, self.call, self.answered = False, None, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.answered.wait(PATIENCE)

    def _run(self):
        while not self.closed:
            try:
                with grpc.insecure_channel(self.cluster.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                    request = T.WatchTasksRequest(cursor=self.cursor, filter=T.TaskFilter(**self.fields), view=self.view, kinds=self.kinds)
                    self.call = stubs.tasks_grpc.TaskServiceStub(channel).WatchTasks(request)
                    for event in self.call:
                        with self.lock:
                            self.events.append(event)
                            self.cursor = event.cursor
                        self.answered.set()
            except grpc.RpcError as e:
                self.errors.append(e)
                self.answered.set()
                if not self.again or e.code() not in (CODE.UNAVAILABLE, CODE.CANCELLED, CODE.RESOURCE_EXHAUSTED):
                    return
                time.sleep(0.02)

    def close(self):
        self.closed = True
        self.call.cancel()
        self.thread.join(PATIENCE)

    def seen(self, kind=None):
        with self.lock:
            return [e for e in self.events if e.kind != Event.SYNC and kind in (None, e.kind)]

    def of(self, task_id):
        return [e for e in self.seen() if e.task.id == task_id]

    def wait(self, n, kind=None):
        wait_for(lambda: len(self.seen(kind)) >= n, lambda: f"{n} events; {len(self.seen(kind))} came {self.errors}")
        return self.seen(kind)

    def wait_ended(self, ids):
        ids = set(ids)
        wait_for(lambda: ids <= {e.task.id for e in self.seen() if e.state in ENDED},
                 lambda: f"the ends of {len(ids - {e.task.id for e in self.seen() if e.state in ENDED})} more tasks {self.errors[-1:]}")


def states(events):
    return [(State.State.Name(e.state), e.attempt) for e in events]


def check_chains(events, tasks):
    """The events of each of these tasks tell its whole life, as it stands there now."""
    by_task = collections.defaultdict(list)
    for e in events:
        by_task[e.task.id].append(e)
    for t in tasks:
        chain = by_task.pop(t.id)
        before, attempt = State.STATE_UNSPECIFIED, 0
        for e in chain:
            if e.kind == Event.STARTED:
                assert e.state == State.RUNNING and e.task.HasField("started_at")
            else:
                assert e.kind == (Event.CHANGED if before else Event.CREATED), states(chain)
            assert e.state_before == before and e.attempt in (attempt, attempt + (e.state == State.RUNNING)), states(chain)
            before, attempt = e.state, e.attempt
            # What is shown with it is no older.
            assert (e.task.attempt, e.task.state in ENDED) >= (e.attempt, e.state in ENDED) and e.task.attempt >= e.attempt, e
        assert (before, attempt) == (t.state, t.attempt), states(chain)
    assert not by_task


def test_life_of_a_task(start, make_worker):
    cluster = start()
    earlier = cluster.submit(name="earlier")
    w = Watcher(cluster)
    assert w.events[0].kind == Event.SYNC and w.events[0].cursor and not w.events[0].HasField("task")
    t = cluster.submit(name="now", labels={"a": "b"}, payload=b"x" * 1000, env={"K": "V"})
    assert states(w.wait(1)) == [("PENDING", 0)]
    created = w.seen()[0]
    assert created.kind == Event.CREATED and created.task.spec.name == "now" and created.task.pending_reason
    assert not created.task.spec.payload and not created.task.spec.env and abs(created.at.ToSeconds() - time.time()) < 60
    worker = make_worker(cluster, policy=hold, slots=2)
    w.wait(3)
    assert {e.task.id for e in w.seen()[1:]} == {t.id, earlier.id}
    assert w.seen()[-1].task.worker_id == worker.worker_id
    cluster.cancel(t.id)
    cluster.cancel(t.id)  # says nothing new
    worker.wait_stop((t.id, 1))
    worker.outcome((t.id, 1), kind=stubs.worker.Outcome.STOPPED)
    w.wait_ended([t.id])
    assert states(w.of(t.id)) == [("PENDING", 0), ("RUNNING", 1), ("RUNNING", 1), ("CANCELLED", 1)]
    assert w.of(t.id)[2].task.HasField("cancel_requested_at")
    cluster.tasks.RetryTask(T.RetryTaskRequest(task_id=t.id, attempt=1), timeout=PATIENCE)
    w.wait(7)
    assert states(w.of(t.id))[4:] == [("PENDING", 1), ("RUNNING", 2)]
    check_chains(w.of(t.id), [cluster.get(t.id)])
    # From any cursor the rest, and nothing else.
    whole = w.seen()
    for i, after in enumerate(whole[:-1]):
        later = Watcher(cluster, cursor=after.cursor)
        assert [(e.task.id, *states([e])) for e in later.wait(len(whole) - i - 1)] == [(e.task.id, *states([e])) for e in whole[i + 1:]]
        later.close()
    full = Watcher(cluster, cursor=w.events[0].cursor, view=stubs.task.TASK_VIEW_FULL)
    assert full.wait(1)[0].task.spec.payload == b"x" * 1000
    full.close()
    w.close()


def test_filters(start, make_worker):
    cluster = start()
    now = Watcher(cluster)
    mine = cluster.submit(name="a/b", queue="q1", labels={"k": "v", "e": ""})
    other = cluster.submit(name="a", queue="q2")
    now.wait(2)
    ids = {mine.id: "mine", other.id: "other"}
    queue = cluster.submit(queue="q3").id  # ends each list
    now.wait(3)
    for fields, found in (
        ({"queue": "q1"}, {"mine"}), ({"name": "a"}, {"other"}), ({"labels": {"k": "v"}}, {"mine"}), ({"labels": {"k": "w"}}, set()),
        ({"labels": {"e": ""}}, {"mine"}), ({"task_ids": [other.id]}, {"other"}), ({"states": [State.RUNNING]}, set()),
        ({"states": [State.PENDING], "queue": "q2"}, {"other"}), ({"owner": "nobody"}, set()), ({"worker_id": "w1"}, set()),
        ({"name_prefix": "a"}, {"mine", "other"}), ({"name_prefix": "a/"}, {"mine"}), ({"label_selector": "k in (v,w),e"}, {"mine"}),
        ({"label_selector": "!k"}, {"other"}), ({"created_before": mine.created_at}, set()), ({"created_from": mine.created_at}, {"mine", "other"}),
    ):
        w = Watcher(cluster, cursor=now.events[0].cursor, **fields)
        # What follows everything that is looked for says that all of it has come.
        last = Watcher(cluster, cursor=w.events[0].cursor, task_ids=[queue])
        last.wait(1)
        wait_for(lambda: {ids.get(e.task.id) for e in w.seen()} - {None} == found, f"{fields}: {found}, {w.seen()}")
        for each in (w, last):
            each.close()
    # Before or after the change.
    running = Watcher(cluster, states=[State.RUNNING])
    of_worker = Watcher(cluster, worker_id="w1")
    worker = make_worker(cluster, policy=hold, slots=4, queues=["q1"])
    ref = worker.wait_dispatch(mine.id)
    worker.outcome(ref)
    assert states(running.wait(2)) == [("RUNNING", 1), ("COMPLETED", 1)]
    assert states(of_worker.wait(2)) == [("RUNNING", 1), ("COMPLETED", 1)]
    for each in (now, running, of_worker):
        each.close()


def test_starts(start, make_worker):
    """That a program began is told, once, also when its worker says it in another session; of a short one the end says it."""
    cluster = start()
    w = Watcher(cluster, kinds=())
    t = cluster.submit().id
    worker = make_worker(cluster, policy=hold, slots=2, queues=["default"])
    worker.keep_connected()
    assert [e.kind for e in w.wait(3)] == [Event.CREATED, Event.CHANGED, Event.STARTED]
    begun = w.seen()[2]
    assert (states([begun]), begun.state_before, begun.task.state) == ([("RUNNING", 1)], State.RUNNING, State.RUNNING)
    assert begun.task.started_at.seconds and not w.seen()[1].task.HasField("started_at")
    cluster.restart()
    worker.wait(lambda: worker.stream.welcome, "the worker's return")
    worker.outcome((t, 1))
    brief = cluster.submit(queue="brief").id
    make_worker(cluster, "w2", policy=success, queues=["brief"])
    rest = Watcher(cluster, cursor=begun.cursor, kinds=())
    rest.wait_ended([t, brief])
    assert [(e.kind, *states([e])) for e in rest.of(t)] == [(Event.CHANGED, ("COMPLETED", 1))]
    assert [(e.kind, *states([e])) for e in rest.of(brief)] == [
        (Event.CREATED, ("PENDING", 0)), (Event.CHANGED, ("RUNNING", 1)), (Event.CHANGED, ("COMPLETED", 1))]
    rest.close()


def points(ref, first, *values):
    m = W.Metrics(task_id=ref[0], attempt=ref[1], first_number=first)
    for n, value in enumerate(values):
        m.points.add(step=first + n, values={"x": value})
    return W.WorkerMessage(metrics=m)


def steps(events):
    return [e.task.metrics.step for e in events]


def test_metrics(start, make_worker):
    """New values are told while they come, at most once a second and task, to those who want them; a cursor goes back to them."""
    cluster = start()
    worker = make_worker(cluster, policy=hold, slots=2)
    ref = worker.wait_dispatch(cluster.submit(queue="q", labels={"a": "b"}).id)
    quiet = worker.wait_dispatch(cluster.submit(queue="r").id)
    w, by_label = Watcher(cluster, kinds=()), Watcher(cluster, kinds=[Event.METRICS], label_selector="a=b")
    not_these = [Watcher(cluster), Watcher(cluster, kinds=(), queue="r"), Watcher(cluster, kinds=(), states=[State.PENDING])]
    worker.stream.send(points(ref, 1, 0.5))
    first = w.wait(1, Event.METRICS)[0]
    assert (first.task.id, first.state, first.attempt, steps([first])) == (ref[0], State.RUNNING, 1, [1])
    assert dict(first.task.metrics.values) == {"x": 0.5} and abs(first.at.ToSeconds() - time.time()) < 60
    for n in range(2, 60):
        worker.stream.send(points(ref, n, n / 2))
    wait_for(lambda: steps(w.seen(Event.METRICS))[-1] == 59, lambda: f"the last value, {steps(w.seen(Event.METRICS))}")
    # What came meanwhile is there with the end at the latest, or soon after it.
    worker.stream.send(points(ref, 60, 9))
    worker.outcome(ref)
    wait_for(lambda: steps(w.seen(Event.METRICS))[-1] == 60, "the value before the end")
    w.wait_ended([ref[0]])
    told = w.seen(Event.METRICS)
    assert all(b.at.ToNanoseconds() - a.at.ToNanoseconds() > 0.9e9 for a, b in zip(told, told[1:])), [e.at.ToJsonString() for e in told]
    assert steps(told) == sorted(set(steps(told)))
    assert not any(e.task.HasField("metrics") for e in w.seen() if e.kind != Event.METRICS)
    wait_for(lambda: len(by_label.seen()) == len(told), lambda: f"{len(told)} events by label, {by_label.seen()}")
    again = Watcher(cluster, cursor=w.events[0].cursor, kinds=[Event.METRICS])
    assert {e.task.id for e in again.wait(len(told))} == {ref[0]}
    worker.outcome(quiet)  # ends each list
    for each in not_these:
        wait_for(lambda: each.of(quiet[0]) or each is not_these[2], "the last event")
        assert not each.seen(Event.METRICS)
    for each in (w, by_label, again, *not_these):
        each.close()


def test_metrics_of_an_attempt_that_is_over(cluster, make_worker):
    """What a task shows is of its newest attempt: of an older one nothing is told any more."""
    worker = make_worker(cluster, policy=hold)
    w = Watcher(cluster, kinds=())
    ref = worker.wait_dispatch(cluster.submit(retry={"max_attempts": 2}).id)
    worker.stream.send(points(ref, 1, 1))
    assert w.wait(1, Event.METRICS)[0].attempt == 1
    worker.outcome(ref, kind=stubs.worker.Outcome.FAILED)
    second = worker.wait_dispatch(ref[0], 2)
    worker.stream.send(points(second, 1, 2))
    assert w.wait(2, Event.METRICS)[1].attempt == 2
    again = Watcher(cluster, cursor=w.events[0].cursor, kinds=())
    assert [e.attempt for e in again.wait(1, Event.METRICS)] == [2]
    for each in (w, again):
        each.close()


def test_metrics_that_cant_be_read(make_cluster, make_worker, tmp_path):
    """They are left out: what happens to tasks is told all the same, to all."""
    cluster = make_cluster({"store": f"sqlite:{tmp_path / 'reins.db'}", "lease": "memory"}).start()
    worker = make_worker(cluster, policy=hold)
    w = Watcher(cluster, kinds=())
    ref = worker.wait_dispatch(cluster.submit().id)
    worker.stream.send(points(ref, 1, 0.5))
    w.wait(1, Event.METRICS)
    with contextlib.closing(sqlite3.connect(tmp_path / "reins.db-logs")) as logs:
        logs.execute("ALTER TABLE metric RENAME TO damaged")
    again = Watcher(cluster, cursor=w.events[0].cursor, kinds=())
    worker.outcome(ref)
    for each in (w, again):
        each.wait_ended([ref[0]])
        each.close()
    assert not again.seen(Event.METRICS)


def test_metrics_at_another_master(cluster, make_worker):
    other = cluster.another("m2")
    try:
        other.start()
        worker = make_worker(cluster, policy=hold)
        w0 = Watcher(cluster)
        ref = worker.wait_dispatch(cluster.submit().id)
        w, shown = Watcher(other, kinds=()), reins(other, "watch", "--metrics", "--cursor", w0.events[0].cursor)
        for n in (1, 2):
            worker.stream.send(points(ref, n, n))
            wait_for(lambda: steps(w.seen(Event.METRICS))[-1:] == [n], lambda: f"value {n} at the other master, {w.seen()}")
        lines = [next(line for line in shown.stdout if word in line) for word in ("STARTED", "METRICS")]
        assert [f"{ref[0]}  {word}    attempt 1  /bin/true" in line for word, line in zip(("STARTED", "METRICS"), lines)] == [True, True], lines
        assert "  x=" in lines[1]
        shown.kill()
        for each in (w0, w):
            each.close()
    finally:
        other.close()


def told_of_points(cluster):
    """Of one change a row: 24 bytes, the last of which has 128 for points."""
    return cluster.sql("SELECT count(*) FROM reins.event WHERE get_byte(changes, 23) = 146")[0][0]


def test_metrics_that_nobody_wants(cluster, make_worker):
    """They leave nothing in the store, until somebody asks for them."""
    w = Watcher(cluster)
    worker = make_worker(cluster, policy=hold, slots=2)
    ref, second = (worker.wait_dispatch(cluster.submit().id) for _ in range(2))
    asked = 'reins_store_operations_total{kind="news",result="ok"}'
    for n in (1, 2):
        worker.stream.send(points(ref, n, n))
        wait_for(lambda: monitor.metrics(cluster)[asked] >= n, "the store to be asked")
    assert told_of_points(cluster) == 0
    wants = Watcher(cluster, kinds=[Event.METRICS])
    worker.stream.send(points(ref, 3, 3))
    assert steps(wants.wait(1)) == [3] and told_of_points(cluster) == 1
    # A minute after the last one who did, nobody does.
    wants.close()
    cluster.sql("UPDATE reins.meta SET value = (value::int8 - 60000000)::text WHERE key = 'watched_until'")
    worker.stream.send(points(second, 1, 1))
    wait_for(lambda: monitor.metrics(cluster)[asked] >= 4, "the store to be asked")
    assert told_of_points(cluster) == 1
    w.close()


def test_deleted(cluster):
    """Rows that went in one transaction with an event that says so, as retention is to do it."""
    gone, stays = (cluster.submit(queue="q") for _ in range(2))
    for t in (gone, stays):
        cluster.cancel(t.id)
    watchers = [Watcher(cluster, kinds=(), **fields) for fields in ({}, {"task_ids": [gone.id]}, {"states": [State.CANCELLED]})]
    others = [Watcher(cluster, kinds=(), **fields) for fields in ({"queue": "q"}, {"task_ids": [stays.id]}, {"states": [State.COMPLETED]},
                                                                  {"label_selector": "!a"})]
    cluster.sql(f"""SELECT reins.open_stream(); BEGIN; DELETE FROM reins.ended WHERE task_id = '{gone.id}'; DELETE FROM reins.task WHERE id = '{gone.id}';
        INSERT INTO reins.event (changes) VALUES (uuid_send('{gone.id}') || int8send({3 << 6 | 5 << 3})); COMMIT""")
    for w in watchers:
        e, = w.wait(1)
        assert (e.kind, e.task, e.state_before, e.state) == (Event.DELETED, stubs.task.Task(id=gone.id), State.CANCELLED, 0)
    cluster.tasks.RetryTask(T.RetryTaskRequest(task_id=stays.id), timeout=PATIENCE)
    for w in others[:2] + others[3:]:
        assert [e.kind for e in w.wait(1)] == [Event.CHANGED]
    assert not others[2].seen()
    for w in watchers + others:
        w.close()


def refusal(cluster, **request):
    with pytest.raises(grpc.RpcError) as e:
        list(cluster.tasks.WatchTasks(T.WatchTasksRequest(**request), timeout=PATIENCE))
    return e.value.code(), e.value.details()


def test_refused(start):
    cluster = start(max_watchers=2)
    w, other = Watcher(cluster), Watcher(cluster)
    code, text = refusal(cluster)
    assert code == CODE.RESOURCE_EXHAUSTED and "--max-watchers" in text
    error = refused(lambda r, timeout: list(cluster.tasks.WatchTasks(r, timeout=timeout)), T.WatchTasksRequest())
    assert info(error) == ("TOO_MANY_STREAMS", {"limit": "2"})
    other.close()
    wait_for(lambda: refusal(cluster, cursor="x")[0] == CODE.INVALID_ARGUMENT, "room for another")
    cursor = w.events[0].cursor
    for bad in ("x", "AAAA", cursor[:-4], cursor + "AAAA", "A" * 4097, "!" * 20):
        code, text = refusal(cluster, cursor=bad)
        assert code == CODE.INVALID_ARGUMENT and "cursor" in text, bad
    # Bytes 1 to 8 say of which store it is.
    assert refusal(cluster, cursor=cursor[:2] + ("A" if cursor[2] != "A" else "B") + cursor[3:])[0] == CODE.OUT_OF_RANGE
    for kind in (0, 7, -1):
        code, text = refusal(cluster, kinds=[kind])
        assert code == CODE.INVALID_ARGUMENT and f"kinds: {kind} is none" in text
    for fields, name in (({"states": [9]}, "filter.states"), ({"queue": "a b"}, "filter.queue"), ({"label_selector": "a in"}, "filter.label_selector"), ({"task_ids": ["x"]}, "filter.task_ids"),
                         ({"labels": {str(i): "" for i in range(17)}}, "filter.labels")):
        code, text = refusal(cluster, filter=T.TaskFilter(**fields))
        assert code == CODE.INVALID_ARGUMENT and name in text
    w.close()


def test_what_is_not_kept(cluster):
    """A cursor older than what is kept is refused; a newer one goes on."""
    old = Watcher(cluster)
    cluster.submit()
    old.wait(1)
    cluster.sql("SELECT setval('reins.event_number', 6::bigint << 17)")
    new = Watcher(cluster)
    cluster.submit()
    new.wait(1)
    cluster.sql("SELECT reins.trim_events('1h')")
    code, text = refusal(cluster, cursor=old.events[0].cursor)
    assert code == CODE.OUT_OF_RANGE and "--event-retention" in text
    for cursor, n in ((new.events[0].cursor, 1), (old.seen()[0].cursor, 1)):
        again = Watcher(cluster, cursor=cursor)
        again.wait(n)
        again.close()
    assert not old.errors and len(old.seen()) == 2
    for each in (old, new):
        each.close()


def test_the_store_goes_and_comes(cluster):
    """The stream stays open over it."""
    w = Watcher(cluster)
    cluster.submit()
    w.wait(1)
    cluster.postgres.stop()
    wait_for(lambda: cluster.health() == "NOT_SERVING", "the store's end to be noticed")
    code, _ = refusal(cluster)
    assert code == CODE.UNAVAILABLE
    cluster.postgres.start()
    wait_for(lambda: cluster.health() == "SERVING", "the store's return")
    cluster.submit()
    w.wait(2)
    assert not w.errors
    w.close()


@pytest.mark.skipif("REINS_SLOW" not in os.environ, reason="takes 31 s; REINS_SLOW=1")
def test_sync_when_nothing_matches(cluster):
    """The cursor moves on with what is not for this watcher."""
    w, all_of_it = Watcher(cluster, queue="nothing"), Watcher(cluster)
    cluster.submit()
    all_of_it.wait(1)
    wait_for(lambda: len(w.events) == 2, "a second SYNC", 45)
    assert w.events[1].kind == Event.SYNC
    later = Watcher(cluster, cursor=w.events[1].cursor)
    cluster.submit(name="later")
    assert later.wait(1)[0].task.spec.name == "later"
    for each in (w, all_of_it, later):
        each.close()


class Load:
    """Submits tasks, some of which are cancelled, from a thread, each surely."""

    def __init__(self, clusters, n):
        self.clusters, self.n, self.ids, self.done = clusters, n, [], threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _surely(self, call):
        deadline = time.monotonic() + PATIENCE
        while True:
            cluster = random.choice(self.clusters)
            try:
                with grpc.insecure_channel(cluster.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                    return call(stubs.tasks_grpc.TaskServiceStub(channel))
            except grpc.RpcError as e:
                if e.code() == CODE.FAILED_PRECONDITION:
                    return None
                assert e.code() in (CODE.UNAVAILABLE, CODE.CANCELLED) and time.monotonic() < deadline, e
                time.sleep(0.02)

    def _run(self):
        for i in range(0, self.n, 10):
            requests = [T.SubmitTaskRequest(spec=make_spec(name=f"t{k}"), idempotency_key=f"k{k}") for k in range(i, i + 10)]
            reply = self._surely(lambda stub: stub.SubmitTasks(T.SubmitTasksRequest(requests=requests), timeout=PATIENCE))
            self.ids += [t.task_id for t in reply.tasks]
            if i % 3 == 0:
                self._surely(lambda stub: stub.CancelTask(T.CancelTaskRequest(task_id=self.ids[-1]), timeout=PATIENCE))
        self.done.set()


def check_all(cluster, watcher, load):
    assert load.done.wait(2 * PATIENCE)
    watcher.wait_ended(load.ids)
    cluster.connect_anew()
    tasks = [t for t in cluster.list_all() if t.id in set(load.ids)]
    assert len(tasks) == load.n
    check_chains(watcher.seen(), tasks)


def test_killed_under_load(start, make_worker):
    """The master dies again and again; who watches goes on from the last cursor, and has missed nothing."""
    cluster = start()
    make_worker(cluster, policy=success, slots=8).keep_connected()
    early = Watcher(cluster)
    first = early.events[0].cursor
    early.close()
    watcher = Watcher(cluster, again=True, kinds=())
    load = Load([cluster], 300)
    for kill in range(3):
        n = len(watcher.seen()) + random.randrange(20, 150)
        wait_for(lambda: len(watcher.seen()) >= n or load.done.is_set(), "some work")
        cluster.restart()
    check_all(cluster, watcher, load)
    # And once more, from before all of it, in one piece.
    late = Watcher(cluster, cursor=first, kinds=())
    late.wait(len(watcher.seen()))
    check_all(cluster, late, load)
    order = lambda w: [(e.task.id, *states([e])) for e in w.seen()]  # noqa: E731
    assert sorted(order(late)) == sorted(order(watcher))
    for each in (watcher, late):
        each.close()


def test_joining_under_load(start, make_worker):
    """Those who come one after the other while much happens, and go on from before it, all see all of it, once."""
    cluster = start()
    make_worker(cluster, policy=success, slots=8)
    head = Watcher(cluster)
    load = Load([cluster], 200)
    watchers = []
    while not load.done.is_set() and len(watchers) < 8:
        watchers.append(Watcher(cluster, cursor=head.events[0].cursor))
    check_all(cluster, head, load)
    n = len(head.seen())
    for w in watchers:
        w.wait(n)
        check_all(cluster, w, load)
        assert len(w.seen()) == n
        w.close()
    head.close()


def test_two_masters(cluster, make_worker):
    """Each watcher sees what both do, and what was done by one that dies."""
    other = cluster.another("m2")
    try:
        other.start()
        make_worker(cluster, "w1", policy=success, slots=8).keep_connected()
        make_worker(other, "w2", policy=success, slots=8).keep_connected()
        here, there = Watcher(cluster, again=True), Watcher(other, again=True)
        load = Load([cluster, other], 300)
        for master in (other, cluster):
            n = len(here.seen()) + random.randrange(20, 150)
            wait_for(lambda: len(here.seen()) >= n or load.done.is_set(), "some work")
            master.restart()
        check_all(cluster, here, load)
        check_all(cluster, there, load)
        for each in (here, there):
            each.close()
    finally:
        other.close()


def first_of(stub):
    """A stream that has begun, or None."""
    call = stub.WatchTasks(T.WatchTasksRequest())
    try:
        next(call)
        return call
    except grpc.RpcError:
        return None


def memory(cluster):
    with open(f"/proc/{cluster.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def test_s51_watchers_that_never_read(start, make_worker):
    """50 of them while 10,000 events happen: memory stays flat, tasks run on, each is cut off and can go on from its cursor."""
    cluster = start(watch_patience="1s", max_watchers=51)
    channels = [cluster.channel(("grpc.http2.bdp_probe", 0)) for _ in range(10)]
    calls = [stubs.tasks_grpc.TaskServiceStub(channels[i % 10]).WatchTasks(T.WatchTasksRequest()) for i in range(50)]
    firsts = [next(call) for call in calls]
    assert all(e.kind == Event.SYNC for e in firsts)
    reader = Watcher(cluster)
    before = memory(cluster)
    ids = []
    for _ in range(10):
        requests = [T.SubmitTaskRequest(spec=make_spec(queue="later", labels={"l": "x" * 100})) for _ in range(1000)]
        ids += [t.task_id for t in cluster.tasks.SubmitTasks(T.SubmitTasksRequest(requests=requests), timeout=PATIENCE).tasks]
    make_worker(cluster, policy=success, slots=2, queues=["default"])
    began = time.monotonic()
    assert cluster.finished(cluster.submit().id).state == State.COMPLETED
    assert time.monotonic() - began < PATIENCE / 3
    reader.wait(10000, Event.CREATED)
    # 256 KiB are queued for each at most.
    if b'__asan_init' not in REINSD.read_bytes():  # which keeps what was freed for a while
        assert memory(cluster) - before < 50 * 384 * 1024 + 30 * 1024 * 1024
    # All have been cut off: there is room for as many.
    stub = stubs.tasks_grpc.TaskServiceStub(channels[0])
    more = [wait_for(lambda: first_of(stub), "room") for _ in range(50)]
    for call in more:
        call.cancel()
    # The end comes behind what was on its way; who reads nothing hears of it when it reads again.
    for n in (0, 20, 49):
        got = [firsts[n]]
        with pytest.raises(grpc.RpcError) as e:
            for event in calls[n]:
                got.append(event)
        assert e.value.code() == CODE.RESOURCE_EXHAUSTED and "cursor" in e.value.details(), (n, len(got), e.value)
        assert len(got) < 5000
    rest = Watcher(cluster, cursor=got[-1].cursor, queue="later")
    rest.wait(10000 - len(got) + 1)
    assert sorted([x.task.id for x in got if x.kind == Event.CREATED] + [x.task.id for x in rest.seen()]) == sorted(ids)
    rest.close()
    reader.close()


def reins(cluster, *words, **kwargs):
    return subprocess.Popen([*dying_with_us(), str(BUILD / "client" / "reins"), *words, "--server", cluster.url], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def test_the_command(cluster, make_worker):
    """reins watch goes on over a restart of the master, and with ids ends with the tasks."""
    worker = make_worker(cluster, policy=hold, slots=2)
    worker.keep_connected()
    first, second = cluster.submit(name="one").id, cluster.submit(name="two").id
    worker.wait_dispatch(second)
    wait_for(lambda: cluster.get(first).HasField("started_at") and cluster.get(second).HasField("started_at"), "both to have begun")
    of_two = reins(cluster, "watch", first, second)
    whole = reins(cluster, "watch", "-o", "json", "--queue", "default")
    # It watches now: what comes next is seen.
    lines, marks = [], iter(range(1000))

    def see_a_mark():
        cluster.submit(name=f"mark{next(marks)}")
        ready, _, _ = select.select([whole.stdout], [], [], 0.2)
        return ready
    wait_for(see_a_mark, "the stream's begin")
    worker.outcome((first, 1))
    assert f"{first}  COMPLETED  attempt 1  one" in of_two.stdout.readline()
    cluster.restart()
    worker.wait(lambda: worker.stream.welcome, "the worker's return")
    worker.outcome((second, 1), kind=stubs.worker.Outcome.FAILED, exit_code=7)
    out, err = of_two.communicate(timeout=PATIENCE)
    assert of_two.returncode == 0 and f"{second}  FAILED     attempt 1  two  exit code 7" in out and "trying again" in err, (out, err)
    while not any(line["task"]["id"] == second and line["state"] == "FAILED" for line in lines):
        lines.append(json.loads(whole.stdout.readline()))
    assert [line["state"] for line in lines if line["task"]["id"] == first] == ["COMPLETED"]
    whole.send_signal(signal.SIGINT)
    whole.communicate(timeout=PATIENCE)
    assert whole.returncode == 130
    # What has ended is not waited for; from a cursor on the rest.
    assert reins(cluster, "watch", first, second).wait(PATIENCE) == 0
    again = reins(cluster, "watch", "-o", "json", "--cursor", lines[0]["cursor"])
    assert json.loads(again.stdout.readline())["task"]["id"] == lines[1]["task"]["id"]
    again.kill()
    for words, text in ((["--state", "x"], "--state"), (["--since", "x"], "--since"), (["x"], "task id"), ([first, "--queue", "q"], "task ids go with none")):
        done = reins(cluster, "watch", *words)
        assert text in done.communicate(timeout=PATIENCE)[1] and done.returncode == 64, words


def test_the_command_filters(cluster):
    """The flags that list has mean the same here."""
    ids = [cluster.submit(name=f"n{i}", labels={"l": str(i)}).id for i in range(3)]
    full = Watcher(cluster)
    cursor = full.events[0].cursor
    for i, t in enumerate(ids):
        cluster.cancel(t)
    full.wait(3)
    for words, found in ((["--name-prefix", "n1"], {1}), (["-l", "l in (0,2)"], {0, 2}), (["--label-selector=l!=1", "--name", "n2"], {2}),
                         (["--since", "1h", "--state", "cancelled"], {0, 1, 2})):
        watching = reins(cluster, "watch", "-o", "json", "--cursor", cursor, *words)
        assert {json.loads(watching.stdout.readline())["task"]["id"] for _ in found} == {ids[i] for i in found}, words
        watching.kill()
    refused = reins(cluster, "watch", "-l", "a b")
    assert "filter.label_selector" in refused.communicate(timeout=PATIENCE)[1] and refused.returncode == 64
    full.close()
