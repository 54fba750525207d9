"""client/examples: each client does what it says, over clear text and over TLS. (Those in Go and C++: tests/interop.)"""

import pytest
from cluster import Cluster
from examples import EXAMPLES, Example, build, does_the_rest, goes_through, npm_ci
from real_worker import workers


@pytest.fixture(scope="module")
def places(servers, need_reinsd, build_dir, tmp_path_factory):
    """places("clear"), places("tls"): a cluster with a worker."""
    made = {}
    with workers(build_dir, tmp_path_factory.mktemp("workers")) as start:

        def place(kind):
            if kind not in made:
                made[kind] = Cluster(*servers, tls=kind == "tls").start()
                start(made[kind], f"of-{kind}")
            return made[kind]

        yield place
    for cluster in made.values():
        cluster.close()


def python(tmp_path_factory):
    return Example(["/usr/bin/python3", EXAMPLES / "python" / "client.py"], PYTHONPATH=str(build("python", tmp_path_factory.mktemp("python"))))


def node(tmp_path_factory):
    folder = npm_ci(tmp_path_factory, EXAMPLES / "node")
    return Example(["node", "client.js"], cwd=folder, REINS_PROTO=str(EXAMPLES.parents[1] / "proto"))



@pytest.fixture(scope="module", params=[python, node], ids=lambda make: make.__name__)
def example(request, tmp_path_factory):
    return request.param(tmp_path_factory)


def test_over_clear_text(places, example, request, tmp_path):
    cluster, queue = places("clear"), request.node.callspec.id
    goes_through(example, cluster, queue)
    if queue != "node":  # 0.6 s each time it starts: tests/interop has the rest
        does_the_rest(example, cluster, queue, tmp_path)


def test_over_tls(places, example, request):
    goes_through(example, places("tls"), request.node.callspec.id)
