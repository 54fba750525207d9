"""When faults come. The plan follows from the seed alone: two lanes, so that two things are down at a time, any two, and often
from the same moment on."""

import concurrent.futures
import threading
import time

import redis
from jobs import now

LONGEST = 20  # seconds; what is seen later has another cause
SECOND = 0.3  # how often a fault comes with another at the same moment


class Fault:
    """`at`: seconds after the start; `began`, `ended`: by the journal's clock, None if it did not come to that."""

    def __init__(self, at, kind, target, lasts):
        self.at, self.kind, self.target, self.lasts = at, kind, target, lasts
        self.began = self.ended = None
        self.keys_after = None  # seconds, see Keys

    def __str__(self):
        return f"{self.kind.name} {self.target}" + (f" for {self.lasts:g} s" if self.lasts > 0.1 else "")


def plan(kinds, where, seconds, rng):
    """Faults by their time. All kinds come before one comes again."""
    deck, made, lanes, busy = [], [], [0.5, 1.5], {}
    while min(lanes) < seconds:
        lane = lanes.index(min(lanes))
        at = lanes[lane]
        if not deck:
            deck = rng.sample(kinds, len(kinds))
        free = [(k, t) for k in deck for t in where[k.on] if busy.get(t, 0) <= at]
        if not free:
            lanes[lane] += 0.25
            continue
        kind = free[0][0]
        target = rng.choice([t for k, t in free if k is kind])
        deck.remove(kind)
        lasts = min(rng.choice(kind.spans), max(0.1, seconds - at))
        made.append(Fault(at, kind, target, lasts))
        busy[target] = at + lasts + 0.3
        lanes[lane] = at + lasts + rng.choice((0.2, 0.5, 1, 1.5))
        if rng.random() < SECOND and lanes[1 - lane] < at + 2:
            lanes[1 - lane] = at + rng.random() * 0.05
    return made


class Play:
    """Lets the faults of a plan happen, each on a thread of its own: some end only when a program has ended.

    The threads are `hands`, which live as long as the whole: programs that were started to die with us die with the thread
    that started them."""

    def __init__(self, place, faults, locks, hands, say, problem):
        self.place, self.faults, self.locks, self.hands, self.say, self.problem = place, faults, locks, hands, say, problem
        self.keys = Keys(place) if place.store == "postgres" else None

    def run(self, patience):
        """True: all came to their ends, the last within `patience`."""
        begun, doing = now(), []
        for one in self.faults:
            time.sleep(max(0, begun + one.at - now()))
            doing.append(self.hands.submit(self._one, one))
        return not concurrent.futures.wait(doing, patience).not_done

    def _one(self, one):
        try:
            with self.locks[one.target]:
                before = self.keys.there() if one.kind.seen == "keys" else None
                self.say(str(one))
                one.began = now()
                end = one.kind.begin(self.place, one.target)
                if end:
                    time.sleep(one.lasts)
                    end()
                    self.say(f"  end of {one}")
                one.ended = now()
            if before:
                one.keys_after = self.keys.until_back(before)
        except Exception as e:
            self.problem("ended", f"{one}: {type(e).__name__}: {e}"[:2000])


class Keys:
    """The heartbeat keys in Redis."""

    def __init__(self, place):
        self.client = redis.Redis(port=place.redis.port, db=place.keys_db, decode_responses=True, socket_timeout=0.5)

    def there(self):
        try:
            return set(self.client.scan_iter("reins:worker:*:hb"))
        except redis.RedisError:
            return set()

    def until_back(self, before):
        """Seconds until all of them are there, None if they are not within LONGEST."""
        begun = now()
        while now() < begun + LONGEST:
            if before <= self.there():
                return now() - begun
            time.sleep(0.02)
        return None


def locks_for(where):
    return {name: threading.Lock() for names in where.values() for name in names}
