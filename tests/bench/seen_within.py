#!/usr/bin/python3
"""The table "must be seen within" of the design, measured with real programs under default settings.

    tests/bench/seen_within.py [--runs N] [--build DIR]

reinsd with Postgres (fsync on) and Redis, real workers, all on one machine. The rows of starting a process are
start_latency.py's, that of a restart with 1,000 workers is reconnect.py's. Each row: what was to be seen, the bound,
and how many seconds it took (median and longest of N).

  worker machine gone        agent, supervisors and programs killed -> its tasks have started elsewhere
  agent killed and started   its next process began -> the master holds its session with all that runs; nothing re-run
  Redis flushed              FLUSHALL -> heartbeat key, hash and owner keys of all that runs are right again
  Redis back                 it answers after an outage -> the same
  cancel                     CancelTask called -> the program is in its handler of SIGTERM
"""
import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--build", default=os.environ.get("REINS_BUILD", str(ROOT / "build")))
    return parser.parse_args()


ARGS = arguments()
os.environ["REINS_BUILD"] = ARGS.build

import stubs  # noqa: E402
from cluster import Cluster, Postgres, Redis, owner_key, wait_for  # noqa: E402
from real_worker import Worker  # noqa: E402

TASKS = 8
HEARTBEAT, LEASE = 2, 10  # the defaults
OUTAGE = 5
LONG = 120
TELLS_OF_SIGTERM = """
import signal, sys, time
def told(signum, frame):
    open(sys.argv[1] + '.new', 'w').write(repr(time.time()))
    __import__('os').rename(sys.argv[1] + '.new', sys.argv[1])
    sys.exit(3)
signal.signal(signal.SIGTERM, told)
open(sys.argv[1] + '.ready', 'w').close()
time.sleep(600)
"""


class Site:
    """A master, and workers that come and go."""

    def __init__(self, servers, folder):
        self.folder, self.workers = folder, {}
        self.cluster = Cluster(*servers, folder)
        self.cluster.flags["log-level"] = "warn"
        self.cluster.start()

    def worker(self, name):
        folder = self.folder / name
        folder.mkdir()
        self.workers[name] = Worker(pathlib.Path(ARGS.build).resolve(), folder, self.cluster.url, id=name, slots=TASKS,
                                    log_level="warn").start()
        return self.workers[name]

    def running(self, seconds=600):
        """Tasks that run, all on one worker: their ids."""
        ids = [self.cluster.submit(command=["sleep", str(seconds)]).id for _ in range(TASKS)]
        wait_for(lambda: all(self.cluster.get(i).HasField("started_at") for i in ids), "all of it to run", LONG)
        return ids

    def end(self, ids):
        for task_id in ids:
            self.cluster.cancel(task_id)
        for task_id in ids:
            self.cluster.finished(task_id, timeout=LONG)

    def close(self):
        for worker in self.workers.values():
            worker.stop()
        self.cluster.close()


def worker_gone(site):
    site.worker("lost")
    ids = site.running()
    site.worker("other")
    began = time.monotonic()
    site.workers["lost"].kill_all()

    def elsewhere():
        tasks = [site.cluster.get(i) for i in ids]
        return all(t.worker_id == "other" and t.attempt == 2 and t.HasField("started_at") for t in tasks)
    wait_for(elsewhere, "all of it elsewhere", LONG)
    took = time.monotonic() - began
    site.end(ids)
    for name in ("lost", "other"):
        site.workers.pop(name).stop()
        shutil.rmtree(site.folder / name)
    return took


def held(site, name):
    """Session and number of attempts of a worker that is connected; else None."""
    workers = site.cluster.admin.ListWorkers(stubs.admin.ListWorkersRequest(), timeout=LONG).workers
    found = [w for w in workers if w.worker_id == name and w.state == stubs.admin.WorkerInfo.CONNECTED]
    return (found[0].session, len(found[0].attempts)) if found else None


def agent_again(site):
    worker = site.worker("again")
    ids = site.running()
    before = held(site, "again")[0]
    worker.kill()
    began = time.monotonic()
    worker.start()

    def back():
        now = held(site, "again")
        return now and now[0] > before and now[1] == TASKS
    wait_for(back, "its session", LONG)
    took = time.monotonic() - began
    rerun = [t for t in map(site.cluster.get, ids) if t.attempt != 1]
    assert not rerun, rerun
    site.end(ids)
    site.workers.pop("again").stop()
    shutil.rmtree(site.folder / "again")
    return took


def keys_right(site, ids):
    keys = site.cluster.keys
    owners = [keys.get(owner_key(i)) for i in ids]
    return (keys.exists("reins:worker:{keys}:hb") and keys.hlen("reins:worker:{keys}:task") == len(ids) and
            all(o and o.startswith("keys ") for o in owners))


def until_keys(site, ids):
    began = time.monotonic()
    wait_for(lambda: keys_right(site, ids), "the keys", LONG)
    return time.monotonic() - began


def redis_rows(site, redis):
    """Both rows about Redis, for one set of tasks."""
    site.worker("keys")
    ids = site.running()
    until_keys(site, ids)
    flushed, back = [], []
    for _ in range(ARGS.runs):
        site.cluster.keys.flushall()
        flushed.append(until_keys(site, ids))
    for _ in range(ARGS.runs):
        redis.stop()
        time.sleep(OUTAGE)
        redis.start()
        back.append(until_keys(site, ids))
    assert {site.cluster.get(i).attempt for i in ids} == {1}
    site.end(ids)
    site.workers.pop("keys").stop()
    return flushed, back


def cancelled(site, n):
    mark = site.folder / f"told-{n}"
    task = site.cluster.submit(command=["/usr/bin/python3", "-c", TELLS_OF_SIGTERM, str(mark)])
    wait_for((site.folder / f"told-{n}.ready").exists, "the program", LONG)
    began = time.time()
    site.cluster.cancel(task.id)
    site.cluster.finished(task.id, timeout=LONG)
    return float(mark.read_text()) - began


def show(what, bound, took):
    print(f"{what:<46}{bound:>8.2f}{statistics.median(took):>9.3f}{max(took):>9.3f}", flush=True)


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-seen-"))
    folder.chmod(0o755)
    (folder / "servers").mkdir()
    (folder / "servers").chmod(0o755)
    servers = [Postgres(folder / "servers"), Redis(folder / "servers")]
    servers[0].execute("postgres", "ALTER SYSTEM SET fsync = on")
    servers[0].execute("postgres", "SELECT pg_reload_conf()")
    (folder / "site").mkdir()
    site = None
    print(f"{ARGS.runs} runs each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print(f"{'':<46}{'bound':>8}{'median':>9}{'longest':>9}  s")
    try:
        site = Site(servers, folder / "site")
        site.worker("cancels")
        show("cancel to SIGTERM at the process", 0.05, [cancelled(site, n) for n in range(4 * ARGS.runs)])
        site.workers.pop("cancels").stop()
        show(f"agent killed and started again, {TASKS} running", 1, [agent_again(site) for _ in range(ARGS.runs)])
        flushed, back = redis_rows(site, servers[1])
        show(f"Redis flushed, {TASKS} running", 2 * HEARTBEAT, flushed)
        show(f"Redis back after {OUTAGE} s, {TASKS} running", 2 * HEARTBEAT, back)
        show(f"worker machine gone, its {TASKS} run elsewhere", LEASE + 0.5, [worker_gone(site) for _ in range(ARGS.runs)])
    finally:
        if site:
            site.close()
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
