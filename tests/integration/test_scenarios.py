"""Scenarios S01–S13 and S40–S43 of docs/scenarios.md with the real programs; that table names those that are elsewhere."""
import os
import signal
import sys
import time

import pytest
import stubs
from aftermath import check, processes_of
from cluster import QUICK, wait_for
from netns import network  # noqa: F401
from programs import beat, ends_of, heartbeats_go_on, info, output, runs, sh
from proxy import Proxy
from real_worker import wait_gone

State, End = stubs.State, stubs.End
Info = stubs.admin.WorkerInfo
LEASE = 1.5  # of QUICK
SLOW = os.environ.get('REINS_SLOW', '') not in ('', '0')
# The first attempt says its pid and goes on until the file appears; any other ends well at once.
FIRST_WAITS = '[ $REINS_ATTEMPT = 1 ] || exit 0; echo pid $$; until [ -e "$GO" ]; do sleep 0.02; done'
COUNT = 'i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo end'


# ---- workers die or seem to

def test_s01_the_machine_dies(make_cluster, start_worker):
    cluster = make_cluster(QUICK).start()
    w1 = start_worker(cluster, slots=8)
    ids = [sh(cluster, '[ $REINS_ATTEMPT = 2 ] || exec sleep 300') for _ in range(8)]
    runs(cluster, *ids)
    start_worker(cluster, 'w2', slots=8)
    w1.kill_all()
    died = time.time()
    for i in ids:
        t = cluster.finished(i)
        assert (t.state, t.worker_id, ends_of(cluster, i)) == (State.COMPLETED, 'w2', [End.LOST, End.SUCCEEDED])
        assert t.attempts[0].cause == 'worker lost' and t.attempts[0].worker_id == 'w1'
        # lease-ttl + 0.5 s on a machine that has time; what a loaded one adds is far from the next larger setting.
        assert t.attempts[1].dispatched_at.ToNanoseconds() / 1e9 < died + LEASE + 0.5 + 5
    w1.start()  # what a dead supervisor leaves is ended by the next agent
    check(cluster, ids)


def test_s02_an_empty_state_directory(make_cluster, start_worker, tmp_path):
    """The lease is long, so that "at once" and "after the lease" differ."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '6s'}).start()
    old = start_worker(cluster, orphan_timeout='1ms', kill_grace='100ms')
    pids = tmp_path / 'pids'
    script = f'[ $REINS_ATTEMPT = 1 ] || {{ kill -0 $(cat {pids}) 2>/dev/null && exit 9; exit 0; }}; '
    plain = sh(cluster, '[ $REINS_ATTEMPT = 2 ] || exec sleep 300')
    exclusive = sh(cluster, script + f'echo $$ >{pids}; exec sleep 300', exclusive=True)
    runs(cluster, plain, exclusive)
    wait_for(lambda: pids.exists() and pids.read_text().strip(), 'its pid')
    old.kill()
    start_worker(cluster)
    assert cluster.finished(plain).attempt == 2
    assert cluster.get(exclusive).attempt == 1, 'its lease is not over'
    done = cluster.finished(exclusive)
    assert (done.state, done.attempt) == (State.COMPLETED, 2), 'the old one was gone'
    assert [ends_of(cluster, i)[0] for i in (plain, exclusive)] == [End.LOST] * 2
    check(cluster, [plain, exclusive])


def test_s03_the_agent_is_started_again(make_cluster, start_worker, go):
    cluster = make_cluster(QUICK).start()
    w = start_worker(cluster)
    ids = [sh(cluster, 'echo "pid $$"; ' + COUNT, go) for _ in range(3)]
    runs(cluster, *ids)
    before = processes_of(ids)
    w.kill()
    assert len(w.supervisors()) == 3
    w.start()
    wait_for(lambda: '3 attempts held' in w.log(), 'they are taken over')
    heartbeats_go_on(cluster, 'w1', 8)  # longer than a lease
    assert set(p for p, c in before.items() if 'sleep' not in c) <= set(processes_of(ids)), 'the programs never stopped'
    go.touch()
    for i in ids:
        assert cluster.finished(i).state == State.COMPLETED and ends_of(cluster, i) == [End.SUCCEEDED]
        lines = output(cluster, i).split(b'\n')
        assert [int(n) for n in lines[1:-2]] == list(range(1, len(lines) - 2)) and lines[-2] == b'end'
    check(cluster, ids)


@pytest.mark.parametrize('frozen', ['until it is recalled', 'for a moment'])
def test_s04_sigterm_before_the_accept(make_cluster, start_worker, tmp_path, frozen):
    """The agent has the dispatch and the signal before it does anything about either."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '20s'}).start()
    journal = tmp_path / 'journal'
    w1 = start_worker(cluster)
    wait_for(lambda: info(cluster, 'w1'), 'w1')
    w1.process.send_signal(signal.SIGSTOP)
    try:
        t = sh(cluster, f'echo $REINS_WORKER_ID >>{journal}')
        cluster.in_state(t, State.RUNNING)
        start_worker(cluster, 'w2')
        w1.process.send_signal(signal.SIGTERM)
        if frozen == 'until it is recalled':
            wait_for(lambda: cluster.get(t).attempt == 2, 'recalled, long before the lease ends', timeout=15)
    finally:
        w1.process.send_signal(signal.SIGCONT)
    done = cluster.finished(t)
    assert done.state == State.COMPLETED and w1.wait() == 0
    assert set(ends_of(cluster, t)[:-1]) <= {End.RECALLED, End.REFUSED}, 'not a failure: one attempt was allowed'
    assert journal.read_text() == f'{done.worker_id}\n', 'it ran once'
    assert done.worker_id == 'w2' or frozen == 'for a moment'
    check(cluster, [t])


