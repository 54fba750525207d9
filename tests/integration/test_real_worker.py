"""reinsd and reins-worker together, on Postgres and Redis: the main job with real programs."""
import signal
import sys

import pytest
import stubs
from cluster import wait_for
from real_worker import Worker, alive, wait_gone

State = stubs.State


@pytest.fixture
def start_worker(build_dir, tmp_path):
    made = []

    def start(cluster, name='w1', **flags):
        folder = tmp_path / f'{name}-{len(made)}'
        folder.mkdir()
        made.append(Worker(build_dir, folder, cluster.address, id=name, **flags))
        return made[-1].start()
    yield start
    for w in made:
        w.stop()


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
    t = cluster.submit(command=['seq', '300000'])
    assert cluster.finished(t.id, timeout=60).state == State.COMPLETED
    assert log_of(cluster, t.id)[1] == b''.join(b'%d\n' % i for i in range(1, 300001))


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


def test_a_killed_worker_that_comes_back_runs_it_again(cluster, start_worker):
    w = start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || sleep 300'])
    pid = int(first_log(cluster, t.id))
    w.kill()
    w.start()
    done = cluster.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 2)
    assert not alive(pid)


def test_a_killed_worker_is_replaced_by_another(quick, start_worker):
    cluster = quick
    w = start_worker(cluster)
    t = cluster.submit(command=['sh', '-c', 'echo $$; [ $REINS_ATTEMPT = 2 ] || sleep 300'])
    first_log(cluster, t.id)
    w.kill()
    start_worker(cluster, 'w2')
    done = cluster.finished(t.id)
    assert (done.state, done.attempt, done.worker_id) == (State.COMPLETED, 2, 'w2')


def test_an_exclusive_task_of_a_paused_worker(quick, start_worker):
    """The agent stands still: its lease ends; when it wakes it ends the tree, and the second attempt stands."""
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
