"""Whether what is recorded is what happened: the store and the API against the journal and what clients were told."""

import collections
import random
import time

import grpc
import stubs
from cluster import wait_for
from faults import owner
from place import LEASE, MASTER_TTL, ORPHAN, RECOVERY
from jobs import now, read_journal

State, End = stubs.State, stubs.End
BY_PROGRAM = (End.FAILED, End.TIMED_OUT)
TERMINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)
NOT_LISTED = "not on the list of its worker"
AFTER = LEASE + 1  # seconds in which a fault of a worker may still cost an attempt
LOGS = 5000  # attempts whose log is read; of more a random choice
# A key has its lease and a look of the recovery; the rest is for a busy machine.
KEYS_GONE = LEASE + RECOVERY + 5

PROMISES = {
    "lost": "an accepted task is there and ends",
    "lost attempts": "an attempt is lost only if something happened to its worker",
    "doubled": "each key one task, each task one record, each attempt one run and one end",
    "overlapping": "two runs of an exclusive task are never there at a time",
    "invented": "an end is what the program said",
    "taken back": "what a client was told stays so",
    "results": "a recorded result is the program's",
    "logs": "the log of an attempt that ended is whole",
    "processes": "no process is left",
    "keys": "no key is left without a row",
    "memory": "masters stay small",
    "ended": "no program ends by itself, and each does when told",
    "answers": "no call has an answer that it should not have",
}


