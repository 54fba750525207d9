"""Scenarios S20–S23 and S54 of docs/scenarios.md with the real programs: masters die. What a worker of the tests shows of the same, and
at more moments: test_master_dies.py."""
import fcntl
import signal
import time

import pytest
import stubs
from aftermath import check, processes_of
from cluster import LONG, QUICK, free_port, make_spec, needs_crash_points, submit_surely, wait_for
from fake_worker import Kind, Verdict, W
from google.protobuf.timestamp_pb2 import Timestamp
from programs import connected, ends_of, heartbeats_go_on, info, output, runs, seconds, sh

State, End, T = stubs.State, stubs.End, stubs.tasks
Info = stubs.admin.WorkerInfo
# Longer than the tests' patience, and short enough that a worker asks for its master every few seconds (L/10).
PATIENT = {**LONG, 'lease-ttl': '60s'}
# What each point leaves behind: the table of the task's row, the keys that are there for certain (a heartbeat at that moment
# may have written the others); and how its attempts end.
POINTS = {
    'after-preempt': ('ready', {'slot'}, [End.SUCCEEDED]),
    'after-claim': ('running', {'slot'}, [End.RECALLED, End.SUCCEEDED]),
    'after-send': ('running', {'slot', 'owner'}, [End.SUCCEEDED]),
    'after-record': ('ended', set(), [End.SUCCEEDED]),
}


def tables_with(cluster, task_id):
    tables = ('ready', 'delayed', 'running', 'ended')
    return [t for t in tables if cluster.sql(f'SELECT 1 FROM {t} WHERE task_id = %s', task_id)]


def keys_there(cluster):
    found = {'slot': cluster.keys.hkeys('reins:worker:{w1}:task'), 'owner': cluster.keys.keys('reins:task:*')}
    return {name for name, keys in found.items() if keys}


@needs_crash_points
@pytest.mark.parametrize('way', ['eager', 'backlog'])
@pytest.mark.parametrize('point', POINTS)
def test_s20_the_master_dies_in_the_dispatch(make_cluster, start_worker, tmp_path, point, way):
    """Leases and the keys' TTLs are longer than the test's patience: what is put right, is put right without them."""
    table, keys, ends = POINTS[point]
    cluster = make_cluster(PATIENT)
    journal = tmp_path / 'journal'
    request = T.SubmitTaskRequest(idempotency_key='k', spec=make_spec(
        command=['sh', '-c', f'echo $REINS_ATTEMPT >>{journal}; echo all of it; echo real >"$REINS_RESULT"']))
    t = None
    if way == 'backlog':
        t = submit_surely(cluster.start(), request)
        cluster.kill9()
    cluster.start(env={'REINS_CRASH_POINT': point}, wait=way == 'eager')
    start_worker(cluster)
    if way == 'eager':
        connected(cluster, 'w1')
        call = cluster.tasks.SubmitTask.future(request, timeout=30)
    cluster.wait_killed()
    if way == 'eager':
        call.exception()  # answered or not: it is repeated with its key
        found = cluster.sql('SELECT id FROM task')
        assert len(found) == (point != 'after-preempt'), 'a slot is taken before the row is written'
        t = found[0][0] if found else None
    if t:
        assert tables_with(cluster, t) == [table]
    assert keys <= keys_there(cluster)
    cluster.start()
    cluster.connect_anew()
    t = submit_surely(cluster, request)
    done = cluster.finished(t)
    assert (done.state, done.result, ends_of(cluster, t)) == (State.COMPLETED, b'real\n', ends)
    assert journal.read_text() == f'{len(ends)}\n', 'it ran once'
    assert output(cluster, t) == b'all of it\n'
    check(cluster, [t])


def test_s21_the_program_ends_while_the_master_is_down(make_cluster, start_worker, tmp_path):
    """Back on the other address of the worker's list, and later than the program's end."""
    cluster = make_cluster(PATIENT).start()
    other = f'127.0.0.1:{free_port()}'
    go = tmp_path / 'go'
    start_worker(cluster, server=f'{cluster.url},{other}')
    t = sh(cluster, 'echo begins; until [ -e "$GO" ]; do sleep 0.02; done; echo ends; date +%s.%N >"$REINS_RESULT"; exit 3', go)
    well = sh(cluster, 'until [ -e "$GO" ]; do sleep 0.02; done; date +%s.%N >"$REINS_RESULT"', go)
    runs(cluster, t, well)
    cluster.kill9()
    go.touch()
    wait_for(lambda: not processes_of([t, well]), 'they end')
    ended = time.time()
    wait_for(lambda: time.time() > ended + 2, 'the master is away for a while more')
    cluster.address = cluster.flags['listen'] = other
    cluster.connect_anew()
    back = time.time()
    cluster.start()
    for i, state, code in ((t, State.FAILED, 3), (well, State.COMPLETED, 0)):
        done = cluster.finished(i)
        assert (done.state, done.exit_code, len(done.attempts)) == (state, code, 1)
        # The program's own clock, at its end; and not that of the record.
        assert float(done.result) <= seconds(done.attempts[0].finished_at) < ended + 1 < back
        assert seconds(done.finished_at) == seconds(done.attempts[0].finished_at)
    assert output(cluster, t) == b'begins\nends\n'
    check(cluster, [t, well])


