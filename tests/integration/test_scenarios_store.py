"""Scenarios S33 and S34, and Postgres down, silent, read-only, restarted, with a locked table, without space: the state can be
seen while it lasts, the log has one line each way, what waits is bounded, no call hangs, and nothing is lost or doubled."""
import os
import pathlib
import signal
import threading
import time

import grpc
import pytest
import stubs
from aftermath import check
from cluster import PATIENCE, QUICK, make_spec, wait_for
from fake_worker import Verdict, hold, success
from monitor import brief, handled, lines, metrics, readyz
from refusals import refused, retry_after

State, T, A = stubs.State, stubs.tasks, stubs.admin
Code = grpc.StatusCode
TIMEOUT = 1.0  # --store-timeout of the tests: a connection is given up after 1.5 times, a call ended after 2 times this
FAST = {**QUICK, 'store-timeout': '1s'}
SLACK = 6      # a busy machine


def store_up(cluster, up):
    """The metrics once they say so."""
    return wait_for(lambda: (lambda m: m if m['reins_store_up'] == up else None)(metrics(cluster)),
                    lambda: f'store up {up}: {readyz(cluster)}')


def seen_while_away(cluster):
    """Everything that shows that the store is away shows it."""
    away = store_up(cluster, 0)
    assert away['reins_ready'] == 0
    status, text = readyz(cluster)
    assert status == 503 and text.startswith('not ready: store down since 20'), text
    info = cluster.admin.GetServerInfo(A.GetServerInfoRequest(), timeout=PATIENCE)
    assert info.store == info.DOWN and info.store_error and info.store_error in text, (info, text)
    assert cluster.health() == 'NOT_SERVING' and cluster.health('liveness') == 'SERVING'
    return away


def back(cluster, outages=1):
    """It is back, by itself, and nothing waits any more."""
    wait_for(lambda: cluster.health() == 'SERVING', lambda: f'ready again: {readyz(cluster)}')
    m = wait_for(lambda: (lambda m: m if m['reins_store_queued_operations'] <= 1 else None)(metrics(cluster)),
                 lambda: f'nothing waits: {brief(cluster)}')
    assert m['reins_store_outages_total'] == outages and m['reins_store_down_seconds_total'] > 0
    assert readyz(cluster) == (200, 'ready\n')
    return m


def one_line_each_way(cluster):
    said = lines(cluster, 'store')
    assert len(said) == 3 and said[0].startswith('up') and said[1].startswith('down: ') and said[2].startswith('up after '), said


def processes(postgres):
    """The postmaster, then its children."""
    first = postgres.process.pid
    found = []
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if text.rsplit(')', 1)[1].split()[1] == str(first):
            found.append(int(stat.parent.name))
    return [first, *found]


class Silent:
    """Postgres stands still: connections stay open, nothing is answered."""

    def __init__(self, postgres):
        self.postgres = postgres

    def __enter__(self):
        self.stopped = []
        while new := set(processes(self.postgres)) - set(self.stopped):  # it may have forked meanwhile
            for pid in new:
                self._signal(pid, signal.SIGSTOP)
            self.stopped += new

    def __exit__(self, *_):
        for pid in self.stopped:
            self._signal(pid, signal.SIGCONT)

    @staticmethod
    def _signal(pid, signo):
        try:
            os.kill(pid, signo)
        except ProcessLookupError:
            pass


@pytest.fixture(autouse=True)
def runs_afterwards(servers, make_cluster):
    """Of a test that failed halfway as well: other tests have this Postgres too."""
    yield
    postgres = servers[0]
    if not postgres._answers():
        if postgres.process:
            postgres.stop('immediate')
        postgres.start()


# ---- S33, S34 ----


