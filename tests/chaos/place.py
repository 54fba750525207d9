"""The scene: Postgres and Redis, masters, workers with a road to each, and what can be done to them.

    masters --relay each--> Postgres, Redis
    workers --relay each--> each master;  the last one lives in a network namespace of its own, where that can be made
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import threading

from cluster import BUILD, Cluster, Postgres, Redis, wait_for
from netns import make_network
from proxy import Proxy
from real_worker import Worker, alive, start_ticks

LEASE, RECOVERY = 2.0, 0.5  # seconds
MASTER_TTL = 3.0  # shorter than some faults last: others take over
FLAGS = {
    "heartbeat-interval": "300ms", "lease-ttl": f"{LEASE:g}s", "accept-timeout": "1s", "disconnect-grace": "200ms",
    "reconcile-interval": "300ms", "recovery-interval": f"{RECOVERY:g}s", "redis-timeout": "300ms", "log-level": "info",
    # Losses are what this is made of; no task is to fail for them.
    "lost-limit": "1000",
    "master-ttl": f"{MASTER_TTL:g}s", "master-ttl-exclusive": "7s",
}
ORPHAN = 4  # seconds
DISK = 8 << 20  # bytes of the small one


class Place:
    def __init__(self, folder, store, masters):
        self.folder, self.store = folder, store
        self.missing = {}  # what the faults of a kind need and is not here -> why
        self.closing = contextlib.ExitStack()
        self.ids = f"chaos{os.getpid()}-"
        self.journal = folder / "journal"
        self.journal.touch()
        try:
            self._make(masters)
        except BaseException:
            self.close()
            raise

    def _make(self, masters):
        self.network, reason = make_network()
        if self.network:
            self.closing.callback(self.network.close)
        else:
            self.missing["network"] = reason
        # In /tmp a socket's path is short enough.
        self.postgres, self.redis = Postgres(self.folder), Redis(self.folder)
        self.closing.callback(self.redis.stop)
        self.closing.callback(self._end_postgres)
        self._make_masters(masters)
        self._make_workers()

    def _make_masters(self, n):
        first = Cluster(self.postgres, self.redis, self.folder, FLAGS)
        self.keys_db = self.postgres.databases % 16
        if self.network:
            # What comes from this machine does not pass the link of the namespace.
            first.address = first.flags["listen"] = f"{self.network.host}:{first.port}"
            first.flags["insecure"] = "true"
        self.masters = {"m1": first}
        for i in range(1, n):
            self.masters[f"m{i + 1}"] = first.another(f"m{i + 1}")
        self.store_relays, self.redis_relays = {}, {}
        for name, master in self.masters.items():
            if self.store == "sqlite":
                master.flags |= {"store": f"sqlite:{self.folder}/reins.db", "lease": "memory"}
                continue
            for relays, port, flag in ((self.store_relays, self.postgres.port, "store"), (self.redis_relays, self.redis.port, "lease")):
                relays[name] = self._relay(f"127.0.0.1:{port}")
                master.flags[flag] = master.flags[flag].replace(f"127.0.0.1:{port}", relays[name].address)
        for master in self.masters.values():
            self.closing.callback(self._end_master, master)
            master.start()

    def _relay(self, target):
        made = Proxy(target)
        self.closing.callback(made.close)
        return made

    def _make_workers(self):
        """w0 and w1 take exclusive tasks, w2 does not and may stand still as a whole, w3 is behind a network."""
        self.closing.callback(self._end_workers)
        self.workers, self.relays = {}, {}
        self.small_disk = None
        for i, drain in enumerate(("requeue", "detach", "detach", "requeue")):
            name = f"w{i}"
            folder = self.folder / name
            (folder / "state").mkdir(parents=True)
            if i == 1:
                self._mount(folder / "state")
            networked = i == 3 and self.network
            if not networked:
                self.relays[name] = [self._relay(m.address) for m in self.masters.values()]
            roads = [m.address for m in self.masters.values()] if networked else [r.address for r in self.relays[name]]
            # Half of them begin with the other master.
            server = ",".join(roads if i % 2 == 0 else reversed(roads))
            self.workers[name] = Worker(BUILD, folder, server, self.network.prefix if networked else (), id=self.ids + name, slots=6,
                                        queues="default" if i == 2 else "default,alone", log_level="info", kill_grace="500ms",
                                        drain=drain, drain_timeout="300ms", orphan_timeout=f"{ORPHAN}s").start()

    def _mount(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"reins-chaos", os.fsencode(folder), b"tmpfs", 0, b"size=%d,mode=0700" % DISK):
            self.missing["disk"] = f"a tmpfs can not be mounted here: {os.strerror(ctypes.get_errno())}"
            return
        self.small_disk = folder
        self.closing.callback(lambda: libc.umount2(os.fsencode(folder), 2))  # MNT_DETACH

    # ---- what is true of them ----

    def serving(self):
        return all(m.process.poll() is None and m.health() == "SERVING" for m in self.masters.values())

    def programs(self, worker=""):
        """{pid: its command} of all that the workers, or one of them, started for tasks."""
        return processes_with(f"REINS_WORKER_ID={self.ids}{worker}")

    def any_master(self):
        return next(iter(self.masters.values()))

    # ---- what is done to workers ----

    def kill_machine(self, name):
        """Agent, supervisors and programs at once: all stand still before the first is gone."""
        for pid in self.stop_tree(name):
            kill(pid, signal.SIGKILL)
        self.workers[name].process.wait()
        wait_for(lambda: not self.programs(name), lambda: f"they are gone: {self.programs(name)}")

    def stop_tree(self, name):
        """SIGSTOP for all of a worker's processes, until there are no new ones; {pid: when it started}."""
        worker, stopped = self.workers[name], {}
        while True:
            pids = {worker.process.pid, *worker.supervisors().values(), *self.programs(name), *spares_of(worker.process.pid)}
            new = {p: start_ticks(p) for p in pids - set(stopped)}
            if not new:
                return stopped
            for pid in new:
                kill(pid, signal.SIGSTOP)
            stopped |= new

    @staticmethod
    def continue_tree(stopped):
        for pid, ticks in stopped.items():
            if start_ticks(pid) == ticks:
                kill(pid, signal.SIGCONT)

    def empty_state(self, name):
        state = self.workers[name].state
        for entry in list(state.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    # ---- the end ----

    def _end_workers(self):
        for name, w in self.workers.items():
            if w.process and w.process.poll() is None:
                kill(w.process.pid, signal.SIGCONT)
                w.kill()
            for pid in w.supervisors().values():
                kill(pid, signal.SIGKILL)
            for pid in self.programs(name):
                kill(pid, signal.SIGKILL)

    @staticmethod
    def _end_master(master):
        if master.process and master.process.poll() is None:
            master.kill9()

    def _end_postgres(self):
        if self.postgres.process and self.postgres.process.poll() is None:
            self.postgres.stop()

    def close(self):
        self.closing.close()


class Watchdog(threading.Thread):
    """Sees programs that end while nobody ends them, and how large masters grow. `locks`: held by who acts on one.
    `hands`: what starts programs."""

    def __init__(self, place, locks, hands, problem):
        super().__init__(daemon=True)
        self.place, self.locks, self.hands, self.problem = place, locks, hands, problem
        self.over = threading.Event()
        self.rss = {}  # pid of a master -> (its name, KiB at first, at most)
        self.full = 0  # ends of an agent whose disk was full
        self.supervisors = {}  # pid -> (when it started, its worker)

    def run(self):
        while not self.over.wait(0.2):
            for name, master in self.place.masters.items():
                self._measure(name, master)
                self._look(name, master.process, lambda: f"reinsd {name}: {master.log()[-1500:]}", lambda: master.start(wait=False))
            for name, worker in self.place.workers.items():
                self.supervisors |= {pid: (start_ticks(pid), name) for pid in worker.supervisors().values()}
                self._look(name, worker.process, lambda: f"{name}: {worker.log()[-1500:]}", worker.start)

    def supervisors_left(self):
        """Of those that were seen; a directory may have been emptied under them."""
        return {pid: name for pid, (ticks, name) in self.supervisors.items() if alive(pid) and start_ticks(pid) == ticks}

    def _look(self, name, process, what, start):
        lock = self.locks[name]
        if process.poll() is None or not lock.acquire(blocking=False):
            return
        try:
            if process.poll() is None or self.over.is_set():
                return
            # Without room it can't note who it is.
            disk = self.locks.get(f"disk of {name}")
            if disk and disk.locked():
                self.full += 1
            else:
                self.problem("ended", f"ended by itself with {process.returncode}: {what()}")
            self.hands.submit(start).result()
        finally:
            lock.release()

    def _measure(self, name, master):
        pid = master.process.pid
        with contextlib.suppress(OSError, IndexError):
            kib = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
            _, first, most = self.rss.get(pid, (name, kib, 0))
            if kib:
                self.rss[pid] = (name, first, max(most, kib))


def processes_with(mark):
    """{pid: command} of those in whose environment a variable begins like this."""
    mark, found = mark.encode(), {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if any(v.startswith(mark) for v in (folder / "environ").read_bytes().split(b"\0")) and alive(int(folder.name)):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def children_of(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


spares_of = children_of  # supervisors without an attempt are not in the state directory yet


def kill(pid, sig):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)

