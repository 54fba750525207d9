"""The faults: each function begins one on a target and returns what ends it, or None if it is over."""

import os
import signal

import grpc
import stubs
from cluster import wait_for
from place import children_of, kill
from jobs import now

KINDS = {}
SPANS = (0.3, 1, 3, 5)  # seconds; the lease has 2
LONG = (1, 3.5, 5)


class Kind:
    """`on`: a key of targets(). `seen`: what detection.py looks for afterwards. `spans`: how long it may last."""

    def __init__(self, name, on, text, seen, spans, begin):
        self.name, self.on, self.text, self.seen, self.spans, self.begin = name, on, text, seen, spans, begin


def fault(on, text, seen="", spans=SPANS):
    def add(begin):
        name = begin.__name__.replace("_", "-")
        KINDS[name] = Kind(name, on, text, seen, spans, begin)
        return begin
    return add


def targets(place):
    """{what a Kind is `on`: the names of its targets}. Of one name only one thing happens at a time."""
    workers, masters = list(place.workers), list(place.masters)
    found = {
        "master": masters, "worker": workers, "requeue": ["w0", "w3"], "detach": ["w1", "w2"], "plain": ["w2"],
        "stream": [f"stream of {w}" for w in place.relays],
    }
    if place.store == "postgres":
        found |= {"postgres": ["postgres"], "redis": ["redis"], "store link": [f"store link of {m}" for m in masters],
                  "redis link": [f"redis link of {m}" for m in masters]}
    if place.network:
        found["network"] = ["network of w3"]
    if place.small_disk:
        found["disk"] = ["disk of w1"]
    return found


def owner(target):
    return target.rsplit(" ", 1)[-1]


# ---- masters ----

@fault("master", "reinsd killed (SIGKILL), started again", "back")
def master_killed(place, target):
    place.masters[target].kill9()
    return lambda: place.masters[target].start(wait=False)


@fault("master", "reinsd ended (SIGTERM), started again", "back")
def master_ended(place, target):
    status = place.masters[target].stop()
    assert status == 0, f"reinsd {target} ended with {status} after SIGTERM"
    return lambda: place.masters[target].start(wait=False)


@fault("master", "reinsd stands still (SIGSTOP)")
def master_frozen(place, target):
    return stopped([place.masters[target].process.pid])


# ---- workers ----

@fault("worker", "agent killed, started again", "back")
def agent_killed(place, target):
    place.workers[target].kill()
    return place.workers[target].start


@fault("worker", "agent stands still", spans=LONG)
def agent_frozen(place, target):
    return stopped([place.workers[target].process.pid])


@fault("worker", "a supervisor killed", "elsewhere", (0.3,))
def supervisor_killed(place, target):
    for pid in list(place.workers[target].supervisors().values())[:1]:
        kill(pid, signal.SIGKILL)


# A program that is left alone keeps no lease: not where exclusive ones are.
@fault("plain", "agent and its supervisors killed, not the programs", "elsewhere", LONG)
def agent_and_supervisors_killed(place, target):
    place.workers[target].kill_all()
    return place.workers[target].start


@fault("worker", "machine dies: agent, supervisors, programs", "elsewhere", LONG)
def machine_dies(place, target):
    place.kill_machine(target)
    return place.workers[target].start


@fault("worker", "agent killed, its state directory emptied", "elsewhere")
def new_instance(place, target):
    place.workers[target].kill()
    place.empty_state(target)
    return place.workers[target].start


@fault("requeue", "SIGTERM with --drain=requeue, started again", "elsewhere")
def drained_requeue(place, target):
    return drained(place.workers[target])


@fault("detach", "SIGTERM with --drain=detach, started again", "back")
def drained_detach(place, target):
    return drained(place.workers[target])


def drained(worker):
    worker.process.terminate()

    def again():
        try:
            worker.process.wait(30)
        except Exception:
            worker.kill()
            raise AssertionError(f"{worker.folder.name} does not end after SIGTERM: {worker.log()[-1000:]}") from None
        finally:
            worker.start()
        assert worker.process.poll() is None
    return again


@fault("worker", "drained by an operator, resumed", "starts")
def drained_from_afar(place, target):
    worker_id = place.ids + target
    mode = stubs.worker.DRAIN_REQUEUE if target in ("w0", "w3") else stubs.worker.DRAIN_WAIT
    if ask_any(place, stubs.admin.DrainWorkerRequest(worker_id=worker_id, mode=mode, reason="chaos")) is None:
        return None
    # Asked until it is done: the wish stays with the worker.
    return lambda: wait_for(lambda: ask_any(place, stubs.admin.DrainWorkerRequest(worker_id=worker_id, resume=True)),
                            f"the drain of {target} ends", 120)


