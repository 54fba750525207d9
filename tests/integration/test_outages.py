"""Redis and Postgres go away, lose what they had, and come back."""

import socket
import threading
import time

import grpc
import pytest
import stubs
from cluster import CALM, PATIENCE, QUICK, make_spec, owner_key, wait_for
from fake_worker import Kind, Verdict, W, hold
from refusals import refused, retry_after

State, End, T = stubs.State, stubs.End, stubs.tasks


def keys_of(worker):
    return "reins:worker:{%s}:hb" % worker.worker_id, "reins:worker:{%s}:task" % worker.worker_id


def keys_are_right(cluster, worker):
    """All three kinds of key say what the worker holds."""
    hb, hash_key = keys_of(worker)
    with worker.changed:
        held = dict(worker.held)
    return (
        cluster.keys.get(hb) == f"m1 {worker.session}"
        and cluster.keys.hgetall(hash_key) == {t: str(a) for t, a in held}
        and all(cluster.keys.get(owner_key(t)) == f"{worker.worker_id} {worker.session} {a}" for t, a in held)
    )


def test_the_servers_come_back_while_peers_take_all_connections(make_cluster):
    """Connections leave file descriptors to the store and to Redis."""
    c = make_cluster()
    c.prefix = ["prlimit", "--nofile=120:120", "--"]
    c.start()
    c.submit()
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and then nothing: they have half a minute
    peers = []
    try:
        for _ in range(150):
            peers.append(socket.create_connection(("127.0.0.1", c.port)))
            peers[-1].sendall(hello)
        c.postgres.stop()
        c.redis_server.stop()
        wait_for(lambda: "store: down" in c.log() and "lease: down" in c.log(), c.log)
        c.redis_server.start()
        c.postgres.start()
        wait_for(lambda: "store: up after" in c.log() and "lease: up after" in c.log(), c.log, 20)
        c.submit()
        assert "max-connections: 50 instead of 10200, since this process may have 120 file descriptors only" in c.log()
    finally:
        for peer in peers:
            peer.close()


# ---- Redis ----


def test_flush_with_50_running(cluster, make_worker):
    workers = [make_worker(cluster, f"w{i}", slots=25, policy=hold) for i in range(2)]
    ids = [cluster.submit().id for _ in range(50)]
    wait_for(lambda: sum(len(w.held) for w in workers) == 50, "50 held")
    cluster.keys.flushall()
    wait_for(lambda: all(keys_are_right(cluster, w) for w in workers), "all keys back")
    for w in workers:
        for ref in list(w.held):
            w.outcome(ref)
    for i in ids:
        done = cluster.finished(i)
        assert done.state == State.COMPLETED and len(done.attempts) == 1
    wait_for(lambda: not cluster.keys.keys("reins:task:*"), "no owner keys")


def test_one_key_deleted_by_hand(cluster, make_worker):
    worker = make_worker(cluster, slots=2, policy=hold)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(2)]
    hb, hash_key = keys_of(worker)
    wait_for(lambda: keys_are_right(cluster, worker), "keys")
    for delete in (
        lambda: cluster.keys.delete(hb), lambda: cluster.keys.delete(hash_key),
        lambda: cluster.keys.hdel(hash_key, refs[0][0]), lambda: cluster.keys.delete(owner_key(refs[1][0])),
        lambda: cluster.keys.set(owner_key(refs[1][0]), "somebody 7 7"),
        lambda: cluster.keys.hset(hash_key, "01890a5d-ac96-774b-bcce-b302099a8057", "1"),
    ):
        delete()
        wait_for(lambda: keys_are_right(cluster, worker), "keys are right again")
    # A slot is not counted twice: with both taken a third task waits, whatever the keys say.
    third = cluster.submit()
    cluster.keys.delete(hash_key)
    worker.wait_heartbeat_acked()
    assert cluster.get(third.id).state == State.PENDING
    worker.outcome(refs[0])
    worker.outcome(worker.wait_dispatch(third.id))
    worker.outcome(refs[1])
    for i in (refs[0][0], refs[1][0], third.id):
        assert len(cluster.finished(i).attempts) == 1


