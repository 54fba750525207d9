"""The clients of client/examples in Node, Go and C++, all that they can do."""

import shutil

import pytest
from conftest import version_of
from examples import EXAMPLES, Example, build, does_the_rest, goes_through, npm_ci

CALLED = "submit, get with wait, watch over a restart, log followed, list, cancel, errors"


def built(language, packages, tmp_path_factory, **more):
    versions = [version_of(p) for p in packages]
    out = build(language, tmp_path_factory.mktemp(language))
    return Example([out / "client"], **more), versions[0]


def go(tmp_path_factory):
    packages = ["golang-google-grpc-dev", "golang-go", "golang-github-golang-protobuf-1-5-dev", "protoc-gen-go", "protoc-gen-go-grpc"]
    example, version = built("go", packages, tmp_path_factory, code=lambda c: c.title().replace("_", ""))
    return example, f"grpc-go {version}"


def cpp(tmp_path_factory):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    example, version = built("cpp", ["libgrpc++-dev", "protobuf-compiler-grpc"], tmp_path_factory)
    return example, f"gRPC C++ {version}"


def node(tmp_path_factory):
    folder = npm_ci(tmp_path_factory, EXAMPLES / "node")
    return Example(["node", "client.js"], cwd=folder, NODE_NO_WARNINGS="1", REINS_PROTO=str(EXAMPLES.parents[1] / "proto")), "grpc-js 1.14.7"


@pytest.fixture(scope="module", params=[go, cpp, node], ids=lambda make: make.__name__)
def example(request, tmp_path_factory):
    return request.param(tmp_path_factory)


def test_example(example, place, request, row, tmp_path):
    (program, version), (language, kind) = example, request.node.callspec.id.split("-")
    row(f"client/examples/{language}", version, f"gRPC, {kind}", CALLED)
    goes_through(program, place, language)
    does_the_rest(program, place, language, tmp_path)