class Accounting:
    def __init__(self, place, clients, faults, early):
        self.place, self.clients, self.faults = place, clients, faults
        self.problems = collections.defaultdict(list)
        for promise, text in early:
            self.problems[promise].append(text)
        self.kinds = {i: k for c in clients for i, k in c.kinds.items()}
        self.asked_cancel = set().union(*(c.asked_cancel for c in clients))
        self.retried = set().union(*(c.retried for c in clients))
        self.tasks, self.runs = {}, {}
        self.logs_read = self.logs_cut = 0
        self.disk_was_full = any(f.kind.name == "disk-full" and f.began for f in faults)

    def problem(self, promise, text):
        assert promise in PROMISES
        self.problems[promise].append(text)
        print(f"PROBLEM ({PROMISES[promise]}): {text}", flush=True)

    def settle(self, patience):
        """Until all that was accepted has ended, now that nothing fails any more."""
        cluster = self.place.any_master()

        def left():
            try:
                return cluster.list_all(page_size=1000, view=stubs.task.TASK_VIEW_FULL, states=[State.PENDING, State.RUNNING])
            except grpc.RpcError as e:
                cluster.connect_anew()
                return [e]

        try:
            wait_for(lambda: not left(), timeout=patience)
        except AssertionError:
            for t in left():
                self.problem("lost", f"has not ended after {patience} s: {t.id} {t.spec.name} {State.State.Name(t.state)} attempt "
                             f"{t.attempt} on {t.worker_id}: {t.pending_reason}" if hasattr(t, "spec") else f"no list: {t}")
        listed = cluster.list_all(page_size=1000, view=stubs.task.TASK_VIEW_FULL)
        self.tasks = {t.id: t for t in listed}
        if len(self.tasks) != len(listed):
            self.problem("doubled", "a task is listed twice")
        self.runs = read_journal(self.place.journal)

    def compare(self):
        for i in sorted(set(self.kinds) - set(self.tasks)):
            self.problem("lost", f"{i} {self.kinds[i].name} was accepted and is not there")
        for i in sorted(set(self.tasks) - set(self.kinds)):
            self.problem("doubled", f"{i} {self.tasks[i].spec.name} is there and nobody was told of it: one key made two")
        for i in sorted(set(self.tasks) & set(self.kinds)):
            t = self.tasks[i]
            if t.state in TERMINAL:
                self._task(t, self.kinds[i])
        for (i, attempt), run in self.runs.items():
            if run.starts != 1:
                self.problem("doubled", f"{i} attempt {attempt} began {run.starts} times")
            if i not in self.tasks:
                self.problem("doubled", f"{i} ran and is not there")
            elif attempt > self.tasks[i].attempt:
                self.problem("invented", f"{i} attempt {attempt} ran and is not recorded")
        self._told()
        self._rows()
        self._overlaps()
        self._lost_attempts()
        self._logs()

    def _name(self, t):
        ends = [(a.number, End.End.Name(a.end), a.cause, a.worker_id.removeprefix(self.place.ids)) for a in t.attempts]
        return f"{t.id} {t.spec.name} {State.State.Name(t.state)} {ends}"

    def _task(self, t, kind):
        good = [a for a in t.attempts if a.end == End.SUCCEEDED]
        numbers = [a.number for a in t.attempts]
        if numbers != list(range(1, t.attempt + 1)):
            self.problem("doubled", f"attempts {numbers} of {t.attempt}: {self._name(t)}")
        if len(good) > 1:
            self.problem("doubled", f"{len(good)} successes: {self._name(t)}")
        if len(good) != (t.state == State.COMPLETED):
            self.problem("invented", f"{len(good)} successes: {self._name(t)}")
        if any(a.end == End.END_UNSPECIFIED for a in t.attempts):
            self.problem("lost", f"an attempt has no end: {self._name(t)}")
        self._state(t, kind)
        for a in t.attempts:
            run = self.runs.get((t.id, a.number))
            if a.end == End.SUCCEEDED and (run is None or run.end != 0):
                self.problem("invented", f"attempt {a.number} succeeded and its program did not say so: {self._name(t)}")
            if a.end == End.FAILED and (run is None or (run.signal != a.signal if a.signal else run.end != a.exit_code)):
                self.problem("invented", f"attempt {a.number} failed with {a.exit_code}, signal {a.signal}, its program said "
                             f"{run and (run.end, run.signal)}: {self._name(t)}")
            if a.end == End.LAUNCH_FAILED:
                self.problem("invented", f"attempt {a.number} could not be launched: {a.error}: {self._name(t)}")
        if t.state == State.COMPLETED and kind.result:
            run = self.runs.get((t.id, good[0].number)) if good else None
            if run and run.result != t.result:
                self.problem("results", f"{t.result!r} is recorded, the program wrote {run.result!r}: {self._name(t)}")

    def _state(self, t, kind):
        failures = sum(a.end in BY_PROGRAM for a in t.attempts)
        if t.state == State.CANCELLED:
            if t.id not in self.asked_cancel:
                self.problem("invented", f"cancelled by nobody: {self._name(t)}")
        elif t.state == State.FAILED and t.id in self.asked_cancel:
            # A program may end by itself before it is stopped; it is not tried again then.
            if not t.attempts or t.attempts[-1].end not in BY_PROGRAM:
                self.problem("invented", f"FAILED though its program did not fail: {self._name(t)}")
        elif t.state != kind.ends:
            self.problem("invented", f"it can't end so: {self._name(t)} {t.error}")
        elif t.state == State.FAILED and t.id not in self.retried and failures != max(1, t.spec.retry.max_attempts):
            self.problem("invented", f"FAILED after {failures} of {t.spec.retry.max_attempts} failures: {self._name(t)}")

    def _told(self):
        for c in self.clients:
            for i, (attempt, result) in c.completed.items():
                t = self.tasks.get(i)
                if t and (t.state, t.attempt, t.result) != (State.COMPLETED, attempt, result):
                    self.problem("taken back", f"a client saw attempt {attempt} COMPLETED with {result!r}: {self._name(t)}")
            for i, attempt in c.cancels.items():
                # A retry of anybody's may have come after it.
                t = self.tasks.get(i)
                if t and i not in self.retried and t.attempt > attempt:
                    self.problem("taken back", f"a cancel was acknowledged at attempt {attempt}, and later ones ran: {self._name(t)}")

    def _rows(self):
        """Each task is in one table, once."""
        if self.place.store != "postgres":
            return
        rows = collections.Counter()
        for table in ("ready", "delayed", "running", "ended"):
            for i, in self.place.any_master().sql(f"SELECT task_id::text FROM reins.{table}"):
                rows[i] += 1
        for i, n in rows.items():
            if n > 1:
                self.problem("doubled", f"{i} has {n} rows")
        for i in set(self.tasks) - set(rows):
            self.problem("lost", f"{i} has no row that says what it is")
        keys = self.place.any_master().sql("SELECT task_id::text, count(*) FROM reins.idempotency GROUP BY 1 HAVING count(*) > 1")
        if keys:
            self.problem("doubled", f"tasks with several keys: {keys[:5]}")

    def exclusive(self):
        return {i for i, k in self.kinds.items() if k.spec.get("exclusive")}

    def _overlaps(self):
        """By the order of the journal and by the programs' own clocks."""
        attempts = collections.defaultdict(list)
        for i, attempt in sorted(self.runs):
            attempts[i].append(attempt)
        for i in self.exclusive():
            for n, this in enumerate(attempts[i]):
                for later in attempts[i][n + 1:]:
                    a, b = self.runs[i, this], self.runs[i, later]
                    if b.first_line < a.last_line or b.start < a.last:
                        self.problem("overlapping", f"{i}: attempt {later} began at {b.start} on {b.worker}, attempt {this} of {a.worker} was "
                                     f"there until {a.last}: {self._name(self.tasks[i]) if i in self.tasks else ''}")

    def _lost_attempts(self):
        """Whatever happens to masters, Redis and Postgres: what runs goes on, and an end that a worker has is recorded."""
        happened = collections.defaultdict(list)  # worker -> [(from, until)]
        for f in self.faults:
            if f.began is None:
                continue
            span = (f.began, (f.ended or f.began + f.lasts) + AFTER)
            happened[self.place.ids + owner(f.target)].append(span)
            # So long without a beat a master has its sessions judged by others, who don't hear its workers.
            if owner(f.target) in self.place.masters and f.lasts >= MASTER_TTL:
                for name in self.place.workers:
                    happened[self.place.ids + name].append(span)
        for t in self.tasks.values():
            for a in t.attempts:
                run = self.runs.get((t.id, a.number))
                gone = a.end == End.LOST or (a.end == End.RECALLED and a.cause == NOT_LISTED)
                if not run or not gone:
                    continue
                noted = a.finished_at.ToMicroseconds() / 1e6 + now() - time.time()
                if not any(begun < noted and run.start < end for begun, end in happened[run.worker]):
                    self.problem("lost attempts", f"attempt {a.number} of {run.worker} ran from {run.start} to {run.last}, its end was {run.end}; lost at {noted:.2f}: "
                                 f"{self._name(t)}")

    def _logs(self):
        """An attempt's end is recorded when its log is stored; any other log is a beginning of what it printed."""
        refs = [(t, a) for t in self.tasks.values() if t.id in self.kinds for a in t.attempts if (t.id, a.number) in self.runs]
        if len(refs) > LOGS:
            refs = random.Random(0).sample(refs, LOGS)
        for t, a in refs:
            want = self.kinds[t.id].log(t.id, a.number)
            chunks = self.place.any_master().read_logs(t.id, attempt=a.number)
            got, dropped = b"".join(c.data for c in chunks), sum(c.dropped_bytes for c in chunks)
            whole = a.end == End.SUCCEEDED or (a.end == End.FAILED and not a.signal)
            self.logs_read += 1
            if dropped and self.disk_was_full:
                self.logs_cut += 1  # and it is said
            elif dropped or (got != want if whole else not want.startswith(got)):
                self.problem("logs", f"attempt {a.number} printed {want[-80:]!r} ({len(want)} bytes), kept are {got[-80:]!r} ({len(got)} bytes, "
                             f"{dropped} said to be dropped): {self._name(t)}")

    # ---- what is left over ----

    def left(self):
        try:
            wait_for(lambda: not self.place.programs(), timeout=LEASE + ORPHAN + 15)
        except AssertionError:
            self.problem("processes", f"{self.place.programs()}")
        if self.place.store == "postgres":
            try:
                wait_for(lambda: not self._keys(), timeout=KEYS_GONE)
            except AssertionError:
                self.problem("keys", f"{self._keys()}")

    def _keys(self):
        keys = self.place.any_master().keys
        found = keys.keys("reins:task:*")
        return found + [k for k in keys.keys("reins:worker:*:task") if keys.hlen(k)]
