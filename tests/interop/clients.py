"""The clients that can do all of seen.py: a command for each, and its name and version; made when first asked for."""

import json
import os
import shutil
import subprocess

import pytest
import stubs
from conftest import HERE, version_of
from examples import EXAMPLES, build, npm_ci

PROTOS = ["reins/v1/task.proto", "reins/v1/task_service.proto", "google/rpc/error_details.proto", "google/rpc/status.proto"]


def run(command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def protoc(*arguments):
    run(["protoc", f"-I{stubs.PROTO}", "-I/usr/include", *arguments, *PROTOS])


class Client:
    def __init__(self, name, version, command, cwd=None):
        self.name, self.version, self.command, self.cwd = name, version, command, cwd


def grpcio(tmp_path_factory):
    return Client("grpcio", version_of("python3-grpcio"), ["/usr/bin/python3", HERE / "grpcio_client.py"])


def go(tmp_path_factory):
    version = [version_of(p) for p in ("golang-google-grpc-dev", "golang-go", "golang-github-golang-protobuf-1-5-dev", "protoc-gen-go",
                                       "protoc-gen-go-grpc")][0]
    out = build("go", tmp_path_factory.mktemp("interop-go"))
    env = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "GOPATH": f"{out}:/usr/share/gocode"}
    run(["go", "build", "-o", out / "interop", HERE / "go" / "interop.go"], env=env)
    return Client("grpc-go", version, [out / "interop"])


def cpp(tmp_path_factory):
    version = [version_of(p) for p in ("libgrpc++-dev", "protobuf-compiler-grpc", "g++")][0]
    out = tmp_path_factory.mktemp("interop-cpp")
    protoc(f"--cpp_out={out}", f"--grpc_out={out}", f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}")
    libraries = run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"]).split()
    run(["g++", "-std=c++17", f"-I{out}", "-o", out / "interop", HERE / "cpp" / "interop.cc", *out.glob("*/*/*.cc"), *libraries])
    return Client("gRPC C++", version, [out / "interop"])


def package_version(folder, package):
    return json.loads((folder / "node_modules" / package / "package.json").read_text())["version"]


def grpc_js(tmp_path_factory):
    folder = npm_ci(tmp_path_factory, EXAMPLES / "node")
    shutil.copy(HERE / "node" / "grpc_js.cjs", folder)
    return Client("grpc-js", package_version(folder, "@grpc/grpc-js"), ["node", "grpc_js.cjs", stubs.PROTO], folder)


def connect_es(tmp_path_factory):
    folder = npm_ci(tmp_path_factory, HERE / "node")
    (folder / "gen").mkdir(exist_ok=True)
    protoc(f"--plugin=protoc-gen-es={folder}/node_modules/.bin/protoc-gen-es", f"--es_out={folder}/gen",
           "--es_opt=target=js,import_extension=js")
    return Client("connect-node", package_version(folder, "@connectrpc/connect-node"), ["node", "connect.mjs"], folder)


MAKERS = {"grpcio": grpcio, "go": go, "cpp": cpp, "grpc_js": grpc_js, "connect": connect_es}


@pytest.fixture(scope="session")
def clients(tmp_path_factory):
    """clients(name) -> Client"""
    made = {}

    def client(name):
        if name not in made:
            made[name] = MAKERS[name](tmp_path_factory)
        return made[name]

    return client
