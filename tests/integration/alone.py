"""A worker alone with the master in Python, as fixtures: `from alone import make_worker, master, worker, session`."""
import pytest

from fake_master import FakeMaster
from real_worker import Worker


@pytest.fixture
def master(stubs):
    m = FakeMaster(stubs)
    yield m
    m.close()


@pytest.fixture
def make_worker(build_dir, tmp_path, master):
    """make_worker(name='w', server=None, programs=None, env={}, pass_fds=(), folder=None, flags) -> a Worker that runs; ended
    with the test. programs: the folder of other programs than those of the build."""
    made = []

    def make(name='w', server=None, programs=None, env=None, pass_fds=(), folder=None, **flags):
        folder = folder or tmp_path / f'{name}{len(made)}'
        folder.mkdir(exist_ok=True)
        w = Worker(programs or build_dir, folder, server or f'127.0.0.1:{master.port}', **flags)
        w.env, w.pass_fds = env or {}, pass_fds
        made.append(w)
        return w.start()
    yield make
    for w in made:
        w.stop()


@pytest.fixture
def worker(make_worker):
    return make_worker()


@pytest.fixture
def session(master, worker):
    return master.session()


KIND = {'SUCCEEDED': 1, 'FAILED': 2, 'LAUNCH_FAILED': 3, 'STOPPED': 4, 'TIMED_OUT': 5, 'LOST': 6}
REASON = {'CANCELLED': 1, 'FENCED': 2, 'RECALLED': 3, 'DRAINED': 4, 'LEASE_ENDED': 5, 'LOCAL': 6}


def kind(outcome):
    return outcome.Kind.Name(outcome.kind)


def cause(refused):
    return refused.Cause.Name(refused.cause)
