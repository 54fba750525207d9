"""Scenarios S30 and S31 of docs/scenarios.md, and keys that nobody is left to delete."""
import signal
import threading
import time

import pytest
import stubs
from aftermath import check, fields, owners, without_key, without_row
from cluster import CALM, PATIENCE, QUICK, make_spec, needs_crash_points, owner_key, wait_for
from fake_worker import Verdict, hold

State, T = stubs.State, stubs.tasks
ONCE = 'echo $REINS_TASK_ID $REINS_ATTEMPT >>"$JOURNAL"; until [ -e "$GO" ]; do sleep 0.3; done'


def right(cluster):
    return not without_row(cluster) and not without_key(cluster)


def wrong(cluster):
    return f'without a row: {without_row(cluster)}; without a key: {without_key(cluster)}'


# ---- S30

DELETE = {
    'hb': lambda keys, ref: keys.delete('reins:worker:{w1}:hb'),
    'hash': lambda keys, ref: keys.delete('reins:worker:{w1}:task'),
    'field': lambda keys, ref: keys.hdel('reins:worker:{w1}:task', ref[0]),
    'owner': lambda keys, ref: keys.delete(owner_key(ref[0])),
    'another owner': lambda keys, ref: keys.set(owner_key(ref[0]), 'somebody 7 7'),
    'all': lambda keys, ref: keys.flushdb(),
}


@pytest.mark.parametrize('key', DELETE)
def test_s30_one_key_deleted_by_hand(make_cluster, make_worker, key):
    """Two heartbeats, and no third, write what is missing. The task is not touched meanwhile."""
    cluster = make_cluster({**CALM, 'lease-ttl': '60s', 'task-key-ttl': '60s'}).start()
    worker = make_worker(cluster, slots=3, policy=hold, beat=False)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(2)]
    worker.wait_heartbeat_acked()
    wait_for(lambda: right(cluster), lambda: wrong(cluster))
    DELETE[key](cluster.keys, refs[0])
    assert without_key(cluster), 'the test deletes something'
    for _ in range(2):
        worker.wait_heartbeat_acked()
    wait_for(lambda: right(cluster), lambda: wrong(cluster))
    assert cluster.get(refs[0][0]).attempt == 1 and not worker.stops
    # No slot is counted twice or forgotten: of two further tasks one fits.
    third, fourth = cluster.submit(), cluster.submit()
    given = worker.wait_dispatch(third.id)
    worker.wait_heartbeat_acked()
    assert cluster.get(fourth.id).state == State.PENDING
    for ref in (*refs, given):
        worker.outcome(ref)
    worker.outcome(worker.wait_dispatch(fourth.id))
    check(cluster, [r[0] for r in refs] + [third.id, fourth.id])


def test_s30_flushall_with_50_running(make_cluster, start_worker, tmp_path):
    """Real programs: each runs once, and its worker hears nothing of it all."""
    cluster = make_cluster(CALM).start()
    workers = [start_worker(cluster, f'w{i}', slots=25) for i in range(2)]
    journal, go = tmp_path / 'journal', tmp_path / 'go'
    ids = [cluster.submit(command=['sh', '-c', ONCE], env={'JOURNAL': str(journal), 'GO': str(go)}).id for _ in range(50)]
    wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) == 50, '50 run')
    wait_for(lambda: right(cluster), lambda: wrong(cluster))
    for _ in range(2):
        cluster.keys.flushdb()
        wait_for(lambda: len(owners(cluster)) == len(fields(cluster)) == 50 and right(cluster), lambda: wrong(cluster))
    go.touch()
    check(cluster, ids)
    assert sorted(journal.read_text().splitlines()) == sorted(f'{i} 1' for i in ids), 'each once, none given up'
    assert all('fenced' not in w.log().lower() for w in workers)


# ---- S31

class Load:
    """Submits one task after the other, and waits for the end of each: how many have ended, and the slowest."""

    def __init__(self, cluster, lanes=2):
        self.cluster, self.ids, self.slowest = cluster, [], 0.0
        self.failed = []
        self._stop = threading.Event()
        self._lanes = [threading.Thread(target=self._run, daemon=True) for _ in range(lanes)]

    def _run(self):
        tasks = stubs.tasks_grpc.TaskServiceStub(self.cluster.channel())
        while not self._stop.wait(0.01):
            try:
                began = time.monotonic()
                made = tasks.SubmitTask(T.SubmitTaskRequest(spec=make_spec()), timeout=PATIENCE).task.id
                self.ids.append(made)
                ask = T.GetTaskRequest(task_id=made)
                ask.wait.FromSeconds(int(PATIENCE))
                assert tasks.GetTask(ask, timeout=2 * PATIENCE).state == State.COMPLETED
                self.slowest = max(self.slowest, time.monotonic() - began)
            except Exception as e:  # told by the test
                self.failed.append(e)
                return

    def __enter__(self):
        for lane in self._lanes:
            lane.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for lane in self._lanes:
            lane.join(2 * PATIENCE)

    def more(self, n):
        have = len(self.ids)
        wait_for(lambda: self.failed or len(self.ids) >= have + n, f'{n} further tasks')
        assert not self.failed, self.failed


def lease_is_down(cluster):
    info = cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30)
    return info.lease == info.DOWN


