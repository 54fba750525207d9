"""The cases of the analysed system (docs/availability.md), played with the real programs: by test_seed_cases.py with its
settings scaled down, by tests/bench/availability.py with its own and with ours.

Each case takes a cluster that is not started, start_worker and a folder, checks that nothing was lost, run twice or
invented, and says how many seconds passed from the fault until it was put right."""
import random
import time

import stubs
from cluster import owner_key, wait_for
from programs import connected, ends_of, runs, seconds, sh
from proxy import Proxy
from aftermath import check, processes_of

State, End = stubs.State, stubs.End
# In seconds, by the names that they have in Reins. It has no other of our settings.
SEED = {'heartbeat-interval': 10, 'lease-ttl': 30, 'task-key-ttl': 120, 'recovery-interval': 5, 'reconcile-interval': 2}
WAITS = 'until [ -e "$GO" ]; do sleep 0.02; done; echo real >"$REINS_RESULT"'


def flags(settings, divided_by=1):
    return {name: f'{int(value * 1000 / divided_by)}ms' for name, value in settings.items()}


def hb_key(worker):
    return 'reins:worker:{%s}:hb' % worker


def hash_key(worker):
    return 'reins:worker:{%s}:task' % worker


def setting(cluster, name, default):
    """In seconds; flags() made it, or it is reinsd's default."""
    return int(cluster.flags[name].removesuffix('ms')) / 1000 if name in cluster.flags else default


def patience(cluster):
    """What the longest wait may be: none of them waits for a TTL of the keys."""
    return setting(cluster, 'lease-ttl', 10) + 30


def ran_once(cluster, task, journal):
    """A program that notes each of its runs."""
    done = cluster.finished(task, timeout=patience(cluster))
    assert (done.state, done.result) == (State.COMPLETED, b'real\n'), done
    assert journal.read_text() == f'{done.attempt}\n', 'it ran once'
    check(cluster, [task])
    return done


def worker_dies(cluster, start_worker, folder):
    """The machine of a worker goes, with its programs: until the task runs elsewhere."""
    cluster.start()
    first = start_worker(cluster, 'w1')
    t = sh(cluster, '[ $REINS_ATTEMPT = 2 ] || exec sleep 1000; echo real >"$REINS_RESULT"')
    runs(cluster, t)
    start_worker(cluster, 'w2')
    connected(cluster, 'w2')
    time.sleep(random.uniform(0, setting(cluster, 'heartbeat-interval', 2)))  # at any moment between two heartbeats
    died = time.time()
    first.kill_all()
    done = cluster.finished(t, timeout=patience(cluster))
    assert (done.state, done.worker_id, done.result) == (State.COMPLETED, 'w2', b'real\n')
    assert ends_of(cluster, t) == [End.LOST, End.SUCCEEDED] and done.attempts[0].cause == 'worker lost'
    first.start()  # what a dead supervisor leaves is ended by the next agent
    check(cluster, [t])
    return seconds(done.attempts[1].started_at) - died


def master_dies(cluster, start_worker, folder, point, ends, keys=None):
    """The master dies at a crash point of a dispatch; `keys` sets the Redis keys of a state that it does not leave by itself.
    It is started again at once: from then until the program starts."""
    journal = folder / 'journal'
    cluster.start()
    t = sh(cluster, f'echo $REINS_ATTEMPT >>{journal}; echo real >"$REINS_RESULT"')
    cluster.kill9()
    cluster.start(env={'REINS_CRASH_POINT': point}, wait=False)
    start_worker(cluster)
    cluster.wait_killed()
    if keys:
        keys(cluster, t)
    again = time.time()
    cluster.start()
    cluster.connect_anew()
    done = ran_once(cluster, t, journal)
    assert ends_of(cluster, t) == ends
    return seconds(done.attempts[-1].started_at) - again


