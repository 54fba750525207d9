"""Heartbeats of a large fleet, and sessions that go on while Postgres is away."""

import threading
import time

import grpc
import pytest
import stubs
from aftermath import check, processes_of
from cluster import QUICK, wait_for
from fake_worker import Kind, Verdict, W, hold
from programs import output, runs, sh
from proxy import Proxy

State, End = stubs.State, stubs.End
LEASE = 1.5  # of QUICK
COUNT = 'i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo end'


def has_ended(cluster, *ids):
    return all(cluster.get(i).state == State.COMPLETED for i in ids)


@pytest.fixture
def relay():
    """relay(cluster) -> a Proxy before it, closed with the test."""
    made = []

    def make(cluster):
        made.append(Proxy(cluster.address))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


def store_is_down(cluster):
    cluster.postgres.stop()
    wait_for(lambda: cluster.health() == "NOT_SERVING", "the outage is noticed")


# ---- a session goes on ----


def test_a_session_goes_on_while_postgres_is_away(make_cluster, start_worker, relay, tmp_path):
    """Cut again and again for three leases: nobody is stopped for his lease, nothing runs twice, nothing is recorded twice."""
    cluster = make_cluster(QUICK).start()
    proxy = relay(cluster)
    w = start_worker(cluster, server=proxy.address, kill_grace="100ms")
    early, late = tmp_path / "early", tmp_path / "late"
    long = [sh(cluster, COUNT, late, exclusive=exclusive) for exclusive in (True, False)]
    short = [sh(cluster, COUNT + '; echo "{\\"step\\": 1, \\"x\\": 1}" >>"$REINS_METRICS"; echo r >"$REINS_RESULT"', early,
                exclusive=exclusive) for exclusive in (True, False)]
    runs(cluster, *long, *short)
    wait_for(lambda: all(output(cluster, i) for i in long), "some of their logs is stored")
    programs = set(processes_of(long))
    store_is_down(cluster)
    try:
        down = time.monotonic()
        cuts = 0
        while cuts < 3 or time.monotonic() < down + 3 * LEASE:
            proxy.drop()
            cuts += 1
            wait_for(lambda: w.log().count("session: goes on") == cuts, w.log)
            if cuts == 2:
                early.touch()
            seen = time.monotonic()
            wait_for(lambda: time.monotonic() > seen + LEASE / 2, "heartbeats in between")
        wait_for(lambda: not processes_of(short), "the short ones end meanwhile")
        assert programs & set(processes_of(long)) and w.log().count("session: open") == 1
        said = w.log()
    finally:
        cluster.postgres.start()
    wait_for(lambda: cluster.health() == "SERVING", "SERVING")
    wait_for(lambda: has_ended(cluster, *short), "the short ones are recorded")
    assert w.log().count("session: ") == said.count("session: "), "without a new Hello"
    late.touch()
    for i in long + short:
        done = cluster.finished(i)
        assert (done.state, [a.end for a in done.attempts]) == (State.COMPLETED, [End.SUCCEEDED])
        assert done.attempts[0].log_dropped_bytes == 0 and done.attempts[0].log_bytes == len(output(cluster, i))
        lines = output(cluster, i).split()
        assert [int(n) for n in lines[:-1]] == list(range(1, len(lines))), "each line once, in order"
        assert i in long or (done.result == b"r\n" and done.metrics.values["x"] == 1)
    check(cluster, long + short)


def test_a_dispatch_that_never_arrived(make_cluster, make_worker):
    """It was on the stream that broke; it can't be taken back before Postgres is there again."""
    cluster = make_cluster({**QUICK, "accept-timeout": "30s"}).start()
    w = make_worker(cluster, slots=2, policy=hold, proxy=True)
    first = w.wait_dispatch(cluster.submit().id)
    w.log(first, 0, b"hello")
    w.send(metrics=W.Metrics(task_id=first[0], attempt=1, first_number=1, points=[stubs.task.MetricPoint(step=1, values={"x": 1})]))
    w.wait(lambda: w.log_stored.get(first) == 5, "its log is stored")
    wait_for(lambda: cluster.get(first[0]).metrics.values, "its point is stored")
    w.accept = False  # as if it had not arrived
    lost = cluster.submit().id
    w.wait_dispatch(lost)
    w.beat = False
    store_is_down(cluster)
    try:
        w.proxy.drop()
        w.wait_over()
        w.accept = w.beat = True
        w.connect(resumes=w.session)
        assert w.session == 1 and set(w.stream.adopted) == {first}
        went_on = w.stream.adopted[first]
        assert (went_on.log_stored, went_on.metrics_stored, went_on.HasField("lease_ttl")) == (5, 1, False)
        w.outcome(first, result=b"r", log_end=5)
        w.wait_heartbeat_acked()
        assert not w.verdicts and not w.stops
    finally:
        cluster.postgres.start()
    w.policy = lambda t: W.Outcome(kind=Kind.SUCCEEDED)
    assert cluster.finished(lost).attempt == 2
    assert w.wait_dispatch(lost, attempt=2)
    w.outcome(first, result=b"r", log_end=5)  # as a worker does after a while
    done = cluster.finished(first[0])
    assert done.attempt == 1 and done.result == b"r" and w.stream.session == 1
    assert (done.attempts[0].log_bytes, done.attempts[0].log_dropped_bytes) == (5, 0)
    numbers = [d.number for d in w.dispatches]
    assert numbers == sorted(set(numbers)), "they are numbered within the session"