def test_s33_postgres_is_stopped(make_cluster, start_worker, tmp_path):
    """Four leases long. 20 tasks end meanwhile and all are recorded, clients are told at once, and no lease is lost because of it."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '2s'}).start()
    start_worker(cluster, slots=30)
    gate = tmp_path / 'gate'
    ending = [cluster.submit(command=['sh', '-c', f'until [ -e {gate} ]; do sleep 0.2; done; echo done']).id for _ in range(20)]
    staying = [cluster.submit(command=['sh', '-c', f'until [ -e {gate}2 ]; do sleep 0.2; done']).id for _ in range(3)]
    for i in ending + staying:
        cluster.in_state(i, State.RUNNING)
    cluster.postgres.stop()
    try:
        stopped = time.monotonic()
        seen_while_away(cluster)
        gate.touch()
        refusals = 0
        while time.monotonic() < stopped + 8:
            for deadline in (None, 1.0):
                error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(), idempotency_key='k'), timeout=deadline)
                assert error.code() == Code.UNAVAILABLE and retry_after(error) > 0, error
                refusals += 1
            time.sleep(0.1)
        away = metrics(cluster)
        assert away['reins_store_up'] == 0 and away['reins_worker_sessions'] == 1
        assert handled(cluster, 'UNAVAILABLE') >= refusals
    finally:
        cluster.postgres.start()
    back(cluster)
    after = cluster.submit(key='k').id
    for i in ending:
        t = cluster.finished(i)
        assert t.state == State.COMPLETED and len(t.attempts) == 1, t
        assert cluster.read_logs(i)[0].data == b'done\n'
    for i in staying:
        t = cluster.get(i)
        assert t.state == State.RUNNING and t.attempt == 1, t
    pathlib.Path(f'{gate}2').touch()
    check(cluster, [*ending, *staying, after])
    assert all(len(cluster.get(i).attempts) == 1 for i in staying)
    one_line_each_way(cluster)


def contents(cluster):
    """All rows of all tables that hold tasks, with the transactions that wrote them."""
    return {table: cluster.sql(f'SELECT xmin::text, t::text FROM {table} t ORDER BY 2')
            for table in ('task', 'running', 'ready', 'delayed', 'ended', 'attempt') if cluster.sql(f"SELECT to_regclass('reins.{table}')")[0][0]}


def test_s34_postgres_comes_back_read_only(make_cluster, make_worker):
    """It connects by itself, does nothing while it may not, and all goes on when it may."""
    cluster = make_cluster(QUICK).start()
    worker = make_worker(cluster, slots=10, policy=hold)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(5)]
    admin = lambda statement: cluster.postgres.execute('postgres', statement)  # noqa: E731
    admin(f'ALTER DATABASE {cluster.database} SET default_transaction_read_only = on')
    cluster.postgres.stop('fast')
    cluster.postgres.start()
    try:
        wait_for(lambda: 'read-only' in readyz(cluster)[1], lambda: readyz(cluster))
        before = contents(cluster)
        began = time.monotonic()
        for ref in refs[:3]:
            worker.outcome(ref)
        while time.monotonic() < began + 4:  # more than two leases
            error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(), idempotency_key='k'))
            assert error.code() == Code.UNAVAILABLE and retry_after(error) > 0 and 'read-only' in error.details(), error
            worker.wait_heartbeat_acked()
            time.sleep(0.1)
        seen_while_away(cluster)
        assert contents(cluster) == before and any(before.values())
        assert not worker.verdicts and not worker.stops
    finally:
        admin(f'ALTER DATABASE {cluster.database} SET default_transaction_read_only = off')
    assert all(worker.wait_verdict(ref) == Verdict.RECORDED for ref in refs[:3])
    back(cluster)
    worker.policy = success
    ids = [t for t, _ in refs] + [cluster.submit(key='k').id]
    for ref in refs[3:]:
        worker.outcome(ref)
    check(cluster, ids)
    assert all(len(cluster.get(i).attempts) == 1 for i in ids)
    one_line_each_way(cluster)


# ---- restarts ----


def test_restarted_at_once(make_cluster, make_worker):
    """Down for a moment only: each way is told once, also when connections come back one by one."""
    cluster = make_cluster(QUICK).start()
    worker = make_worker(cluster, slots=10, policy=hold)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(5)]
    cluster.postgres.stop('immediate')
    cluster.postgres.start()
    for ref in refs:
        worker.outcome(ref)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
    back(cluster)
    one_line_each_way(cluster)
    check(cluster, [t for t, _ in refs])


def test_smart_shutdown(make_cluster, make_worker):
    """It waits for its sessions to end: ours go on with it, until it is told not to wait."""
    cluster = make_cluster(QUICK).start()
    make_worker(cluster)
    cluster.postgres._run('pg_ctl', 'stop', '-D', cluster.postgres.data, '-m', 'smart', '-W')
    ids = [cluster.submit().id for _ in range(10)]
    assert all(cluster.finished(i).state == State.COMPLETED for i in ids)
    assert metrics(cluster)['reins_store_up'] == 1
    cluster.postgres.stop('fast')
    try:
        seen_while_away(cluster)
    finally:
        cluster.postgres.start()
    back(cluster)
    one_line_each_way(cluster)
    check(cluster, ids + [cluster.submit().id])


def test_workers_come_while_it_is_away(make_cluster, start_worker):
    """A master that starts without its store: workers try again and again, and neither's log says so again and again."""
    cluster = make_cluster(QUICK)
    cluster.postgres.stop()
    try:
        cluster.start(wait=False)
        wait_for(lambda: cluster.health('liveness') == 'SERVING', 'liveness')
        workers = [start_worker(cluster, name=f'r{i}') for i in range(2)]
        wait_for(lambda: handled(cluster, 'UNAVAILABLE') >= 30, lambda: brief(cluster))
        seen_while_away(cluster)
        loud = [line for line in cluster.log().splitlines() if ' DEBUG ' not in line]
        assert len(loud) <= 5, loud
    finally:
        cluster.postgres.start()
    back(cluster)
    check(cluster, [cluster.submit().id for _ in range(4)])
    said = lines(cluster, 'store')
    assert len(said) == 2 and said[0].startswith('down: ') and said[1].startswith('up after '), said
    for worker in workers:
        assert len(worker.log().splitlines()) < 20, worker.log()


