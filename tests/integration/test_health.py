"""grpc.health.v1: Check and Watch, with the store up, down and while the master stops."""
import queue
import signal
import threading

import grpc
import pytest
import stubs
from cluster import wait_for

H = stubs.health_pb2.HealthCheckResponse
Request = stubs.health_pb2.HealthCheckRequest
ALL = ['', 'reins.v1.TaskService', 'reins.v1.WorkerService', 'reins.v1.AdminService', 'grpc.health.v1.Health',
       'grpc.reflection.v1.ServerReflection', 'grpc.reflection.v1alpha.ServerReflection', 'liveness']


def name(status):
    return H.ServingStatus.Name(status)


class Watch:
    """What a watcher was told, one after the other; the end is its status code's name."""

    def __init__(self, channel, service):
        self.told = queue.Queue()
        self.call = stubs.every.health_pb2_grpc.HealthStub(channel).Watch(Request(service=service))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for reply in self.call:
                self.told.put(name(reply.status))
            self.told.put('OK')
        except grpc.RpcError as e:
            self.told.put(e.code().name)

    def next(self):
        return self.told.get(timeout=30)

    def silent(self):
        return self.told.empty()


@pytest.fixture
def started(make_cluster):
    c = make_cluster({'store-timeout': '1s'}).start()
    yield c
    c.postgres.start()


def check(channel, service):
    return name(stubs.every.health_pb2_grpc.HealthStub(channel).Check(Request(service=service), timeout=10).status)


def test_check(started):
    channel = started.channel()
    assert {s: check(channel, s) for s in ALL} == dict.fromkeys(ALL, 'SERVING')
    for unknown in ('reins.v1.Nothing', 'reins.v1.TaskService/SubmitTask', 'Liveness', 'reins.v1.TaskServic'):
        with pytest.raises(grpc.RpcError) as e:
            check(channel, unknown)
        assert e.value.code() == grpc.StatusCode.NOT_FOUND
    watches = {s: Watch(channel, s) for s in (*ALL, 'reins.v1.Nothing')}
    assert {s: w.next() for s, w in watches.items()} == {**dict.fromkeys(ALL, 'SERVING'), 'reins.v1.Nothing': 'SERVICE_UNKNOWN'}

    started.postgres.stop()
    of_store = ['', 'reins.v1.TaskService', 'reins.v1.WorkerService', 'reins.v1.AdminService']
    for s in of_store:
        assert watches[s].next() == 'NOT_SERVING'
    assert {s: check(channel, s) for s in ALL} == {s: 'NOT_SERVING' if s in of_store else 'SERVING' for s in ALL}
    started.postgres.start()
    for s in of_store:
        assert watches[s].next() == 'SERVING'
    # One message per change, and none for those that did not change; the unknown one's stream is still open.
    assert all(w.silent() for w in watches.values())

    started.process.send_signal(signal.SIGTERM)
    ends = {s: [w.next() for _ in range(1 if s in ('liveness', 'reins.v1.Nothing') else 2)] for s, w in watches.items()}
    assert ends == {s: ['UNAVAILABLE'] if s in ('liveness', 'reins.v1.Nothing') else ['NOT_SERVING', 'UNAVAILABLE'] for s in watches}
    assert started.process.wait(30) == 0
    started.process = None


def test_a_balancer_that_checks_health(started):
    """Stock client: the service config's healthCheckConfig opens Watch by itself and keeps calls away while it says no."""
    config = '{"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"round_robin": {}}]}'
    channel = started.channel(('grpc.service_config', config), ('grpc.enable_retries', 0))
    admin = stubs.admin_grpc.AdminServiceStub(channel)

    def asks():
        try:
            return admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=0.5).master_id
        except grpc.RpcError as e:
            return e.code().name
    wait_for(lambda: asks() == 'm1', 'it is asked')
    started.postgres.stop()
    wait_for(lambda: asks() != 'm1', 'the balancer has heard')  # GetServerInfo itself needs no store
    started.postgres.start()
    # Waiting, since what fails at once polls no socket: the client would hear of it up to 5 s later.
    assert admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), wait_for_ready=True, timeout=30).master_id == 'm1'
