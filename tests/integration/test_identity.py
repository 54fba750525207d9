"""Who a worker is and whose attempts it holds: the store's identity with the real programs, and --forget. The rest of "Identity":
docs/recovery.md names its tests."""
import subprocess

import pytest
import stubs
from aftermath import check, processes_of
from cluster import LONG, wait_for
from programs import connected, ends_of, output, runs, sh
from real_worker import DEADLINE

State, End = stubs.State, stubs.End
# The worker asks for its master every second or so.
SETTINGS = {**LONG, 'lease-ttl': '10s'}
WAITS = 'echo first; until [ -e "$GO" ]; do sleep 0.02; done; echo last; echo real >"$REINS_RESULT"'


@pytest.fixture
def two_stores(make_cluster):
    """Two masters of one address, each with a store of its own; the second is what somebody starts by mistake."""
    right, wrong = make_cluster(SETTINGS), make_cluster(SETTINGS)
    wrong.address = wrong.flags['listen'] = right.address
    return right, wrong


def refused_by(wrong, w):
    """The wrong master stands in for the right one until the worker has said so."""
    wrong.start()
    wait_for(lambda: 'reins-worker --forget' in w.log(), 'it says so')
    line = next(line for line in w.log().splitlines() if 'reins-worker --forget' in line)
    assert ' ERROR ' in line, 'loudly'
    return line


def test_a_master_with_the_wrong_store(two_stores, start_worker, go, tmp_path):
    """One task runs, one has ended and could not be told: both are kept for the master whose they are."""
    right, wrong = two_stores
    right.start()
    w = start_worker(right)
    running, ended = sh(right, WAITS, go), sh(right, WAITS, tmp_path / 'soon')
    runs(right, running, ended)
    right.kill9()
    (tmp_path / 'soon').touch()
    wait_for(lambda: not processes_of([ended]), 'one ends')
    before = processes_of([running])
    line = refused_by(wrong, w)
    assert '2 attempts are kept' in line
    assert not wrong.list_all() and not wrong.sql('SELECT 1 FROM attempt')
    # Nor does an agent that is started now tell it anything.
    w.kill()
    w.start()
    wait_for(lambda: w.log().count('reins-worker --forget') >= 2, 'it says so again')
    assert {p for p, c in before.items() if c.startswith('sh')} <= set(processes_of([running])), 'it runs on'
    wrong.kill9()
    right.start()
    right.connect_anew()
    assert right.finished(ended).state == State.COMPLETED
    go.touch()
    for t in (running, ended):
        done = right.finished(t)
        assert (done.state, done.result, ends_of(right, t)) == (State.COMPLETED, b'real\n', [End.SUCCEEDED])
        assert output(right, t) == b'first\nlast\n'
    check(right, [running, ended])


def test_a_machine_that_was_started_again(make_cluster, start_worker):
    """The same instance has proved that the trees are gone: what ran is given out at once, exclusive or not."""
    cluster = make_cluster(LONG).start()
    w = start_worker(cluster)
    ids = [sh(cluster, '[ $REINS_ATTEMPT = 2 ] || exec sleep 300', exclusive=e) for e in (False, True)]
    runs(cluster, *ids)
    w.reboot()
    w.start()
    for t in ids:
        assert cluster.finished(t).state == State.COMPLETED and ends_of(cluster, t) == [End.LOST, End.SUCCEEDED]
    check(cluster, ids)


def test_forget(two_stores, start_worker, build_dir, go, tmp_path):
    """The right store does not come back: what runs is ended, what ended is dropped, and the other master has a worker."""
    right, wrong = two_stores
    right.start()
    w = start_worker(right)
    running = [sh(right, 'trap "" TERM; ' + WAITS, go), sh(right, 'setsid sleep 300 & ' + WAITS, go, exclusive=True)]
    ended = sh(right, WAITS, tmp_path / 'soon')
    runs(right, *running, ended)
    right.kill9()
    (tmp_path / 'soon').touch()
    wait_for(lambda: not processes_of([ended]), 'one ends')
    refused_by(wrong, w)
    command = [str(build_dir / 'worker' / 'reins-worker'), f'--state-dir={w.state}', '--id=w1', '--forget', '--log-level=info']

    def forget():
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    busy = forget()
    assert busy.returncode == 1 and 'in use by another' in busy.stderr and processes_of(running), 'not under an agent that lives'
    w.kill()
    done = forget()
    assert done.returncode == 0, done.stderr
    assert '2 attempts that run, 1 outcomes that no master has answered' in done.stderr, done.stderr
    assert not processes_of(running) and not list(w.state.glob('attempts/*-*.*'))
    again = forget()
    assert again.returncode == 0 and '0 attempts that run, 0 outcomes' in again.stderr, again.stderr
    w.start()
    connected(wrong, 'w1')
    t = sh(wrong, 'echo of the other store')
    assert wrong.finished(t).state == State.COMPLETED and output(wrong, t) == b'of the other store\n'
    check(wrong, [t])
