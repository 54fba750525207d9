"""What runs on a worker when its agent, or a supervisor, or the machine goes: programs outlive the agent, are taken over by
the next one, and never outlive their right to run."""
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import pytest
import stubs

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from alone import KIND, REASON, make_worker, master, session, worker  # noqa: E402, F401
from aftermath import check  # noqa: E402
from cluster import QUICK, wait_for  # noqa: E402
from fake_master import DEADLINE, new_task_id  # noqa: E402
from real_worker import alive, wait_gone  # noqa: E402

State = stubs.State
DETACH, WAIT = 2, 1
TASKS = int(os.environ.get('REINS_AGENT_TASKS', '10'))


# A program that counts, a line each, until the file appears, and says its pid first.
COUNT = 'echo pid $$; i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo end; exit 7'


def counting(master, s, go, **kw):
    key = master.run(s, 'sh', '-c', COUNT, env={'GO': str(go)}, **kw)
    log = master.printed(key, b'pid')
    return key, int(re.search(rb'pid (\d+)', log).group(1))


def is_whole(log):
    lines = log.split(b'\n')
    numbers = [int(n) for n in lines[1:-2]]
    return lines[-2:] == [b'end', b''] and numbers == list(range(1, len(numbers) + 1))


def stopped(pid):
    try:
        return 'T' in pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0]
    except FileNotFoundError:
        return False


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


# ---- the next agent takes over

def test_kill_9_under_running_tasks(make_cluster, start_worker, tmp_path):
    """S03: the programs never stop; same attempt, nothing re-run, all of the output there."""
    cluster = make_cluster().start()
    w = start_worker(cluster, slots=TASKS)
    go = tmp_path / 'go'
    ids = [cluster.submit(command=['sh', '-c', COUNT], env={'GO': str(go)}).id for _ in range(TASKS)]

    def started(i):
        return cluster.get(i).HasField('started_at')
    wait_for(lambda: all(started(i) for i in ids), 'all run', timeout=60)
    for _ in range(2):
        w.kill()
        assert len(w.supervisors()) == TASKS
        w.start()
        wait_for(lambda: f'{TASKS} attempts held' in w.log().split('state in')[-1], 'a session with all of them')
    go.touch()
    done = [cluster.finished(i, timeout=90) for i in ids]
    assert [(t.state, t.exit_code, t.attempt, len(t.attempts)) for t in done] == [(State.FAILED, 7, 1, 1)] * TASKS
    for i in ids:
        assert is_whole(b''.join(c.data for c in cluster.read_logs(i)))
    wait_for(lambda: not list(w.state.glob('attempts/*')), 'nothing is left on disk')
    check(cluster, ids)


def test_an_upgrade_is_not_noticed(master, make_worker, tmp_path):
    """SIGTERM, and another agent: detached and adopted."""
    w = make_worker(drain='detach', drain_timeout='0', detach_for='20s')
    s = master.session()
    key, pid = counting(master, s, tmp_path / 'go')
    w.process.send_signal(signal.SIGTERM)
    assert w.wait() == 0
    assert [(d.mode, d.within.seconds) for d in s.draining] == [(WAIT, 0), (DETACH, 20)]
    assert alive(pid) and not master.attempts[key].outcomes
    w.start()
    again = master.session(2)
    assert again.hello.instance == s.hello.instance and not again.hello.paused
    assert again.held[key].started_at == master.attempts[key].started.started_at and not again.held[key].has_outcome
    (tmp_path / 'go').touch()
    a = master.ended(key)
    assert (a.outcome.kind, a.outcome.exit_code) == (KIND['FAILED'], 7)
    assert is_whole(a.log) and len(a.outcomes) == 1


def test_ctrl_c_reaches_no_program(master, make_worker, tmp_path):
    w = make_worker(prefix=[shutil.which('setsid')], drain='detach', drain_timeout='0')
    key, pid = counting(master, master.session(), tmp_path / 'go')
    os.killpg(os.getpgid(w.process.pid), signal.SIGINT)
    assert w.wait() == 0
    assert alive(pid)
    w.start()
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)


