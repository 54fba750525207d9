"""Clients that submit, cancel, retry and ask, whatever fails, and remember what they were told."""

import random
import threading
import time
import uuid

import grpc
import stubs
from cluster import make_spec
from jobs import KINDS, now

T, State = stubs.tasks, stubs.State
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
# gRPC gives up a connection that is not ready within the least backoff.
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100),
           ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 500)]


class Client(threading.Thread):
    """What was begun is brought to its end, also after `over` is set."""

    def __init__(self, place, seed, rate, over):
        super().__init__(daemon=True)
        self.place, self.rng, self.rate, self.over = place, random.Random(seed), rate, over
        self.accepted, self.kinds = {}, {}  # key -> task, task -> Kind
        self.asked_cancel, self.retried = set(), set()  # tasks
        self.cancels = {}  # task -> attempt that it had when a cancel was acknowledged
        self.completed = {}  # task -> (attempt, result or None), as told
        self.accepted_at = []  # times of submits' answers
        self.problems = []
        self.calls = self.failed_calls = 0
        self.longest = (0, "")
        self.masters, self.stubs, self.which = list(place.masters.values()), {}, seed

    # ---- calls ----

    def stub(self, other=0):
        master = self.masters[(self.which + other) % len(self.masters)]
        if master not in self.stubs:
            channel = master.open_channel(CHANNEL)
            self.stubs[master] = (channel, stubs.tasks_grpc.TaskServiceStub(channel), 0)
        return self.stubs[master][1]

    def failed(self):
        """The next master; a channel that failed often is made anew: grpcio may keep a broken one broken for long."""
        self.failed_calls += 1
        master = self.masters[self.which % len(self.masters)]
        channel, stub, times = self.stubs[master]
        self.stubs[master] = (channel, stub, times + 1)
        if times >= 4:
            channel.close()
            del self.stubs[master]
        self.which += 1

    def call(self, method, request, give_up=False):
        """Until it has an answer; None if give_up and it had none. Other errors are returned."""
        begun = time.monotonic()
        while True:
            self.calls += 1
            try:
                reply = getattr(self.stub(), method)(request, timeout=self.rng.choice((0.05, 1, 5)), wait_for_ready=True)
                self.longest = max(self.longest, (time.monotonic() - begun, method))
                return reply
            except grpc.RpcError as e:
                if e.code() not in AGAIN:
                    return e
                self.failed()
                if give_up:
                    return None
                time.sleep(0.05)

    def wrong(self, what, error):
        self.problems.append(f"{what}: {error.code().name}: {error.details()}")

    # ---- what it does ----

    def submit(self):
        kind = self.rng.choices(KINDS, [k.weight for k in KINDS])[0]
        key = str(uuid.UUID(int=self.rng.getrandbits(128)))
        spec = make_spec(command=["sh", "-c", kind.script], name=kind.name, env={"JOURNAL": str(self.place.journal)},
                         priority=self.rng.choice((-1000, 0, 0, 1000)), **kind.spec)
        request = T.SubmitTaskRequest(spec=spec, idempotency_key=key)
        twice = self.rng.random()
        early = self.in_parallel(request) if twice < 0.15 else []
        for _ in range(2 if twice > 0.9 else 1):
            reply = self.call("SubmitTask", request)
            if isinstance(reply, grpc.RpcError):
                self.wrong(f"submit of {kind.name}", reply)
                return
            self.took(key, kind, reply)
        for call in early:
            try:
                self.took(key, kind, call.result())
            except grpc.RpcError as e:
                if e.code() not in AGAIN:
                    self.wrong(f"submit of {kind.name} in parallel", e)

    def in_parallel(self, request):
        """The same, to two masters at the same time."""
        return [self.stub(i).SubmitTask.future(request, timeout=5) for i in range(2)]

    def took(self, key, kind, reply):
        self.accepted_at.append(now())
        self.kinds[reply.task.id] = kind
        if self.accepted.setdefault(key, reply.task.id) != reply.task.id:
            self.problems.append(f"key {key}: tasks {self.accepted[key]} and {reply.task.id}")

    def some_task(self):
        """Mostly one of the newest: those that run, or are about to end."""
        ids = list(self.kinds)
        return self.rng.choice(ids[-12:] if self.rng.random() < 0.8 else ids)

    def cancel(self):
        task_id = self.some_task()
        self.asked_cancel.add(task_id)
        reply = self.call("CancelTask", T.CancelTaskRequest(task_id=task_id, reason="chaos"))
        if isinstance(reply, grpc.RpcError):
            if reply.code() != grpc.StatusCode.FAILED_PRECONDITION:
                self.wrong("cancel", reply)
        else:
            self.cancels[task_id] = reply.attempt

    def retry(self):
        task_id = self.some_task()
        seen = self.call("GetTask", T.GetTaskRequest(task_id=task_id), give_up=True)
        if not isinstance(seen, stubs.task.Task):
            return
        self.saw(seen)
        if seen.state not in (State.FAILED, State.CANCELLED):
            return
        self.retried.add(task_id)
        reply = self.call("RetryTask", T.RetryTaskRequest(task_id=task_id, attempt=seen.attempt))
        if isinstance(reply, grpc.RpcError) and reply.code() != grpc.StatusCode.FAILED_PRECONDITION:
            self.wrong("retry", reply)

    def get(self):
        request = T.GetTaskRequest(task_id=self.some_task())
        request.wait.FromMilliseconds(500)
        reply = self.call("GetTask", request, give_up=True)
        if isinstance(reply, grpc.RpcError):
            self.wrong("get", reply)
        elif reply is not None:
            self.saw(reply)

    def saw(self, t):
        if t.state == State.COMPLETED:
            told = (t.attempt, t.result)
            if self.completed.setdefault(t.id, told) != told:
                self.problems.append(f"{t.id} was COMPLETED with {self.completed[t.id]}, then with {told}")
        elif t.id in self.completed:
            self.problems.append(f"{t.id} was COMPLETED, then {State.State.Name(t.state)}")

    def logs(self):
        call = self.stub().ReadLogs(T.ReadLogsRequest(task_id=self.some_task(), follow=True), timeout=0.5)
        try:
            for _ in call:
                pass
        except grpc.RpcError as e:
            if e.code() not in AGAIN:
                self.wrong("logs", e)

    def look(self):
        reply = self.call("ListTasks", T.ListTasksRequest(page_size=50), give_up=True)
        if isinstance(reply, grpc.RpcError):
            self.wrong("list", reply)

    def run(self):
        others = [self.cancel, self.retry, self.get, self.logs, self.look]
        try:
            while not self.over.is_set():
                self.submit()
                if len(self.kinds) > 3 and self.rng.random() < 0.6:
                    self.rng.choices(others, (3, 2, 3, 1, 1))[0]()
                self.over.wait(self.rng.expovariate(self.rate))
        except Exception as e:
            self.problems.append(f"the client ended: {e!r}")
            raise
        finally:
            for channel, _, _ in self.stubs.values():
                channel.close()
