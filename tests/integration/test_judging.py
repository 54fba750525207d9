"""Who judges a lease: a master that itself stood still blames nobody."""
import signal
import time

import pytest
import stubs
from aftermath import check
from cluster import wait_for
from fake_worker import hold
from programs import connected, ends_of, heartbeats_go_on, runs, sh

State, End = stubs.State, stubs.End
LEASE = 1.5  # of QUICK


@pytest.fixture
def stand_still(quick):
    """The master does nothing for two leases, while others go on."""
    def stop():
        quick.process.send_signal(signal.SIGSTOP)
        try:
            until = time.monotonic() + 2 * LEASE
            wait_for(lambda: time.monotonic() > until, 'two leases')
        finally:
            quick.process.send_signal(signal.SIGCONT)
        wait_for(lambda: 'the event loop stood still' in quick.log(), 'it notices')
    return stop


def test_what_was_said_meanwhile_is_read_first(quick, make_worker, stand_still):
    """A worker that beats on, on the same stream."""
    worker = make_worker(quick, policy=hold)
    ref = worker.wait_dispatch(quick.submit().id)
    stream = worker.stream
    stand_still()
    worker.wait_heartbeat_acked()
    assert worker.stream is stream and not stream.status and not worker.stops
    worker.outcome(ref)
    assert ends_of(quick, quick.finished(ref[0]).id) == [End.SUCCEEDED]


def test_a_silent_worker_has_its_whole_lease(quick, make_worker, stand_still):
    """One that could not be heard, for it said nothing: the time in which nobody listened does not count."""
    worker = make_worker(quick, policy=hold)
    ref = worker.wait_dispatch(quick.submit().id)
    worker.beat = False
    worker.wait_heartbeat_acked()
    stand_still()
    assert quick.get(ref[0]).state == State.RUNNING
    worker.wait_heartbeat_acked()
    worker.outcome(ref)
    assert ends_of(quick, quick.finished(ref[0]).id) == [End.SUCCEEDED]


def test_a_worker_that_connects_anew_meanwhile(quick, start_worker, stand_still, go):
    """The real one gives up a stream on which nothing is answered."""
    start_worker(quick)
    ids = [sh(quick, 'until [ -e "$GO" ]; do sleep 0.05; done', go) for _ in range(3)]
    runs(quick, *ids)
    stand_still()
    connected(quick, 'w1')
    heartbeats_go_on(quick, 'w1')
    go.touch()
    for t in ids:
        assert quick.finished(t).state == State.COMPLETED and ends_of(quick, t) == [End.SUCCEEDED]
    check(quick, ids)
