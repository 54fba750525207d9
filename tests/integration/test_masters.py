"""Two masters on one store: one stops, dies, or is cut off, and what the other may do then."""
import collections
import contextlib
import queue
import signal
import time

import grpc
import pytest
import stubs
from cluster import CALM, PATIENCE, make_spec, wait_for
from fake_worker import Verdict, hold
from proxy import Proxy

State, End, T = stubs.State, stubs.End, stubs.tasks
Reason = stubs.worker.Stop.Reason
QUICK = {
    'heartbeat-interval': '250ms', 'lease-ttl': '1500ms', 'recovery-interval': '300ms', 'reconcile-interval': '300ms',
    'master-ttl': '1s', 'master-ttl-exclusive': '2s', 'redis-timeout': '1s',
}
TOOK_OVER = 'took over the sessions of master m1'


def two_masters(make_cluster, flags, also_start=True):
    """m1, and m2 on the same store and lease table."""
    first, second = make_cluster(flags).start(), make_cluster({**flags, 'master-id': 'm2'})
    second.flags['store'], second.flags['lease'] = first.flags['store'], first.flags['lease']
    return first, second.start() if also_start else second


class Stopped:
    """SIGSTOP for as long as the block runs."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __enter__(self):
        self.cluster.process.send_signal(signal.SIGSTOP)

    def __exit__(self, *_):
        self.cluster.process.send_signal(signal.SIGCONT)


def say_hello(stub, worker):
    """A Hello as this worker would say it, on a stream of its own."""
    worker.hello_number += 1
    said = queue.SimpleQueue()
    said.put(stubs.worker.WorkerMessage(hello=stubs.worker.Hello(
        protocol=1, worker_id=worker.worker_id, instance=worker.instance, slots=worker.slots, last=True,
        resumes_session=worker.stream.session, hello_number=worker.hello_number, **worker.hello,
    )))
    return stub.Session(iter(said.get, None))


def row_of(cluster, master):
    return cluster.sql('SELECT incarnation, beat FROM master WHERE id = %s', master)[0]


def ends_of(task):
    return [(a.worker_id, a.end) for a in task.attempts]


# ---- a Hello that waited ----


def test_a_hello_that_waited_in_a_stopped_master_opens_no_session(make_cluster, make_worker):
    """The worker has gone to another master since, which gave it an exclusive task: the list of that Hello lacks it, and
    who believed it would give the task away a second time."""
    m1, m2 = two_masters(make_cluster, CALM)
    w = make_worker(m1, 'w1', policy=hold, enforces_exclusive_lease=True)
    with m1.channel() as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)
        with Stopped(m1):
            late = say_hello(stubs.worker_grpc.WorkerServiceStub(channel), w)
            w.address = m2.address
            w.reconnect(resumes=w.stream.session)
            task = m2.submit(exclusive=True)
            ref = w.wait_dispatch(task.id)
        with pytest.raises(grpc.RpcError) as ended:
            next(late)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        w.outcome(ref)
        assert w.wait_verdict(ref) == Verdict.RECORDED
    assert ends_of(m2.finished(task.id)) == [('w1', End.SUCCEEDED)]


# ---- take-over ----


def test_a_stopped_master_is_taken_over_and_goes_on(make_cluster, make_worker):
    """Its worker can't leave it, and another does the work; when it runs again it has nothing to say about it, hears so,
    and serves on as its next incarnation."""
    m1, m2 = two_masters(make_cluster, QUICK)
    old = make_worker(m1, 'w1', slots=2, policy=hold, enforces_exclusive_lease=True)
    ids = [m1.submit(exclusive=x).id for x in (False, True)]
    refs = [old.wait_dispatch(i) for i in ids]
    new = make_worker(m2, 'w2', enforces_exclusive_lease=True)
    before = row_of(m1, 'm1')
    with Stopped(m1):
        for i in ids:
            done = m2.finished(i)
            assert (done.state, ends_of(done)) == (State.COMPLETED, [('w1', End.LOST), ('w2', End.SUCCEEDED)])
        assert m2.log().count(TOOK_OVER) == 1
        assert row_of(m1, 'm1')[0] == before[0] + 1
    assert old.wait_over() == grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: row_of(m1, 'm1')[0] == before[0] + 2, 'its next incarnation')
    wait_for(lambda: m1.health() == 'SERVING', 'm1 serves again')
    old.reconnect()
    assert not old.stream.adopted
    for ref in refs:
        assert old.wait_stop(ref) == Reason.FENCED
        old.outcome(ref)
        assert old.wait_verdict(ref) == Verdict.FENCED
    t = m1.submit()
    old.outcome(old.wait_dispatch(t.id))
    done = m1.finished(t.id)
    assert (done.state, len(done.attempts)) == (State.COMPLETED, 1)
    assert len(new.dispatched) == 2


def test_a_killed_master_and_its_workers(make_cluster, start_worker, tmp_path):
    """Both are gone for good, as with a machine that both ran on: the other master's worker does it all, exclusive tasks
    after the longer time."""
    m1, m2 = two_masters(make_cluster, QUICK)
    journal = tmp_path / 'journal'
    script = f'echo $REINS_TASK_ID $REINS_ATTEMPT >>{journal}; [ $REINS_ATTEMPT -gt 1 ] || sleep 300'
    first = start_worker(m1, 'w1', kill_grace='100ms')
    tasks = [m1.submit(command=['sh', '-c', script], exclusive=i == 0) for i in range(4)]
    wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) == 4, 'all four run')
    m1.kill9()
    first.kill_all()
    start_worker(m2, 'w2', kill_grace='100ms')
    ended = {}
    for t in reversed(tasks):
        done = m2.finished(t.id)
        assert (done.state, ends_of(done)) == (State.COMPLETED, [('w1', End.LOST), ('w2', End.SUCCEEDED)])
        ended[t.id] = done.attempts[1].started_at.ToNanoseconds()
    assert m2.log().count(TOOK_OVER) == 1
    assert max(ended, key=ended.get) == tasks[0].id, 'the exclusive one waits longest'
    ran = collections.Counter(journal.read_text().splitlines())
    assert len(ran) == 8 and set(ran.values()) == {1}


def test_a_fresh_hb_holds_the_take_over_back(make_cluster, make_worker):
    """Redis shows that the session lives though its master can't reach the store: nobody takes its task."""
    m1, m2 = two_masters(make_cluster, QUICK)
    worker = make_worker(m1, 'w1', policy=hold)
    t = m1.submit()
    ref = worker.wait_dispatch(t.id)
    make_worker(m2, 'w2')
    hb = f'm1 {worker.session}'
    with Stopped(m1):
        until = time.monotonic() + 4.5  # longer than master-ttl, a lease and the sweeps between them
        while time.monotonic() < until:
            m1.keys.set('reins:worker:{w1}:hb', hb, px=1500)
            time.sleep(0.1)
        assert TOOK_OVER not in m2.log()
        assert m2.get(t.id).state == State.RUNNING
    if worker.stream.status:
        worker.reconnect()
        assert ref in worker.stream.adopted
    worker.outcome(ref)
    done = m1.finished(t.id)
    assert (done.state, len(done.attempts)) == (State.COMPLETED, 1)