def test_what_ended_while_nobody_looked(master, worker, session, tmp_path):
    (tmp_path / 'a').mkdir()
    ends = {name: counting(master, session, tmp_path / name) for name in ('go', 'killed')}
    result = master.run(session, 'sh', '-c', f'echo pid $$; until [ -e {tmp_path}/go ]; do sleep 0.01; done; printf r > "$REINS_RESULT"')
    master.printed(result, b'pid')
    worker.kill()
    before = time.time()
    (tmp_path / 'go').touch()
    os.kill(ends['killed'][1], signal.SIGSEGV)
    wait_until(lambda: not worker.supervisors(), 'the supervisors end')
    after = time.time()
    worker.start()
    for name, code, sig in (('go', 7, 0), ('killed', 0, signal.SIGSEGV)):
        a = master.ended(ends[name][0])
        assert (a.outcome.kind, a.outcome.exit_code, a.outcome.signal) == (KIND['FAILED'], code, sig)
        assert before <= a.outcome.finished_at.ToNanoseconds() / 1e9 <= after, 'the time is that of the end'
        assert name == 'killed' or is_whole(a.log)
    a = master.ended(result)
    assert (a.outcome.kind, a.outcome.result) == (KIND['SUCCEEDED'], b'r')
    wait_until(lambda: not list(worker.state.glob('attempts/*')), 'nothing is left on disk')


def test_a_time_limit_needs_no_agent(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo pid $$; sleep 300', timeout=1.5)
    master.printed(key, b'pid')
    worker.kill()
    wait_until(lambda: not worker.supervisors(), 'the supervisor ends it')
    worker.start()
    o = master.ended(key).outcome
    assert o.kind == KIND['TIMED_OUT'] and b'1500ms' in o.error


def test_stop_after_adoption(master, worker, session, tmp_path):
    key, pid = counting(master, session, tmp_path / 'go')
    worker.kill()
    worker.start()
    again = master.session(2)
    again.stop(key, text='enough')
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason, o.error) == (KIND['STOPPED'], REASON['CANCELLED'], b'enough')
    assert not alive(pid)


def test_a_stop_that_was_begun_outlives_the_agent(master, make_worker):
    w = make_worker(kill_grace='1s')
    s = master.session()
    key = master.run(s, 'sh', '-c', 'trap "echo TERM" TERM; echo pid $$; while :; do sleep 0.05; done')
    pid = int(re.search(rb'pid (\d+)', master.printed(key, b'pid')).group(1))
    s.stop(key, text='enough')
    master.printed(key, b'TERM')
    w.kill()
    wait_gone(pid)
    w.start()
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason, o.error) == (KIND['STOPPED'], REASON['CANCELLED'], b'enough')


# ---- what is lost

@pytest.mark.parametrize('reboot', [False, True], ids=['killed', 'rebooted'])
def test_supervisors_die_with_the_agent(master, worker, session, tmp_path, reboot):
    """S01, and a machine that was restarted."""
    keys = [counting(master, session, tmp_path / 'go') for _ in range(3)]
    worker.reboot() if reboot else worker.kill_all()
    worker.start()
    again = master.session(2)
    for key, pid in keys:
        assert not alive(pid), 'what is left is ended before the first word'
        assert again.held[key].has_outcome or not master.attempts[key].outcomes
        a = master.ended(key)
        assert a.outcome.kind == KIND['LOST'] and b'supervisor died' in a.outcome.error
        assert a.log.startswith(b'pid'), 'the log is there as far as it came'
    assert master.ended(master.run(again, 'true')).outcome.kind == KIND['SUCCEEDED']


def test_a_supervisor_dies_alone(master, worker, session, tmp_path):
    key = master.run(session, 'sh', '-c', 'setsid sleep 300 & echo pid $! $$; wait')
    other, other_pid = counting(master, session, tmp_path / 'go')
    pids = [int(p) for p in re.findall(rb'\d+', master.printed(key, b'pid'))]
    os.kill(worker.supervisors()[f'{key[0]}.1'], signal.SIGKILL)
    o = master.ended(key).outcome
    assert o.kind == KIND['LOST']
    assert not any(alive(p) for p in pids), 'its tree is gone when it is said to be lost'
    assert alive(other_pid) and not session.closed
    (tmp_path / 'go').touch()
    assert master.ended(other).outcome.exit_code == 7


