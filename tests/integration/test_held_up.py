"""Two masters, and what the one still has on its way to the store when the worker has long gone to the other."""

import pytest
from cluster import wait_for
from fake_worker import Verdict, hold
from proxy import Proxy


@pytest.fixture
def two(make_cluster):
    """(m1, m2, the relay between m1 and Postgres)"""
    first = make_cluster()
    server = f"127.0.0.1:{first.postgres.port}"
    relay = Proxy(server)
    second = first.another("m2").start()
    first.flags["store"] = first.flags["store"].replace(server, relay.address)
    first.start()
    yield first, second, relay
    second.close()
    first.stop()
    relay.close()


def test_a_hello_that_was_held_up(two, make_worker):
    first, second, relay = two
    worker = make_worker(second, "w-held", slots=4, policy=hold)
    refs = [worker.wait_dispatch(second.submit().id)]
    # It tries m1, which does not get through to the store, and goes back to m2, where it is given more.
    relay.partition()
    worker.address = first.address
    worker.begin()
    wait_for(lambda: b"w-held" in relay.held_back(), "the statement is on its way")
    worker.address = second.address
    worker.connect()
    refs.append(worker.wait_dispatch(second.submit().id))
    session = worker.session
    relay.heal()
    # Behind that statement on each of its connections.
    for _ in range(8):
        first.submit(queue="elsewhere")
    worker.wait_heartbeat_acked()
    assert second.sql("SELECT session, master FROM reins.worker WHERE id = 'w-held'") == [(session, "m2")]
    for ref in refs:
        worker.outcome(ref)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        assert len(second.finished(ref[0]).attempts) == 1