@pytest.mark.parametrize('lease', ['redis', 'memory'])
def test_two_processes_with_one_id_at_two_masters(make_cluster, start_worker, tmp_path, lease):
    """S05 with a master each: the newer one wins, the older is told why and ends with what it runs, and only then does the
    exclusive task run again."""
    m1, m2 = two_masters(make_cluster, {**QUICK, **({'lease': 'memory'} if lease == 'memory' else {})})
    journal = tmp_path / 'journal'
    older = start_worker(m1, 'w1', kill_grace='100ms')
    script = f'while [ $REINS_ATTEMPT = 1 ]; do echo 1 >> {journal}; sleep 0.05; done; echo 2 >> {journal}'
    task = m1.submit(command=['sh', '-c', script], exclusive=True)
    wait_for(journal.exists, 'it runs')
    start_worker(m2, 'w1', kill_grace='100ms')
    assert older.wait() == 1 and 'a newer session of worker w1 has begun' in older.log()
    done = m2.finished(task.id)
    assert (done.state, [a.end for a in done.attempts]) == (State.COMPLETED, [End.LOST, End.SUCCEEDED])
    said = journal.read_text().split()
    assert said.index('2') == len(said) - 1, 'both ran at once'


# ---- S24 ----


def test_s24_a_master_that_slept(make_cluster, start_worker, tmp_path):
    """SIGSTOPped beyond its leases with a backlog in its window and workers that it believes its own, who meanwhile go to
    the other master: nothing that runs is begun again, and nothing is given to sessions that are over."""
    flags = {
        'heartbeat-interval': '250ms', 'lease-ttl': '5s', 'recovery-interval': '300ms', 'reconcile-interval': '300ms',
        'master-ttl': '6s', 'master-ttl-exclusive': '8s', 'redis-timeout': '1s',
    }
    m1, m2 = two_masters(make_cluster, flags, also_start=False)
    servers = f'{m1.url},{m2.url}'
    workers = [start_worker(m1, f'w{i}', server=servers, kill_grace='100ms') for i in range(2)]
    journal = tmp_path / 'journal'

    def submit(seconds, exclusive=False):
        script = f'echo $REINS_TASK_ID $REINS_ATTEMPT begin $(date +%s%N) >>{journal}; sleep {seconds}; ' \
                 f'echo $REINS_TASK_ID $REINS_ATTEMPT end $(date +%s%N) >>{journal}'
        return m1.submit(command=['sh', '-c', script], exclusive=exclusive).id

    def begun():
        return journal.read_text().count('begin') if journal.exists() else 0
    held = [submit(12), submit(12, exclusive=True), submit(12), submit(12, exclusive=True)]
    wait_for(lambda: begun() == 4, 'the long ones run')
    queued = [submit(0.8, exclusive=i % 5 == 0) for i in range(60)]
    m2.start()
    wait_for(lambda: begun() >= 12, 'some of the others too')
    asleep = time.monotonic()
    with Stopped(m1):
        wait_for(lambda: {m for (m,) in m1.sql('SELECT master FROM worker')} == {'m2'}, 'the workers have left')
        time.sleep(max(0.0, asleep + 5.5 - time.monotonic()))  # what is tested is the time
    for i in held + queued:
        m2.finished(i)
    exclusive = {held[1], held[3], *queued[::5]}
    runs = collections.defaultdict(dict)
    for line in journal.read_text().splitlines():
        task, attempt, what, at = line.split()
        assert what not in runs[task, int(attempt)], f'attempt {attempt} of {task} ran twice'
        runs[task, int(attempt)][what] = int(at)
    for i in held + queued:
        done = m1.get(i)
        assert done.state == State.COMPLETED, done
        # An exclusive one may have been stopped in time, because nobody renewed its lease; no other is begun again.
        ends = [a.end for a in done.attempts]
        assert ends.pop() == End.SUCCEEDED and ends in ([[], [End.STOPPED]] if i in exclusive else [[]]), done
        spans = sorted((r['begin'], r.get('end')) for (task, _), r in runs.items() if task == i)
        assert len(spans) == len(done.attempts) and 'end' in runs[i, done.attempt]
        assert all(a[1] is None or a[1] <= b[0] for a, b in zip(spans, spans[1:]))
    assert all(w.process.poll() is None for w in workers)