def test_s05_two_workers_with_one_id(make_cluster, start_worker, go):
    cluster = make_cluster(QUICK).start()
    older = start_worker(cluster)
    t = sh(cluster, 'until [ -e "$GO" ]; do sleep 0.02; done', go)
    runs(cluster, t)
    newer = start_worker(cluster)
    assert older.wait() == 1
    assert 'another process has taken over the id "w1"' in older.log() and not older.supervisors()
    runs(cluster, t, attempt=2)
    assert len(processes_of([t])) <= 2, 'the shell of one attempt, and its sleep'
    heartbeats_go_on(cluster, 'w1', 8)
    assert info(cluster, 'w1').session == 2 and newer.process.poll() is None, 'no flapping'
    go.touch()
    assert cluster.finished(t).attempt == 2 and ends_of(cluster, t) == [End.LOST, End.SUCCEEDED]
    check(cluster, [t])


def on_network(make_cluster, network, **flags):
    """A cluster that is reached from that network too; what comes from this machine does not pass its link."""
    cluster = make_cluster({**QUICK, 'insecure': 'true', **flags})
    cluster.address = cluster.flags['listen'] = f'{network.host}:{cluster.port}'
    return cluster.start()


def test_s06_packets_are_dropped(make_cluster, start_worker, network, go):  # noqa: F811
    cluster = on_network(make_cluster, network)
    w1 = start_worker(cluster, prefix=network.prefix)
    t = sh(cluster, 'echo $REINS_ATTEMPT; ' + COUNT, go)
    runs(cluster, t)
    start_worker(cluster, 'w2')
    first = processes_of([t])
    network.drop()
    cut = time.monotonic()
    runs(cluster, t, attempt=2)
    wait_for(lambda: 'a heartbeat was not answered' in w1.log(), 'the worker notices too')
    assert info(cluster, 'w1').state != Info.CONNECTED
    wait_for(lambda: time.monotonic() > cut + 5 * LEASE, 'five leases')
    assert not go.exists() and set(first) & set(processes_of([t])), 'not exclusive: it goes on, nobody can tell it'
    network.heal()
    wait_for(lambda: not w1.supervisors() and not set(first) & set(processes_of([t])), lambda: f'what is no longer its own is stopped\n{w1.log()[-2000:]}')
    assert info(cluster, 'w1').state == Info.CONNECTED
    go.touch()
    done = cluster.finished(t)
    assert (done.worker_id, ends_of(cluster, t)) == ('w2', [End.LOST, End.SUCCEEDED])
    check(cluster, [t])


