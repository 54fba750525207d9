"""reinsd and reins-worker together, on Postgres and Redis: the main job with real programs, over TLS and in clear
text."""
import hashlib
import signal
import sys

import pytest
import stubs
from cluster import QUICK, wait_for
from real_worker import alive, wait_gone

State = stubs.State


@pytest.fixture(params=['tls', 'clear'])
def tls(request):
    return request.param == 'tls'


@pytest.fixture
def cluster(make_cluster, tls):
    return make_cluster(tls=tls).start()


@pytest.fixture
def quick(make_cluster, tls):
    return make_cluster(QUICK, tls=tls).start()


def log_of(cluster, task_id):
    chunks = cluster.read_logs(task_id)
    return {stream: b''.join(c.data for c in chunks if c.stream == stream) for stream in (1, 2)}


def first_log(cluster, task_id):
    return wait_for(lambda: log_of(cluster, task_id)[1], 'the first words')


def test_a_python_program(cluster, start_worker):
    start_worker(cluster)
    t = cluster.submit(command=[sys.executable, '-c', '''
import json, os, sys
p = json.loads(os.environ["REINS_PARAMS"])
print("reward", float(p["lr"]) * 10)
print("stdin", sys.stdin.buffer.read(), file=sys.stderr)
with open(os.environ["REINS_RESULT"], "wb") as f:
    f.write(b"model\\0\\xff")
sys.exit(7)
'''], params={'lr': '0.25'}, payload=b'\0in')
    done = cluster.finished(t.id)
    assert (done.state, done.exit_code, done.attempt, done.worker_id) == (State.FAILED, 7, 1, 'w1')
    assert log_of(cluster, t.id) == {1: b'reward 2.5\n', 2: b"stdin b'\\x00in'\n"}
    t = cluster.submit(command=['sh', '-c', r'printf "a\000b" > "$REINS_RESULT"'])
    done = cluster.finished(t.id)
    assert (done.state, done.exit_code, done.result) == (State.COMPLETED, 0, b'a\0b')
    assert done.HasField('started_at') and done.HasField('finished_at')


def test_what_can_not_be_started(cluster, start_worker):
    start_worker(cluster)
    done = cluster.finished(cluster.submit(command=['no-such-program']).id)
    assert done.state == State.FAILED and 'no-such-program: No such file' in done.error
    assert done.attempts[0].end == stubs.End.LAUNCH_FAILED


def test_a_long_log_is_whole_when_the_task_is_done(cluster, start_worker):
    start_worker(cluster)
    t = cluster.submit(command=['seq', '200000'])
    assert cluster.finished(t.id, timeout=60).state == State.COMPLETED
    assert log_of(cluster, t.id)[1] == b''.join(b'%d\n' % i for i in range(1, 200001))


def test_many_small_tasks_over_two_workers(cluster, start_worker):
    for name in ('w1', 'w2'):
        start_worker(cluster, name, slots=8)
    ids = [cluster.submit(command=['sh', '-c', f'echo {i}']).id for i in range(300)]
    done = [cluster.finished(i, timeout=90) for i in ids]
    assert all(t.state == State.COMPLETED and t.attempt == 1 for t in done)
    assert {t.worker_id for t in done} == {'w1', 'w2'}
    assert [log_of(cluster, t.id)[1] for t in done[:20]] == [b'%d\n' % i for i in range(20)]


def test_cancel_ends_the_program(cluster, start_worker):
    start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; sleep 300'])
    pid = int(first_log(cluster, t.id))
    cluster.cancel(t.id)
    assert cluster.finished(t.id).state == State.CANCELLED
    wait_gone(pid)


def test_a_program_goes_on_over_a_restart_of_the_master(cluster, start_worker, tmp_path):
    start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', f'echo $$; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo end'])
    pid = int(first_log(cluster, t.id))
    cluster.restart()
    wait_for(lambda: 'session=2' in cluster.log() or cluster.health() == 'SERVING', 'the master')
    (tmp_path / 'go').touch()
    done = cluster.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert log_of(cluster, t.id)[1] == b'%d\nend\n' % pid


def test_an_outcome_of_while_the_master_was_away(cluster, start_worker):
    start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; sleep 0.5; exit 9'])
    pid = int(first_log(cluster, t.id))
    cluster.kill9()
    wait_gone(pid)
    cluster.start()
    done = cluster.finished(t.id)
    assert (done.state, done.exit_code, done.attempt) == (State.FAILED, 9, 1)


def test_a_machine_that_comes_back_runs_it_again(cluster, start_worker):
    w = start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || sleep 300'])
    pid = int(first_log(cluster, t.id))
    w.kill_all()
    w.start()
    done = cluster.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 2)
    assert not alive(pid)


