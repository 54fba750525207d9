"""A worker in Python: tasks that are functions of its own process.

    from worker import Worker

    worker = Worker('py-1', slots=4)

    @worker.handler('add')
    def add(task):
        numbers = json.loads(task.payload)
        task.log(f'adding {numbers}')
        return str(sum(numbers)).encode()

    worker.run()

A task with handler = "add" comes here. What the function returns becomes the task's result; if it raises, the attempt has
failed, with the traceback as its error. A function that may take long looks at task.stopped now and then: it is set when
the task was cancelled, ran out of time, or is no longer ours. A thread can't be ended from outside, so who does not look
keeps the slot. Of an `exclusive` task there is more: where its lease is not renewed in time this whole process is ended,
by the kernel; what a handler started in other processes has to end with it.

This is also the shortest whole example of the worker's side of proto/reins/v1/worker_service.proto; what is said there is
not repeated here. The parts:

  Log       what a task prints, numbered by bytes, kept until the master has stored it
  Attempt   one try at a task, from its dispatch until its outcome is acknowledged
  Session   one stream to a master, from hello to its end
  Worker    all attempts, all timers, one session after another

One lock guards all of it (Worker.changed). The main thread does what depends on time, a thread of each session reads what
the master says, a thread of each attempt runs the handler.
"""
import collections
import itertools
import os
import queue
import random
import secrets
import signal
import socket
import sys
import threading
import time
import traceback

import connect
import grpc
from google.protobuf import timestamp_pb2

import lease
from reins.v1 import task_pb2, task_service_pb2, worker_service_pb2 as api, worker_service_pb2_grpc

Outcome, Stop, Refused = api.Outcome, api.Stop, api.RefusedAttempt

PIECE = 64 * 1024         # of a log, in one message
LOG_MEMORY = 1 << 20      # of one log that is not stored yet; what a handler says beyond is dropped and counted
AT_ONCE = 1000            # attempts in one message
CONNECT_WITHIN = 2.0      # seconds for TCP and TLS
WELCOME_WITHIN = 5.0
BACKOFF_FIRST = 0.1
RESEND_AFTER = 10.0       # an outcome that was not acknowledged
TICK = 0.1                # the longest that the main thread sleeps


def wall():
    now = timestamp_pb2.Timestamp()
    now.GetCurrentTime()
    return now


def seconds(duration):
    return duration.ToNanoseconds() / 1e9


def say(text):
    print(f'worker: {text}', file=sys.stderr, flush=True)


class Piece:
    def __init__(self, offset, data, dropped=0):
        self.offset, self.data, self.dropped, self.at = offset, data, dropped, wall()
        self.end = offset + len(data) + dropped
        self.cost = max(len(data), 1024)  # against the master's window


class Log:
    """Offsets count all bytes, those that were dropped too."""

    def __init__(self):
        self.end = 0
        self.unsent, self.sent = collections.deque(), collections.deque()

    def write(self, data, limit):
        room = LOG_MEMORY - sum(len(p.data) for p in (*self.sent, *self.unsent))
        kept = data[:max(0, min(room, limit - self.end))]
        for i in range(0, len(kept), PIECE):
            part = kept[i:i + PIECE]
            last = self.unsent[-1] if self.unsent else None
            if last and not last.dropped and len(last.data) + len(part) <= PIECE:
                self.unsent[-1] = Piece(last.offset, last.data + part)
            else:
                self.unsent.append(Piece(self.end, part))
            self.end += len(part)
        if len(kept) < len(data):
            dropped = len(data) - len(kept)
            if self.unsent and self.unsent[-1].dropped:
                last = self.unsent.pop()
                self.unsent.append(Piece(last.offset, b'', last.dropped + dropped))
            else:
                self.unsent.append(Piece(self.end, b'', dropped))
            self.end += dropped

    def stored(self, offset):
        while self.sent and self.sent[0].end <= offset:
            self.sent.popleft()

    def rewind(self, offset):
        """What was sent may be lost: all of it again, from the offset that the master has."""
        self.unsent.extendleft(reversed(self.sent))
        self.sent.clear()
        while self.unsent and self.unsent[0].offset < offset:
            first = self.unsent.popleft()
            if first.end > offset:
                done = offset - first.offset
                self.unsent.appendleft(Piece(offset, first.data[done:], max(0, first.dropped - done)))

    def in_flight(self):
        return sum(p.cost for p in self.sent)


