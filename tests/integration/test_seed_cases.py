"""The analysed system's cases by their names, with its settings divided by ten; docs/availability.md tells what it does in
them. Redis is set by hand to each state that its tables know: no state of the keys completes, loses or doubles a task."""
import time

import pytest
import seed_cases
import stubs
from aftermath import check, processes_of
from cluster import needs_crash_points, owner_key, wait_for
from programs import connected, ends_of, heartbeats_go_on, output, runs, seconds, sh
from seed_cases import WAITS, hash_key, hb_key

State, End = stubs.State, stubs.End
SCALE = 10
LEASE = seed_cases.SEED['lease-ttl'] / SCALE
TTL_MS = seed_cases.SEED['task-key-ttl'] * 1000 // SCALE
STRANGER = '01890a5d-ac96-774b-bcce-b302099a8057'  # a task that there is not


@pytest.fixture
def seed(make_cluster):
    """A cluster with the seed's 10 s, 30 s, 120 s, 5 s and 2 s divided by SCALE; not started."""
    return make_cluster({**seed_cases.flags(seed_cases.SEED, SCALE), 'redis-timeout': '1s'})


# ---- its cases

def test_worker_crash(seed, start_worker, tmp_path):
    seed_cases.worker_dies(seed, start_worker, tmp_path)


@needs_crash_points
@pytest.mark.parametrize('scenario', ['scenario_a', 'scenario_b', 'scenario_c'])
def test_master_crash(seed, start_worker, tmp_path, scenario):
    getattr(seed_cases, scenario)(seed, start_worker, tmp_path)


@pytest.mark.parametrize('how', ['master_away', 'on_the_way'])
def test_lost_completion_notice(seed, start_worker, tmp_path, how):
    getattr(seed_cases, f'notice_lost_{how}')(seed, start_worker, tmp_path)


def test_a_healthy_worker_and_no_master_for_longer_than_hb_lasts(seed, start_worker, tmp_path):
    seed_cases.master_away(seed, start_worker, tmp_path)


# ---- its keys' states, set by hand; w is the worker, t the task, and the row says that t is w's

def task_key_gone(keys, w, t):
    keys.delete(hash_key(w))


def task_key_of_another_task(keys, w, t):
    keys.delete(hash_key(w))
    keys.hset(hash_key(w), STRANGER, '1')
    keys.pexpire(hash_key(w), TTL_MS)


def owner_gone(keys, w, t):
    keys.delete(owner_key(t))


def owner_is_another_worker(keys, w, t):
    keys.set(owner_key(t), 'somebody 7 1', px=TTL_MS)


def hb_gone(keys, w, t):
    keys.delete(hb_key(w))


def hb_of_a_newer_session(keys, w, t):
    keys.set(hb_key(w), f'm9 {1 << 40}', px=int(LEASE * 1000))


def hb_for_ever(keys, w, t):
    keys.persist(hb_key(w)) or keys.set(hb_key(w), 'm1 1')


STATES = {  # what the seed makes of it
    'all there': [],  # it runs
    'task key gone': [task_key_gone],  # the next heartbeat makes it COMPLETED
    'task key of another task': [task_key_of_another_task],  # likewise
    'owner gone': [owner_gone],  # a master that starts makes it PENDING
    'owner is another worker': [owner_is_another_worker],  # likewise
    'task key and owner gone': [task_key_gone, owner_gone],  # nothing says that it was dispatched
    'hb gone': [hb_gone],  # the worker is dead: PENDING, within RunningTaskRecovery's 5 s
    'hb and task key gone': [hb_gone, task_key_gone],
    'hb and owner gone': [hb_gone, owner_gone],
    'all gone': [hb_gone, task_key_gone, owner_gone],  # as after a flush
    'hb of a newer session': [hb_of_a_newer_session],  # it has no sessions
}