def test_flush_under_load(cluster, make_worker):
    worker = make_worker(cluster, slots=20)
    stop = threading.Event()

    def flush():
        while not stop.is_set():
            cluster.keys.flushall()
            time.sleep(0.005)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        calls = [cluster.tasks.SubmitTask.future(T.SubmitTaskRequest(spec=make_spec()), timeout=PATIENCE) for _ in range(500)]
        ids = [c.result().task.id for c in calls]
        worker.wait(lambda: len(worker.verdicts) >= 500, "500 verdicts")
    finally:
        stop.set()
        thread.join()
    assert {v.verdict for v in worker.verdicts} == {Verdict.RECORDED}
    for i in ids:
        done = cluster.get(i)
        assert done.state == State.COMPLETED and len(done.attempts) == 1


def test_redis_stopped_and_back(cluster, make_worker):
    worker = make_worker(cluster, slots=8, policy=hold)
    before = [worker.wait_dispatch(cluster.submit().id) for _ in range(3)]
    cluster.redis_server.stop()
    try:
        # Work goes on: ends are recorded, submits accepted, tasks given out; eagerly and from the backlog.
        worker.outcome(before[0])
        assert worker.wait_verdict(before[0]) == Verdict.RECORDED
        during = [worker.wait_dispatch(cluster.submit().id) for _ in range(3)]
        made = cluster.tasks.SubmitTasks(
            T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec())] * 5), timeout=PATIENCE
        ).tasks
        wait_for(lambda: len(worker.held) == 8, "all slots taken")
        worker.outcome(during[0])
        info = wait_for(
            lambda: (lambda i: i if i.lease == i.DOWN else None)(
                cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30)),
            "GetServerInfo says that Redis is down",
        )
        assert info.store == info.UP
        assert cluster.health() == "SERVING"
        worker.wait_heartbeat_acked()
    finally:
        cluster.redis_server.start()
    wait_for(lambda: keys_are_right(cluster, worker), "keys are right after the outage")
    ids = [r[0] for r in before + during] + [m.task_id for m in made]

    def all_ended():
        for ref in list(worker.held):
            worker.outcome(ref)
        return all(cluster.get(i).state == State.COMPLETED for i in ids)

    wait_for(all_ended, "all tasks, those that waited for a slot too")
    assert all(len(cluster.get(i).attempts) == 1 for i in ids)
    wait_for(lambda: not cluster.keys.keys("reins:task:*") and not cluster.keys.exists(keys_of(worker)[1]), "no keys left")


def test_start_without_redis(make_cluster, make_worker):
    cluster = make_cluster()
    cluster.redis_server.stop()
    try:
        cluster.start()
        worker = make_worker(cluster, policy=hold)
        ref = worker.wait_dispatch(cluster.submit().id)
    finally:
        cluster.redis_server.start()
    wait_for(lambda: keys_are_right(cluster, worker), "keys")
    worker.outcome(ref)
    assert cluster.finished(ref[0]).state == State.COMPLETED


def test_redis_full(cluster, make_worker):
    """-OOM counts as down."""
    worker = make_worker(cluster, slots=4)
    cluster.keys.config_set("maxmemory", "1")
    try:
        ids = [cluster.submit().id for _ in range(20)]
        assert all(cluster.finished(i).state == State.COMPLETED for i in ids)
    finally:
        cluster.keys.config_set("maxmemory", "0")
    worker.policy = hold
    worker.wait_dispatch(cluster.submit().id)
    wait_for(lambda: keys_are_right(cluster, worker), "keys")


def test_redis_hangs(cluster, make_worker):
    """It takes connections and answers nothing: --redis-timeout, then without it."""
    worker = make_worker(cluster, slots=4)
    cluster.keys.execute_command("CLIENT", "PAUSE", "3000", "ALL")
    ids = [cluster.submit().id for _ in range(20)]
    assert all(cluster.finished(i).state == State.COMPLETED for i in ids)
    worker.policy = hold
    worker.wait_dispatch(cluster.submit().id)
    wait_for(lambda: keys_are_right(cluster, worker), "keys")