def test_damaged_notes(master, worker, session, tmp_path):
    keys = [counting(master, session, tmp_path / 'go') for _ in range(4)]
    worker.kill()
    folders = [worker.state / 'attempts' / f'{key[0]}.1' for key, _ in keys]
    (folders[0] / 'attempt').write_bytes(b'\0\xff rubbish')
    (folders[1] / 'attempt').write_text((folders[2] / 'attempt').read_text())
    (folders[2] / 'attempt').unlink()
    (worker.state / 'attempts' / 'no-attempt-at-all').mkdir()
    worker.start()
    again = master.session(2)
    for key, pid in keys[:3]:
        assert not alive(pid)
        assert master.ended(key).outcome.kind == KIND['LOST']
    assert worker.log().count("can't be used") == 3
    key, pid = keys[3]
    assert alive(pid) and not again.held[key].has_outcome
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)
    wait_until(lambda: not list(worker.state.glob('attempts/*')), 'nothing is left on disk')


def test_what_only_looks_like_an_attempt(master, worker, session, tmp_path):
    """Nothing below attempts/ keeps a worker from starting."""
    key, pid = counting(master, session, tmp_path / 'go')
    worker.kill()
    attempts = worker.state / 'attempts'
    names = [f'{new_task_id()}.1' for _ in range(4)]
    (attempts / names[0]).write_text('a file')
    os.symlink('/etc', attempts / names[1])
    os.mkfifo(attempts / names[2])
    (attempts / names[3]).mkdir()
    os.mkfifo(attempts / names[3] / 'attempt')
    worker.start()
    again = master.session(2)
    assert master.ended((names[3][:-2], 1)).outcome.kind == KIND['LOST']
    assert set(again.held) == {key, (names[3][:-2], 1)} and alive(pid)
    wait_until(lambda: [p.name for p in attempts.iterdir()] == [f'{key[0]}.1'], 'the rest is removed')
    assert pathlib.Path('/etc/passwd').exists()
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)


def test_a_stop_reaches_a_program_that_stopped_its_supervisor(master, worker, session):
    key = master.run(session, 'sh', '-c', 'kill -STOP $PPID; exec sleep 60')
    wait_until(lambda: any(stopped(pid) for pid in worker.supervisors().values()), 'it is stopped')
    session.stop(key)
    assert master.ended(key).outcome.kind == KIND['STOPPED']


def test_a_time_limit_holds_for_a_program_that_stopped_its_supervisor(master, worker, session):
    """Each heartbeat's answer wakes it."""
    key = master.run(session, 'sh', '-c', 'kill -STOP $PPID; exec sleep 60', timeout=0.3)
    assert master.ended(key).outcome.kind == KIND['TIMED_OUT']


def test_what_never_had_a_supervisor_was_never_started(master, worker, session):
    worker.kill()
    name = '01990000-0000-7000-8000-000000000001.3'
    (worker.state / 'attempts' / name / 'work').mkdir(parents=True)
    worker.start()
    assert not master.session(2).held
    assert not list(worker.state.glob('attempts/0*'))


# ---- the right to run ends

@pytest.mark.parametrize('how', ['killed', 'stopped'])
def test_an_exclusive_tree_is_gone_before_the_lease(master, make_worker, how):
    """The agent is dead, or stands still: the supervisor knows when it has to end."""
    master.lease = 4.0
    w = make_worker(kill_grace='300ms')
    s = master.session()
    key = master.run(s, 'sh', '-c', 'trap "" TERM; sleep 300 & echo pid $$ $!; while :; do sleep 1; done', exclusive=True)
    pids = [int(p) for p in re.findall(rb'\d+', master.printed(key, b'pid'))]
    n = len(s.heartbeats)
    master.wait(lambda: len(s.heartbeats) > n + 2, 'renewals')
    w.process.send_signal(signal.SIGKILL if how == 'killed' else signal.SIGSTOP)
    try:
        last = s.heartbeats[-1][0]  # none is sent after this one
        while any(alive(p) for p in pids):
            assert time.monotonic() < last + master.lease, 'the tree outlives the lease'
            time.sleep(0.005)
    finally:
        if how == 'stopped':
            w.process.send_signal(signal.SIGCONT)
    if how == 'killed':
        w.process.wait()
        w.start()
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason) == (KIND['STOPPED'], REASON['LEASE_ENDED'])


def test_without_an_agent_it_ends(master, make_worker, tmp_path):
    master.lease = 1.0
    w = make_worker(orphan_timeout='1s')
    key, pid = counting(master, master.session(), tmp_path / 'go')
    w.kill()
    wait_gone(pid)
    wait_until(lambda: not w.supervisors(), 'its supervisor ends')
    w.start()
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason) == (KIND['STOPPED'], REASON['LEASE_ENDED']) and b'no agent came back' in o.error