def test_any_other_hello_waits(make_cluster, make_worker):
    cluster = make_cluster(QUICK).start()
    w = make_worker(cluster, "w1", policy=hold)
    ref = w.wait_dispatch(cluster.submit().id)
    store_is_down(cluster)
    try:
        other = make_worker(cluster, "w2", connect=False)
        for who, what in ((other, {}), (w, {"resumes": 7}), (w, {})):
            began = time.monotonic()
            stream = who.begin(**what)
            assert who.wait_over(stream) == grpc.StatusCode.UNAVAILABLE, stream.details
            assert time.monotonic() > began + 1, "not at once"
            assert not stream.welcome
        back = threading.Timer(0.1, cluster.postgres.start)
        back.start()
        stream = w.begin()
    finally:
        cluster.postgres.start()
    back.join()
    # In time for this one or, if Postgres took long, for the next.
    if w.wait(lambda: stream.status or stream.welcome, "an answer") == grpc.StatusCode.UNAVAILABLE:
        w.reconnect()
    assert w.session == 2 and set(w.stream.adopted) == {ref}
    w.outcome(ref)
    assert w.wait_verdict(ref) == Verdict.RECORDED


# ---- a large fleet ----


def durations(worker):
    w = worker.stream.welcome
    return w.heartbeat_interval.ToMilliseconds(), w.lease_ttl.ToMilliseconds()


def lease_of(cluster, task_id):
    return cluster.sql("SELECT lease_ns / 1000000 FROM running WHERE task_id = %s", task_id)[0][0]


def test_h_and_l_grow_with_the_fleet(make_cluster, make_worker):
    """Of QUICK one session brings 4 heartbeats a second."""
    cluster = make_cluster({**QUICK, "heartbeat-rate": "8"}).start()
    workers = [make_worker(cluster, f"w{i}", policy=hold, proxy=True) for i in range(5)]
    assert [durations(w) for w in workers] == [(250, 1500), (250, 1500), (500, 3000), (500, 3000), (750, 4500)]
    assert 1500 < cluster.keys.pttl("reins:worker:{w4}:hb") <= 4500, "Redis is told the same"
    assert 0 < cluster.keys.pttl("reins:worker:{w0}:hb") <= 1500
    for w in workers[:4]:
        w.draining()
        w.wait_heartbeat_acked()  # and so it is known, before there is a task
    ids = [cluster.submit().id, cluster.submit(lease_ttl={"seconds": 9}).id]
    for i, lease in zip(ids, (4500, 9000)):
        ref = workers[4].wait_dispatch(i)
        assert workers[4].held[ref].lease_ttl.ToMilliseconds() == lease == lease_of(cluster, i)
    # Judged by what it was told: silent for longer than the short lease, it is still there.
    workers[4].beat = False
    workers[4].wait_heartbeat_acked()
    silent = time.monotonic()
    wait_for(lambda: time.monotonic() > silent + 2 * LEASE, "two short leases")
    assert all(cluster.get(i).attempt == 1 for i in ids) and not workers[4].stream.status
    workers[4].beat = True
    # All break at once: the fleet is not small again because of that.
    for w in workers:
        w.proxy.drop()
        w.wait_over()
    workers[0].connect()
    assert durations(workers[0]) == (750, 4500)


def test_what_is_adopted_gets_the_longer_lease(make_cluster, make_worker):
    cluster = make_cluster({**QUICK, "heartbeat-rate": "4"}).start()
    w = make_worker(cluster, "w1", policy=hold, proxy=True, enforces_exclusive_lease=True)
    refs = [w.wait_dispatch(cluster.submit(exclusive=e, lease_ttl={"seconds": s}).id) for e, s in ((True, 0), (False, 0), (True, 60))]
    for i in range(3):
        make_worker(cluster, f"v{i}", policy=hold)
    w.proxy.drop()
    w.wait_over()
    w.connect()
    assert durations(w) == (1000, 6000)
    assert [w.stream.adopted[r].lease_ttl.ToMilliseconds() for r in refs] == [6000, 6000, 60000]
    assert [lease_of(cluster, t) for t, _ in refs] == [6000, 6000, 60000]
    # Never shorter again.
    cluster.restart()
    w.wait_over()
    w.reconnect()
    assert durations(w)[1] < 6000
    assert [w.stream.adopted[r].lease_ttl.ToMilliseconds() for r in refs] == [6000, 6000, 60000]


def test_an_exclusive_task_in_a_session_of_longer_h(make_cluster, make_worker, start_worker, relay, tmp_path):
    """With the lease of its claim it would be stopped between two heartbeats."""
    cluster = make_cluster({**QUICK, "heartbeat-rate": "4"}).start()
    proxy = relay(cluster)
    go = tmp_path / "go"
    w = start_worker(cluster, server=proxy.address, kill_grace="100ms")
    t = sh(cluster, COUNT, go, exclusive=True)
    runs(cluster, t)
    for i in range(7):
        make_worker(cluster, f"v{i}", policy=hold)
    proxy.drop()
    wait_for(lambda: w.log().count("session: open") == 2, w.log)
    assert lease_of(cluster, t) >= 8 * 1500
    cut = time.monotonic()
    wait_for(lambda: time.monotonic() > cut + 4 * LEASE, "four of the old leases, three of the new beats")
    go.touch()
    done = cluster.finished(t)
    assert [(a.end, a.worker_id) for a in done.attempts] == [(End.SUCCEEDED, "w1")]
    check(cluster, [t])
