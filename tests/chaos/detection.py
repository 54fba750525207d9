"""How long it took from a fault until what had to follow was seen.

Found afterwards, in the journal, in the agents' logs and in the times of the clients' answers: a measurement costs
the run nothing and does not fail with what it measures. Only Redis is asked while it happens (schedule.Keys).
"""

import bisect
import collections
import datetime
import re
import time

from faults import owner
from jobs import now
from schedule import LONGEST

WORDS = {
    "elsewhere": "what ran there runs again", "exclusive": "… if it is exclusive (its lease has 5 s)",
    "back": "workers have a session again", "accepts": "a submit is acknowledged", "starts": "the worker starts a task",
    "keys": "all heartbeat keys are there",
}


class Seen:
    def __init__(self):
        self.values = []  # (seconds, nothing else was down)


class Detection:
    def __init__(self, place, faults, runs, exclusive, accepted_at):
        self.place, self.faults = place, [f for f in faults if f.began is not None]
        self.runs, self.exclusive, self.accepted_at = runs, exclusive, sorted(accepted_at)
        self.found = collections.defaultdict(Seen)  # (kind, word) -> Seen
        self.opened = {name: sessions_of(w.log()) for name, w in place.workers.items()}
        self.started = {name: sorted(r.start for r in runs.values() if r.worker == place.ids + name) for name in place.workers}
        self._elsewhere()
        for one in self.faults:
            if one.kind.seen not in ("", "elsewhere"):
                getattr(self, "_" + one.kind.seen)(one)

    def _note(self, one, word, since, at):
        if at is None or at - since > LONGEST:
            return
        alone = not any(o is not one and o.began < at and (o.ended or at) > one.began for o in self.faults)
        self.found[one.kind.name, word].values.append((at - since, alone))

    def _elsewhere(self):
        attempts = collections.defaultdict(list)
        for task_id, attempt in sorted(self.runs):
            attempts[task_id].append(attempt)
        for task_id, numbers in attempts.items():
            for this, later in zip(numbers, numbers[1:]):
                run, next_start = self.runs[task_id, this], self.runs[task_id, later].start
                if run.over:
                    continue
                causes = [f for f in self.faults if f.kind.seen == "elsewhere" and run.worker == self.place.ids + owner(f.target)
                          and run.start < (f.ended or next_start) and f.began < next_start]
                if causes:
                    cause = max(causes, key=lambda f: f.began)
                    self._note(cause, "exclusive" if task_id in self.exclusive else "elsewhere", cause.began, next_start)

    def _back(self, one):
        if one.target in self.place.masters:
            since = one.began if len(self.place.masters) > 1 else one.ended
            concerned = []
            for name, opened in self.opened.items():
                before = [master for at, master in opened if at < one.began]
                if before and before[-1] == one.target:
                    concerned.append(name)
        else:
            since, concerned = one.ended, [owner(one.target)]
        for name in concerned:
            if since is not None:
                self._note(one, "back", since, first_after([at for at, _ in self.opened[name]], since))

    def _accepts(self, one):
        if one.ended is not None:
            self._note(one, "accepts", one.ended, first_after(self.accepted_at, one.ended))

    def _starts(self, one):
        if one.ended is not None:
            self._note(one, "starts", one.ended, first_after(self.started[owner(one.target)], one.ended))

    def _keys(self, one):
        if one.keys_after is not None:
            self._note(one, "keys", one.ended, one.ended + one.keys_after)


def first_after(times, when):
    at = bisect.bisect_left(times, when)
    return times[at] if at < len(times) else None


def sessions_of(log):
    """[(when, master)] of an agent's log, by the journal's clock."""
    shift = now() - time.time()
    found = []
    for stamp, master in re.findall(r"^(\S+) INFO +session: open: master (\S+),", log, re.M):
        at = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
        found.append((at.timestamp() + shift, master))
    return found