def test_a_long_outage_of_the_master_does_not_count_as_one_of_the_agent(master, make_worker, tmp_path):
    """The agent was there all the time: when it goes, its successor has the whole orphan-timeout."""
    master.lease = 0.6
    w = make_worker(orphan_timeout='2s')
    s = master.session()
    key, pid = counting(master, s, tmp_path / 'go')
    master.auto_welcome = False
    s.cut()
    tries = len(master.sessions)
    wait_until(lambda: time.monotonic() > s.heartbeats[-1][0] + 3.5, 'longer than lease and orphan-timeout')
    assert len(master.sessions) > tries
    w.kill()
    master.auto_welcome = True
    w.start()
    master.wait(lambda: key in master.sessions[-1].held and master.sessions[-1].heartbeats, 'it is held')
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log) and not alive(pid)


def test_fenced_after_adoption(master, worker, session, tmp_path):
    key, pid = counting(master, session, tmp_path / 'go')
    worker.kill()
    master.auto_welcome = False
    worker.start()
    master.wait(lambda: len(master.sessions) > 1 and master.sessions[1].held, 'the list')
    master.sessions[1].welcome(adopted={})
    master.sessions[1].stop(key, 'FENCED')
    wait_gone(pid)
    master.wait(lambda: master.sessions[1].heartbeats and not master.sessions[1].heartbeats[-1][1].attempts, 'it is forgotten')
    assert not master.attempts[key].outcomes


# ---- leaving

def test_drain_waits_and_then_leaves_it(master, make_worker, tmp_path):
    """S13: no new work, heartbeats go on; a second SIGTERM applies the policy at once."""
    w = make_worker(drain='detach', drain_timeout='60s')
    s = master.session()
    key, pid = counting(master, s, tmp_path / 'go')
    short, _ = counting(master, s, tmp_path / 'soon')
    w.process.send_signal(signal.SIGTERM)
    master.wait(lambda: s.draining, 'draining')
    n = len(s.heartbeats)
    master.wait(lambda: len(s.heartbeats) > n + 3, 'heartbeats go on')
    late = master.run(s, 'true')
    assert master.wait(lambda: master.attempts[late].refused, 'refusal').cause == master.pb.RefusedAttempt.DRAINING
    (tmp_path / 'soon').touch()
    assert is_whole(master.ended(short).log)
    w.process.send_signal(signal.SIGTERM)
    assert w.wait() == 0
    assert alive(pid) and s.draining[-1].mode == DETACH
    w.start()
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)


def test_drain_wait_has_no_end(master, make_worker, tmp_path):
    w = make_worker(drain='wait', drain_timeout='0')
    s = master.session()
    key, _ = counting(master, s, tmp_path / 'go')
    w.process.send_signal(signal.SIGTERM)
    master.wait(lambda: s.draining, 'draining')
    n = len(s.heartbeats)
    master.wait(lambda: len(s.heartbeats) > n + 3, 'heartbeats go on')
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)
    assert w.wait() == 0


def test_drain_to_detach_by_the_master(master, make_worker, tmp_path):
    w = make_worker()
    s = master.session()
    key, pid = counting(master, s, tmp_path / 'go')
    drain = master.pb.Drain(mode=DETACH)
    drain.within.FromSeconds(33)
    s.send(drain=drain)
    assert w.wait() == 0
    assert (s.draining[-1].mode, s.draining[-1].within.seconds) == (DETACH, 33)
    assert alive(pid)
    w.start()
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)


def test_detached_programs_wait_longer(master, make_worker, tmp_path):
    """Longer than lease and orphan-timeout; an exclusive one does not."""
    master.lease = 1.0
    w = make_worker(drain='detach', drain_timeout='0', detach_for='20s', orphan_timeout='500ms', kill_grace='100ms')
    s = master.session()
    key, pid = counting(master, s, tmp_path / 'go')
    exclusive, exclusive_pid = counting(master, s, tmp_path / 'go', exclusive=True)
    left = time.monotonic()
    w.process.send_signal(signal.SIGTERM)
    assert w.wait() == 0
    wait_gone(exclusive_pid)
    wait_until(lambda: time.monotonic() > left + 2.5, 'lease and orphan-timeout are over')
    assert alive(pid)
    w.start()
    assert master.ended(exclusive).outcome.stop_reason == REASON['LEASE_ENDED']
    (tmp_path / 'go').touch()
    assert is_whole(master.ended(key).log)