# ---- silence ----


def requests(task_id, other):
    """(method of which stub, request, whether it changes something) of all that ask the store."""
    return [
        ('tasks', 'SubmitTask', T.SubmitTaskRequest(spec=make_spec(), idempotency_key='a'), True),
        ('tasks', 'SubmitTasks', T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(), idempotency_key='b')] * 3), True),
        ('tasks', 'GetTask', T.GetTaskRequest(task_id=task_id), False),
        ('tasks', 'GetTask', T.GetTaskRequest(task_id=task_id, wait={'seconds': 3000}), False),
        ('tasks', 'ListTasks', T.ListTasksRequest(), False),
        ('tasks', 'CancelTask', T.CancelTaskRequest(task_id=task_id), True),
        ('tasks', 'RetryTask', T.RetryTaskRequest(task_id=other, attempt=1), True),
        ('tasks', 'ReadLogs', T.ReadLogsRequest(task_id=task_id), False),
        ('tasks', 'ReadLogs', T.ReadLogsRequest(task_id=task_id, follow=True), False),
        ('tasks', 'ReadMetrics', T.ReadMetricsRequest(task_id=task_id), False),
        ('admin', 'ListWorkers', A.ListWorkersRequest(), False),
        ('admin', 'DrainWorker', A.DrainWorkerRequest(worker_id='w1'), True),
    ]


class Asked:
    """A call on its way: how it ended, and how long it took."""

    def __init__(self, cluster, stub, method, request, changes, timeout):
        self.method, self.changes, self.error = method, changes, None
        call = getattr(getattr(cluster, stub), method)
        self.thread = threading.Thread(target=self._run, args=(call, request, timeout), daemon=True)
        self.began = time.monotonic()
        self.thread.start()

    def _run(self, call, request, timeout):
        try:
            reply = call(request, timeout=timeout)
            if self.method == 'ReadLogs':
                list(reply)
        except grpc.RpcError as e:
            self.error = e
        self.took = time.monotonic() - self.began

    def ended(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), f'{self.method} hangs'
        return self


def test_silent_store(make_cluster, make_worker):
    """SIGSTOP to all of Postgres: no call hangs past its deadline, none without a deadline longer than twice --store-timeout;
    leases don't end because of it; and what was on its way is there once when it is over."""
    cluster = make_cluster(FAST).start()
    worker = make_worker(cluster, slots=10, policy=hold)
    ref, other = [worker.wait_dispatch(cluster.submit().id) for _ in range(2)]
    worker.outcome(other, kind=2)
    worker.wait_verdict(other)
    cluster.admin.ListWorkers(A.ListWorkersRequest(), timeout=PATIENCE)  # both channels are connected
    with Silent(cluster.postgres):
        calls = [Asked(cluster, *r, timeout) for r in requests(ref[0], other[0]) for timeout in (0.5, None)]
        assert cluster.admin.GetServerInfo(A.GetServerInfoRequest(), timeout=5).version
        assert readyz(cluster)[0] in (200, 503)
        for one in calls:
            one.ended()
        for quick, patient in zip(calls[::2], calls[1::2]):
            assert quick.error.code() == Code.DEADLINE_EXCEEDED, (quick.method, quick.error)
            assert quick.took < 0.5 + SLACK
            assert patient.error.code() == Code.UNAVAILABLE and retry_after(patient.error) > 0, (patient.method, patient.error)
            assert patient.took < 2 * TIMEOUT + SLACK, (patient.method, patient.took)
        # Of what was on its way nobody knows; what was still to be sent was not done.
        changes = {one.error.details() for one in calls[1::2] if one.changes}
        assert any('with the same idempotency key' in text for text in changes), changes
        # Once it is known to be away all are refused at once.
        seen_while_away(cluster)
        for r in requests(ref[0], other[0]):
            one = Asked(cluster, *r, None).ended()
            assert one.error.code() == Code.UNAVAILABLE and one.took < SLACK, (one.method, one.error)
        worker.wait_heartbeat_acked()
        assert not worker.stops
    m = back(cluster)
    assert m['reins_store_queued_bytes'] < 100000
    one_line_each_way(cluster)
    # Both calls under a key made the same tasks.
    made = [cluster.submit(key=k).id for k in ('a', 'b')]
    assert sorted(t.id for t in cluster.list_all()) == sorted([*made, ref[0], other[0]])
    # The cancel and the retry were answered by nobody; what they wanted may be done, and once at the most.
    cluster.cancel(ref[0])
    worker.wait_stop(ref)
    worker.outcome(ref, kind=4)
    assert cluster.finished(ref[0]).state == State.CANCELLED
    assert cluster.get(other[0]).attempt <= 2


