#!/usr/bin/python3
"""Real reinsd, real workers and clients, while whatever can fail fails; then what is recorded is compared with what
the programs themselves wrote into a file.

    tests/chaos/chaos.py [--store sqlite] [--seconds 60] [--seed N] [--faults kill_master,flush]

Prints its seed and each fault, and ends with 0 if every promise held. The seed fixes the order of the faults, not the
interleaving of the processes. REINS_BUILD names the build folder.
"""

import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import stubs  # noqa: E402
import grpc  # noqa: E402
from cluster import BUILD, Cluster, Postgres, Redis, make_spec, wait_for  # noqa: E402
from proxy import Proxy  # noqa: E402
from real_worker import Worker  # noqa: E402

State, End, T = stubs.State, stubs.End, stubs.tasks
TERMINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)
FLAGS = {
    "heartbeat-interval": "300ms", "lease-ttl": "2s", "accept-timeout": "1s", "disconnect-grace": "200ms",
    "reconcile-interval": "300ms", "recovery-interval": "500ms", "lost-limit": "1000", "log-level": "info",
}
SETTLE = 180  # seconds for all that was accepted to end, once nothing fails any more
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
# Lines are shorter than a pipe's buffer and appended: each is whole, and their order is that of the events.
SAY = 'say() { echo "$1 $REINS_TASK_ID $REINS_ATTEMPT $2" >>"$JOURNAL"; }; '


class Kind:
    """What a program does, and how a task of it may end if nobody cancels it."""

    def __init__(self, name, script, ends, **spec):
        self.name, self.ends, self.spec = name, ends, spec
        self.script = SAY + "say S; " + script


def retry(n):
    made = stubs.task.RetryPolicy(max_attempts=n, multiplier=1)
    made.initial_backoff.FromMilliseconds(50)
    made.max_backoff.FromMilliseconds(50)
    return made


def timeout(seconds):
    return stubs.every.task_pb2.TaskSpec(timeout={"seconds": seconds}).timeout


KINDS = [
    Kind("quick", 'echo "out $REINS_TASK_ID $REINS_ATTEMPT"; printf %s "$REINS_ATTEMPT" >"$REINS_RESULT"; say E 0',
         {State.COMPLETED}),
    Kind("short", 'sleep 0.3; echo "out $REINS_TASK_ID $REINS_ATTEMPT"; printf %s "$REINS_ATTEMPT" >"$REINS_RESULT"; say E 0',
         {State.COMPLETED}),
    Kind("long", 'sleep 3; say E 0', {State.COMPLETED}),
    Kind("fails", 'say E 3; exit 3', {State.FAILED}, retry=retry(3)),
    Kind("leaves", 'sh -c "trap : TERM; sleep 300; sleep 300" & say E 0', {State.COMPLETED}),
    Kind("slow", 'sleep 60; say E 0', {State.FAILED}, timeout=timeout(1)),
    Kind("alone", 'for i in 1 2 3 4 5 6 7 8; do say T $i; sleep 0.15; done; say E 0', {State.COMPLETED},
         exclusive=True, queue="alone"),
]