# ---- supervisors that misbehave: one made of Python stands beside a copy of the agent

@pytest.fixture
def with_supervisor(build_dir, tmp_path):
    """with_supervisor(mode) -> a build folder of which the supervisor is fake_supervisor.py in that mode."""
    def make(mode):
        folder = tmp_path / 'programs'
        (folder / 'worker').mkdir(parents=True)
        shutil.copy(build_dir / 'worker' / 'reins-worker', folder / 'worker')
        script = folder / 'worker' / 'reins-supervisor'
        fake = pathlib.Path(__file__).parent / 'fake_supervisor.py'
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} {mode} {tmp_path}\n')
        script.chmod(0o755)
        return folder
    return make


def test_a_tree_that_can_not_be_ended_keeps_its_slot(master, make_worker, with_supervisor, tmp_path):
    w = make_worker(programs=with_supervisor('stuck'), slots=2)
    s = master.session()
    key = master.run(s, 'whatever')
    master.started(key)
    s.stop(key)

    def stuck():
        return s.heartbeats[-1][1].stuck
    master.wait(stuck, 'it is told')
    assert [(x.task_id, x.attempt, x.reason) for x in stuck()] == [(*key, 'not ended 1 s after SIGKILL: 17 (d?)')]
    assert "can't be ended" in w.log() and not master.attempts[key].outcomes
    other = master.run(s, 'whatever')
    master.started(other)
    third = master.run(s, 'whatever')
    assert master.wait(lambda: master.attempts[third].refused, 'refusal').cause == master.pb.RefusedAttempt.BUSY
    (tmp_path / 'gone').touch()
    assert master.ended(key).outcome.kind == KIND['STOPPED']
    master.wait(lambda: not stuck(), 'it is told no more')
    s.stop(other)
    master.ended(other)


def test_failures_of_the_workers_own(master, make_worker, with_supervisor):
    """Not the program's: refused, not reported; after some in a row no task is taken, and it is said why."""
    w = make_worker(programs=with_supervisor('own-failure'), launch_failures=3)
    s = master.session()
    for _ in range(3):
        key = master.run(s, 'whatever')
        refused = master.wait(lambda: master.attempts[key].refused, 'refusal')
        assert (refused.cause, refused.text) == (master.pb.RefusedAttempt.LAUNCH, 'no cgroup for it')
        assert master.attempts[key].accepted and not master.attempts[key].outcomes and not master.attempts[key].started
    key = master.run(s, 'whatever')
    refused = master.wait(lambda: master.attempts[key].refused, 'refusal')
    assert refused.cause == master.pb.RefusedAttempt.PAUSED and 'no cgroup for it' in refused.text
    master.wait(lambda: s.heartbeats[-1][1].paused, 'paused')
    assert '3 launches in a row failed' in s.heartbeats[-1][1].paused_reason
    assert 'no tasks are taken until' in w.log()
    wait_until(lambda: not list(w.state.glob('attempts/*')), 'nothing is left on disk')


def test_a_supervisor_that_ends_before_it_has_the_job(master, make_worker, with_supervisor):
    w = make_worker(programs=with_supervisor('dies'))
    s = master.session()
    key = master.run(s, 'whatever')
    assert master.wait(lambda: master.attempts[key].refused, 'refusal').cause == master.pb.RefusedAttempt.LAUNCH
    assert not master.attempts[key].outcomes and w.process.poll() is None


# ---- with a real master

def test_two_workers_with_one_id(make_cluster, start_worker, tmp_path):
    """S05: the newer wins; the older ends what it runs, says why, and exits."""
    cluster = make_cluster(QUICK).start()
    old = start_worker(cluster)
    go = tmp_path / 'go'
    t = cluster.submit(command=['sh', '-c', COUNT], env={'GO': str(go)})
    wait_for(lambda: cluster.get(t.id).HasField('started_at'), 'it runs')
    sups = old.supervisors()
    assert len(sups) == 1
    start_worker(cluster)  # with a state directory of its own, so another instance
    assert old.wait() == 1
    assert not old.supervisors() and 'another process has taken over the id' in old.log()
    wait_for(lambda: cluster.get(t.id).attempt == 2 and cluster.get(t.id).state == State.RUNNING, 'it runs anew')
    go.touch()
    assert cluster.finished(t.id).attempt == 2


