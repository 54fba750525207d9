"""What the integration suites share: the programs under test and Python stubs of the contract.

REINS_BUILD names the build folder (default: build); the programs are taken from there.
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

pytest.register_assert_rewrite("examples")

import stubs as contract  # noqa: E402
from cluster import cluster, make_cluster, need_reinsd, quick, servers, shared  # noqa: E402,F401
from fake_worker import make_worker  # noqa: E402,F401
from later import leave_out  # noqa: E402
from programs import go  # noqa: E402,F401
from real_worker import start_worker  # noqa: E402,F401


def pytest_collection_modifyitems(config, items):
    leave_out(config, items)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == 'call' and report.failed:
        item.has_failed = True


@pytest.fixture(scope='session')
def build_dir():
    build = pathlib.Path(os.environ.get('REINS_BUILD', contract.ROOT / 'build')).resolve()
    if not (build / 'build.ninja').exists():
        pytest.fail(f'{build} is no build folder; run `meson setup build && ninja -C build`, or set REINS_BUILD')
    return build


@pytest.fixture(scope='session')
def stubs():
    """The generated modules by their names: stubs.task_pb2, stubs.task_service_pb2_grpc, stubs.health_pb2 …"""
    return contract.every
