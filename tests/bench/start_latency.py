#!/usr/bin/python3
"""From submit to the start of the process, on an idle system, with the real reins-worker.

    tests/bench/start_latency.py [--tasks N] [--build DIR] [--tls]

One /usr/bin/true at a time with random pauses, over one grpcio connection, against reinsd with Postgres and Redis (fsync
on, unlike in the tests) and with sqlite and leases in memory. All of it on one machine, so one wall clock:

  submit to start     from just before the call to Task.started_at, at which exec had succeeded
  to the dispatch     until the master had claimed it for the worker (Attempt.dispatched_at): gRPC, one insert
  dispatch to start   commit of the claim, the way to the worker, the supervisor (started ahead), exec of the program
  submit answered     what the caller waited
  the worker          alone, with a master in Python in this process: from just before the Dispatch is given to
                      grpcio until exec had succeeded. Less "fork and exec", that is the worker's own part, with grpcio's
  one commit          one row into the same Postgres by a client of its own; fork and exec: posix_spawn of the same
                      program from a small process. These two are the machine's part.
"""
import argparse
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

PROGRAM = "/usr/bin/true"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--build", default=os.environ.get("REINS_BUILD", str(ROOT / "build")))
    parser.add_argument("--tls", action="store_true")
    return parser.parse_args()


ARGS = arguments()
os.environ["REINS_BUILD"] = ARGS.build

import stubs  # noqa: E402
from fake_master import FakeMaster  # noqa: E402
from cluster import Cluster, Postgres, Redis  # noqa: E402
from real_worker import Worker  # noqa: E402


class OnSqlite(Cluster):
    """Without Postgres and Redis."""

    def __init__(self, folder, tls):
        class Nothing:
            databases = 0

            def create_database(self):
                return "sqlite"

            def start(self):
                pass

            def db(self, _):
                return self

            def flushdb(self):
                pass

            def url(self, _):
                return ""

            def drop_database(self, _):
                pass
        super().__init__(Nothing(), Nothing(), folder, {}, tls=tls)
        self.flags.update({"store": f"sqlite:{folder}/reins.db", "lease": "memory"})


def seconds(timestamp):
    return timestamp.seconds + timestamp.nanos / 1e9


def pause():
    time.sleep(random.uniform(0.005, 0.03))


def measure(cluster, folder):
    cluster.flags["log-level"] = "warn"
    cluster.start()
    worker = Worker(pathlib.Path(ARGS.build).resolve(), folder, cluster.url, id="w1", slots=2, log_level="warn",
                    **cluster.worker_flags("w1")).start()
    rows = []
    try:
        for i in range(ARGS.tasks + 10):
            pause()
            began = time.time()
            task = cluster.submit(command=[PROGRAM])
            answered = time.time()
            done = cluster.finished(task.id)
            assert done.state == stubs.State.COMPLETED and done.attempt == 1, done
            dispatched, started = seconds(done.attempts[0].dispatched_at), seconds(done.started_at)
            if i >= 10:  # the first ones warm up
                rows.append((started - began, dispatched - began, started - dispatched, answered - began))
    finally:
        worker.stop()
        cluster.close()
    return list(zip(*rows))


def worker_alone(folder):
    master = FakeMaster(stubs.every)
    worker = Worker(pathlib.Path(ARGS.build).resolve(), folder, f"127.0.0.1:{master.port}", id="w1", slots=2,
                    log_level="warn").start()
    took = []
    try:
        session = master.session()
        for i in range(ARGS.tasks + 10):
            pause()
            task = master.task(PROGRAM)
            began = time.time()
            session.dispatch(task)
            ended = master.ended((task.task_id, task.attempt))
            if i >= 10:
                took.append(seconds(ended.outcome.started_at) - began)
    finally:
        worker.stop()
        master.close()
    return took


def spawns():
    took = []
    for _ in range(ARGS.tasks):
        pause()
        began = time.time()
        pid = os.posix_spawn(PROGRAM, [PROGRAM], {})  # comes back when exec has succeeded
        took.append(time.time() - began)
        os.waitpid(pid, 0)
    return took


def commits(postgres):
    database = postgres.create_database()
    connection = postgres.connect(database)
    took = []
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE one (n bigint PRIMARY KEY, t text)")
        for i in range(ARGS.tasks):
            pause()
            began = time.time()
            cursor.execute("INSERT INTO one VALUES (%s, repeat('x', 200))", (i,))
            took.append(time.time() - began)
    connection.close()
    return took


def show(name, values):
    values = sorted(values)
    at = [values[min(len(values) - 1, int(len(values) * q))] * 1000 for q in (0.5, 0.9, 0.99)]
    print(f"  {name:<20}" + "".join(f"{x:9.2f}" for x in at) + f"{statistics.fmean(values) * 1000:9.2f}")


def show_all(title, columns):
    print(f"{title:<22}" + "".join(f"{x:>9}" for x in ("p50", "p90", "p99", "mean")) + "  ms")
    for name, values in zip(("submit to start", "to the dispatch", "dispatch to start", "submit answered"), columns):
        show(name, values)


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-start-"))
    folder.chmod(0o755)
    servers = []
    print(f"{ARGS.tasks} tasks of {PROGRAM}, one at a time{', over TLS' if ARGS.tls else ''}; load {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} CPUs")
    try:
        for name in ("sqlite", "pg", "alone"):
            (folder / name).mkdir()
        show_all("sqlite and memory", measure(OnSqlite(folder / "sqlite", ARGS.tls), folder / "sqlite"))
        (folder / "servers").mkdir()
        (folder / "servers").chmod(0o755)
        servers = [Postgres(folder / "servers"), Redis(folder / "servers")]
        servers[0].execute("postgres", "ALTER SYSTEM SET fsync = on")
        servers[0].execute("postgres", "SELECT pg_reload_conf()")
        show_all("Postgres and Redis", measure(Cluster(*servers, folder / "pg", tls=ARGS.tls), folder / "pg"))
        print("parts")
        show("the worker", worker_alone(folder / "alone"))
        show("one commit", commits(servers[0]))
        show("fork and exec", spawns())
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