def test_an_empty_state_directory(make_cluster, start_worker, tmp_path):
    """S02: under the same id, within the lease: the old instance's attempts end at once, an exclusive one after the lease."""
    cluster = make_cluster().start()
    old = start_worker(cluster, orphan_timeout='1ms', kill_grace='100ms')
    script = ['sh', '-c', '[ $REINS_ATTEMPT = 2 ] || sleep 300']
    plain, exclusive = cluster.submit(command=script), cluster.submit(command=script, exclusive=True)
    wait_for(lambda: all(cluster.get(t.id).HasField('started_at') for t in (plain, exclusive)), 'both run')
    old.kill()
    start_worker(cluster)
    done = cluster.finished(plain.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 2)
    assert cluster.get(exclusive.id).attempt == 1, 'its lease is not over'
    done = cluster.finished(exclusive.id, timeout=60)
    assert (done.state, done.attempt) == (State.COMPLETED, 2)


def test_everything_stands_still_for_longer_than_the_lease(make_cluster, start_worker, tmp_path):
    """S07: agent, supervisor and program are stopped; another worker finishes the task; then they go on."""
    cluster = make_cluster(QUICK).start()
    w = start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || while :; do echo late; sleep 0.01; done'])
    wait_for(lambda: cluster.get(t.id).HasField('started_at') and cluster.read_logs(t.id), 'it prints')
    pid = int(b''.join(c.data for c in cluster.read_logs(t.id)).split()[0])
    frozen = [w.process.pid, *w.supervisors().values(), pid]
    assert len(frozen) == 3
    for p in frozen:
        os.kill(p, signal.SIGSTOP)
    try:
        start_worker(cluster, 'w2')
        done = cluster.finished(t.id)
        assert (done.state, done.attempt, done.worker_id) == (State.COMPLETED, 2, 'w2')
    finally:
        for p in reversed(frozen):
            os.kill(p, signal.SIGCONT)
    wait_gone(pid)
    wait_for(lambda: 'fenced' in w.log(), 'the agent is told')
    wait_for(lambda: not w.supervisors(), 'its supervisor ends')
    again = cluster.get(t.id)
    assert (again.state, again.attempt, again.worker_id) == (State.COMPLETED, 2, 'w2')


def test_the_machine_goes_and_comes_back(make_cluster, start_worker):
    """S01 with the state directory: the losses are told as such, and the tasks run again."""
    cluster = make_cluster().start()
    w = start_worker(cluster, slots=8)
    ids = [cluster.submit(command=['sh', '-c', '[ $REINS_ATTEMPT = 2 ] || sleep 300']).id for _ in range(8)]
    wait_for(lambda: all(cluster.get(i).HasField('started_at') for i in ids), 'all run')
    w.kill_all()
    w.start()
    done = [cluster.finished(i) for i in ids]
    assert all((t.state, t.attempt) == (State.COMPLETED, 2) for t in done)
    assert all(t.attempts[0].end == stubs.End.LOST for t in done)


def test_a_connection_that_is_cut_again_and_again(master, worker, session, tmp_path):
    """S09: one attempt, its output whole, one outcome."""
    key, _ = counting(master, session, tmp_path / 'go')
    for n in range(1, 9):
        seen = master.attempts[key].log_end
        s = master.session(n)
        assert n == 1 or key in s.held
        master.wait(lambda: master.attempts[key].log_end > seen, 'it goes on')
        s.cut()
    (tmp_path / 'go').touch()
    a = master.ended(key)
    assert is_whole(a.log) and len(a.outcomes) == 1 and a.dropped == 0


def test_a_task_that_takes_many_leases(make_cluster, start_worker):
    """S10: one attempt, exclusive or not; a hundred leases with REINS_SLOW."""
    leases = 100 if os.environ.get('REINS_SLOW') else 8
    cluster = make_cluster(QUICK).start()
    start_worker(cluster)
    seconds = str(leases * 1.5)
    tasks = [cluster.submit(command=['sleep', seconds], exclusive=exclusive) for exclusive in (False, True)]
    for t in tasks:
        done = cluster.finished(t.id, timeout=leases * 1.5 + 30)
        assert (done.state, done.attempt, len(done.attempts)) == (State.COMPLETED, 1, 1)