def test_a_killed_worker_is_replaced_by_another(quick, start_worker):
    cluster = quick
    w = start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || sleep 300'])
    first_log(cluster, t.id)
    w.kill_all()
    start_worker(cluster, 'w2')
    done = cluster.finished(t.id)
    assert (done.state, done.attempt, done.worker_id) == (State.COMPLETED, 2, 'w2')


def test_an_exclusive_task_of_a_paused_worker(quick, start_worker):
    """The agent stands still: its lease ends; the supervisor ends the tree, and the second attempt stands."""
    cluster = quick
    w = start_worker(cluster, kill_grace='200ms')
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || sleep 300'], exclusive=True)
    pid = int(first_log(cluster, t.id))
    w.process.send_signal(signal.SIGSTOP)
    try:
        start_worker(cluster, 'w2')
        done = cluster.finished(t.id)
        assert (done.attempt, done.worker_id) == (2, 'w2')
    finally:
        w.process.send_signal(signal.SIGCONT)
    wait_gone(pid)


def test_exclusive_runs_longer_than_its_lease(quick, start_worker):
    cluster = quick
    start_worker(cluster)
    t = cluster.submit(command=['sleep', '4'], exclusive=True)
    done = cluster.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 1)


def test_drain_gives_back(cluster, start_worker):
    w = start_worker(cluster, drain_timeout='200ms')
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_WORKER_ID = w2 ] || sleep 300'])
    first_log(cluster, t.id)
    w.process.send_signal(signal.SIGTERM)
    assert w.wait() == 0
    start_worker(cluster, 'w2')
    done = cluster.finished(t.id)
    assert (done.state, done.worker_id) == (State.COMPLETED, 'w2')


def test_timeout_and_retry(cluster, start_worker):
    start_worker(cluster)
    spec = stubs.task.TaskSpec()
    spec.timeout.FromMilliseconds(300)
    done = cluster.finished(cluster.submit(command=['sleep', '60'], timeout=spec.timeout).id)
    assert done.state == State.FAILED and done.attempts[0].end == stubs.End.TIMED_OUT
    spec.retry.max_attempts = 3
    spec.retry.initial_backoff.FromMilliseconds(50)
    done = cluster.finished(cluster.submit(command=['sh', '-c', '[ $REINS_ATTEMPT = 3 ]'], retry=spec.retry).id)
    assert (done.state, done.attempt) == (State.COMPLETED, 3)


def test_a_program_that_dies_by_a_signal(cluster, start_worker):
    start_worker(cluster)
    done = cluster.finished(cluster.submit(command=['sh', '-c', 'echo here; kill -SEGV $$']).id)
    assert (done.state, done.signal, done.attempt) == (State.FAILED, signal.SIGSEGV, 1)
    assert not done.HasField('exit_code') and log_of(cluster, done.id)[1] == b'here\n'


def test_binary_output_arrives_as_it_is(cluster, start_worker):
    start_worker(cluster)
    program = 'import sys; b = bytes(range(256)) * 4096; sys.stdout.buffer.write(b); sys.stderr.buffer.write(b[::-1])'
    done = cluster.finished(cluster.submit(command=[sys.executable, '-c', program]).id)
    sent = bytes(range(256)) * 4096
    assert done.state == State.COMPLETED
    assert [hashlib.sha256(x).digest() for x in log_of(cluster, done.id).values()] == [
        hashlib.sha256(x).digest() for x in (sent, sent[::-1])]


def test_programs_that_print_nothing_or_close_what_they_have(cluster, start_worker):
    start_worker(cluster)
    nothing = cluster.submit(command=['true'])
    closes_stdin = cluster.submit(command=['sh', '-c', 'exec <&-; sleep 0.1; echo on'], payload=b'x' * 1000000)
    closes_all = cluster.submit(command=['sh', '-c', 'exec <&- >&- 2>&-; sleep 0.1; exit 3'])
    reads_half = cluster.submit(command=['sh', '-c', 'head -c 10; sleep 0.1'], payload=b'y' * 1000000)
    for t, exit_code, output in ((nothing, 0, b''), (closes_stdin, 0, b'on\n'), (closes_all, 3, b''),
                                 (reads_half, 0, b'y' * 10)):
        done = cluster.finished(t.id)
        assert (done.exit_code, done.attempt, done.signal) == (exit_code, 1, 0)
        assert log_of(cluster, t.id) == {1: output, 2: b''}


def test_a_program_that_ignores_sigterm(cluster, start_worker):
    start_worker(cluster, kill_grace='300ms')
    t = cluster.submit(command=['sh', '-c', 'trap "" TERM; echo $$; while :; do sleep 0.05; done'])
    pid = int(first_log(cluster, t.id))
    cluster.cancel(t.id)
    assert cluster.finished(t.id).state == State.CANCELLED
    wait_gone(pid)