def test_what_waits_is_bounded(make_cluster):
    """A store that is silent and a flood of submits: at the limit they are refused, with the limit; each key is one task afterwards."""
    cluster = make_cluster({**FAST, 'store-queue': '100'}).start()
    cluster.submit()
    with Silent(cluster.postgres):
        calls = {f'k{i}': cluster.tasks.SubmitTask.future(T.SubmitTaskRequest(spec=make_spec(), idempotency_key=f'k{i}'))
                 for i in range(400)}
        errors = [c.exception(PATIENCE) for c in calls.values()]
        assert {e.code() for e in errors} == {Code.UNAVAILABLE} and all(retry_after(e) > 0 for e in errors)
        full = [e for e in errors if 'too much waits for the store' in e.details()]
        assert len(full) >= 300 and all('at most 100' in e.details() for e in full), full[:1]
        m = metrics(cluster)
        assert m['reins_store_queued_operations'] <= 100 == m['reins_store_queued_operations_limit']
        assert m['reins_store_queue_full_total'] >= 300
        seen_while_away(cluster)
    back(cluster)
    ids = {cluster.submit(key=k).id for k in calls}
    assert len(ids) == 400 and len(cluster.list_all(page_size=1000)) == 401


# ---- it answers, but does not do it ----


def test_locked_table(make_cluster, make_worker):
    """Somebody holds a lock: statements run into their limit, the store counts as there, and no call waits for longer than it may."""
    cluster = make_cluster(FAST).start()
    worker = make_worker(cluster, slots=10, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    locked = cluster.postgres.connect(cluster.database)
    locked.autocommit = False
    with locked.cursor() as cursor:
        cursor.execute('LOCK TABLE reins.task IN ACCESS EXCLUSIVE MODE')
        calls = [Asked(cluster, 'tasks', 'SubmitTask', T.SubmitTaskRequest(spec=make_spec(), idempotency_key='k'), True, None),
                 Asked(cluster, 'tasks', 'GetTask', T.GetTaskRequest(task_id=ref[0]), False, None)]
        worker.outcome(ref)
        for one in calls:
            one.ended()
            assert one.error.code() == Code.UNAVAILABLE and one.took < 2 * TIMEOUT + SLACK, (one.method, one.took, one.error)
        assert 'did not answer within 2000 ms' in calls[0].error.details()
        assert 'timeout' in calls[1].error.details()
        assert not worker.verdicts
        worker.wait_heartbeat_acked()
        m = metrics(cluster)
        assert m['reins_store_up'] == 1
        assert m['reins_store_operations_total{kind="get",result="unavailable"}'] >= 1
        locked.rollback()
    locked.close()
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    made = cluster.submit(key='k').id
    assert sorted(t.id for t in cluster.list_all()) == sorted([ref[0], made])


def test_no_space(make_cluster):
    """Each insert fails as on a full disk, and connections are made anew all the time: no flood of lines, and the return."""
    cluster = make_cluster(FAST).start()
    cluster.sql("CREATE FUNCTION reins.no_space() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$")
    cluster.sql('CREATE TRIGGER no_space BEFORE INSERT ON reins.task EXECUTE FUNCTION reins.no_space()')
    ended = time.monotonic() + 4
    while time.monotonic() < ended:
        error = refused(cluster.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec()))
        assert error.code() == Code.UNAVAILABLE and retry_after(error) > 0, error
    m = metrics(cluster)
    said = lines(cluster, 'store')
    assert len(said) <= 12, said
    assert len([line for line in cluster.log().splitlines() if ' DEBUG ' not in line]) < 200
    cluster.sql('DROP TRIGGER no_space ON reins.task')

    def submitted():
        try:
            return cluster.submit()
        except grpc.RpcError as e:
            assert e.code() == Code.UNAVAILABLE, e
            return None
    wait_for(submitted, 'a submit')
    assert metrics(cluster)['reins_store_outages_total'] >= m['reins_store_outages_total']
    wait_for(lambda: readyz(cluster)[0] == 200, lambda: readyz(cluster))
    assert len(cluster.list_all()) == 1
