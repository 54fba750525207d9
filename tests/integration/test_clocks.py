"""Scenarios S52 and S53 of docs/scenarios.md: wall clocks that are stepped or wrong under the real programs (wall_clock.c)."""
import os
import shlex
import shutil
import struct
import time

import pytest
import stubs
from aftermath import check
from cluster import QUICK, REINSD, make_spec, wait_for
from programs import connected, ends_of, heartbeats_go_on, info, runs, seconds, sh
from real_worker import workers

State, End, T = stubs.State, stubs.End, stubs.tasks
HOUR = 3600
TEN_YEARS = 10 * 365 * 24 * HOUR
LIMIT = 2


class Clock:
    """.env is for programs that are to read the wall clock so many seconds off; step() changes it under them."""

    def __init__(self, build_dir, path):
        self.path = path
        self.env = {'LD_PRELOAD': str(build_dir / 'tests/integration/libwall_clock.so'), 'WALL_CLOCK': str(path)}
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.step(0)

    def step(self, off):
        os.pwrite(self.file, struct.pack('=q', off), 0)
        return self

    def programs(self, build_dir):
        """A build folder of which the supervisor too reads this clock; it does not get the agent's environment."""
        folder = self.path.with_name('programs') / 'worker'
        folder.mkdir(parents=True)
        shutil.copy(build_dir / 'worker' / 'reins-worker', folder)
        script = folder / 'reins-supervisor'
        script.write_text('#!/bin/sh\n' + ''.join(f'export {k}={shlex.quote(v)}\n' for k, v in self.env.items()) +
                          f'exec {build_dir}/worker/reins-supervisor "$@"\n')
        script.chmod(0o755)
        return folder.parent


@pytest.fixture
def clock(build_dir, tmp_path):
    if b'__asan_init' in REINSD.read_bytes():
        pytest.skip('nothing can be loaded before the sanitizers')
    made = Clock(build_dir, tmp_path / 'clock')
    yield made
    os.close(made.file)


@pytest.fixture
def start_worker(build_dir, tmp_path, clock):
    with workers(clock.programs(build_dir), tmp_path) as start:
        yield start


def timestamp(at):
    made = stubs.task.TaskSpec().run_at
    made.FromNanoseconds(int(at * 1e9))
    return made


def limited(cluster):
    spec = make_spec(command=['sleep', '1000'])
    spec.timeout.FromSeconds(LIMIT)
    return cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task.id


def ends_by_its_limit(cluster, task, began):
    """Not before; how much later says nothing but how busy the machine is."""
    done = cluster.finished(task)
    assert (done.state, ends_of(cluster, task)) == (State.FAILED, [End.TIMED_OUT]), done
    assert time.monotonic() > began + LIMIT


@pytest.mark.parametrize('store', ['postgres', 'sqlite'])
def test_s52_the_wall_clock_is_stepped(make_cluster, start_worker, clock, go, tmp_path, store):
    """That of master and worker, while tasks run and wait. The database's clock is the one that run_at goes by: Postgres keeps
    its own, SQLite has the master's."""
    own = {'store': f'sqlite:{tmp_path}/reins.db', 'lease': 'memory'} if store == 'sqlite' else {}
    cluster = make_cluster({**QUICK, **own}, env=clock.env).start()
    start_worker(cluster, env=clock.env, slots=8)
    journal = tmp_path / 'journal'
    running = [sh(cluster, 'until [ -e "$GO" ]; do sleep 0.05; done', go, exclusive=e) for e in (False, True)]
    runs(cluster, *running)
    session = info(cluster, 'w1').session

    def at(moment):
        """A task of that run_at, which notes when it runs."""
        return sh(cluster, f'echo $REINS_TASK_ID >>{journal}', run_at=timestamp(moment))
    def retried():
        """One whose first attempt has failed, and whose second has to wait."""
        retry = stubs.task.RetryPolicy(max_attempts=2)
        retry.initial_backoff.FromMilliseconds(1500)
        t = sh(cluster, '[ $REINS_ATTEMPT = 2 ]', retry=retry)
        wait_for(lambda: ends_of(cluster, t) == [End.FAILED], 'its first attempt fails')
        return t
    waiting, again = [], []
    for off in (-HOUR, HOUR, TEN_YEARS):
        clock.step(0)
        began = time.monotonic()
        slow = limited(cluster)
        runs(cluster, slow)
        due = time.time() + 1.5
        waiting.append(at(due))
        again.append(retried())
        clock.step(off)
        waiting.append(at(due))
        heartbeats_go_on(cluster, 'w1', 8)  # longer than a lease
        ends_by_its_limit(cluster, slow, began)
        if store == 'postgres':
            assert cluster.finished(again[-1]).state == State.COMPLETED
            for t in waiting[-2:]:
                assert cluster.finished(t).state == State.COMPLETED
                assert cluster.sql('SELECT dispatched_at >= run_at FROM task JOIN ended ON task_id = id WHERE id = %s', t) == [(True,)]
        assert info(cluster, 'w1').session == session
        assert [(cluster.get(t).state, cluster.get(t).attempt) for t in running] == [(State.RUNNING, 1)] * 2
    clock.step(0)
    go.touch()
    for t in running + waiting:
        assert cluster.finished(t).state == State.COMPLETED and ends_of(cluster, t) == [End.SUCCEEDED]
    assert sorted(journal.read_text().split()) == sorted(waiting), 'each once'
    for t in again:
        assert cluster.finished(t).state == State.COMPLETED and ends_of(cluster, t) == [End.FAILED, End.SUCCEEDED]
    check(cluster, [*running, *waiting, *again])


@pytest.mark.parametrize('off', [-600, 600])
def test_s53_a_workers_clock_is_wrong(make_cluster, start_worker, clock, go, off):
    cluster = make_cluster(QUICK).start()
    start_worker(cluster, env=clock.step(off).env)
    connected(cluster, 'w1')
    session = info(cluster, 'w1').session
    running = [sh(cluster, 'until [ -e "$GO" ]; do sleep 0.05; done', go, exclusive=e) for e in (False, True)]
    runs(cluster, *running)
    began = time.monotonic()
    slow = limited(cluster)
    heartbeats_go_on(cluster, 'w1', 12)  # two leases
    ends_by_its_limit(cluster, slow, began)
    assert info(cluster, 'w1').session == session
    go.touch()
    for t in running:
        done = cluster.finished(t)
        assert done.state == State.COMPLETED and ends_of(cluster, t) == [End.SUCCEEDED]
        # What the worker says is by its clock; so it was wrong.
        assert abs(seconds(done.finished_at) - time.time() - off) < 300
    check(cluster, [*running, slow])
