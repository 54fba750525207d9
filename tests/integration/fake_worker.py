"""A worker of the tests: speaks WorkerService over grpcio, runs nothing, and does as it is told."""

import queue
import secrets
import threading
import time

import stubs
import grpc
import pytest
from cluster import PATIENCE
from proxy import Proxy

W = stubs.worker
Kind = W.Outcome
Verdict = W.OutcomeVerdict

_CLOSE = object()


def success(task, result=b""):
    """A policy: the task ends at once, well."""
    return W.Outcome(kind=Kind.SUCCEEDED, exit_code=0, result=result, result_bytes=len(result))


def hold(task):
    """A policy: the task runs until the test ends it."""
    return None


class Stream:
    """One session, from hello to its end."""

    def __init__(self, worker, address):
        self.worker = worker
        self.session = 0
        self.welcome = None  # the last piece
        self.adopted = {}  # (task id, attempt) -> AdoptedAttempt
        self.beats = 0
        self.acked = 0
        self.status = None  # grpc.StatusCode once it is over
        self.details = ""
        self._out = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        )
        self.call = stubs.worker_grpc.WorkerServiceStub(self._channel).Session(iter(self._out.get, _CLOSE))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message):
        self._out.put(message)

    def half_close(self):
        self._out.put(_CLOSE)

    def close(self):
        self._out.put(_CLOSE)
        self.call.cancel()
        self._channel.close()

    def _read(self):
        try:
            for message in self.call:
                self.worker._on_message(self, message)
        except grpc.RpcError:
            pass
        except ValueError:  # the channel was closed under us
            pass
        with self.worker.changed:
            try:
                self.status, self.details = self.call.code(), self.call.details() or ""
            except Exception:
                self.status = grpc.StatusCode.CANCELLED
            self.worker.changed.notify_all()