def ask_any(place, request):
    for master in place.masters.values():
        with master.open_channel([("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                return stubs.admin_grpc.AdminServiceStub(channel).DrainWorker(request, timeout=2)
            except grpc.RpcError as e:
                if e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise
    return None


# The lease's rule says nothing for a supervisor and a tree that are paused together.
@fault("plain", "agent, supervisors and programs stand still", "elsewhere", LONG)
def tree_frozen(place, target):
    tree = place.stop_tree(target)
    return lambda: place.continue_tree(tree)


@fault("disk", "a worker's disk is full", "starts")
def disk_full(place, target):
    ballast = place.small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as f:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while f.write(b"x" * size):
                    pass
            except OSError:
                continue
    return lambda: ballast.unlink(missing_ok=True)


# ---- networks ----

def relays_of(place, target):
    return place.relays[owner(target)]


@fault("stream", "streams of a worker cut (RST)", "back", (0.1,))
def stream_cut(place, target):
    for relay in relays_of(place, target):
        relay.drop()


@fault("stream", "streams of a worker stand still", "elsewhere", LONG)
def stream_silent(place, target):
    return silent(*relays_of(place, target))


def silent(*relays):
    for relay in relays:
        relay.partition()
    return lambda: [relay.heal() for relay in relays]


@fault("network", "packets of a worker dropped, both ways", "elsewhere", LONG)
def packets_dropped(place, target):
    place.network.drop()
    return place.network.heal


@fault("network", "packets from a worker dropped", "elsewhere", LONG)
def packets_from_worker_dropped(place, target):
    place.network.drop(["out"])
    return place.network.heal


@fault("network", "packets to a worker dropped", "elsewhere", LONG)
def packets_to_worker_dropped(place, target):
    place.network.drop(["in"])
    return place.network.heal


@fault("network", "link of a worker down", "elsewhere", LONG)
def link_down(place, target):
    place.network.down()
    return place.network.heal


@fault("store link", "connections of a master to Postgres cut", "accepts", (0.1,))
def store_cut(place, target):
    place.store_relays[owner(target)].drop()


@fault("store link", "connections of a master to Postgres stand still", "accepts")
def store_silent(place, target):
    return silent(place.store_relays[owner(target)])


@fault("redis link", "connection of a master to Redis cut", "keys", (0.1,))
def redis_cut(place, target):
    place.redis_relays[owner(target)].drop()


@fault("redis link", "connection of a master to Redis stands still", "keys")
def redis_silent(place, target):
    return silent(place.redis_relays[owner(target)])


# ---- Postgres ----

@fault("postgres", "Postgres killed (SIGKILL), started again", "accepts")
def postgres_killed(place, target):
    server = place.postgres
    family = children_of(server.process.pid)
    server.process.kill()
    server.process.wait()
    # The next one does not start while any of them has the shared memory.
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in family), "the backends are gone")
    server.process = None
    return server.start


@fault("postgres", "Postgres restarted (immediate)", "accepts")
def postgres_restarted(place, target):
    place.postgres.stop()
    return place.postgres.start


@fault("postgres", "a backend killed: Postgres recovers by itself", "accepts", (0.1,))
def backend_killed(place, target):
    for pid, in backends(place, "pid")[:1]:
        kill(pid, signal.SIGKILL)
    # The answer of the old ones is not yet the end of them.
    wait_for(place.postgres._answers, "Postgres is back")


@fault("postgres", "all connections to Postgres ended by it", "accepts", (0.1,))
def backends_terminated(place, target):
    backends(place, "pg_terminate_backend(pid)")


def backends(place, what):
    return place.postgres.execute("postgres", f"SELECT {what} FROM pg_stat_activity WHERE datname = %s", (place.any_master().database,))


@fault("postgres", "Postgres stands still", "accepts")
def postgres_frozen(place, target):
    pid = place.postgres.process.pid
    return stopped([pid, *children_of(pid)])


# ---- Redis ----

@fault("redis", "Redis killed, started again empty", "keys")
def redis_killed(place, target):
    place.redis.stop()
    return place.redis.start


@fault("redis", "Redis stands still", "keys")
def redis_frozen(place, target):
    return stopped([place.redis.process.pid])


@fault("redis", "Redis flushed (FLUSHALL)", "keys", (0.1,))
def redis_flushed(place, target):
    place.redis.client.flushall()


@fault("redis", "one key deleted", "keys", (0.1,))
def key_deleted(place, target):
    found = sorted(place.any_master().keys.keys("reins:*"))
    if found:
        place.any_master().keys.delete(found[int(now() * 1000) % len(found)])


@fault("redis", "Redis is full (maxmemory)", "keys")
def redis_full(place, target):
    place.redis.client.config_set("maxmemory", "1")
    return lambda: place.redis.client.config_set("maxmemory", "0")


def stopped(pids):
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    return lambda: [kill(pid, signal.SIGCONT) for pid in pids]