class Client(threading.Thread):
    """Submits, cancels and asks until told to stop; what was begun is brought to its end."""

    def __init__(self, chaos, seed):
        super().__init__(daemon=True)
        self.chaos, self.rng = chaos, random.Random(seed)
        self.accepted, self.kinds, self.cancelled = {}, {}, set()  # key -> id, id -> Kind, ids
        self.faults = []
        self.longest = (0, "")
        self.stub = stubs.tasks_grpc.TaskServiceStub(chaos.channel())

    def call(self, method, request, give_up=False, **kwargs):
        """Until it has an answer; None if give_up and it had none. Other errors are returned."""
        begun = time.monotonic()
        while True:
            try:
                reply = getattr(self.stub, method)(request, timeout=self.rng.choice((0.05, 1, 5)),
                                                    wait_for_ready=True, **kwargs)
                self.longest = max(self.longest, (time.monotonic() - begun, method))
                return reply
            except grpc.RpcError as e:
                if e.code() not in AGAIN:
                    return e
                if give_up:
                    return None
                time.sleep(0.05)

    def submit(self):
        kind = self.rng.choice(KINDS)
        key = str(uuid.UUID(int=self.rng.getrandbits(128)))
        spec = make_spec(command=["sh", "-c", kind.script], name=kind.name, env={"JOURNAL": str(self.chaos.journal)},
                         priority=self.rng.choice((-1000, 0, 0, 1000)), **kind.spec)
        request = T.SubmitTaskRequest(spec=spec, idempotency_key=key)
        for _ in range(self.rng.choice((1, 1, 1, 3))):
            reply = self.call("SubmitTask", request)
            if isinstance(reply, grpc.RpcError):
                self.faults.append(f"submit of {kind.name}: {reply.code()}: {reply.details()}")
                return
            if self.accepted.setdefault(key, reply.task.id) != reply.task.id:
                self.faults.append(f"key {key}: tasks {self.accepted[key]} and {reply.task.id}")
            self.kinds[reply.task.id] = kind

    def ask(self):
        task_id = self.rng.choice(list(self.kinds))
        what = self.rng.random()
        if what < 0.3:
            self.cancelled.add(task_id)
            reply = self.call("CancelTask", T.CancelTaskRequest(task_id=task_id))
            if isinstance(reply, grpc.RpcError) and reply.code() != grpc.StatusCode.FAILED_PRECONDITION:
                self.faults.append(f"cancel: {reply.code()}: {reply.details()}")
        elif what < 0.6:
            request = T.GetTaskRequest(task_id=task_id)
            request.wait.FromMilliseconds(500)
            reply = self.call("GetTask", request, give_up=True)
            if isinstance(reply, grpc.RpcError):
                self.faults.append(f"get: {reply.code()}: {reply.details()}")
        elif what < 0.8:
            call = self.stub.ReadLogs(T.ReadLogsRequest(task_id=task_id, follow=True), timeout=0.5)
            try:
                for _ in call:
                    pass
            except grpc.RpcError as e:
                if e.code() not in AGAIN:
                    self.faults.append(f"logs: {e.code()}: {e.details()}")
        else:
            reply = self.call("ListTasks", T.ListTasksRequest(page_size=50), give_up=True)
            if isinstance(reply, grpc.RpcError):
                self.faults.append(f"list: {reply.code()}: {reply.details()}")

    def run(self):
        try:
            while not self.chaos.over.is_set():
                if len(self.kinds) > 2 and self.rng.random() < 0.4:
                    self.ask()
                else:
                    self.submit()
                time.sleep(self.rng.random() * 0.3)
        except Exception as e:
            self.faults.append(f"client ended: {e!r}")
            raise