class FakeWorker:
    """connect() begins a session. Dispatches are accepted, started and ended as `policy` says (an Outcome without ids,
    or None: the test ends it); accept=False behaves as if they had not arrived, refuse=cause refuses them. Heartbeats go out by
    themselves unless beat=False.

    .held: (task id, attempt) -> DispatchedTask, until its outcome was acknowledged; it is what hello and heartbeats list.
    .dispatched, .verdicts, .stops, .drains: all that came, in order; obeys=False does as if no drain had come.
    .beats_say: further fields of each heartbeat. Guarded by .changed; wait with wait()."""

    def __init__(self, address, worker_id="w1", slots=4, policy=success, accept=True, refuse=None, beat=True,
                 proxy=False, instance=None, obeys=True, **hello):
        self.proxy = Proxy(address) if proxy else None
        self.address = self.proxy.address if proxy else address
        self.worker_id, self.slots = worker_id, slots
        self.policy, self.accept, self.refuse, self.beat = policy, accept, refuse, beat
        self.instance = instance or secrets.token_hex(16)
        self.hello = {"runs_commands": True, "hostname": "test", "version": "fake/1", **hello}
        self.changed = threading.Condition()
        self.stream = None
        self.held = {}
        self.ended = {}  # (task id, attempt) -> Outcome that was sent and is not acknowledged
        self.dispatched, self.dispatches, self.verdicts, self.stops, self.drains = [], [], [], [], []
        self.stop_messages = []
        self.obeys, self.beats_say = obeys, {}
        self.log_stored = {}
        self.follows = {}  # (task id, attempt) -> whether its log is to be sent live
        self.last_dispatch = 0
        self.receipt = {}  # (task id, attempt) -> time.monotonic()
        self.devices = ()  # given to each attempt, it says
        self.resend = True  # outcomes not acknowledged, after each welcome
        self.hello_number = time.time_ns() // 1000
        self._keep = None
        self._stopping = threading.Event()
        self._beater = threading.Thread(target=self._beat, daemon=True)
        self._beater.start()

    # ---- sessions ----

    def begin(self, piece=1000, store_id="", resumes=0, held=None):
        """Sends hello and waits for nothing."""
        with self.changed:
            refs = list(self.held) if held is None else list(held)
            self.last_dispatch = 0
            self.hello_number += 1
            previous = self.stream
            stream = self.stream = Stream(self, self.address)
        if previous:
            previous.half_close()
            if previous.status:
                previous.close()
        pieces = [refs[i : i + piece] for i in range(0, len(refs), piece)] or [[]]
        for i, part in enumerate(pieces):
            hello = W.Hello(last=i == len(pieces) - 1)
            if i == 0:
                hello = W.Hello(
                    protocol=1, worker_id=self.worker_id, instance=self.instance, slots=self.slots, store_id=store_id,
                    resumes_session=resumes, last=len(pieces) == 1, hello_number=self.hello_number, **self.hello,
                )
            for task_id, attempt in part:
                hello.attempts.add(task_id=task_id, attempt=attempt, has_outcome=(task_id, attempt) in self.ended)
            stream.send(W.WorkerMessage(hello=hello))
        return stream

    def connect(self, timeout=PATIENCE, **kwargs):
        stream = self.begin(**kwargs)
        self.wait(lambda: stream.welcome or stream.status, "welcome", timeout)
        assert stream.welcome, f"{stream.status}: {stream.details}"
        if self.resend:
            with self.changed:
                again = list(self.ended.values())
            if again:
                self.send(outcome=W.OutcomeReport(outcomes=again))
        return self

    def reconnect(self, timeout=PATIENCE, **kwargs):
        """connect(), again and again until the master is there."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.connect(timeout=max(0.1, deadline - time.monotonic()), **kwargs)
            except AssertionError:
                if time.monotonic() > deadline or self.stream.status != grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.05)

    def keep_connected(self):
        """From now on a stream that ends is followed by another, as a worker's own loop would."""
        self._keep = threading.Thread(target=self._reconnect_for_ever, daemon=True)
        self._keep.start()
        return self

    def _reconnect_for_ever(self):
        while not self._stopping.wait(0.02):
            stream = self.stream
            if stream and not stream.status:
                continue
            try:
                self.connect(timeout=5)
            except AssertionError:
                continue

    def kill(self):
        """The connection breaks without a word (only with proxy=True), once the master has all that was said; no
        heartbeat follows."""
        self.beat = False
        self.wait_heartbeat_acked()
        self.proxy.drop()
        stream = self.stream
        self.wait(lambda: stream.status, "the broken stream is noticed")

    def close(self):
        self._stopping.set()
        if self._keep:
            self._keep.join(10)
        if self.stream:
            self.stream.close()
        if self.proxy:
            self.proxy.close()
        self._beater.join(10)

    @property
    def session(self):
        return self.stream.session

    # ---- saying ----

    def send(self, **kind):
        self.stream.send(W.WorkerMessage(**kind))

    def heartbeat(self):
        """The number of the heartbeat sent."""
        with self.changed:
            stream = self.stream
            stream.beats += 1
            beat = W.Heartbeat(number=stream.beats, last_dispatch=self.last_dispatch, **self.beats_say)
            for task_id, attempt in self.held:
                beat.attempts.add(task_id=task_id, attempt=attempt)
            stream.send(W.WorkerMessage(heartbeat=beat))
            return stream.beats

    def accepted(self, *refs):
        self.send(accepted=W.Accepted(attempts=_refs(refs)))

    def refused(self, *refs, cause=W.RefusedAttempt.BUSY, text=""):
        with self.changed:
            for ref in refs:
                self.held.pop(ref, None)
        self.send(refused=W.Refused(attempts=[W.RefusedAttempt(task_id=t, attempt=a, cause=cause, text=text) for t, a in refs]))

    def started(self, *refs, devices=()):
        report = W.Started()
        for task_id, attempt in refs:
            one = report.attempts.add(task_id=task_id, attempt=attempt, devices=devices)
            one.started_at.GetCurrentTime()
        self.send(started=report)

    def draining(self, mode=W.DRAIN_WAIT, within=None, resumed=False):
        self.send(draining=W.Draining(mode=mode, within=within, resumed=resumed))

    def log(self, ref, offset, data, stream=stubs.tasks.STDOUT, dropped=0, live=False):
        message = W.Log(task_id=ref[0], attempt=ref[1], stream=stream, offset=offset, data=data, dropped_bytes=dropped, live=live)
        message.at.GetCurrentTime()
        self.send(log=message)

    def outcome(self, ref, outcome=None, **fields):
        """Reports the end of an attempt; kind SUCCEEDED unless fields say otherwise."""
        if outcome is None:
            outcome = W.Outcome(**{"kind": Kind.SUCCEEDED, **fields})
        outcome.task_id, outcome.attempt = ref
        if not outcome.HasField("finished_at"):
            outcome.finished_at.GetCurrentTime()
        with self.changed:
            self.ended[ref] = outcome
        self.send(outcome=W.OutcomeReport(outcomes=[outcome]))

    # ---- hearing ----

    def wait(self, condition, what="the condition", timeout=PATIENCE):
        """What condition() returned once it was true; it runs with .changed held."""
        deadline = time.monotonic() + timeout
        with self.changed:
            while True:
                value = condition()
                if value:
                    return value
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"worker {self.worker_id}: not within {timeout} s: {what}")
                self.changed.wait(min(left, 0.5))

    def wait_dispatch(self, task_id, attempt=None, timeout=PATIENCE):
        """Until the task (this attempt of it) has come: its (task id, attempt)."""
        def find():
            for t in self.dispatched:
                if t.task_id == task_id and (attempt is None or t.attempt == attempt):
                    return t
            return None

        t = self.wait(find, f"dispatch of {task_id}/{attempt}", timeout)
        return t.task_id, t.attempt

    def wait_verdict(self, ref, count=1, timeout=PATIENCE):
        """The count-th verdict about ref."""
        def find():
            found = [v.verdict for v in self.verdicts if (v.task_id, v.attempt) == ref]
            return found[count - 1] if len(found) >= count else None

        return self.wait(find, f"verdict {count} on {ref}", timeout)

    def wait_stop(self, ref, timeout=PATIENCE):
        """The reason of the stop for ref."""
        return self.wait(
            lambda: next((reason for r, reason in self.stops if r == ref), None), f"stop of {ref}", timeout
        )

    def wait_over(self, stream=None, timeout=PATIENCE):
        """The status with which the stream ended."""
        stream = stream or self.stream
        return self.wait(lambda: stream.status, "the stream's end", timeout)

    def wait_heartbeat_acked(self, timeout=PATIENCE):
        """Until the master has answered a heartbeat that is sent now."""
        stream, number = self.stream, self.heartbeat()
        self.wait(lambda: stream.acked >= number, f"answer to heartbeat {number}", timeout)

    # ---- inside ----

    def _beat(self):
        interval = 0.05
        while not self._stopping.wait(interval):
            stream = self.stream
            if stream and stream.welcome and not stream.status:
                interval = stream.welcome.heartbeat_interval.ToNanoseconds() / 1e9
                if self.beat:
                    self.heartbeat()

    def _on_message(self, stream, message):
        kind = message.WhichOneof("kind")
        with self.changed:
            if stream is not self.stream and kind != "outcome_ack":
                return
            getattr(self, f"_on_{kind}")(stream, getattr(message, kind))
            self.changed.notify_all()

    def _on_welcome(self, stream, welcome):
        for a in welcome.adopted:
            stream.adopted[a.task_id, a.attempt] = a
        stream.session = welcome.session
        if welcome.last:
            stream.welcome = welcome
            if self.beat:
                self.heartbeat()

    def _on_heartbeat_ack(self, stream, ack):
        stream.acked = max(stream.acked, ack.number)
        for stored in ack.logs:
            self.log_stored[stored.task_id, stored.attempt] = stored.offset

    def _on_dispatch(self, stream, dispatch):
        self.dispatches.append(dispatch)
        if self.accept:
            self.last_dispatch = dispatch.number
        refs, outcomes = [], []
        for t in dispatch.tasks:
            ref = (t.task_id, t.attempt)
            self.receipt[ref] = time.monotonic()
            self.dispatched.append(t)
            if self.refuse is not None or not self.accept:
                continue
            self.held[ref] = t
            refs.append(ref)
        if self.refuse is not None:
            self.refused(*((t.task_id, t.attempt) for t in dispatch.tasks), cause=self.refuse)
            return
        if not self.accept:
            return
        self.accepted(*refs)
        self.started(*refs, devices=self.devices)
        for ref in refs:
            outcome = self.policy(self.held[ref])
            if outcome is not None:
                outcome.task_id, outcome.attempt = ref
                if not outcome.HasField("finished_at"):
                    outcome.finished_at.GetCurrentTime()
                self.ended[ref] = outcome
                outcomes.append(outcome)
        if outcomes:
            self.send(outcome=W.OutcomeReport(outcomes=outcomes))

    def _on_stop(self, stream, stop):
        self.stop_messages.append(stop)
        for a in stop.attempts:
            self.stops.append(((a.task_id, a.attempt), stop.reason))

    def _on_outcome_ack(self, stream, ack):
        for v in ack.verdicts:
            self.verdicts.append(v)
            self.held.pop((v.task_id, v.attempt), None)
            self.ended.pop((v.task_id, v.attempt), None)

    def _on_follow_log(self, stream, follow):
        self.follows[follow.task_id, follow.attempt] = follow.on

    def _on_drain(self, stream, drain):
        self.drains.append(drain)
        if self.obeys:
            self.draining(mode=drain.mode, resumed=drain.resume, within=drain.within if drain.HasField("within") else None)


def _refs(refs):
    return [stubs.task.AttemptRef(task_id=t, attempt=a) for t, a in refs]


@pytest.fixture
def make_worker():
    """make_worker(cluster, id, ...) -> a FakeWorker, connected unless connect=False; closed with the test."""
    made = []

    def make(cluster, worker_id="w1", connect=True, **kwargs):
        made.append(FakeWorker(cluster.address, worker_id, **kwargs))
        if connect:
            made[-1].connect()
        return made[-1]

    yield make
    for worker in made:
        worker.close()


__all__ = ["FakeWorker", "Stream", "Kind", "Verdict", "W", "success", "hold", "make_worker"]