@pytest.mark.parametrize('program', ['stopped', 'ended'])
def test_s07_everything_stands_still(make_cluster, start_worker, go, program):
    """Agent, supervisor and program, or the program ends while nobody sees it; another worker finishes the task."""
    cluster = make_cluster(QUICK).start()
    w1 = start_worker(cluster)
    t = sh(cluster, '[ $REINS_ATTEMPT = 1 ] || { echo second; exit 0; }; echo first; until [ -e "$GO" ]; do sleep 0.02; done;'
           'echo late; echo \'{"step": 1, "late": 1}\' >>"$REINS_METRICS"; echo late >"$REINS_RESULT"; exit 3', go)
    runs(cluster, t)
    wait_for(lambda: output(cluster, t), 'its first line')
    shell = next(p for p, c in processes_of([t]).items() if c.startswith('sh '))
    frozen = [w1.process.pid, *w1.supervisors().values(), *([shell] if program == 'stopped' else [])]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        start_worker(cluster, 'w2')
        done = cluster.finished(t)
        assert (done.state, done.attempt, done.worker_id) == (State.COMPLETED, 2, 'w2')
        if program == 'ended':
            go.touch()
            wait_gone(shell)
    finally:
        for pid in reversed(frozen):
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: 'fenced' in w1.log(), 'the agent is told')
    wait_gone(shell)
    wait_for(lambda: not w1.supervisors() and not list(w1.state.glob('attempts/*')), 'it forgets the attempt')
    again = cluster.get(t)
    assert again.attempts[-1] == done.attempts[-1] and (again.state, again.result) == (State.COMPLETED, b'')
    assert output(cluster, t, attempt=1) == b'first\n' and output(cluster, t, attempt=2) == b'second\n'
    assert not again.metrics.values
    check(cluster, [t])


def test_s08_an_exclusive_task_without_network(make_cluster, start_worker, network, tmp_path):  # noqa: F811
    cluster = on_network(make_cluster, network, **{'lease-ttl': '3s'})
    w1 = start_worker(cluster, prefix=network.prefix, kill_grace='200ms')
    shared, pids = tmp_path / 'shared', tmp_path / 'pids'
    t = sh(cluster, f'''
trap "" TERM
if [ $REINS_ATTEMPT != 1 ]; then
    for p in $(cat {pids}); do if kill -0 $p 2>/dev/null; then echo "$p still there" >>{shared}; fi; done
    echo 2 >>{shared}; exit 0
fi
setsid sh -c 'while :; do echo 1 >>{shared}; sleep 0.05; done' &
echo $$ $! >{pids}
while :; do echo 1 >>{shared}; sleep 0.05; done''', exclusive=True)
    runs(cluster, t)
    wait_for(lambda: shared.exists() and pids.exists(), 'it writes')
    start_worker(cluster, 'w2')
    network.drop()
    done = cluster.finished(t)
    assert (done.state, done.attempt, done.worker_id) == (State.COMPLETED, 2, 'w2')
    lines = shared.read_text().splitlines()
    assert lines[-1] == '2' and set(lines[:-1]) == {'1'}, lines[-5:]
    network.heal()
    wait_for(lambda: info(cluster, 'w1').state == Info.CONNECTED and not list(w1.state.glob('attempts/*')), 'w1 is back')
    assert ends_of(cluster, t) == [End.LOST, End.SUCCEEDED]
    assert shared.read_text().splitlines() == lines
    check(cluster, [t])


def test_s09_the_connection_is_cut_again_and_again(make_cluster, start_worker, go):
    cluster = make_cluster(QUICK).start()
    proxy = Proxy(cluster.address)
    try:
        w = start_worker(cluster, server=proxy.address)
        t = sh(cluster, COUNT, go)
        runs(cluster, t)
        for n in range(2, 10):
            proxy.drop()
            wait_for(lambda: info(cluster, 'w1').session == n, 'it is back')
            heartbeats_go_on(cluster, 'w1', 1)
        go.touch()
        assert cluster.finished(t).state == State.COMPLETED
    finally:
        proxy.close()
        w.stop()
    assert ends_of(cluster, t) == [End.SUCCEEDED]
    lines = output(cluster, t).split()
    assert [int(n) for n in lines[:-1]] == list(range(1, len(lines)))
    check(cluster, [t])


def test_s10_many_leases(make_cluster, start_worker):
    """A hundred with REINS_SLOW."""
    leases = 100 if SLOW else 20
    cluster = make_cluster({**QUICK, 'lease-ttl': '500ms', 'heartbeat-interval': '50ms'}).start()
    start_worker(cluster, kill_grace='50ms')
    ids = [cluster.submit(command=['sleep', str(leases * 0.5)], exclusive=exclusive).id for exclusive in (False, True)]
    for i in ids:
        assert cluster.finished(i, timeout=leases + 30).state == State.COMPLETED
        assert ends_of(cluster, i) == [End.SUCCEEDED]
    check(cluster, ids)