class Killed:
    """What it held is gone."""
    def __init__(self, redis_server):
        self.server = redis_server

    def stop(self):
        self.server.stop()

    def go_on(self):
        self.server.start()


class Frozen(Killed):
    """It comes back with all that it held, as old as that is by then."""
    def stop(self):
        self.server.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.server.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize('how', [Killed, Frozen])
def test_s31_redis_stopped_under_load(make_cluster, make_worker, how):
    """Longer than a lease and a recovery interval."""
    cluster = make_cluster({**QUICK, 'redis-timeout': '50ms'}).start()
    worker = make_worker(cluster, 'w1', slots=8)
    holder = make_worker(cluster, 'w2', slots=4, policy=hold, handlers=['held'], runs_commands=False)
    refs = [holder.wait_dispatch(cluster.submit(handler='held').id) for _ in range(4)]
    wait_for(lambda: right(cluster), lambda: wrong(cluster))
    redis = how(cluster.redis_server)
    with Load(cluster) as load:
        load.more(20)
        redis.stop()
        try:
            stopped = time.monotonic()
            # Ends are recorded at once, of what ran before too: while nobody knows of the outage yet, and when it is known.
            for ref in refs[:2]:
                holder.outcome(ref)
                assert holder.wait_verdict(ref) == Verdict.RECORDED
                wait_for(lambda: lease_is_down(cluster), 'Redis counts as down')
            later = holder.wait_dispatch(cluster.submit(handler='held').id)
            while time.monotonic() < stopped + 3:
                load.more(20)
            assert cluster.health() == 'SERVING'
        finally:
            redis.go_on()
        load.more(20)
    assert not load.failed, load.failed
    assert not worker.stops and not holder.stops, 'nobody lost anything by it'
    wait_for(lambda: right(cluster), lambda: wrong(cluster))
    assert sorted(owners(cluster)) == sorted([*refs[2:], later])
    for ref in (*refs[2:], later):
        holder.outcome(ref)
    ids = load.ids + [r[0] for r in (*refs, later)]
    for i in ids:
        assert len(cluster.finished(i).attempts) == 1
    check(cluster, ids)


# ---- nobody is left to delete them

def second_master(make_cluster, first, **flags):
    """On the first one's store and lease table."""
    second = make_cluster({**QUICK, 'master-id': 'm2', **flags})
    second.flags['store'], second.flags['lease'] = first.flags['store'], first.flags['lease']
    second.database, second.keys = first.database, first.keys
    return second.start()


@needs_crash_points
def test_keys_of_master_and_worker_that_die_for_ever(make_cluster, make_worker):
    """The master dies holding a reservation; the worker does not come back. Another master gives the task away, and what
    the two left in Redis is gone a lease and a recovery interval after that."""
    quick = {**QUICK, 'master-ttl': '1s'}
    first = make_cluster(quick).start(env={'REINS_CRASH_POINT': 'after-preempt:3'})
    lost = make_worker(first, 'w1', slots=3, policy=hold)
    ref = lost.wait_dispatch(first.submit().id)
    ended = lost.wait_dispatch(first.submit().id)
    lost.outcome(ended)
    assert lost.wait_verdict(ended) == Verdict.RECORDED
    wait_for(lambda: right(first), lambda: wrong(first))
    first.keys.set(owner_key(ended[0]), f'w1 {lost.session} 1', ex=120)  # as if the release had not come through
    call = first.tasks.SubmitTask.future(T.SubmitTaskRequest(spec=make_spec(), idempotency_key='k'), timeout=5)
    first.wait_killed()
    assert call.exception()
    lost.close()
    assert len(fields(first)) == 2, 'the reservation is there'
    second = second_master(make_cluster, first, **{'master-ttl': '1s'})
    make_worker(second, 'w2', slots=3)
    ids = [ref[0], second.submit(key='k').id]
    for i in ids:
        t = second.finished(i)
        assert t.state == State.COMPLETED and t.worker_id == 'w2'
    check(second, [*ids, ended[0]])
    wait_for(lambda: [k for k in second.keys.keys('*') if 'w2' not in k] == [], lambda: second.keys.keys('*'))


def test_keys_of_another_table_are_left_alone(make_cluster, make_worker):
    """Under another prefix, and under ours what is not of our form."""
    cluster = make_cluster({**QUICK, 'redis-prefix': 'a*:'}).start()
    task = '01890a5d-ac96-774b-bcce-b302099a8057'
    strangers = {owner_key(task, prefix): 'w1 1 1' for prefix in ('', 'ab:', 'abc:', 'a*', 'A*:')}
    strangers.update({'a*:task:{x}:workerId': 'w1 1 1', 'a*:worker:{w 1}:task': 'x', 'a*:' + task: 'x'})
    for key, value in strangers.items():
        cluster.keys.set(key, value)
    own = [owner_key(task, 'a*:'), 'a*:worker:{gone}:task']
    cluster.keys.set(own[0], 'w1 1 1')
    cluster.keys.hset(own[1], task, 1)
    wait_for(lambda: not cluster.keys.exists(*own), lambda: cluster.keys.keys('*'))
    assert all(cluster.keys.get(k) == v for k, v in strangers.items())