def each_on_its_worker(cluster, start_worker, go, states, script=WAITS):
    """{state: (worker's name, task)}: each worker runs one task of a queue of its own."""
    of = {state: f'w{i}' for i, state in enumerate(states)}
    for name in of.values():
        start_worker(cluster, name, slots=1, queues=name)
    placed = {state: (name, sh(cluster, script, go, queue=name)) for state, name in of.items()}
    runs(cluster, *(t for _, t in placed.values()))
    wait_for(lambda: all(keys_are_right(cluster.keys, w, t) for w, t in placed.values()), 'keys')
    return placed


def keys_are_right(keys, w, t):
    owner = (keys.get(owner_key(t)) or '').split()
    hb = (keys.get(hb_key(w)) or '').split()
    return len(hb) == 2 and owner == [w, hb[1], '1'] and keys.hgetall(hash_key(w)) == {t: '1'}


def set_by_hand(cluster, placed, states):
    for state, changes in states.items():
        for change in changes:
            change(cluster.keys, *placed[state])


@pytest.mark.parametrize('master', ['goes on', 'is started again'])
def test_a_worker_runs_its_task(seed, start_worker, go, master):
    """Whatever the keys say: it goes on, it ends once, and the keys come right by themselves."""
    seed.start()
    placed = each_on_its_worker(seed, start_worker, go, STATES, 'echo $$; ' + WAITS)
    tasks = [t for _, t in placed.values()]
    wait_for(lambda: all(output(seed, t) for t in tasks), 'they say their pids')
    programs = {int(output(seed, t)) for t in tasks}
    if master == 'is started again':
        seed.kill9()
    set_by_hand(seed, placed, STATES)
    if master == 'is started again':
        seed.start()
        seed.connect_anew()
    wait_for(lambda: all(keys_are_right(seed.keys, w, t) for w, t in placed.values()),
             lambda: f'keys are right again: {[s for s, (w, t) in placed.items() if not keys_are_right(seed.keys, w, t)]}')
    heartbeats_go_on(seed, [w for w, _ in placed.values()], 2)  # and some recovery intervals: all had a look at the keys
    for state, (_, t) in placed.items():
        now = seed.get(t)
        assert (now.state, now.attempt) == (State.RUNNING, 1), f'{state}: {now}'
    assert programs <= set(processes_of(tasks)), 'the programs never stopped'
    go.touch()
    for state, (_, t) in placed.items():
        done = seed.finished(t)
        assert (done.state, done.result, ends_of(seed, t)) == (State.COMPLETED, b'real\n', [End.SUCCEEDED]), state
    check(seed, tasks)


def test_the_program_ended_and_nobody_heard_of_it(seed, start_worker, go):
    """It failed. The seed would say COMPLETED where the owner's key stands and the worker's is gone."""
    seed.start()
    states = {s: STATES[s] for s in ('all there', 'task key gone', 'owner gone', 'all gone')}
    placed = each_on_its_worker(seed, start_worker, go, states, WAITS + '; exit 3')
    tasks = [t for _, t in placed.values()]
    seed.kill9()
    go.touch()
    wait_for(lambda: not processes_of(tasks), 'they end')
    set_by_hand(seed, placed, states)
    seed.start()
    seed.connect_anew()
    for state, (_, t) in placed.items():
        done = seed.finished(t)
        assert (done.state, done.exit_code, done.result) == (State.FAILED, 3, b'real\n'), state
        assert ends_of(seed, t) == [End.FAILED], state
    check(seed, tasks)


