"""Logs from the program to who reads them: windows, gaps, reading along, slow readers, reconnects; with workers made of
grpcio and with the real one, on both kinds of store."""
import hashlib
import os
import re
import threading
import time

import grpc
import pytest

import stubs
from aftermath import check
from cluster import PATIENCE, wait_for
from fake_worker import Kind, Verdict, hold
from monitor import handled, metrics
from proxy import Proxy
from refusals import refused

T = stubs.tasks
State = stubs.task.Task
MIB = 1 << 20
MUCH = 10**9 if os.environ.get("REINS_SLOW") else 2 * 10**8


@pytest.fixture(params=["postgres", "sqlite"])
def either(request, make_cluster, tmp_path):
    flags = {"heartbeat-interval": "200ms", "lease-ttl": "5s"}
    if request.param == "sqlite":
        flags |= {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"}
    return make_cluster(flags).start()


class Reader:
    """ReadLogs in a thread: .bytes is what came, with the gaps in .gaps as (offset, length)."""

    def __init__(self, cluster, task_id, slow=None, **fields):
        fields.setdefault("follow", True)
        self.bytes, self.gaps, self.at, self.error = bytearray(), [], fields.get("offset", 0), None
        self.chunks = []
        self.over = threading.Event()
        self.slow = slow or threading.Event()
        if not slow:
            self.slow.set()
        self.channel = cluster.open_channel([("grpc.use_local_subchannel_pool", 1), ("grpc.http2.lookahead_bytes", 65536),
                                             ("grpc.http2.bdp_probe", 0)])
        stub = stubs.tasks_grpc.TaskServiceStub(self.channel)
        self.call = stub.ReadLogs(T.ReadLogsRequest(task_id=task_id, **fields), timeout=3 * PATIENCE)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for c in self.call:
                assert c.offset == self.at or not self.chunks, f"{c.offset} after {self.at}"
                self.chunks.append((c.stream, c.offset, bytes(c.data), c.dropped_bytes))
                if c.dropped_bytes:
                    assert not c.data
                    self.gaps.append((c.offset, c.dropped_bytes))
                self.bytes += c.data
                self.at = c.offset + len(c.data) + c.dropped_bytes
                self.slow.wait(4 * PATIENCE)
        except grpc.RpcError as e:
            self.error = e
        self.over.set()

    def wait(self, condition, what="log"):
        wait_for(lambda: condition() or self.over.is_set(), lambda: f"{what}: {self.chunks[-5:]}")
        assert condition(), f"{what}: {self.error} {self.chunks[-5:]}"

    def end(self):
        assert self.over.wait(2 * PATIENCE), self.chunks[-5:]
        return self


def test_live_then_the_store(either, make_worker):
    """A follower gets the head from the store, what lies behind it live, and at the end goes on without a repeat."""
    worker = make_worker(either, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    worker.log(ref, 0, b"head")
    reader = Reader(either, ref[0])
    worker.wait(lambda: worker.follows.get(ref), "the log is followed")
    reader.wait(lambda: reader.bytes == b"head")
    worker.log(ref, 4, b"live one ", live=True)
    worker.log(ref, 13, b"\xff\xfe\x00\xc3", stream=T.STDERR, live=True)
    reader.wait(lambda: reader.bytes.endswith(b"\xc3"))
    # Some are left out, and one overlaps.
    worker.log(ref, 30, b"after a hole", live=True)
    worker.log(ref, 36, b"a hole!", live=True)
    reader.wait(lambda: reader.bytes.endswith(b"a hole!"))
    assert reader.gaps == [(17, 13)]
    # One that comes later sees what is stored, and then what comes.
    late = Reader(either, ref[0])
    late.wait(lambda: late.bytes == b"head")
    worker.log(ref, 43, b"<43", live=True)
    late.wait(lambda: late.bytes == b"head<43")
    assert late.gaps == [(4, 39)]
    # The end: of what lies behind the head the last is kept.
    worker.log(ref, 4, b"", dropped=26)
    worker.log(ref, 30, b"after a hole!<43 and the end")
    worker.outcome(ref, log_end=58)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert reader.end().bytes == b"headlive one \xff\xfe\x00\xc3after a hole!<43 and the end"
    assert reader.gaps == [(17, 13)]
    assert late.end().bytes == b"head<43 and the end"
    attempt = either.get(ref[0]).attempts[0]
    assert (attempt.log_bytes, attempt.log_dropped_bytes) == (58, 26)
    last = Reader(either, ref[0], follow=False).end()
    assert last.bytes == b"headafter a hole!<43 and the end" and last.gaps == [(4, 26)]


def test_following_ends_with_the_last_follower(either, make_worker):
    worker = make_worker(either, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    worker.log(ref, 0, b"h")
    readers = [Reader(either, ref[0]) for _ in range(3)]
    for r in readers:
        r.wait(lambda: r.bytes == b"h")
    worker.wait(lambda: worker.follows.get(ref), "followed")
    for r in readers[:2]:
        r.call.cancel()
        r.end()
    worker.log(ref, 1, b"x", live=True)
    readers[2].wait(lambda: readers[2].bytes == b"hx")
    # Another session is told too.
    worker.follows.clear()
    worker.connect()
    worker.wait(lambda: worker.follows.get(ref), "followed again")
    worker.log(ref, 2, b"y", live=True)
    readers[2].wait(lambda: readers[2].bytes == b"hxy")
    readers[2].call.cancel()
    worker.wait(lambda: worker.follows.get(ref) is False, "followed no more")
    worker.log(ref, 3, b"z", live=True)  # to nobody
    worker.outcome(ref, log_end=1)
    assert worker.wait_verdict(ref) == Verdict.RECORDED


def test_a_slow_follower_misses_what_it_does_not_take(either, make_worker):
    """It gets a gap in place; the worker's session and another follower notice nothing."""
    worker = make_worker(either, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    gate = threading.Event()
    block, n = os.urandom(32768), 300  # what gzip can't make less
    worker.log(ref, 0, block)
    slow, quick = Reader(either, ref[0], slow=gate), Reader(either, ref[0])
    for r in (slow, quick):
        r.wait(lambda: r.at == len(block))
    for i in range(1, n):
        worker.log(ref, i * len(block), block, live=True)
        if i % 2:
            quick.wait(lambda: quick.at >= i * len(block), "the quick one")
    quick.wait(lambda: quick.at == n * len(block), "the quick one")
    assert not quick.gaps
    worker.wait_heartbeat_acked()
    gate.set()
    worker.log(ref, n * len(block), b"end", live=True)
    worker.log(ref, len(block), b"", dropped=(n - 1) * len(block))
    worker.log(ref, n * len(block), b"end")
    worker.outcome(ref, log_end=n * len(block) + 3)
    assert slow.end().error is None and slow.bytes.endswith(b"end")
    assert sum(length for _, length in slow.gaps) + len(slow.bytes) == n * len(block) + 3
    assert sum(length for _, length in slow.gaps) > n * len(block) // 2
    assert quick.end().bytes == block * n + b"end"


@pytest.mark.skipif(not os.environ.get("REINS_SLOW"), reason="takes more than a minute; REINS_SLOW=1 runs it")
def test_a_reader_that_takes_nothing_is_ended(either, make_worker):
    worker = make_worker(either, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    block = os.urandom(65536)  # what gzip can't make small: it would all fit into the queues
    for i in range(100):
        worker.log(ref, i * 65536, block)
        worker.wait(lambda: worker.log_stored.get(ref) == (i + 1) * 65536, "stored")
    gate = threading.Event()
    reader = Reader(either, ref[0], slow=gate, follow=False)
    # After a minute in which it takes nothing.
    wait_for(lambda: handled(either, "RESOURCE_EXHAUSTED"), "it is given up", 120)
    gate.set()
    reader.end()
    assert reader.error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "read on from offset" in reader.error.details()
    rest = Reader(either, ref[0], follow=False, offset=reader.at).end()
    assert reader.at + len(rest.bytes) == 100 * 65536
    worker.outcome(ref, log_end=100 * 65536)
    assert worker.wait_verdict(ref) == Verdict.RECORDED


def test_attempts_that_there_are(either, make_worker):
    worker = make_worker(either, policy=hold, queues=["default"])
    retry = stubs.task.RetryPolicy(max_attempts=2)
    made = either.submit(retry=retry)
    ref = worker.wait_dispatch(made.id, 1)
    worker.outcome(ref, kind=Kind.FAILED, exit_code=1)
    ref = worker.wait_dispatch(made.id, 2)
    error = refused(lambda timeout: either.read_logs(made.id, attempt=3))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "attempt: this task has attempts 1 to 2")
    worker.outcome(ref)
    waiting = either.submit(queue="nobody")
    error = refused(lambda timeout: either.read_logs(waiting.id, attempt=1))
    assert error.details() == "attempt: this task has had no attempt yet"


def test_a_lost_end_is_told(either, make_worker):
    """log_end lies behind what came: the rest is called dropped, by reads from the start and of a tail."""
    worker = make_worker(either, policy=hold)
    ref = worker.wait_dispatch(either.submit().id)
    worker.log(ref, 0, b"0123456789")
    worker.outcome(ref, log_end=100)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    r = Reader(either, ref[0], follow=False).end()
    assert (bytes(r.bytes), r.gaps) == (b"0123456789", [(10, 90)])
    r = Reader(either, ref[0], follow=False, tail_bytes=95).end()
    assert (bytes(r.bytes), r.gaps) == (b"56789", [(10, 90)])
    r = Reader(either, ref[0], follow=False, tail_bytes=20).end()
    assert (bytes(r.bytes), r.gaps) == (b"", [(80, 20)])
    assert either.get(ref[0]).attempts[0].log_dropped_bytes == 90


def test_a_store_that_is_away_holds_back_log_and_outcome(make_cluster, make_worker, servers):
    """Nothing is lost while Postgres is away, and the stream stays, with a worker that keeps to its window."""
    cluster = make_cluster({"heartbeat-interval": "200ms", "lease-ttl": "20s"}).start()
    worker = make_worker(cluster, policy=hold, slots=8)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(6)]
    stream = worker.stream
    block = bytes(range(256)) * 256
    postgres = servers[0]
    sent = {ref: 0 for ref in refs}

    def pump(rounds):
        for _ in range(rounds):
            for ref in refs:
                flying = {r: sent[r] - worker.log_stored.get(r, 0) for r in refs}
                if flying[ref] + len(block) <= MIB and sum(flying.values()) + len(block) <= 4 * MIB:
                    worker.log(ref, sent[ref], block)
                    sent[ref] += len(block)

    pump(5)
    postgres.stop()
    try:
        pump(60)
        assert max(sent.values()) <= 2 * MIB
        for ref in refs[:3]:
            worker.outcome(ref, log_end=sent[ref])
        worker.wait_heartbeat_acked()
    finally:
        postgres.start()
    for ref in refs[:3]:
        assert worker.wait_verdict(ref, timeout=3 * PATIENCE) == Verdict.RECORDED
    for ref in refs[3:]:
        worker.outcome(ref, log_end=sent[ref])
        assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert worker.stream is stream and stream.status is None
    for ref in refs:
        r = Reader(cluster, ref[0], follow=False).end()
        assert r.bytes == block * (sent[ref] // len(block)) and not r.gaps


def test_a_worker_that_ignores_the_window_is_ended(make_cluster, make_worker, servers):
    cluster = make_cluster({"heartbeat-interval": "200ms", "lease-ttl": "20s"}).start()
    worker = make_worker(cluster, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    postgres = servers[0]
    postgres.stop()
    try:
        for i in range(1100):
            worker.log(ref, i * 65536, b"x" * 65536)
        assert worker.wait_over() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "window" in worker.stream.details
    finally:
        postgres.start()


def test_what_all_workers_hold_has_a_limit(make_cluster, make_worker, servers):
    """Each is told its part of it, and who sends more while all of it is taken is ended."""
    cluster = make_cluster({"heartbeat-interval": "200ms", "lease-ttl": "20s", "worker-queue-bytes": "1MiB"}).start()
    worker = make_worker(cluster, policy=hold)
    limits = worker.stream.welcome.limits
    assert limits.log_window_bytes == limits.log_window_sum_bytes == 65536
    ref = worker.wait_dispatch(cluster.submit().id)
    postgres = servers[0]
    postgres.stop()
    try:
        for i in range(40):
            worker.log(ref, i * 65536, b"x" * 65536)
        assert worker.wait_over() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "window" in worker.stream.details
        assert metrics(cluster)["reins_worker_queued_bytes_limit"] == 1 << 20
        wait_for(lambda: metrics(cluster)["reins_worker_queued_bytes"] < 2 << 20, "it is let go")
    finally:
        postgres.start()


# ---- the real worker ----


def whole(cluster, task_id, **fields):
    r = Reader(cluster, task_id, follow=False, **fields).end()
    assert r.error is None
    return r


def test_bytes_that_are_no_text(either, start_worker):
    """Half characters at the edges of pieces, and bytes of no alphabet."""
    start_worker(either)
    unit = b"\xff\xfe\x00\xe2\x82\xac\n\xf0\x9f\x8c\x8d"
    t = either.submit(command=["python3", "-c", f"import os\nu={unit!r}\nfor i in range(1, 20000): os.write(1, u[:i % 12] or u)"])
    done = either.finished(t.id, timeout=60)
    expected = b"".join(unit[: i % 12] or unit for i in range(1, 20000))
    r = whole(either, t.id)
    assert r.bytes == expected and not r.gaps
    assert done.attempts[0].log_bytes == len(expected) and done.attempts[0].log_dropped_bytes == 0
    check(either, [t.id])


def test_one_line_of_100_megabytes(either, start_worker):
    """Over the limit: its start and its end are kept, and a follower ends with its last byte."""
    start_worker(either, log_limit="8MiB")
    t = either.submit(command=["sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end"])
    follower = Reader(either, t.id)
    done = either.finished(t.id, timeout=90)
    a = done.attempts[0]
    r = whole(either, t.id)
    assert a.log_bytes == 100000005 and len(r.bytes) + a.log_dropped_bytes == a.log_bytes
    assert [offset for offset, _ in r.gaps] == [6 * MIB] and 7 * MIB <= len(r.bytes) <= 8 * MIB
    assert r.bytes.endswith(b"x\nend\n") and set(bytes(r.bytes[:-5])) == {ord("x")}
    follower.end()
    assert follower.error is None and follower.at == a.log_bytes and follower.bytes.endswith(b"x\nend\n")
    tail = whole(either, t.id, tail_bytes=2 * MIB + 3)
    assert tail.at == a.log_bytes and tail.bytes.endswith(b"end\n")
    assert len(tail.bytes) + sum(n for _, n in tail.gaps) == 2 * MIB + 3
    check(either, [t.id])


def test_output_over_reconnects(either, start_worker):
    """Connections that break while it prints: every byte once."""
    proxy = Proxy(either.address)
    try:
        start_worker(either, server=proxy.address)
        count = 700000
        t = either.submit(command=["sh", "-c", f"seq {count}; seq 1 1000 >&2"])
        either.in_state(t.id, State.RUNNING)
        for _ in range(6):
            time.sleep(0.15)  # breaks at some place; the result must not depend on it
            proxy.drop()
        done = either.finished(t.id, timeout=60)
    finally:
        proxy.close()
    expected = b"".join(b"%d\n" % i for i in range(1, count + 1))
    assert len(done.attempts) == 1
    out = whole(either, t.id, stream=T.STDOUT)
    assert not out.gaps and hashlib.sha256(out.bytes).digest() == hashlib.sha256(expected).digest()
    assert whole(either, t.id, stream=T.STDERR).bytes == b"".join(b"%d\n" % i for i in range(1, 1001))


def test_following_a_log_that_is_over_its_head(either, start_worker, tmp_path):
    """Lines that a program prints behind the head come to a follower while it runs, and nothing comes twice."""
    start_worker(either, log_limit="64KiB")
    steps = [tmp_path / f"step{i}" for i in range(3)]
    script = "head -c 60000 /dev/zero | tr '\\0' h\n" + "\n".join(
        f"while [ ! -e {s} ]; do sleep 0.01; done; echo step {i}" for i, s in enumerate(steps))
    t = either.submit(command=["sh", "-c", script])
    r = Reader(either, t.id)
    r.wait(lambda: len(r.bytes) == 60000, "what came at once")
    for i, step in enumerate(steps):
        step.touch()
        r.wait(lambda: r.bytes.endswith(b"step %d\n" % i), f"step {i}")
    r.end()
    assert r.bytes == b"h" * 60000 + b"step 0\nstep 1\nstep 2\n" and not r.gaps and r.error is None


def test_output_over_killed_agents(either, start_worker, tmp_path):
    """kill -9 of the agent while the program prints, more than once: the program notices nothing, every byte comes once."""
    worker = start_worker(either)
    go = tmp_path / "go"
    count = 300000
    up = b"".join(b"%d\n" % i for i in range(1, count + 1))
    t = either.submit(command=["sh", "-c", f"seq {count}; while [ ! -e {go} ]; do sleep 0.02; done; seq {count} -1 1; echo end >&2"])
    wait_for(lambda: whole(either, t.id).bytes, "its first lines")
    for i in range(4):
        worker.kill()
        if i == 2:
            go.touch()
        worker.start()
        size = len(whole(either, t.id).bytes)
        wait_for(lambda: min(size + 1, len(up)) <= len(whole(either, t.id).bytes), "more of the log")
    done = either.finished(t.id, timeout=60)
    down = b"".join(b"%d\n" % i for i in range(count, 0, -1))
    out = whole(either, t.id, stream=T.STDOUT)
    assert len(done.attempts) == 1 and not out.gaps
    assert hashlib.sha256(out.bytes).digest() == hashlib.sha256(up + down).digest()
    assert whole(either, t.id, stream=T.STDERR).bytes == b"end\n"


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))


def test_much_output_at_full_speed(either, start_worker):
    """Heartbeats stay in time, and memory of agent and master flat."""
    worker = start_worker(either)
    before = rss_kib(worker.process.pid), rss_kib(either.process.pid)
    beats, over = [], threading.Event()

    def watch():
        while not over.wait(0.02):
            for w in either.admin.ListWorkers(stubs.admin.ListWorkersRequest(), timeout=PATIENCE).workers:
                beats.append(time.time() - w.last_heartbeat_at.ToNanoseconds() / 1e9)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    t = either.submit(command=["sh", "-c", f"head -c {MUCH} /dev/zero | tr '\\0' x; echo end"])
    done = either.finished(t.id, timeout=300)
    took = time.monotonic() - began
    over.set()
    watcher.join()
    a = done.attempts[0]
    assert a.log_bytes == MUCH + 4 and len(done.attempts) == 1
    r = whole(either, t.id)
    assert len(r.bytes) + a.log_dropped_bytes == a.log_bytes and r.bytes.endswith(b"xend\n")
    assert 56 * MIB <= len(r.bytes) <= 64 * MIB
    after = rss_kib(worker.process.pid), rss_kib(either.process.pid)
    print(f"{MUCH} bytes in {took:.1f} s; peak RSS in KiB, agent {before[0]} to {after[0]}, master {before[1]} to {after[1]}; "
          f"oldest heartbeat {max(beats):.3f} s")
    assert "a heartbeat was not answered" not in worker.log()
    if "asan" not in str(worker.command[0]):
        assert after[0] - before[0] < 16 * 1024 and after[1] - before[1] < 96 * 1024, (before, after)
    check(either, [t.id])