@pytest.mark.parametrize('victim', ['supervisor', 'supervisor and agent'])
def test_s11_a_task_that_kills_its_worker(make_cluster, start_worker, go, victim):
    cluster = make_cluster().start()
    w = start_worker(cluster)
    other = sh(cluster, COUNT, go)
    runs(cluster, other)
    also = '$(sed -n "s/^PPid:.//p" /proc/$PPID/status)' if 'agent' in victim else ''
    t = sh(cluster, f'kill -9 {also} $PPID; sleep 300')

    def seen():
        if w.process.poll() is not None:
            w.start()
        return cluster.get(t).state == State.FAILED
    wait_for(seen, lambda: f'it is given up: {cluster.get(t)}')
    failed = cluster.get(t)
    assert ends_of(cluster, t) == [End.LOST] * 3 and 'lost with its worker 3 times' in failed.error
    assert all(a.cause == 'worker lost' for a in failed.attempts)
    runs(cluster, other)
    go.touch()
    assert cluster.finished(other).state == State.COMPLETED and ends_of(cluster, other) == [End.SUCCEEDED]
    check(cluster, [t, other])


def test_s12_the_master_is_away_for_a_while(make_cluster, start_worker, go):
    """With real agents and some of them; with many: test_workers.py."""
    cluster = make_cluster({**QUICK, 'lease-ttl': '3s'}).start()
    names = [f'w{i}' for i in range(12)]
    for name in names:
        start_worker(cluster, name, slots=1)
    ids = [sh(cluster, 'until [ -e "$GO" ]; do sleep 0.1; done', go) for _ in names]
    runs(cluster, *ids)
    cluster.kill9()
    away = time.monotonic()
    wait_for(lambda: time.monotonic() > away + 4, 'longer than a lease')
    cluster.start()
    cluster.connect_anew()

    def back():
        return [n for n in names if (w := info(cluster, n)) and w.state == Info.CONNECTED and len(w.attempts) == 1]
    wait_for(lambda: len(back()) == len(names), lambda: f'all are back: {back()}')
    heartbeats_go_on(cluster, names, 1)
    moments = [beat(cluster, n) for n in names]
    assert max(moments) - min(moments) > 20, 'heartbeats do not come all at once'
    go.touch()
    for i in ids:
        assert cluster.finished(i).state == State.COMPLETED and ends_of(cluster, i) == [End.SUCCEEDED]
    check(cluster, ids)


@pytest.mark.parametrize('drain', ['requeue', 'detach'])
def test_s13_sigterm_and_again(make_cluster, start_worker, tmp_path, drain):
    cluster = make_cluster(QUICK).start()
    w1 = start_worker(cluster, drain=drain, drain_timeout='1h', orphan_timeout='30s', detach_for='60s')
    until = 'echo $$; until [ -e "$GO" ]; do sleep 0.02; done'
    soon, long = sh(cluster, until, tmp_path / 'soon'), sh(cluster, until, tmp_path / 'long')
    runs(cluster, soon, long)
    w1.process.send_signal(signal.SIGTERM)
    wait_for(lambda: info(cluster, 'w1').state == Info.DRAINING, 'it drains')
    late = sh(cluster, 'true')
    heartbeats_go_on(cluster, 'w1', 12)  # two leases
    assert cluster.get(late).state == State.PENDING, 'no new work'
    (tmp_path / 'soon').touch()
    assert cluster.finished(soon).state == State.COMPLETED and ends_of(cluster, soon) == [End.SUCCEEDED]
    assert w1.process.poll() is None and cluster.get(long).state == State.RUNNING
    w1.process.send_signal(signal.SIGTERM)
    assert w1.wait() == 0
    if drain == 'requeue':
        assert not processes_of([long])
        start_worker(cluster, 'w2')
        runs(cluster, long, attempt=2)
        first = [End.STOPPED]
    else:
        assert processes_of([long])
        w1.start()
        first = []
    (tmp_path / 'long').touch()
    assert cluster.finished(long).state == State.COMPLETED and ends_of(cluster, long) == [*first, End.SUCCEEDED]
    assert cluster.finished(late).state == State.COMPLETED
    check(cluster, [soon, long, late])


# ---- programs that misbehave; with cgroups and without

@pytest.fixture(params=['auto', 'off'])
def cgroup(request):
    return request.param