def test_s24_a_submit_that_waited_in_its_socket(make_cluster, make_worker):
    """The stopped master reads it together with the rest of the world, before it can know that others judge its sessions:
    accepted, but not given to the worker whose stream still stands."""
    m1, m2 = two_masters(make_cluster, {**QUICK, 'lease': 'memory'})
    old = make_worker(m1, 'w1', slots=4, policy=hold)
    held = m1.submit().id
    old.wait_dispatch(held)
    make_worker(m2, 'w2', queues=['default'])
    with Stopped(m1):
        assert m2.finished(held).state == State.COMPLETED
        request = T.SubmitTaskRequest(spec=make_spec(queue='only-w1'))
        waiting = [m1.tasks.SubmitTask.future(request, timeout=PATIENCE) for _ in range(3)]
        time.sleep(0.1)  # they are in its socket, or the test sees less
    ids = [call.result().task.id for call in waiting]
    assert old.wait_over() == grpc.StatusCode.UNAVAILABLE
    assert len(old.dispatched) == 1
    # What it had claimed shows that it is judged, perhaps before its beat does, which ends all streams.
    wait_for(lambda: 'ready master=m1 incarnation=3' in m1.log(), 'm1 goes on')
    old.reconnect()
    for i in ids:
        ref = old.wait_dispatch(i)
        old.outcome(ref)
        done = m1.finished(i)
        assert (done.state, ends_of(done)) == (State.COMPLETED, [('w1', End.SUCCEEDED)])


def test_a_session_that_has_moved_on(make_cluster, make_worker):
    """A worker is at another master, and its old stream still stands: nothing goes there any more, and it is ended."""
    m1, m2 = two_masters(make_cluster, {**CALM, 'lease': 'memory'})
    old = make_worker(m1, 'w1', policy=hold)
    now = make_worker(m2, 'w1', instance=old.instance)
    ids = [m1.submit().id for _ in range(3)]
    for i in ids:
        done = m1.finished(i)
        assert (done.state, ends_of(done)) == (State.COMPLETED, [('w1', End.SUCCEEDED)])
    assert not old.dispatched and len(now.dispatched) == 3
    assert old.wait_over() == grpc.StatusCode.UNAVAILABLE


# ---- what a master can't do without the store ----


