"""What the tasks run, and the journal in which their programs say themselves what they did.

A line is "WHAT TASK ATTEMPT UPTIME WORKER [REST]": S begins an attempt, T is a sign of life, R its result, E its end with the
code, K its end by a signal. Lines are appended by one write and far shorter than a page: each is whole or not
there, and their order in the file is that in which they were written.
"""

import collections
import time

import stubs

State = stubs.State

SAY = (
    'say() { read -r up _ </proc/uptime; echo "$1 $REINS_TASK_ID $REINS_ATTEMPT $up $REINS_WORKER_ID ${2-}" >>"$JOURNAL"; }; '
    # A disk may be full; whoever is to be believed tries until it is not.
    'result() { until printf %s "$1" >"$REINS_RESULT"; do sleep 0.1; done 2>/dev/null; say R "$1"; }; '
    'out() { echo "$1 $REINS_TASK_ID $REINS_ATTEMPT"; }; '
    'own() { result "$REINS_ATTEMPT.$$.$up"; }; '
)


def _uptime():
    with open("/proc/uptime") as f:
        return float(f.read().split()[0])


_ahead = _uptime() - time.clock_gettime(time.CLOCK_BOOTTIME)  # not 0 where a container has an uptime of its own


def now():
    """The clock of the journal, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + _ahead


class Kind:
    """`weight`: how many of all. `ends`: the states in which it may end if nobody cancels it. `lines`: how often it prints
    its line ("N TASK ATTEMPT", N from 1)."""

    def __init__(self, name, weight, script, ends=State.COMPLETED, lines=0, result=False, **spec):
        self.name, self.weight, self.ends, self.lines, self.result, self.spec = name, weight, ends, lines, result, spec
        self.script = SAY + "say S; " + script

    def log(self, task_id, attempt):
        return b"".join(b"%d %s %d\n" % (i, task_id.encode(), attempt) for i in range(1, self.lines + 1))


def retry(n):
    made = stubs.task.RetryPolicy(max_attempts=n, multiplier=1)
    made.initial_backoff.FromMilliseconds(50)
    made.max_backoff.FromMilliseconds(50)
    return made


def duration(seconds):
    return stubs.every.task_pb2.TaskSpec(timeout={"seconds": seconds}).timeout


# Longer than the other leases: the margin in which a tree must be gone (a tenth of it) is to hold on a busy machine.
EXCLUSIVE = {"exclusive": True, "queue": "alone", "lease_ttl": duration(5)}
# A child in a session of its own that is deaf, and signs of life of it until it is killed.
DEAF = '( trap "" TERM HUP; while :; do say T deaf; sleep 0.2; done ) </dev/null >/dev/null 2>&1 & '

KINDS = [
    Kind("quick", 30, "out 1; own; say E 0", lines=1, result=True),
    Kind("short", 20, "out 1; sleep 0.3; out 2; own; say E 0", lines=2, result=True),
    Kind("long", 10, "for i in 1 2 3 4 5 6 7 8; do out $i; sleep 0.5; done; own; say E 0", lines=8, result=True),
    Kind("prints", 3, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); out $i; done; own; say E 0", lines=3000, result=True),
    Kind("fails", 6, "out 1; say E 3; exit 3", State.FAILED, lines=1, retry=retry(3)),
    # At its third attempt it has failed twice, or less and was lost.
    Kind("flaky", 6, "out 1; [ $REINS_ATTEMPT -ge 3 ] || { say E 4; exit 4; }; own; say E 0", lines=1, result=True, retry=retry(3)),
    Kind("killed", 3, "out 1; say K 15; kill -TERM $$; sleep 60", State.FAILED, lines=1),
    Kind("slow", 4, "out 1; sleep 60; say E 0", State.FAILED, lines=1, timeout=duration(1)),
    Kind("forks", 6, "for i in 1 2 3; do ( sleep 0.$i; say T $i ) & done; wait; out 1; own; say E 0", lines=1, result=True),
    Kind("leaves", 6, 'setsid sh -c "trap : TERM; sleep 300; sleep 300" & out 1; own; say E 0', lines=1, result=True),
    Kind("alone", 9, "( i=0; while [ $i -lt 8 ]; do i=$((i+1)); say T child; sleep 0.1; done ) & "
         "for i in 1 2 3 4 5 6; do say T $i; out $i; sleep 0.15; done; wait; own; say E 0", lines=6, result=True, **EXCLUSIVE),
    # Longer than its lease: whoever is cut off meanwhile is still at it when the lease ends.
    Kind("alone-long", 4, "( i=0; while [ $i -lt 32 ]; do i=$((i+1)); say T child; sleep 0.25; done ) & "
         "for i in 1 2 3 4 5 6 7 8; do say T $i; out $i; sleep 1; done; wait; own; say E 0", lines=8, result=True, **EXCLUSIVE),
    # What it leaves of its first attempt must be gone before the second begins.
    Kind("alone-fails", 5, DEAF + "sleep 0.3; out 1; say E 5; exit 5", State.FAILED, lines=1, retry=retry(2), **EXCLUSIVE),
]


class Run:
    """One attempt as its program tells it."""

    def __init__(self):
        self.starts = 0  # more than one: the attempt ran more than once
        self.start = self.last = self.worker = self.end = self.signal = self.result = None
        self.first_line = self.last_line = None  # of the journal

    @property
    def over(self):
        return self.end is not None or self.signal is not None


def read_journal(path):
    """{(task, attempt): Run}"""
    runs = collections.defaultdict(Run)
    with open(path) as f:
        for number, line in enumerate(f):
            what, task_id, attempt, up, worker, *rest = line.rstrip("\n").split(" ")
            run = runs[task_id, int(attempt)]
            if run.first_line is None:
                run.first_line, run.start, run.worker = number, float(up), worker
            run.last_line, run.last = number, max(float(up), run.last or 0)
            if what == "S":
                run.starts += 1
            elif what == "R":
                run.result = rest[0].encode()
            elif what == "E":
                run.end = int(rest[0])
            elif what == "K":
                run.signal = int(rest[0])
    return dict(runs)