def test_a_dead_worker(seed, start_worker, tmp_path):
    """Its lease decides, as the master counts it: keys that are gone do not shorten it, keys that stay do not lengthen it."""
    seed.start()
    states = {**{s: STATES[s] for s in ('all there', 'hb gone', 'owner is another worker', 'all gone')}, 'hb for ever': [hb_for_ever]}
    of = {state: f'w{i}' for i, state in enumerate(states)}
    agents = {s: start_worker(seed, name, slots=1, queues=name, orphan_timeout='1ms') for s, name in of.items()}
    script = '[ $REINS_ATTEMPT = 2 ] || exec sleep 1000; echo real >"$REINS_RESULT"'
    placed = {s: (name, sh(seed, script, queue=name)) for s, name in of.items()}
    runs(seed, *(t for _, t in placed.values()))
    start_worker(seed, 'heir', slots=len(states))
    connected(seed, 'heir')
    died = {}
    for state, agent in agents.items():
        agent.kill_all()
        died[state] = time.time()
    set_by_hand(seed, placed, states)
    shortest = LEASE - seed_cases.SEED['heartbeat-interval'] / SCALE  # its last heartbeat may be an interval old
    for state, (_, t) in placed.items():
        done = seed.finished(t)
        assert (done.state, done.worker_id, done.result) == (State.COMPLETED, 'heir', b'real\n'), state
        assert ends_of(seed, t) == [End.LOST, End.SUCCEEDED] and done.attempts[0].cause == 'worker lost', state
        assert seconds(done.attempts[1].dispatched_at) > died[state] + shortest - 0.5, state
    for agent in agents.values():
        agent.start()  # what dead supervisors leave is ended by the next agent
    check(seed, [t for _, t in placed.values()])


def nothing(cluster, t):
    pass


def of_another_worker(cluster, t):
    owner_is_another_worker(cluster.keys, 'w1', t)


def all_of_them_gone(cluster, t):
    cluster.keys.flushdb()


def without_hb(cluster, t):
    seed_cases.both_keys(cluster, t)
    hb_gone(cluster.keys, 'w1', t)


@needs_crash_points
@pytest.mark.parametrize('keys', [of_another_worker, all_of_them_gone, without_hb])
def test_running_and_never_sent(seed, start_worker, tmp_path, keys):
    """Scenarios A, B and C with other keys than they leave: the worker's list decides."""
    seed_cases.scenario_a(seed, start_worker, tmp_path, keys)


def task_key_of_this_task(keys, w, t):
    keys.hset(hash_key(w), t, '1')
    keys.pexpire(hash_key(w), TTL_MS)


def owner_is_this_worker(keys, w, t):
    keys.set(owner_key(t), f'{w} 1 1', px=TTL_MS)


IDLE = {  # what the seed makes of it
    'hb gone': [hb_gone],  # its script takes no worker without hb
    'task key of another task': [task_key_of_another_task],  # the worker is not idle, until the key expires
    'hb of a newer session': [hb_of_a_newer_session],  # it has no sessions
}
PENDING = {
    **IDLE,
    'owner is another worker': [owner_is_another_worker],
    'task key and owner of this very task': [task_key_of_this_task, owner_is_this_worker],  # it was dispatched
}


@pytest.mark.parametrize('worker', ['is there', 'comes later'])
def test_a_row_is_pending(seed, start_worker, worker):
    """It is given to an idle worker whatever the keys say of the two; at the most it waits for the next heartbeat, or for a
    newer session's hb to expire."""
    seed.start()
    states = IDLE if worker == 'is there' else PENDING
    of = {state: f'w{i}' for i, state in enumerate(states)}

    def start():
        for name in of.values():
            start_worker(seed, name, slots=1, queues=name)
        connected(seed, *of.values())
    if worker == 'is there':
        start()
        set_by_hand(seed, {s: (name, None) for s, name in of.items()}, states)
    placed = {s: (name, sh(seed, 'echo real >"$REINS_RESULT"', queue=name)) for s, name in of.items()}
    if worker == 'comes later':
        set_by_hand(seed, placed, states)
        start()
    for state, (w, t) in placed.items():
        done = seed.finished(t)
        assert (done.state, done.worker_id, done.result, ends_of(seed, t)) == (State.COMPLETED, w, b'real\n', [End.SUCCEEDED]), state
    check(seed, [t for _, t in placed.values()])
