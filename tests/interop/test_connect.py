"""connect-es, in each of its protocols."""

import json
import subprocess

import pytest
import seen
import stubs
from conftest import HERE
from examples import npm_ci

PROTOCOLS = [("connect", "1.1", "json"), ("connect", "1.1", "binary"), ("connect", "2", "json"), ("connect", "2", "binary"),
             ("grpcweb", "1.1", "binary"), ("grpcweb", "2", "binary"), ("grpc", "2", "binary")]


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """A folder with connect-es and the stubs."""
    folder = npm_ci(tmp_path_factory, HERE / "node")
    files = ["reins/v1/task.proto", "reins/v1/task_service.proto", "google/rpc/error_details.proto"]
    (folder / "gen").mkdir(exist_ok=True)
    subprocess.run(
        ["protoc", f"-I{stubs.PROTO}", "-I/usr/include", f"--plugin=protoc-gen-es={folder}/node_modules/.bin/protoc-gen-es",
         f"--es_out={folder}/gen", "--es_opt=target=js,import_extension=js", *files], check=True, timeout=60)
    return folder


def version(folder, package):
    return json.loads((folder / "node_modules" / package / "package.json").read_text())["version"]


@pytest.mark.parametrize("protocol, http, codec", PROTOCOLS)
def test_connect(place, node, row, protocol, http, codec):
    tls = "TLS" if place.certs else "clear"
    row("connect-node", version(node, "@connectrpc/connect-node"), f"{protocol} {codec}, HTTP/{http}, {tls}", seen.CALLED)
    url = place.url if place.certs else f"http://{place.address}"
    seen.check(place, ["node", "connect.mjs", url, protocol, http, codec], cwd=node)