class Attempt:
    """What a handler gets. For it: id, number, spec, payload, params, stopped, log()."""

    def __init__(self, worker, dispatched):
        self.worker, self.id, self.number, self.spec = worker, dispatched.task_id, dispatched.attempt, dispatched.spec
        self.payload, self.params = self.spec.payload, dict(self.spec.params)
        self.stopped = threading.Event()
        self.exclusive = dispatched.exclusive
        self.lease = seconds(dispatched.lease_ttl)
        self.renewed = None    # an exclusive one's lease runs from here, in lease.now()
        self.thread = None     # None: not started
        self.started_at = self.started = None
        self.ending = None     # (kind, reason) once a stop has begun; that stands whatever comes
        self.stop_began = None
        self.fenced = False
        self.outcome = None
        self.said = None       # when the outcome was sent, in this session
        self.output = Log()

    @property
    def ref(self):
        return self.id, self.number

    def log(self, text):
        """A line, or bytes as they are."""
        data = text if isinstance(text, bytes) else text.encode() + b'\n'
        with self.worker.changed:
            self.output.write(data, self.worker.log_limit)
            self.worker.flush()

    # The lease of an exclusive attempt: started and left alone until `soft`, gone by `hard`. See HeartbeatAck in the contract.

    def soft(self):
        return self.hard() - min(self.worker.kill_grace, 0.3 * self.lease)

    def hard(self):
        return self.renewed + 0.9 * self.lease

    def stop(self, kind, reason=Stop.REASON_UNSPECIFIED):
        if not self.ending:
            self.ending, self.stop_began = (kind, reason), time.monotonic()
            self.stopped.set()

    def end(self, kind, result=b'', error=b''):
        """The handler is back."""
        if self.ending:
            kind = self.ending[0]
        o = Outcome(task_id=self.id, attempt=self.number, kind=kind, result_bytes=len(result), log_end=self.output.end,
                    started_at=self.started_at, finished_at=wall(), error=error[-self.worker.error_limit:])
        if len(result) <= self.worker.result_limit:
            o.result = result
        if kind == Outcome.STOPPED:
            o.stop_reason = self.ending[1]
        self.outcome = o


class Session:
    """Its thread: connect, say hello, read until the end. over: a grpc.StatusCode, once it is."""

    def __init__(self, worker, url):
        self.worker, self.url = worker, url
        self.up = self.welcomed = False
        self.over, self.details, self.refused = None, '', False
        self.beats, self.acked, self.unanswered = 0, 0, collections.deque()  # (number, lease.now(), time.monotonic())
        self.next_beat = 0.0
        self.last_dispatch = 0
        self.hello_said = False
        self.began = time.monotonic()
        self._out = queue.SimpleQueue()
        self._channel = connect.channel(url, ('grpc.use_local_subchannel_pool', 1))
        self._call = None
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, **kind):
        self._out.put(api.WorkerMessage(**kind))

    def half_close(self):
        self._out.put(None)

    def end(self, code, details):
        """By us."""
        if not self.over:
            self.over, self.details = code, details
        self.up = False
        self.half_close()
        if self._call:
            self._call.cancel()
        self.worker.changed.notify_all()

    def close(self):
        self.end(grpc.StatusCode.CANCELLED, '')
        self._channel.close()

    def _read(self):
        code, details, refused = grpc.StatusCode.UNAVAILABLE, f'no connection to {self.url}', False
        try:
            grpc.channel_ready_future(self._channel).result(CONNECT_WITHIN)
            with self.worker.changed:
                if self.over:
                    return
                self._call = worker_service_pb2_grpc.WorkerServiceStub(self._channel).Session(
                    iter(self._out.get, None), metadata=connect.metadata())
                self.worker.say_hello(self)
            for message in self._call:
                with self.worker.changed:
                    if self.over:
                        break
                    kind = message.WhichOneof('kind')
                    if kind:  # else: of a newer master
                        getattr(self.worker, f'on_{kind}', lambda *_: None)(self, getattr(message, kind))
                        self.worker.flush()
                        self.worker.changed.notify_all()
            code, details = grpc.StatusCode.OK, 'the master ended the stream'
        except grpc.FutureTimeoutError:
            pass
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ''
            refused = code == grpc.StatusCode.UNAVAILABLE and any(
                key == 'grpc-status-details-bin' and b'google.rpc.RetryInfo' in value for key, value in error.trailing_metadata() or ())
        except ValueError:  # the channel was closed under us
            pass
        with self.worker.changed:
            if not self.over:
                self.over, self.details, self.refused, self.up = code, details, refused, False
            self.worker.changed.notify_all()


