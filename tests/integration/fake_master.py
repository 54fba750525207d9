"""A master made of grpcio for one worker: says what the test tells it to say and notes what the worker says.

It answers heartbeats, stores logs and acknowledges outcomes by itself unless told not to.
"""
import collections
import concurrent.futures
import queue
import threading
import time
import uuid

import grpc

DEADLINE = 15  # seconds until a condition that does not come fails the test


def new_task_id():
    ms = int(time.time() * 1000)
    rand = uuid.uuid4().int & ((1 << 76) - 1)
    value = (ms << 80) | rand
    value = (value & ~(0xF << 76)) | (7 << 76)
    value = (value & ~(0x3 << 62)) | (2 << 62)
    return str(uuid.UUID(int=value))


class Attempt:
    """What the worker said about one attempt."""

    def __init__(self):
        self.accepted = False
        self.refused = None
        self.started = None
        self.pieces = []       # (stream, offset, data, dropped), each byte once
        self.log_end = 0
        self.stored = 0
        self.live = []         # (stream, offset, data)
        self.most_in_flight = 0
        self.outcomes = []     # every time it came

    def stream(self, number):
        return b''.join(data for stream, _, data, _ in self.pieces if stream == number)

    @property
    def log(self):
        return b''.join(data for _, _, data, _ in self.pieces)

    @property
    def dropped(self):
        return sum(dropped for _, _, _, dropped in self.pieces)

    @property
    def outcome(self):
        return self.outcomes[-1] if self.outcomes else None

    def add_log(self, log):
        if log.live:
            assert log.data and not log.dropped_bytes
            self.live.append((log.stream, log.offset, log.data))
            return
        size = log.dropped_bytes or len(log.data)
        assert not (log.dropped_bytes and log.data)
        assert len(log.data) <= 64 * 1024
        assert log.offset <= self.log_end, f'a hole in the log: {log.offset} after {self.log_end}'
        new = log.offset + size - self.log_end
        if new <= 0:
            return
        self.pieces.append((log.stream, self.log_end, log.data[-new:] if log.data else b'',
                            new if log.dropped_bytes else 0))
        self.log_end += new