def test_s40_cancelled_with_children(make_cluster, start_worker, cgroup):
    cluster = make_cluster().start()
    start_worker(cluster, cgroup=cgroup)
    t = sh(cluster, 'sleep 1000 & sleep 1000 & wait')
    runs(cluster, t)
    wait_for(lambda: len(processes_of([t])) == 3, 'a shell and two')
    cluster.cancel(t)
    assert cluster.finished(t).state == State.CANCELLED
    assert not processes_of([t])
    check(cluster, [t])


def test_s41_a_daemon_is_left(make_cluster, start_worker, cgroup, tmp_path):
    """Double fork, setsid, deaf to SIGTERM; one slot, so that the next task would meet it."""
    cluster = make_cluster().start()
    start_worker(cluster, cgroup=cgroup, slots=1, kill_grace='300ms')
    pid = tmp_path / 'pid'
    t = cluster.submit(command=[sys.executable, '-c', f'''
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open({str(pid)!r} + ".new", "w").write(str(os.getpid()))
    os.rename({str(pid)!r} + ".new", {str(pid)!r})
    time.sleep(1000)
while not os.path.exists({str(pid)!r}):
    time.sleep(0.01)
''']).id
    after = sh(cluster, f'if kill -0 $(cat {pid}) 2>/dev/null; then exit 9; fi')
    done = cluster.finished(t)
    assert (done.state, done.exit_code) == (State.COMPLETED, 0), "the outcome is the parent's"
    done = cluster.finished(after)
    assert (done.state, done.exit_code) == (State.COMPLETED, 0), 'the leftover was there when the slot was reused'
    check(cluster, [t, after])


def test_s42_out_of_memory_or_its_own_137(make_cluster, start_worker):
    cluster = make_cluster().start()
    w = start_worker(cluster)
    wait_for(lambda: info(cluster, 'w1'), 'w1')
    if not info(cluster, 'w1').resources.memory_bytes:
        pytest.skip('programs can not be held to a limit of memory here: ' + next((line for line in w.log().splitlines() if 'cgroup' in line), ''))
    limit = stubs.task.Resources(memory_bytes=64 << 20)
    eats = 'b = bytearray(256 << 20)\nfor i in range(0, len(b), 512): b[i] = 1'
    ids = [cluster.submit(command=[sys.executable, '-c', eats], resources=limit).id, sh(cluster, 'exit 137', resources=limit),
           sh(cluster, 'kill -9 $$', resources=limit)]
    first, second, third = (cluster.finished(i) for i in ids)
    assert first.state == State.FAILED and first.attempts[0].oom_killed and 'out of memory' in first.error
    assert (second.state, second.exit_code, second.attempts[0].oom_killed) == (State.FAILED, 137, False)
    assert (third.state, third.signal, third.attempts[0].oom_killed) == (State.FAILED, signal.SIGKILL, False)
    assert 'memory' not in second.error + third.error
    check(cluster, ids)


def test_s43_gpus_of_the_workers_own(make_cluster, start_worker, tmp_path, go):
    cluster = make_cluster().start()
    tools = tmp_path / 'bin'
    tools.mkdir()
    (tools / 'nvidia-smi').write_text("#!/bin/sh\nprintf '0, GPU-a\\n1, GPU-b\\n2, GPU-c\\n3, GPU-d\\n'\n")
    (tools / 'nvidia-smi').chmod(0o755)
    start_worker(cluster, env={'PATH': f'{tools}:{os.environ["PATH"]}', 'CUDA_VISIBLE_DEVICES': '2,3'})
    one = stubs.task.Resources(gpus=1)
    ids = [sh(cluster, 'echo $CUDA_VISIBLE_DEVICES; until [ -e "$GO" ]; do sleep 0.02; done', go, resources=one) for _ in range(3)]
    runs(cluster, *ids[:2])
    wait_for(lambda: all(output(cluster, i) for i in ids[:2]), 'they say what they see')
    assert sorted(output(cluster, i) for i in ids[:2]) == [b'2\n', b'3\n']
    assert sorted(list(cluster.get(i).attempts[0].devices) for i in ids[:2]) == [['2'], ['3']]
    assert cluster.get(ids[2]).state == State.PENDING, 'a third has to wait'
    go.touch()
    assert cluster.finished(ids[2]).state == State.COMPLETED and output(cluster, ids[2]) in (b'2\n', b'3\n')
    check(cluster, ids)