class Chaos:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rng = random.Random(options.seed)
        self.over = threading.Event()
        self.journal = folder / "journal"
        self.journal.touch()
        self.postgres, self.redis = Postgres(folder), Redis(folder)
        flags = dict(FLAGS)
        if options.store == "sqlite":
            flags |= {"store": f"sqlite:{folder}/reins.db", "lease": "memory"}
        self.cluster = Cluster(self.postgres, self.redis, folder, flags).start()
        self.channels = []
        self.proxies = [Proxy(self.cluster.address) for _ in range(3)]
        # Exclusive tasks go to those that are never stopped without their programs.
        self.prefix = f"chaos{os.getpid()}-"
        self.workers = []
        for i in range(3):
            (folder / f"w{i}").mkdir()
            queues = "default" if i == 2 else "default,alone"
            self.workers.append(Worker(BUILD, folder / f"w{i}", self.proxies[i].address, id=f"{self.prefix}{i}", slots=6,
                                       queues=queues, log_level="info", kill_grace="500ms").start())
        self.frozen = self.workers[2]
        self.clients = [Client(self, options.seed * 1000 + i) for i in range(options.clients)]
        self.workers_died = self.forgot = False
        self.ends = {}  # group of a fault -> (when it ends, how, its name)

    def channel(self):
        # gRPC gives up a connection that is not ready within the least backoff.
        self.channels.append(grpc.insecure_channel(self.cluster.address, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 500)]))
        return self.channels[-1]

    # ---- faults: each begins here and returns what ends it ----

    def kill_master(self):
        self.cluster.kill9()
        return self.start_master

    def start_master(self):
        self.cluster.start(wait=False)

    def stop_master(self):
        pid = self.cluster.process.pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def kill_worker(self):
        worker = self.rng.choice(self.workers)
        worker.kill()
        return worker.start

    def end_worker(self):
        worker = self.rng.choice(self.workers)
        worker.process.terminate()
        time.sleep(0.05)
        worker.process.terminate()

        def again():
            try:
                worker.process.wait(20)
            except subprocess.TimeoutExpired:
                self.fault(f"worker {worker.folder.name} did not end on SIGTERM")
                worker.kill()
            worker.start()
        return again

    def new_worker(self):
        """Comes back without what it knew, also of children that its programs left behind when they died with it."""
        self.forgot = True
        worker = self.rng.choice(self.workers)
        worker.kill()
        shutil.rmtree(worker.state, ignore_errors=True)
        return worker.start

    def freeze_worker(self):
        pid = self.frozen.process.pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def cut(self):
        self.rng.choice(self.proxies).drop()

    def part(self):
        proxy = self.rng.choice(self.proxies)
        proxy.partition()
        return proxy.heal

    def kill_redis(self):
        self.redis.stop()
        return self.redis.start

    def stop_redis(self):
        os.kill(self.redis.process.pid, signal.SIGSTOP)
        return lambda: os.kill(self.redis.process.pid, signal.SIGCONT)

    def flush(self):
        self.redis.client.flushall()

    def kill_postgres(self):
        self.postgres.stop()
        return self.postgres.start

    def freeze_postgres(self):
        pids = [self.postgres.process.pid, *children(self.postgres.process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        def thaw():
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        return thaw

    def terminate_backends(self):
        self.postgres.execute("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                              (self.cluster.database,))

    # Which can't happen together.
    FAULTS = {
        "kill_master": "master", "stop_master": "master", "kill_worker": "worker", "end_worker": "worker",
        "new_worker": "worker", "freeze_worker": "worker", "cut": "", "part": "proxy", "kill_redis": "redis",
        "stop_redis": "redis", "flush": "redis", "kill_postgres": "postgres", "freeze_postgres": "postgres",
        "terminate_backends": "postgres",
    }

    # ---- the run ----

    def fault(self, text):
        print(f"FAULT {text}", flush=True)
        self.found.append(text)

    def say(self, text):
        print(f"{time.monotonic() - self.begun:7.2f} {text}", flush=True)

    def step(self, names):
        now = time.monotonic()
        for group, (until, end, name) in list(self.ends.items()):
            if until <= now:
                del self.ends[group]
                self.say(f"end of {name}")
                end()
        if len(self.ends) < 2 and self.rng.random() < 0.15:
            name = self.rng.choice(names)
            group = self.FAULTS[name]
            if group not in self.ends:
                self.say(name)
                self.workers_died |= group == "worker" and name != "freeze_worker"
                end = getattr(self, name)()
                if end:
                    self.ends[group] = (time.monotonic() + self.rng.choice((0.1, 0.5, 1, 2, 4)), end, name)

    def run(self):
        self.found, self.begun = [], time.monotonic()
        names = self.options.faults.split(",") if self.options.faults else list(self.FAULTS)
        if self.options.store == "sqlite":
            names = [n for n in names if self.FAULTS[n] not in ("redis", "postgres")]
        for client in self.clients:
            client.start()
        while time.monotonic() - self.begun < self.options.seconds:
            self.step(names)
            if "master" not in self.ends and self.cluster.process.poll() is not None:
                self.fault(f"reinsd ended with {self.cluster.process.returncode}")
                break
            for w in self.workers:
                if "worker" not in self.ends and w.process.poll() is not None:
                    self.fault(f"{w.folder.name} ended with {w.process.returncode}: {w.log()[-500:]}")
                    w.start()
            time.sleep(0.05)
        for _, end, name in self.ends.values():
            self.say(f"end of {name}")
            end()
        self.ends.clear()
        self.over.set()
        wait_for(lambda: self.cluster._serving(), "reinsd serves", 60)
        for client in self.clients:
            client.join(60)
            if client.is_alive():
                self.fault("a client has no answer")
            for f in client.faults:
                self.fault(f)
        self.say("longest calls: " + ", ".join(f"{s:.1f} s {m}" for s, m in (c.longest for c in self.clients)))
        self.settle()
        self.compare()
        self.look_around()
        return self.found

    def settle(self):
        kinds = self.kinds = {i: k for c in self.clients for i, k in c.kinds.items()}
        self.say(f"nothing fails any more; {len(kinds)} tasks were accepted")
        deadline = time.monotonic() + SETTLE
        while True:
            tasks = self.cluster.list_all(page_size=1000, view=stubs.task.TASK_VIEW_FULL)
            left = [t for t in tasks if t.state not in TERMINAL]
            if not left:
                break
            if time.monotonic() > deadline:
                for t in left:
                    self.fault(f"not ended: {t.id} {t.spec.name} state {t.state} attempt {t.attempt} {t.pending_reason}")
                break
            time.sleep(0.5)
        self.tasks = {t.id: self.cluster.get(t.id) for t in tasks}
        if len(self.tasks) != len(tasks):
            self.fault("a task is listed twice")

    def compare(self):
        said = collections.defaultdict(list)
        alone = collections.defaultdict(list)  # task -> attempts in the order of their lines
        for line in self.journal.read_text().splitlines():
            what, task_id, attempt, *rest = line.split(" ")
            if what != "T":
                said[task_id, int(attempt)].append(what + "".join(rest))
            alone[task_id].append(int(attempt))
        cancelled = set().union(*(c.cancelled for c in self.clients))
        for i in set(self.kinds) - set(self.tasks):
            self.fault(f"lost: {i}")
        for i in set(self.tasks) - set(self.kinds):
            self.fault(f"invented, or made twice: {i} {self.tasks[i].spec.name}")
        for ref, lines in said.items():
            if lines.count("S") != 1:
                self.fault(f"attempt {ref} ran {lines.count('S')} times: {lines}")
        for i, t in self.tasks.items():
            kind = self.kinds.get(i)
            if kind and t.state in TERMINAL:
                self.compare_one(t, kind, said, i in cancelled)
                if t.spec.exclusive and alone[i] != sorted(alone[i]):
                    self.fault(f"exclusive {i}: two attempts at a time: {alone[i]}")
        counts = collections.Counter((t.spec.name, State.State.Name(t.state)) for t in self.tasks.values())
        attempts = sum(len(t.attempts) for t in self.tasks.values())
        ends = collections.Counter(End.End.Name(a.end) for t in self.tasks.values() for a in t.attempts)
        self.say(f"{len(self.tasks)} tasks, {attempts} attempts {dict(ends)}")
        self.say(" ".join(f"{n}:{s}={c}" for (n, s), c in sorted(counts.items())))

    def compare_one(self, t, kind, said, cancelled):
        name = f"{t.id} {kind.name} {State.State.Name(t.state)} attempts {[(a.number, End.End.Name(a.end), a.cause) for a in t.attempts]}"
        if t.state == State.CANCELLED and not cancelled:
            self.fault(f"cancelled by nobody: {name}")
        if t.state != State.CANCELLED and t.state not in kind.ends:
            self.fault(f"wrong end: {name} {t.error!r}")
        if len({a.number for a in t.attempts}) != len(t.attempts):
            self.fault(f"an attempt is there twice: {name}")
        if any(a.end == End.END_UNSPECIFIED for a in t.attempts):
            self.fault(f"an attempt has no end: {name}")
        good = [a for a in t.attempts if a.end == End.SUCCEEDED]
        if len(good) != (t.state == State.COMPLETED):
            self.fault(f"{len(good)} successes: {name}")
        for a in t.attempts:
            lines = said[t.id, a.number]
            if a.end == End.SUCCEEDED and "E0" not in lines:
                self.fault(f"success invented, attempt {a.number} said {lines}: {name}")
            if a.end == End.FAILED and a.signal == 0 and f"E{a.exit_code}" not in lines:
                self.fault(f"failure invented, attempt {a.number} said {lines}: {name}")
            if a.end in (End.REFUSED, End.RECALLED) and "S" in lines:
                self.say(f"note: attempt {a.number} ran and is {End.End.Name(a.end)}: {name}")
        if good and kind.name in ("quick", "short"):
            number = good[0].number
            if t.result != str(number).encode():
                self.fault(f"result {t.result!r}: {name}")
            log = b"".join(c.data for c in self.cluster.read_logs(t.id, attempt=number))
            want = f"out {t.id} {number}\n".encode()
            # A worker keeps the log in memory: one that ended after the outcome was on disk has its length only.
            if log != want and not (log == b"" and self.workers_died and good[0].log_bytes == len(want)):
                self.fault(f"log {log!r}: {name}")

    def look_around(self):
        """What is left over."""
        if self.options.store != "sqlite":
            try:
                wait_for(lambda: not self.cluster.keys.keys("reins:task:*"), "no owner keys", 10)
            except AssertionError:
                self.fault(f"keys left: {self.cluster.keys.keys('reins:task:*')[:5]}")
            held = {k: self.cluster.keys.hgetall(k) for k in self.cluster.keys.keys("reins:worker:*:task")}
            if any(held.values()):
                self.fault(f"hashes left: {held}")
        rss = int(pathlib.Path(f"/proc/{self.cluster.process.pid}/statm").read_text().split()[1]) * 4
        fds = len(os.listdir(f"/proc/{self.cluster.process.pid}/fd"))
        self.say(f"reinsd: {rss} KiB, {fds} descriptors")
        left = self.programs()
        if left:
            try:
                wait_for(lambda: not self.programs(), "no processes", 5)
            except AssertionError:
                (self.say if self.forgot else self.fault)(f"processes left: {self.programs()}")
        for channel in self.channels:
            channel.close()
        for w in self.workers:
            try:
                w.stop()
            except BaseException as e:  # pytest.fail, too
                self.fault(f"{w.folder.name}: {e}"[:3000])
        try:
            status = self.cluster.stop()
            if status:
                self.fault(f"reinsd ended with {status}")
        except subprocess.TimeoutExpired:
            self.fault("reinsd does not end")
        if "Sanitizer" in self.cluster.log() or "runtime error" in self.cluster.log():
            self.fault("sanitizer report in " + str(self.cluster.log_path))

    def programs(self):
        found = []
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"REINS_WORKER_ID={self.prefix}".encode() in (p / "environ").read_bytes():
                    found.append((p.name, (p / "cmdline").read_bytes()[:80]))
            except OSError:
                continue
        return found

    def close(self):
        for w in self.workers:
            if w.process and w.process.poll() is None:
                w.kill()
        for pid, _ in self.programs():
            os.kill(int(pid), signal.SIGKILL)
        if self.cluster.process and self.cluster.process.poll() is None:
            self.cluster.kill9()
        for server in (self.postgres, self.redis):
            if server.process and server.process.poll() is None:
                server.stop()


def children(pid):
    found = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--faults", default="", help="only these, separated by commas")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-chaos-"))
    folder.chmod(0o755)
    print(f"seed {options.seed}, store {options.store}, folder {folder}", flush=True)
    chaos = Chaos(options, folder)
    try:
        found = chaos.run()
    finally:
        chaos.close()
    print(f"seed {options.seed}: {len(found)} faults", flush=True)
    if found:
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
