"""A worker alone with the master in Python, as fixtures: `from alone import make_worker, master`."""
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
    """make_worker(env={}, pass_fds=(), folder=None, flags) -> a Worker that runs; ended with the test."""
    made = []

    def make(env=None, pass_fds=(), folder=None, **flags):
        folder = folder or tmp_path / f'w{len(made)}'
        folder.mkdir(exist_ok=True)
        w = Worker(build_dir, folder, f'127.0.0.1:{master.port}', **flags)
        w.env, w.pass_fds = env or {}, pass_fds
        made.append(w)
        return w.start()
    yield make
    for w in made:
        w.stop()


def kind(outcome):
    return outcome.Kind.Name(outcome.kind)


def cause(refused):
    return refused.Cause.Name(refused.cause)
