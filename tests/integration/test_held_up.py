"""Hellos that are older than the newest session of their worker: one that a master still had on its way to the store when the
worker had long gone to another, and those that only seem so."""

import pytest
import stubs
from cluster import wait_for
from fake_worker import Verdict, hold
from programs import connected, sh
from proxy import Proxy

State = stubs.State


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


def test_a_machine_whose_clock_is_behind(make_cluster, make_worker, start_worker):
    """Its hellos seem to be older than those of the machine that had the id before, until its clock has caught up."""
    cluster = make_cluster().start()
    before = make_worker(cluster, "w1")
    before.hello_number += 3_000_000  # its clock is three seconds ahead
    before.connect()
    before.close()
    w = start_worker(cluster, "w1")
    wait_for(lambda: "newer hello" in w.log(), lambda: f"it is refused\n{w.log()}")
    connected(cluster, "w1")
    assert cluster.finished(sh(cluster, "exit 0")).state == State.COMPLETED