class Session:
    """One stream of the worker."""

    def __init__(self, master, context):
        self.master = master
        self.context = context
        self.out = queue.Queue()
        self.number = None
        self.acked = 0
        self.hello = None
        self.held = {}
        self.heartbeats = []   # (time, message)
        self.draining = []
        self.dispatches = 0
        self.closed = False

    def send(self, **kind):
        self.out.put(self.master.pb.MasterMessage(**kind))

    def end(self, code, text=''):
        self.out.put((code, text))

    def cut(self):
        self.context.cancel()

    def welcome(self, adopted=None, pieces=1, **fields):
        """`adopted`: {(task, attempt): log_stored}; by default all that it listed goes on."""
        pb, m = self.master.pb, self.master
        if adopted is None:
            adopted = {key: m.attempts[key].stored for key in self.held}
        m.session_number += 1
        self.number = m.session_number
        entries = [pb.AdoptedAttempt(task_id=t, attempt=n, log_stored=at) for (t, n), at in adopted.items()]
        size = max(1, (len(entries) + pieces - 1) // pieces)
        parts = [entries[i:i + size] for i in range(0, len(entries), size)] or [[]]
        for i, part in enumerate(parts):
            w = pb.Welcome(session=self.number, store_id=m.store_id, master_id='fake', adopted=part,
                           last=i == len(parts) - 1)
            w.heartbeat_interval.FromMilliseconds(int(m.interval * 1000))
            w.lease_ttl.FromMilliseconds(int(m.lease * 1000))
            w.limits.message_bytes = 4 << 20
            w.limits.result_bytes = m.result_bytes
            w.limits.error_bytes = 16 << 10
            w.limits.log_bytes = 64 << 20
            w.limits.log_window_bytes, w.limits.log_window_sum_bytes = m.log_window
            self.send(welcome=w)

    def dispatch(self, *tasks):
        self.dispatches += 1
        self.send(dispatch=self.master.pb.Dispatch(number=self.dispatches, tasks=tasks))

    def follow(self, key, on=True):
        self.send(follow_log=self.master.pb.FollowLog(task_id=key[0], attempt=key[1], on=on))

    def stop(self, key, reason='CANCELLED', text='the test says so'):
        pb = self.master.pb
        self.send(stop=pb.Stop(attempts=[self.master.task_pb.AttemptRef(task_id=key[0], attempt=key[1])],
                               reason=pb.Stop.Reason.Value(reason), text=text))


class FakeMaster:
    def __init__(self, stubs, credentials=None):
        self.pb = stubs.worker_service_pb2
        self.task_pb = stubs.task_pb2
        self.lease, self.interval = 3.0, 0.2
        self.store_id = 'store-1'
        self.result_bytes = 1 << 20
        self.auto_welcome = True
        self.auto_outcome_ack = True
        self.auto_heartbeat_ack = True
        self.auto_log_ack = True
        self.log_window = (1 << 20, 4 << 20)
        self.renew_exclusive = True
        self.session_number = 0
        self.sessions = []
        self.attempts = collections.defaultdict(Attempt)
        self.changed = threading.Condition()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=16))
        stubs.worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(self, self.server)
        if credentials:
            self.port = self.server.add_secure_port('127.0.0.1:0', credentials)
        else:
            self.port = self.server.add_insecure_port('127.0.0.1:0')
        self.server.start()

    def close(self):
        self.server.stop(0).wait()

    # ---- the stream

    def Session(self, request_iterator, context):  # noqa: N802, the method's name on the wire
        s = Session(self, context)
        with self.changed:
            self.sessions.append(s)
            self.changed.notify_all()
        threading.Thread(target=self.read, args=(s, request_iterator), daemon=True).start()
        context.add_callback(lambda: s.out.put(None))
        while True:
            item = s.out.get()
            if item is None:
                return
            if isinstance(item, tuple):
                context.abort(*item)
            yield item

    def read(self, s, request_iterator):
        try:
            for message in request_iterator:
                with self.changed:
                    self.note(s, message)
                    self.changed.notify_all()
        except grpc.RpcError:
            pass
        except Exception as e:  # a worker that breaks the protocol fails the test that waits
            self.broken = e
            raise
        finally:
            with self.changed:
                s.closed = True
                self.changed.notify_all()
            s.out.put(None)

    def note(self, s, message):
        kind = message.WhichOneof('kind')
        body = getattr(message, kind)
        if kind == 'hello':
            s.hello = s.hello or body
            s.held.update({(a.task_id, a.attempt): a for a in body.attempts})
            if body.last and self.auto_welcome:
                s.welcome()
        elif kind == 'heartbeat':
            assert body.number == len(s.heartbeats) + 1
            s.heartbeats.append((time.monotonic(), body))
            if self.auto_heartbeat_ack:
                self.ack_heartbeat(s, body.number)
        elif kind in ('accepted', 'started', 'refused'):
            for a in body.attempts:
                attempt = self.attempts[a.task_id, a.attempt]
                if kind == 'accepted':
                    attempt.accepted = True
                elif kind == 'started':
                    assert attempt.accepted or s.held
                    attempt.started = a
                else:
                    attempt.refused = a
        elif kind == 'log':
            attempt = self.attempts[body.task_id, body.attempt]
            attempt.add_log(body)
            attempt.most_in_flight = max(attempt.most_in_flight, sum(
                max(len(data), 1024) for _, at, data, _ in attempt.pieces[-2000:] if at >= attempt.stored))
            if self.auto_log_ack and attempt.log_end - attempt.stored > 256 * 1024:
                attempt.stored = attempt.log_end
                s.send(heartbeat_ack=self.pb.HeartbeatAck(number=s.acked, logs=[self.pb.LogStored(
                    task_id=body.task_id, attempt=body.attempt, offset=attempt.stored)]))
        elif kind == 'outcome':
            for o in body.outcomes:
                attempt = self.attempts[o.task_id, o.attempt]
                assert attempt.log_end >= o.log_end, 'an outcome before the end of its log'
                attempt.outcomes.append(o)
                if self.auto_outcome_ack:
                    self.ack_outcome(s, (o.task_id, o.attempt))
        elif kind == 'draining':
            s.draining.append(body)

    def ack_heartbeat(self, s, number):
        s.acked = number
        logs = []
        if self.auto_log_ack:
            for (task, n), a in self.attempts.items():
                if a.log_end > a.stored:
                    a.stored = a.log_end
                    logs.append(self.pb.LogStored(task_id=task, attempt=n, offset=a.stored))
        s.send(heartbeat_ack=self.pb.HeartbeatAck(
            number=number, logs=logs, exclusive_not_renewed=not self.renew_exclusive))

    def ack_outcome(self, s, key, verdict='RECORDED'):
        value = self.pb.OutcomeVerdict.Verdict.Value(verdict)
        s.send(outcome_ack=self.pb.OutcomeAck(
            verdicts=[self.pb.OutcomeVerdict(task_id=key[0], attempt=key[1], verdict=value)]))

    # ---- for tests

    def wait(self, condition, what='', deadline=DEADLINE):
        end = time.monotonic() + deadline
        with self.changed:
            while True:
                value = condition()
                if value:
                    return value
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f'waited {deadline} s in vain: {what}')
                self.changed.wait(min(left, 0.05))

    def session(self, number=1):
        """The session with this number (from 1), once it is up."""
        self.wait(lambda: len(self.sessions) >= number and self.sessions[number - 1].heartbeats, f'session {number}')
        return self.sessions[number - 1]

    def task(self, *command, attempt=1, task_id=None, payload=b'', timeout=None, exclusive=False, lease=None,
             env=None, params=None, working_dir='', traceparent='', queue='default', resources=None):
        spec = self.task_pb.TaskSpec(command=command, payload=payload, env=env or {}, params=params or {},
                                     working_dir=working_dir, exclusive=exclusive, resources=resources)
        if timeout:
            spec.timeout.FromMilliseconds(int(timeout * 1000))
        t = self.pb.DispatchedTask(task_id=task_id or new_task_id(), attempt=attempt, queue=queue, spec=spec,
                                   exclusive=exclusive, traceparent=traceparent)
        t.lease_ttl.FromMilliseconds(int((lease or self.lease) * 1000))
        return t

    def run(self, s, *command, **kw):
        """Dispatches one task; its key."""
        t = self.task(*command, **kw)
        s.dispatch(t)
        return t.task_id, t.attempt

    def ended(self, key, deadline=DEADLINE):
        self.wait(lambda: self.attempts[key].outcomes or self.attempts[key].refused, f'outcome of {key}', deadline)
        assert self.attempts[key].refused is None, self.attempts[key].refused
        return self.attempts[key]

    def refused(self, key):
        self.wait(lambda: self.attempts[key].refused or self.attempts[key].started, f'refusal of {key}')
        assert self.attempts[key].started is None, 'it was started'
        return self.attempts[key].refused

    def started(self, key):
        self.wait(lambda: self.attempts[key].started, f'start of {key}')
        return self.attempts[key]

    def printed(self, key, text):
        self.wait(lambda: text in self.attempts[key].log, f'{text!r} in the log of {key}')
        return self.attempts[key].log