def test_no_key_outlives_its_row(quick, make_worker):
    """What ended while Redis did not answer leaves no key behind, one lease and one recovery interval later."""
    worker = make_worker(quick, slots=4, policy=hold)
    refs = [worker.wait_dispatch(quick.submit().id) for _ in range(4)]
    wait_for(lambda: keys_are_right(quick, worker), "keys")
    quick.keys.execute_command("CLIENT", "PAUSE", "1500", "ALL")
    for ref in refs:
        worker.outcome(ref)
        worker.wait_verdict(ref)
    wait_for(lambda: keys_are_right(quick, worker) and not quick.keys.keys("reins:task:*"), lambda: quick.keys.keys("*"))


# ---- Postgres ----


def test_postgres_stopped_and_back(make_cluster, make_worker):
    """Longer than the lease: nobody is declared dead because of it, and sessions survive."""
    cluster = make_cluster(QUICK).start()
    worker = make_worker(cluster, slots=40, policy=hold)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(30)]
    stream = worker.stream
    cluster.postgres.stop()
    try:
        stopped = time.monotonic()
        error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(), idempotency_key="k"))
        assert error.code() == grpc.StatusCode.UNAVAILABLE and retry_after(error) > 0
        # What a worker says meanwhile it does not say again: its stream goes on.
        worker.started(refs[25], refs[26], devices=["0"])
        for n, ref in ((1, refs[25]), (2, refs[25]), (1, refs[0])):
            m = W.Metrics(task_id=ref[0], attempt=ref[1], first_number=n)
            m.points.add(step=n).values.update({"x": n})
            worker.stream.send(W.WorkerMessage(metrics=m))
        for ref in refs[:20]:
            worker.outcome(ref, result=b"r")
        for call, request in (
            (cluster.tasks.GetTask, T.GetTaskRequest(task_id=refs[0][0])),
            (cluster.tasks.CancelTask, T.CancelTaskRequest(task_id=refs[29][0])),
            (cluster.tasks.ListTasks, T.ListTasksRequest()),
            (cluster.tasks.SubmitTasks, T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec())])),
        ):
            error = refused(call, request)
            assert error.code() == grpc.StatusCode.UNAVAILABLE and retry_after(error) > 0
        wait_for(lambda: cluster.health() == "NOT_SERVING", "NOT_SERVING")
        assert cluster.health("liveness") == "SERVING"
        info = cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30)
        assert info.store == info.DOWN and info.store_error and info.store_id
        wait_for(lambda: time.monotonic() > stopped + 2.5, "an outage longer than the lease")
        worker.wait_heartbeat_acked()
        assert not worker.stops and not [v for v in worker.verdicts]
    finally:
        cluster.postgres.start()
    for ref in refs[:20]:
        assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert worker.stream is stream and not stream.status
    wait_for(lambda: all(cluster.get(refs[n][0]).HasField("started_at") for n in (25, 26)), "when they began, stored")

    def points(ref):
        return [p.step for p in cluster.tasks.ReadMetrics(T.ReadMetricsRequest(task_id=ref[0]), timeout=30).points]
    assert points(refs[0]) == [1], "the outcome waited for them"
    wait_for(lambda: points(refs[25]) == [1, 2], "points of a running task, stored")
    for ref in refs[20:]:
        worker.outcome(ref)
    for task_id, _ in refs:
        done = cluster.finished(task_id)
        assert done.state == State.COMPLETED and len(done.attempts) == 1
    worker.policy = lambda t: W.Outcome(kind=Kind.SUCCEEDED)
    again = cluster.submit(key="k")
    assert cluster.finished(again.id).state == State.COMPLETED
    assert len(cluster.list_all()) == 31


