"""gRPC and Connect clients straight to a master, in each protocol that they speak, over clear text and over TLS."""

import pytest
import seen

CONNECT = [("connect", "1.1", "json"), ("connect", "1.1", "binary"), ("connect", "2", "json"), ("connect", "2", "binary"),
           ("grpcweb", "1.1", "binary"), ("grpcweb", "2", "binary"), ("grpc", "2", "binary")]


def wire(place):
    return "TLS" if place.certs else "clear"


@pytest.mark.parametrize("name", ["grpcio", "grpc_js", "go", "cpp"])
def test_grpc(place, clients, row, name):
    client = clients(name)
    row(client.name, client.version, f"gRPC, {wire(place)}", seen.CALLED)
    seen.check(place, [*client.command, wire(place)], cwd=client.cwd, env={"NODE_NO_WARNINGS": "1"})


@pytest.mark.parametrize("protocol, http, codec", CONNECT)
def test_connect(place, clients, row, protocol, http, codec):
    client = clients("connect")
    row(client.name, client.version, f"{protocol} {codec}, HTTP/{http}, {wire(place)}", seen.CALLED)
    url = place.url if place.certs else f"http://{place.address}"
    seen.check(place, [*client.command, url, protocol, http, codec], cwd=client.cwd)
