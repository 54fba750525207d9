"""Interop: clients and proxies that need more than the ordinary suites may ask for. tests/long/interop.sh runs them.

Each test tells what it did by the fixture `row`; the table is printed at the end."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from cluster import need_reinsd, servers  # noqa: E402,F401
from examples import clusters_with_a_worker  # noqa: E402


HERE = pathlib.Path(__file__).resolve().parent
HEAD = ("client", "version", "protocol", "called", "result")


def version_of(package):
    """Of a Debian package."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    if done.returncode or not done.stdout:
        pytest.skip(f"{package} is not installed")
    return done.stdout


from clients import clients  # noqa: E402,F401


@pytest.fixture
def row(request):
    """row(client, version, protocol, called)"""
    def say(*cells):
        request.node.row = cells
    return say


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" or report.skipped or report.failed:
        result = "ok" if report.passed else f"skipped: {report.longrepr[2]}" if report.skipped else "FAILED"
        item.config.rows[item.nodeid] = (*getattr(item, "row", (item.name, "", "", "")), result)


def pytest_configure(config):
    config.rows = {}


def pytest_terminal_summary(terminalreporter, config):
    rows = [HEAD, *config.rows.values()]
    widths = [max(len(str(r[i])) for r in rows) for i in range(len(HEAD) - 1)]
    terminalreporter.write_line("")
    for r in rows:
        terminalreporter.write_line("  ".join([*(str(c).ljust(w) for c, w in zip(r, widths)), str(r[-1])]))


@pytest.fixture(scope="session")
def build_dir():
    return pathlib.Path(os.environ.get("REINS_BUILD", "build")).resolve()


@pytest.fixture(scope="session")
def places(servers, need_reinsd, build_dir, tmp_path_factory):
    with clusters_with_a_worker(servers, build_dir, tmp_path_factory.mktemp("workers")) as place:
        yield place


@pytest.fixture(params=["clear", "tls"])
def place(request, places):
    return places(request.param)