def test_postgres_restarts_under_load(cluster, make_worker):
    """Connections break with statements on their way: what became of them is found out, nothing is doubled."""
    worker = make_worker(cluster, slots=20)
    ids, stop = {}, threading.Event()

    def submit(lane):
        i = 0
        while not stop.is_set():
            key = f"{lane}-{i}"
            request = T.SubmitTaskRequest(spec=make_spec(name=f"n{key}"), idempotency_key=key)
            try:
                ids[key] = cluster.tasks.SubmitTask(request, timeout=PATIENCE).task.id
                i += 1
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE, e
                time.sleep(0.02)

    lanes = [threading.Thread(target=submit, args=(i,)) for i in range(8)]
    for lane in lanes:
        lane.start()
    try:
        for how in ("immediate", "fast", "immediate"):
            n = len(ids)
            wait_for(lambda: len(ids) >= n + 50, "50 more submits")
            cluster.postgres.stop(how)
            cluster.postgres.start()
        n = len(ids)
        wait_for(lambda: len(ids) >= n + 50, "50 more submits")
    finally:
        stop.set()
        for lane in lanes:
            lane.join(PATIENCE)
    for task_id in ids.values():
        done = cluster.finished(task_id)
        assert done.state == State.COMPLETED
        assert [a.end for a in done.attempts].count(End.SUCCEEDED) == 1
    # A submit that was cut off may have been kept; under its key, so none is there twice.
    listed = cluster.list_all(page_size=1000)
    names = [t.spec.name for t in listed]
    assert len(names) == len(set(names)) and {t.id for t in listed} >= set(ids.values())
    given = [(t.task_id, t.attempt) for t in worker.dispatched]
    assert len(given) == len(set(given))


def test_start_without_postgres(make_cluster, make_worker):
    cluster = make_cluster()
    cluster.postgres.stop()
    try:
        cluster.start(wait=False)
        wait_for(lambda: cluster.health("liveness") == "SERVING", "liveness")
        assert cluster.health() == "NOT_SERVING"
        error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec()))
        assert error.code() == grpc.StatusCode.UNAVAILABLE and retry_after(error) > 0
        worker = make_worker(cluster, connect=False)
        stream = worker.begin()
        assert worker.wait_over(stream) == grpc.StatusCode.UNAVAILABLE
    finally:
        cluster.postgres.start()
    wait_for(lambda: cluster.health() == "SERVING", "SERVING")
    worker.reconnect()
    assert cluster.finished(cluster.submit().id).state == State.COMPLETED


def test_postgres_comes_back_read_only(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    admin = lambda statement: cluster.postgres.execute("postgres", statement)  # noqa: E731
    admin(f"ALTER DATABASE {cluster.database} SET default_transaction_read_only = on")
    cluster.postgres.stop("fast")
    cluster.postgres.start()
    try:
        for _ in range(3):
            error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(), idempotency_key="k"))
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error.details()
        worker.outcome(ref)
        worker.wait_heartbeat_acked()
        assert not worker.verdicts
    finally:
        admin(f"ALTER DATABASE {cluster.database} SET default_transaction_read_only = off")
    # It finds out by itself.
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    worker.policy = lambda t: W.Outcome(kind=Kind.SUCCEEDED)

    def submitted():
        try:
            return cluster.submit(key="k").id
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAVAILABLE
            return None

    assert cluster.finished(wait_for(submitted, "a submit")).state == State.COMPLETED
    assert len(cluster.list_all()) == 2


def test_schema_is_made_once(make_cluster):
    """Two masters that start at the same moment on an empty database."""
    first, second = make_cluster({**CALM, "master-id": "m1"}), make_cluster({**CALM, "master-id": "m2"})
    second.flags["store"], second.flags["lease"] = first.flags["store"], first.flags["lease"]
    first.start(wait=False)
    second.start()
    wait_for(lambda: first.health() == "SERVING", "the first serves")
    ids = {
        c.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30).store_id for c in (first, second)
    }
    assert len(ids) == 1
    for c in (first, second):
        assert "store: down" not in c.log(), c.log()