def test_s22_a_hundred_run_and_the_master_is_started_again(make_cluster, start_worker, tmp_path):
    """It is away for longer than a lease, and one worker comes back later than the others."""
    lease = 8
    cluster = make_cluster({**QUICK, 'lease-ttl': f'{lease}s'}).start()
    workers = {f'w{i}': start_worker(cluster, f'w{i}', slots=25, log_level='info') for i in range(4)}
    connected(cluster, *workers)
    held = tmp_path / 'held'
    with open(held, 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        spec = make_spec(command=['flock', '--shared', str(held), 'true'])
        ids = [t.task_id for t in cluster.tasks.SubmitTasks(
            T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=spec)] * 100), timeout=30).tasks]

        def running():
            return [t.id for t in cluster.list_all(states=[State.RUNNING], page_size=1000) if t.HasField('started_at')]
        wait_for(lambda: len(running()) == 100, lambda: f'{len(running())} of 100 run')
        cluster.kill9()
        away = time.monotonic()
        late = workers['w3'].process
        late.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: time.monotonic() > away + lease + 0.5, 'longer than a lease')
            cluster.start()
            cluster.connect_anew()
            connected(cluster, 'w0', 'w1', 'w2')
            assert len(running()) == 100, 'nobody is declared dead: its lease is counted from the start'
        finally:
            late.send_signal(signal.SIGCONT)
        connected(cluster, *workers)
        heartbeats_go_on(cluster, workers, 2)
        assert [len(info(cluster, name).attempts) for name in workers] == [25] * 4
        assert len(running()) == 100
    for i in ids:
        assert cluster.finished(i).state == State.COMPLETED and ends_of(cluster, i) == [End.SUCCEEDED]
    check(cluster, ids)


@needs_crash_points
def test_s23_recorded_and_not_acknowledged(make_cluster, make_worker):
    """A failure: said twice, it must count once, or the second attempt that is allowed is taken from the task. With the real
    worker: test_s20_…[after-record]; a success: test_master_dies.py::test_crash_point."""
    cluster = make_cluster(PATIENT)
    worker = make_worker(cluster, connect=False, policy=lambda task: W.Outcome(
        kind=Kind.FAILED if task.attempt == 1 else Kind.SUCCEEDED, exit_code=2 - task.attempt, result=b'%d' % task.attempt))
    cluster.start(env={'REINS_CRASH_POINT': 'after-record'})
    worker.keep_connected()
    worker.wait(lambda: worker.stream and worker.stream.welcome, 'welcome')
    t = cluster.submit(retry=stubs.task.RetryPolicy(max_attempts=2)).id
    cluster.wait_killed()
    assert cluster.sql('SELECT count(*) FROM attempt WHERE task_id = %s AND finished_at IS NOT NULL', t) == [(1,)]
    assert not worker.verdicts
    cluster.start()
    cluster.connect_anew()
    assert worker.wait_verdict((t, 1)) == Verdict.DUPLICATE
    assert worker.wait_verdict((t, 2)) == Verdict.RECORDED
    done = cluster.finished(t)
    assert (done.state, done.result, ends_of(cluster, t)) == (State.COMPLETED, b'2', [End.FAILED, End.SUCCEEDED])
    check(cluster, [t])


def test_s54_a_hundred_are_due_while_the_master_is_away(make_cluster, start_worker):
    """Due in 3 s; the master is killed at 2, and back at 4."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '8s'}).start()
    start_worker(cluster, 'w1', slots=100, log_level='info')
    connected(cluster, 'w1')
    due = time.time() + 3
    at = Timestamp(nanos=int(due % 1 * 1e9), seconds=int(due))
    spec = make_spec(command=['true'], run_at=at)
    ids = [t.task_id for t in cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=spec)] * 100), timeout=30).tasks]
    wait_for(lambda: time.time() > due - 1, 'a second before')
    assert len(cluster.list_all(states=[State.PENDING])) == 100
    cluster.kill9()
    wait_for(lambda: time.time() > due + 1, 'a second after')
    cluster.start()
    cluster.connect_anew()
    connected(cluster, 'w1')
    back = time.time()
    for i in ids:
        done = cluster.finished(i)
        assert done.state == State.COMPLETED and ends_of(cluster, i) == [End.SUCCEEDED]
        assert due <= seconds(done.attempts[0].dispatched_at) < back + 5
    check(cluster, ids)