def one_key(cluster, task):
    cluster.keys.delete(owner_key(task))  # a heartbeat at that moment may have written it
    assert cluster.keys.hgetall(hash_key('w1')) == {task: '1'}


def scenario_a(cluster, start_worker, folder, keys=one_key):
    """Between its steps 1 and 2: the worker's key only, and the row RUNNING."""
    return master_dies(cluster, start_worker, folder, 'after-claim', [End.RECALLED, End.SUCCEEDED], keys)


def both_keys(cluster, task):
    session = cluster.keys.get(hb_key('w1')).split()[1]
    cluster.keys.set(owner_key(task), f'w1 {session} 1', px=120_000)
    assert cluster.keys.hgetall(hash_key('w1')) == {task: '1'}


def scenario_b(cluster, start_worker, folder):
    """Between its steps 2 and 3: both keys, the row RUNNING, and the worker never heard of it."""
    return scenario_a(cluster, start_worker, folder, both_keys)


def scenario_c(cluster, start_worker, folder):
    """After the script, before the owner's key. Here the row is written later, so it is PENDING."""
    return master_dies(cluster, start_worker, folder, 'after-preempt', [End.SUCCEEDED])


def notice_lost_master_away(cluster, start_worker, folder):
    """The program ends while there is no master: from its start until the end is recorded."""
    cluster.start()
    start_worker(cluster)
    t = sh(cluster, WAITS, folder / 'go')
    runs(cluster, t)
    cluster.kill9()
    (folder / 'go').touch()
    wait_for(lambda: not processes_of([t]), 'it ends')
    again = time.time()
    cluster.start()
    cluster.connect_anew()
    return until_recorded(cluster, t, again)


def notice_lost_on_the_way(cluster, start_worker, folder):
    """The connection breaks under the notice: from then until the end is recorded."""
    cluster.start()
    proxy = Proxy(cluster.address)
    try:
        start_worker(cluster, server=proxy.address)
        t = sh(cluster, WAITS, folder / 'go')
        runs(cluster, t)
        proxy.partition()  # what the worker says now arrives nowhere
        (folder / 'go').touch()
        wait_for(lambda: not processes_of([t]), 'it ends')
        broken = time.time()
        proxy.drop()
        proxy.heal()
        return until_recorded(cluster, t, broken)
    finally:
        proxy.close()


def until_recorded(cluster, task, since):
    done = cluster.finished(task, timeout=patience(cluster))
    took = time.time() - since
    assert (done.state, done.result, ends_of(cluster, task)) == (State.COMPLETED, b'real\n', [End.SUCCEEDED])
    check(cluster, [task])
    return took


def master_away(cluster, start_worker, folder):
    """For longer than hb lasts, the worker being well: from the master's start until it holds the task again. It stays one attempt."""
    cluster.start()
    start_worker(cluster)
    t = sh(cluster, WAITS, folder / 'go')
    runs(cluster, t)
    session = cluster.keys.get(hb_key('w1'))
    cluster.kill9()
    wait_for(lambda: not cluster.keys.exists(hb_key('w1')), 'hb has expired', timeout=patience(cluster))
    again = time.time()
    cluster.start()
    cluster.connect_anew()
    wait_for(lambda: cluster.keys.get(hb_key('w1')) not in (None, session) and cluster.keys.hgetall(hash_key('w1')) == {t: '1'},
             'the worker and its task are known again')
    took = time.time() - again
    (folder / 'go').touch()
    done = cluster.finished(t)
    assert (done.state, done.result, ends_of(cluster, t)) == (State.COMPLETED, b'real\n', [End.SUCCEEDED])
    check(cluster, [t])
    return took


CASES = {
    'worker crash': worker_dies,
    'master crash, scenario A': scenario_a,
    'master crash, scenario B': scenario_b,
    'master crash, scenario C': scenario_c,
    'completion notice lost, no master': notice_lost_master_away,
    'completion notice lost, connection cut': notice_lost_on_the_way,
    'master away for longer than hb lasts': master_away,
}