class Worker:
    def __init__(self, worker_id, slots=4, queues=(), labels=None, drain_timeout=60.0, kill_grace=10.0):
        self.worker_id, self.slots, self.queues, self.labels = worker_id, slots, list(queues), dict(labels or {})
        self.drain_timeout, self.kill_grace = drain_timeout, kill_grace
        self.handlers = {}
        self.changed = threading.Condition()
        self.attempts = {}            # (task id, attempt number) -> Attempt: all that hello and heartbeats list
        self.session, self.said = None, ''
        self.instance = secrets.token_hex(16)  # of this process: nothing of an earlier one is left
        self.hello_number = time.time_ns() // 1000
        self.session_number, self.unsettled, self.was_unsettled = 0, False, False
        self.store_id = ''
        self.lease_ttl = self.interval = None
        self.renewed = None           # lease.now() before the newest heartbeat that was acknowledged was made
        self.deadline = lease.Deadline()
        self.result_limit, self.error_limit, self.log_limit = 1 << 20, 16 << 10, 64 << 20
        self.window = self.window_sum = 1 << 20
        self.signals = 0
        self.draining = self.leaving = self.left = False
        self.drain_until = None       # time.monotonic(): what still runs then is given back

    def handler(self, name):
        def register(function):
            self.handlers[name] = function
            return function
        return register

    # ---- the main thread ----

    def run(self):
        """Until SIGTERM or SIGINT: takes no more tasks then, waits drain_timeout for what runs, gives the rest back. A second
        one gives it back at once, a third one waits for nothing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        backoff, urls = BACKOFF_FIRST, itertools.cycle(connect.servers())
        while not self.left:
            self.session = session = Session(self, next(urls))
            self._until(lambda: session.over)
            with self.changed:
                if self.left:
                    session.half_close()
                    self.changed.wait_for(lambda: session.over, 2.0)  # the master has what we said
                else:
                    self._session_over(session)
                session.close()
            if session.welcomed:
                backoff = BACKOFF_FIRST
            self._until(lambda: False, time.monotonic() + random.uniform(0, backoff))
            backoff = min(2 * backoff, (self.lease_ttl or 10.0) / 10)

    def _on_signal(self, *_):
        self.signals += 1

    def _until(self, condition, end=None):
        with self.changed:
            while not condition() and not self.left and (end is None or time.monotonic() < end):
                self._tick()
                self.changed.wait(TICK if end is None else max(0.0, min(TICK, end - time.monotonic())))

    def _tick(self):
        """What depends on time."""
        now, boot = time.monotonic(), lease.now()
        self._tick_leaving(now)
        for a in list(self.attempts.values()):
            if a.outcome:
                if a.said and now > a.said + RESEND_AFTER:
                    a.said = None
            elif not a.thread:
                self._start(a)
            elif a.exclusive and boot >= a.soft():
                a.stop(Outcome.STOPPED, Stop.LEASE_ENDED)
            elif a.spec.HasField('timeout') and 0 < seconds(a.spec.timeout) <= now - a.started:
                a.stop(Outcome.TIMED_OUT)
        session = self.session
        if session.up:
            if now >= session.next_beat:
                self._heartbeat(session)
            if session.unanswered and now > session.unanswered[0][2] + (0.6 * self.lease_ttl - self.interval) / 2:
                session.end(grpc.StatusCode.UNAVAILABLE, 'a heartbeat was not answered in time')
        elif not session.over and now > session.began + CONNECT_WITHIN + WELCOME_WITHIN:
            session.end(grpc.StatusCode.UNAVAILABLE, 'no Welcome')
        self.flush()

    def _session_over(self, session):
        said = f'{session.url}: {session.over.name}: {session.details}'
        if said != self.said:  # a master that is away is tried again and again
            say(said)
        self.said = said
        for a in self.attempts.values():
            a.said = None
        if session.refused or not session.hello_said:
            self.unsettled = self.was_unsettled  # that hello has opened nothing
        if session.refused:
            self.hello_number = max(self.hello_number, time.time_ns() // 1000 - 1)
        if session.over == grpc.StatusCode.ABORTED:
            say('another process has this worker id: what runs here ends with this one')
            os._exit(1)

    # ---- what we say ----

    def say_hello(self, session):
        held = [api.HeldAttempt(task_id=a.id, attempt=a.number, has_outcome=a.outcome is not None, started_at=a.started_at)
                for a in self.attempts.values()]
        self.hello_number += 1
        self.was_unsettled, self.unsettled = self.unsettled, True
        session.hello_said = True
        hello = api.Hello(
            protocol=1, worker_id=self.worker_id, instance=self.instance, store_id=self.store_id if held else '',
            resumes_session=self.session_number, hello_number=self.hello_number, no_other=not self.was_unsettled,
            slots=self.slots, queues=self.queues, labels=self.labels, handlers=sorted(self.handlers),
            enforces_exclusive_lease=True, tasks_die_with_process=True,
            version='reins-python-example/1', hostname=socket.gethostname(), paused=self.draining)
        while True:
            piece, held = held[:AT_ONCE], held[AT_ONCE:]
            hello.attempts.extend(piece)
            hello.last = not held
            session.send(hello=hello)
            if hello.last:
                return
            hello = api.Hello()

    def _heartbeat(self, session):
        boot, now = lease.now(), time.monotonic()  # before it is made: the lease runs from here
        session.beats += 1
        beat = api.Heartbeat(number=session.beats, last_dispatch=session.last_dispatch, attempts=self._refs(self.attempts.values()),
                             paused=self.draining, paused_reason='the worker drains' if self.draining else '')
        for a in self.attempts.values():
            if not a.outcome and a.stop_began and now > a.stop_began + self.kill_grace and len(beat.stuck) < 100:
                beat.stuck.add(task_id=a.id, attempt=a.number, reason='its handler does not look at task.stopped')
        session.send(heartbeat=beat)
        session.unanswered.append((session.beats, boot, now))
        # Workers that came together are not to beat in step.
        session.next_beat = now + self.interval * (random.uniform(0.25, 1) if session.beats == 1 else 1)

    @staticmethod
    def _refs(attempts):
        return [task_pb2.AttemptRef(task_id=a.id, attempt=a.number) for a in attempts]

    def _say_draining(self, session):
        within = max(0.0, self.drain_until - time.monotonic()) if self.drain_until else None
        message = api.Draining(mode=api.DRAIN_WAIT if within is None else api.DRAIN_REQUEUE)
        if within is not None:
            message.within.FromNanoseconds(int(min(within, 3600) * 1e9))
        session.send(draining=message)

    def flush(self):
        """Sends what can be sent now: pieces of logs as far as the master's window is open, an outcome after the last piece."""
        session = self.session
        if not session or not session.up:
            return
        room = self.window_sum - sum(a.output.in_flight() for a in self.attempts.values())
        outcomes = []
        for a in self.attempts.values():
            log, own = a.output, self.window - a.output.in_flight()
            while log.unsent and log.unsent[0].cost <= min(own, room):
                piece = log.unsent.popleft()
                log.sent.append(piece)
                own, room = own - piece.cost, room - piece.cost
                session.send(log=api.Log(task_id=a.id, attempt=a.number, stream=task_service_pb2.STDOUT, offset=piece.offset,
                                         data=piece.data, dropped_bytes=piece.dropped, at=piece.at))
            if a.outcome and not a.said and not log.unsent:
                a.said = time.monotonic()
                session.send(outcome=api.OutcomeReport(outcomes=[a.outcome]))

    # ---- what a master says ----

    def on_welcome(self, session, welcome):
        if self.attempts and self.store_id and welcome.store_id != self.store_id:
            session.end(grpc.StatusCode.DATA_LOSS, f'that master has another store ({welcome.store_id}) than what we hold is of')
            return
        self.store_id, self.session_number = welcome.store_id, welcome.session
        self.interval, self.lease_ttl = seconds(welcome.heartbeat_interval), seconds(welcome.lease_ttl)
        limits = welcome.limits
        self.result_limit = min(limits.result_bytes, limits.message_bytes - (64 << 10))
        self.error_limit, self.log_limit = limits.error_bytes, limits.log_bytes
        self.window, self.window_sum = limits.log_window_bytes or LOG_MEMORY, limits.log_window_sum_bytes or LOG_MEMORY
        for adopted in welcome.adopted:
            a = self.attempts.get((adopted.task_id, adopted.attempt))
            if a:
                a.output.rewind(adopted.log_stored)  # what is not adopted is fenced
                a.lease = max(a.lease, seconds(adopted.lease_ttl))
        if not welcome.last:
            return
        self.unsettled = False
        session.up = session.welcomed = True
        self.said = ''
        say(f'session {welcome.session} with {welcome.master_id} at {session.url}, {len(self.attempts)} attempts held')
        self._heartbeat(session)
        if self.draining:
            self._say_draining(session)
        self._say_started(session, [a for a in self.attempts.values() if a.thread and not a.outcome])

    def on_heartbeat_ack(self, session, ack):
        while session.unanswered and session.unanswered[0][0] <= ack.number:
            number, boot, _ = session.unanswered.popleft()
            if number == ack.number and not ack.exclusive_not_renewed:
                self._renew(boot)
        for stored in ack.logs:
            a = self.attempts.get((stored.task_id, stored.attempt))
            if a:
                a.output.stored(stored.offset)
        if ack.exclusive_not_renewed and len(connect.servers()) > 1:
            session.end(grpc.StatusCode.UNAVAILABLE, 'that master is cut off from its store')

    def on_dispatch(self, session, dispatch):
        session.last_dispatch = max(session.last_dispatch, dispatch.number)
        taken, refused = [], []
        for d in dispatch.tasks:
            why = self._why_not(d)
            if why:
                refused.append(Refused(task_id=d.task_id, attempt=d.attempt, cause=why[0], text=why[1]))
            else:
                a = self.attempts[d.task_id, d.attempt] = Attempt(self, d)
                taken.append(a)
        if refused:
            session.send(refused=api.Refused(attempts=refused))
        if taken:
            session.send(accepted=api.Accepted(attempts=self._refs(taken)))
        for a in taken:
            self._start(a)

    def _why_not(self, d):
        if self.draining:
            return Refused.DRAINING, 'the worker drains'
        if d.spec.handler not in self.handlers:
            return Refused.UNSUPPORTED, f'no handler {d.spec.handler!r} here'
        if any(a.id == d.task_id and a.number >= d.attempt for a in self.attempts.values()):
            return Refused.HELD, ''
        if sum(not a.outcome for a in self.attempts.values()) >= self.slots:
            return Refused.BUSY, ''
        return None

    def on_stop(self, session, stop):
        for ref in stop.attempts:
            a = self.attempts.get((ref.task_id, ref.attempt))
            if not a:
                continue
            if not a.thread:
                self._give_back(a, Refused.STOPPED)
            elif stop.reason == Stop.RECALLED:
                pass  # it has started, and goes on
            elif a.outcome:
                if stop.reason == Stop.FENCED:
                    del self.attempts[a.ref]
            else:
                a.fenced = a.fenced or stop.reason == Stop.FENCED
                a.stop(Outcome.STOPPED, stop.reason)

    def _give_back(self, a, cause):
        """It was never started, and never will be: the next heartbeat says so too."""
        del self.attempts[a.ref]
        if self.session.up:
            self.session.send(refused=api.Refused(attempts=[Refused(task_id=a.id, attempt=a.number, cause=cause)]))

    def on_outcome_ack(self, session, ack):
        for v in ack.verdicts:
            a = self.attempts.get((v.task_id, v.attempt))
            if a and a.outcome:
                del self.attempts[a.ref]  # RECORDED, DUPLICATE or FENCED: it is done with
            elif a:
                a.fenced = True
                a.stop(Outcome.STOPPED, Stop.FENCED)

    def on_drain(self, session, drain):
        if drain.resume:
            if not self.leaving:
                self.draining, self.drain_until = False, None
                session.send(draining=api.Draining(resumed=True))
            return
        self.draining = True
        if drain.mode == api.DRAIN_REQUEUE:
            self.drain_until = time.monotonic() + (seconds(drain.within) if drain.HasField('within') else self.drain_timeout)
        # DRAIN_DETACH: our tasks end with us, so we stay until they have ended.
        self._say_draining(session)

    # ---- attempts ----

    def _renew(self, boot):
        self.renewed = max(self.renewed or boot, boot)
        for a in self.attempts.values():
            if a.exclusive and a.thread and not a.ending:
                a.renewed = self.renewed
        self._arm()

    def _arm(self):
        """The kernel ends us when the first exclusive lease is about to end; _tick has asked its handler to stop before."""
        self.deadline.set(min((a.hard() for a in self.attempts.values() if a.exclusive and a.thread and not a.outcome), default=None))

    def _start(self, a):
        """Now, or, where the lease does not reach yet, after the next answer to a heartbeat."""
        if a.exclusive:
            a.renewed = self.renewed
            if a.renewed is None or lease.now() >= a.soft():
                return
        a.started_at, a.started = wall(), time.monotonic()
        a.thread = threading.Thread(target=self._run, args=(a,), daemon=True)
        if a.exclusive:
            self._arm()
        if self.session.up:
            self._say_started(self.session, [a])
        a.thread.start()

    @staticmethod
    def _say_started(session, attempts):
        for i in range(0, len(attempts), AT_ONCE):
            session.send(started=api.Started(attempts=[
                api.StartedAttempt(task_id=a.id, attempt=a.number, started_at=a.started_at) for a in attempts[i:i + AT_ONCE]]))

    def _run(self, a):
        kind, result, error = Outcome.SUCCEEDED, b'', b''
        try:
            returned = self.handlers[a.spec.handler](a)
            result = returned.encode() if isinstance(returned, str) else bytes(returned or b'')
        except BaseException:
            kind, error = Outcome.FAILED, traceback.format_exc().encode(errors='replace')
        with self.changed:
            a.end(kind, result, error)
            if a.fenced:
                self.attempts.pop(a.ref, None)
            self._arm()
            self.flush()
            self.changed.notify_all()

    # ---- leaving ----

    def _tick_leaving(self, now):
        if self.signals and not self.leaving:
            say(f'draining: {len(self.attempts)} attempts')
            self.draining = self.leaving = True
            self.drain_until = now + self.drain_timeout
            if self.session.up:
                self._say_draining(self.session)
        if self.signals > 1 and self.leaving:
            self.drain_until = min(self.drain_until, now)
        if self.drain_until and now >= self.drain_until:
            for a in [a for a in self.attempts.values() if not a.outcome]:
                if a.thread:
                    a.stop(Outcome.STOPPED, Stop.DRAINED)
                else:
                    self._give_back(a, Refused.DRAINING)
        # Daemon threads: what does not stop ends with the process.
        if self.leaving and (not self.attempts or self.signals > 2 or now >= self.drain_until + self.kill_grace):
            self.left = True