def test_exclusive_leases_are_not_renewed_without_a_beat(make_cluster, make_worker):
    """0.9 of the exclusive master-ttl after its last beat a master renews no exclusive lease, until the store is back."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '10s', 'master-ttl-exclusive': '1s'}).start()
    worker = make_worker(cluster, policy=hold)
    acks = []
    stream_ack = worker._on_heartbeat_ack
    worker._on_heartbeat_ack = lambda stream, ack: (acks.append(ack.exclusive_not_renewed), stream_ack(stream, ack))
    worker.wait(lambda: len(acks) >= 3, 'answers')
    assert not any(acks)
    cluster.postgres.stop()
    worker.wait(lambda: acks[-1], 'an answer that renews no exclusive lease')
    cluster.postgres.start()
    worker.wait(lambda: not acks[-1], 'an answer that renews all leases')


@pytest.mark.parametrize('lease', ['redis', 'memory'])
def test_a_master_that_is_cut_from_the_store_for_good(make_cluster, start_worker, tmp_path, lease):
    """Its worker goes to the other master, which can reach the store, and takes along what it runs."""
    flags = {**QUICK, 'lease-ttl': '6s', **({'lease': 'memory'} if lease == 'memory' else {})}
    m1, m2 = two_masters(make_cluster, flags, also_start=False)
    m1.stop()
    with contextlib.closing(Proxy(f'127.0.0.1:{m1.postgres.port}')) as way:
        m1.flags['store'] = m1.flags['store'].replace(f'127.0.0.1:{m1.postgres.port}', way.address)
        m1.start()
        m2.start()
        start_worker(m1, 'w1', server=f'{m1.url},{m2.url}', kill_grace='100ms')
        go = tmp_path / 'go'
        ids = [m1.submit(command=['sh', '-c', f'while [ ! -e {go} ]; do sleep 0.05; done'], exclusive=i == 0).id for i in range(3)]
        for i in ids:
            wait_for(lambda i=i: m1.get(i).HasField('started_at'), 'they run')
        way.partition()
        waiting = m2.submit().id
        wait_for(lambda: m1.sql('SELECT master FROM worker') == [('m2',)], 'the worker has left')
        go.touch()
        for i in [*ids, waiting]:
            done = m2.finished(i)
            assert (done.state, ends_of(done)) == (State.COMPLETED, [('w1', End.SUCCEEDED)]), done
        way.heal()
        wait_for(lambda: m1.health() == 'SERVING', 'm1 serves again')


# ---- RunningTaskRecovery, the rows of sessions that are held ----


def test_a_wish_that_another_master_stored(make_cluster, make_worker):
    m1, m2 = two_masters(make_cluster, {**CALM, 'recovery-interval': '300ms'})
    worker = make_worker(m1, policy=hold)
    t = m1.submit()
    ref = worker.wait_dispatch(t.id)
    assert m2.cancel(t.id, reason='from afar').state == State.RUNNING
    assert worker.wait_stop(ref) == Reason.CANCELLED
    worker.outcome(ref, kind=stubs.worker.Outcome.Kind.STOPPED)
    done = m1.finished(t.id)
    assert (done.state, len(done.attempts)) == (State.CANCELLED, 1)


def test_a_running_row_that_memory_lacks(make_cluster, make_worker):
    """A row that names a held session, by whatever fault: the worker's heartbeat proves that it does not run, and it goes
    back."""
    cluster = make_cluster({**CALM, 'recovery-interval': '300ms'}).start()
    worker = make_worker(cluster, slots=1, policy=hold)
    busy = worker.wait_dispatch(cluster.submit().id)
    t = cluster.submit()
    columns = ('task_id, seq, neg_priority, failures, losses, cpu, memory, gpus, exclusive, lease_ttl_ns, max_attempts, '
               'backoff_initial_ns, backoff_max_ns, backoff_multiplier, queue, handler, custom')
    cluster.sql(
        f'WITH r AS (DELETE FROM reins.ready WHERE task_id = %s RETURNING *) INSERT INTO reins.running ({columns}, attempt, '
        "worker, instance, session, lease_ns, dispatched_at) SELECT " + columns + ", 1, 'w1', %s, %s, 10000000000, now() FROM r",
        t.id, worker.instance, worker.session)
    assert cluster.get(t.id).state == State.RUNNING
    cluster.in_state(t.id, State.PENDING)
    worker.outcome(busy)
    ref = worker.wait_dispatch(t.id)
    assert ref[1] == 2
    worker.outcome(ref)
    done = cluster.finished(t.id)
    assert [a.end for a in done.attempts] == [End.RECALLED, End.SUCCEEDED], done
